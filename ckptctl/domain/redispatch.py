"""What a restore does with each rollout, as values.

Made by `planning.redispatch`, printed by `restore --plan`, executed by the restore.

Source: design section 6; participant-protocol section 9; snapshot-layout section 6.4.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ckptctl.domain.controller import Redispatch
from ckptctl.domain.document import Count, Document


class SiblingFacts(Document):
    """One sibling of an unfinished group as the ledger has it, before or after the controller restored it."""

    group_id: str
    granularity: Literal["sibling", "prompt_group"]
    is_ready: bool
    """All siblings of the group are sealed: nothing of it is dispatched again."""
    generation_index: Count
    rollout_id: str
    current_attempt: Count
    status: Literal["reserved", "dispatched", "sealed", "failed", "abandoned"]
    staging_keys: tuple[str, ...] = ()
    """What the receipt of an attempt that was saved as sealed needs."""


class ContinuationFacts(Document):
    """One boundary that the agents will restore: the pair, what it depends on and which staged rows it needs."""

    rollout_id: str
    attempt_index: Count
    revisions: dict[str, int] | None
    staging_keys: tuple[str, ...] = ()
    has_model_call: bool = True


class SessionFacts(Document):
    """One session that a resources server will restore."""

    server_name: str
    rollout_id: str
    attempt_index: Count


class ReusedSibling(Document):
    """A sealed sibling whose result is kept."""

    group_id: str
    rollout_id: str
    attempt_index: Count


class Discard(Document):
    """A continuation that every agent is told to drop, named by its replacement attempt, and why."""

    rollout_id: str
    source_attempt: Count
    replacement_attempt: Count
    reason: str


class AttemptPlan(Document):
    """Who continues, who restarts, what is dropped and cleared, and what nobody claims."""

    redispatch: tuple[Redispatch, ...]
    reused: tuple[ReusedSibling, ...]
    discards: tuple[Discard, ...]
    clear_keys: tuple[str, ...] = Field(description="staging rows that only discarded continuations need")
    kept_shared_keys: tuple[str, ...] = Field(
        description="staging rows of discarded continuations that something else needs"
    )
    unclaimed_sessions: tuple[SessionFacts, ...] = Field(
        description="restored sessions that no continuation claims; the next snapshot retires those that are left"
    )
