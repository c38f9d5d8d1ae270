"""The content of a packed snapshot: which names a pack may hold, the tar that is written and the index of one that is read.

A pack is a tar in a seekable zstd file (`zstd_frames`). Written: names sorted, modes as they are, every time, owner and owner
name empty, so that the same snapshot is the same bytes. Read: whatever a tar of plain files and directories can be, GNU tar's
included; links, devices, sparse files, a name twice, `..` and absolute names are refused: two readers would see two trees.

What a pack's tree means is found out by whoever asks for a snapshot in it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from ckptctl.domain.evidence import EntryKind, TreeEntry
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.safe_text import shown
from ckptctl.domain.source import ByteSource
from ckptctl.formats.tar_blocks import (
    BLOCK,
    DIRECTORY,
    KIND_WORDS,
    RECORD,
    defect,
    member_headers,
    padded,
)
from ckptctl.formats.tar_walk import Dialect, Member, walk_members
from ckptctl.formats.zstd_frames import compress_frames

_MODE_BITS = 0o7777
_FOLDER_MODE = 0o755
_DIRECTORY_KIND, _FILE_KIND = 0, 1


# --- writing ---


@dataclass(frozen=True, slots=True)
class PackMember:
    """One file or directory to be packed. `pieces` is its content, asked for once, when its turn comes; None for a directory."""

    name: str
    mode: int
    size_bytes: int = 0
    pieces: Iterable[bytes] | None = None


def pack_bytes(members: Iterable[PackMember]) -> Iterator[bytes]:
    """The whole pack, piece by piece; members come sorted by name. Memory does not depend on what is packed.

    Raises:
        DefectError: a member's content is not as long as it was said, or its name is not UTF-8.
    """
    return compress_frames(_tar(members))


def _tar(members: Iterable[PackMember]) -> Iterator[bytes]:
    total = 0
    for member in members:
        for piece in _member(member):
            total += len(piece)
            yield piece
    yield bytes(2 * BLOCK)
    yield bytes(-(total + 2 * BLOCK) % RECORD)


def _member(member: PackMember) -> Iterator[bytes]:
    mode = member.mode & _MODE_BITS
    is_folder = member.pieces is None
    name = f"{member.name}/" if is_folder else member.name
    try:
        yield member_headers(name, member.size_bytes, kind=DIRECTORY if is_folder else b"0", mode=mode)
    except UnicodeEncodeError:
        raise DefectError(Defect(f"the name {shown(member.name)} is not UTF-8")) from None
    count = 0
    for piece in member.pieces or ():
        count += len(piece)
        if count > member.size_bytes:
            break
        yield piece
    if count != member.size_bytes:
        raise DefectError(
            Defect(f"`{member.name}` changed while it was packed", "", f"{member.size_bytes} bytes", f"{count} bytes")
        )
    yield bytes(padded(count) - count)


# --- reading ---


@dataclass(frozen=True, slots=True)
class PackIndex:
    """Every name in a pack, sorted, and where its content lies. Columns, because a pack may hold half a million of them."""

    names: list[str]
    kinds: bytearray
    modes: array[int]
    offsets: array[int]
    sizes: array[int]

    def find(self, name: str) -> int | None:
        """The place of a name."""
        place = bisect_left(self.names, name)
        return place if place < len(self.names) and self.names[place] == name else None

    def kind(self, place: int) -> EntryKind:
        """`file` or `directory`."""
        return "file" if self.kinds[place] == _FILE_KIND else "directory"

    def within(self, start: int, end: int, most: int) -> list[str]:
        """The names whose content lies in a stretch of the tar, `most` of them."""
        found = (
            name
            for name, offset, size in zip(self.names, self.offsets, self.sizes, strict=True)
            if offset < end and offset + size > start
        )
        return list(islice(found, most))

    def below(self, folder: str, max_depth: int | None) -> Iterator[TreeEntry]:
        """Everything under a folder (`""` is the whole), with paths relative to it."""
        prefix = f"{folder}/" if folder else ""
        place = bisect_left(self.names, prefix)
        while place < len(self.names) and self.names[place].startswith(prefix):
            path = self.names[place][len(prefix) :]
            if max_depth is None or path.count("/") < max_depth:
                yield TreeEntry(path, self.kind(place), self.sizes[place], self.modes[place])
            place += 1


def read_index(source: ByteSource, limits: Limits) -> PackIndex:
    """Find every member of an uncompressed pack.

    Raises:
        DefectError: it is no tar of plain files and directories; `location` is the byte in the uncompressed tar.
    """
    found = _Found(limits)
    for member in walk_members(source, Dialect(limits.pack_members, takes_gnu=True, takes_size=True)):
        found.take(member)
    return found.index()


@dataclass(slots=True)
class _Found:
    """What was found so far. Folders that no member names are there all the same."""

    limits: Limits
    places: dict[str, int] = field(default_factory=dict)
    implied: set[str] = field(default_factory=set)
    names: list[str] = field(default_factory=list)
    kinds: bytearray = field(default_factory=bytearray)
    modes: array[int] = field(default_factory=lambda: array("H"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    sizes: array[int] = field(default_factory=lambda: array("Q"))
    name_bytes: int = 0

    def take(self, member: Member) -> None:
        """One member. Raises DefectError."""
        place = member.header.offset
        is_folder = member.header.kind == DIRECTORY or (not member.is_regular and not member.size_bytes)
        if member.header.kind in KIND_WORDS:
            kind = KIND_WORDS[member.header.kind]
            raise defect(place, f"member {shown(member.name)} is {kind}", "a file or a directory", kind)
        if not member.is_regular and not is_folder:
            raise defect(place, f"member {shown(member.name)} is a directory with content")
        name = self._checked(member.name, place, is_folder=is_folder)
        if not name:
            return  # the folder that was packed, as `tar -C DIR .` calls it
        if name in self.places:
            raise defect(place, f"the name {shown(name)} is there twice")
        self._imply_parents(name, place)
        if name in self.implied:
            if not is_folder:
                raise defect(place, f"{shown(name)} is a file, and other members lie in it")
            self.implied.discard(name)
        self._add(name, is_folder=is_folder, mode=member.header.mode, offset=member.content, size=member.size_bytes)

    def _imply_parents(self, name: str, place: int) -> None:
        parent = name.rpartition("/")[0]
        while parent and parent not in self.implied:
            known = self.places.get(parent)
            if known is not None and self.kinds[known] == _FILE_KIND:
                raise defect(place, f"member {shown(name)} lies in {shown(parent)}, which is a file")
            if known is not None:
                return
            self._count(parent, place)
            self.implied.add(parent)
            parent = parent.rpartition("/")[0]

    def _add(self, name: str, *, is_folder: bool, mode: int, offset: int, size: int) -> None:
        self.places[name] = len(self.names)
        self.names.append(name)
        self.kinds.append(_DIRECTORY_KIND if is_folder else _FILE_KIND)
        self.modes.append(mode & _MODE_BITS)
        self.offsets.append(offset)
        self.sizes.append(size)

    def _checked(self, name: str, place: int, *, is_folder: bool) -> str:
        """The name as a path: one `./` before it and one `/` behind a directory's are not part of it."""
        bare = name.removesuffix("/") if is_folder else name
        bare = "" if bare == "." else bare.removeprefix("./")
        if not bare and is_folder:
            return ""
        if bare.startswith("/"):
            raise defect(place, f"the name {shown(name)} is absolute", "a relative name", shown(name))
        parts = bare.split("/")
        if ".." in parts:
            raise defect(place, f"the name {shown(name)} leads out of the pack", "a name without `..`", shown(name))
        if "" in parts or "." in parts:
            raise defect(place, f"the name {shown(name)} can be written in more than one way")
        if len(parts) > self.limits.tree_depth:
            raise defect(place, f"{shown(name)} is nested deeper than {self.limits.tree_depth} directories")
        if any(len(part.encode()) > self.limits.name_bytes for part in parts):
            raise defect(place, f"a name exceeds the limit of {self.limits.name_bytes} bytes", "", shown(name))
        self._count(bare, place)
        return bare

    def _count(self, name: str, place: int) -> None:
        self.name_bytes += len(name.encode())
        if self.name_bytes > self.limits.pack_names_bytes:
            raise defect(place, f"all names together exceed the limit of {self.limits.pack_names_bytes} bytes")
        if len(self.names) + len(self.implied) >= self.limits.pack_members:
            raise defect(place, f"holds more than {self.limits.pack_members} names")

    def index(self) -> PackIndex:
        """All of it, sorted by name."""
        self.places.clear()
        for name in self.implied:
            self.names.append(name)
            self.kinds.append(_DIRECTORY_KIND)
            self.modes.append(_FOLDER_MODE)
            self.offsets.append(0)
            self.sizes.append(0)
        order = sorted(range(len(self.names)), key=self.names.__getitem__)
        return PackIndex(
            [self.names[place] for place in order],
            bytearray(self.kinds[place] for place in order),
            array("H", (self.modes[place] for place in order)),
            array("Q", (self.offsets[place] for place in order)),
            array("Q", (self.sizes[place] for place in order)),
        )
