"""Looks into packed snapshots: `ports.PackReader` over any reader, without unpacking anything to disk.

Below the path of a pack that was asked for (`pack_at`) lie its members, and they are read as files are; everything else goes to
the reader underneath. Only the index and some frames are in memory, or the whole content of a small pack without a seek table.
What a pack's bytes mean is `formats.pack`'s and `formats.zstd_frames`' business, what is in it that of whoever reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Self

from blake3 import blake3

from ckptctl.domain.checksums import FileDigest, FileWork
from ckptctl.domain.evidence import PackFacts, Part, TreeEntry
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.domain.memory_room import UNBOUNDED, MemoryRoom
from ckptctl.domain.pack import BUNDLE_MARK
from ckptctl.domain.source import ByteSource
from ckptctl.errors import StorageError
from ckptctl.formats.pack import PackIndex, read_index
from ckptctl.formats.zstd_frames import FramedSource, open_content
from ckptctl.ports import SnapshotReader

_PIECE_BYTES = 1 << 20
_NAMES_TOLD = 3
_DEFECTS_TOLD = 20


@dataclass(slots=True)
class _Pack:
    """One open pack, or what keeps it from being read."""

    path: str
    packed_bytes: int
    content: ByteSource | None = None
    index: PackIndex | None = None
    refusal: DefectError | None = None
    lock: Lock = field(default_factory=Lock)
    """A decoder serves one thread at a time."""

    def read_at(self, offset: int, count: int) -> bytes:
        """Bytes of the content. Raises StorageError for a frame that is damaged; the pack remembers it."""
        assert self.content is not None, "only a pack with an index has members"
        try:
            with self.lock:
                return self.content.read_at(offset, count)
        except DefectError as error:
            place = error.defects[0].location
            detail = f"its pack is damaged: {error.defects[0].message}{f' ({place})' if place else ''}"
            raise StorageError(operation="read", path=self.path, detail=detail) from error

    def decode_all(self) -> None:
        """Prove every frame that nobody has asked for yet; those that are damaged are remembered."""
        if not isinstance(self.content, FramedSource) or self.index is None:
            return
        for number in range(self.content.table.frames):
            if not self.content.verified[number] and number not in self.content.defects:
                try:
                    with self.lock:
                        self.content.frame(number)
                except DefectError:
                    if len(self.content.defects) >= _DEFECTS_TOLD:
                        return

    def part(self) -> Part[PackFacts]:
        """What is known of the container by now."""
        name = self.path.rpartition("/")[2]
        if self.refusal is not None:
            state = "unsupported" if self.refusal.is_unsupported else "damaged"
            return Part(name, state, None, self.refusal.defects, self.packed_bytes)  # type: ignore[arg-type]  # mypy widens the literals
        assert self.index is not None, "a pack that is not refused has an index"
        assert self.content is not None, "and content"
        facts = PackFacts(
            members=len(self.index.names),
            frames=self.content.table.frames if isinstance(self.content, FramedSource) else 1,
            content_bytes=self.content.size_bytes,
            checked_bytes=self._checked_bytes(),
            is_seekable=isinstance(self.content, FramedSource),
            is_bundle=self.index.find(BUNDLE_MARK) is not None,
        )
        defects = tuple(self._defects())
        if defects:
            return Part(name, "damaged", None, defects, self.packed_bytes)
        return Part(name, "decoded", facts, (), self.packed_bytes)

    def _checked_bytes(self) -> int:
        if not isinstance(self.content, FramedSource):
            return self.packed_bytes
        table = self.content.table
        unread = sum(
            table.slots[number + 1] - table.slots[number]
            for number in range(table.frames)
            if not self.content.verified[number]
        )
        return self.packed_bytes - unread

    def _defects(self) -> Iterator[Defect]:
        if not isinstance(self.content, FramedSource) or self.index is None:
            return
        starts = self.content.table.starts
        for number, defect in sorted(self.content.defects.items()):
            names = self.index.within(starts[number], starts[number + 1], _NAMES_TOLD + 1)
            more = " and others" if len(names) > _NAMES_TOLD else ""
            told = f"; it holds {', '.join(f'`{name}`' for name in names[:_NAMES_TOLD])}{more}" if names else ""
            yield Defect(f"{defect.message}{told}", defect.location, defect.expected, defect.actual)


@dataclass(frozen=True, slots=True)
class _MemberSource:
    """Positioned reads of one member."""

    pack: _Pack
    offset: int
    size_bytes: int

    def read_at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer only at the end."""
        return self.pack.read_at(self.offset + offset, max(0, min(count, self.size_bytes - offset)))


def _blake3(source: ByteSource, advance: Callable[[int], None]) -> str:
    digest = blake3()
    offset = 0
    while offset < source.size_bytes:
        piece = source.read_at(offset, _PIECE_BYTES)
        digest.update(piece)
        offset += len(piece)
        advance(len(piece))
    return digest.hexdigest()


