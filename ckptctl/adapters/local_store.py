"""The checkpoint directory on a mounted file system: `ports.SnapshotStore`.

Reads open regular files only: a link, a FIFO or a device is refused before it is opened and, because names can be
exchanged in between, once more on the open descriptor. Below a *root* no directory on the way may be a link either;
above it they may (a home directory often is one). What is written goes through `durable`. What a name means is left
to others.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ckptctl.adapters import durable
from ckptctl.adapters.digests import Advance, digest_files
from ckptctl.domain.checksums import FileDigest, FileWork
from ckptctl.domain.evidence import EntryKind, TreeEntry
from ckptctl.domain.ids import TORN_WRITE_NAME
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.errors import StorageError

_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileSource:
    """Positioned reads of an open file; the size is the one at opening."""

    path: str
    descriptor: int
    size_bytes: int

    def read_at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer only at the end."""
        try:
            found = os.pread(self.descriptor, count, offset)
            while 0 < len(found) < count:
                more = os.pread(self.descriptor, count - len(found), offset + len(found))
                if not more:
                    break
                found += more
        except OSError as error:
            raise durable.storage_error("read", self.path, error) from error
        return found


class LocalStore:
    """Implements `ports.SnapshotStore`. `roots`: directories under which no link is followed, not even on the way to a file."""

    def __init__(self, *roots: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self._roots = tuple(sorted((root.rstrip("/") for root in roots), key=len))
        self._limits = limits

    def list_tree(self, root: str, *, max_depth: int | None = None) -> tuple[TreeEntry, ...]:
        """Every name under `root`, as sorted paths relative to it; links are not followed. `max_depth` 1: its own names only.

        Raises:
            FileNotFoundError: `root` is not there.
            StorageError: `root` is no directory, cannot be read, or holds more than the limits allow.
        """
        entries: list[TreeEntry] = []
        pending = [""]
        path_bytes = 0
        while pending:
            folder = pending.pop()
            for entry in self._list_folder(root, folder):
                entries.append(entry)
                path_bytes += len(entry.path)
                if path_bytes > self._limits.tree_path_bytes:
                    raise _too_much(root, f"names of more than {self._limits.tree_path_bytes} characters together")
                if len(entries) > self._limits.tree_entries:
                    raise _too_much(root, f"more than {self._limits.tree_entries} names")
                depth = entry.path.count("/") + 1
                if entry.kind == "directory" and depth != max_depth:
                    if depth >= self._limits.tree_depth:
                        raise _too_much(root, f"nested deeper than {self._limits.tree_depth} directories")
                    pending.append(entry.path)
        return tuple(sorted(entries, key=lambda entry: entry.path))

    def kind_of(self, path: str) -> str | None:
        """The entry kind of one path (the link itself, not its target), or None when there is nothing."""
        _demand_path("look at", path)
        try:
            return _kind(os.lstat(path).st_mode)
        except OSError as error:
            if error.errno in durable.GONE or error.errno == errno.ENOTDIR:
                return None
            raise durable.storage_error("look at", path, error) from error

    @contextmanager
    def open_source(self, path: str) -> Iterator[FileSource]:
        """Positioned reads of one regular file.

        Raises:
            FileNotFoundError: there is no such file.
            StorageError: it is no regular file, or cannot be opened.
        """
        descriptor, size_bytes = self._open(path)
        try:
            yield FileSource(path, descriptor, size_bytes)
        finally:
            os.close(descriptor)

    def read_bytes(self, path: str, max_bytes: int) -> bytes:
        """A whole regular file. Raises as `open_source`, and StorageError above `max_bytes`."""
        with self.open_source(path) as source:
            if source.size_bytes > max_bytes:
                raise _too_much(path, f"{source.size_bytes} bytes, more than {max_bytes}")
            data = source.read_at(0, max_bytes + 1)
        if len(data) > max_bytes:
            raise _too_much(path, f"more than {max_bytes} bytes")
        return data

    def digest_files(self, root: str, wanted: Iterable[FileWork], advance: Advance) -> Iterator[FileDigest]:
        """BLAKE3 of regular files below `root`; a file that cannot be read, or that changes meanwhile, is a result too."""
        folders = _Folders(root)
        try:
            yield from digest_files(folders.open_file, root, wanted, advance)
        finally:
            folders.close()

    def make_directory(self, path: str) -> None:
        """Create one directory (parents too) and sync the parents."""
        durable.make_directory(path)

    def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Temporary file, sync, rename, sync the directory."""
        durable.write_file(path, data, mode=mode)

    def write_stream(self, path: str, pieces: Iterable[bytes]) -> None:
        """Write and sync a file that nobody looks at yet; the caller renames it."""
        durable.write_stream(path, pieces)

    def sync_tree(self, root: str) -> None:
        """Sync every regular file and then its directory, bottom-up."""
        durable.sync_tree(root)

    def sync_names(self, folder: str) -> None:
        """Sync one directory."""
        durable.sync_directory(folder)

    def rename(self, source: str, target: str) -> None:
        """Rename to a free name and sync the parent(s)."""
        durable.rename(source, target)

    def remove_tree(self, path: str) -> None:
        """Delete a tree that is already invisible (`tmp_`, `trash_`, our trash), or what a write of ours left. Idempotent."""
        name = os.path.basename(path.rstrip("/"))
        is_invisible = name.startswith(("tmp_", "trash_")) or TORN_WRITE_NAME.match(name) or "/.ckptctl/" in path
        assert is_invisible, f"{path} is visible: rename it away first"
        durable.remove_tree(path)

    def file_system_now_s(self, folder: str) -> float:
        """What the file system thinks the time is; a file is made for a moment to find out."""
        return durable.file_system_now_s(folder)

    def _list_folder(self, root: str, folder: str) -> Iterator[TreeEntry]:
        path = os.path.join(root, folder) if folder else root
        _demand_path("list", path)
        try:
            descriptor = self._open_folder(path)
            try:
                with os.scandir(descriptor) as found:
                    for item in found:
                        facts = item.stat(follow_symlinks=False)
                        kind = _kind(facts.st_mode)
                        relative = f"{folder}/{item.name}" if folder else item.name
                        size_bytes, mode = facts.st_size if kind == "file" else 0, stat.S_IMODE(facts.st_mode)
                        yield TreeEntry(relative, kind, size_bytes, mode, facts.st_mtime)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            if not folder:
                raise  # below the root: deleted while we looked, so it is not there
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise durable.storage_error("list", path, error) from error

    def _open(self, path: str) -> tuple[int, int]:
        with _open_errors(path):
            folder = self._open_folder(os.path.dirname(path) or ".", is_way=True)
            try:
                return _open_in(folder, os.path.basename(path), path)
            finally:
                os.close(folder)

    def _open_folder(self, path: str, *, is_way: bool = False) -> int:
        """Open a directory; below a root no component may be a link. `is_way`: the last one may, where no root says otherwise."""
        root = next((item for item in self._roots if path == item or path.startswith(f"{item}/")), None)
        if root is None:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if is_way else os.O_NOFOLLOW))
        return _open_below(root, path[len(root) :])


class _Folders:
    """Opens files below one root, without entering a link; the folder of the last one stays open for the next."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._folder: str | None = None
        self._descriptor = -1

    def open_file(self, path: str) -> int:
        """Open one regular file, by its path relative to the root. Raises as `LocalStore.open_source`."""
        folder, _, name = path.rpartition("/")
        full = f"{self._root}/{path}"
        with _open_errors(full):
            if folder != self._folder:
                self.close()
                self._descriptor, self._folder = _open_below(self._root, folder), folder
            return _open_in(self._descriptor, name, full)[0]

    def close(self) -> None:
        """Close the folder."""
        if self._folder is not None:
            os.close(self._descriptor)
            self._folder = None


@contextmanager
def _open_errors(path: str) -> Iterator[None]:
    """Say in our words why a file could not be opened."""
    _demand_path("open", path)
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in durable.GONE:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from error
        raise durable.storage_error("open", path, error) from error


def _open_below(root: str, path: str) -> int:
    """Open a directory below `root`; no component on the way may be a link."""
    descriptor = os.open(root or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in filter(None, path.split("/")):
        try:
            following = os.open(name, _FOLDER_FLAGS, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = following
    return descriptor


def _open_in(folder: int, name: str, path: str) -> tuple[int, int]:
    """Open one regular file of an open directory; its descriptor and size. `path` is for the message."""
    _demand_regular(os.lstat(name, dir_fd=folder).st_mode, path)
    descriptor = os.open(name, _READ_FLAGS, dir_fd=folder)
    facts = os.fstat(descriptor)
    try:
        _demand_regular(facts.st_mode, path)
    except StorageError:
        os.close(descriptor)
        raise
    return descriptor, facts.st_size


def _kind(mode: int) -> EntryKind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISLNK(mode):
        return "symlink"
    if stat.S_ISFIFO(mode):
        return "fifo"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "unknown"


def _demand_path(operation: str, path: str) -> None:
    """Refuse what the system takes for no path at all; Python says that by a ValueError, which would look like a bug of ours."""
    try:
        is_path = b"\0" not in path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        hint = "look at where it was given: a file that names it may be damaged"
        raise StorageError(operation=operation, path=path, detail="it has a character that no path can have", hint=hint)


def _demand_regular(mode: int, path: str) -> None:
    kind = _kind(mode)
    if kind != "file":
        raise StorageError(operation="open", path=path, detail=f"it is a {kind}, not a regular file")


def _too_much(path: str, what: str) -> StorageError:
    return StorageError(operation="read", path=path, detail=f"{what}: exceeds the limit")
