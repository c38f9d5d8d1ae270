"""The overview of a checkpoint directory: anchors with their snapshots, leftovers, trash, what is unfinished, who holds the lock.

Snapshots are judged at the wanted level; what they hold is taken from their manifests and the data plane's small
metadata file, so that an overview costs little. A control folder that cannot be read is a warning here, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import TypeVar

from ckptctl.domain.evidence import Evidence, TreeEntry
from ckptctl.domain.finding import Level, TargetReport, worst
from ckptctl.domain.ids import (
    BOOTSTRAP_FOLDER,
    CONTROL_FOLDER,
    MAX_SNAPSHOT_NUMBER,
    RESOURCES,
    SNAPSHOTS_FOLDER,
    is_uncounted,
    step_number,
)
from ckptctl.domain.inspection import (
    AnchorView,
    DirectoryInspection,
    LeftoverView,
    LockView,
    SnapshotCounts,
    SnapshotView,
    TransactionView,
    TrashedView,
)
from ckptctl.domain.manifest import AgentPayload, ResourcesPayload
from ckptctl.domain.retention import TRASH_FOLDER, is_anchor, snapshot_path
from ckptctl.errors import CkptctlError
from ckptctl.formats.tq_checkpoint import decode_metadata
from ckptctl.ports import LockHolder
from ckptctl.workflows.find_unfinished import find_unfinished
from ckptctl.workflows.gc_facts import is_durable
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_evidence import Known, load_target
from ckptctl.workflows.measure import Now, entries_of, trashed_facts, tree_bytes, untouched_s
from ckptctl.workflows.own_folders import demand_no_link
from ckptctl.workflows.pins import load_pins
from ckptctl.workflows.read_parts import PartReader
from ckptctl.workflows.targets import UNPUBLISHED, Target, anchor_targets, is_anchor_name, strays_among
from ckptctl.workflows.unfinished import finishing_command, uses_of
from ckptctl.workflows.validate import ValidateRequest, judge
from ckptctl.workflows.world import World

T = TypeVar("T")
METADATA_FILE = "data_plane/metadata.json"
PROBLEMS_SHOWN = 3
NO_ENTRIES: tuple[TreeEntry, ...] = ()


@dataclass(slots=True)
class Control:
    """What the control folder says, as far as it can be read."""

    pins: dict[str, str] = field(default_factory=dict)
    uses: dict[str, str] = field(default_factory=dict)
    unfinished: tuple[TransactionView, ...] = ()
    lock: LockView | None = None
    lock_problem: str = ""
    """Why nobody can tell who holds it."""
    warnings: list[str] = field(default_factory=list)
    obstacles: list[CkptctlError] = field(default_factory=list)
    """Of the warnings those that every command that writes stops at."""


def inspect_directory(world: World, path: str, level: Level, *, only: str | None = None) -> DirectoryInspection:
    """Describe a checkpoint directory, or the anchor `only` of it."""
    now = Now(world.clock.now_s())
    control = read_control(world, path)
    entries = entries_of(world.store, f"{path}/.")  # the directory itself may be a link
    anchors = sorted(
        (entry.path for entry in entries if is_anchor(entry.path)),
        key=lambda name: -1 if name == BOOTSTRAP_FOLDER else step_number(name) or 0,
        reverse=True,
    )
    wanted = [name for name in anchors if only in {None, name}]
    if only is not None and only not in wanted:
        wanted = [only]  # an anchor in the making, or one under another name
    loader = AnchorLoader(world.store, world.limits, world.room)
    views = tuple(_anchor(world, f"{path}/{name}", level, loader, control, now) for name in wanted)
    return DirectoryInspection(
        kind="checkpoint_dir" if only is None else "anchor",
        path=path if only is None else f"{path}/{only}",
        level=level,
        verdict=worst([view.verdict for view in views] + [item.verdict for view in views for item in view.snapshots]),
        anchors=views,
        leftovers=tuple(_leftovers(world, path, views, entries if only is None else (), control, now)),
        trash=tuple(_trash(world, path, control, now)) if only is None else (),
        unfinished=control.unfinished,
        lock=control.lock,
        lock_problem=control.lock_problem,
        warnings=tuple(control.warnings),
    )


def read_control(world: World, checkpoint_dir: str) -> Control:
    """Lock, pins and unfinished transaction. What cannot be read becomes a warning."""
    control = Control()
    _or_warn(control, lambda: demand_no_link(world.store, checkpoint_dir, (CONTROL_FOLDER,)), None, is_obstacle=True)
    if control.warnings:  # what lies behind the link is another directory's
        control.lock_problem = control.warnings[0]
        return control
    holder = _or_warn(control, world.lock.holder, None, is_obstacle=True)
    control.lock_problem = control.warnings[0] if control.warnings else ""
    if holder is not None:
        control.lock = _lock_view(holder, world.clock.now_s())
    control.pins = _or_warn(control, lambda: load_pins(world, checkpoint_dir), {})
    transaction = _or_warn(control, lambda: find_unfinished(world), None, is_obstacle=True)
    if transaction is None:
        return control
    uses = _or_warn(control, lambda: uses_of(transaction), None)
    if uses is not None:
        control.uses = dict.fromkeys(uses.paths, uses.owner)
    began_at = transaction.first.get("at")
    control.unfinished = (
        TransactionView(
            name=transaction.name,
            kind=transaction.kind,
            checkpoint_id=None if uses is None else uses.checkpoint_id,
            began_at=float(began_at) if isinstance(began_at, float | int) and isfinite(began_at) else None,
            last_step=transaction.intents[-1] if transaction.intents else None,
            uses=() if uses is None else uses.paths,
            finished_by=finishing_command(transaction),
        ),
    )
    return control


def _lock_view(holder: LockHolder, now_s: float) -> LockView:
    """An owner that is neither gone nor heard of is silent; by this host's clock, since looking writes nothing."""
    silence_s = now_s - holder.renewed_s
    return LockView(
        owner=holder.told,
        is_dead=holder.is_dead,
        renewed_at=holder.renewed_s,
        lease_s=holder.lease_s,
        silent_s=round(silence_s, 3) if silence_s > holder.lease_s and not holder.is_dead else None,
    )


