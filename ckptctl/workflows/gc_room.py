"""Room for `gc` on a full disk: it comes to make some, but its lock and its journal need a few blocks themselves.

A run that may write leaves a small file behind, and one that finds no room for its lock takes that away and tries again. What
was never left, or does not suffice, is told with what to do by hand.
"""

from __future__ import annotations

import errno
from contextlib import suppress

from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.ids import CONTROL_FOLDER
from ckptctl.domain.retention import TRASH_FOLDER
from ckptctl.errors import StorageError
from ckptctl.workflows.world import World

ROOM_FILE = f"{CONTROL_FOLDER}/room"
ROOM_BYTES = 64 << 10
FULL = {errno.ENOSPC, errno.EDQUOT}


def take_lock(world: World, checkpoint_dir: str, *, break_lock: bool) -> None:
    """Take the lock, if need be in the room that an earlier run left.

    Raises:
        LockHeldError, BusyError: as the lock.
        StorageError: there is no room for it, or another failure.
    """
    try:
        world.lock.acquire(break_lock=break_lock)
    except StorageError as error:
        if not _is_full(error):
            raise
        if not _take_room(world, checkpoint_dir):
            raise _told(error, checkpoint_dir) from error
    else:
        return
    world.notice("the disk is full: the room that an earlier `gc` left is used")
    try:
        world.lock.acquire(break_lock=break_lock)
    except StorageError as error:
        raise (_told(error, checkpoint_dir) if _is_full(error) else error) from error


def leave_room(world: World, checkpoint_dir: str) -> None:
    """Leave some for the next run; the caller holds the lock. Where there is none, or nothing can be written, none is left."""
    path = f"{checkpoint_dir}/{ROOM_FILE}"
    with suppress(StorageError):
        if world.store.kind_of(path) is None:
            world.store.write_file(path, _incompressible())


def _take_room(world: World, checkpoint_dir: str) -> bool:
    path = f"{checkpoint_dir}/{ROOM_FILE}"
    try:
        if world.store.kind_of(path) != "file":
            return False
        world.store.remove_tree(path)
    except StorageError:
        return False
    return True


def _incompressible() -> bytes:
    """Bytes that take their room on a file system that compresses, too."""
    blocks = (bytes.fromhex(sha256_hex(str(number).encode())) for number in range(ROOM_BYTES // 32))
    return b"".join(blocks)


def _is_full(error: StorageError) -> bool:
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL


def _told(error: StorageError, checkpoint_dir: str) -> StorageError:
    return StorageError(
        operation=error.operation,
        path=error.path,
        detail=f"{error.detail}, not even for a lock of some hundred bytes",
        hint="move any file away for a moment, or delete an entry that you do not want back of "
        f"`{checkpoint_dir}/{TRASH_FOLDER}`; then run the same command again",
    )
