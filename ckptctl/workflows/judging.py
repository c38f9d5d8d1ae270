"""Let the rules judge: what live servers said during a transaction, and a staged directory as the snapshot that it
will be.

A rule that fails becomes an error with the rule's own words; what to do about it (abort, refuse) is decided by
whoever asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ckptctl.domain.evidence import AnchorEvidence, Evidence, LiveFacts, ManifestReading, Part
from ckptctl.domain.finding import Finding, Level, TargetReport
from ckptctl.domain.memory_room import MORE_MEMORY, UNBOUNDED, MemoryRoom
from ckptctl.domain.participant import DiscoveredParticipant
from ckptctl.errors import CkptctlError, IncompatibleSnapshotError, InvalidSnapshotError, NotCheckedError
from ckptctl.ports import SnapshotReader
from ckptctl.rules import ALL_RULES
from ckptctl.rules.run import run_rules
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_evidence import Known, load_target
from ckptctl.workflows.targets import snapshot_target
from ckptctl.workflows.validate import ValidateRequest, judge

ORPHANS_BEFORE_COMMIT, ACKNOWLEDGEMENT_ECHO, SHARED_STORAGE, RETENTION, ADMISSION_OPEN = 80, 87, 94, 95, 96
"""Invariants that only live servers can break; the numbers are those of the reference list."""
_FINDINGS_TOLD = 3


def judge_live(
    invariants: tuple[int, ...],
    live: LiveFacts,
    capabilities: tuple[DiscoveredParticipant, ...] | None = None,
    *,
    anchor: AnchorEvidence | None = None,
) -> tuple[Finding, ...]:
    """Findings of live rules on what servers said, or on what is about to be deleted from an anchor; nothing is read here."""
    rules = tuple(rule for rule in ALL_RULES if rule.invariant in invariants)
    assert len({rule.invariant for rule in rules}) == len(invariants), f"no rule for one of {invariants}"
    return run_rules(replace(_without_files(live, capabilities), anchor=anchor), rules=rules).findings


def finding_error(finding: Finding) -> CkptctlError:
    """A finding that stops a transaction."""
    return InvalidSnapshotError(f"{finding.rule}: {finding.message}", hint=finding.hint)


@dataclass(frozen=True, slots=True)
class JudgedStaged:
    """A staged directory as it was judged, with the digest of every file that is to be published."""

    report: TargetReport
    evidence: Evidence


def judge_staged(
    reader: SnapshotReader,
    path: str,
    level: Level,
    capabilities: tuple[DiscoveredParticipant, ...] | None = None,
    room: MemoryRoom = UNBOUNDED,
) -> JudgedStaged:
    """Validate a staged directory under the name that it will have; the same reading digests every file."""
    request = ValidateRequest(paths=(path,), level=level, capabilities=capabilities, under_final_name=True)
    known = Known(capabilities=capabilities, under_final_name=True, writes_checksums=True)
    anchors = AnchorLoader(reader, request.limits, room)
    loaded = load_target(reader, snapshot_target(path), level, known, anchors, request.limits)
    return JudgedStaged(judge(loaded, request), loaded.evidence)


def require_valid(report: TargetReport, room: MemoryRoom = UNBOUNDED) -> None:
    """Raise for a snapshot that is not valid; the message has the first findings. `room`: in which it was read."""
    if report.verdict == "valid":
        return
    errors = [finding for finding in report.findings if finding.severity == "error"]
    told = "; ".join(f"{finding.rule}: {finding.message}" for finding in errors[:_FINDINGS_TOLD])
    if len(errors) > _FINDINGS_TOLD:
        told += f"; and {len(errors) - _FINDINGS_TOLD} more"
    if not errors:
        gaps = [
            f"{outcome.rule} could not run: {outcome.reason}"
            for outcome in report.outcomes
            if outcome.outcome == "could_not_run"
        ]
        told = "; ".join(gaps[:_FINDINGS_TOLD])
        if len(gaps) > _FINDINGS_TOLD:
            told += f"; and {len(gaps) - _FINDINGS_TOLD} more"
    kinds = {"invalid": InvalidSnapshotError, "incompatible": IncompatibleSnapshotError, "incomplete": NotCheckedError}
    unread = MORE_MEMORY if room.refusals else "`ckptctl validate` says what could not be read"
    hint = errors[0].hint if errors else unread
    raise kinds[report.verdict](f"`{report.path}` is {report.verdict}: {told}", hint=hint)


def _without_files(live: LiveFacts, capabilities: tuple[DiscoveredParticipant, ...] | None) -> Evidence:
    """Evidence of a snapshot of which nothing is known but what the servers said."""

    def absent(path: str) -> Part[Any]:
        return Part(path, "missing")

    return Evidence(
        path="",
        kind="snapshot",
        name="",
        level="standard",
        tree=(),
        manifest=ManifestReading(Part("manifest.json", "missing")),
        anchor=None,
        cut=None,
        config=absent("config.yaml"),
        dataloader=absent("train_dataloader.pt"),
        reserve=absent("replacement_reserve.pt"),
        replay=absent("replay_buffer_metadata.pt"),
        ledger=absent("rollout_recovery.pt"),
        metadata=absent("data_plane/metadata.json"),
        unit_info=absent("data_plane/simple_storage/storage_unit_info.json"),
        controller_state=absent("data_plane/controller_state.pkl"),
        units={},
        capabilities=capabilities,
        live=live,
    )
