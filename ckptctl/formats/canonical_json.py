"""Strict reading of JSON documents and JSON Lines indexes (head of snapshot-layout). Writing is `domain.canonical`.

Decides whether bytes are JSON as the field allows it: UTF-8 without errors, no repeated key, no NaN or infinity, within the
limits of depth, size and integers; and whether a document or row has the shape of its class, unknown fields included. Every
refusal is a Defect that names the place, what was expected and what was found, in text that is safe to print.

What the values mean together is left to the rules.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NoReturn, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.safe_text import safe, shown
from ckptctl.formats.document_defects import MANY_ERRORS, document_defects
from ckptctl.formats.json_places import first_problem, place_of
from ckptctl.formats.row_patterns import are_well_formed, malformed_text

M = TypeVar("M", bound=BaseModel)
R = TypeVar("R", bound=msgspec.Struct)

_PIECE_BYTES = 1 << 20
"""Lines are decoded so many bytes at a time: nothing but their rows is held of all of them."""
_LINE_CONTENT = re.compile(rb"\S[^\n]*+")
_HALF_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ROW_FIELD = re.compile(r"Object (?P<what>missing required|contains unknown) field `(?P<key>.*?)`", re.DOTALL)
_ROW_RULE = re.compile(r"Expected `(?P<type>[^`]*)`(?:, got `(?P<got>[^`]*)`)?(?P<more>.*)", re.DOTALL)
_ROW_TYPES = {"int": "an integer", "str": "text", "object": "an object", "array": "a list", "null": "null"}
_ROW_ERROR_PLACE = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`\Z")


class _RefusedError(ValueError):
    """Raised inside the parser, which cannot say where it is; `first_problem` finds the place."""


def load_json(data: bytes, limits: Limits, *, max_bytes: int | None = None) -> Any:
    """Decode one JSON text strictly.

    Raises:
        DefectError: with the first problem and its place.
    """
    most = limits.json_document_bytes if max_bytes is None else max_bytes
    if len(data) > most:
        raise DefectError(_too_long(len(data), most))
    text = _decoded(data)
    opened = text.count("[") + text.count("{")
    if text.count(",") + opened >= limits.json_values or _HALF_SURROGATE.search(text):
        _refuse_any_problem(text, limits)
    try:
        value = _decoder(limits.json_integer_digits).decode(text)
    except json.JSONDecodeError as error:
        problem = Defect(
            f"is not JSON: {_lower_first(error.msg)}", place_of(text, error.pos), "JSON", _around(text, error.pos)
        )
        raise DefectError(problem) from None
    except (_RefusedError, RecursionError) as error:
        raise DefectError(first_problem(text, limits) or Defect(str(error))) from None
    if opened > limits.json_depth and _is_deeper(value, limits.json_depth):
        _refuse_any_problem(text, limits)
    return value


def load_object(data: bytes, limits: Limits, *, max_bytes: int | None = None) -> dict[str, Any]:
    """As load_json, and the top level must be an object."""
    value = load_json(data, limits, max_bytes=max_bytes)
    if not isinstance(value, dict):
        raise DefectError(Defect("top level must be an object", "line 1 column 1", "an object", shown(value)))
    return value


def decode_document(data: bytes, model: type[M], limits: Limits, *, max_bytes: int | None = None) -> M:
    """Decode one JSON document of a class.

    Raises:
        DefectError: with every field that is missing, unknown or wrong; `location` is the dotted key path.
    """
    return decode_value(load_object(data, limits, max_bytes=max_bytes), model)


def decode_value(value: Any, model: type[M], prefix: str = "") -> M:
    """Decode an already parsed JSON value of a class; `prefix` is the key path at which it lies.

    Raises:
        DefectError: as decode_document.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        if not _has_tuples(error):
            raise DefectError(*document_defects(error, value, prefix)) from None
    # A class with tuples is validated as JSON, where lists become tuples; not always, since pydantic then keeps a copy of the
    # enclosing value for every problem that it finds.
    try:
        return model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise DefectError(*document_defects(error, value, prefix)) from None


