"""The Gym control protocol, generation A: capabilities, requests and replies.

Replies whose content is stored or compared (commit, restore, acknowledgement) refuse unknown fields; capabilities, prepare
and status replies keep them aside. Servers (`ckptctl.sim`) and the client share these shapes and nothing else. What
participants write into a snapshot is `participant_files`.
Source: participant-protocol sections 3, 5 and 8.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from ckptctl.domain.document import (
    CheckpointId,
    Count,
    Digest,
    Document,
    Id,
    LenientDocument,
    NonEmpty,
    One,
)
from ckptctl.domain.manifest import ArtifactReference, Component

PREFIX = "/ng-control/v1"
FEATURE_ACKNOWLEDGEMENT = "completed_result_acknowledgement"
FEATURE_CONTINUATION_INDEX = "agent_continuation_index_v1"
FEATURE_DISCARD = "discard_restored_continuation_v1"
FEATURE_DEPENDENCY_INDEX = "agent_resource_dependency_index_v1"
FEATURE_STORAGE_INDEX = "external_storage_reference_index_v1"

CheckpointMode = Literal["stateless", "restart_only", "export_restore"]
Phase = Literal[
    "idle",
    "preparing",
    "prepared",
    "committing",
    "committed_paused",
    "restoring",
    "restore_failed_paused",
    "restored_paused",
]


OPTIONAL = Field(exclude_if=lambda value: value is None)
"""A documented field that not every server sends: known when it is read, left out when it was not set."""


class Execution(Document):
    """One attempt of one rollout."""

    rollout_id: Id
    attempt_index: Count


class MultiProcess(LenientDocument):
    """How many worker processes a server has and whether one of them speaks for all."""

    mode: Literal["single_worker", "coordinator", "unmanaged"]
    num_workers: Annotated[int, Field(ge=1)]


class Capabilities(LenientDocument):
    """Reply of `GET /ng-control/v1/capabilities`."""

    component: Component
    name: NonEmpty
    schema_version: One
    admission_states: tuple[str, ...] | list[str]
    checkpoint_mode: CheckpointMode
    concurrency_contract: Literal["stateless", "serialized_per_session", "transactional_parallel"]
    multi_process: MultiProcess
    instance_role: Literal["policy", "auxiliary"] | None = None
    features: tuple[str, ...] | list[str] = ()
    phase: Phase = "idle"
    active_checkpoint_id: str | None = None
    deadline_ts: float | int | None = None


class DiscoveredParticipant(Document):
    """A server of the configuration and what it said of itself. The form of `turn.capabilities.json`, one list element."""

    server_name: Id
    capabilities: Capabilities


class CommonBody(Document):
    """Body of every POST control route with a checkpoint id."""

    schema_version: One = 1
    checkpoint_id: CheckpointId
    deadline_ts: float | int


class DirectoryBody(CommonBody):
    """Agent and resources commit and restore, model restore."""

    checkpoint_dir: NonEmpty


class ModelCommitBody(DirectoryBody):
    """Model commit: every agent's continuation index."""

    continuation_indexes: list[ArtifactReference]


class ExecutionBody(CommonBody):
    """Retire, discard, abort_inflight."""

    rollout_id: Id
    attempt_index: Count


class Workers(LenientDocument):
    """How many workers acknowledged an admission change."""

    acknowledged: Count
    expected: Count
    live: Annotated[int | None, OPTIONAL] = None


class PauseReply(LenientDocument):
    """`model-admission/pause`; replayed verbatim, so it never shows progress."""

    state: Literal["accepting", "draining", "paused"]
    workers: Workers
    inflight_total: Count
    waiters_total: Count = 0
    generation_pending_total: int | None = None
    response_inflight_total: Annotated[int | None, OPTIONAL] = None
    generation_cut_proof: Annotated[Any, OPTIONAL] = None
    """Opaque; newer servers send it when paused."""


class ModelStatus(LenientDocument):
    """`model-admission/status`. Single-worker and coordinator shapes differ; only what both have is required."""

    state: Literal["accepting", "draining", "paused"]
    inflight_total: Count = 0
    generation_pending_total: int | None = None
    checkpoint_id: str | None = None
    workers: Workers | None = None
    missing_workers: list[Any] | int | None = None
    waiters_total: Annotated[int | None, OPTIONAL] = None
    response_inflight_total: Annotated[int | None, OPTIONAL] = None
    generation_cut_proof: Annotated[Any, OPTIONAL] = None
    per_worker: dict[str, dict[str, Any]] = Field(default_factory=dict)
    inflight: list[dict[str, Any]] = Field(default_factory=list)
    tombstones: list[Execution] = Field(default_factory=list)


class ModelCommitReply(Document):
    """`model-checkpoint/commit`."""

    rollouts: Count
    rows: Count
    excluded_tombstoned: Count
    excluded_inactive: Count = 0
    manifest_digest: Digest
    storage_reference_index: ArtifactReference
    generation_cut_records: Count | None = None