class PackedReader:
    """Implements `ports.PackReader` over `base`. Leaving it closes every pack."""

    def __init__(self, base: SnapshotReader, limits: Limits = DEFAULT_LIMITS, room: MemoryRoom = UNBOUNDED) -> None:
        self._base, self._limits, self._room = base, limits, room
        self._packs: dict[str, _Pack] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._packs.clear()
        self._stack.close()

    def pack_at(self, path: str, *, whole: bool = False) -> Part[PackFacts]:
        """The pack as a container, with what was found wrong so far. Raises as `open_source`."""
        if path not in self._packs:
            self._packs[path] = self._open(path)
        if whole:
            self._packs[path].decode_all()
        return self._packs[path].part()

    def is_open_pack(self, path: str) -> bool:
        """Whether a path is a pack that was asked for."""
        return path in self._packs

    def list_tree(self, root: str, *, max_depth: int | None = None) -> tuple[TreeEntry, ...]:
        """As the reader underneath, or the members below a place in a pack."""
        found = self._place(root)
        if found is None:
            return self._base.list_tree(root, max_depth=max_depth)
        pack, name = found
        kind = self._kind_in(pack, name)
        if kind is None or pack.index is None:
            raise FileNotFoundError(root)
        if kind != "directory":
            raise StorageError(operation="list", path=root, detail="Not a directory")
        return tuple(pack.index.below(name, max_depth))

    def kind_of(self, path: str) -> str | None:
        """As the reader underneath, or the kind of a member; a pack that can be read is a directory."""
        found = self._place(path)
        return self._base.kind_of(path) if found is None else self._kind_in(*found)

    def open_source(self, path: str) -> AbstractContextManager[ByteSource]:
        """As the reader underneath, or positioned reads of one member. Raises StorageError for what is no file."""
        found = self._place(path)
        return self._base.open_source(path) if found is None else self._member(path, *found)

    def read_bytes(self, path: str, max_bytes: int) -> bytes:
        """As the reader underneath, or a whole member. Raises StorageError above `max_bytes`."""
        if self._place(path) is None:
            return self._base.read_bytes(path, max_bytes)
        with self.open_source(path) as source:
            if source.size_bytes > max_bytes:
                what = f"{source.size_bytes} bytes, more than {max_bytes}: exceeds the limit"
                raise StorageError(operation="read", path=path, detail=what)
            return source.read_at(0, source.size_bytes)

    def digest_files(
        self, root: str, wanted: Iterable[FileWork], advance: Callable[[int], None]
    ) -> Iterator[FileDigest]:
        """As the reader underneath, or BLAKE3 of members, in the order in which they lie in the pack."""
        found = self._place(root)
        if found is None:
            yield from self._base.digest_files(root, wanted, advance)
            return
        pack, folder = found
        index = pack.index
        assert index is not None, "only a pack with an index has places"
        places: list[tuple[int, FileWork]] = []
        for work in wanted:
            place = index.find(f"{folder}/{work.path}".lstrip("/"))
            if place is None or index.kind(place) != "file":
                yield FileDigest(work.path, work.size_bytes, problem="no such file is in the pack")
            else:
                places.append((place, work))
        for place, work in sorted(places, key=lambda item: index.offsets[item[0]]):
            source = _MemberSource(pack, index.offsets[place], index.sizes[place])
            try:
                yield FileDigest(work.path, source.size_bytes, _blake3(source, advance))
            except StorageError as error:
                yield FileDigest(work.path, work.size_bytes, problem=error.message)

    @contextmanager
    def _member(self, path: str, pack: _Pack, name: str) -> Iterator[ByteSource]:
        place = None if pack.index is None else pack.index.find(name)
        if place is None or pack.index is None:
            raise FileNotFoundError(path)
        if pack.index.kind(place) != "file":
            raise StorageError(operation="open", path=path, detail="it is a directory, not a regular file")
        yield _MemberSource(pack, pack.index.offsets[place], pack.index.sizes[place])

    def _place(self, path: str) -> tuple[_Pack, str] | None:
        """The pack in which a path lies, and the name of the member."""
        for known, pack in self._packs.items():
            if pack.refusal is None and (path == known or path.startswith(f"{known}/")):
                return pack, path[len(known) + 1 :]
        return None

    def _kind_in(self, pack: _Pack, name: str) -> str | None:
        if not name:
            return "directory"
        place = None if pack.index is None else pack.index.find(name)
        return None if place is None or pack.index is None else pack.index.kind(place)

    def _open(self, path: str) -> _Pack:
        source = self._stack.enter_context(self._base.open_source(path))
        pack = _Pack(path, source.size_bytes)
        try:
            pack.content = open_content(self._room.watched(source), self._limits)
            if isinstance(pack.content, FramedSource):
                pack.content.packed = source  # its frames are of one size; want of memory must not be taken for damage
            pack.index = read_index(self._room.watched(pack.content), self._limits)
        except DefectError as error:
            pack.refusal = error
            pack.content = pack.index = None
        return pack
