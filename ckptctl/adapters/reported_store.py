"""A store that says how many bytes of the present phase were read, out of those that its target has.

Whoever begins a phase names what it is about (`Progress.phase("validate", PATH)`); the sizes come from the listing of that path,
so workflows need not count. A byte counts once however often it is read, and what is passed over is taken off the total when its
file is closed: the total is what remains to be expected, not a promise. Checksums are a reading of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ckptctl.adapters.digests import Advance
from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.checksums import FileDigest, FileWork
from ckptctl.domain.evidence import TreeEntry
from ckptctl.domain.source import ByteSource
from ckptctl.ports import Progress

_PIECE_BYTES = 256 << 10
"""Reads smaller than that are counted together: rows of tensors are read in millions."""
_STEP_BYTES = 1 << 20
"""How much is read before it is told again: the teller has its own rhythm, but is not asked for every small read."""


class ByteCount:
    """Implements `ports.Progress`: hands phases on, and counts the bytes of each.

    Without a lock: a count that two threads change at once may lose a step, which nobody sees.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._begin("")

    def phase(self, name: str, detail: str = "") -> None:
        """A new phase began; `detail` may be the path that it reads."""
        self._begin(detail)
        self._progress.phase(name, detail)

    def advance(self, done: int, total: int, unit: str) -> None:
        """Somebody counts for himself."""
        self._progress.advance(done, total, unit)

    def listed(self, root: str, entries: Iterable[TreeEntry]) -> None:
        """Files of the phase's path are expected to be read."""
        if self._root and (root == self._root or root.startswith(f"{self._root}/")):
            for entry in entries:
                self._expect(f"{root}/{entry.path}", entry.size_bytes)

    def opened(self, path: str, size_bytes: int) -> None:
        """A file is about to be read."""
        self._expect(path, size_bytes)

    def read(self, path: str, count: int) -> None:
        """Bytes of an open file were read."""
        before = self._read.get(path, 0)
        now = min(before + count, self._expected.get(path, 0))
        self._read[path] = now
        self._add(now - before)

    def closed(self, path: str) -> None:
        """What was not read of it is not expected any more."""
        self._total += self._read.get(path, 0) - self._expected.get(path, 0)
        self._expected[path] = self._read.get(path, 0)

    def handed_over(self, path: str, size_bytes: int) -> None:
        """A file is about to be digested: instead of the reading that was expected, or once more after it."""
        if not self._read.get(path, 0):
            self._total -= self._expected.pop(path, 0)
        self._total += size_bytes

    def digested(self, count: int) -> None:
        """Bytes of handed files were digested."""
        self._add(count)

    def _begin(self, root: str) -> None:
        self._root = root if root.startswith("/") else ""
        self._expected: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self._done = self._total = self._told = 0

    def _expect(self, path: str, size_bytes: int) -> None:
        self._total += size_bytes - self._expected.get(path, 0)
        self._expected[path] = size_bytes

    def _add(self, count: int) -> None:
        self._done += count
        if self._done - self._told >= _STEP_BYTES:
            self._told = self._done
            self._progress.advance(self._done, max(self._done, self._total), "bytes")


@dataclass(slots=True)
class _CountedSource:
    """Positioned reads that are counted, small ones together."""

    source: ByteSource
    path: str
    count: ByteCount
    uncounted: int = 0

    @property
    def size_bytes(self) -> int:
        """Total size."""
        return self.source.size_bytes

    def read_at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`."""
        data = self.source.read_at(offset, count)
        self.uncounted += len(data)
        if self.uncounted >= _PIECE_BYTES:
            self.tell()
        return data

    def tell(self) -> None:
        """Count what was read so far."""
        self.count.read(self.path, self.uncounted)
        self.uncounted = 0


class ReportedStore(LocalStore):
    """A LocalStore whose reading is told to `count`."""

    def __init__(self, *roots: str, count: ByteCount) -> None:
        super().__init__(*roots)
        self._count = count

    def list_tree(self, root: str, *, max_depth: int | None = None) -> tuple[TreeEntry, ...]:
        """As LocalStore's."""
        entries = super().list_tree(root, max_depth=max_depth)
        self._count.listed(root, entries)
        return entries

    @contextmanager
    def open_source(self, path: str) -> Iterator[ByteSource]:  # type: ignore[override]  # the port promises no more
        """As LocalStore's."""
        with super().open_source(path) as source:
            self._count.opened(path, source.size_bytes)
            counted = _CountedSource(source, path, self._count)
            try:
                yield counted
            finally:
                counted.tell()
                self._count.closed(path)

    def digest_files(self, root: str, wanted: Iterable[FileWork], advance: Advance) -> Iterator[FileDigest]:
        """As LocalStore's."""

        def both(count: int) -> None:
            self._count.digested(count)
            advance(count)

        works = tuple(wanted)
        for work in works:
            self._count.handed_over(f"{root}/{work.path}", work.size_bytes)
        yield from super().digest_files(root, works, both)
