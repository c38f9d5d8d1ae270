"""What an environment is asked and answers, and the kinds of its routes (participant-protocol section 6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

RouteKind = Literal["read", "start", "mutation", "terminal"]


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a session."""

    route: str
    body: Mapping[str, Any]
    state: dict[str, Any] | None = None
    """The session's state, which must not be changed in place; None before its start."""
    rollout_id: str = ""
    """Whose session it is; empty for a request without an identity."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer. `state` is the session afterwards; it counts only when the status is below 400."""

    body: Mapping[str, Any]
    state: dict[str, Any] | None = None
    status: int = 200
