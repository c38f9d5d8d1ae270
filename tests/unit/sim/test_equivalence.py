"""What comparing two runs finds, on logs written by hand: one rollout continued, one kept, one never dispatched before the cut."""

import json

import pytest

from ckptctl.errors import NothingThereError
from ckptctl.sim.account import Account
from ckptctl.sim.equivalence import compare
from ckptctl.sim.run_history import read_history

STATE = {"asked": 2, "count": 2, "tickets": [0, 1]}


def a_result(rollout, incarnation=1, attempt=0, **changes):
    return {
        "kind": "sibling",
        "incarnation": incarnation,
        "group_id": rollout.rpartition("_g")[0],
        "rollout_id": rollout,
        "attempt_index": attempt,
        "reward": 1.0,
        "mask_sample": False,
        "final_state": STATE,
        "transcript_digest": f"digest of {rollout}",
        **changes,
    }


def a_finish(group, incarnation=1):
    return {"kind": "group", "incarnation": incarnation, "group_id": group}


def a_dispatch(rollout, incarnation=1, attempt=0, event="dispatched"):
    return {"incarnation": incarnation, "rollout_id": rollout, "attempt_index": attempt, "event": event, "reason": ""}


def mutations(rollout, revisions, incarnation=1, attempt=0):
    routes = {1: "seed_session", 2: "increment", 3: "increment", 4: "verify"}
    return [
        {
            "event": "mutation",
            "server": "counter",
            "incarnation": incarnation,
            "rollout": rollout,
            "attempt": attempt,
            "turn": revision - 1,
            "route": routes[revision],
            "revision": revision,
            "request_id": f"{rollout}-{attempt}-{revision}",
        }
        for revision in revisions
    ]


def write(folder, *, results, dispatches, restores=(), audit):
    folder.mkdir()
    for name, lines in (
        ("results", results),
        ("dispatches", dispatches),
        ("restores", restores),
        ("audit-counter-1-x", audit),
    ):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


ROLLOUTS = ("done_g0", "cont_g0", "new_g0")


@pytest.fixture
def first(tmp_path):
    """The uninterrupted run."""
    write(
        tmp_path / "a",
        results=[*map(a_result, ROLLOUTS), *(a_finish(name.rpartition("_g")[0]) for name in ROLLOUTS)],
        dispatches=[*map(a_dispatch, ROLLOUTS)],
        audit=[line for name in ROLLOUTS for line in mutations(name, (1, 2, 3, 4))],
    )
    return str(tmp_path / "a")


class Restored:
    """The restored run; a test changes one thing before it is written."""

    def __init__(self, folder):
        self.folder = folder
        self.results = [
            a_result("done_g0"),
            a_finish("done"),
            a_result("cont_g0", reward=0.0, final_state={}),  # after the cut, lost in the crash
            a_result("cont_g0", 2, 1),
            a_finish("cont", 2),
            a_result("new_g0", 2),
            a_finish("new", 2),
        ]
        self.dispatches = [
            a_dispatch("done_g0"),
            a_dispatch("cont_g0"),
            a_dispatch("cont_g0", 2, 1),
            a_dispatch("new_g0", 2),
        ]
        self.siblings = [
            {"group_id": "cont", "rollout_id": "cont_g0", "attempt_index": 0, "status": "abandoned"},
            {"group_id": "new", "rollout_id": "new_g0", "attempt_index": 0, "status": "reserved"},
        ]
        self.held = {"rollout_id": "cont_g0", "attempt_index": 1, "revision": 2}
        self.audit = [
            *mutations("done_g0", (1, 2, 3, 4)),
            *mutations("cont_g0", (1, 2, 3, 4)),  # 3 and 4 are after the cut
            *mutations("cont_g0", (3, 4), 2, 1),
            *mutations("new_g0", (1, 2, 3, 4), 2),
        ]

    def compared_with(self, first):
        redispatch = [
            {"rollout_id": "cont_g0", "source_attempt": 0, "replacement_attempt": 1, "mode": "continue"},
            {"rollout_id": "new_g0", "source_attempt": 0, "replacement_attempt": 0, "mode": "restart"},
        ]
        restore = {"incarnation": 2, "finished_groups": ["done"], "siblings": self.siblings, "redispatch": redispatch}
        restored = {
            "event": "restored",
            "server": "counter",
            "incarnation": 2,
            "checkpoint_id": "ck",
            "sessions": [self.held],
        }
        write(
            self.folder,
            results=self.results,
            dispatches=self.dispatches,
            restores=[restore],
            audit=[*self.audit, restored],
        )
        return compare(first, str(self.folder), "counter")


