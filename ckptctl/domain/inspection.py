"""What `inspect` answers: one document for a checkpoint directory (or one anchor of it), one for a snapshot, one for a data
plane, one for live servers. Texts that came from files or servers are made safe when the documents are made.

Source: design section 4 (`inspect`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ckptctl.domain.document import Count, Document
from ckptctl.domain.finding import Coverage, Finding, Level, SafeText, VerdictName, printable

SafeKey = Annotated[str, AfterValidator(printable)]
Counts = dict[SafeKey, Count]


# --- a checkpoint directory ---


class LockView(Document):
    """Who holds the lock. `is_dead`: that process is provably gone, and the next command takes the lock over by itself."""

    owner: SafeText
    is_dead: bool
    renewed_at: float
    lease_s: float = Field(description="an owner that lives renews the lock more often than this")
    silent_s: float | None = Field(
        description="since it was last renewed, by this host's clock, where that is longer than the lease: hung, stopped, or "
        "gone on another host; null for one that is heard of"
    )

    @property
    def is_at_work(self) -> bool:
        """Whether its owner is heard of."""
        return not self.is_dead and self.silent_s is None


LockProblem = Annotated[
    SafeText, Field(description="why nobody can tell who holds the lock: `lock` is null then, and it may be held")
]


class TransactionView(Document):
    """A transaction that was interrupted, or is running right now (then the lock is held)."""

    name: SafeText
    kind: SafeText
    checkpoint_id: SafeText | None
    began_at: float | None
    last_step: SafeText | None = Field(description="the last step that was begun")
    uses: tuple[SafeText, ...] = Field(description="paths relative to the checkpoint directory")
    finished_by: SafeText = Field(description="the command that finishes it")


class LeftoverView(Document):
    """Something unfinished or half deleted, and what it is."""

    path: SafeText = Field(description="relative to the checkpoint directory")
    what: SafeText
    size_bytes: Count | None
    untouched_s: float | None = Field(description="since anything in it was written; null for a time in the future")


class TrashedView(Document):
    """One entry of ckptctl's trash."""

    entry: SafeText
    state: Literal["whole", "going", "foreign"]
    size_bytes: Count | None
    age_s: float | None = Field(
        description="since it was put there; null for a time in the future, and where no time is known"
    )


class SnapshotCounts(Document):
    """What a snapshot says that it holds; null where it does not say, or not readably."""

    groups: Count | None = Field(default=None, description="unfinished prompt groups in the recovery ledger")
    finished_groups: Count | None = Field(default=None, description="groups in the replay metadata")
    continuations: Count | None = None
    sessions: Count | None = Field(default=None, description="resource sessions")


class SnapshotView(Document):
    """One snapshot in an overview."""

    path: SafeText = Field(description="relative to the checkpoint directory")
    name: SafeText
    verdict: VerdictName
    schema_found: int | None
    checkpoint_id: SafeText | None
    size_bytes: Count
    files: Count
    written_at: float | None
    age_s: float | None = Field(description="null for a time in the future")
    counts: SnapshotCounts
    pinned: SafeText | None = Field(default=None, description="why it is pinned")
    used_by: SafeText | None = Field(default=None, description="the unfinished transaction that uses it")
    problems: tuple[SafeText, ...] = Field(default=(), description="the first findings; `validate` has them all")


class AnchorView(Document):
    """One anchor and its snapshots, newest first."""

    name: SafeText
    kind: Literal["step", "bootstrap", "other"]
    verdict: VerdictName
    is_durable: bool = Field(description="published whole, as far as its small files show")
    train_step: Count | None
    trainer_version: Count | None
    problems: tuple[SafeText, ...]
    snapshots: tuple[SnapshotView, ...]
    unlisted: SafeText = Field(
        default="", description="why its snapshots could not be listed; then none is here, whatever there may be"
    )


class DirectoryInspection(Document):
    """A whole checkpoint directory, or one anchor of it. Verdicts are of the given level."""

    schema_version: Literal[1] = 1
    kind: Literal["checkpoint_dir", "anchor"]
    path: SafeText
    level: Level
    verdict: VerdictName = Field(description="the worst")
    anchors: tuple[AnchorView, ...]
    leftovers: tuple[LeftoverView, ...]
    trash: tuple[TrashedView, ...]
    unfinished: tuple[TransactionView, ...]
    lock: LockView | None
    lock_problem: LockProblem = ""
    warnings: tuple[SafeText, ...] = ()


# --- a snapshot in depth ---


class ManifestCounters(Document):
    """The counters of `manifest.json`."""

    base_train_step: Count
    trainer_version: Count
    current_epoch: Count
    sampler_dispatch_index: int
    mutation_version: Count
    rolled_back_train_group_count: Count
    bootstrap_fingerprint: str | None
    gym_topology_fingerprint: str | None


class ParticipantView(Document):
    """One participant and what it says that it saved."""

    server_name: SafeText
    component: SafeText
    participant_name: SafeText
    folder: SafeText
    counts: Counts
    size_bytes: Count
    files: Count


class GroupCount(Document):
    """How many unfinished groups of one kind there are."""

    status: SafeText
    granularity: SafeText
    groups: Count
    rollouts: Count


class RolloutView(Document):
    """One rollout: where the ledger has it, and the boundary that its agent saved. `null`: there is none."""

    rollout_id: SafeText
    group_id: SafeText | None
    status: SafeText | None = Field(description="of the current attempt in the ledger")
    granularity: SafeText | None
    attempt_index: Count
    agent: SafeText | None
    boundary_kind: SafeText | None
    boundary_index: Count | None
    turn_index: Count | None
    revisions: Counts | None = Field(description="resources server -> revision; null where none are recorded")
    staged_rows: Count | None = Field(description="staged rows that it needs to be continued or reused")


