"""Reads the files of one target into Parts, each at most once, and keeps account of what was looked at.

Only names that the listing showed as regular files are opened; a link, a pipe or a device never is, and no path that
a file names is joined to anything. Whatever is wrong with bytes ends as the state of a Part; what a state means is
the rules' business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from blake3 import blake3

from ckptctl.domain.checksums import FileDigest
from ckptctl.domain.digest import blake3_hex, sha256_hex
from ckptctl.domain.evidence import Part, PartState, TreeEntry
from ckptctl.domain.finding import Coverage, Defect, DefectError, Unchecked
from ckptctl.domain.limits import Limits
from ckptctl.domain.memory_room import UNBOUNDED, MemoryRoom, NoRoomError
from ckptctl.domain.share import Share
from ckptctl.domain.source import ByteSource, BytesSource
from ckptctl.errors import StorageError
from ckptctl.ports import SnapshotReader

T = TypeVar("T")
IN_MEMORY_BYTES = 80 << 20
"""Files up to this size are read in one go (a full archive shard is); larger ones are hashed in pieces and read by position."""
_PIECE_BYTES = 4 << 20
NOT_FORMAT = "not part of the format"
LEVEL_QUICK = "level quick does not read it"
OTHER_SCHEMA = "it belongs to a schema that is not supported"


@dataclass(slots=True)
class PartReader:
    """The files below one directory. `prefix` is put before names of the listing to get paths relative to the target."""

    reader: SnapshotReader
    root: str
    limits: Limits
    entries: Mapping[str, TreeEntry]
    problem: str = ""
    """Why there is no listing; then everything is `unreadable`."""
    why_passed_over: str = LEVEL_QUICK
    room: MemoryRoom = UNBOUNDED
    looked_at: dict[str, int] = field(default_factory=dict)
    """Path -> bytes looked at."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Path -> why (part of) it was not."""
    storage_problems: list[str] = field(default_factory=list)
    """What the system said where it did not open or list something."""
    share: Share | None = None
    """Which part of the byte work is done here, when it is divided."""
    jobs: int = 1
    """How many threads hash staged rows."""
    left: dict[str, int] = field(default_factory=dict)
    """Path -> bytes that belong to another part."""
    with_blake3: bool = False
    """Whether what is read whole is digested as the checksum file has it, from the very bytes that are judged."""
    digests: dict[str, FileDigest] = field(default_factory=dict)
    """Path -> what was read of it; its digest when all of it was, and when digests are wanted."""
    _by_folder: dict[str, list[str]] = field(default_factory=dict)

    def read_document(self, path: str, decode: Callable[[bytes], T], max_bytes: int) -> Part[T]:
        """One file that is decoded from its bytes."""
        return self._read(path, max_bytes, lambda source: decode(source.read_at(0, source.size_bytes)))

    def read_container(
        self,
        path: str,
        decode: Callable[[ByteSource], T],
        max_bytes: int,
        probe: Callable[[ByteSource], Any] | None = None,
    ) -> Part[T]:
        """One file that is decoded by position. `probe` tells, after a failure, whether the container itself was readable."""
        return self._read(path, max_bytes, decode, probe)

    def read_tensors(
        self, path: str, decode: Callable[[ByteSource], T], tensor_bytes: Callable[[T], int], why: str
    ) -> Part[T]:
        """One file whose tensor bytes are passed over, so that it has no digest."""
        refused = self._refusal(path)
        if refused is not None:
            return refused
        size = self.entries[path].size_bytes
        try:
            with self.reader.open_source(self._full(path)) as source:
                self.digests[path] = FileDigest(path, source.size_bytes)
                part = _decoded(path, self.room.watched(source), size, None, decode, None)
        except (FileNotFoundError, StorageError) as error:
            return self._not_opened(path, error)
        self.looked_at[path] = size
        if part.value is not None:
            passed_over = min(size, tensor_bytes(part.value))
            self.looked_at[path] = size - passed_over
            if passed_over:
                self.reasons[path] = why
        return part

    def read_raw(self, path: str, max_bytes: int) -> bytes | Part[Any]:
        """The bytes of one file, or the Part that says why there are none."""
        refused = self._refusal(path, max_bytes)
        if refused is not None:
            return refused
        try:
            self.room.demand()
            data = self.reader.read_bytes(self._full(path), max_bytes)
        except NoRoomError as error:
            return Part(path, "unreadable", None, error.defects, self.entries[path].size_bytes)
        except (FileNotFoundError, StorageError) as error:
            return self._not_opened(path, error)
        self.looked_at[path] = len(data)
        self.digests[path] = FileDigest(path, len(data), blake3_hex(data) if self.with_blake3 else None)
        return data

    def pass_over(self, path: str) -> Part[Any]:
        """A file that is not asked for (`why_passed_over`); a missing one is `missing` all the same."""
        refused = self._refusal(path)
        if refused is not None and refused.state != "damaged":
            return refused
        entry = self.entries[path]
        self.reasons[path] = self.why_passed_over
        return Part(
            path, "not_read", None, (Defect(f"`{path}` was not read: {self.why_passed_over}"),), entry.size_bytes
        )

    def cover(self, path: str) -> None:
        """All bytes of a file were compared with a digest of the whole file."""
        self.looked_at[path] = self.entries[path].size_bytes
        self.reasons.pop(path, None)
        self.left.pop(path, None)

    def is_file(self, path: str) -> bool:
        """Whether the listing has a regular file there."""
        entry = self.entries.get(path)
        return entry is not None and entry.kind == "file"

    def names_in(self, folder: str) -> Iterable[str]:
        """The names directly in a folder."""
        if not self._by_folder:
            for path in self.entries:
                parent, _, name = path.rpartition("/")
                self._by_folder.setdefault(parent, []).append(name)
        return self._by_folder.get(folder, ())

    def coverage(self, default_reason: str = NOT_FORMAT) -> Coverage:
        """What was looked at, out of everything that is no directory."""
        files = [entry for entry in self.entries.values() if entry.kind != "directory"]
        unchecked: list[Unchecked] = []
        for entry in files:
            seen = min(self.looked_at.get(entry.path, 0), entry.size_bytes)
            if entry.path in self.looked_at and seen == entry.size_bytes and entry.path not in self.reasons:
                continue
            reason = self.reasons.get(entry.path) or (
                "never opened: it is no regular file" if entry.kind != "file" else default_reason
            )
            unchecked.extend(self._unchecked(entry, entry.size_bytes - seen, reason))
        return Coverage(
            files_total=len(files),
            files_checked=sum(entry.path in self.looked_at for entry in files),
            bytes_total=sum(entry.size_bytes for entry in files),
            bytes_checked=sum(min(self.looked_at.get(entry.path, 0), entry.size_bytes) for entry in files),
            unchecked=tuple(unchecked),
        )

    def _unchecked(self, entry: TreeEntry, size_bytes: int, reason: str) -> Iterator[Unchecked]:
        """What was not looked at of one file: what another part of the data holds, and the rest."""
        is_whole = entry.path not in self.looked_at
        left = min(self.left.get(entry.path, 0), size_bytes) if self.share is not None else 0
        if self.share is not None and left:
            yield Unchecked(path=entry.path, bytes=left, reason=self.share.reason, is_whole_file=is_whole)
        if size_bytes > left or not left:
            yield Unchecked(path=entry.path, bytes=size_bytes - left, reason=reason, is_whole_file=is_whole)

    def _read(
        self,
        path: str,
        max_bytes: int,
        decode: Callable[[ByteSource], T],
        probe: Callable[[ByteSource], Any] | None = None,
    ) -> Part[T]:
        refused = self._refusal(path, max_bytes)
        if refused is not None:
            return refused
        try:
            self.room.demand(min(self.entries[path].size_bytes, IN_MEMORY_BYTES))
            with self.reader.open_source(self._full(path)) as opened:
                source, digest, blake3_digest = _hashed(opened, with_blake3=self.with_blake3)
                self.digests[path] = FileDigest(path, opened.size_bytes, blake3_digest)
                part = _decoded(path, self.room.watched(source), source.size_bytes, digest, decode, probe)
        except NoRoomError as error:
            self.reasons[path] = error.defects[0].message
            return Part(path, "unreadable", None, error.defects, self.entries[path].size_bytes)
        except (FileNotFoundError, StorageError) as error:
            return self._not_opened(path, error)
        self.looked_at[path] = part.size_bytes
        return part

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _refusal(self, path: str, max_bytes: int | None = None) -> Part[Any] | None:
        """The Part of a file that is not opened, or None when it may be."""
        entry = self.entries.get(path)
        if self.problem:
            return Part(path, "unreadable", None, (Defect(self.problem),))
        if entry is None:
            return Part(path, "missing", None, (Defect(f"`{path}` is missing"),))
        if entry.kind != "file":
            self.reasons[path] = "never opened: it is no regular file"
            return Part(
                path,
                "damaged",
                None,
                (Defect(f"is a {entry.kind}, not a regular file", "", "a regular file", entry.kind),),
            )
        if max_bytes is not None and entry.size_bytes > max_bytes:
            self.reasons[path] = f"larger than the limit of {max_bytes} bytes"
            what = f"has {entry.size_bytes} bytes, which exceeds the limit of {max_bytes}"
            return Part(
                path,
                "damaged",
                None,
                (Defect(what, "", f"at most {max_bytes} bytes", str(entry.size_bytes)),),
                entry.size_bytes,
            )
        return None

    def _not_opened(self, path: str, error: FileNotFoundError | StorageError) -> Part[Any]:
        state: PartState = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
        reason = "it was deleted while it was being read" if state == "missing" else str(error)
        self.reasons[path] = reason
        defect = Defect(reason)
        if is_of_the_system(error):
            self.storage_problems.append(defect.message)
        return Part(path, state, None, (defect,), self.entries[path].size_bytes)


