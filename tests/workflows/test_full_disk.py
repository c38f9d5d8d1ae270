"""A full disk under a training that a killed snapshot left held: whoever frees it finds the room that was left, and leaves some again."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import suppress
from dataclasses import replace

import pytest

from ckptctl.adapters import durable
from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import AttemptAbortedError, ServerRefusedError, StorageError
from ckptctl.workflows.gc_room import is_full, leave_room
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.snapshot import take_snapshot
from tests.crash.test_snapshot_crash import GONE
from tests.fakes.mortal import DeadError, Life, mortal
from tests.fakes.simulated_gym import simulated
from tests.fakes.small_world import a_world
from tests.workflows.test_gc import NoRoom


class FullJournal:
    """A journal that begins nothing while that file is there."""

    def __init__(self, journal, room) -> None:
        self._journal, self._room = journal, room

    def __getattr__(self, name):
        return getattr(self._journal, name)

    def begin(self, kind, facts):
        if self._room.exists():
            raise full("journal")
        return self._journal.begin(kind, facts)


def full(path: str) -> StorageError:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    found = durable.storage_error("create", path, error)
    found.__cause__ = error
    return found


async def killed_in_save(gym):
    async with gym.world(**GONE) as (world, _):
        with suppress(DeadError):
            await take_snapshot(mortal(world, Life(before_step="save")), gym.config, SnapshotRequest())


@pytest.mark.parametrize("lacks", ["lock", "journal"])
@pytest.mark.parametrize("wish", ["finish", "release", "snapshot"])
def test_a_standing_training_is_freed(tmp_path, wish, lacks) -> None:
    """No `gc` ever ran: the killed snapshot itself has left the room that its successor needs."""

    async def main():
        async with simulated(tmp_path) as gym:
            room = gym.checkpoint_dir / ".ckptctl/room"
            if wish == "release":  # of an id that no journal knows
                async with gym.world() as (world, _):
                    await take_snapshot(world, gym.config, SnapshotRequest())
                await gym.cluster.ok("counter", "resources-checkpoint/prepare", "foreign-1")
            else:
                await killed_in_save(gym)
            assert room.exists()
            async with gym.world() as (world, _):
                ports = (
                    {"lock": NoRoom(world.lock, errno.ENOSPC, room)}
                    if lacks == "lock"
                    else {"journal": FullJournal(world.journal, room)}
                )
                world = replace(world, **ports)
                if wish == "snapshot":
                    with suppress(AttemptAbortedError, StorageError):
                        await take_snapshot(world, gym.config, SnapshotRequest(force=True))
                else:
                    asked = PublishRequest() if wish == "finish" else PublishRequest(release_id="foreign-1", reason="x")
                    await finish_publish(world, gym.config, asked)
            return gym.is_released(), room.exists(), gym.notices

    is_released, has_room, notices = asyncio.run(main())
    assert (True, True) == (is_released, has_room)
    is_used = lacks == "lock" or wish == "release"  # what an interrupted run left has its journal already
    assert is_used == any("the disk is full: the room" in text for text in notices)


def test_a_smaller_room_is_better_than_none(tmp_path) -> None:
    """What a command needed of it is not there any more."""

    class Small:
        def __init__(self) -> None:
            self.written = []

        def kind_of(self, path):
            return None

        def write_file(self, path, data):
            if len(data) > 40 << 10:
                raise full(path)
            self.written.append(len(data))

    class Mine:
        def is_owner(self):
            return True

    store = Small()
    leave_room(a_world(store=store, lock=Mine()), "/run")
    assert [32 << 10] == store.written


class NoSave:
    """A controller whose disk is full, or that has another reason to save nothing."""

    def __init__(self, controller, detail: str) -> None:
        self._controller, self._detail = controller, detail

    def __getattr__(self, name):
        return getattr(self._controller, name)

    async def save(self, *arguments):
        raise ServerRefusedError(
            server="controller", operation="save", status=409, server_code="storage_error", detail=self._detail
        )


@pytest.mark.parametrize(
    ("detail", "is_told"), [("cannot write `x`: No space left on device", True), ("the rows are missing", False)]
)
def test_an_attempt_that_a_full_disk_ended(tmp_path, detail, is_told) -> None:
    """A server's disk is the run's: the hint says what makes room, not only to try again."""

    async def main():
        async with simulated(tmp_path) as gym:
            async with gym.world() as (world, _):
                world = replace(world, controller=NoSave(world.controller, detail))
                with pytest.raises(AttemptAbortedError) as caught:
                    await take_snapshot(world, gym.config, SnapshotRequest())
            return caught.value

    error = asyncio.run(main())
    assert is_told == ("the disk is full: make room (`ckptctl gc`" in error.hint)


def test_whose_disk_is_full() -> None:
    """Ours by its number, whatever it is wrapped in; a server's by its words."""
    refusal = ServerRefusedError(server="s", operation="o", status=409, server_code="x", detail="[Errno 28] ENOSPC")
    aborted = AttemptAbortedError("aborted", hint=None, cause=full("x"))
    assert [True, True, True, False, False] == [
        is_full(error)
        for error in (full("x"), aborted, refusal, StorageError(operation="o", path="p", detail="d"), None)
    ]
