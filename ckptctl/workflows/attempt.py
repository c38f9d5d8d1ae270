"""One attempt at a snapshot: what is known from the beginning, and what the servers have answered so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptctl.domain.amounts import set_time
from ckptctl.domain.config import OwnSection, RunConfig
from ckptctl.domain.controller import ControllerStatus, SaveReply
from ckptctl.domain.manifest import ArtifactReference, ParticipantIdentity
from ckptctl.domain.participant import (
    AgentCommitReply,
    ModelCommitReply,
    PauseReply,
    SelectedBoundary,
    SessionInventory,
)
from ckptctl.domain.plan import Plan
from ckptctl.domain.redispatch import SessionFacts
from ckptctl.domain.topology import Topology
from ckptctl.domain.transaction import SnapshotFacts, SnapshotRequest
from ckptctl.errors import DeadlineError
from ckptctl.planning.publish import CommitReply
from ckptctl.workflows.more_time import PREPARE
from ckptctl.workflows.world import World


@dataclass(frozen=True, slots=True)
class Begun:
    """What step 1 found out; nothing has been changed yet."""

    config: RunConfig
    own: OwnSection
    request: SnapshotRequest
    topology: Topology
    status: ControllerStatus
    facts: SnapshotFacts
    plan: Plan

    @property
    def checkpoint_id(self) -> str:
        """The id that every request of the transaction carries."""
        return self.facts.checkpoint_id

    @property
    def staged_path(self) -> str:
        """Absolute path of the directory that is being written."""
        return f"{self.config.checkpoint_dir}/{self.facts.staged}"

    @property
    def final_path(self) -> str:
        """Absolute path of the snapshot once it is published."""
        return f"{self.config.checkpoint_dir}/{self.facts.final}"


@dataclass(slots=True)
class Attempt:
    """The running transaction. `deadline_ts` bounds the steps that are being run."""

    world: World
    begun: Begun
    deadline_ts: float = 0.0
    within_s: float | None = None
    """How long that bound is, as it was set."""
    bound: str = PREPARE
    """What sets it: a key of the configuration or an option."""
    closed_at_s: float | None = None
    opened_at_s: float | None = None
    acknowledged: int = 0
    paused: dict[str, PauseReply] = field(default_factory=dict)
    boundaries: dict[str, tuple[SelectedBoundary, ...]] = field(default_factory=dict)
    inventories: dict[str, tuple[SessionInventory, ...]] = field(default_factory=dict)
    retired: list[SessionFacts] = field(default_factory=list)
    """Leaked sessions that this attempt retired; they are in no inventory any more."""
    committed: dict[ParticipantIdentity, CommitReply] = field(default_factory=dict)
    saved: SaveReply | None = None
    manifest_sha256: str = ""
    removed: tuple[str, ...] = ()

    def set_deadline(self, seconds: float) -> None:
        """Bound what follows: `seconds` from now, but never beyond the deadline that was given from outside."""
        request = self.begun.request
        self.deadline_ts = self.world.clock.now_s() + seconds
        self.within_s, self.bound = seconds, PREPARE
        if request.deadline_ts is not None and request.deadline_ts < self.deadline_ts:
            self.deadline_ts, self.within_s = request.deadline_ts, request.deadline_s
            self.bound = f"`{request.deadline_option}`"

    def deadline_passed(self, server: str, operation: str, last: str) -> DeadlineError:
        """The error for a condition that did not come about in time; `last` is how it stood then."""
        within = None if self.within_s is None else set_time(self.within_s)
        return DeadlineError(server=server, operation=operation, last=last, within=within)

    def forget_session(self, session: SessionFacts) -> None:
        """A session was retired: its server exports it no more."""
        pair = (session.rollout_id, session.attempt_index)
        kept = (item for item in self.inventories[session.server_name] if (item.rollout_id, item.attempt_index) != pair)
        self.inventories[session.server_name] = tuple(kept)
        self.retired.append(session)

    def continuation_indexes(self) -> tuple[ArtifactReference, ...]:
        """Every agent's continuation index, by server name."""
        return tuple(
            reply.continuation_index
            for participant in self.begun.topology.agents
            if isinstance(reply := self.committed.get(participant), AgentCommitReply)
        )

    def storage_reference_indexes(self) -> tuple[ArtifactReference, ...]:
        """Every policy model's storage index, by server name."""
        return tuple(
            reply.storage_reference_index
            for participant in self.begun.topology.models
            if isinstance(reply := self.committed.get(participant), ModelCommitReply)
        )
