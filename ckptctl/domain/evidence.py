"""Everything that is known of one target when rules judge it: pure values, loaded by `workflows`, changed by nobody.

A `Part` is one file as read. Its state says which kind of rule may speak: `missing` (MAN002), `damaged` (MAN010, or the family
rule of the file), `unreadable` and `unsupported` (whoever needs it *could not run*), `not_read` (the level does not ask for it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from ckptctl.domain.binding import BootstrapManifest, DataPlaneMetadata, TrainingInfo, UnitInfo
from ckptctl.domain.checksums import ChecksumsFile, FileDigest, PublicationFacts
from ckptctl.domain.dataplane import ControllerState, StorageUnit
from ckptctl.domain.document import Document
from ckptctl.domain.finding import Defect, Level
from ckptctl.domain.ids import CHECKSUMS_FILE
from ckptctl.domain.ledger import Ledger
from ckptctl.domain.manifest import ParticipantEntry, ParticipantIdentity, SnapshotManifest
from ckptctl.domain.participant import CompletionReceipt, DiscoveredParticipant, SelectedBoundary, SessionInventory
from ckptctl.domain.participant_files import (
    AgentManifest,
    BoundaryRecord,
    ModelManifest,
    ResourcesManifest,
    SessionRecord,
)
from ckptctl.domain.replay import ReplayMetadata
from ckptctl.domain.rows import AgentIndexRow, ContinuationRow, LineageIndexRow, LineageRow, StorageReferenceRow
from ckptctl.domain.staged_facts import StagedFacts

T = TypeVar("T")
PartState = Literal["decoded", "missing", "unreadable", "damaged", "unsupported", "not_read"]
TargetKind = Literal["snapshot", "anchor", "checkpoint_dir", "data_plane", "pack"]
EntryKind = Literal["file", "directory", "symlink", "fifo", "socket", "device", "unknown"]


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """One file of the target as read. `value` is set exactly when `state` is `decoded`; `sha256` whenever all bytes were read."""

    path: str
    state: PartState
    value: T | None = None
    defects: tuple[Defect, ...] = ()
    size_bytes: int = 0
    sha256: str | None = None
    opens: bool = False
    """The container was readable to its end, although what it holds is damaged or unsupported (so MAN010 is silent)."""

    @property
    def reason(self) -> str:
        """Why there is no value, in a few words."""
        return self.defects[0].message if self.defects else f"`{self.path}` is {self.state.replace('_', ' ')}"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One name found under the target. `mode` holds the permission bits; `modified_s` is Unix time, as the file system says."""

    path: str
    kind: EntryKind
    size_bytes: int = 0
    mode: int = 0o644
    modified_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PackFacts:
    """A packed snapshot as a container. `checked_bytes`: of its compressed bytes, how many were decoded and so proved."""

    members: int
    frames: int
    content_bytes: int
    checked_bytes: int
    is_seekable: bool
    is_bundle: bool


@dataclass(frozen=True, slots=True)
class ManifestReading:
    """`manifest.json` of a snapshot, read in stages so that each rule can speak of its own stage.

    `raw` is None when the bytes are no JSON object (then `document_defects` says why). `manifest` is None when schema or
    counters are wrong. With `gym_defects`, `manifest.gym_checkpoint` is None although `has_gym`.
    """

    part: Part[Mapping[str, Any]]
    raw: Mapping[str, Any] | None = None
    document_defects: tuple[Defect, ...] = ()
    schema_found: object = None
    counter_defects: tuple[Defect, ...] = ()
    gym_defects: tuple[Defect, ...] = ()
    unknown_keys: tuple[str, ...] = ()
    has_gym: bool = False
    manifest: SnapshotManifest | None = None


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One entry of a tar shard, in file order. `sha256` is None for a member that is not a regular file."""

    name: str
    is_regular: bool
    size_bytes: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class AgentEvidence:
    """One agent's folder. `records` is keyed by (archive, member)."""

    entry: ParticipantEntry
    folder: str
    manifest: Part[AgentManifest]
    record_index: Part[tuple[AgentIndexRow, ...]]
    continuations: Part[tuple[ContinuationRow, ...]]
    archives: Mapping[str, Part[tuple[ArchiveMember, ...]]]
    records: Mapping[tuple[str, str], Part[BoundaryRecord]]

    def boundaries(self) -> tuple[BoundaryRecord, ...]:
        """Every record that could be decoded."""
        return tuple(part.value for part in self.records.values() if part.value is not None)


