"""Lines and tables on narrow terminals: broken between words, never inside one."""

import re

from rich.console import Console
from rich.text import Text

from ckptctl.render.console import draw_table, flow, open_table, render, say

ID = "rollout-step-3-snapshot-2-0f0e0d0c0b0a09080706050403020100"


def drawn(draw, width: int) -> list[str]:
    """The lines of a terminal of that width, without colour."""
    return [line.rstrip() for line in render(draw, to_terminal=True, width=width).splitlines()]


def test_lines_break_between_words(monkeypatch):
    """What follows is indented below its beginning."""
    monkeypatch.setenv("NO_COLOR", "1")

    assert ["  one two three four five six", "    seven eight nine ten", "    eleven"] == drawn(
        lambda console: say(console, "one two three four five six seven eight nine ten eleven"), 29
    )


def test_a_word_that_is_too_wide_is_never_broken(monkeypatch):
    """An id or a path stays in one piece, in a line and in a table, at 40 columns and at 80."""
    monkeypatch.setenv("NO_COLOR", "1")

    def draw(console: Console) -> None:
        say(console, f"the snapshot {ID} was saved under that id, and {ID}")
        table = open_table("name", "why", fold=frozenset({"why"}))
        table.add_row(Text(ID), f"because of {ID} and some other things that are longer than the line is")
        draw_table(console, table)

    for width in (40, 80):
        lines = drawn(draw, width)
        assert 4 == sum(line.count(ID) for line in lines)
    assert f"  the snapshot {ID}" == drawn(draw, 40)[0]


def test_wide_characters_count_twice(monkeypatch):
    """A line of them ends where the terminal ends."""
    monkeypatch.setenv("NO_COLOR", "1")

    assert ["  \u6f22\u5b57\u6f22\u5b57\u6f22\u5b57\u6f22\u5b57", "    \u6f22\u5b57"] == drawn(
        lambda console: say(console, "\u6f22\u5b57\u6f22\u5b57\u6f22\u5b57\u6f22\u5b57 \u6f22\u5b57"), 20
    )


def test_nothing_is_markup():
    """Brackets are brackets, in lines and in cells."""

    def draw(console: Console) -> None:
        say(console, "[bold]x[/bold] [red]")
        table = open_table("[i]name[/i]")
        table.add_row("[link=file:///etc/passwd]y[/link]")
        draw_table(console, table)

    assert ["  [bold]x[/bold] [red]", "[i]name[/i]", "[link=file:///etc/passwd]y[/link]"] == [
        line.rstrip() for line in render(draw, to_terminal=False).splitlines()
    ]


def test_a_pipe_gets_whole_lines():
    """However long they are."""
    text = "word " * 200

    assert [f"  {text}".rstrip()] == render(lambda console: say(console, text), to_terminal=False).splitlines()


def test_no_line_of_a_terminal_ends_in_blanks():
    """What a table pads its last column with would begin an empty line where the terminal is exactly as wide."""

    def draw(console: Console) -> None:
        table = open_table("name", "why", fold=frozenset({"why"}))
        table.add_row(Text("a", style="red"), Text("short", style="red"))
        table.add_row("b", "something that is longer")
        draw_table(console, table)

    drawn_in_colour = render(draw, to_terminal=True, width=60)

    assert "\x1b[" in drawn_in_colour
    assert [] == [line for line in drawn_in_colour.splitlines() if re.search(r" (\x1b\[[0-9;]*m)*$", line)]


def test_a_table_that_a_terminal_is_too_narrow_for_is_told_row_by_row(monkeypatch):
    """Each column by its name, but for what is empty; in a pipe it stays a table."""
    monkeypatch.setenv("NO_COLOR", "1")

    def draw(console: Console) -> None:
        table = open_table("  snapshot", "verdict", "size", "", right=frozenset({"size"}))
        table.add_row("  snapshot_000002", Text("looks whole"), "217 KiB", "<- newest")
        table.add_row("  snapshot_000001", Text("-"), "67 KiB", "")
        draw_table(console, table)

    assert [
        "  snapshot_000002",
        "    verdict looks whole, size 217 KiB,",
        "      <- newest",
        "  snapshot_000001",
        "    size 67 KiB",
    ] == drawn(draw, 40)
    assert drawn(draw, 60) == [line.rstrip() for line in render(draw, to_terminal=False, width=40).splitlines()]


def test_text_that_is_made_already_is_broken_on_a_terminal_alone():
    """Its lines keep their indents."""
    text = "a line of seven words is here\n  and one below it\n"

    assert text == flow(text, to_terminal=False)
    assert "a line of seven words\n  is here\n  and one below it\n" == flow(text, to_terminal=True, width=22)
