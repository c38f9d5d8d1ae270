"""A strict reader of ZIP directories over a ByteSource: stored entries only, nothing is inflated, nothing hides.

Decides: that the directory is whole and stands at the very end, that every entry is stored, unencrypted and has a name of its own
that stays inside, that its local header says what the directory says, and that no two entries share bytes. The standard library's
reader forgives each of these. Sizes are believed only after they were held against the real file.
Leaves to others: the contents and their CRC (`check_crc` on demand), and which entries an archive must have (`torch_zip`).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, NoReturn

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.source import ByteSource

_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_DIRECTORY_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_HAS_DESCRIPTOR = 0x8
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """One stored entry: its bytes are `size_bytes` of the file from `data_offset`."""

    name: str
    data_offset: int
    size_bytes: int
    crc32: int


class _Listed(NamedTuple):
    """An entry as the directory has it."""

    name: bytes
    flags: int
    crc32: int
    size: int
    header_offset: int


class _Place(NamedTuple):
    """Where the directory is, and how many entries it says it has."""

    offset: int
    size: int
    entries: int


def read_zip_directory(source: ByteSource, limits: Limits) -> tuple[ZipEntry, ...]:
    """List the entries in the order of the directory. Raises DefectError."""
    place = _find_directory(source, limits)
    directory = _read(source, place.offset, place.size)
    entries: list[ZipEntry] = []
    spans: list[tuple[int, int, str]] = []
    names: set[str] = set()
    offset = 0
    for _ in range(place.entries):
        listed, offset = _listed_at(directory, offset)
        name = _checked_name(listed.name, limits)
        if name in names:
            _refuse("the archive has two entries of one name", name)
        names.add(name)
        data_offset = _check_local_header(source, listed, name, place.offset)
        entries.append(ZipEntry(name, data_offset, listed.size, listed.crc32))
        spans.append((listed.header_offset, data_offset + listed.size, name))
    if offset != len(directory):
        _refuse("the archive's directory is longer than its entries")
    spans.sort()
    for (_, end, _), (begin, _, name) in pairwise(spans):
        if begin < end:
            _refuse("two entries of the archive share bytes", name)
    return tuple(entries)


def check_crc(source: ByteSource, entry: ZipEntry) -> None:
    """Read the whole entry in pieces and compare its CRC. Raises DefectError."""
    crc = 0
    for offset in range(entry.data_offset, entry.data_offset + entry.size_bytes, _CHUNK_BYTES):
        crc = zlib.crc32(_read(source, offset, min(_CHUNK_BYTES, entry.data_offset + entry.size_bytes - offset)), crc)
    if crc != entry.crc32:
        raise DefectError(
            Defect(
                "an entry of the archive is damaged: its CRC differs", entry.name, f"{entry.crc32:08x}", f"{crc:08x}"
            )
        )


def _refuse(message: str, location: str = "") -> NoReturn:
    raise DefectError(Defect(message, location))


def _read(source: ByteSource, offset: int, count: int) -> bytes:
    data = source.read_at(offset, count)
    if len(data) != count:
        _refuse("the archive is cut off", f"offset {offset}")
    return data


def _find_directory(source: ByteSource, limits: Limits) -> _Place:
    """Read the end record (and its 64-bit form where there is one), which must be the last bytes of the file."""
    size = source.size_bytes
    if size == 0:
        _refuse("the file is empty; a torch zip is wanted")
    end_offset = size - _END.size
    if end_offset < 0:
        _refuse("the file is no torch zip: it is too short")
    magic, disk, directory_disk, here, count, length, offset, comment = _END.unpack(
        _read(source, end_offset, _END.size)
    )
    if magic != b"PK\x05\x06":
        _refuse("the file is no torch zip, or is cut off: its last bytes are no archive end record")
    if disk or directory_disk or here != count or comment:
        _refuse("the archive's end record is not that of a single-file archive without comment", f"offset {end_offset}")
    place, before = _Place(offset, length, count), end_offset
    locator_offset = end_offset - _END64_LOCATOR.size
    if locator_offset >= 0 and _read(source, locator_offset, 4) == b"PK\x06\x07":
        place, before = _end64(source, locator_offset, place)
    if place.entries > limits.zip_entries:
        _refuse(f"the archive has {place.entries} entries, above the limit of {limits.zip_entries}")
    if place.offset + place.size != before:
        _refuse("the archive's directory is not where its end record says", f"offset {place.offset}")
    if place.size > place.entries * (_DIRECTORY_ENTRY.size + limits.name_bytes + 256):
        _refuse("the archive's directory is too large for its number of entries", f"offset {place.offset}")
    return place


def _end64(source: ByteSource, locator_offset: int, short: _Place) -> tuple[_Place, int]:
    """Give what the 64-bit end record says, and where it begins."""
    _, disk, record_offset, disks = _END64_LOCATOR.unpack(_read(source, locator_offset, _END64_LOCATOR.size))
    if disk or disks > 1 or record_offset + _END64.size != locator_offset:
        _refuse("the archive's 64-bit end record is not in front of its locator", f"offset {locator_offset}")
    record = _END64.unpack(_read(source, record_offset, _END64.size))
    magic, length, _, _, disk, directory_disk, here, count, size, offset = record
    if magic != b"PK\x06\x06" or length != _END64.size - 12 or disk or directory_disk or here != count:
        _refuse("the archive's 64-bit end record is malformed", f"offset {record_offset}")
    place = _Place(offset, size, count)
    for found, wanted, full in zip(short, place, (_FULL32, _FULL32, _FULL16), strict=True):
        if found not in (wanted, full):
            _refuse("the archive's two end records disagree", f"offset {record_offset}")
    return place, record_offset


def _listed_at(directory: bytes, offset: int) -> tuple[_Listed, int]:
    """Read one directory record; gives it and the offset of the next."""
    names_at = offset + _DIRECTORY_ENTRY.size
    if names_at > len(directory):
        _refuse("the archive's directory is cut off")
    record = _DIRECTORY_ENTRY.unpack_from(directory, offset)
    magic, _, _, flags, method, _, _, crc, stored, size, name_len, extra_len, comment_len, disk, _, _, header = record
    end = names_at + name_len + extra_len + comment_len
    if magic != b"PK\x01\x02" or end > len(directory) or disk:
        _refuse("the archive's directory is malformed", f"directory offset {offset}")
    name = directory[names_at : names_at + name_len]
    shown = name.decode(errors="replace")
    if flags & _ENCRYPTED:
        _refuse("an entry of the archive is encrypted", shown)
    if method != 0:
        _refuse("an entry of the archive is compressed; torch stores its entries", shown)
    extra = directory[names_at + name_len : names_at + name_len + extra_len]
    size, stored, header = _widened(extra, (size, stored, header), shown)
    if stored != size:
        _refuse("an entry of the archive is stored with another size than it has", shown)
    return _Listed(name, flags, crc, size, header), end


def _widened(extra: bytes, values: tuple[int, int, int], shown: str) -> tuple[int, int, int]:
    """Replace each value that is full by its 64-bit form from the extra field 1."""
    full = [index for index, value in enumerate(values) if value == _FULL32]
    if not full:
        return values
    offset = 0
    while offset + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, offset)
        offset += 4
        if kind == 1 and length >= 8 * len(full) and offset + length <= len(extra):
            wide = list(values)
            for index, value in zip(full, struct.unpack_from(f"<{len(full)}Q", extra, offset), strict=True):
                wide[index] = value
            return wide[0], wide[1], wide[2]
        offset += length
    _refuse("an entry of the archive lacks its 64-bit sizes", shown)


def _checked_name(raw: bytes, limits: Limits) -> str:
    shown = raw.decode(errors="replace")
    if len(raw) > limits.name_bytes:
        _refuse(f"an entry's name is longer than {limits.name_bytes} bytes", shown[:64])
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        _refuse("an entry's name is not UTF-8", shown)
    parts = name.split("/")
    if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        _refuse("an entry's name leads out of the archive", name)
    if "" in parts or "." in parts:
        _refuse("an entry's name has an empty part; folders have no entries of their own", name)
    return name


def _check_local_header(source: ByteSource, listed: _Listed, name: str, directory_offset: int) -> int:
    """Hold the header in front of the data against the directory; gives the offset of the data."""
    begin = listed.header_offset
    if begin + _LOCAL_HEADER.size > directory_offset:
        _refuse("an entry lies outside the archive", name)
    record = _LOCAL_HEADER.unpack(_read(source, begin, _LOCAL_HEADER.size))
    magic, _, flags, method, _, _, crc, stored, size, name_len, extra_len = record
    data_offset: int = begin + _LOCAL_HEADER.size + name_len + extra_len
    if magic != b"PK\x03\x04":
        _refuse("an entry has no header where the directory says", name)
    if data_offset + listed.size > directory_offset:
        _refuse("an entry is larger than the archive", name)
    if flags != listed.flags or method != 0 or name_len != len(listed.name):
        _refuse("an entry's header contradicts the directory", name)
    header_tail = _read(source, begin + _LOCAL_HEADER.size, name_len + extra_len)
    if header_tail[:name_len] != listed.name:
        _refuse("an entry's header contradicts the directory", name)
    size, stored, _ = _widened(header_tail[name_len:], (size, stored, 0), name)
    said, wanted = (crc, stored, size), (listed.crc32, listed.size, listed.size)
    if said != wanted and not (flags & _HAS_DESCRIPTOR and said == (0, 0, 0)):
        _refuse("an entry's header contradicts the directory", name)
    return data_offset
