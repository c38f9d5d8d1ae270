"""Waiting and asking again, cheaply: growing pauses with jitter, and calls that run side by side.

Decides how long a pause is and which failures a repetition may heal. A call that carries a checkpoint id may always
be repeated with that id: the fence replays what was done (participant-protocol section 4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from ckptctl.errors import DeadlineError, MalformedReplyError, TimedOutError, UnreachableError
from ckptctl.workflows.world import World

R = TypeVar("R")

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 2.0
LOST_REPLY_TRIES = 3
"""How often a call is made whose reply was lost or rubbish."""


class Pauses:
    """Pauses that double from 20 ms to 2 s; each is shortened by up to a half so that many clients do not fall into step."""

    def __init__(self, world: World, *, first_s: float = FIRST_PAUSE_S) -> None:
        self._world = world
        self._first_s = first_s
        self._next_s = first_s

    def reset(self) -> None:
        """Begin anew: something moved."""
        self._next_s = self._first_s

    async def wait(self, deadline_ts: float) -> bool:
        """Pause once. Returns False, without a pause, when the deadline has passed."""
        left_s = deadline_ts - self._world.clock.now_s()
        if left_s <= 0:
            return False
        pause_s = self._next_s * (1 - self._world.share() / 2)
        self._next_s = min(LONGEST_PAUSE_S, self._next_s * 2)
        await self._world.clock.sleep(min(pause_s, left_s))
        return True


async def ask(world: World, deadline_ts: float, call: Callable[[], Awaitable[R]]) -> R:
    """Make a repeatable call; once more, and once more, when no usable reply came and time is left."""
    pauses = Pauses(world, first_s=0.1)
    for attempt in range(1, LOST_REPLY_TRIES + 1):
        try:
            return await call()
        except DeadlineError:
            raise
        except (UnreachableError, MalformedReplyError) as error:
            if attempt == LOST_REPLY_TRIES:
                raise
            if not await pauses.wait(deadline_ts):
                raise DeadlineError(
                    server=error.server,
                    operation=error.operation,
                    last=error.detail,
                    url=error.url if isinstance(error, UnreachableError) else None,
                    others=error.others if isinstance(error, TimedOutError) else (),
                    cause=error,
                ) from error
    raise AssertionError("the last attempt returns or raises")


async def ask_each(
    world: World, deadline_ts: float, servers: Iterable[str], method: Callable[..., Awaitable[R]], *arguments: Any
) -> dict[str, R]:
    """Make the same repeatable call to several servers side by side: `method(server, *arguments)`. Results by server."""
    return await side_by_side(
        {server: partial(ask, world, deadline_ts, partial(method, server, *arguments)) for server in servers}
    )


async def side_by_side(calls: Mapping[str, Callable[[], Awaitable[R]]]) -> dict[str, R]:
    """Make calls concurrently and give their results by name. The first failure stops the others and is raised."""
    tasks = {name: asyncio.ensure_future(call()) for name, call in calls.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks.values():
            if task.done():
                task.result()
    finally:
        for task in tasks.values():
            task.cancel()  # without effect on those that are done
        # Of all of them: a failure beside the first that nobody asked for would be told on stderr by the event loop.
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    return {name: task.result() for name, task in tasks.items()}
