"""How much was asked of servers so far (what the journal records of each step, as the difference of two counts), and what
they have not answered yet.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to a server."""

    server: str
    url: str
    """Of the server, as configured."""
    operation: str

    def told(self) -> str:
        """For people."""
        return f"`{self.server}` ({self.operation} at {self.url})"


@dataclass(frozen=True, slots=True)
class TrafficCount:
    """Requests and their bodies since a process began to ask. Headers are not counted."""

    requests: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    waiting_s: float = 0.0
    """Time in which at least one request was under way."""

    def since(self, before: TrafficCount) -> TrafficCount:
        """What came after an earlier count."""
        return TrafficCount(
            self.requests - before.requests,
            self.sent_bytes - before.sent_bytes,
            self.received_bytes - before.received_bytes,
            self.waiting_s - before.waiting_s,
        )


NO_TRAFFIC = TrafficCount()
