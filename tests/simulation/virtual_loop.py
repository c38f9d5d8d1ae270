"""An event loop whose clock jumps to the next timer. Nothing waits, nothing depends on the machine, no thread is started.

What is handed to a thread runs at once, and its caller gets the result after a delay that the schedule chooses. A loop that has
nothing left to do, while somebody still waits, is a deadlock and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class DeadlockError(Exception):
    """Everybody waits for something that nobody will do."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order of virtual time; ties in the order in which they were scheduled."""

    def __init__(self, thread_delay_s: Callable[[], float] = lambda: 0.0, *, most_s: float = 1e7) -> None:
        super().__init__()
        self._now_s = 1.0
        self._most_s = most_s
        self._thread_delay_s = thread_delay_s
        self._selector = self  # the base class asks it how long nothing happens

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def select(self, timeout: float | None) -> list[Any]:
        """Nothing comes from outside, so time passes at once."""
        if timeout is None:
            raise DeadlockError("nothing is scheduled and nobody is done")
        if timeout > 0:
            self._now_s += timeout
            if self._now_s > self._most_s:
                raise DeadlockError(f"virtual time passed {self._most_s} s: something waits for ever")
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        """There is no other thread to wake."""

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Do the work now; its caller learns of it later."""
        done = self.create_future()
        try:
            result, error = func(*args), None
        except BaseException as problem:  # noqa: BLE001 - it belongs to whoever awaits
            result, error = None, problem

        def tell() -> None:
            if done.cancelled():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        self.call_later(self._thread_delay_s(), tell)
        return done
