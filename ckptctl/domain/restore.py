"""What a restore is asked for, what its journal begins with, and what it answers (design section 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from ckptctl.domain.controller import Redispatch
from ckptctl.domain.document import (
    CheckpointId,
    Count,
    Digest,
    Document,
    FileName,
    LenientDocument,
    NonEmpty,
    RelativePath,
)
from ckptctl.domain.finding import VerdictName
from ckptctl.domain.plan import Step
from ckptctl.domain.redispatch import Discard, ReusedSibling, SessionFacts
from ckptctl.domain.transaction import StepTime


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What `ckptctl restore` was asked for."""

    falls_back: bool = True
    """Try an older snapshot when a newer one's payload is damaged."""
    break_lock: bool = False


class RejectedSnapshot(Document):
    """A candidate that was not used, and why."""

    snapshot: str = Field(description="relative to the checkpoint directory")
    verdict: VerdictName = Field(description="what is wrong with it; `incomplete`: nobody could tell")
    reason: str


class Selection(Document):
    """What would be restored. `snapshot` is null when the run starts from the anchor itself."""

    anchor: str
    snapshot: str | None = Field(description="absolute path")
    rejected: tuple[RejectedSnapshot, ...] = ()
    reason: str = ""


class RestoreFacts(LenientDocument):
    """The first record of a restore's journal: enough to continue it without anybody's memory."""

    schema_version: Literal[1] = 1
    tool_version: str
    checkpoint_id: CheckpointId
    anchor: FileName = Field(min_length=1)
    snapshot: RelativePath = Field(min_length=1, description="relative to the checkpoint directory")
    manifest_sha256: Digest
    controller_instance_id: NonEmpty
    models: tuple[str, ...]
    agents: tuple[str, ...]
    resources: tuple[str, ...]


class RestoreResult(Document):
    """The answer of `ckptctl restore`, with `--select` and `--plan` too: every rollout, its attempts, and why."""

    schema_version: Literal[1] = 1
    outcome: Literal["selected", "planned", "restored", "trainer_checkpoint"]
    anchor: str
    snapshot: str | None = Field(description="absolute path; null when the run starts from the anchor itself")
    selected_path: str | None = Field(
        default=None,
        description="with `--select`: absolute path of the snapshot, or of the anchor where no snapshot is used",
    )
    reason: str = ""
    saved_checkpoint_id: str | None = None
    checkpoint_id: str | None = Field(default=None, description="the id of this restore")
    rejected: tuple[RejectedSnapshot, ...] = ()
    plan: tuple[Step, ...] = Field(default=(), description="what a restore does, step by step (`--plan`)")
    rollouts: tuple[Redispatch, ...] = ()
    reused: tuple[ReusedSibling, ...] = ()
    discards: tuple[Discard, ...] = ()
    cleared_staging_keys: tuple[str, ...] = ()
    kept_shared_keys: tuple[str, ...] = ()
    unclaimed_sessions: tuple[SessionFacts, ...] = ()
    dispatched: Count = 0
    steps: tuple[StepTime, ...] = ()
    warnings: tuple[str, ...] = ()
