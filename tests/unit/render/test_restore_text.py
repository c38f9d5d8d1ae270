"""The text of a restore at the widths that terminals have, and in a pipe."""

import re

import pytest

from ckptctl.domain.controller import Redispatch
from ckptctl.domain.plan import Step
from ckptctl.domain.redispatch import Discard, ReusedSibling, SessionFacts
from ckptctl.domain.restore import RejectedSnapshot, RestoreResult
from ckptctl.domain.transaction import StepTime
from ckptctl.render.restore_text import SHOWN, restore_text

GROUP = "c3e35b91-30e3-5ba4-bb65-41b92c5f2c16"


def a_redispatch(index=0, rollout=None, **changes):
    facts = {
        "group_id": GROUP,
        "generation_index": index,
        "rollout_id": rollout or f"{GROUP}_g{index}",
        "source_attempt": 0,
        "replacement_attempt": 1,
        "mode": "continue",
        "reason": "boundary restored",
    }
    return Redispatch(**{**facts, **changes})


def a_session(index=0):
    return SessionFacts(server_name="counter", rollout_id=f"{GROUP}_g{index}", attempt_index=0)


def a_result(**changes):
    facts = {
        "outcome": "restored",
        "anchor": "step_3",
        "snapshot": "/runs/demo/step_3/rollout_snapshots/snapshot_000007",
        "saved_checkpoint_id": f"rollout-step-3-snapshot-7-{'ab' * 16}",
        "checkpoint_id": f"restore-{'cd' * 16}",
        "rollouts": (a_redispatch(), a_redispatch(1, mode="restart", reason="depends on restart_only genrm")),
        "reused": (ReusedSibling(group_id=GROUP, rollout_id=f"{GROUP}_g2", attempt_index=0),),
        "discards": (
            Discard(rollout_id=f"{GROUP}_g1", source_attempt=0, replacement_attempt=1, reason="depends on ..."),
        ),
        "cleared_staging_keys": ("a", "b"),
        "unclaimed_sessions": (a_session(1),),
        "dispatched": 2,
        "steps": (StepTime(number="3", name="restore-controller", seconds=0.25),),
    }
    return RestoreResult(**{**facts, **changes})


def at(width, result, **options):
    return restore_text(result, to_terminal=True, width=width, **options).splitlines()


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(width):
    """Long paths, ids and reasons go on in the next line, indented."""
    rejected = RejectedSnapshot(
        snapshot="step_3/rollout_snapshots/snapshot_000008", verdict="invalid", reason="x y " * 60
    )
    lines = at(width, a_result(rejected=(rejected,), warnings=("w " * 90,)), verbose=1)

    assert max(len(line) for line in lines) <= width
    assert "restored: everybody is resumed, admission is open" == lines[0]


def test_ids_stay_whole_at_80_columns():
    """They are copied from here; the reason breaks instead."""
    lines = at(80, a_result())

    assert any(line.startswith(f"  {GROUP}_g0  0 -> 1   continue  boundary restored") for line in lines)
    assert any(line.startswith(f"  {GROUP}_g1  0 -> 1   restart   depends on") for line in lines)
    assert "  rollouts: 1 continued, 1 restarted, 1 finished and reused, 2 handed to the" in lines


def test_an_id_that_leaves_no_room_stays_whole():
    """It can be copied; the terminal itself breaks what is too wide for it."""
    lines = at(80, a_result(rollouts=(a_redispatch(0, "R" * 150),)))

    assert [1] == [line.count("R" * 150) for line in lines if "R" in line]


def test_many_sessions_are_cut_unless_asked_for():
    """They only concern the next snapshot; the total is told."""
    result = a_result(unclaimed_sessions=tuple(a_session(index) for index in range(SHOWN + 5)))
    short, long = at(120, result), at(120, result, verbose=1)

    assert "  15 restored sessions that no continuation claims, remembered for the next snapshot:" in short
    assert "    and 5 more (`--verbose` lists them all)" in short
    assert [SHOWN, SHOWN + 5] == [sum(line.startswith("    counter: ") for line in lines) for lines in (short, long)]
    assert ["  3", "restore-controller", "250 ms"] == re.split(r"(?<=\S) {2,}", long[-1])


def test_a_plan_is_told_as_what_would_be_done():
    """Every verb looks ahead, and nothing was changed."""
    step = Step(number="4.1", name="restore-models", targets=("policy_model",), undo="-")
    lines = at(120, a_result(outcome="planned", checkpoint_id=None, plan=(step,), steps=(), dispatched=0))

    assert "planned: nothing was changed" == lines[0]
    assert "    4.1  restore-models: policy_model" in lines
    assert "  rollouts: 1 to continue, 1 to restart, 1 finished and reused" in lines
    assert "  1 restored continuation to be discarded on every agent" in lines
    assert "  2 staged rows to be cleared" in lines


def test_nothing_to_restore():
    """The reason stands where the snapshot would."""
    result = RestoreResult(
        outcome="trainer_checkpoint", anchor="step_3", snapshot=None, reason="anchor `step_3` has no snapshot: ..."
    )

    assert ["nothing to restore: anchor `step_3` has no snapshot: ..."] == at(80, result)


def test_names_from_files_are_data():
    """Terminal escapes and markup in a name are neutralised."""
    hostile = "\x1b[31mred[bold]"
    result = a_result(rollouts=(a_redispatch(0, "g_g0", reason=hostile),), warnings=(hostile,))
    text = restore_text(result, to_terminal=False)

    assert "\x1b" not in text
    assert "[bold]" in text
