"""Goes through a plain tar member by member, strictly and without reading what the members hold.

The one walk for every tar that is read: shards of agents and models, and packed snapshots. A `Dialect` says what else besides
plain headers may stand in it. Whether names, order and kinds are right is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ckptctl.domain.safe_text import shown
from ckptctl.domain.source import ByteSource
from ckptctl.formats.tar_blocks import (
    BLOCK,
    EXTENDED,
    GNU_LONG_NAME,
    PAX_HARMLESS,
    REGULAR,
    ZEROS,
    Header,
    check_end,
    check_padding,
    defect,
    long_name,
    padded,
    parse_header,
    pax_records,
    read_exactly,
)

_MAX_SIZE_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a tar may hold. `takes_gnu`: GNU tar's magic and long names; `takes_size`: sizes in extended headers."""

    max_members: int
    takes_gnu: bool = False
    takes_size: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its header, the name that counts, and where its content lies."""

    header: Header
    name: str
    content: int
    size_bytes: int

    @property
    def is_regular(self) -> bool:
        """Whether it is a file: a name that ends in a slash is a directory to readers of the oldest format, whatever the type."""
        return self.header.kind in REGULAR and not self.name.endswith("/")


@dataclass(slots=True)
class _Ahead:
    """What an extended header or a long name says of the member that comes next."""

    name: str | None = None
    size: int | None = None
    is_open: bool = False


def walk_members(source: ByteSource, dialect: Dialect) -> Iterator[Member]:
    """Every member in file order; the archive's end is checked when the last one was taken.

    Raises:
        DefectError: at the first thing that is no plain tar; `location` is the byte offset.
    """
    offset, members = 0, 0
    ahead = _Ahead()
    while True:
        block = read_exactly(source, offset, BLOCK)
        if block == ZEROS:
            break
        header = parse_header(block, offset, takes_gnu=dialect.takes_gnu)
        content = offset + BLOCK
        size_bytes = header.size_bytes if ahead.size is None else ahead.size
        is_about_next = header.kind in {EXTENDED, GNU_LONG_NAME}
        if is_about_next and ahead.is_open:
            raise defect(header.offset, "two extended headers follow one another")
        offset = content + padded(size_bytes)
        if offset > source.size_bytes:
            raise defect(header.offset, f"member {shown(header.name)} reaches beyond the end of the archive")
        if is_about_next:
            ahead = _look_ahead(source, header, dialect)
            continue
        name = ahead.name or header.name
        ahead = _Ahead()
        members += 1
        if members > dialect.max_members:
            raise defect(header.offset, f"has more than {dialect.max_members} members")
        if header.kind not in REGULAR and size_bytes:
            raise defect(header.offset, f"member {shown(name)} is a link or device, but has a size")
        yield Member(header, name, content, size_bytes)
        check_padding(source, content, size_bytes)
    if ahead.is_open:
        raise defect(offset, "an extended header has no member")
    check_end(source, offset)


def _look_ahead(source: ByteSource, header: Header, dialect: Dialect) -> _Ahead:
    if header.kind == GNU_LONG_NAME:
        return _Ahead(name=long_name(source, header), is_open=True)
    allowed = PAX_HARMLESS | {"size"} if dialect.takes_size else PAX_HARMLESS
    records = pax_records(source, header, allowed)
    size = records.get("size")
    if size is not None and not (size.isascii() and size.isdigit() and len(size) <= _MAX_SIZE_DIGITS):
        raise defect(header.offset, "an extended header gives an unusable size", "a number", shown(size))
    return _Ahead(name=records.get("path"), size=None if size is None else int(size), is_open=True)
