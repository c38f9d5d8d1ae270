"""The fence: a coordinator that lost the directory publishes nothing, whenever it stood still and whenever it goes on."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ckptctl.adapters.run_token import RunClaim
from ckptctl.domain.transaction import SnapshotRequest
from ckptctl.errors import AttemptAbortedError, StorageError
from ckptctl.planning import snapshot as steps
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.mortal import DeadError, Life, Mortal, mortal
from tests.fakes.simulated_gym import simulated
from tests.runs import judge_snapshot

ELSEWHERE = {"host": "elsewhere"}
"""An owner of whom nobody here can say whether it lives."""
PUBLISHING = (steps.COMMIT_AGENTS, steps.SAVE, steps.VALIDATE, steps.SYNC, steps.PUBLISH)


class Sleeping:
    """A store that stands still right before it publishes; `late` is what it was about to do."""

    def __init__(self, store, life: Life) -> None:
        self._store, self._life = store, life
        self.late = None

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    def rename(self, source: str, target: str) -> None:
        self.late = lambda: self._store.rename(source, target)
        self._life.is_over = True
        raise DeadError


def end_lease(gym) -> None:
    """Its owner has not been heard of for long."""
    os.utime(gym.checkpoint_dir / ".ckptctl" / "lock", (1, 1))


async def fall_asleep(gym):
    """A snapshot by a coordinator on another host, which stands still between its last question and the rename."""
    life = Life()
    async with gym.world(**ELSEWHERE) as (world, _):
        asleep = Sleeping(world.store, life)
        # Nothing that it does after it stood still reaches anything.
        world = replace(mortal(world, life), store=Mortal(life, "store", asleep))
        with pytest.raises(DeadError):
            await take_snapshot(world, gym.config, SnapshotRequest(force=True))
    end_lease(gym)
    return asleep.late


def visible(gym) -> list[str]:
    return [name for name in gym.snapshots() if name.startswith("snapshot_")]


@pytest.mark.parametrize("step", PUBLISHING)
def test_a_late_rename_finds_nothing_to_rename(tmp_path, step) -> None:
    """Its successor aborted it and is itself in the middle of a snapshot, whose files lie under a name that nobody else has."""

    async def scenario():
        async with simulated(tmp_path) as gym:
            await gym.run_in_flight()
            late = await fall_asleep(gym)
            seen = []

            def awake(name: str) -> None:
                if name == step:
                    with pytest.raises(StorageError, match="No such file"):
                        late()
                    seen.append(visible(gym))

            async with gym.world() as (world, _):
                request = SnapshotRequest(force=True, break_lock=True)
                taken = await take_snapshot(replace(world, observer=awake), gym.config, request)
                report = judge_snapshot(world.store, taken.snapshot, "full", under_final_name=False)
            return taken, report, seen, visible(gym), gym.is_released()

    taken, report, seen, names, is_released = asyncio.run(scenario())

    assert ("published", "valid", [[]]) == (taken.outcome, report.verdict, seen)
    assert ["snapshot_000002"] == names == [Path(taken.snapshot).name]
    assert is_released


class Lost:
    """A lock that another coordinator has taken over from some step on."""

    def __init__(self, lock) -> None:
        self._lock, self.is_lost = lock, False

    def __getattr__(self, name: str):
        return getattr(self._lock, name)

    def is_owner(self) -> bool:
        return not self.is_lost and self._lock.is_owner()


@pytest.mark.parametrize("step", [steps.ALLOCATE, steps.COMMIT_MODELS, steps.SAVE, steps.PUBLISH])
def test_who_lost_the_directory_publishes_nothing_and_deletes_nothing(tmp_path, step) -> None:
    """Asked before it makes room for its files and right before the rename; its servers are released all the same."""

    async def scenario():
        async with simulated(tmp_path) as gym:
            await gym.run_in_flight()
            theirs = gym.checkpoint_dir / "bootstrap" / "rollout_snapshots" / "tmp_snapshot_000002" / "part"
            async with gym.world() as (world, _):
                lock = Lost(world.lock)

                def lose(name: str) -> None:
                    if name == step:
                        lock.is_lost = True
                        theirs.parent.mkdir(parents=True)
                        theirs.write_bytes(b"of the successor")

                with pytest.raises(AttemptAbortedError, match="everything released") as error:
                    await take_snapshot(
                        replace(world, lock=lock, observer=lose), gym.config, SnapshotRequest(force=True)
                    )
            return error.value, visible(gym), theirs.read_bytes(), gym.is_released()

    error, names, theirs, is_released = asyncio.run(scenario())

    assert ("busy", [], b"of the successor", True) == (error.__cause__.code, names, theirs, is_released)
    assert error.hint.startswith("another ckptctl is at work there; this one")


def test_retention_is_left_to_the_successor(tmp_path) -> None:
    """What was published stays published; older snapshots may be in use by whoever owns the directory now."""

    async def scenario():
        async with simulated(tmp_path, keep_latest_k=1) as gym:
            await gym.run_in_flight()
            async with gym.world() as (world, _):
                await take_snapshot(world, gym.config, SnapshotRequest(force=True))
            async with gym.world() as (world, _):
                lock = Lost(world.lock)

                def lose(name: str) -> None:
                    lock.is_lost |= name == steps.RETAIN

                result = await take_snapshot(
                    replace(world, lock=lock, observer=lose), gym.config, SnapshotRequest(force=True)
                )
            return result, visible(gym), gym.notices

    result, names, notices = asyncio.run(scenario())

    assert ("published", ["snapshot_000001", "snapshot_000002"]) == (result.outcome, names)
    assert [True] == ["taken over while older snapshots were moved" in notice for notice in notices]


def test_a_number_that_its_own_process_gave_up_is_taken_again(tmp_path) -> None:
    """Upstream's rule (snapshot-layout 3): only an attempt that somebody else finished keeps its number to itself, until one is published."""

    async def scenario():
        async with simulated(tmp_path) as gym:
            await gym.run_in_flight()
            await gym.fault("controller", operation="save", kind="refuse", code="save_failed")
            async with gym.world() as (world, _):
                with pytest.raises(AttemptAbortedError):
                    await take_snapshot(world, gym.config, SnapshotRequest())
            async with gym.world() as (world, _):
                return await take_snapshot(world, gym.config, SnapshotRequest())

    assert "snapshot_000001" == Path(asyncio.run(scenario()).snapshot).name


def test_a_run_that_begins_elsewhere_fences_off_the_one_at_work(tmp_path) -> None:
    """The lock is still ours, but another run of the job has claimed the directory: nothing is published, everybody is released."""

    async def scenario():
        async with simulated(tmp_path) as gym:
            await gym.run_in_flight()

            def awake(name: str) -> None:
                if name == steps.SYNC:
                    RunClaim(str(gym.checkpoint_dir)).claim()

            async with gym.world() as (world, _):
                with pytest.raises(AttemptAbortedError, match="everything released") as aborted:
                    await take_snapshot(replace(world, observer=awake), gym.config, SnapshotRequest(force=True))
            assert "taken over" in str(aborted.value.__cause__)
            assert [] == visible(gym)
            async with gym.world() as (world, _):
                result = await take_snapshot(world, gym.config, SnapshotRequest(force=True))
            assert "published" == result.outcome
            assert 1 == len(visible(gym))

    asyncio.run(scenario())
