"""Hints that fit the breach: who is to blame, and what helps; and notes that are not given where nothing can be counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckptctl.domain.evidence import Part
from ckptctl.domain.finding import Defect
from ckptctl.domain.ids import CHECKSUMS_FILE
from ckptctl.rules.run import run_rules
from tests.builders import a_published_evidence, an_evidence
from tests.edits import DROP
from tests.rules import FAMILIES
from tests.rules.samples import BAD

assert FAMILIES, "the sample modules register when they are imported"
DAMAGED = (Defect("`x` is NaN, which is no JSON number", "line 3"),)


def hints(rule: str, evidence) -> set[str]:
    found = {finding.hint for finding in run_rules(evidence).findings if finding.rule == rule}
    assert found, f"{rule} found nothing"
    return found


def outcome(rule: str, evidence) -> tuple[str, str]:
    return next((item.outcome, item.reason) for item in run_rules(evidence).outcomes if item.rule == rule)


def with_a_damaged_record():
    evidence = an_evidence()
    agent = next(item for item in evidence.agents if item.records)
    key = next(iter(agent.records))
    records = {**agent.records, key: replace(agent.records[key], state="damaged", value=None, defects=DAMAGED)}
    return replace(
        evidence, agents=tuple(replace(item, records=records) if item is agent else item for item in evidence.agents)
    )


def test_a_record_that_was_written_wrong():
    """Its archive has its digest: the writer is to blame, nobody changed it since."""
    [hint] = hints("PAR007", with_a_damaged_record())

    assert "it was written like this" in hint


@pytest.mark.parametrize(
    "change", [lambda part: replace(part, sha256="0" * 64), lambda part: Part(part.path, "missing")]
)
def test_an_archive_that_is_not_the_committed_one(change):
    """Another digest, or gone: changed since."""
    [hint] = hints("PAR007", an_evidence({"agents 0 archives agent-part-000000.tar": change}))

    assert "after the commit" in hint


def test_hints_about_sessions():
    """Retiring orphans helps against surplus sessions only; missing ones and other revisions have another cause."""
    found = {sample.title: hints("PAR021", sample.build()) for sample in BAD["PAR021"]}
    [orphan] = found["a session without a boundary"]
    [missing] = found["a boundary whose session was not exported"]

    assert {missing} == found["a session at another revision"]
    assert "committed different states" in missing
    assert "retires" not in missing
    assert "retires orphans before it commits" in orphan
    assert "different states" not in orphan


def test_a_checksum_file_that_is_a_link_is_said_once():
    """Known to be wrong: that its digest cannot be compared too is no gap of its own."""
    evidence = a_published_evidence(
        {
            "checksums": lambda part: Part(part.path, "damaged", defects=(Defect("is a symbolic link"),)),
            f"digests {CHECKSUMS_FILE}": DROP,
        }
    )

    assert ("skipped", "because of SUM001") == outcome("SUM007", evidence)
    assert [] == [finding for finding in run_rules(evidence).findings if finding.kind == "gap"]


def test_nothing_is_counted_where_participants_cannot_be_used():
    """Whoever has a continuation is unknown then: no note that calls them restarted."""
    broken = an_evidence({"manifest gym_defects": (Defect("`relative_path` must not contain `..`"),)}, agents=())
    lost = an_evidence({"resources 0 manifest": lambda part: Part(part.path, "missing")})

    assert ("skipped", "because of MAN005") == outcome("LED011", broken)
    assert ("skipped", "because of PAR002") == outcome("LED011", lost)
    assert "passed" == outcome("LED011", an_evidence())[0]
