"""Where lines are broken: between words, and what belongs together stays together."""

import pytest

from ckptctl.render.lines import broken

COMMAND = "`ckptctl restore --config runs/mine/ckptctl.yaml`"


@pytest.mark.parametrize(
    ("whole", "columns", "lines"),
    [
        ("one two three four five six", 20, ["one two three four", "  five six"]),
        ("  it was 152 KiB of 259 KiB long", 22, ["  it was 152 KiB of", "    259 KiB long"]),
        ("hint: see `ckptctl gc --help` now", 26, ["hint: see", "  `ckptctl gc --help` now"]),
        (f"hint: run {COMMAND} now", 30, [f"hint: run {COMMAND}", "  now"]),
        (f"hint: mend it, then run {COMMAND} now", 30, ["hint: mend it, then run", f"  {COMMAND}", "  now"]),
        ("a `name of somebody with many blanks` b", 22, ["a `name of somebody", "  with many blanks` b"]),
        ("first line\n\n  second", 30, ["first line", "", "  second"]),
        ("  a       column   b", 20, ["  a       column   b"]),
        ("  counter       resources   http", 20, ["  counter", "    resources   http"]),
        ("ab 123456789_123456789_123 b c d e f g h i", 20, ["ab 123456789_123456789_123", "  b c d e f g h i"]),
        ("ab 123456789_123456789_123", 20, ["ab 123456789_123456789_123"]),
        ("abcdefgh 123456789_123456789_123 b", 20, ["abcdefgh", "  123456789_123456789_123", "  b"]),
        ("a 123456789_123456789_x b", 21, ["a", "123456789_123456789_x", "  b"]),
    ],
)
def test_lines_break_where_nothing_is_torn(whole, columns, lines):
    """Not in a number with its unit, not in a command; an indent goes where it alone makes a word too wide."""
    assert lines == broken(whole, columns).split("\n")


def test_a_narrow_terminal_gets_some_words_a_line_all_the_same():
    """However few columns it has, and however deep the indent is."""
    assert max(len(line.strip()) for line in broken(" " * 8 + "word " * 30, 10).split("\n")) > 10