class ModelRestoreReply(Document):
    """`model-checkpoint/restore`; `checkpoint_id` is the saved one."""

    rollouts: Count
    rows: Count
    checkpoint_id: str | None
    tombstones: list[Execution]
    source_attempts: list[Execution]
    storage_reference_index: ArtifactReference
    generation_cuts_restored: Count | None = None


class SelectedBoundary(LenientDocument):
    """The boundary that an agent would commit for one execution."""

    rollout_id: Id
    attempt_index: Count
    boundary_index: Count
    turn_index: Count
    boundary_kind: Literal["pending_model", "turn_complete"]
    resource_state_revisions: dict[str, Count] | None = None


class AgentStatus(LenientDocument):
    """Agent prepare reply and (with `checkpoint_id`) status reply."""

    state: str
    ready_to_commit: bool
    running: Count = 0
    parked: Count = 0
    parked_with_boundary: Count = 0
    parked_without_boundary: Count = 0
    completed_unacknowledged: Count = 0
    acknowledged_completed: Count = 0
    active: Count = 0
    blocking_attempts: list[Execution] = Field(default_factory=list)
    completed_unacknowledged_attempts: list[Execution] = Field(default_factory=list)
    executions: list[dict[str, Any]] = Field(default_factory=list)
    selected_boundaries: list[SelectedBoundary] = Field(default_factory=list)
    checkpoint_id: str | None = None


class AgentCommitReply(Document):
    """`agent-checkpoint/commit`."""

    records: Count
    manifest_digest: Digest
    continuation_index: ArtifactReference


class AgentRestoreReply(Document):
    """`agent-checkpoint/restore`."""

    records: Count
    source_checkpoint_id: str | None
    continuation_index: ArtifactReference


class DiscardReply(Document):
    """`agent-checkpoint/discard-restored-continuation`."""

    discarded: bool


_BOTH_OR_NEITHER = ("manifest_capture_key", "terminal_model_call_id")


class CompletionReceipt(Document):
    """What an agent says of a completed result; what the controller acknowledges."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"properties": {name: {"type": "null"} for name in _BOTH_OR_NEITHER}},
                {
                    "properties": {name: {"type": "string"} for name in _BOTH_OR_NEITHER},
                    "required": list(_BOTH_OR_NEITHER),
                },
            ]
        }
    )

    rollout_id: Id
    attempt_index: Count
    execution_generation: Annotated[int, Field(ge=1)]
    result_identity: Annotated[str, Field(min_length=1, max_length=512)]
    result_digest: Digest
    manifest_capture_key: Id | None = None
    terminal_model_call_id: NonEmpty | None = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> CompletionReceipt:
        if (self.manifest_capture_key is None) != (self.terminal_model_call_id is None):
            raise ValueError("manifest_capture_key and terminal_model_call_id come both or not at all")
        return self


class AcknowledgeBody(Document):
    """`agent-checkpoint/acknowledge-completed`."""

    schema_version: One = 1
    executions: Annotated[list[CompletionReceipt], Field(min_length=1)]


class AcknowledgeReply(Document):
    """Must equal the request, as a set of whole receipts."""

    acknowledged: list[CompletionReceipt]


class SessionInventory(LenientDocument):
    """One bound session of a prepared resources server."""

    rollout_id: Id
    attempt_index: Count
    revision: Count
    mutation_receipts: int | list[Any] = 0


class HeldSession(LenientDocument):
    """One session of a held resources server; of an uncertain one the revision is not told."""

    rollout_id: Id
    attempt_index: Count
    revision: Count | None = None
    locked: object = None
    reason: object = None


class ResourcesStatus(LenientDocument):
    """`resources-checkpoint/status`: what is shown of it, and the names of what nobody reads here, lest it be called unknown."""

    state: str
    per_session: list[HeldSession] = Field(default_factory=list)
    uncertain_sessions: list[HeldSession] = Field(default_factory=list)
    checkpoint_id: object = None
    admission_state: object = None
    sessions: object = None
    lock_entries: object = None
    locked_sessions: object = None
    tombstones: object = None
    evicted_receipt_tombstones: object = None
    receipt_history_saturated: object = None
    mutation_receipts: object = None
    retired_receipt_sessions: object = None
    prepared_inventory: object = None


class ResourcesPrepareReply(LenientDocument):
    """`resources-checkpoint/prepare`; `sessions` == length of the inventory."""

    sessions: Count
    state: Literal["prepared"]
    inventory: list[SessionInventory]


class ResourcesCommitReply(Document):
    """`resources-checkpoint/commit`."""

    sessions: Count
    manifest_digest: Digest


class ResourcesRestoreReply(Document):
    """`resources-checkpoint/restore`."""

    sessions: Count
    source_checkpoint_id: str | None


class ResourcesRetireReply(LenientDocument):
    """`resources-checkpoint/retire`."""

    retired: bool
    rollout_id: Id
    attempt_index: Count


class ResumeReply(LenientDocument):
    """Any `resume`: only this, in reply to that very request, counts as released."""

    state: Literal["accepting"]
    workers: Annotated[Workers | None, OPTIONAL] = None
    released_waiters: Annotated[int | None, OPTIONAL] = None
    released: Annotated[Any, OPTIONAL] = None
