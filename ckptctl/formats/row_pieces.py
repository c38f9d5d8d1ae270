"""An index that is too large to be held: its rows are decoded piece by piece, whole lines at a time (head of snapshot-layout).

Decides where a piece ends and that no line is endless; what a line must be is `canonical_json`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.source import ByteSource
from ckptctl.formats.canonical_json import decode_rows

R = TypeVar("R", bound=msgspec.Struct)
PIECE_BYTES = 768 << 10
_LINE_NUMBER = re.compile(r"line ([0-9]+)")


def read_rows(source: ByteSource, row_type: type[R], limits: Limits) -> tuple[R, ...]:
    """The rows of a JSON Lines index, as `decode_rows` gives them; in memory are the rows and one piece of the file.

    Raises:
        DefectError: with up to `findings_shown` bad lines; `location` is `line N`.
    """
    if source.size_bytes > limits.index_bytes:
        what = f"exceeds the limit of {limits.index_bytes} bytes"
        raise DefectError(Defect(what, "", f"at most {limits.index_bytes} bytes", f"{source.size_bytes} bytes"))
    rows: list[R] = []
    defects: list[Defect] = []
    offset = counted = lines = 0
    for piece in _pieces(source, limits.json_line_bytes):
        try:
            found = decode_rows(piece, row_type, limits)
        except DefectError as error:
            lines, counted = lines + _lines_between(source, counted, offset), offset
            defects += (_further_down(defect, lines) for defect in error.defects)
        else:
            if not defects:
                rows += found
        if len(defects) >= limits.findings_shown:
            break
        offset += len(piece)
    if defects:
        raise DefectError(*defects[: limits.findings_shown])
    return tuple(rows)


def _pieces(source: ByteSource, most_line_bytes: int) -> Iterator[bytes]:
    """Whole lines, a few megabytes at a time. Raises DefectError for a line that does not end, and when the file got shorter."""
    offset, rest = 0, b""
    while offset < source.size_bytes:
        data = source.read_at(offset, min(PIECE_BYTES, source.size_bytes - offset))
        if not data:
            raise DefectError(Defect("the file became shorter while it was read", f"offset {offset}"))
        offset += len(data)
        end = data.rfind(b"\n") + 1
        if not end:
            rest += data
            if len(rest) > most_line_bytes:
                place = f"line {_lines_between(source, 0, offset - len(rest)) + 1}"
                what = f"{place}: exceeds the limit of {most_line_bytes} bytes"
                raise DefectError(Defect(what, place, f"at most {most_line_bytes} bytes", f"{len(rest)} bytes or more"))
            continue
        piece = rest + data[:end]
        rest = data[end:]
        yield piece
    if rest:
        yield rest


def _lines_between(source: ByteSource, begin: int, end: int) -> int:
    """How many lines end there. Asked only where something is wrong: counting all of them is a tenth of the work of reading."""
    places = range(begin, end, PIECE_BYTES)
    return sum(source.read_at(place, min(PIECE_BYTES, end - place)).count(b"\n") for place in places)


def _further_down(defect: Defect, lines: int) -> Defect:
    """A defect of a piece as a defect of the file: `lines` stand in front of the piece."""
    if not lines:
        return defect

    def moved(text: str) -> str:
        return (
            _LINE_NUMBER.sub(lambda found: f"line {int(found[1]) + lines}", text, count=1)
            if text.startswith("line ")
            else text
        )

    return Defect(moved(defect.message), moved(defect.location), defect.expected, defect.actual)
