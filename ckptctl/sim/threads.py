"""Blocking work of an event loop in threads, where a cancelled caller must know that the work has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any


async def in_thread(work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Run `work` in a thread. When cancelled, wait for its end first: nothing may be written behind the back of an undo."""
    task = asyncio.ensure_future(asyncio.to_thread(partial(work, *arguments, **named)))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
