"""Server `directory`: looks people up. It holds nothing: it takes no part in snapshots, and a fresh one is as good as the old."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ckptctl.sim.outcome import Call, Outcome, RouteKind

LOOKUP = "lookup"
_ROOMS = 900


class Directory:
    """Answers from the name alone."""

    routes: Mapping[str, RouteKind] = {LOOKUP: "read"}

    def call(self, call: Call) -> Outcome:
        """Where somebody sits and how to write to them."""
        name = call.body.get("name")
        if not isinstance(name, str) or not name:
            return Outcome({"error": "name must not be empty"}, status=422)
        room = 100 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % _ROOMS
        return Outcome({"name": name, "address": f"{name}@example.org", "room": room})

    def forget(self, rollout_id: str, state: dict[str, Any] | None) -> None:
        """There are no sessions."""
