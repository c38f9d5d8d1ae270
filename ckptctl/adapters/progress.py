"""How far long work is, on stderr: one moving line on a terminal, a whole line now and then elsewhere. Never the answer.

The moving line is overwritten by whatever is said next and fits the terminal. Elsewhere nothing is said of what is quickly done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ckptctl.domain.amounts import duration, size
from ckptctl.domain.safe_text import OVERWRITE, safe
from ckptctl.ports import Clock


class TextSink(Protocol):
    """The part of a text stream that progress needs. Must not raise."""

    def write(self, text: str, /) -> int:
        """Write."""
        ...

    def flush(self) -> None:
        """Let it be seen."""
        ...


_TERMINAL_INTERVAL_S = 0.2
_LEAST_NAME = 10
"""Columns that the name of a phase gets at least; what the amounts say last goes first."""
_LOG_INTERVAL_S = 30.0
_RATE_AFTER_S = 1.0
"""A rate over less than that says nothing."""


class NoProgress:
    """Implements `ports.Progress` by saying nothing."""

    def phase(self, name: str, detail: str = "") -> None:
        """A new phase began."""

    def advance(self, done: int, total: int, unit: str) -> None:
        """Work went on."""


class StreamProgress:
    """Implements `ports.Progress` on a text stream.

    `columns`: how wide the terminal is that the stream goes to, or None where it is none. `is_verbose`: every phase is a
    line that stays.
    """

    def __init__(
        self, stream: TextSink, clock: Clock, *, columns: Callable[[], int] | None, is_verbose: bool = False
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._columns = columns
        self._is_verbose = is_verbose
        self._interval_s = _LOG_INTERVAL_S if columns is None else _TERMINAL_INTERVAL_S
        self._last_s = self._begun_s = clock.monotonic_s()
        self._name = self._detail = ""

    def phase(self, name: str, detail: str = "") -> None:
        """A new phase began."""
        self._name, self._detail = safe(name), safe(detail)
        self._begun_s = self._clock.monotonic_s()
        if self._is_verbose:
            self._last_s = self._begun_s
            self._write(f"{OVERWRITE if self._columns else ''}{self._told()}\n")
        elif self._columns is not None or self._is_due():
            self._say("")

    def advance(self, done: int, total: int, unit: str) -> None:
        """Say it, but not more often than a person or a log wants to read it."""
        if self._is_due():
            self._say(self._amounts(done, total, unit))

    def _is_due(self) -> bool:
        return self._clock.monotonic_s() - self._last_s >= self._interval_s

    def _amounts(self, done: int, total: int, unit: str) -> str:
        share = f" ({100 * done // total} %)" if total else ""
        if unit != "bytes":
            return f": {done:,} of {total:,} {unit}{share}"
        told = f": {size(done)} of {size(total)}{share}"
        seconds = self._clock.monotonic_s() - self._begun_s
        rate = done / seconds if seconds >= _RATE_AFTER_S else 0
        return f"{told}, {size(int(rate))}/s, {duration((total - done) / rate)} left" if rate >= 1 else told

    def _say(self, amounts: str) -> None:
        self._last_s = self._clock.monotonic_s()
        if self._columns is None:
            self._write(f"{self._told()}{amounts}\n")
        else:
            room = self._columns() - 1
            while len(amounts) > max(0, room - _LEAST_NAME) and amounts:  # a line that wraps could not be written over
                amounts = amounts.rpartition(", ")[0] or amounts.rpartition(" of ")[0]
            self._write(f"{OVERWRITE}{self._told(room - len(amounts))}{amounts}")

    def _told(self, room: int | None = None) -> str:
        """Phase and what it is about; where there is little room the beginning of the latter goes."""
        if not self._detail:
            return self._name if room is None else self._name[: max(room, 0)]
        text = f"{self._name}: {self._detail}"
        if room is None or _width(text) <= room:
            return text
        left = max(0, room - _width(self._name) - 5)
        tail = self._detail
        while tail and _width(tail) > left:
            tail = tail[max(1, (_width(tail) - left) // 2) :]
        return f"{self._name}: ...{tail}"[: max(room, 0)]

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _width(text: str) -> int:
    """Columns that a text needs at most."""
    return len(text) if text.isascii() else sum(1 if character.isascii() else 2 for character in text)
