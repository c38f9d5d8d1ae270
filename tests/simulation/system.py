"""`os` on the simulated disk: exactly those functions that the product uses; anything else is an AttributeError that names it."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

from tests.simulation.disk import Node
from tests.simulation.kernel import ACTING, Kernel, Open


@dataclass(frozen=True, slots=True)
class Stat:
    """What `lstat` says, as far as anybody asks."""

    st_mode: int
    st_ino: int
    st_size: int
    st_mtime: float
    st_nlink: int
    st_dev: int = 1
    st_uid: int = 0
    st_gid: int = 0
    st_blksize: int = 4096

    @property
    def st_blocks(self) -> int:
        """In units of 512 bytes; there are no holes."""
        return -(-self.st_size // 512)

    @property
    def st_mtime_ns(self) -> int:
        """The time in nanoseconds."""
        return int(self.st_mtime * 1e9)


def stat_of(node: Node) -> Stat:
    """A node's facts."""
    kind = stat.S_IFDIR if node.is_directory else stat.S_IFREG
    return Stat(kind | node.mode, node.number, len(node.data), node.mtime_s, node.links)


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """What `scandir` yields."""

    name: str
    facts: Stat

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        """Its facts; there are no links to follow."""
        return self.facts


class SimulatedPath:
    """`os.path` on the simulated disk."""

    join, dirname, basename = (
        staticmethod(posixpath.join),
        staticmethod(posixpath.dirname),
        staticmethod(posixpath.basename),
    )
    abspath = realpath = staticmethod(posixpath.normpath)

    def __init__(self, kernel: Callable[[], Kernel]) -> None:
        self._kernel = kernel

    def isdir(self, path: str) -> bool:
        """Whether it is a directory; what cannot be asked is none."""
        node = self._find(path)
        return node is not None and node.is_directory

    def lexists(self, path: str) -> bool:
        """Whether there is anything; what cannot be asked is not there."""
        return self._find(path) is not None

    exists = lexists

    def _find(self, path: str) -> Node | None:
        with suppress(OSError):
            self._kernel().enter("stat", path)
            return self._kernel().disk.find(path)
        return None


