"""Where a line for people is broken: between words, and never inside what belongs together.

A command or name in backquotes stays whole, so that it can be copied, and so does a number with its unit. What is wider than the
line is left to the terminal, which joins it again when it is copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

NARROWEST = 20
"""Columns that a line gets at least, however narrow the terminal and deep the indent."""
HANG = 2
"""What follows the first piece of a line is indented by so much more."""

_COMMAND = "`ckptctl "
_TOGETHER = re.compile(r"`[^`\n]*`|(?<![\w.,])[0-9][0-9.,]* (?:[KMGTP]?i?B|ms|s|min|h|d|w)\b")


def pieces(text: str, first_width: int, width: int) -> Iterator[slice]:
    """The parts of a line: the first at most `first_width` columns wide, the others `width`.

    What belongs together and is wider than that is left whole where it is a word or a command of ours. A word that no line has
    room for stays behind the little that may stand before it: on a line of its own it would be torn as well.
    """
    start, room = 0, max(NARROWEST, first_width)
    held = _held(text, max(NARROWEST, width))
    while cell_len(text[start:]) > room:
        end = _last_blank(text, start, room, held)
        if end >= 0 and cell_len(text[start:end]) <= room // 3:
            after = next((place for place in range(end + 1, len(text)) if text[place] == " " and place not in held), -1)
            end = after if cell_len(text[end + 1 : after if after >= 0 else None]) > first_width else end
        if end < 0:
            break
        yield slice(start, end)
        start, room = end + len(text[end:]) - len(text[end:].lstrip(" ")), max(NARROWEST, width)
    yield slice(start, len(text))


def indent_of(piece: str, indent: int, columns: int) -> int:
    """Where a piece begins: not indented if that alone is what makes it too wide."""
    return 0 if columns - indent < cell_len(piece) <= columns else indent


def broken(text: str, columns: int) -> str:
    """Plain text of several lines for a terminal so wide; what follows of a line is indented below its beginning."""
    lines = []
    for line in text.split("\n"):
        words = line.lstrip(" ")
        indent = len(line) - len(words)
        for place, part in enumerate(pieces(words, columns - indent, columns - indent - HANG)):
            piece = words[part]
            before = indent_of(piece, indent + (HANG if place else 0), columns)
            lines.append(f"{' ' * before}{piece}".rstrip(" "))
    return "\n".join(lines)


def _held(text: str, width: int) -> frozenset[int]:
    """The places of blanks at which nothing is broken."""
    spans = (
        found.span()
        for found in _TOGETHER.finditer(text)
        if cell_len(found.group()) <= width or found.group().startswith(_COMMAND)
    )
    return frozenset(place for begin, end in spans for place in range(begin, end) if text[place] == " ")


def _last_blank(text: str, start: int, room: int, held: frozenset[int]) -> int:
    """Where to break what begins at `start`: the last blank that leaves no more than fits, else the first one; -1 for none."""
    used, found = 0, -1
    for place in range(start, len(text)):
        if text[place] == " " and place > start and place not in held:
            if used > room:
                return found if found >= 0 else place
            found = place
        elif used > room and found >= 0:
            return found
        used += cell_len(text[place])
    return found
