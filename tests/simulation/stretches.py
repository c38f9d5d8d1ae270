"""Processes that can be stopped in the midst of a computation: between two system calls, as a real one is by its scheduler or by SIGSTOP.

The steps of such a process' tasks run in a thread of their own. The thread and the loop's never run at once, they hand the baton to each
other: the loop waits until the step has ended or has stopped, and a stopped step goes on when a timer of the loop says so. So the seed
still decides everything. While a step stands still, no other task of that process runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

STOPS = 0.4
"""How often a system call is where another process may go on."""
LONGEST_STOP_S = 0.003

_PyTask: Any = asyncio.tasks._PyTask  # type: ignore[attr-defined]  # the task in Python, whose steps can be led elsewhere


class Stepper:
    """Runs one process' steps, one at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self._loop, self._rng = loop, rng
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._work: Callable[[], None] | None = None
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_in_step = False
        self._timer: asyncio.TimerHandle | None = None
        """While it stands still: what lets it go on."""
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    # --- on the loop's side --------------------------------------------------------------------------------------------------

    def run(self, step: Callable[[], None]) -> None:
        """Run a step now, or when those before it have ended."""
        self._waiting.append(step)
        self._drain()

    def freeze(self, for_s: float) -> None:
        """Stand still from now on, wherever it is."""
        if threading.current_thread() is self._thread:
            self._stop(for_s)
        else:
            self._go_on_in(for_s)

    def wake(self) -> None:
        """Go on soon."""
        if self._timer is not None:
            self._go_on_in(0.0)

    def end(self) -> None:
        """Let what stands still run to its end (its process is dead), and end the thread."""
        while self._timer is not None:
            self._timer.cancel()
            self._go_on()
        self._work = None
        self._go.release()
        self._thread.join()

    def _go_on_in(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._go_on, context=contextvars.Context())

    def _go_on(self) -> None:
        self._timer = None
        if self._is_in_step:
            self._hand_over()
        self._drain()

    def _drain(self) -> None:
        while self._waiting and not self._is_in_step and self._timer is None:
            self._work, self._is_in_step = self._waiting.popleft(), True
            self._hand_over()

    def _hand_over(self) -> None:
        self._go.release()
        self._back.acquire()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    # --- on the thread's side ------------------------------------------------------------------------------------------------

    def pass_call(self) -> None:
        """A system call: now and then others may go on before it."""
        if threading.current_thread() is self._thread and self._rng.random() < STOPS:
            self._stop(self._rng.random() * LONGEST_STOP_S)

    def _stop(self, for_s: float) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        asyncio.tasks._leave_task(self._loop, task)
        self._go_on_in(for_s)
        self._back.release()
        self._go.acquire()
        asyncio.tasks._enter_task(self._loop, task)

    def _serve(self) -> None:
        asyncio._set_running_loop(self._loop)
        while True:
            self._go.acquire()
            if self._work is None:
                return
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001 - it is raised where the loop waits
                self._failure = error
            self._is_in_step = False
            self._back.release()


class SteppedTask(_PyTask):  # type: ignore[misc]  # a class that is Any
    """A task whose steps a stepper runs. Its context is entered there; the loop's handles get a copy, which nothing enters twice."""

    def __init__(self, coro: Any, stepper: Stepper, *, loop: asyncio.AbstractEventLoop, context: Any = None) -> None:
        self._stepper = stepper
        self._own_context = contextvars.copy_context() if context is None else context
        super().__init__(coro, loop=loop, context=self._own_context.copy())

    def _Task__step(self, exc: BaseException | None = None) -> None:  # noqa: N802 - the name that asyncio gives it
        self._stepper.run(lambda: self._own_context.run(_PyTask._Task__step, self, exc))
