"""What is worth a call, from facts."""

import pytest

from ckptctl.domain.metrics import DirectoryFacts, SeenSnapshot
from ckptctl.planning.alert import AgeLimits, AlertState, judge_alert

VALID = SeenSnapshot("step_1/rollout_snapshots/snapshot_000001", "step_1", "valid", "quick", 100.0, 50.0, 1)
NONE = AgeLimits()


def facts(**changes) -> DirectoryFacts:
    known = {"snapshots": (VALID,), "is_release_pending": False, "may_be_closed": False, "is_locked": False}
    return DirectoryFacts("/run", **{**known, **changes})


@pytest.mark.parametrize(
    ("found", "limits", "state", "told"),
    [
        (facts(), NONE, AlertState.OK, "is valid"),
        (facts(), AgeLimits(50, 60), AlertState.WARNING, "50 s old, limit 50 s"),
        (facts(), AgeLimits(10, 50), AlertState.CRITICAL, "50 s old, limit 50 s"),
        (
            facts(unfinished="x", is_release_pending=True, finished_by="ckptctl publish"),
            NONE,
            AlertState.CRITICAL,
            "not released: run `ckptctl publish`",
        ),
        (
            facts(unfinished="x", may_be_closed=True, finished_by="ckptctl restore"),
            NONE,
            AlertState.CRITICAL,
            "admission may be closed: run `ckptctl restore`",
        ),
        (facts(unfinished="x", finished_by="ckptctl publish"), NONE, AlertState.WARNING, "was interrupted"),
        (facts(obstacle="cannot read"), AgeLimits(10, 50), AlertState.CRITICAL, "limit 50 s"),
        (facts(obstacle="cannot read"), AgeLimits(10), AlertState.UNKNOWN, "cannot read"),
        (facts(snapshots=None, obstacle="gone"), NONE, AlertState.UNKNOWN, "gone"),
    ],
)
def test_the_worst_counts(found, limits, state, told) -> None:
    """Critical before unknown before warning, and the reason for it comes first."""
    alert = judge_alert(found, limits)

    assert state == alert.state
    assert told in alert.reasons[0]


def test_an_age_that_nobody_knows_is_unknown() -> None:
    """A snapshot from the future."""
    future = SeenSnapshot(VALID.path, "step_1", "valid", "quick", 9e9, None, 1)

    assert AlertState.UNKNOWN == judge_alert(facts(snapshots=(future,)), NONE).state
