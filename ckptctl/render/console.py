"""One way to make text for people: rich, without markup, colour only where a terminal is.

Lines are broken between words where a terminal is narrow, and never inside one: an id or a path that is wider than the terminal
stays in one piece and can be copied, because a terminal itself joins what it had to wrap. In a pipe nothing is broken at all.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from ckptctl.domain.safe_text import inert

PIPE_WIDTH = 160
"""Width of tables where there is no terminal; running text is not wrapped there at all."""
NARROWEST = 20
"""Columns that a line gets at least, however narrow the terminal and deep the indent."""


def render(draw: Callable[[Console], None], *, to_terminal: bool | None = None, width: int | None = None) -> str:
    """Draw on a console and return the text, with colour codes only when stdout is a terminal and NO_COLOR is not set."""
    terminal = sys.stdout.isatty() if to_terminal is None else to_terminal
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        force_terminal=terminal,
        color_system="auto" if terminal and not os.environ.get("NO_COLOR") else None,
        no_color=not terminal or bool(os.environ.get("NO_COLOR")),
        width=width or (None if terminal else PIPE_WIDTH),
        soft_wrap=True,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    draw(console)
    text = buffer.getvalue()
    return text if terminal else inert(re.sub(r" +$", "", text, flags=re.MULTILINE))  # tables pad their last column


def has_blocks() -> bool:
    """Whether block characters may be drawn: stdout takes UTF-8, and so does the terminal as far as its locale tells.

    In the locale C Python writes UTF-8 all the same, and says so in LC_CTYPE; whether the terminal reads it, LANG must tell.
    """
    names = ("LC_ALL", "LANG") if os.environ.get("LC_CTYPE") == "C.UTF-8" else ("LC_ALL", "LC_CTYPE", "LANG")
    locale = next((found for name in names if (found := os.environ.get(name))), "")
    encoding = getattr(sys.stdout, "encoding", None) or ""
    return all("utf8" in text.lower().replace("-", "") for text in (encoding, locale))


def say(console: Console, text: str | Text, indent: int = 2, *, style: str = "") -> None:
    """Print a line; where a terminal is too narrow for it, what follows is indented below it."""
    line = Text(text, style=style) if isinstance(text, str) else text
    if not console.is_terminal:
        console.print(Text.assemble(" " * indent, line))
        return
    for place, part in enumerate(_pieces(line, console.width - indent, console.width - indent - 2)):
        console.print(Text.assemble(" " * (indent if place == 0 else indent + 2), part))


def _pieces(line: Text, first_width: int, width: int) -> Iterator[Text]:
    """The line broken at blanks; a word that is wider than the room for it is left whole."""
    text, start, room = line.plain, 0, max(NARROWEST, first_width)
    while cell_len(text[start:]) > room:
        end = _last_blank(text, start, room)
        if end < 0:
            break
        yield line[start:end]
        start, room = end + 1, max(NARROWEST, width)
    yield line[start:]


def _last_blank(text: str, start: int, room: int) -> int:
    """Where to break what begins at `start`: the last blank that leaves no more than fits, else the first one; -1 for none."""
    used, found = 0, -1
    for place in range(start, len(text)):
        if text[place] == " " and place > start:
            if used > room:
                return found if found >= 0 else place
            found = place
        elif used > room and found >= 0:
            return found
        used += cell_len(text[place])
    return found


def open_table(*titles: str, right: frozenset[str] = frozenset(), fold: frozenset[str] = frozenset()) -> Table:
    """A table without lines. Columns in `fold` break between words where the width ends; the others stay whole."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(
            title,
            justify="right" if title.strip() in right else "left",
            no_wrap=title.strip() not in fold,
            overflow="fold",
        )
    return table


def draw_table(console: Console, table: Table) -> None:
    """Print a table, wider than the terminal rather than with anything cut or broken inside a word."""
    for column in table.columns:
        column.min_width = max(column.min_width or 0, _least_width(column))
    padding = 2 * (len(table.columns) - 1)
    needed = sum(column.min_width or 0 for column in table.columns) + padding
    before = console.width
    console.width = max(before, needed)
    console.print(table)
    console.width = before


def _least_width(column: Column) -> int:
    lines = [line for cell in (column.header, *column.cells) for line in str(cell).split("\n")]
    pieces = lines if column.no_wrap else [word for line in lines for word in line.split()]
    return max((cell_len(piece) for piece in pieces), default=0)
