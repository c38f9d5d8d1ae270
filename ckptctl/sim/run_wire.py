"""`POST /run` of an agent: the task a dispatcher sends, and the result it gets.

A redispatch is the same task with the next attempt index; nothing says "continue" (participant-protocol section 9).
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from ckptctl.domain.document import Count, Document, Id, LenientDocument, NonEmpty


class RunBody(LenientDocument):
    """One rollout. Further task fields are allowed and ignored."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    rollout_id: Id = Field(alias="_ng_rollout_id")
    attempt_index: Count = Field(alias="_ng_attempt_index")
    environment: NonEmpty = "counter"
    model_server: Id | None = None
    """Which of the agent's peers; None: the agent's own default."""
    resources_server: Id | None = None
    """Which of the agent's peers; None: the peer that is called like the environment."""
    prompt: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """What the environment asks for; counter: `{"increments": 6}`."""


class RunResult(Document):
    """What a finished rollout returns, and what its completion receipt digests."""

    id: NonEmpty
    rollout_id: Id
    attempt_index: Count
    reward: float
    transcript: list[dict[str, Any]]
    """All items of the conversation; the same for a continued rollout as for an uninterrupted one."""
    final_state: dict[str, Any]
    """The resources session when it was verified."""
    turns: Count
    usage: dict[str, Any]
