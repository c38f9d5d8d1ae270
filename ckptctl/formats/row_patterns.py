"""Forms of texts in index rows (`domain.rows`): a million of them are looked at together, one says what is wrong with it.

A pattern that msgspec checks itself costs more than everything else about a row. It stands in the row's class all the same, as a
note that msgspec passes over (`domain.rows.Id`), and is applied here. Leaves to others: types, ranges and lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, get_type_hints

import msgspec

R = TypeVar("R", bound=msgspec.Struct)


class _Form(NamedTuple):
    name: str
    get: Callable[[Any], str]
    pattern: str
    one: re.Pattern[str]
    many: re.Pattern[str]


def are_well_formed(rows: Sequence[msgspec.Struct], row_type: type[R]) -> bool:
    """Whether all texts of all rows have their form."""
    for form in _forms(row_type):
        joined = "\n".join(map(form.get, rows))
        if joined.count("\n") != len(rows) - 1 or form.many.fullmatch(joined) is None:
            return not rows
    return True


def malformed_text(row: msgspec.Struct) -> tuple[str, str] | None:
    """The first field of a row whose text does not have its form, and that form."""
    for form in _forms(type(row)):
        if form.one.fullmatch(form.get(row)) is None:
            return form.name, form.pattern
    return None


@lru_cache(maxsize=16)
def _forms(row_type: type[msgspec.Struct]) -> tuple[_Form, ...]:
    found = []
    for name, hint in get_type_hints(row_type, include_extras=True).items():
        for note in getattr(hint, "__metadata__", ()):
            pattern = (note.extra_json_schema or {}).get("pattern") if isinstance(note, msgspec.Meta) else None
            if pattern is not None:
                body = pattern.removeprefix(r"\A").removesuffix(r"\Z")
                many = re.compile(rf"(?:{body}\n)*+{body}")
                found.append(_Form(name, attrgetter(name), pattern, re.compile(body), many))
    return tuple(found)