def is_of_the_system(error: Exception) -> bool:
    """Whether the file system would not do it (permissions, I/O errors), not a limit of ours or what is no file."""
    return isinstance(error, StorageError) and isinstance(error.cause, OSError)


def _hashed(opened: ByteSource, *, with_blake3: bool) -> tuple[ByteSource, str, str | None]:
    """What to decode, its SHA-256, and its BLAKE3 when that is wanted."""
    if opened.size_bytes <= IN_MEMORY_BYTES:
        data = opened.read_at(0, opened.size_bytes)
        return BytesSource(data), sha256_hex(data), blake3_hex(data) if with_blake3 else None
    digest, other = hashlib.sha256(), blake3() if with_blake3 else None
    for piece in _pieces(opened):
        digest.update(piece)
        if other is not None:
            other.update(piece)
    return opened, digest.hexdigest(), other.hexdigest() if other is not None else None


def _pieces(source: ByteSource) -> Iterator[bytes]:
    offset = 0
    while offset < source.size_bytes:
        piece = source.read_at(offset, _PIECE_BYTES)
        if not piece:
            return
        yield piece
        offset += len(piece)


def _decoded(
    path: str,
    source: ByteSource,
    size_bytes: int,
    digest: str | None,
    decode: Callable[[ByteSource], T],
    probe: Callable[[ByteSource], Any] | None,
) -> Part[T]:
    try:
        return Part(path, "decoded", decode(source), (), size_bytes, digest)
    except NoRoomError as error:
        return Part(path, "unreadable", None, error.defects, size_bytes, digest)
    except DefectError as error:
        state: PartState = "unsupported" if error.is_unsupported else "damaged"
        defects = error.defects or (Defect("cannot be decoded"),)
        opens = probe is not None and _opens(source, probe)
        return Part(path, state, None, defects, size_bytes, digest, opens)


def _opens(source: ByteSource, probe: Callable[[ByteSource], Any]) -> bool:
    try:
        probe(source)
    except DefectError:
        return False
    return True