def _or_warn(control: Control, read: Callable[[], T], otherwise: T, *, is_obstacle: bool = False) -> T:
    try:
        return read()
    except CkptctlError as error:
        control.warnings.append(error.message)
        control.obstacles += [error] if is_obstacle else []
        return otherwise


def _anchor(world: World, path: str, level: Level, loader: AnchorLoader, control: Control, now: Now) -> AnchorView:
    *snapshots, anchor = anchor_targets(world.store, path)
    views = [_snapshot(world, target, level, loader, control, now) for target in snapshots]
    _, report = judge_target(world, anchor, level, loader)
    found = loader.load(path)
    info = found.training_info.value
    is_bootstrap = found.kind == "bootstrap"
    return AnchorView(
        name=found.name,
        kind=found.kind,
        verdict=report.verdict,
        is_durable=found.bootstrap.value is not None if is_bootstrap else is_durable(loader, path),
        train_step=0 if is_bootstrap else None if info is None else info.current_step,
        trainer_version=0
        if is_bootstrap
        else None
        if info is None
        else info.current_step
        if info.trainer_version is None
        else info.trainer_version,
        problems=_problems(report),
        snapshots=tuple(reversed(views)),
        unlisted=found.snapshots_problem,
    )


def judge_target(world: World, target: Target, level: Level, loader: AnchorLoader) -> tuple[Evidence, TargetReport]:
    """Load and judge one target, and let the loader know what came of it."""
    if level != "quick":
        world.progress.phase("look at", target.path)
    loaded = load_target(world.store, target, level, Known(), loader, world.limits)
    report = judge(loaded, ValidateRequest(paths=(target.path,), level=level))
    loader.verdicts[target.path] = None if report.verdict == "incomplete" else report.verdict == "valid"
    return loaded.evidence, report


def _snapshot(
    world: World, target: Target, level: Level, loader: AnchorLoader, control: Control, now: Now
) -> SnapshotView:
    evidence, report = judge_target(world, target, level, loader)
    path = "/".join(target.path.rsplit("/", 3)[1:])
    files = [entry for entry in evidence.tree if entry.kind != "directory"]
    written_at = written_at_s(evidence)
    return SnapshotView(
        path=path,
        name=evidence.name,
        verdict=report.verdict,
        schema_found=report.schema_found,
        checkpoint_id=checkpoint_id_of(evidence),
        size_bytes=sum(entry.size_bytes for entry in files),
        files=len(files),
        written_at=written_at,
        age_s=None if written_at is None else now.age_s(written_at),
        counts=_counts(world, evidence),
        pinned=control.pins.get(path),
        used_by=control.uses.get(path),
        problems=_problems(report),
    )


def written_at_s(evidence: Evidence) -> float | None:
    """When the snapshot was written: its manifest comes last."""
    times = {entry.path: entry.modified_s for entry in evidence.tree}
    return times.get("manifest.json") or max(times.values(), default=None)


def checkpoint_id_of(evidence: Evidence) -> str | None:
    """The checkpoint id as the manifest has it, even where the rest of its Gym part is wrong."""
    manifest = evidence.manifest
    if manifest.manifest is not None and manifest.manifest.gym_checkpoint is not None:
        return manifest.manifest.gym_checkpoint.checkpoint_id
    gym = (manifest.raw or {}).get("gym_checkpoint")
    found = gym.get("checkpoint_id") if isinstance(gym, dict) else None
    return found if isinstance(found, str) else None


