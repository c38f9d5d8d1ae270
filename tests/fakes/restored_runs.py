"""Runs that die and come back: a snapshot of a simulated cluster, its next incarnation, and restores in it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from ckptctl.domain.restore import RestoreRequest
from ckptctl.domain.transaction import SnapshotRequest
from ckptctl.errors import CkptctlError
from ckptctl.workflows.restore import restore
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.simulated_gym import Simulated, simulated
from tests.unit.sim.inprocess import HoldingStore, until

OPTIONS = {"prompts": 2, "turns": 4}
GROUPS = 2


@asynccontextmanager
async def born(directory: Path, **options):
    """A first incarnation."""
    async with simulated(directory, **{**OPTIONS, **options}) as gym:
        yield gym


@asynccontextmanager
async def reborn(directory: Path, *, incarnation: int = 2, restore_expected: bool = True, **options):
    """A later incarnation of the same run, which waits to be restored."""
    options = {**OPTIONS, **options, "incarnation": incarnation, "restore_expected": restore_expected}
    async with simulated(directory, **options) as gym:
        yield gym


async def snapshot(gym: Simulated) -> str:
    """Take a snapshot; its path."""
    async with gym.world() as (world, _):
        return (await take_snapshot(world, gym.config, SnapshotRequest(force=True))).snapshot


async def saved(directory: Path, **options) -> str:
    """A run with everything in flight at its second boundary, a snapshot of that, and the end of all processes."""
    async with born(directory, **options) as gym:
        await gym.run_in_flight(GROUPS)
        return await snapshot(gym)


async def attempt(gym: Simulated, request: RestoreRequest | None = None, **ports):
    """One restore in a world of its own: (result or error, wire). `ports` are functions from a port to what stands before it."""
    async with gym.world() as (world, wire):
        world = replace(world, **{name: before(getattr(world, name)) for name, before in ports.items()})
        try:
            return await restore(world, gym.config, request or RestoreRequest()), wire
        except CkptctlError as error:
            return error, wire


async def play_to_the_end(gym: Simulated) -> None:
    """Everything that is there, and what is drawn of the same goal, runs to its end."""
    gym.controller.loop.set_goal(GROUPS)
    state = gym.controller.state
    await until(lambda: state.finished_count() == GROUPS and not state.ledger.outbox())
    assert [] == gym.controller.problems()


def run(scenario):
    """Run a coroutine function to its end."""
    return asyncio.run(scenario())


def journal(gym: Simulated, number: int = -1) -> list[dict]:
    """The lines of a transaction's journal, by default of the newest."""
    paths = sorted(Path(gym.checkpoint_dir, ".ckptctl", "journal").glob("*.jsonl"))
    return [json.loads(line) for line in paths[number].read_text().splitlines()]


def ids(wire) -> set[str]:
    """Every checkpoint id that was sent."""
    return {item.body["checkpoint_id"] for item in wire.sent if "checkpoint_id" in item.body}


class Dependent(HoldingStore):
    """An agent's memory where some rollouts also depend on a server that loses its state."""

    __slots__ = ()
    depends = {}
    """Identity of the store -> server name, and which rollouts depend on it."""

    async def reach_boundary(self, execution, boundary):
        server, is_dependent = self.depends[id(self)]
        if is_dependent(boundary.rollout_id):
            revisions = {**boundary.resource_state_revisions, server: 1}
            boundary = boundary.model_copy(update={"resource_state_revisions": revisions})
        await super().reach_boundary(execution, boundary)


def make_dependent(gym: Simulated, server: str, is_dependent) -> None:
    """From now on the boundaries of these rollouts name `server` too."""
    store = gym.cluster.agent.service.store
    store.__class__ = Dependent
    Dependent.depends[id(store)] = (server, is_dependent)


class Before:
    """Stands before a port and changes the answers of some of its methods."""

    def __init__(self, port, **changes) -> None:
        self._port, self._changes = port, changes

    def __getattr__(self, name: str):
        method = getattr(self._port, name)
        change = self._changes.get(name)
        if change is None:
            return method

        async def changed(*args, **kwargs):
            answer = await method(*args, **kwargs)
            return change(answer) if callable(change) else answer.model_copy(update=change)

        return changed


def answering(**changes):
    """For `attempt`: a port whose methods of these names answer with these fields changed."""
    return lambda port: Before(port, **changes)