@dataclass(frozen=True, slots=True)
class ModelEvidence:
    """One policy model's folder. `lineage` is keyed by (archive, member).

    `is_foreign`: a framework-owned format, of which only the references count.
    """

    entry: ParticipantEntry
    folder: str
    manifest: Part[ModelManifest]
    lineage_index: Part[tuple[LineageIndexRow, ...]]
    storage_references: Part[tuple[StorageReferenceRow, ...]]
    archives: Mapping[str, Part[tuple[ArchiveMember, ...]]]
    lineage: Mapping[tuple[str, str], Part[tuple[LineageRow, ...]]]
    is_foreign: bool = False


@dataclass(frozen=True, slots=True)
class ResourcesEvidence:
    """One resources server's folder. `sessions` is keyed by file name: every listed file and every `*.json` that lies there."""

    entry: ParticipantEntry
    folder: str
    manifest: Part[ResourcesManifest]
    sessions: Mapping[str, Part[SessionRecord]]


@dataclass(frozen=True, slots=True)
class SiblingSnapshot:
    """Another snapshot directory of the same checkpoint directory, from its manifest alone."""

    anchor: str
    name: str
    number: int
    has_manifest: bool
    checkpoint_id: str | None = None
    schema_found: object = None
    base_train_step: int | None = None
    trainer_version: int | None = None
    bootstrap_fingerprint: str | None = None
    has_gym: bool = False
    is_valid: bool | None = None
    """None when it was not validated."""
    problem: str = ""
    is_unreadable: bool = False
    """The problem is only that it cannot be looked at now: nothing is known to be wrong with it."""