class SimulatedOs:
    """`os` on the simulated disk. `kernel` gives the one that is running now."""

    strerror = staticmethod(os.strerror)
    pathsep, sep, devnull = os.pathsep, os.sep, os.devnull

    def __init__(self, kernel: Callable[[], Kernel]) -> None:
        self._kernel = kernel
        self.path = SimulatedPath(kernel)
        self.environ: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("O_", "SEEK_")):
            return getattr(os, name)
        raise AttributeError(f"the simulated os has no `{name}`")

    # --- descriptors ---

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        return self._kernel().open(path, flags, mode, dir_fd=dir_fd)

    def close(self, descriptor: int) -> None:
        del self._kernel().open_files[descriptor]

    def write(self, descriptor: int, data: Any) -> int:
        return self._kernel().write(descriptor, data)

    def pread(self, descriptor: int, count: int, offset: int) -> bytes:
        file = self._file(descriptor)
        self._kernel().enter("read", file.path)
        return bytes(file.node.data[offset : offset + count])

    def preadv(self, descriptor: int, buffers: list[memoryview], offset: int) -> int:
        [buffer] = buffers
        data = self.pread(descriptor, len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def fsync(self, descriptor: int) -> None:
        file = self._file(descriptor)
        self._kernel().enter("fsync", file.path, is_write=True)
        self._kernel().disk.sync(file.node)

    def ftruncate(self, descriptor: int, size: int) -> None:
        file = self._file(descriptor)
        self._kernel().enter("truncate", file.path, is_write=True)
        self._kernel().disk.truncate(file.node, size, self._kernel().server_now_s())

    def fstat(self, descriptor: int) -> Stat:
        return stat_of(self._file(descriptor).node)

    def utime(self, descriptor: int) -> None:
        file = self._file(descriptor)
        self._kernel().enter("utime", file.path, is_write=True)
        file.node.mtime_s = self._kernel().server_now_s()

    def fdopen(self, descriptor: int, mode: str) -> WholeFile:
        return WholeFile(self, descriptor)

    # --- names ---

    def lstat(self, path: str, *, dir_fd: int | None = None) -> Stat:
        path = self._kernel().at(path, dir_fd)
        self._kernel().enter("stat", path)
        return stat_of(self._kernel().disk.require(path))

    def stat(self, path: str, *, follow_symlinks: bool) -> Stat:
        assert not follow_symlinks
        return self.lstat(path)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        self._kernel().enter("mkdir", path, is_write=True)
        self._kernel().disk.create(path, self._kernel().server_now_s(), is_directory=True, mode=mode & ~0o022)

    def rename(self, source: str, target: str) -> None:
        self._kernel().enter("rename", source, is_write=True)
        self._kernel().disk.rename(source, target)

    replace = rename

    def link(self, source: str, target: str) -> None:
        self._kernel().enter("link", target, is_write=True)
        self._kernel().disk.link(source, target)

    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        path = self._kernel().at(path, dir_fd)
        self._kernel().enter("unlink", path, is_write=True)
        self._kernel().disk.unlink(path, is_directory=False)

    def rmdir(self, path: str, *, dir_fd: int | None = None) -> None:
        path = self._kernel().at(path, dir_fd)
        self._kernel().enter("rmdir", path, is_write=True)
        self._kernel().disk.unlink(path, is_directory=True)

    # --- listing ---

    def listdir(self, path: str) -> list[str]:
        return list(self._listed(path).names)

    @contextmanager
    def scandir(self, where: str | int) -> Iterator[Iterator[DirectoryEntry]]:
        nodes = self._kernel().disk.nodes
        if isinstance(where, int):
            folder, path = self._file(where).node, self._file(where).path
            self._kernel().enter("list", path)
        else:
            folder = self._listed(where)
        yield iter([DirectoryEntry(name, stat_of(nodes[number])) for name, number in folder.names.items()])

    def walk(self, root: str, topdown: bool = True, onerror: Any = None) -> Iterator[tuple[str, list[str], list[str]]]:
        assert not topdown
        try:
            folders, names = self._kinds(self._listed(root))
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        for name in folders:
            yield from self.walk(f"{root}/{name}", topdown=False, onerror=onerror)
        yield root, folders, names

    def fwalk(
        self, root: str, topdown: bool = True, onerror: Any = None
    ) -> Iterator[tuple[str, list[str], list[str], int]]:
        for folder, folders, names in self.walk(root, topdown=topdown, onerror=onerror):
            descriptor = self._kernel().open(folder, os.O_RDONLY)
            try:
                yield folder, folders, names, descriptor
            finally:
                self.close(descriptor)

    # --- the process ---

    def sched_getaffinity(self, pid: int) -> set[int]:
        return {pid}

    def getpid(self) -> int:
        process = ACTING.get()
        return 1 if process is None else process.pid

    def readlink(self, path: str) -> str:
        process = ACTING.get()
        assert path == "/proc/self/ns/pid"
        return f"pid:[{'nowhere' if process is None else process.host}]"

    # --- inside ---

    def _file(self, descriptor: int) -> Open:
        return self._kernel().open_files[descriptor]

    def _listed(self, path: str) -> Node:
        self._kernel().enter("list", path)
        node = self._kernel().disk.require(path)
        if not node.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _kinds(self, node: Node) -> tuple[list[str], list[str]]:
        nodes = self._kernel().disk.nodes
        folders = [name for name, number in node.names.items() if nodes[number].is_directory]
        return folders, [name for name, number in node.names.items() if not nodes[number].is_directory]


class WholeFile:
    """What `open(..., "rb")` gives, for readers of whole files."""

    def __init__(self, system: SimulatedOs, descriptor: int) -> None:
        self._system, self._descriptor = system, descriptor

    def read(self, most: int = 1 << 40) -> bytes:
        """Everything, or the beginning."""
        return self._system.pread(self._descriptor, most, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._system.close(self._descriptor)
