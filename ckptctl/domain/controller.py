"""Messages of the controller interface (`/ckpt-control/v1`), shared by its client and by the server half `ckptctl.controller`.

Source: controller-interface.md. Common body and digests as in the participant protocol.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ckptctl.domain.document import Count, Digest, Document, Id, NonEmpty, One
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.participant import CommonBody, CompletionReceipt, DirectoryBody, Execution

PREFIX = "/ckpt-control/v1"
INTERFACE_NAME = "ckptctl-controller"

ControllerPhase = Literal["idle", "closed", "saved", "restored", "restore_failed"]
Outcome = Literal["released", "aborted", "restored"]


class PublicStatus(Document):
    """What `GET /status` says without a token."""

    interface: Literal["ckptctl-controller"] = "ckptctl-controller"
    schema_version: One = 1
    instance_id: NonEmpty


class ControllerStatus(PublicStatus):
    """What `GET /status` says with the token."""

    phase: ControllerPhase
    admission: Literal["open", "closed"]
    active_checkpoint_id: str | None
    train_step: Count
    trainer_version: Count
    epoch: Count
    mutation_version: Count
    sampler_dispatch_index: Annotated[int, Field(ge=-1)]
    sampler_name: str
    unfinished_rollouts: Count
    acknowledgements_pending: Count
    canonical_partition: NonEmpty
    staging_partition: NonEmpty
    data_plane: Literal["embedded", "transferqueue"]
    storage_units: Annotated[int, Field(ge=1)]
    takes_own_snapshots: bool
    restore_expected: bool
    trainer_busy: bool
    checkpoint_dir: NonEmpty
    anchor: str | None
    """The durable anchor, relative to `checkpoint_dir` (`step_3`, `bootstrap`); null when there is none."""
    bootstrap_fingerprint: Digest | None


class CloseReply(Document):
    """`POST /admission/close`."""

    phase: ControllerPhase
    unfinished_rollouts: Count
    in_flight_dispatches: Count


class Acknowledgement(Document):
    """A completed result whose agent still waits to be told that it is owned. Also the ledger's outbox entry."""

    receipt: CompletionReceipt
    agent_name: NonEmpty


class AcknowledgementsReply(Document):
    """`GET /acknowledgements`; sorted by agent, rollout, attempt; `next` is the cursor of the following page."""

    pending: list[Acknowledgement]
    total: Count
    next: str | None


class ConfirmBody(Document):
    """`POST /acknowledgements/confirm`: idempotent, no fence."""

    schema_version: One = 1
    acknowledged: list[CompletionReceipt]


class ConfirmReply(Document):
    """Exactly what was delivered is removed."""

    removed: Count
    unknown: list[Execution]
    remaining: Count


class SettleBody(Document):
    """`POST /acknowledgements/settle`: receipts that a restarted agent refused."""

    schema_version: One = 1
    receipts: list[CompletionReceipt]


class SettleReply(Document):
    """`settled` were owned by ledger or replay metadata and are removed; `unowned` are kept, an error for the caller."""

    settled: list[CompletionReceipt]
    unowned: list[CompletionReceipt]


class SaveBody(DirectoryBody):
    """`POST /save`."""

    storage_reference_indexes: list[ArtifactReference]


class CutCounters(Document):
    """The manifest's counters at the cut."""

    base_train_step: Count
    trainer_version: Count
    current_epoch: Count
    sampler_dispatch_index: Annotated[int, Field(ge=-1)]
    mutation_version: Count
    rolled_back_train_group_count: Count


class SavedFile(Document):
    """One file that the controller wrote, relative to the snapshot."""

    relative_path: NonEmpty
    bytes: Count
    sha256: Digest


class SaveReply(Document):
    """`POST /save`: counters for the manifest and every file written."""

    counters: CutCounters
    bootstrap_fingerprint: Digest | None
    files: list[SavedFile]
    groups: Count
    canonical_rows: Count
    staging_rows: Count
    barrier_wait_s: float | int
    cut_hold_s: float | int


class RestoreBody(DirectoryBody):
    """`POST /restore`."""

    manifest_sha256: Digest


class RestoreReply(Document):
    """`POST /restore`; counts after unreferenced rows were dropped."""

    train_step: Count
    trainer_version: Count
    epoch: Count
    ledger_groups: Count
    replay_groups: Count
    canonical_rows: Count
    staging_rows: Count
    outbox: Count


class LedgerSibling(Document):
    """One sibling of a restored unfinished group."""

    generation_index: Count
    rollout_id: Id
    current_attempt: Count
    status: Literal["reserved", "dispatched", "sealed", "failed", "abandoned"]


class LedgerGroup(Document):
    """One unfinished group."""

    group_id: NonEmpty
    recovery_granularity: Literal["sibling", "prompt_group"]
    siblings: list[LedgerSibling]


class LedgerReply(Document):
    """`GET /ledger`, only in phases `closed` and `restored`."""

    groups: list[LedgerGroup]
    total: Count
    next: str | None


class ClearBody(CommonBody):
    """`POST /staging/clear`."""

    keys: Annotated[list[str], Field(max_length=10_000)]


class ClearReply(Document):
    """`POST /staging/clear`."""

    cleared: Count
    absent: Count


class Redispatch(Document):
    """What becomes of one unsealed sibling after a restore."""

    group_id: NonEmpty
    generation_index: Count
    rollout_id: Id
    source_attempt: Count
    replacement_attempt: Count
    mode: Literal["continue", "restart"]
    reason: str


class OpenBody(CommonBody):
    """`POST /admission/open`; `redispatch` only with outcome `restored`."""

    outcome: Outcome
    redispatch: list[Redispatch] = Field(default_factory=list)

    @model_validator(mode="after")
    def _only_after_a_restore(self) -> OpenBody:
        if self.redispatch and self.outcome != "restored":
            raise ValueError("redispatch comes with outcome restored only")
        return self


class OpenReply(Document):
    """`POST /admission/open`: only this, in reply to that very request, counts as opened."""

    phase: Literal["idle"]
    admission: Literal["open"]
    dispatched: Count
