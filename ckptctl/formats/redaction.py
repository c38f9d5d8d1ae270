"""Replaces everything in a document that is not known to be harmless by its type and size.

The lists are `domain.harmless`'s. A text becomes `<text 7, 23 characters>`: the same text has the same number throughout one
bundle, so that references between files can still be followed, and nothing else of it remains, no digest either. Names of fields
that are not the schema's own are texts too. Long lists are cut, with their length told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckptctl.domain.harmless import (
    EXTENSION,
    FILE_NAMES,
    FLAGS,
    KEYS,
    NUMBERED_FILE,
    NUMBERS,
    PATH_FIELDS,
    PLACE,
    WORD_FIELDS,
    WORDS,
)

MOST_ITEMS = 1000
MOST_DEPTH = 32
_KEY_PATH = re.compile(r"[A-Za-z0-9_.\[\]]{1,300}\Z")
_INDEX_DIGITS = 7
_STEP = re.compile(r"[.\[\]]+")


@dataclass(slots=True)
class Redactor:
    """One bundle's redaction; it remembers which number each text has."""

    _numbers: dict[str, int] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """A text that may say anything."""
        return f"<text {self._number(text)}, {len(text)} characters>"

    def path(self, path: str) -> str:
        """A path: names of the layout as they are, all others as numbers, with an extension that is known."""
        return "/".join(self._part(part) for part in path.split("/"))

    def place(self, location: str) -> str:
        """Where a finding is: a line or byte, or a path of known keys."""
        if not location or PLACE.fullmatch(location):
            return location
        steps = _STEP.split(location) if _KEY_PATH.match(location) else [location]
        is_known = all(step in KEYS or (step.isdigit() and len(step) <= _INDEX_DIGITS) for step in steps if step)
        return location if is_known else self.text(location)

    def value(self, raw: Any, key: str = "", depth: int = 0) -> Any:
        """A JSON value under a known key (`""`: under none)."""
        if depth > MOST_DEPTH:
            return "<too deep>"
        if raw is None:
            return None
        if isinstance(raw, bool):
            return raw if key in FLAGS else "<true or false>"
        if isinstance(raw, int | float):
            return self._number_of(raw, key)
        if isinstance(raw, str):
            is_word = key in WORD_FIELDS and raw in WORDS
            return raw if is_word else self.path(raw) if key in PATH_FIELDS else self.text(raw)
        if isinstance(raw, Mapping):
            return self._object(raw, depth)
        if isinstance(raw, Sequence) and not isinstance(raw, bytes | bytearray | memoryview):
            return self._list(raw, key, depth)
        return f"<{type(raw).__name__}>"

    def _number_of(self, raw: float, key: str) -> Any:
        kind = "integer" if isinstance(raw, int) else "number"
        return raw if key in NUMBERS and -(2**53) < raw < 2**53 else f"<{kind}>"

    def _object(self, raw: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for place, (key, value) in enumerate(raw.items()):
            if place == MOST_ITEMS:
                found["<more>"] = f"{len(raw) - MOST_ITEMS} further fields"
                break
            known = key if isinstance(key, str) and key in KEYS else ""
            found[known or self.text(str(key))] = self.value(value, known, depth + 1)
        return found

    def _list(self, raw: Sequence[Any], key: str, depth: int) -> Any:
        if raw and all(isinstance(item, int | float) for item in raw):
            return f"<{len(raw)} numbers>"
        if raw and all(isinstance(item, Sequence) and not isinstance(item, str) for item in raw):
            return f"<{len(raw)} lists>"
        found = [self.value(item, key, depth + 1) for item in raw[:MOST_ITEMS]]
        return [*found, f"<{len(raw) - MOST_ITEMS} more>"] if len(raw) > MOST_ITEMS else found

    def _part(self, part: str) -> str:
        if part in FILE_NAMES or part in {"", "..", "."} or NUMBERED_FILE.fullmatch(part):
            return part
        extension = EXTENSION.search(part)
        return f"text-{self._number(part)}{extension.group() if extension else ''}"

    def _number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers) + 1)
