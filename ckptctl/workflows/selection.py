"""Sections 1 and 2 of a restore: choose the anchor, rank its snapshots, validate them newest first. Changes nothing.

Works without any server: `restore --select` runs before a job starts them. What the run says of itself (configuration, discovered
topology, the controller's own data plane) is compared where it is known. Decisions about names and manifests are
`planning.selection`'s.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from ckptctl.domain.config import RunConfig
from ckptctl.domain.controller import ControllerStatus
from ckptctl.domain.evidence import AnchorEvidence, Evidence, RunFacts
from ckptctl.domain.finding import Finding, Level, TargetReport
from ckptctl.domain.ids import BOOTSTRAP_FOLDER, SNAPSHOTS_FOLDER, step_number
from ckptctl.domain.memory_room import MORE_MEMORY
from ckptctl.domain.participant import DiscoveredParticipant
from ckptctl.domain.restore import RejectedSnapshot, Selection
from ckptctl.domain.wrong_kind import LINKED_HINT, MISPLACED_HINT
from ckptctl.errors import (
    AnchorRefusedError,
    CkptctlError,
    IncompatibleSnapshotError,
    InvalidSnapshotError,
    NotCheckedError,
    NothingThereError,
)
from ckptctl.planning.selection import Expectation, Ranking, Rejected, newest_first, rank_candidates, worst_verdict
from ckptctl.rules import ALL_RULES
from ckptctl.rules.layout import KIND_WORDS
from ckptctl.workflows.judging import require_valid
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_evidence import Known, load_target
from ckptctl.workflows.targets import snapshot_target
from ckptctl.workflows.validate import ValidateRequest, judge, run_facts
from ckptctl.workflows.world import World

LEVEL: Level = "full"
"""What is restored is proved as far as anything can prove it (design section 4)."""
SET_UP_DIFFERENTLY = frozenset({13, 19, 20, 59})
"""Invariants whose breach means that the run is set up differently: an older snapshot would only hide that."""
UNITS = 47
"""So does a difference in the number of storage units; a unit file that is missing is damage."""
NOT_OLDER = "no older one is tried: want of memory says nothing about a snapshot"
NO_FALLBACK = "older ones are not tried (`--no-fallback`)"
UNREADABLE_HINT = "it may be whole: mend its permissions or the file system, then run the same command again"
SET_UP_HINT = "set the run up as it was when the snapshot was taken"
OTHERWISE = (
    "`ckptctl validate` tells what is wrong; to start from the trainer checkpoint alone set "
    "`rollout_checkpointing.restore_mode: trainer_checkpoint` and `gym.participant_checkpointing_enabled: false`"
)


@dataclass(frozen=True, slots=True)
class Selected:
    """A snapshot that was proved, and what it holds. Both are None when the run starts from the anchor itself."""

    selection: Selection
    evidence: Evidence | None = None
    report: TargetReport | None = None


@dataclass(frozen=True, slots=True)
class Live:
    """What the running servers say of themselves."""

    status: ControllerStatus
    capabilities: tuple[DiscoveredParticipant, ...] | None
    """None when participants take no part."""


def select_snapshot(world: World, config: RunConfig, *, falls_back: bool = True, live: Live | None = None) -> Selected:
    """Choose and validate the snapshot to restore.

    Raises:
        NothingThereError: no anchor, or no snapshot where one is needed.
        StorageError: the snapshots cannot be listed.
        AnchorRefusedError: the newest anchor cannot be used.
        IncompatibleSnapshotError, InvalidSnapshotError, NotCheckedError: every candidate was rejected; all reasons are told.
    """
    anchor_name = _newest_anchor(world, config.checkpoint_dir)
    anchors = AnchorLoader(world.store, world.limits, world.room)
    anchor = anchors.load(f"{config.checkpoint_dir}/{anchor_name}")
    if world.room.refusals:
        raise NotCheckedError(
            f"anchor `{anchor_name}` was not read whole: it needs more memory; {NOT_OLDER}", hint=MORE_MEMORY
        )
    expected = _expectation(anchor, config)
    if config.sections.rollout_checkpointing.restore_mode == "trainer_checkpoint":
        return _trainer_checkpoint(anchor, "`restore_mode` is `trainer_checkpoint`")
    folder = f"{config.checkpoint_dir}/{anchor_name}/{SNAPSHOTS_FOLDER}"
    if not anchor.snapshots:
        _demand_listing(world, folder)
        return _without_snapshots(anchor, config)
    ranking = rank_candidates(anchor.snapshots, expected)
    known = Known(capabilities=live.capabilities if live else None, run=_run_facts(config, live))
    return _Candidates(world, anchor_name, folder, ranking, _Judge(world, anchors, known)).first_valid(falls_back)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Loads and judges candidates with everything that is known of the run."""

    world: World
    anchors: AnchorLoader
    known: Known

    def __call__(self, path: str) -> tuple[Evidence, TargetReport]:
        self.world.progress.phase("validate", path)
        loaded = load_target(
            self.world.store, snapshot_target(path), LEVEL, self.known, self.anchors, self.world.limits
        )
        return loaded.evidence, judge(loaded, ValidateRequest(paths=(path,), level=LEVEL))


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The ranked snapshots of one anchor."""

    world: World
    anchor: str
    folder: str
    ranking: Ranking
    judged: _Judge

    def first_valid(self, falls_back: bool) -> Selected:
        """The newest that is valid. Raises as `select_snapshot`."""
        rejected = list(self.ranking.rejected)
        hint: str | None = OTHERWISE
        for name in self.ranking.names:
            path = f"{self.folder}/{name}"
            refusals = self.world.room.refusals
            evidence, report = self.judged(path)
            try:
                require_valid(report)
            except CkptctlError as error:
                if report.verdict == "incomplete" and self.world.room.refusals > refusals:
                    raise NotCheckedError(f"{error.message}; {NOT_OLDER}", hint=MORE_MEMORY) from error
                stops = any(_is_set_up(finding) for finding in report.findings)
                reason = error.message.removeprefix(f"`{report.path}` is ")
                rejected.append(Rejected(name=name, verdict=report.verdict, reason=reason, stops=stops))
                hint = error.hint
                if stops or not falls_back:
                    raise self._nothing_fits(rejected, hint, "" if stops else NO_FALLBACK) from error
                continue
            selection = Selection(anchor=self.anchor, snapshot=path, rejected=self._told(rejected))
            return Selected(selection, evidence, report)
        raise self._nothing_fits(rejected, hint if len(rejected) == 1 else OTHERWISE, "")

    def _nothing_fits(self, rejected: list[Rejected], hint: str | None, why_no_more: str) -> CkptctlError:
        """The error that tells every reason."""
        verdict = worst_verdict(rejected)
        kinds = {"invalid": InvalidSnapshotError, "incompatible": IncompatibleSnapshotError}
        told = "; ".join(f"`{item.name}`: {item.reason}" for item in newest_first(rejected))
        if any(item.stops for item in rejected):
            hint, why_no_more = SET_UP_HINT, "no older one is tried: the run is set up differently"
        end = f"; {why_no_more}" if why_no_more else ""
        message = f"no snapshot of `{self.anchor}` can be restored: {told}{end}"
        return kinds.get(verdict, NotCheckedError)(message, hint=hint)

    def _told(self, rejected: list[Rejected]) -> tuple[RejectedSnapshot, ...]:
        return tuple(
            RejectedSnapshot(
                snapshot=f"{self.anchor}/{SNAPSHOTS_FOLDER}/{item.name}", verdict=item.verdict, reason=item.reason
            )
            for item in newest_first(rejected)
        )


def _is_set_up(finding: Finding) -> bool:
    """Whether a finding says that the run is set up differently, and nothing about this snapshot."""
    invariant = next((rule.invariant for rule in ALL_RULES if rule.id == finding.rule), None)
    return finding.severity == "error" and (
        invariant in SET_UP_DIFFERENTLY or (invariant == UNITS and finding.incompatible)
    )


def _run_facts(config: RunConfig, live: Live | None) -> RunFacts:
    """What the configuration says, and the running data plane where there is one."""
    facts = run_facts(config.raw)
    if live is None:
        return facts
    return replace(facts, storage_units=live.status.storage_units, staging_partition=live.status.staging_partition)


def _newest_anchor(world: World, checkpoint_dir: str) -> str:
    """The highest step; otherwise bootstrap. One that is no directory is never passed over.

    Raises:
        NothingThereError: there is none.
        AnchorRefusedError: it is no directory.
    """
    try:
        entries = world.store.list_tree(checkpoint_dir, max_depth=1)
    except FileNotFoundError:
        entries = ()
    kinds = {entry.path: entry.kind for entry in entries}
    steps = [(number, name) for name in kinds if (number := step_number(name)) is not None]
    newest = max(steps)[1] if steps else BOOTSTRAP_FOLDER
    if newest in kinds:
        if kinds[newest] != "directory":
            raise _no_directory(newest, "it", kinds[newest])
        return newest
    raise NothingThereError(
        f"`{checkpoint_dir}` holds no anchor (`step_N` or `bootstrap`): this is a fresh start",
        hint="start the run without a restore",
    )


def _expectation(anchor: AnchorEvidence, config: RunConfig) -> Expectation:
    """What a snapshot of this anchor must say. Raises AnchorRefusedError."""
    if anchor.kind == "bootstrap":
        manifest = anchor.bootstrap.value
        if manifest is None:
            raise AnchorRefusedError(
                f"anchor `{anchor.name}` cannot be used: {anchor.bootstrap.reason}",
                hint=UNREADABLE_HINT
                if anchor.bootstrap.state == "unreadable"
                else "the run must write its bootstrap manifest first; is this the right checkpoint directory?",
            )
        step, version, fingerprint = 0, 0, manifest.bootstrap_fingerprint
    else:
        info = anchor.training_info.value
        if info is None:
            raise AnchorRefusedError(
                f"anchor `{anchor.name}` cannot be used: {anchor.training_info.reason}",
                hint=UNREADABLE_HINT
                if anchor.training_info.state == "unreadable"
                else "it was not completely written; move it away to use the step before it",
            )
        step, fingerprint = anchor.number, None
        version = info.trainer_version if info.trainer_version is not None else anchor.number
    return Expectation(
        anchor=anchor.name,
        train_step=step,
        trainer_version=version,
        bootstrap_fingerprint=fingerprint,
        participant_checkpointing=config.takes_participants,
    )


def _no_directory(anchor: str, what: str, kind: str) -> AnchorRefusedError:
    return AnchorRefusedError(
        f"anchor `{anchor}` cannot be used: {what} is {KIND_WORDS[kind]}, not a directory; no older one is tried",
        hint=LINKED_HINT if kind == "symlink" else MISPLACED_HINT,
    )


def _demand_listing(world: World, folder: str) -> None:
    """A folder that cannot be looked into is not an empty one. Raises StorageError, AnchorRefusedError."""
    kind = world.store.kind_of(folder) or "directory"
    if kind != "directory":
        raise _no_directory(folder.split("/")[-2], f"its `{SNAPSHOTS_FOLDER}`", kind)
    with suppress(FileNotFoundError):
        world.store.list_tree(folder, max_depth=1)


def _without_snapshots(anchor: AnchorEvidence, config: RunConfig) -> Selected:
    """An anchor alone: enough for a step without Gym state. Raises NothingThereError."""
    if config.takes_participants:
        raise NothingThereError(
            f"anchor `{anchor.name}` has no snapshot, and the run needs one with Gym state",
            hint="start the servers without a restore; the rollouts begin anew from that anchor",
        )
    if anchor.kind == "bootstrap":
        raise NothingThereError(
            f"anchor `{anchor.name}` has no snapshot: this is a fresh start", hint="start the run without a restore"
        )
    return _trainer_checkpoint(anchor, f"anchor `{anchor.name}` has no snapshot")


def _trainer_checkpoint(anchor: AnchorEvidence, why: str) -> Selected:
    if anchor.kind == "bootstrap":
        raise AnchorRefusedError(
            f"{why}, but there is no trainer checkpoint: only the bootstrap anchor exists",
            hint="start the run afresh, or restore a bootstrap snapshot with `restore_mode: latest`",
        )
    reason = f"{why}: the run starts from the trainer checkpoint alone"
    return Selected(Selection(anchor=anchor.name, snapshot=None, reason=reason))
