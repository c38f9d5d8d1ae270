"""SIGINT and SIGHUP from the first moment on: the process ends with the statuses of the table, and without a traceback.

While it starts nothing has been begun, so it ends at once; an exception in the middle of an import would be printed or lost. A
command that runs is ended by an exception, which lets go of locks and takes half-written files away; a live one turns the
signal into cancellation (`wiring`). SIGTERM needs nothing by itself: by default it ends the process, which a shell reports as
143; `gc`, which works under a lock, asks for more.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

HEARD = (signal.SIGINT, signal.SIGHUP)


def _end_now(number: int, _frame: FrameType | None) -> None:
    os._exit(_status(number))


def _end_in_order(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_status(number))


def _status(number: int) -> int:
    """A hang-up ends like SIGTERM: whoever watches the process knows that one."""
    return 128 + (signal.SIGTERM if number == signal.SIGHUP else number)


def end_at_once() -> None:
    """Let both signals end this process while it starts; one that the caller wants ignored (nohup) stays ignored."""
    for number in HEARD:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end_now)


@contextmanager
def ending_in_order(*, terminates: bool = False) -> Iterator[None]:
    """A command at work: the signals that would have ended the process at once raise; afterwards they do so again.

    `terminates`: SIGTERM raises too, because there is something to write at the end.
    """
    mine = [number for number in HEARD if signal.getsignal(number) is _end_now]
    if mine and terminates and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end_now)
        mine.append(signal.SIGTERM)
    for number in mine:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else _end_in_order)
    try:
        yield
    finally:
        for number in mine:
            signal.signal(number, _end_now)


@contextmanager
def terminating_in_order() -> Iterator[None]:
    """Work under a lock: SIGTERM raises too, since on another host nobody could tell that the owner of what is left is dead."""
    is_mine = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if is_mine:
        signal.signal(signal.SIGTERM, _end_in_order)
    try:
        yield
    finally:
        if is_mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
