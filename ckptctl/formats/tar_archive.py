"""The tar shards of agents and models (participant-protocol section 11): a strict reader and a reproducible writer.

The reader accepts what Python's `tarfile` writes uncompressed in its default (PAX) format, and nothing that two readers could
understand differently: checksums are right, sizes lie inside the file, numbers are plain octal, padding is zeros, the archive
ends with zero blocks to a multiple of 10,240 bytes and nothing follows. A PAX header may give a long or non-ASCII name. Nothing
is extracted.

Names are returned as they are; whether a name, an order or a kind of member is right is left to the caller, who knows the index.
The writer's bytes are those of `tarfile` with mode 0600 and times, owners and owner names empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.evidence import ArchiveMember
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.participant_files import ArchiveEntry
from ckptctl.domain.safe_text import shown
from ckptctl.domain.source import ByteSource
from ckptctl.formats.tar_blocks import (
    BLOCK,
    RECORD,
    defect,
    member_headers,
    padded,
    read_exactly,
)
from ckptctl.formats.tar_walk import Dialect, Member, walk_members

MAX_SHARD_MEMBERS = 512
MAX_SHARD_PAYLOAD_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class BuiltArchive:
    """One shard as written: its file name, its bytes, the names in it, and how the participant manifest lists it."""

    name: str
    data: bytes
    members: tuple[str, ...]
    entry: ArchiveEntry


def read_archive(source: ByteSource, limits: Limits) -> Iterator[tuple[ArchiveMember, bytes | None]]:
    """Every member in file order, with its payload (None for one that is not a regular file).

    Raises:
        DefectError: at the first thing that is no plain tar; `location` is the byte offset.
    """
    _check_whole(source, limits)
    for member in walk_members(source, Dialect(limits.archive_members)):
        yield _take_member(source, member, limits)


def build_archives(prefix: str, members: Iterable[tuple[str, bytes]]) -> list[BuiltArchive]:
    """The shards that hold `members` in the given order: 512 members and 64 MiB of payload at most, a larger member alone."""
    built: list[BuiltArchive] = []
    shard: list[tuple[str, bytes]] = []
    payload_bytes = 0
    for name, payload in members:
        if shard and (len(shard) == MAX_SHARD_MEMBERS or payload_bytes + len(payload) > MAX_SHARD_PAYLOAD_BYTES):
            built.append(_build_archive(f"{prefix}-{len(built):06d}.tar", shard))
            shard, payload_bytes = [], 0
        shard.append((name, payload))
        payload_bytes += len(payload)
    if shard:
        built.append(_build_archive(f"{prefix}-{len(built):06d}.tar", shard))
    return built


# --- reading ---


def _check_whole(source: ByteSource, limits: Limits) -> None:
    size = source.size_bytes
    if size > limits.archive_bytes:
        raise DefectError(Defect(f"exceeds the limit of {limits.archive_bytes} bytes", "", "", f"{size} bytes"))
    if size == 0:
        raise DefectError(Defect("is empty", "", "a tar archive", "0 bytes"))
    if source.read_at(0, 2) == b"\x1f\x8b":
        raise defect(0, "is compressed with gzip, not an uncompressed tar", "an uncompressed tar", "gzip")


def _take_member(source: ByteSource, member: Member, limits: Limits) -> tuple[ArchiveMember, bytes | None]:
    if not member.is_regular:
        return ArchiveMember(member.name, is_regular=False, size_bytes=member.size_bytes), None
    if member.size_bytes > limits.archive_member_bytes:
        text = f"member {shown(member.name)} exceeds the limit of {limits.archive_member_bytes} bytes"
        raise defect(member.header.offset, text, "", f"{member.size_bytes} bytes")
    payload = read_exactly(source, member.content, member.size_bytes)
    return ArchiveMember(member.name, is_regular=True, size_bytes=len(payload), sha256=sha256_hex(payload)), payload


# --- writing ---


def _build_archive(file_name: str, members: list[tuple[str, bytes]]) -> BuiltArchive:
    pieces: list[bytes] = []
    for name, payload in members:
        pieces.extend((member_headers(name, len(payload)), payload, bytes(padded(len(payload)) - len(payload))))
    pieces.append(bytes(2 * BLOCK))
    size = sum(map(len, pieces))
    pieces.append(bytes(-size % RECORD))
    data = b"".join(pieces)
    entry = ArchiveEntry(name=file_name, sha256=sha256_hex(data), members=len(members), bytes=len(data))
    return BuiltArchive(file_name, data, tuple(name for name, _ in members), entry)