def _counts(world: World, evidence: Evidence) -> SnapshotCounts:
    manifest = evidence.manifest.manifest
    gym = manifest.gym_checkpoint if manifest is not None else None
    continuations = sessions = None
    if gym is not None:
        agents = [entry.payload for entry in gym.participants if isinstance(entry.payload, AgentPayload)]
        continuations = sum(payload.continuation_index.records for payload in agents)
        saved = [entry.payload for entry in gym.of(RESOURCES) if isinstance(entry.payload, ResourcesPayload)]
        sessions = sum(payload.sessions for payload in saved)
    metadata = evidence.metadata
    if metadata.state == "not_read":
        entries = {entry.path: entry for entry in evidence.tree if entry.path == METADATA_FILE}
        parts = PartReader(world.store, evidence.path, world.limits, entries, room=world.room)
        metadata = parts.read_document(
            METADATA_FILE, lambda data: decode_metadata(data, world.limits), world.limits.json_document_bytes
        )
    said = (metadata.value.user_metadata if metadata.value is not None else None) or {}
    return SnapshotCounts(
        groups=_count(said.get("rollout_recovery_group_count")),
        finished_groups=_count(said.get("replay_group_count")),
        continuations=continuations,
        sessions=sessions,
    )


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _problems(report: TargetReport) -> tuple[str, ...]:
    found = [f"{item.rule}: {item.message}" for item in report.findings]
    found += [
        f"{item.rule} could not run: {item.reason}" for item in report.outcomes if item.outcome == "could_not_run"
    ]
    more = (f"and {len(found) - PROBLEMS_SHOWN} more",) if len(found) > PROBLEMS_SHOWN else ()
    return (*found[:PROBLEMS_SHOWN], *more)


def _leftovers(
    world: World,
    path: str,
    anchors: tuple[AnchorView, ...],
    beside: tuple[TreeEntry, ...],
    control: Control,
    now: Now,
) -> list[LeftoverView]:
    found = [
        _leftover(world, path, snapshot_path(anchor.name, entry.path), entry, now)
        for anchor in anchors
        if not anchor.unlisted  # it says so itself
        and world.store.kind_of(f"{path}/{anchor.name}")
        == "directory"  # behind a link in its place nothing is looked at
        for entry in _beside_snapshots(world, f"{path}/{anchor.name}/{SNAPSHOTS_FOLDER}", control)
    ]
    return found + [
        _leftover(world, path, entry.path, entry, now)
        for entry in beside
        if entry.path.startswith(("tmp_step_", "old_step_")) and is_anchor_name(entry.path)
    ]


def _beside_snapshots(world: World, folder: str, control: Control) -> Iterator[TreeEntry]:
    """What lies beside snapshots and is none: unfinished, half-deleted, or called something else."""
    entries = _or_warn(control, lambda: entries_of(world.store, folder), NO_ENTRIES)
    strays = frozenset(strays_among(entries))
    yield from (entry for entry in entries if entry.path.startswith(UNPUBLISHED) or entry.path in strays)


def _leftover(world: World, root: str, path: str, entry: TreeEntry, now: Now) -> LeftoverView:
    full = f"{root}/{path}"
    return LeftoverView(
        path=path,
        what=_what_it_is(path),
        size_bytes=tree_bytes(world.store, full),
        untouched_s=untouched_s(world.store, full, entry, now),
    )


def _what_it_is(path: str) -> str:
    folder, _, name = path.rpartition("/")
    if name.startswith("tmp_snapshot_"):
        return "a snapshot that is being written, or was never finished"
    if name.startswith("trash_snapshot_"):
        return "a snapshot whose deletion was interrupted"
    if is_uncounted(name):
        return f"its number is above {MAX_SNAPSHOT_NUMBER}, so it is not counted: nothing of ours selects, judges or deletes it"
    if folder:
        return "by its name no snapshot: nothing selects, judges or deletes it"
    if name.startswith("tmp_"):
        return "a trainer checkpoint that is being written, or was never finished"
    return "the previous version of a trainer checkpoint, while it is exchanged"


def _trash(world: World, path: str, control: Control, now: Now) -> Iterator[TrashedView]:
    entries = _or_warn(control, lambda: entries_of(world.store, f"{path}/{TRASH_FOLDER}"), NO_ENTRIES)
    yield from (_trashed(world, path, entry, now) for entry in entries)


def _trashed(world: World, path: str, entry: TreeEntry, now: Now) -> TrashedView:
    facts = trashed_facts(entry.path, now)
    size_bytes = tree_bytes(world.store, f"{path}/{TRASH_FOLDER}/{entry.path}")
    return TrashedView(entry=facts.entry, state=facts.state, size_bytes=size_bytes, age_s=facts.age_s)
