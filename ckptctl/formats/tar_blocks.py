"""Blocks of a plain tar: one header read strictly or built reproducibly, extended (PAX) records, padding, the end.

A header is accepted when no two readers could understand it differently: its checksum is right, numbers are plain octal, texts
end where they end, unused bytes are zeros. Which types and names may stand in an archive, and in which order, is the walker's
business (`tar_walk`); what is in the members is that of `tar_archive` and `pack_index`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.safe_text import shown
from ckptctl.domain.source import ByteSource

BLOCK = 512
RECORD = 10_240
MAX_PAX_BYTES = 64 << 10
ZEROS = bytes(BLOCK)
REGULAR = frozenset({b"0", b"\0"})
DIRECTORY = b"5"
WITHOUT_CONTENT = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})
EXTENDED, GNU_LONG_NAME = b"x", b"L"
KIND_WORDS = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a named pipe"}
PAX_HARMLESS = frozenset({"path", "linkpath", "atime", "ctime", "mtime", "uid", "gid", "uname", "gname", "comment"})
MAX_OCTAL_SIZE = 0o77777777777
"""The largest size that the plain field holds; beyond it an extended record says the size."""
_POSIX_MAGIC, _GNU_MAGIC = b"ustar\x0000", b"ustar  \0"
_NAME_FIELD = 100
_CHUNK = 1 << 20
_OCTAL = re.compile(rb" *([0-7]*)[ \0]*\Z")
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,5}) ([^=\n]+)=")


@dataclass(frozen=True, slots=True)
class Header:
    """One header block. `offset` is where it lies."""

    offset: int
    name: str
    kind: bytes
    size_bytes: int
    mode: int


# --- reading ---


def parse_header(block: bytes, offset: int, *, takes_gnu: bool = False) -> Header:
    """One header. `takes_gnu`: GNU tar's own variant too, as far as it says the same things. Raises DefectError."""
    is_gnu = takes_gnu and block[257:265] == _GNU_MAGIC
    if not is_gnu and block[257:265] != _POSIX_MAGIC:
        raise defect(
            offset,
            "holds no header of an uncompressed tar (ustar or PAX)",
            "`ustar`",
            shown(block[257:262].decode("latin-1")),
        )
    if _octal(block[148:156], offset, "checksum") != sum(block) - sum(block[148:156]) + 8 * 0x20:
        raise defect(offset, "a header has a wrong checksum")
    for start, end, field in ((108, 116, "uid"), (116, 124, "gid"), (136, 148, "mtime")):
        _octal(block[start:end], offset, field)
    mode = _octal(block[100:108], offset, "mode")
    if block[500:512].strip(b"\0") or (is_gnu and block[345:500].strip(b"\0")):
        raise defect(offset, "a header has bytes where zeros must be")
    name, prefix = _text(block[0:100], offset, "name"), _text(block[345:500], offset, "prefix")
    kind = block[156:157]
    if kind not in REGULAR | WITHOUT_CONTENT | {EXTENDED} and not (is_gnu and kind == GNU_LONG_NAME):
        raise defect(offset, f"member {shown(name)} is of the unsupported type {shown(kind.decode('latin-1'))}")
    size_bytes = _octal(block[124:136], offset, "size")
    if size_bytes and kind in WITHOUT_CONTENT:
        raise defect(offset, f"member {shown(name)} is a link or device, but has a size")
    return Header(offset, f"{prefix}/{name}" if prefix else name, kind, size_bytes, mode)


def pax_records(source: ByteSource, header: Header, allowed: frozenset[str]) -> dict[str, str]:
    """The records of an extended header; none but `allowed` may stand in it. Raises DefectError."""
    if header.size_bytes > MAX_PAX_BYTES:
        raise defect(header.offset, f"an extended header exceeds the limit of {MAX_PAX_BYTES} bytes")
    data = read_exactly(source, header.offset + BLOCK, header.size_bytes)
    check_padding(source, header.offset + BLOCK, header.size_bytes)
    found: dict[str, str] = {}
    position = 0
    while position < len(data):
        match = _PAX_RECORD.match(data, position)
        end = position + int(match.group(1)) if match else 0
        if match is None or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            raise defect(header.offset, "an extended header is malformed")
        try:
            key, value = match.group(2).decode(), data[match.end() : end - 1].decode()
        except UnicodeDecodeError:
            raise defect(header.offset, "an extended header is not UTF-8") from None
        if key not in allowed or key in found:
            raise defect(header.offset, f"an extended header has the key {shown(key)}, which could change what is read")
        found[key] = value
        position = end
    name = found.get("path")
    if name is not None and (not name or "\0" in name):
        raise defect(header.offset, "an extended header gives an unusable name", "a name", shown(name))
    return found


