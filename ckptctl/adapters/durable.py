"""The one module that writes. Temporary file, sync, rename, sync the directory; before deleting, somebody else made
it invisible.

Decides how bytes become durable on local file systems, NFS and Lustre, and nothing else: which file is written when,
under which name, and what may be deleted is its callers' business. No `flock` anywhere: Lustre may be mounted without
it. No `chmod`: NFS servers refuse it; a mode is given when the file is created, so the umask can only narrow it.

Every OSError becomes a StorageError that names the operation and the path. Temporary names begin with a dot and end
in `.tmp`: both mean "torn write" to every reader of the format.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from ckptctl.errors import StorageError

GONE = frozenset({errno.ENOENT, errno.ESTALE})
"""NFS says ESTALE where a local file system says ENOENT."""

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_DIRECTORY_SYNC = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK})
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY})
_NFS_LEFTOVER = ".nfs"
"""A file that somebody still holds open keeps living under such a name on NFS; it goes by itself when it is closed."""
_REMOVE_TRIES = 3


def storage_error(operation: str, path: str, error: OSError) -> StorageError:
    """The StorageError of an OSError; for adapters that read."""
    return StorageError(operation=operation, path=path, detail=error.strerror or type(error).__name__, cause=error)


@contextmanager
def _told_as(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(operation, path, error) from error


def write_file(path: str, data: bytes, *, mode: int | None = None, sync_parent: bool = True) -> None:
    """Write a whole file so that a crash leaves the old content or the new one: temporary file, sync, rename, sync the directory.

    With `sync_parent=False` the *name* is durable only after `sync_directory`: for many files of one folder.
    """
    with _told_as("write", path):
        temporary = _write_temporary(path, data, mode)
        try:
            os.rename(temporary, path)
        except OSError:
            _unlink_quietly(temporary)
            raise
    if sync_parent:
        sync_directory(_parent(path))


def write_stream(path: str, pieces: Iterable[bytes]) -> None:
    """Write and sync a file under a name that nobody looks at yet; the caller renames it. What lay there is an earlier attempt.

    Whatever stops it, an error of `pieces` included, takes the file away again.
    """
    with _told_as("write", path):
        _unlink_quietly(path)
        _write_new(path, pieces, None)


def write_through(path: str, data: bytes) -> None:
    """Write into what is there and is no regular file (a device, a named pipe); nothing is created, replaced or synced."""
    with _told_as("write", path):
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)


def create_file(path: str, data: bytes, *, mode: int | None = None) -> bool:
    """Create a file whole, or leave what is there alone and return False. Atomic on NFS too (hard link)."""
    with _told_as("create", path):
        temporary = _write_temporary(path, data, mode)
        try:
            is_created = _link(temporary, path)
            if is_created is None:
                is_created = _create_in_place(path, data, mode)
        finally:
            _unlink_quietly(temporary)
    if is_created:
        sync_directory(_parent(path))
    return is_created


def file_system_now_s(folder: str) -> float:
    """What the file system that holds `folder` thinks the time is: comparable with the times of its files, whoever wrote them."""
    with _told_as("write in", folder):
        temporary = _write_temporary(f"{folder}/clock", b"", 0o600)
        try:
            return os.lstat(temporary).st_mtime
        finally:
            _unlink_quietly(temporary)


def renew_time(descriptor: int, *, path: str) -> None:
    """Set the time of an open file to the file system's now. `path` is for the message."""
    with _told_as("renew", path):
        os.utime(descriptor)


def make_directory(path: str, *, mode: int = 0o777) -> None:
    """Create a directory, its missing parents too, and sync the parents. One that is there already is fine.

    Its parent is synced all the same: whoever made it may have died, or failed, before its name was durable.
    """
    parent = _parent(path)
    if os.path.isdir(path):
        _sync_if_allowed(parent)
        return
    if parent != path:
        make_directory(parent)
    with _told_as("create directory", path):
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            # Another host may have made it this instant; some distributed file systems say so even to `exist_ok`.
            if not os.path.isdir(path):
                raise
    sync_directory(parent)


