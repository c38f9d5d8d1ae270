"""One report from the reports of all shards."""

import pytest

from ckptctl.domain.finding import Coverage, Finding, Report, RuleOutcome, ShareInfo, TargetReport, Unchecked
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.share import OTHER_SHARD
from ckptctl.rules.merge import ShardsDoNotFitError, check_shards, merge_shards

SUBJECT = "a" * 64


def a_finding(rule="INV007", **changes):
    given = {
        "rule": rule,
        "name": "digest-differs",
        "severity": "error",
        "artifact": "data_plane/su_0.pkl",
        "location": "key",
        "message": "differs",
        "expected": "",
        "actual": "",
        "hint": "Use another.",
    }
    return Finding(**(given | changes))


def an_outcome(rule="INV007", outcome="passed", reason=""):
    return RuleOutcome(rule=rule, name="digest-differs", outcome=outcome, reason=reason)


def a_target(findings=(), outcomes=None, verdict=None, unchecked=(), **changes):
    severities = {finding.severity for finding in findings}
    given = {
        "path": "/run/step_1/rollout_snapshots/snapshot_000001",
        "kind": "snapshot",
        "verdict": verdict or ("invalid" if "error" in severities else "valid"),
        "level": "full",
        "findings": tuple(findings),
        "outcomes": tuple(outcomes or (an_outcome(outcome="failed" if findings else "passed"),)),
        "coverage": Coverage(
            files_total=4, files_checked=2, bytes_total=100, bytes_checked=60, unchecked=tuple(unchecked)
        ),
    }
    return TargetReport(**(given | changes))


def a_shard(index, count=2, target=None, **changes):
    target = target or a_target()
    given = {
        "tool_version": "1",
        "verdict": target.verdict,
        "targets": (target,),
        "share": ShareInfo(kind="shard", index=index, count=count, subject=SUBJECT),
    }
    return Report(**(given | changes))


def merged(*targets):
    shards = [a_shard(index, len(targets), target) for index, target in enumerate(targets, 1)]
    check_shards([(f"{index}.json", shard) for index, shard in enumerate(shards, 1)])
    return merge_shards(shards)


def test_all_valid_is_valid_and_no_shard_any_more():
    """The report of the whole says nothing of shards."""
    report = merged(a_target(), a_target())

    assert "valid" == report.verdict
    assert report.share is None


def test_a_finding_of_one_shard_is_a_finding_of_the_whole():
    """Only the shard that read the row can see it."""
    report = merged(a_target(), a_target([a_finding()]))

    assert "invalid" == report.verdict
    assert (a_finding(),) == report.targets[0].findings
    assert ["failed"] == [item.outcome for item in report.targets[0].outcomes]


def test_what_every_shard_found_stands_once():
    """Findings of what is not divided are the same in all shards."""
    report = merged(a_target([a_finding()]), a_target([a_finding()]))

    assert (a_finding(),) == report.targets[0].findings


def test_many_findings_are_counted_over_all_shards():
    """The list is cut as in one report, and the last counts the rest of all."""
    shown = DEFAULT_LIMITS.findings_shown
    first = [a_finding(location=f"a{number}") for number in range(shown)]
    second = [a_finding(location=f"b{number}") for number in range(3)]
    report = merged(
        a_target([*first, a_finding(kind="more", count=5, message="and 5 more of this kind (25 in all)")]),
        a_target(second),
    )
    *told, last = report.targets[0].findings

    assert shown == len(told)
    assert ("more", 8, f"and 8 more of this kind ({shown + 8} in all)") == (last.kind, last.count, last.message)


def test_incomplete_in_one_shard_is_incomplete():
    """What a shard could not check, nobody has."""
    gap = a_finding(severity="warning", kind="gap")
    report = merged(a_target([gap], [an_outcome(outcome="could_not_run", reason="x")], "incomplete"), a_target())

    assert "incomplete" == report.verdict
    assert (gap,) == report.targets[0].findings


def test_an_error_outweighs_an_incompatibility_of_another_shard():
    """As within one report."""
    report = merged(
        a_target([a_finding("MAN003", incompatible=True)], [an_outcome("MAN003", "failed"), an_outcome()]),
        a_target([a_finding()], [an_outcome("MAN003", "failed"), an_outcome(outcome="failed")]),
    )

    assert "invalid" == report.verdict


def test_coverage_is_what_no_shard_looked_at():
    """What one shard left to another has been read by that one; what all left stays unchecked."""
    stray = Unchecked(path="stray", bytes=10, reason="not part of the format", is_whole_file=True)
    report = merged(
        a_target(unchecked=[stray, Unchecked(path="b", bytes=20, reason=OTHER_SHARD, is_whole_file=True)]),
        a_target(unchecked=[stray, Unchecked(path="a", bytes=30, reason=OTHER_SHARD)]),
    )
    coverage = report.targets[0].coverage

    assert (stray,) == coverage.unchecked
    assert (3, 90) == (coverage.files_checked, coverage.bytes_checked)


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        ([a_shard(1), a_shard(2, share=None)], "`1` is no report of a shard"),
        ([a_shard(1), a_shard(1)], "shard 1 is there twice: `0` and `1`"),
        ([a_shard(1), a_shard(2, 3)], "the number of shards is 3, not 2"),
        ([a_shard(1), a_shard(2, tool_version="2")], "the version of ckptctl is 2, not 1"),
        ([a_shard(1), a_shard(2, target=a_target(path="/other"))], "the targets is /other"),
        ([a_shard(1), a_shard(2, target=a_target(level="standard"))], "the level is standard, not full"),
        (
            [a_shard(1), a_shard(2, share=ShareInfo(kind="shard", index=2, count=2, subject="b" * 64))],
            "other rules, another configuration, or the files changed",
        ),
    ],
)
def test_reports_that_do_not_belong_together(shards, words):
    """Foreign, doubled and unsharded reports are refused, with what differs."""
    with pytest.raises(ShardsDoNotFitError, match=words) as raised:
        check_shards([(str(place), shard) for place, shard in enumerate(shards)])

    assert not raised.value.is_incomplete


@pytest.mark.parametrize(
    ("there", "count", "words"),
    [
        ((1, 2), 3, "shard 3 of 3 did not report"),
        ((1, 3), 4, "shards 2 and 4 of 4 did not report"),
        ((5,), 6, "shards 1, 2, 3, 4 and 6 of 6 did not report"),
        ((1,), 13, "shards 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more of 13 did not report"),
    ],
)
def test_a_missing_shard_is_named(there, count, words):
    """The verdict of the others is not the verdict of the whole; the number of a shard is no count of shards."""
    with pytest.raises(ShardsDoNotFitError) as raised:
        check_shards([(str(index), a_shard(index, count)) for index in there])

    assert words == str(raised.value)
    assert raised.value.is_incomplete