@dataclass(frozen=True, slots=True)
class AnchorEvidence:
    """The anchor that a snapshot lies in (or that is itself the target)."""

    name: str
    kind: Literal["step", "bootstrap", "other"]
    number: int
    training_info: Part[TrainingInfo]
    bootstrap: Part[BootstrapManifest]
    config: Part[Mapping[str, Any]]
    has_policy: bool
    snapshots: tuple[SiblingSnapshot, ...] = ()
    """Snapshots of this anchor, the target included."""
    snapshots_problem: str = ""
    """Why they cannot be listed; then there may be others."""
    other_snapshots: tuple[SiblingSnapshot, ...] = ()
    """Snapshots of the other anchors of the checkpoint directory."""
    garbage: tuple[str, ...] = ()
    """`tmp_`, `trash_` and `old_` names beside the snapshots and beside the anchor."""
    foreign_markers: tuple[str, ...] = ()
    """`LATEST`, `COMMITTED` and other names beside the snapshots that belong to another schema."""
    has_legacy_buffer: bool = False
    root_kind: EntryKind = "directory"
    """What bears the anchor's name. Behind anything but a directory nothing is read."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The counters that the data plane must agree with: from the snapshot's manifest, or from a step's `training_info.json`."""

    train_step: int
    trainer_version: int
    epoch: int
    sampler_dispatch_index: int | None
    """None where an anchor does not say."""
    source: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of the run that wants to restore or save; None where nobody said."""

    config: Mapping[str, Any] | None = None
    bootstrap_manifest: BootstrapManifest | None = None
    participant_checkpointing: bool | None = None
    storage_units: int | None = None
    staging_partition: str | None = None


@dataclass(frozen=True, slots=True)
class LiveFacts:
    """What live servers said during a transaction; None where that stage was not reached.

    `restore_replies` maps a participant to (saved source id, reference it returned or None, counts it returned).
    """

    selected_boundaries: tuple[SelectedBoundary, ...] | None = None
    inventories: Mapping[str, tuple[SessionInventory, ...]] | None = None
    restore_replies: Mapping[ParticipantIdentity, Document] | None = None
    acknowledged: tuple[tuple[str, tuple[CompletionReceipt, ...], tuple[CompletionReceipt, ...]], ...] | None = None
    """(agent, sent, echoed) for each batch."""
    phases: Mapping[str, tuple[str, str | None]] | None = None
    """Server -> (phase, active checkpoint id), after the run."""
    pending_release_id: str | None = None
    discarded: tuple[tuple[str, int], ...] | None = None
    """Continuations (rollout, saved attempt) that a restore gives up: they restart from the task."""
    cleared_keys: tuple[str, ...] | None = None
    """Staging keys that a restore clears for them."""
    refusals: tuple[tuple[str, str, str], ...] | None = None
    """(server, code, detail) of every refused restore; empty when none was refused."""
    dispatches: tuple[tuple[str, int], ...] | None = None
    """Every execution (rollout, attempt) that was dispatched after a restore."""
    committed_manifests: Mapping[ParticipantIdentity, tuple[str, str, str | None]] | None = None
    """Participant -> (relative path, digest it reported, digest found here or None when there is no such file)."""
    prune: tuple[str, ...] | None = None
    """Snapshot names that a plan is about to delete."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One target. Parts that the target cannot have are `missing` (a data plane alone has only its own three)."""

    path: str
    kind: TargetKind
    name: str
    level: Level
    tree: tuple[TreeEntry, ...]
    manifest: ManifestReading
    anchor: AnchorEvidence | None
    cut: Cut | None
    config: Part[Mapping[str, Any]]
    dataloader: Part[Mapping[str, Any]]
    reserve: Part[int]
    """Value: number of zip entries; the content is never decoded."""
    replay: Part[ReplayMetadata]
    ledger: Part[Ledger]
    metadata: Part[DataPlaneMetadata]
    unit_info: Part[tuple[UnitInfo, ...]]
    controller_state: Part[ControllerState]
    units: Mapping[str, Part[StorageUnit]]
    """Every `su_*.pkl` that is listed in the info file or lies in `simple_storage/`, by file name."""
    agents: tuple[AgentEvidence, ...] = ()
    models: tuple[ModelEvidence, ...] = ()
    resources: tuple[ResourcesEvidence, ...] = ()
    capabilities: tuple[DiscoveredParticipant, ...] | None = None
    run: RunFacts = field(default_factory=RunFacts)
    live: LiveFacts = field(default_factory=LiveFacts)
    root_kind: EntryKind = "directory"
    """What the target itself is; behind a link nothing is read."""
    staged: Mapping[str, Part[StagedFacts]] | None = None
    """Every staged row that something needs and that is stored, by its key; None below level full. `path` is its storage unit."""
    unreadable_values: Mapping[tuple[str, str, int], Part[Any]] = field(default_factory=dict)
    """Level full: stored values whose bytes could not be read, by unit file name, field and index."""
    checksums: Part[ChecksumsFile] = field(default_factory=lambda: Part(CHECKSUMS_FILE, "missing"))
    digests: Mapping[str, FileDigest] = field(default_factory=dict)
    """By path: files whose bytes were digested as the checksum file has it, and files that changed while they were read."""
    publication: PublicationFacts = field(default_factory=PublicationFacts)
    """What the journal of the checkpoint directory says of it; nothing below level standard."""
    pack: Part[PackFacts] | None = None
    """Target `pack`: the container itself; what it holds is a target of its own."""
    tree_problem: str = ""
    """Why the tree could not be listed; then `tree` is empty and every part `unreadable`."""
    storage_problems: tuple[str, ...] = ()
    """What the system said of names that it did not open or list (permissions, I/O errors): reasons quote it."""

    @property
    def has_gym(self) -> bool:
        """Whether the snapshot says that it holds Gym state."""
        return self.manifest.has_gym
