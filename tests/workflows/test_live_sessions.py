"""Sessions that no rollout claims: from held servers, else from the journal of the last restore."""

from __future__ import annotations

import pytest

from ckptctl.domain.participant import AgentStatus, HeldSession, ResourcesStatus, SelectedBoundary
from ckptctl.workflows.live_sessions import unclaimed_sessions
from tests.runs import a_run, offline_world
from tests.workflows.test_gc import RESTORE_FACTS, SNAPSHOT_FACTS

LEFT = [{"server_name": "counter", "rollout_id": rollout, "attempt_index": 1} for rollout in ("a_g0", "b_g0")]


@pytest.fixture
def world(tmp_path):
    return offline_world(a_run(tmp_path, step_3=1))


def journal(world, kind, outcome, *, retired=(), **finish) -> None:
    writer = world.journal.begin(kind, RESTORE_FACTS if kind == "restore" else SNAPSHOT_FACTS)
    writer.append({"event": "outcome", "number": "4.5", "step": "retire-orphans", "retired": list(retired)}, sync=True)
    writer.append({"event": "finish", "outcome": outcome, **finish}, sync=True)


def found(world, agents=(), resources=None):
    return [
        (item.rollout_id, item.told_by, item.revision) for item in unclaimed_sessions(world, agents, resources or {})
    ]


def an_agent(*rollouts, ready=True) -> AgentStatus:
    boundaries = [
        SelectedBoundary.model_validate(
            {
                "rollout_id": name,
                "attempt_index": 1,
                "resource_state_revisions": {"counter": 2},
                "boundary_index": 1,
                "turn_index": 1,
                "boundary_kind": "turn_complete",
            }
        )
        for name in rollouts
    ]
    return AgentStatus(state="paused", ready_to_commit=ready, selected_boundaries=boundaries)


def a_server(*rollouts) -> dict[str, ResourcesStatus]:
    sessions = [HeldSession(rollout_id=name, attempt_index=1, revision=2) for name in rollouts]
    return {"counter": ResourcesStatus(state="prepared", per_session=sessions)}


def test_what_the_last_restore_left(world) -> None:
    """With its age; what was retired since is gone, and so is everything once a snapshot was published."""
    assert [] == found(world)
    journal(world, "restore", "restored", unclaimed_sessions=[*LEFT, {"of": "another version"}])
    [item, _] = unclaimed_sessions(world, (), {})
    assert 0 <= item.age_s < 60
    assert [("a_g0", "journal", None), ("b_g0", "journal", None)] == found(world)

    world.journal.begin("gc", {"schema_version": 1, "tool_version": "1", "going": []})
    journal(world, "snapshot", "retired", retired=LEFT[:1])
    assert [("b_g0", "journal", None)] == found(world)

    journal(world, "snapshot", "published")
    assert [] == found(world)


def test_what_held_servers_say(world) -> None:
    """They know better than a journal; its age is that of the restore that left it, where one did."""
    journal(world, "restore", "restored", unclaimed_sessions=LEFT[:1])
    held = a_server("a_g0", "b_g0", "c_g0")
    items = unclaimed_sessions(world, [an_agent("c_g0")], held)

    assert [("a_g0", "servers", 2), ("b_g0", "servers", 2)] == found(world, [an_agent("c_g0")], held)
    assert [False, True] == [item.since is None for item in items]


@pytest.mark.parametrize("agents", [[], [None], [an_agent(ready=False)], [an_agent(), None]])
def test_while_an_agent_does_not_say(world, agents) -> None:
    """A session may be that of a boundary which nobody has told of yet."""
    assert [] == found(world, agents, a_server("a_g0"))


def test_a_journal_that_cannot_be_read(world, tmp_path) -> None:
    """It is told elsewhere; here nothing is known."""
    journal(world, "restore", "restored", unclaimed_sessions=LEFT)
    (tmp_path / ".ckptctl/journal/000009-snapshot.jsonl").write_text("no\nrecord\n")

    assert [] == found(world)


def test_a_restore_that_is_not_finished(world) -> None:
    """It left nothing yet."""
    world.journal.begin("restore", RESTORE_FACTS)

    assert [] == found(world)
