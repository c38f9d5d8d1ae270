"""`kill -9` of a real `ckptctl restore` on its way, a second restore of a run that was restored before: the end is always the same."""

import json

import pytest

from ckptctl.planning import restore as steps
from ckptctl.planning.snapshot import RESUME_MODELS
from tests.e2e.lives import HELD, Life, owning

pytestmark = [pytest.mark.e2e, pytest.mark.long]
OPTIONS = ("--prompts", "2", "--turns", "4", "--turn-delay", "0.01")
ROLLOUTS = 4
OFTEN = (steps.RESTORE_AGENTS, RESUME_MODELS)
"""Killed there, one after another in one restore, in every run of the tests; at each alone in the long mode."""


@pytest.fixture(scope="module")
def owned():
    with owning():
        yield


@pytest.fixture(scope="module")
def whole(owned, tmp_path_factory):
    """A run without any interruption."""
    life = Life(tmp_path_factory.mktemp("whole") / "run")
    try:
        life.sim("up", *OPTIONS)
        life.finish()
        life.sim("down")
    finally:
        life.end()
    return life


@pytest.fixture
def life(owned, tmp_path):
    """A run with everything in flight."""
    made = Life(tmp_path / "run")
    try:
        made.sim("up", *OPTIONS)
        made.hold_generation(after_calls=ROLLOUTS)
        made.sim("run", "--until-groups", "2")
        made.wait_for_mutations(ROLLOUTS + 2)
        yield made
    finally:
        made.end()


def compare(whole: Life, life: Life) -> dict:
    """The comparison that `sim compare` makes."""
    from ckptctl.sim.equivalence import compare as compared

    return compared(str(whole.folder), str(life.folder), "counter").model_dump()


def restored(life: Life, path: str) -> dict:
    """The restore once more, which must succeed."""
    answer = life.ckptctl("restore")
    assert ("restored", path) == (answer["outcome"], answer["snapshot"])
    phases = {item["phase"] for item in life.sim("status")["processes"] if item["phase"] is not None}
    assert {"idle"} == phases
    return answer


def test_killed_on_the_way_and_restored_twice(whole, life) -> None:
    """Killed twice, under one id all the time; then another snapshot, another death, attempts N+2; equal in the end."""
    path = life.snapshot_and_die()
    life.sim("restart", "--restore-expected")
    for step in OFTEN:
        life.kill_restore_at(step)
    life.hold_generation()
    first = restored(life, path)
    journals = list(life.journals.glob("*-restore.jsonl"))
    again = life.snapshot_and_die()
    life.sim("restart", "--restore-expected")
    second = restored(life, again)
    life.finish()
    found = compare(whole, life)

    assert 1 == len(journals)
    assert path != again
    assert [] == found["differences"]
    assert (True, 2, ROLLOUTS) == (found["equal"], found["restores"], found["rollouts"])
    assert {(0, 1)} == {(item["source_attempt"], item["replacement_attempt"]) for item in first["rollouts"]}
    assert {(1, 2)} == {(item["source_attempt"], item["replacement_attempt"]) for item in second["rollouts"]}


@pytest.mark.parametrize("step", HELD)
def test_killed_at_a_step(whole, life, step) -> None:
    """The same command again succeeds under the same id, and the run ends equal to an uninterrupted one."""
    path = life.snapshot_and_die()
    life.sim("restart", "--restore-expected")
    life.kill_restore_at(step)
    answer = restored(life, path)
    life.finish()
    found = compare(whole, life)
    [lines] = [path.read_text().splitlines() for path in life.journals.glob("*-restore.jsonl")]

    assert [] == found["differences"]
    assert (True, 1) == (found["equal"], found["restores"])
    assert ("begin", answer["checkpoint_id"]) == tuple(json.loads(lines[0])[key] for key in ("event", "checkpoint_id"))
    assert ["recovery"] == [json.loads(line)["event"] for line in lines if '"recovery"' in line]