def sync_file(path: str) -> None:
    """Sync one regular file that is already written."""
    with _told_as("sync", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_directory(path: str) -> None:
    """Sync a directory: names in it survive a crash from now on. File systems that cannot do that are taken as they are."""
    with _told_as("sync directory", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY_SYNC:
                raise
        finally:
            os.close(descriptor)


def sync_tree(root: str) -> None:
    """Sync every regular file and then its directory, bottom-up. Links are not followed."""
    with _told_as("sync", root):
        for folder, _, names in os.walk(root, topdown=False, onerror=_raise):
            for name in sorted(names):
                path = os.path.join(folder, name)
                if stat.S_ISREG(os.lstat(path).st_mode):
                    sync_file(path)
            sync_directory(folder)


def rename(source: str, target: str) -> None:
    """Rename to a name that is free, and sync the parents. Raises StorageError when the target exists.

    A file replaces none that appears in the same moment; a directory cannot.
    """
    with _told_as("rename", source):
        before = os.lstat(source)
        is_linked = _link(source, target) if stat.S_ISREG(before.st_mode) else None
        if is_linked is False or (is_linked is None and os.path.lexists(target)):
            raise FileExistsError(errno.EEXIST, f"`{target}` exists")
        try:
            os.unlink(source) if is_linked else os.rename(source, target)
        except OSError as error:
            if error.errno not in GONE or not _is_same(before, target):
                raise  # else an NFS client asked twice: the first answer was lost, the rename was not
    _sync_parents(source, target)


def remove_file(path: str) -> None:
    """Delete one file or link. One that is gone already is fine."""
    with _told_as("delete", path):
        try:
            os.unlink(path)
        except OSError as error:
            if error.errno not in GONE:
                raise
            return
    sync_directory(_parent(path))


def remove_tree(path: str) -> bool:
    """Delete a tree (or a single file or link) that is already invisible; links are removed, never followed. Idempotent.

    Returns whether nothing is left: `.nfs*` files that somebody holds open stay, with the folders they lie in, and are no error.
    """
    with _told_as("delete", path):
        for _ in range(_REMOVE_TRIES):
            if _remove_once(path):
                break
        else:
            return False
    if os.path.isdir(_parent(path)):
        sync_directory(_parent(path))
    return True


def open_append(path: str, *, mode: int = 0o600, create: bool = True) -> int:
    """Open a file of lines for appending, its torn last line cut off; `create` it if need be. Returns a descriptor."""
    with _told_as("open", path):
        is_new = not os.path.lexists(path)
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags | (os.O_CREAT if create else 0), mode)
        try:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                _raise(OSError(errno.EINVAL, "not a regular file"))
            _cut_torn_line(descriptor, facts.st_size)
        except OSError:
            os.close(descriptor)
            raise
    if is_new:
        sync_directory(_parent(path))
    return descriptor


def append_line(descriptor: int, line: bytes, *, path: str, sync: bool) -> None:
    """Append one line (without its newline). A line that could not be written whole is taken back. `path` is for the message."""
    assert b"\n" not in line, "a line holds no newline"
    with _told_as("append to", path):
        size_bytes = os.fstat(descriptor).st_size
        try:
            _write_all(descriptor, line + b"\n")
            if sync:
                os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, size_bytes)
            raise


def _write_temporary(path: str, data: bytes, mode: int | None) -> str:
    # The name is short and does not repeat the target's: a target of 255 bytes is legal.
    temporary = os.path.join(_parent(path), f".ckptctl-{secrets.token_hex(8)}.tmp")
    _write_new(temporary, (data,), mode)
    return temporary


def _write_new(path: str, pieces: Iterable[bytes], mode: int | None) -> None:
    """Create, fill and sync a file whose name is free; nothing is left of it when that fails."""
    descriptor = os.open(path, _CREATE_FLAGS, 0o666 if mode is None else mode)
    try:
        try:
            for piece in pieces:
                _write_all(descriptor, piece)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)  # NFS and quotas report a full disk only here
    except BaseException:
        _unlink_quietly(path)
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _link(temporary: str, path: str) -> bool | None:
    """Give a file a second name, if it is free. None where there are no hard links."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        # A repeated NFS request may find its own first success; the link count tells.
        return os.lstat(temporary).st_nlink > 1 and _is_same(os.lstat(temporary), path)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return None
    return True


def _create_in_place(path: str, data: bytes, mode: int | None) -> bool:
    """For file systems without hard links: exclusive, but a reader may see half of it."""
    try:
        _write_new(path, (data,), mode)
    except FileExistsError:
        return False
    return True


def _cut_torn_line(descriptor: int, size_bytes: int) -> None:
    end = size_bytes
    while end > 0:
        start = max(0, end - 65536)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end != size_bytes:
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)


def _remove_once(path: str) -> bool:
    """One pass over the tree. Returns whether everything is gone."""
    try:
        is_directory = stat.S_ISDIR(os.lstat(path).st_mode)
        if not is_directory:
            os.unlink(path)
            return True
    except OSError as error:
        if error.errno in GONE:
            return True
        raise
    has_leftover = False
    for _, folders, names, descriptor in os.fwalk(path, topdown=False, onerror=_raise_unless_gone):
        for name in names:
            has_leftover |= not _unlink_at(name, descriptor)
        for name in folders:
            has_leftover |= not _rmdir_at(name, descriptor)
    return _rmdir_at(path, None) and not has_leftover


def _unlink_at(name: str, descriptor: int) -> bool:
    try:
        os.unlink(name, dir_fd=descriptor)
    except OSError as error:
        if error.errno in GONE:
            return True
        if name.startswith(_NFS_LEFTOVER) and error.errno == errno.EBUSY:
            return False
        raise
    return True


def _rmdir_at(name: str, descriptor: int | None) -> bool:
    try:
        os.rmdir(name, dir_fd=descriptor)
    except NotADirectoryError:
        return _unlink_at(name, descriptor) if descriptor is not None else False  # a link to a directory
    except OSError as error:
        if error.errno in GONE:
            return True
        if error.errno in _NOT_EMPTY:
            return False
        raise
    return True


def _sync_parents(source: str, target: str) -> None:
    sync_directory(_parent(target))
    if _parent(source) != _parent(target):
        sync_directory(_parent(source))


def _sync_if_allowed(folder: str) -> None:
    """Sync a directory above our own; one that we may not read was not made by us."""
    try:
        sync_directory(folder)
    except StorageError as error:
        if not isinstance(error.cause, PermissionError):
            raise


def _is_same(facts: os.stat_result, path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (facts.st_dev, facts.st_ino)


def _parent(path: str) -> str:
    return os.path.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


def _unlink_quietly(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


def _raise(error: OSError) -> None:
    raise error


def _raise_unless_gone(error: OSError) -> None:
    if error.errno not in GONE:
        raise error
