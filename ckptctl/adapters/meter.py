"""Counts the requests of one process: how many, how large, and for how long at least one was under way.

Requests run side by side, so their lengths are not added up: a second in which three servers work is one second of waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ckptctl.domain.traffic import TrafficCount
from ckptctl.ports import Clock


class Meter:
    """One process' traffic. Not thread-safe: it lives in one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests = self._sent_bytes = self._received_bytes = self._under_way = 0
        self._waited_s = self._since_s = 0.0

    @contextmanager
    def request(self, sent_bytes: int) -> Iterator[None]:
        """One request, from before it is sent until its answer was read or given up."""
        self._requests += 1
        self._sent_bytes += sent_bytes
        if not self._under_way:
            self._since_s = self._clock.monotonic_s()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._waited_s += self._clock.monotonic_s() - self._since_s

    def received(self, count: int) -> None:
        """So many bytes of an answer arrived."""
        self._received_bytes += count

    def count(self) -> TrafficCount:
        """What there was until now."""
        running_s = self._clock.monotonic_s() - self._since_s if self._under_way else 0.0
        return TrafficCount(self._requests, self._sent_bytes, self._received_bytes, self._waited_s + running_s)
