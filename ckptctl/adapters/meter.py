"""Counts the requests of one process: how many, how large, for how long at least one was under way, and which are.

Requests run side by side, so their lengths are not added up: a second in which three servers work is one second of waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ckptctl.domain.traffic import Asked, TrafficCount
from ckptctl.ports import Clock


class Meter:
    """One process' traffic. Not thread-safe: it lives in one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests = self._sent_bytes = self._received_bytes = 0
        self._waited_s = self._since_s = 0.0
        self._under_way: list[tuple[Asked, float]] = []

    @contextmanager
    def request(self, asked: Asked, sent_bytes: int) -> Iterator[None]:
        """One request, from before it is sent until its answer was read or given up."""
        self._requests += 1
        self._sent_bytes += sent_bytes
        now_s = self._clock.monotonic_s()
        if not self._under_way:
            self._since_s = now_s
        entry = (asked, now_s)
        self._under_way.append(entry)
        try:
            yield
        finally:
            self._under_way = [other for other in self._under_way if other is not entry]
            if not self._under_way:
                self._waited_s += self._clock.monotonic_s() - self._since_s

    def under_way(self, least_s: float = 0.0) -> tuple[Asked, ...]:
        """What has not been answered yet, of what was asked at least so long ago; the oldest first."""
        now_s = self._clock.monotonic_s()
        return tuple(asked for asked, since_s in self._under_way if now_s - since_s >= least_s)

    def received(self, count: int) -> None:
        """So many bytes of an answer arrived."""
        self._received_bytes += count

    def count(self) -> TrafficCount:
        """What there was until now."""
        running_s = self._clock.monotonic_s() - self._since_s if self._under_way else 0.0
        return TrafficCount(self._requests, self._sent_bytes, self._received_bytes, self._waited_s + running_s)