def _has_tuples(error: ValidationError) -> bool:
    if error.error_count() > MANY_ERRORS:
        return False
    return any(detail["type"] == "tuple_type" for detail in error.errors(include_url=False, include_input=False))


def decode_rows(data: bytes, row_type: type[R], limits: Limits) -> tuple[R, ...]:
    """Decode a JSON Lines index; blank lines are skipped.

    Lines that re-encode to themselves hide nothing and are decoded many at a time; any other goes through the strict parser.

    Raises:
        DefectError: with up to `findings_shown` bad lines; `location` is `line N`.
    """
    if len(data) > limits.index_bytes:
        raise DefectError(_too_long(len(data), limits.index_bytes))
    decoder = msgspec.json.Decoder(row_type)
    found: list[R] = []
    defects: list[Defect] = []
    start = line = 0
    while start < len(data) and len(defects) < limits.findings_shown:
        end = _end_of_lines(data, start)
        piece = data[start:end]
        rows = _decode_whole(piece, decoder, row_type, limits)
        if rows is None:
            _decode_one_by_one(piece, line, (decoder, row_type), limits, (found, defects))
            line += piece.count(b"\n")
        else:
            found += rows
            line += len(rows)
        start = end
    if defects:
        raise DefectError(*defects[: limits.findings_shown])
    return tuple(found)


def _end_of_lines(data: bytes, start: int) -> int:
    """Where a piece of whole lines ends; one that is longer is a piece of its own."""
    end = data.rfind(b"\n", start, start + _PIECE_BYTES) + 1
    if not end:
        end = data.find(b"\n", start) + 1
    return end or len(data)


def _decode_one_by_one(
    data: bytes,
    lines_before: int,
    form: tuple[msgspec.json.Decoder[R], type[R]],
    limits: Limits,
    into: tuple[list[R], list[Defect]],
) -> None:
    decoder, row_type = form
    found, defects = into
    for number, line in lines_of(data):
        row = _row_as_written(line, decoder, limits)
        if row is None:
            try:
                row = _row_strictly(line, row_type, limits)
            except DefectError as error:
                defects.extend(at_line(defect, lines_before + number) for defect in error.defects)
                if len(defects) >= limits.findings_shown:
                    break
                continue
        found.append(row)


def convert_row(value: Mapping[str, Any], row_type: type[R]) -> R:
    """An already parsed line as a row of an index.

    Raises:
        DefectError: with the first key that is missing, unknown or wrong.
    """
    try:
        row = msgspec.convert(value, row_type, strict=True)
    except msgspec.ValidationError as error:
        raise DefectError(_row_defect(str(error), value)) from None
    malformed = malformed_text(row)
    if malformed is not None:
        name, pattern = malformed
        raise DefectError(_row_defect(f"Expected `str` matching regex {pattern!r} - at `$.{name}`", value))
    return row


