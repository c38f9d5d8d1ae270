"""Signals while `ckptctl sim` works: SIGTERM and SIGHUP cancel it as SIGINT does, so that it ends the processes that it began."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from ckptctl.errors import CkptctlError, ExitCode

T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run `work`. A signal of either kind ends it in order, and then the process with 143; the first one counts.

    Raises:
        SystemExit: it was stopped.
    """
    received: list[signal.Signals] = []
    try:
        return asyncio.run(_cancelled_by_signals(work, received))
    except (asyncio.CancelledError, CkptctlError):
        if not received:
            raise
        raise SystemExit(int(ExitCode.TERMINATED)) from None


async def _cancelled_by_signals(work: Coroutine[Any, Any, T], received: list[signal.Signals]) -> T:
    task = asyncio.ensure_future(work)

    def stop(number: signal.Signals) -> None:
        if not received:
            received.append(number)
            task.cancel()

    loop = asyncio.get_running_loop()
    # One that the caller wants ignored (nohup) stays ignored.
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.getsignal(number) for number in heard}
    for number in heard:
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