def long_name(source: ByteSource, header: Header) -> str:
    """The name that GNU tar puts into a member of its own, before the member that has it. Raises DefectError."""
    if not 0 < header.size_bytes <= MAX_PAX_BYTES:
        raise defect(header.offset, f"a long name has {header.size_bytes} bytes", f"1 to {MAX_PAX_BYTES}")
    data = read_exactly(source, header.offset + BLOCK, header.size_bytes)
    check_padding(source, header.offset + BLOCK, header.size_bytes)
    text = _text(data, header.offset, "long name")
    if not text:
        raise defect(header.offset, "a long name is empty")
    return text


def check_end(source: ByteSource, offset: int) -> None:
    """From `offset` on there are only zeros: at least two blocks, up to a whole record. Raises DefectError."""
    size = source.size_bytes
    if size - offset < 2 * BLOCK:
        raise defect(offset, "ends without its two blocks of zeros")
    if size % RECORD:
        raise defect(size, f"is not padded to a multiple of {RECORD} bytes", f"a multiple of {RECORD}", str(size))
    while offset < size:
        piece = read_exactly(source, offset, min(_CHUNK, size - offset))
        if piece.strip(b"\0"):
            place = offset + len(piece) - len(piece.lstrip(b"\0"))
            raise defect(place, "bytes follow the end of the archive")
        offset += len(piece)


def check_padding(source: ByteSource, content: int, size_bytes: int) -> None:
    """Behind `size_bytes` bytes from `content` on there are zeros to the end of the block. Raises DefectError."""
    end = content + size_bytes
    if read_exactly(source, end, padded(size_bytes) - size_bytes).strip(b"\0"):
        raise defect(end, "the padding after a member is not zeros")


def read_exactly(source: ByteSource, offset: int, count: int) -> bytes:
    """`count` bytes. Raises DefectError where the source ends earlier."""
    data = source.read_at(offset, count) if count else b""
    if len(data) != count:
        raise defect(offset, "is cut off", f"{count} bytes", f"{len(data)} bytes")
    return data


def padded(size: int) -> int:
    """A size with its padding."""
    return -(-size // BLOCK) * BLOCK


def defect(offset: int, message: str, expected: str = "", actual: str = "") -> DefectError:
    """A DefectError at a byte of the tar."""
    return DefectError(Defect(message, f"byte {offset}", expected, actual))


def _octal(field: bytes, offset: int, name: str) -> int:
    match = _OCTAL.match(field)
    if match is None:
        raise defect(
            offset, f"the {name} of a header is no octal number", "octal digits", shown(field.decode("latin-1"))
        )
    return int(match.group(1) or b"0", 8)


def _text(field: bytes, offset: int, name: str) -> str:
    text, _, rest = field.partition(b"\0")
    if rest.strip(b"\0"):
        raise defect(offset, f"the {name} of a header goes on after its end")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise defect(offset, f"the {name} of a header is not UTF-8") from None


# --- writing ---


def member_headers(name: str, size: int, *, kind: bytes = b"0", mode: int = 0o600) -> bytes:
    """The blocks before a member's content: times, owners and owner names are empty. Python's `tarfile` writes the same.

    Raises:
        UnicodeEncodeError: the name is not UTF-8.
    """
    encoded = name.encode()
    records = b""
    if not name.isascii() or len(encoded) > _NAME_FIELD:
        records += _pax_record(b"path", encoded)
    if size > MAX_OCTAL_SIZE:
        records += _pax_record(b"size", b"%d" % size)
    # What remains in the plain header is what Python leaves there: ASCII with question marks, cut to the field.
    short = name.encode("ascii", "replace")[:_NAME_FIELD]
    plain = _header_block(short, kind, mode, size if size <= MAX_OCTAL_SIZE else 0)
    if not records:
        return plain
    extended = _header_block(b"././@PaxHeader", EXTENDED, 0, len(records))
    return extended + records + bytes(padded(len(records)) - len(records)) + plain


def _pax_record(key: bytes, value: bytes) -> bytes:
    r"""`<length> <key>=<value>\n`, where the length counts its own digits."""
    rest = len(key) + len(value) + 3
    total = rest + len(str(rest))
    while len(str(total)) + rest != total:
        total = rest + len(str(total))
    return b"%d %s=%s\n" % (total, key, value)


def _header_block(name: bytes, kind: bytes, mode: int, size: int) -> bytes:
    fields = b"".join(
        (
            name.ljust(100, b"\0"),
            b"%07o\0" % mode,
            b"%07o\0" % 0,
            b"%07o\0" % 0,
            b"%011o\0" % size,
            b"%011o\0" % 0,
            b" " * 8,
            kind,
            bytes(100),
            _POSIX_MAGIC,
            bytes(BLOCK - 265),
        )
    )
    return fields[:148] + b"%06o\0 " % sum(fields) + fields[156:]
