"""What a snapshot transaction is called, asked for and answers: request, facts in the journal, result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field

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
from ckptctl.domain.finding import Level
from ckptctl.domain.redispatch import SessionFacts


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What `ckptctl snapshot` was asked for."""

    force: bool = False
    """Take one even when nothing changed."""
    deadline_ts: float | None = None
    """Unix seconds by which the snapshot must be published; the abort alone may go on longer."""
    deadline_s: float | None = None
    """How far off that was when it was given: what a person knows it by."""
    deadline_option: str = "--deadline"
    """What gives it more time."""
    level: Level = "standard"
    break_lock: bool = False
    sessions_only: bool = False
    """Only retire leaked sessions: prepare, retire, resume; nothing is committed or published."""

    def within(self, seconds: float, now_s: float, option: str = "--deadline") -> SnapshotRequest:
        """The same, to be done in so many seconds from now, unless less is left already; `option` says so."""
        if self.deadline_ts is not None and self.deadline_ts <= now_s + seconds:
            return self
        return replace(self, deadline_ts=now_s + seconds, deadline_s=seconds, deadline_option=option)


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """What `ckptctl publish` was asked for; nothing of it: to finish whatever an interrupted run left."""

    staged: str | None = None
    release_id: str | None = None
    set_aside: str | None = None
    """Name of a transaction whose journal cannot be read."""
    reason: str | None = None
    break_lock: bool = False


class SnapshotFacts(LenientDocument):
    """The first record of a snapshot's journal: enough to finish or undo it without anybody's memory."""

    schema_version: Literal[1] = 1
    tool_version: str
    checkpoint_id: CheckpointId
    anchor: FileName = Field(min_length=1)
    number: Count
    staged: RelativePath = Field(min_length=1, description="relative to the checkpoint directory")
    final: RelativePath = Field(min_length=1, description="relative to the checkpoint directory")
    controller_instance_id: NonEmpty
    train_step: Count
    trainer_version: Count
    mutation_version: Count
    unfinished_rollouts: Count
    topology_fingerprint: Digest
    models: tuple[str, ...]
    agents: tuple[str, ...]
    resources: tuple[str, ...]
    plan: dict[str, Any]


ResultOutcome = Literal[
    "published", "released", "restored", "aborted", "skipped", "set_aside", "retired", "nothing_to_do"
]


class StepTime(Document):
    """How long one step took."""

    number: str
    name: NonEmpty
    seconds: float


class TransactionCounts(Document):
    """What a snapshot holds."""

    continuations: Count = 0
    records: Count = 0
    sessions: Count = 0
    groups: Count = 0
    canonical_rows: Count = 0
    staging_rows: Count = 0
    acknowledgements: Count = 0


class TransactionResult(Document):
    """The answer of `ckptctl snapshot` and `ckptctl publish`."""

    schema_version: Literal[1] = 1
    outcome: ResultOutcome
    checkpoint_id: str | None = None
    snapshot: str | None = Field(default=None, description="absolute path of the published or restored snapshot")
    anchor: str | None = None
    reason: str = Field(default="", description="why it was skipped, aborted, released or set aside")
    admission_closed_s: float | None = None
    steps: tuple[StepTime, ...] = ()
    counts: TransactionCounts | None = None
    removed: tuple[str, ...] = Field(default=(), description="older snapshots that retention moved to the trash")
    retired_sessions: tuple[SessionFacts, ...] = Field(
        default=(), description="leaked resource sessions that were retired before commit"
    )
    warnings: tuple[str, ...] = ()
