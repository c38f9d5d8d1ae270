"""A clock that only sleeping moves."""

from __future__ import annotations

import asyncio

START_S = 1_790_000_000.0


class FixedClock:
    """Implements `ports.Clock`; `sleep` takes no real time."""

    def __init__(self, now_s: float = START_S) -> None:
        self.value_s = now_s
        self.slept: list[float] = []

    def now_s(self) -> float:
        return self.value_s

    def monotonic_s(self) -> float:
        return self.value_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.value_s += seconds
        await asyncio.sleep(0)