class ReplayGroupView(Document):
    """One finished group that the canonical partition holds."""

    group_id: SafeText
    rows: Count
    start_weight: int
    end_weight: int
    target_step: int | None


class PartitionView(Document):
    """One partition of the data plane."""

    partition_id: SafeText
    keys: Count
    fields: Count
    produced_values: Count = Field(description="values that the controller calls produced")


class PartSize(Document):
    """One part of a snapshot and what it weighs."""

    name: SafeText
    files: Count
    bytes: Count


class BindingView(Document):
    """What the data plane was saved together with."""

    train_step: Count
    trainer_version: Count
    epoch: Count
    partition_id: SafeText
    sampler_name: SafeText
    mode: SafeText
    replay_groups: Count | None
    replay_manifest_digest: str | None
    recovery_groups: Count | None
    recovery_sha256: str | None


class DataPlaneView(Document):
    """Partitions, units and binding; everything empty where it cannot be read."""

    partitions: tuple[PartitionView, ...] = ()
    storage_units: Count | None = None
    binding: BindingView | None = None


class SnapshotInspection(Document):
    """One snapshot in depth. What could not be read is empty, and `findings` or `unread` say why."""

    schema_version: Literal[1] = 1
    kind: Literal["snapshot"] = "snapshot"
    path: SafeText
    anchor: SafeText | None
    verdict: VerdictName
    level: Level
    findings: tuple[Finding, ...]
    unread: tuple[SafeText, ...] = Field(description="parts that could not be decoded, and why")
    coverage: Coverage
    schema_found: int | None
    checkpoint_id: SafeText | None
    written_at: float | None
    age_s: float | None
    counters: ManifestCounters | None
    participants: tuple[ParticipantView, ...]
    groups: tuple[GroupCount, ...]
    acknowledgements: Count | None = Field(description="completed results whose agent still waits to be told")
    rollouts: tuple[RolloutView, ...]
    replay: tuple[ReplayGroupView, ...]
    data_plane: DataPlaneView
    parts: tuple[PartSize, ...]


class DataPlaneInspection(Document):
    """A data plane alone."""

    schema_version: Literal[1] = 1
    kind: Literal["data_plane"] = "data_plane"
    path: SafeText
    verdict: VerdictName
    level: Level
    findings: tuple[Finding, ...]
    unread: tuple[SafeText, ...]
    coverage: Coverage
    data_plane: DataPlaneView
    parts: tuple[PartSize, ...]


# --- live servers ---


class LiveProblem(Document):
    """Something for which a snapshot would refuse, in the words and with the status with which it would."""

    about: SafeText = Field(description="configuration key, server, `controller`, `topology` or `anchor`")
    code: str
    exit_code: int
    message: SafeText
    hint: SafeText | None


class ServerView(Document):
    """One configured Gym server, and what it says of itself; null where it did not answer."""

    server_name: SafeText
    is_answering: bool
    component: SafeText | None = None
    participant_name: SafeText | None = None
    instance_role: SafeText | None = None
    checkpoint_mode: SafeText | None = None
    phase: SafeText | None = None
    active_checkpoint_id: SafeText | None = None
    deadline_ts: float | None = None
    workers: Count | None = None
    features: tuple[SafeText, ...] = ()
    admission: SafeText | None = Field(default=None, description="accepting, draining or paused; told while it is held")
    calls_in_flight: Count | None = Field(
        default=None, description="of a policy model; servers tell it only while a checkpoint holds them"
    )
    running: Count | None = Field(default=None, description="rollouts that an agent runs; told while it is held")
    parked: Count | None = Field(default=None, description="rollouts that an agent holds; told while it is held")
    sessions: Count | None = Field(default=None, description="of a resources server; told while it is held")
    uncertain_sessions: Count | None = Field(
        default=None, description="those whose last call broke off half-way: they block every snapshot until a restart"
    )


class ControllerView(Document):
    """The rollout controller's status."""

    instance_id: SafeText
    phase: SafeText
    admission: SafeText
    active_checkpoint_id: SafeText | None
    train_step: Count
    trainer_version: Count
    epoch: Count
    mutation_version: Count
    unfinished_rollouts: Count
    acknowledgements_pending: Count
    anchor: SafeText | None
    checkpoint_dir: SafeText
    data_plane: SafeText
    storage_units: Count
    takes_own_snapshots: bool
    restore_expected: bool
    trainer_busy: bool


class UnclaimedSession(Document):
    """A session that no rollout claims. It is exported all the same, and the next snapshot retires it."""

    server_name: SafeText
    rollout_id: SafeText
    attempt_index: Count
    revision: Count | None
    since: float | None = Field(
        description="Unix seconds: the restore that left it; null where no journal tells of one"
    )
    age_s: float | None
    told_by: Literal["servers", "journal"] = Field(
        description="`servers`: held ones, which said just now what they have; `journal`: as the last restore left it"
    )


class LiveInspection(Document):
    """The configured servers as they are now, and everything for which a snapshot would refuse."""

    schema_version: Literal[1] = 1
    kind: Literal["live"] = "live"
    config_path: SafeText
    checkpoint_dir: SafeText
    observed_at: float = Field(description="Unix seconds")
    would_snapshot: bool
    exit_code: int
    problems: tuple[LiveProblem, ...]
    warnings: tuple[SafeText, ...]
    servers: tuple[ServerView, ...]
    topology_fingerprint: str | None = Field(description="null unless every server answered")
    unclaimed_sessions: tuple[UnclaimedSession, ...]
    controller: ControllerView | None
    unfinished: tuple[TransactionView, ...]
    lock: LockView | None
    lock_problem: LockProblem = ""