@pytest.fixture
def restored(tmp_path):
    return Restored(tmp_path / "b")


def test_a_faithful_restore_is_equal(first, restored):
    """What the snapshot held plus what followed is the uninterrupted run; work lost in the crash does not count."""
    found = restored.compared_with(first)

    assert [] == found.differences
    assert (3, 3, 12) == (found.rollouts, found.groups, sum(found.mutations.values()))
    assert (1, Account(finished=1, continued=1, reserved=1)) == (found.kept_groups, found.account)


def test_every_rollout_is_accounted_for_once(first, restored):
    """The numbers that people are shown add up to all rollouts, and each mutation stands under its route."""
    found = restored.compared_with(first)
    text = found.text()

    assert found.rollouts == sum(found.account.model_dump().values())
    assert "12 mutations: 6 increment, 3 seed_session, 3 verify" in text
    assert "1 restore, 1 finished group in the snapshot; of the 3 rollouts" in text
    assert "   1 were in flight and went on from their last turn, as the next attempt" in text


def test_a_second_restore_is_told_alone(first, restored):
    """What the first one kept or continued is in its snapshot or lost: nothing is counted twice."""
    restored.compared_with(first)
    path = restored.folder / "restores.jsonl"
    line = json.loads(path.read_text())
    siblings = [{"group_id": "new", "rollout_id": "new_g0", "attempt_index": 0, "status": "sealed"}]
    again = {**line, "incarnation": 3, "finished_groups": ["done", "cont"], "siblings": siblings, "redispatch": []}
    path.write_text(json.dumps(line) + "\n" + json.dumps(again) + "\n")
    found = compare(first, str(restored.folder), "counter")

    assert (2, 2, Account(finished=2, sealed=1)) == (found.restores, found.kept_groups, found.account)
    assert "2 restores, of which the last is told" in found.text()


def test_a_mutation_that_happened_twice_is_found(first, restored):
    """A replayed effect is a difference, even when the results agree."""
    restored.audit += mutations("cont_g0", (2,), 2, 1)

    assert "happened 2 times" in restored.compared_with(first).differences[0]


def test_a_lost_mutation_is_found(first, restored):
    """A mutation that neither the snapshot holds nor the restored run played is missing."""
    restored.held["revision"] = 1

    assert "is missing" in restored.compared_with(first).differences[0]


def test_a_second_dispatch_of_the_replacement_is_found(first, restored):
    """N+1 is dispatched exactly once; one that an agent turned away does not count."""
    restored.dispatches += [a_dispatch("new_g0", 2), a_dispatch("new_g0", 2, event="turned_away")]
    restored.dispatches.append(a_dispatch("cont_g0", 2, 1))

    assert ["cont_g0 was dispatched 2 times as attempt 1"] == restored.compared_with(first).differences


def test_a_dispatch_of_the_source_attempt_is_found(first, restored):
    """N is never dispatched after the restore."""
    restored.dispatches.append(a_dispatch("cont_g0", 2, 0))

    assert ["cont_g0 was dispatched as attempt 0 again"] == restored.compared_with(first).differences


def test_a_finished_group_that_is_generated_again_is_found(first, restored):
    """What the snapshot holds as finished is never dispatched again."""
    restored.dispatches.append(a_dispatch("done_g0", 2, 1))

    assert "finished in the snapshot and dispatched again" in restored.compared_with(first).differences[0]


@pytest.mark.parametrize("field", ["reward", "final_state", "transcript_digest"])
def test_another_result_is_found(first, restored, field):
    """Rewards, final states and transcripts are compared."""
    restored.results[3] = {**restored.results[3], field: None}
    found = restored.compared_with(first)

    assert not found.equal
    assert field in found.differences[0]


def test_a_missing_rollout_is_found(first, restored):
    """A rollout that one run lacks is a difference, and so is its group."""
    del restored.results[-2:]

    assert [
        "new_g0 has a result in the first run alone",
        "group new is finished in one run alone",
    ] == restored.compared_with(first).differences


def test_a_run_that_was_never_restored_proves_nothing(first):
    """Comparing a run with itself is no proof of a restore."""
    assert "the second run was never restored" in compare(first, first, "counter").differences


def test_no_run_at_all(tmp_path):
    """A directory without logs is nothing to compare."""
    with pytest.raises(NothingThereError, match="holds no run"):
        read_history(str(tmp_path))