def lines_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1. A file of nothing but line ends takes no longer than any other."""
    number, behind = 1, 0
    for found in _LINE_CONTENT.finditer(data):
        begin, end = found.span()
        if begin == behind + 1 and behind:
            number += 1
        else:
            begin = data.rfind(b"\n", behind, begin) + 1 or behind
            number += data.count(b"\n", behind, begin)
        behind = end
        yield number, data[begin:end]


def at_line(defect: Defect, number: int) -> Defect:
    """A defect of one line as a defect of the file."""
    column = defect.location.removeprefix("line 1 ") if defect.location.startswith("line 1 column") else ""
    key = "" if column or defect.location.startswith("line ") else defect.location
    place = " ".join(part for part in (f"line {number}", column, f"key {key}" if key else "") if part)
    return Defect(f"line {number}: {defect.message}", place, defect.expected, defect.actual)


def _decode_whole(data: bytes, decoder: msgspec.json.Decoder[R], row_type: type[R], limits: Limits) -> list[R] | None:
    """The rows of these lines if each is exactly what its writer writes; None when one by one must be looked at."""
    if len(data) > limits.json_line_bytes and _longest_line(data) > limits.json_line_bytes:
        return None
    try:
        rows = decoder.decode_lines(data)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return rows if msgspec.json.Encoder().encode_lines(rows) == data and are_well_formed(rows, row_type) else None


def _row_as_written(line: bytes, decoder: msgspec.json.Decoder[R], limits: Limits) -> R | None:
    """The row when `line` is exactly what its writer writes; None when the strict parser must look."""
    if len(line) > limits.json_line_bytes:
        return None
    try:
        row = decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return row if msgspec.json.encode(row) == line and malformed_text(row) is None else None


def _row_strictly(line: bytes, row_type: type[R], limits: Limits) -> R:
    return convert_row(load_object(line, limits, max_bytes=limits.json_line_bytes), row_type)


def _row_defect(message: str, value: Mapping[str, Any]) -> Defect:
    """Say in our words what msgspec refused: the key, the rule, the value found."""
    field = _ROW_FIELD.match(message)
    if field is not None:
        key = safe(field.group("key"))
        if field.group("what") == "missing required":
            return Defect(f"`{key}` is missing", key, "present", "absent")
        return Defect(f"`{key}` is not a field of this format", key, "no such field", "")
    place = _ROW_ERROR_PLACE.search(message)
    key = place.group(1) if place else ""
    rule = message[: place.start()] if place else message
    found = _ROW_RULE.match(rule)
    expected = _lower_first(rule)
    if found is not None:
        kinds = (_ROW_TYPES.get(kind, kind) for kind in found.group("type").split(" | "))
        expected = " or ".join(kinds) + found.group("more")
    actual = shown(value[key]) if key in value else (found.group("got") or "" if found else "")
    ending = f", found {actual}" if actual else ""
    return Defect(f"`{safe(key)}` must be {safe(expected)}{ending}", safe(key), safe(expected), actual)


def _longest_line(data: bytes) -> int:
    longest, start = 0, 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        longest = max(longest, end - start)
        start = end + 1
    return longest


def _decoded(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise DefectError(
            Defect("is not UTF-8", f"line {line} column {column}", "UTF-8", f"byte 0x{data[error.start]:02x}")
        ) from None
    if text.startswith("\ufeff"):
        raise DefectError(Defect("begins with a byte order mark", "line 1 column 1", "JSON", "U+FEFF"))
    return text


def _refuse_any_problem(text: str, limits: Limits) -> None:
    """Look at every token: slow, so only when something cheap has given a reason."""
    problem = first_problem(text, limits)
    if problem is not None:
        raise DefectError(problem)


def _is_deeper(value: Any, depth: int) -> bool:
    """Whether containers are nested more than `depth` deep."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(depth):
        children = (child for item in level for child in (item.values() if isinstance(item, dict) else item))
        level = [child for child in children if isinstance(child, dict | list)]
        if not level:
            return False
    return bool(level)


@lru_cache(maxsize=8)
def _decoder(integer_digits: int) -> json.JSONDecoder:
    def take_integer(literal: str) -> int:
        if len(literal.lstrip("-")) > integer_digits:
            raise _RefusedError("an integer has too many digits")
        return int(literal)

    return json.JSONDecoder(
        object_pairs_hook=_take_object, parse_int=take_integer, parse_float=_take_float, parse_constant=_refuse_constant
    )


def _take_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RefusedError("a key occurs twice")
    return found


def _take_float(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise _RefusedError("a number is not finite")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is no JSON number")


def _too_long(size_bytes: int, most: int) -> Defect:
    return Defect(f"exceeds the limit of {most} bytes", "", f"at most {most} bytes", f"{size_bytes} bytes")


def _around(text: str, position: int) -> str:
    piece = text[position : position + 20]
    return shown(piece) if piece else "the end"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
