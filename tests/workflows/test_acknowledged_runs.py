"""Acknowledgements between the embedded servers: none is lost and none doubled, whatever dies or breaks between delivery and confirmation."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.transaction import SnapshotRequest
from ckptctl.errors import CkptctlError
from ckptctl.planning import snapshot as steps
from ckptctl.sim.agent_store import AgentStore
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.mortal import DeadError, Life, mortal
from tests.fakes.simulated_gym import simulated
from tests.runs import judge_snapshot
from tests.unit.sim.inprocess import until

GONE = {"pid": 2**22 + 1}
"""An owner whose process is not there any more."""
ACKNOWLEDGE = ("simple_agent", "agent-checkpoint/acknowledge-completed")
GROUPS, ROLLOUTS, TURNS = 2, 4, 2
OWING = {"acknowledge_interval_s": 3600, "prompts": 2, "turns": TURNS}
"""The controller itself delivers nothing."""


class LastBoundary(AgentStore):
    """An agent's memory whose executions park when nothing but their verdict is left, as if a prepare arrived just then."""

    __slots__ = ()

    async def reach_boundary(self, execution, boundary):
        if boundary.output_items[-1].get("role") == "assistant":
            execution.state = "park_requested"
        await super().reach_boundary(execution, boundary)


def scenario_of(work, tmp_path, **options):
    async def main():
        async with simulated(tmp_path, **{**OWING, **options}) as gym:
            return await work(gym)

    return asyncio.run(main())


async def attempt(gym, **changes):
    """One snapshot: (result or error, wire)."""
    async with gym.world(**changes) as (world, wire):
        try:
            return await take_snapshot(world, gym.config, SnapshotRequest(force=True)), wire
        except CkptctlError as error:
            return error, wire


def assert_settled(gym, result) -> None:
    """Published and valid; nothing is owed, the agent holds nothing back, and every result is there once."""
    state, store = gym.controller.state, gym.cluster.agent.service.store
    report = judge_snapshot(LocalStore(), result.snapshot, "full", under_final_name=False)

    assert ("published", "valid") == (result.outcome, report.verdict)
    assert ([], 0) == (store.in_state("completed"), len(state.ledger.outbox()))
    assert GROUPS == state.finished_count()
    assert gym.is_released()


def test_an_agent_that_was_restarted_has_nothing_to_release(tmp_path) -> None:
    """It refuses and holds nothing: two requests, and what ledger or replay metadata own is settled."""

    async def work(gym):
        await gym.run_whole(GROUPS, is_acknowledged=False)
        await gym.restart("simple_agent")
        result, wire = await attempt(gym)
        assert_settled(gym, result)
        return wire.posts(), gym.notices, result

    posts, notices, result = scenario_of(work, tmp_path)

    assert 1 == posts.count(ACKNOWLEDGE)
    assert [f"settled {ROLLOUTS} acknowledgements that `simple_agent` no longer knows: the results are kept"] == [
        notice for notice in notices if "settled" in notice
    ]
    assert ROLLOUTS == result.counts.acknowledgements


def test_repeats_are_harmless_within_a_live_agent_process(tmp_path) -> None:
    """Delivered, the confirmation refused again and again: the attempt is aborted, the next one delivers once more and confirms."""

    async def work(gym):
        await gym.run_whole(GROUPS, is_acknowledged=False)
        await gym.fault(
            "controller", operation="acknowledgements/confirm", kind="refuse", code="invalid_phase", times=1
        )
        first, before = await attempt(gym)
        owed = len(gym.controller.state.ledger.outbox())
        known = dict(gym.cluster.agent.service.store.acknowledged)
        result, wire = await attempt(gym)
        assert_settled(gym, result)
        return first, before.posts(), wire.posts(), owed, known == gym.cluster.agent.service.store.acknowledged

    first, before, after, owed, is_same = scenario_of(work, tmp_path)

    assert (22, ROLLOUTS, True) == (first.exit_code, owed, is_same)
    assert (1, 1) == (before.count(ACKNOWLEDGE), after.count(ACKNOWLEDGE))


@pytest.mark.parametrize("operation", ["agent_acknowledge", "confirm"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_coordinator_that_dies_between_delivery_and_confirmation(tmp_path, operation, after) -> None:
    """The same command again ends the same."""

    class Doomed(Life):
        def enter(self, name, arguments):
            if not self.is_over and name.endswith(operation):
                self.dies_at, self.after = len(self.operations), after
            return super().enter(name, arguments)

    async def work(gym):
        await gym.run_whole(GROUPS, is_acknowledged=False)
        life = Doomed()
        async with gym.world(**GONE) as (world, _):
            with pytest.raises(DeadError):
                await take_snapshot(mortal(world, life), gym.config, SnapshotRequest(force=True))
        result, _ = await attempt(gym)
        assert_settled(gym, result)
        return len(gym.cluster.agent.service.store.acknowledged)

    assert ROLLOUTS == scenario_of(work, tmp_path)


def test_a_result_that_is_completed_while_everybody_prepares(tmp_path) -> None:
    """The agent is not ready until it was acknowledged; then it is, and the snapshot holds the rollout as finished."""

    async def work(gym):
        store = gym.cluster.agent.service.store
        store.__class__ = LastBoundary
        gym.controller.loop.set_goal(GROUPS)
        await until(lambda: len(store.parked()) == ROLLOUTS)

        async def finish(step: str) -> None:
            if step == steps.PREPARE_AGENTS:
                for execution in store.parked():
                    store.set_state(execution, "running")
                await until(
                    lambda: len(store.in_state("completed")) == ROLLOUTS == len(gym.controller.state.ledger.outbox())
                )

        async with gym.world() as (world, wire):
            made = replace(world, observer=finish)
            result = await take_snapshot(made, gym.config, SnapshotRequest(force=True))
        assert_settled(gym, result)
        return wire.posts(), result

    posts, result = scenario_of(work, tmp_path)

    prepare = ("simple_agent", "agent-checkpoint/prepare")
    assert posts.index(prepare) < posts.index(ACKNOWLEDGE) < len(posts) - 1 - posts[::-1].index(prepare)
    assert (ROLLOUTS, 1) == (result.counts.acknowledgements, posts.count(ACKNOWLEDGE))
