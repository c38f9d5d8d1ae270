"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    """Implements `ports.Clock`."""

    def now_s(self) -> float:
        """Unix seconds."""
        return time.time()

    def monotonic_s(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        import asyncio  # noqa: PLC0415 - who only looks at files never waits, and must not start for it

        await asyncio.sleep(seconds)
