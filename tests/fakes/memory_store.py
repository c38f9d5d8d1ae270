"""A store in memory with two layers: what is visible now, and what would be there after the power failed.

Files are inodes: a name may survive without its content. A directory's names are durable as of its last sync, a file's content as of
its own. What other programs wrote (`put`) is durable in neither sense until somebody syncs it.
"""

from __future__ import annotations

import posixpath
from contextlib import contextmanager
from typing import Literal

from ckptctl.domain.checksums import FileDigest
from ckptctl.domain.digest import blake3_hex
from ckptctl.domain.evidence import TreeEntry
from ckptctl.domain.ids import TORN_WRITE_NAME
from ckptctl.domain.source import BytesSource
from ckptctl.errors import StorageError
from tests.fakes.fixed_clock import START_S

Loss = Literal["everything unsynced", "contents", "nothing"]
LOSSES: tuple[Loss, ...] = ("everything unsynced", "contents", "nothing")
Directory = dict[str, int]


class MemoryStore:
    """Implements `ports.SnapshotStore`."""

    def __init__(self) -> None:
        self._next = 1
        self._directories: dict[int, Directory] = {0: {}}
        self._durable_directories: dict[int, Directory] = {0: {}}
        self._files: dict[int, bytes] = {}
        self._durable_files: dict[int, bytes] = {}

    # --- reading -------------------------------------------------------------------------------------------------------------

    def kind_of(self, path: str) -> str | None:
        inode = self._find(path)
        return None if inode is None else "directory" if inode in self._directories else "file"

    def list_tree(self, root: str, *, max_depth: int | None = None) -> tuple[TreeEntry, ...]:
        inode = self._find(root)
        if inode is None:
            raise FileNotFoundError(root)
        if inode not in self._directories:
            raise StorageError(operation="list", path=root, detail="Not a directory")
        found: list[TreeEntry] = []
        self._walk(inode, "", 1, max_depth, found)
        return tuple(sorted(found, key=lambda entry: entry.path))

    def _walk(self, inode: int, prefix: str, depth: int, most: int | None, found: list[TreeEntry]) -> None:
        for name, child in self._directories[inode].items():
            is_directory = child in self._directories
            size = 0 if is_directory else len(self._files[child])
            found.append(
                TreeEntry(
                    prefix + name, "directory" if is_directory else "file", size, 0o755 if is_directory else 0o644
                )
            )
            if is_directory and depth != most:
                self._walk(child, f"{prefix}{name}/", depth + 1, most, found)

    @contextmanager
    def open_source(self, path: str):
        inode = self._find(path)
        if inode is None:
            raise FileNotFoundError(path)
        if inode in self._directories:
            raise StorageError(operation="open", path=path, detail="it is a directory, not a regular file")
        yield BytesSource(self._files[inode])

    def read_bytes(self, path: str, max_bytes: int) -> bytes:
        with self.open_source(path) as source:
            if source.size_bytes > max_bytes:
                raise StorageError(
                    operation="read",
                    path=path,
                    detail=f"{source.size_bytes} bytes, more than {max_bytes}: exceeds the limit",
                )
            return source.data

    def digest_files(self, root, wanted, advance):
        for work in wanted:
            try:
                data = self.read_bytes(f"{root}/{work.path}", 1 << 40)
            except FileNotFoundError:
                yield FileDigest(work.path, work.size_bytes, changed="it was deleted while it was being read")
                continue
            advance(len(data))
            yield FileDigest(work.path, len(data), blake3_hex(data))

    # --- changing ------------------------------------------------------------------------------------------------------------

    def put(self, path: str, data: bytes) -> None:
        """What another program writes, without a sync."""
        folder, name = posixpath.split(path)
        parent = self._make(folder, is_durable=False)
        inode = self._new()
        self._files[inode] = data
        self._directories[parent][name] = inode

    def make_directory(self, path: str) -> None:
        self._make(path, is_durable=True)

    def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        folder, name = posixpath.split(path)
        parent = self._require(folder, "write")
        inode = self._new()
        self._files[inode] = self._durable_files[inode] = data
        self._directories[parent][name] = inode
        self._sync_directory(parent)

    def write_stream(self, path: str, pieces) -> None:
        """Chunk by chunk, as a process that dies in between would leave it; durable only at the end."""
        folder, name = posixpath.split(path)
        parent = self._require(folder, "write")
        inode = self._new()
        self._files[inode] = b""
        self._directories[parent][name] = inode
        try:
            for piece in pieces:
                self._files[inode] += piece
        except Exception:
            del self._directories[parent][name]
            raise
        self._durable_files[inode] = self._files[inode]

    def sync_tree(self, root: str) -> None:
        self._sync(self._require(root, "sync"))

    def sync_names(self, folder: str) -> None:
        self._sync_directory(self._require(folder, "sync"))

    def rename(self, source: str, target: str) -> None:
        from_folder, from_name = posixpath.split(source)
        to_folder, to_name = posixpath.split(target)
        inode = self._require(source, "rename")
        if self._find(target) is not None:
            raise StorageError(operation="rename", path=source, detail=f"`{target}` exists")
        to_parent = self._require(to_folder, "rename")
        from_parent = self._require(from_folder, "rename")
        del self._directories[from_parent][from_name]
        self._directories[to_parent][to_name] = inode
        self._sync_directory(to_parent)
        self._sync_directory(from_parent)

    def remove_tree(self, path: str) -> None:
        folder, name = posixpath.split(path)
        is_invisible = name.startswith(("tmp_", "trash_")) or TORN_WRITE_NAME.match(name) or "/.ckptctl/" in path
        assert is_invisible, f"{path} is visible: rename it away first"
        parent = self._find(folder)
        if parent is not None and self._directories[parent].pop(name, None) is not None:
            self._sync_directory(parent)

    def file_system_now_s(self, folder: str) -> float:
        return START_S

    # --- the power fails -----------------------------------------------------------------------------------------------------

    def crash(self, loss: Loss) -> None:
        """Reopen after a power failure."""
        if loss == "everything unsynced":
            self._directories = {inode: dict(names) for inode, names in self._durable_directories.items()}
        if loss != "nothing":
            self._files = {inode: self._durable_files.get(inode, b"") for inode in self._files}
        for names in self._directories.values():
            for name in [
                name for name, inode in names.items() if inode not in self._files and inode not in self._directories
            ]:
                del names[name]

    def _sync(self, inode: int) -> None:
        for child in self._directories[inode].values():
            if child in self._directories:
                self._sync(child)
            else:
                self._durable_files[child] = self._files[child]
        self._sync_directory(inode)

    def _sync_directory(self, inode: int) -> None:
        self._durable_directories[inode] = dict(self._directories[inode])

    def _make(self, path: str, *, is_durable: bool) -> int:
        inode = 0
        for name in filter(None, path.split("/")):
            names = self._directories[inode]
            if name not in names:
                child = self._new()
                self._directories[child] = {}
                names[name] = child
                if is_durable:
                    self._durable_directories[child] = {}
                    self._sync_directory(inode)
            inode = names[name]
            if inode not in self._directories:
                raise StorageError(operation="create directory", path=path, detail="Not a directory")
        return inode

    def _require(self, path: str, operation: str) -> int:
        inode = self._find(path)
        if inode is None:
            raise StorageError(operation=operation, path=path, detail="No such file or directory")
        return inode

    def _find(self, path: str) -> int | None:
        inode: int | None = 0
        for name in filter(None, path.split("/")):
            inode = self._directories.get(inode, {}).get(name)
            if inode is None:
                return None
        return inode

    def _new(self) -> int:
        self._next += 1
        return self._next
