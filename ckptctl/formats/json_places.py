"""Where in a JSON text the first thing lies that the field's strict reading refuses.

Looks at tokens only: nesting, number of values, repeated keys, constants that are no JSON, numbers out of range, text that is no
Unicode. Whether the text is JSON at all is `canonical_json`'s business, which also decides when it is worth looking here.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field

from ckptctl.domain.finding import Defect
from ckptctl.domain.limits import Limits
from ckptctl.domain.safe_text import safe, shown

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{},:]|[^\s\[\]{},:"]++', re.DOTALL)
_INTEGER = re.compile(r"-?[0-9]+\Z")
_FLOAT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_CONSTANTS = frozenset({"NaN", "Infinity", "-Infinity"})


@dataclass(slots=True)
class _Frame:
    """One open object or list."""

    is_object: bool
    place: str = ""
    index: int = 0
    is_at_key: bool = True
    seen: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Walk:
    """The state of one pass over the tokens."""

    text: str
    limits: Limits
    stack: list[_Frame] = field(default_factory=list)
    values: int = 0

    def step(self, piece: str, position: int) -> Defect | None:
        """Take one token; a Defect when it is the first that must be refused."""
        top = self.stack[-1] if self.stack else None
        if piece in {"{", "["}:
            self.stack.append(_Frame(is_object=piece == "{"))
            if len(self.stack) > self.limits.json_depth:
                return self._defect(f"is nested deeper than {self.limits.json_depth} levels", position, "", "")
            return self._count(position)
        if piece in {"}", "]"}:
            if top is not None:
                self.stack.pop()
        elif piece == ",":
            if top is not None:
                top.index += 1
                top.is_at_key = True
        elif piece == ":":
            if top is not None:
                top.is_at_key = False
        elif piece[0] == '"':
            return self._string(piece, top, position)
        else:
            return self._literal(piece, position) or self._count(position)
        return None

    def _string(self, piece: str, top: _Frame | None, position: int) -> Defect | None:
        value = _unquoted(piece)
        if not _is_unicode(value):
            return self._defect(
                f"{shown(value)} is no Unicode text (half a surrogate pair)", position, "Unicode text", shown(value)
            )
        if top is None or not top.is_object or not top.is_at_key:
            return self._count(position)
        if value in top.seen:
            top.is_at_key = True
            text = f"the key `{safe(value)}` occurs twice in {self._inside()}"
            return self._defect(text, position, "each key once", f"`{safe(value)}` twice")
        top.seen.add(value)
        top.place = value
        return None

    def _literal(self, piece: str, position: int) -> Defect | None:
        if piece in _CONSTANTS:
            return self._defect(
                f"`{self._path()}` is {piece}, which is no JSON number", position, "a finite number", piece
            )
        if _INTEGER.match(piece):
            if len(piece.lstrip("-")) > self.limits.json_integer_digits:
                text = f"`{self._path()}` has more than {self.limits.json_integer_digits} digits"
                return self._defect(text, position, f"at most {self.limits.json_integer_digits} digits", piece[:40])
        elif _FLOAT.match(piece) and not math.isfinite(float(piece)):
            return self._defect(
                f"`{self._path()}` is beyond the largest number", position, "a finite number", piece[:40]
            )
        return None

    def _count(self, position: int) -> Defect | None:
        self.values += 1
        if self.values > self.limits.json_values:
            return self._defect(f"has more than {self.limits.json_values} values", position, "", "")
        return None

    def _path(self) -> str:
        parts = [frame.place if frame.is_object else str(frame.index) for frame in self.stack]
        return safe(".".join(parts))[:400]

    def _inside(self) -> str:
        outer = [frame.place if frame.is_object else str(frame.index) for frame in self.stack[:-1]]
        return f"`{safe('.'.join(outer))[:400]}`" if outer else "the top-level object"

    def _defect(self, message: str, position: int, expected: str, actual: str) -> Defect:
        return Defect(message, place_of(self.text, position), expected, actual)


def first_problem(text: str, limits: Limits) -> Defect | None:
    """The first piece that strict reading refuses, or None."""
    walk = _Walk(text, limits)
    for match in _TOKEN.finditer(text):
        problem = walk.step(match.group(), match.start())
        if problem is not None:
            return problem
    return None


def place_of(text: str, position: int) -> str:
    """A position as people and editors count it."""
    return f"line {text.count(chr(10), 0, position) + 1} column {position - text.rfind(chr(10), 0, position)}"


def _unquoted(piece: str) -> str:
    try:
        value = json.loads(piece)
    except ValueError:
        return piece
    return value if isinstance(value, str) else piece


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
