"""One way to make text for people: rich, without markup, colour only where a terminal is.

Lines are broken between words where a terminal is narrow, and never inside one: an id or a path that is wider than the terminal
stays in one piece and can be copied, because a terminal itself joins what it had to wrap. In a pipe nothing is broken at all.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from ckptctl.domain.safe_text import inert
from ckptctl.render.lines import HANG, broken, indent_of, pieces

PIPE_WIDTH = 160
"""Width of tables where there is no terminal; running text is not wrapped there at all."""
GAP = 2
"""Columns between those of a table."""
FOLD = 16
"""Columns that one in which lines are broken gets at least, if it has so many to fill."""
_FILLING = re.compile(r"(?: |\x1b\[[0-9;]*m)+$", re.MULTILINE)
"""What ends a line and shows nothing, with the codes in it."""


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
    text = _FILLING.sub(lambda found: found.group().replace(" ", ""), buffer.getvalue())  # tables pad their last column
    return text if terminal else inert(text)


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
    room = console.width - indent
    for place, part in enumerate(pieces(line.plain, room, room - HANG)):
        piece = line[part.start : part.stop]
        before = indent_of(piece.plain, indent + (HANG if place else 0), console.width)
        console.print(Text.assemble(" " * before, piece))


def flow(text: str, *, to_terminal: bool | None = None, width: int | None = None) -> str:
    """Plain text whose lines are already made: as it is in a pipe, broken between words on a terminal."""

    def draw(console: Console) -> None:
        console.print(
            broken(text.removesuffix("\n"), console.width) if console.is_terminal else text.removesuffix("\n")
        )

    return render(draw, to_terminal=to_terminal, width=width)


def open_table(*titles: str, right: frozenset[str] = frozenset(), fold: frozenset[str] = frozenset()) -> Table:
    """A table without lines. Columns in `fold` break between words where the width ends; the others stay whole."""
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(
            title,
            justify="right" if title.strip() in right else "left",
            no_wrap=title.strip() not in fold,
            overflow="fold",
        )
    return table


def draw_table(console: Console, table: Table) -> None:
    """Print a table with nothing cut or broken inside a word; where a terminal is too narrow for that, row below row."""
    for column in table.columns:
        column.min_width = max(column.min_width or 0, _least_width(column))
    needed = sum(column.min_width or 0 for column in table.columns) + GAP * (len(table.columns) - 1)
    if console.is_terminal and needed > console.width and len(table.columns) > 1:
        _draw_rows(console, table)
        return
    before = console.width
    console.width = max(before, needed)
    console.print(table)
    console.width = before


def _draw_rows(console: Console, table: Table) -> None:
    """Each row as a line of its first cell, with the others named below it."""
    titles = [str(column.header).strip() for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        first, *others = (_text_of(cell) for cell in cells)
        indent = len(first.plain) - len(first.plain.lstrip(" "))
        say(console, first[indent:], indent)
        told = [
            Text.assemble((f"{title} " if title else "", "dim"), cell)
            for title, cell in zip(titles[1:], others, strict=True)
            if cell.plain.strip(" -")
        ]
        if told:
            say(console, Text(", ").join(told), indent + HANG)


def _text_of(cell: object) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(str(cell))


def _least_width(column: Column) -> int:
    """What a column needs so that nothing is broken inside a word, and a column that folds so that lines are worth reading."""
    lines = [line for cell in (column.header, *column.cells) for line in str(cell).split("\n")]
    longest = max((cell_len(line) for line in lines), default=0)
    if column.no_wrap:
        return longest
    words = [word for line in lines for word in line.split()]
    return max(min(longest, FOLD), *(cell_len(word) for word in words), 0)
