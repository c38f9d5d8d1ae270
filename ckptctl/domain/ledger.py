"""The recovery ledger (`rollout_recovery.pt`, schema 3; also read: 4). Shape only; the structural rules are LED rules.

Source: snapshot-layout section 6.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ckptctl.domain.controller import Acknowledgement
from ckptctl.domain.document import Count, Document, NonEmpty
from ckptctl.domain.ids import rollout_id
from ckptctl.domain.participant import CompletionReceipt

LEDGER_SCHEMA_VERSION = 3
AttemptStatus = Literal["reserved", "dispatched", "sealed", "failed", "abandoned"]
GroupStatus = Literal["generating", "ready_to_finalize", "finalizing", "finalization_unknown"]
Granularity = Literal["sibling", "prompt_group"]


class Attempt(Document):
    """One try of a sibling. Everything but number and status is set only when sealed."""

    attempt_index: Count
    status: AttemptStatus
    receipt: dict[str, Any] | None
    """Token-capture receipt, opaque but for `rollout_id` (= capture key) and `manifest` rows with `staging_key`."""
    completion_receipt: CompletionReceipt | None
    reward: float | int | None
    mask_sample: bool | None
    staging_keys: list[str]


class Sibling(Document):
    """One generation of a prompt group; the current attempt is the last."""

    generation_index: Count
    attempts: list[Attempt] = Field(min_length=1)

    @property
    def current(self) -> Attempt:
        """The last attempt."""
        return self.attempts[-1]


class PromptReference(Document):
    """Which dataset row the prompt is."""

    sample_id: NonEmpty
    task_name: str | None


class Group(Document):
    """One unfinished prompt group. Field order is the written order; `restore_level` exists in ledger schema 4 only."""

    group_id: NonEmpty
    admission_id: NonEmpty
    prompt_id: NonEmpty
    prompt_ref: PromptReference
    task_source: str | None
    resolved_agent_name: str | None
    recovery_granularity: Granularity
    restore_level: str | int | None = Field(default=None, exclude_if=lambda value: value is None)
    expected_generations: int = Field(ge=1)
    target_step: Count | None
    start_weight_version: Count
    status: GroupStatus
    phase: Literal["reserved", "admitted"]
    siblings: list[Sibling]

    def rollout_of(self, sibling: Sibling) -> str:
        """The logical rollout id of one of this group's siblings."""
        return rollout_id(self.group_id, sibling.generation_index)


class Ledger(Document):
    """The whole ledger. `batch_shortfall` has int keys."""

    schema_version: int
    groups: list[Group]
    pending_completed_execution_acknowledgements: list[Acknowledgement]
    batch_shortfall: dict[Count, Count]
    sampler_stamps_target_steps: bool

    def siblings(self) -> dict[str, tuple[Group, Sibling]]:
        """Every sibling by its logical rollout id (the last one wins where ids collide; rule LED049 reports that)."""
        return {group.rollout_of(sibling): (group, sibling) for group in self.groups for sibling in group.siblings}
