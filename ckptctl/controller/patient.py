"""Calls of a library that may block for ever: one after the other, in one thread, with a limit on the waiting.

A call that takes too long is not stopped, since no thread can be; it is no longer waited for. Whether it was done is then
unknown, which is what its error says. The calls behind it never begin unless it ends soon: a caller that waited once for
somebody who is silent does not wait as long again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from ckptctl.domain.amounts import set_time
from ckptctl.errors import TimedOutError

R = TypeVar("R")

OVERDUE_PATIENCE_S = 1.0
"""How long a call waits behind one that was given up."""


class PatientCaller:
    """Serves calls from any thread. Its own is a daemon: a call that never returns does not keep the process."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._is_overdue = False
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        threading.Thread(target=self._serve, name=f"{server}-calls", daemon=True).start()

    def call(self, operation: str, work: Callable[[], R], timeout_s: float) -> R:
        """The result of `work`, or what it raised. Raises TimedOutError after `timeout_s`, the wait for its turn included."""
        future: Future[R] = Future()
        patience_s = min(timeout_s, OVERDUE_PATIENCE_S) if self._is_overdue else timeout_s
        self._waiting.put((future, work))
        try:
            return future.result(patience_s)
        except TimeoutError:
            if future.done() and not future.cancelled():
                return future.result()  # it came to its end just now, or a TimeoutError is what it raised
            begun = not future.cancel()
            self._is_overdue = True
            detail = f"nothing was heard for {set_time(patience_s)}" + (
                "" if begun else ", because of the request before it"
            )
            raise TimedOutError(
                server=self._server, operation=operation, detail=detail, hint="look at the queue's Ray: `ray status`"
            ) from None

    def _serve(self) -> None:
        while True:
            future, work = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue
            self._is_overdue = False  # the one before has ended
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is the caller's, whatever it is
                future.set_exception(error)
