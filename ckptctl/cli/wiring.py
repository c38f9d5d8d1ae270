"""Composition of the live commands: configuration, token, HTTP, lock and journal become one World.

Signals become cancellation.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from ckptctl.adapters.channel import Channel
from ckptctl.adapters.clock import SystemClock
from ckptctl.adapters.control_http import HttpParticipants
from ckptctl.adapters.controller_http import HttpController
from ckptctl.adapters.credentials import load_token
from ckptctl.cli.offline import load, notice_of, world_of
from ckptctl.cli.options import Settings
from ckptctl.domain.config import RunConfig
from ckptctl.errors import InterruptedStoppedError, StoppedError
from ckptctl.workflows.load_config import require_own
from ckptctl.workflows.world import World

T = TypeVar("T")
Work = Callable[[World, RunConfig], Awaitable[T]]


def run_live(settings: Settings, work: Work[T]) -> T:
    """Run one live command to its end; SIGTERM, SIGINT and SIGHUP cancel it, and it then aborts and releases what it began."""
    return asyncio.run(_run(settings, load(settings), work))


async def _run(settings: Settings, config: RunConfig, work: Work[T]) -> T:
    async with open_world(settings, config) as world:
        return await _until_stopped(work(world, config))


@asynccontextmanager
async def open_world(settings: Settings, config: RunConfig) -> AsyncIterator[World]:
    """The ports of a live command, while its connections are open. Raises ConfigError for a token that cannot be used."""
    own = require_own(config)
    token = load_token(own, config.path, os.environ)
    clock = SystemClock()
    async with Channel(token=token, clock=clock, notice=notice_of(settings)) as channel:
        participants = HttpParticipants(channel, own.urls(), control_timeout_s=own.control_timeout_s)
        controller = HttpController(channel, own.controller.url, control_timeout_s=own.control_timeout_s)
        world = world_of(settings, config.checkpoint_dir, clock, participants, controller)
        yield replace(world, traffic=channel.traffic, under_way=channel.under_way, clocks_ahead=channel.clocks_ahead)


async def _until_stopped(work: Awaitable[T]) -> T:
    """Run `work`; the first signal cancels it, later ones are ignored: releasing is bounded and must not be cut short."""
    task = asyncio.ensure_future(work)
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if not received:
            received.append(number)
            task.cancel()

    loop = asyncio.get_running_loop()
    # A hang-up (a dropped connection) ends a command like SIGTERM, unless the caller asked for it to be ignored (nohup).
    caught = [number for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if _is_heard(number)]
    before = {number: signal.getsignal(number) for number in caught}
    for number in caught:
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except StoppedError as error:
        kind = InterruptedStoppedError if received == [signal.SIGINT] else StoppedError
        raise kind(error.message, hint=error.hint) from error
    except asyncio.CancelledError:
        kind = InterruptedStoppedError if received == [signal.SIGINT] else StoppedError
        raise kind("stopped before anything was changed", hint=None) from None
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


def _is_heard(number: signal.Signals) -> bool:
    return number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
