"""Room on a full disk for whoever comes to help: `gc` makes some, `publish` and `restore` let a standing training go on, and
all of them need a few blocks for their lock and their journal.

Whoever will hold servers (a snapshot, a restore) leaves a small file behind before it does, and so does `gc`; a command that
finds no room takes that away, tries again, and leaves some at its end. What was never left, or does not suffice, is told with
what to do by hand.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.ids import CONTROL_FOLDER
from ckptctl.domain.retention import TRASH_FOLDER
from ckptctl.errors import CkptctlError, ServerRefusedError, StorageError
from ckptctl.workflows.world import World

T = TypeVar("T")
ROOM_FILE = f"{CONTROL_FOLDER}/room"
ROOM_BYTES = 64 << 10
LEAST_BYTES = 16 << 10
"""What is left where there is not room for more: enough for a lock and a journal."""
USED = "the disk is full: the room that an earlier command left is used"
FULL = {errno.ENOSPC, errno.EDQUOT}
FULL_WORDS = ("no space left on device", "disk quota exceeded", "disc quota exceeded", "enospc", "edquot")
"""How a server says that its disk is full: its own words are all that is known of it."""
FULL_HINT = (
    "the disk is full: make room (`ckptctl gc` deletes what retention does not keep; or delete anything else there), "
    "then run the same command again"
)


def take_lock(world: World, checkpoint_dir: str, *, break_lock: bool) -> bool:
    """Take the lock, if need be in the room that an earlier command left. Returns whether there was room without it.

    Raises:
        LockHeldError, BusyError: as the lock.
        StorageError: there is no room for it, or another failure.
    """
    try:
        world.lock.acquire(break_lock=break_lock)
    except StorageError as error:
        if not is_full(error):
            raise
        if not _take_room(world, checkpoint_dir):
            raise _told(error, checkpoint_dir) from error
    else:
        return True
    world.notice(USED)
    try:
        world.lock.acquire(break_lock=break_lock)
    except StorageError as error:
        raise (_told(error, checkpoint_dir) if is_full(error) else error) from error
    return False


async def in_room(world: World, checkpoint_dir: str, work: Callable[[], Awaitable[T]]) -> T:
    """Do what may be done again; where it finds the disk full, once more in the room that an earlier command left."""
    try:
        return await work()
    except CkptctlError as error:
        if not is_full(error) or not _take_room(world, checkpoint_dir):
            raise
    world.notice(USED)
    try:
        return await work()
    finally:
        leave_room(world, checkpoint_dir)


def leave_room(world: World, checkpoint_dir: str) -> None:
    """Leave some for the next run; the caller holds the lock. Where there is none, or nothing can be written, none is left."""
    path, size_bytes = f"{checkpoint_dir}/{ROOM_FILE}", ROOM_BYTES
    with suppress(StorageError):
        if world.store.kind_of(path) is not None or not world.lock.is_owner():
            return
        while not _is_left(world, path, size_bytes) and size_bytes > LEAST_BYTES:
            size_bytes //= 2


def _is_left(world: World, path: str, size_bytes: int) -> bool:
    """Whether there was room for so much. Raises StorageError for another failure."""
    try:
        world.store.write_file(path, _incompressible(size_bytes))
    except StorageError as error:
        if not is_full(error):
            raise
        return False
    return True


def _take_room(world: World, checkpoint_dir: str) -> bool:
    path = f"{checkpoint_dir}/{ROOM_FILE}"
    try:
        if world.store.kind_of(path) != "file":
            return False
        world.store.remove_tree(path)
    except StorageError:
        return False
    return True


def _incompressible(size_bytes: int) -> bytes:
    """Bytes that take their room on a file system that compresses, too."""
    blocks = (bytes.fromhex(sha256_hex(str(number).encode())) for number in range(size_bytes // 32))
    return b"".join(blocks)


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, says that a disk is full: ours, or that of a server."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        if isinstance(error, OSError):
            return error.errno in FULL
        if isinstance(error, ServerRefusedError) and any(word in error.detail.lower() for word in FULL_WORDS):
            return True
        error = error.__cause__ or getattr(error, "cause", None)
    return False


def _told(error: StorageError, checkpoint_dir: str) -> StorageError:
    return StorageError(
        operation=error.operation,
        path=error.path,
        detail=f"{error.detail}, not even for a lock of some hundred bytes",
        hint="move any file away for a moment, or delete an entry that you do not want back of "
        f"`{checkpoint_dir}/{TRASH_FOLDER}`; then run the same command again",
    )
