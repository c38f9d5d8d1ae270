"""A file system in memory with two layers: what is visible now, and what would be there after the power failed.

A file's content is durable as of its last sync. Names are changed in one order for the whole file system, as a journal does it, and
a change is durable when one of its directories was synced after it. A crash may lose every change that is not, a suffix of them, or
nothing; unsynced content is lost, torn or kept, file by file. Below a *safe* root nothing is ever lost: that is where the test's own
logs lie.

What an operation may do is decided before it gets here (`kernel`); nothing here knows of processes or of faults.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from dataclasses import dataclass, field
from typing import Literal

Loss = Literal["all", "some", "none"]
MAX_LINKS = 40


@dataclass(slots=True, eq=False)
class Node:
    """An inode. `names` of a directory, `data` of a file; `synced` is the durable content."""

    number: int
    is_directory: bool
    mode: int
    mtime_s: float
    is_safe: bool
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    names: dict[str, int] = field(default_factory=dict)
    links: int = 0
    is_dirty: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One change of names: (directory, name) -> inode, or None where the name goes."""

    sets: tuple[tuple[int, str, int | None], ...]

    @property
    def folders(self) -> set[int]:
        """The directories that it changes."""
        return {folder for folder, _, _ in self.sets}


class Disk:
    """One file system. Paths are absolute; there are no symbolic links."""

    def __init__(self, *, safe: tuple[str, ...] = ()) -> None:
        self._safe = safe
        self.nodes: dict[int, Node] = {1: Node(1, True, 0o755, 0.0, False)}
        self._durable: dict[int, dict[str, int]] = {1: {}}
        """Names of each directory that survive."""
        self._pending: list[Change] = []
        self._next = 1

    # --- looking -------------------------------------------------------------------------------------------------------------

    def find(self, path: str) -> Node | None:
        """The node under a path."""
        node = self.nodes[1]
        for name in path.split("/"):
            if name:
                number = node.names.get(name) if node.is_directory else None
                if number is None:
                    return None
                node = self.nodes[number]
        return node

    def require(self, path: str) -> Node:
        """The node under a path. Raises FileNotFoundError."""
        node = self.find(path)
        if node is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def folder_of(self, path: str) -> tuple[Node, str]:
        """The directory that holds a name. Raises OSError."""
        above, name = posixpath.split(path.rstrip("/"))
        folder = self.require(above or "/")
        if not folder.is_directory:
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return folder, name

    def files(self, root: str, node: Node | None = None) -> dict[str, bytes]:
        """Content of every file below a path, by relative path."""
        node = node or self.find(root)
        found: dict[str, bytes] = {}
        if node is not None:
            self._collect(node, "", found)
        return found

    def _collect(self, node: Node, prefix: str, found: dict[str, bytes]) -> None:
        for name, number in sorted(node.names.items()):
            child = self.nodes[number]
            if child.is_directory:
                self._collect(child, f"{prefix}{name}/", found)
            else:
                found[prefix + name] = bytes(child.data)

    # --- changing ------------------------------------------------------------------------------------------------------------

    def create(self, path: str, now_s: float, *, is_directory: bool, mode: int) -> Node:
        """A new node under a name that is free."""
        folder, name = self.folder_of(path)
        if name in folder.names:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._next += 1
        is_safe = folder.is_safe or path in self._safe
        node = Node(self._next, is_directory, mode, now_s, is_safe)
        self.nodes[node.number] = node
        if is_directory:
            self._durable[node.number] = {}
        self._change((folder.number, name, node.number))
        return node

    def link(self, source: str, target: str) -> None:
        """A second name of a file."""
        node = self.require(source)
        folder, name = self.folder_of(target)
        if name in folder.names:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        self._change((folder.number, name, node.number))

    def rename(self, source: str, target: str) -> None:
        """Atomic; a file or an empty directory under the target is replaced."""
        node = self.require(source)
        from_folder, from_name = self.folder_of(source)
        to_folder, to_name = self.folder_of(target)
        existing = self.find(target)
        if existing is node:
            return
        if existing is not None and existing.is_directory:
            if not node.is_directory:
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), target)
            if existing.names:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        self._change((from_folder.number, from_name, None), (to_folder.number, to_name, node.number))

    def unlink(self, path: str, *, is_directory: bool) -> None:
        """Take a name away."""
        node = self.require(path)
        folder, name = self.folder_of(path)
        if node.is_directory != is_directory:
            code = errno.ENOTDIR if is_directory else errno.EISDIR
            raise OSError(code, os.strerror(code), path)
        if is_directory and node.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._change((folder.number, name, None))

    def write(self, node: Node, offset: int, data: bytes, now_s: float) -> None:
        """Content, not synced."""
        node.data[offset : offset + len(data)] = data
        node.mtime_s, node.is_dirty = now_s, True

    def truncate(self, node: Node, size: int, now_s: float) -> None:
        """Cut the content off."""
        del node.data[size:]
        node.mtime_s, node.is_dirty = now_s, True

    def sync(self, node: Node) -> None:
        """Make a file's content, or a directory's names, durable."""
        if not node.is_directory:
            node.synced, node.is_dirty = bytes(node.data), False
            return
        needed, synced = {node.number}, set()
        for change in reversed(self._pending):  # what came before in the same directories goes with it
            if change.folders & needed:
                needed |= change.folders
                synced.add(id(change))
        for change in self._pending:
            if id(change) in synced:
                self._keep(change)
        self._pending = [change for change in self._pending if id(change) not in synced]

    def _change(self, *sets: tuple[int, str, int | None]) -> None:
        change = Change(sets)
        for folder, name, number in sets:
            names = self.nodes[folder].names
            before = names.pop(name, None)
            if before is not None:
                self.nodes[before].links -= 1
            if number is not None:
                names[name] = number
                self.nodes[number].links += 1
        if all(self.nodes[folder].is_safe for folder, _, _ in sets):
            self._keep(change)
        else:
            self._pending.append(change)

    def _keep(self, change: Change) -> None:
        for folder, name, number in change.sets:
            if number is None:
                self._durable[folder].pop(name, None)
            else:
                self._durable[folder][name] = number

    # --- the power fails -----------------------------------------------------------------------------------------------------

    def durable_files(self, root: str) -> dict[str, bytes]:
        """What would be left below a path if everything were lost that may be."""
        names, number = self._durable, 1
        for name in filter(None, root.split("/")):
            if name not in names.get(number, {}):
                return {}
            number = names[number][name]
        found: dict[str, bytes] = {}
        self._collect_durable(number, "", found)
        return found

    def _collect_durable(self, number: int, prefix: str, found: dict[str, bytes]) -> None:
        for name, child in sorted(self._durable[number].items()):
            if child in self._durable:
                self._collect_durable(child, f"{prefix}{name}/", found)
            else:
                node = self.nodes[child]
                found[prefix + name] = bytes(node.data) if node.is_safe else node.synced

    def crash(self, loss: Loss, rng: random.Random) -> None:
        """Lose what was not synced. Whoever had files open is gone as well."""
        kept = {"all": 0, "some": rng.randint(0, len(self._pending)), "none": len(self._pending)}[loss]
        for change in self._pending[:kept]:
            self._keep(change)
        self._pending = []
        for number, names in self._durable.items():
            self.nodes[number].names = dict(names)
        for node in self.nodes.values():
            if not node.is_directory and not node.is_safe and node.is_dirty and loss != "none":
                self._lose(node, loss, rng)
        self._recount()

    def _lose(self, node: Node, loss: Loss, rng: random.Random) -> None:
        data = node.synced
        if loss == "some":
            fate = rng.choice(("lost", "torn", "kept"))
            if fate == "kept":
                data = bytes(node.data)
            elif fate == "torn":
                data = bytes(node.data[: rng.randint(min(len(data), len(node.data)), len(node.data))])
        node.data, node.synced, node.is_dirty = bytearray(data), data, False

    def _recount(self) -> None:
        for node in self.nodes.values():
            node.links = 0
        reached, waiting = {1}, [1]
        while waiting:
            for number in self.nodes[waiting.pop()].names.values():
                self.nodes[number].links += 1
                if number not in reached:
                    reached.add(number)
                    waiting.append(number)
        for number in self.nodes.keys() - reached:
            del self.nodes[number]
            self._durable.pop(number, None)

    def copy(self) -> Disk:
        """The same content once more, all of it durable."""
        other = Disk(safe=self._safe)
        other._next = self._next
        other.nodes = {
            number: Node(
                number, node.is_directory, node.mode, node.mtime_s, node.is_safe,
                bytearray(node.data), bytes(node.data), dict(node.names), node.links,
            )
            for number, node in self.nodes.items()
        }  # fmt: skip
        other._durable = {number: dict(node.names) for number, node in other.nodes.items() if node.is_directory}
        return other
