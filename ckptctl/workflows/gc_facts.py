"""Looks at a checkpoint directory for `gc`: snapshots, leftovers, our trash, pins, unfinished transactions, the clock.

Changes nothing (to learn the file system's time it makes a file for a moment, and only where there is an age to tell).
What may go is `planning.gc`'s business. Snapshots are validated only where something might go, newest first, until enough
valid ones are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ckptctl.domain.evidence import TreeEntry
from ckptctl.domain.finding import Level, TargetReport
from ckptctl.domain.ids import (
    BOOTSTRAP_FOLDER,
    CONTROL_FOLDER,
    SNAPSHOTS_FOLDER,
    TMP_SNAPSHOT_NAME,
    TRASH_SNAPSHOT_NAME,
    snapshot_number,
)
from ckptctl.domain.retention import (
    TRASH_FOLDER,
    GcFacts,
    GcPolicy,
    LeftoverFacts,
    SnapshotFacts,
    is_anchor,
    snapshot_path,
)
from ckptctl.errors import JournalDamagedError, NothingThereError, RefusedError, UsageError
from ckptctl.planning.gc import is_superseded, proofs_wanted
from ckptctl.workflows.disorder import disorder_of
from ckptctl.workflows.find_unfinished import find_unfinished
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_evidence import Known, load_target
from ckptctl.workflows.measure import Now, ask_file_system, entries_of, trashed_facts, untouched_s
from ckptctl.workflows.own_folders import demand_real_folders
from ckptctl.workflows.pins import load_pins
from ckptctl.workflows.targets import snapshot_target
from ckptctl.workflows.unfinished import finishing_command, uses_of
from ckptctl.workflows.validate import ValidateRequest, judge
from ckptctl.workflows.world import World

LEVEL: Level = "standard"
_DOUBT_CHARS = 200


@dataclass(frozen=True, slots=True)
class Observed:
    """What was found, before and after it was validated."""

    facts: GcFacts
    loader: AnchorLoader
    now: Now
    warnings: tuple[str, ...]


def require_checkpoint_dir(world: World, path: str) -> tuple[str, ...]:
    """The names of the anchors in a checkpoint directory; none is fine where ckptctl has been at work.

    Raises:
        NothingThereError, UsageError: it is no checkpoint directory.
    """
    hint = "give the directory that holds the anchors (`step_N`, `bootstrap`)"
    kind = world.store.kind_of(path)
    if kind is None:
        raise NothingThereError(f"no such path: `{path}`", hint=hint)
    name = path.rpartition("/")[2]
    is_inside = is_anchor(name) or name == SNAPSHOTS_FOLDER or snapshot_number(name) is not None
    if kind not in {"directory", "symlink"} or is_inside:
        raise UsageError(f"`{path}` is no checkpoint directory", hint=hint)
    try:
        entries = _folders(world, path)
    except FileNotFoundError:
        raise NothingThereError(f"`{path}` leads nowhere", hint=hint) from None
    anchors = tuple(name for name in entries if is_anchor(name))
    demand_real_folders(world.store, path)
    if not anchors and CONTROL_FOLDER not in entries:
        raise NothingThereError(f"`{path}` holds no anchor", hint=hint)
    return anchors


def observe(world: World, checkpoint_dir: str, policy: GcPolicy) -> Observed:
    """Everything that the plan depends on.

    Raises:
        NothingThereError, UsageError: it is no checkpoint directory.
        RefusedError: an unfinished transaction cannot be read, so nobody knows what it uses.
        StorageError: something cannot be listed.
    """
    anchors = require_checkpoint_dir(world, checkpoint_dir)
    loader = AnchorLoader(world.store, world.limits, world.room)
    uses, warnings = _uses(world)
    pins = load_pins(world, checkpoint_dir)
    listed = {name: entries_of(world.store, f"{checkpoint_dir}/{name}/{SNAPSHOTS_FOLDER}") for name in anchors}
    trash = entries_of(world.store, f"{checkpoint_dir}/{TRASH_FOLDER}")
    has_ages = bool(trash) or any(TMP_SNAPSHOT_NAME.match(item.path) for found in listed.values() for item in found)
    now = Now(world.clock.now_s(), ask_file_system(world, checkpoint_dir) if has_ages else None)
    facts = GcFacts(
        snapshots=tuple(
            _snapshot(anchor, entry.path, pins, uses)
            for anchor, found in listed.items()
            for entry in found
            if snapshot_number(entry.path) is not None and entry.kind in {"directory", "symlink"}
        ),
        leftovers=tuple(
            _leftover(world, f"{checkpoint_dir}/{anchor}/{SNAPSHOTS_FOLDER}", entry, uses, now)
            for anchor, found in listed.items()
            for entry in found
            if TMP_SNAPSHOT_NAME.match(entry.path) or TRASH_SNAPSHOT_NAME.match(entry.path)
        ),
        trashed=tuple(trashed_facts(entry.path, now) for entry in trash),
        durable_steps=tuple(
            name for name in anchors if name != BOOTSTRAP_FOLDER and is_durable(loader, f"{checkpoint_dir}/{name}")
        ),
    )
    return Observed(
        facts=_prove(world, checkpoint_dir, facts, policy, loader),
        loader=loader,
        now=now,
        warnings=(*warnings, *(() if now.is_believed else (now.doubt(),))),
    )


def is_durable(loader: AnchorLoader, path: str) -> bool:
    """Whether a step was published whole: its training info says that it is this step, and its weights are there."""
    anchor = loader.load(path)
    info = anchor.training_info.value
    return info is not None and info.current_step == anchor.number and anchor.has_policy


def _prove(world: World, checkpoint_dir: str, facts: GcFacts, policy: GcPolicy, loader: AnchorLoader) -> GcFacts:
    """Validate where it matters; each snapshot at most once."""
    disorder = {anchor: disorder_of(checkpoint_dir, anchor, loader) for anchor, _ in proofs_wanted(facts, policy)}
    known = {
        (item.anchor, item.name): item.model_copy(update={"disorder": disorder.get(item.anchor)})
        for item in facts.snapshots
    }
    for anchor, wanted in proofs_wanted(facts, policy):
        so_far = facts.model_copy(update={"snapshots": tuple(known.values())})
        is_crowded = sum(item.anchor == anchor for item in facts.snapshots) > policy.keep_latest_k
        if is_superseded(so_far) and (anchor == BOOTSTRAP_FOLDER or not is_crowded):
            continue
        mine = sorted(
            (item for item in known.values() if item.anchor == anchor),
            key=lambda item: (item.number, item.name),
            reverse=True,
        )
        found = 0
        for item in mine:
            if found == wanted:
                break
            path = f"{checkpoint_dir}/{snapshot_path(anchor, item.name)}"
            world.progress.phase("validate", path)
            is_valid, doubt = _verdict(world, path, loader)
            known[anchor, item.name] = item.model_copy(update={"is_valid": is_valid, "doubt": doubt})
            found += is_valid is True
    return facts.model_copy(update={"snapshots": tuple(known.values())})


def _verdict(world: World, path: str, loader: AnchorLoader) -> tuple[bool | None, str | None]:
    """Whether a snapshot is valid, and if that cannot be told, why. One of another schema may be what another build needs."""
    loaded = load_target(world.store, snapshot_target(path), LEVEL, Known(), loader, world.limits)
    report = judge(loaded, ValidateRequest(paths=(path,), level=LEVEL))
    is_told = report.verdict in {"valid", "invalid"}
    loader.verdicts[path] = report.verdict == "valid" if is_told else None
    return (report.verdict == "valid", None) if is_told else (None, f"{report.verdict}: {_why(report)}")


def _why(report: TargetReport) -> str:
    for finding in report.findings:
        if finding.severity == "error":
            return finding.message[:_DOUBT_CHARS]
    return next((item.reason for item in report.outcomes if item.outcome == "could_not_run"), "not everything was read")


def _uses(world: World) -> tuple[dict[str, str], tuple[str, ...]]:
    """Path -> the unfinished transaction that refers to it, and what to say of that transaction."""
    try:
        unfinished = find_unfinished(world)
    except JournalDamagedError as error:
        raise RefusedError(f"{error.message}: nobody knows which snapshot it uses", hint=error.hint) from error
    if unfinished is None:
        return {}, ()
    uses = uses_of(unfinished)
    command = finishing_command(unfinished)
    warning = f"transaction `{unfinished.name}` was interrupted: what it uses stays; `{command}` finishes it"
    return dict.fromkeys(uses.paths, uses.owner), (warning,)


def _snapshot(anchor: str, name: str, pins: Mapping[str, str], uses: Mapping[str, str]) -> SnapshotFacts:
    path = snapshot_path(anchor, name)
    return SnapshotFacts(
        anchor=anchor,
        name=name,
        number=snapshot_number(name) or 0,
        pin_reason=pins.get(path),
        used_by=uses.get(path),
    )


def _leftover(world: World, folder: str, entry: TreeEntry, uses: Mapping[str, str], now: Now) -> LeftoverFacts:
    anchor = folder.split("/")[-2]
    is_tmp = TMP_SNAPSHOT_NAME.match(entry.path) is not None
    return LeftoverFacts(
        anchor=anchor,
        name=entry.path,
        kind="tmp" if is_tmp else "trash",
        age_s=untouched_s(world.store, f"{folder}/{entry.path}", entry, now) if is_tmp else None,
        used_by=uses.get(snapshot_path(anchor, entry.path)),
    )


def _folders(world: World, path: str) -> tuple[str, ...]:
    return tuple(entry.path for entry in world.store.list_tree(path, max_depth=1) if entry.kind == "directory")
