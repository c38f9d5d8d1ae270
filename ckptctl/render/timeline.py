"""A line of time in characters: bars, an axis with round numbers, and the same without anything but ASCII.

Pure strings: which characters a terminal takes and how wide it is, the caller says. What is meant is told by the characters,
never by colour.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10
from typing import ClassVar

from ckptctl.domain.amounts import short_time

LABEL = 9
"""Columns that a number on the axis needs, with the blank before it."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters of a bar. `asked` while servers are asked, `own` while ckptctl works by itself."""

    asked: str
    own: str
    failed: str
    unknown: str
    span: str
    ends: tuple[str, str]

    BETWEEN: ClassVar[str] = "   "

    @property
    def legend(self) -> str:
        """What they mean."""
        told = ((self.asked, "servers are asked"), (self.own, "ckptctl works by itself"), (self.failed, "failed"))
        return Marks.BETWEEN.join(f"{mark} {words}" for mark, words in (*told, (self.unknown, "not ended")))


ASCII = Marks("=", "#", "x", "?", "-", ("<", ">"))
BLOCKS = Marks("\u2591", "\u2588", "x", "?", "\u2500", ("\u251c", "\u2524"))


@dataclass(frozen=True, slots=True)
class Scale:
    """How seconds become columns."""

    whole_s: float
    columns: int

    def place(self, seconds: float) -> float:
        """The column of a moment, not yet rounded."""
        return seconds * self.columns / self.whole_s if self.whole_s else 0.0

    def bar(self, began_s: float, seconds: float, waiting_share: float, state: str, marks: Marks) -> str:
        """A bar where it lies, at least one column long."""
        first = min(self.columns - 1, int(self.place(began_s)))
        long = max(1, min(self.columns - first, round(self.place(began_s + seconds)) - first))
        if state != "done":
            return f"{' ' * first}{(marks.failed if state == 'failed' else marks.unknown) * long}".ljust(self.columns)
        waiting = round(long * min(1.0, waiting_share))
        return f"{' ' * first}{marks.asked * waiting}{marks.own * (long - waiting)}".ljust(self.columns)

    def span(self, began_s: float, seconds: float, marks: Marks) -> str:
        """A line from one moment to another, with its ends marked."""
        first = min(self.columns - 1, int(self.place(began_s)))
        long = max(2, min(self.columns - first, round(self.place(began_s + seconds)) - first))
        begin, end = marks.ends
        return f"{' ' * first}{begin}{marks.span * (long - 2)}{end}".ljust(self.columns)[: self.columns]

    def axis(self) -> str:
        """Round moments, each under a tick of its own where its text begins."""
        line = [" "] * self.columns
        step_s = self._step_s()
        moment_s, free = 0.0, 0
        while step_s and moment_s <= self.whole_s:
            text = "0" if not moment_s else short_time(moment_s).replace(".00", "").replace(".0 ", " ")
            place = int(self.place(moment_s))
            if place >= free and place + len(text) + 1 <= self.columns:
                line[place : place + len(text) + 1] = f"'{text}"
                free = place + len(text) + 2
            moment_s = round(moment_s + step_s, 9)
        return "".join(line)

    def _step_s(self) -> float:
        """One, two or five times a power of ten, so that the numbers have room."""
        if not self.whole_s:
            return 0.0
        least_s = self.whole_s * LABEL / self.columns
        power = 10.0 ** floor(log10(least_s))
        return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least_s)
