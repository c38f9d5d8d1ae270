"""Looks at a checkpoint directory for `gc`: snapshots, leftovers, our trash, pins, unfinished transactions, the clock.

Changes nothing (to learn the file system's time it makes a file for a moment, and only where an age is to be told, or
something may be given a date).
What may go is `planning.gc`'s business, which snapshots are valid that of `gc_proofs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ckptctl.domain.evidence import TreeEntry
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
    TrashedFacts,
    is_anchor,
    snapshot_path,
)
from ckptctl.errors import JournalDamagedError, NothingThereError, RefusedError, UsageError
from ckptctl.planning.gc import proofs_wanted
from ckptctl.workflows.find_unfinished import find_unfinished
from ckptctl.workflows.gc_proofs import prove
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.measure import (
    Now,
    Trace,
    ask_file_system,
    entries_of,
    newest_record,
    trashed_facts,
    untouched_s,
)
from ckptctl.workflows.own_folders import demand_real_folders
from ckptctl.workflows.pins import load_pins
from ckptctl.workflows.unfinished import finishing_command, uses_of
from ckptctl.workflows.world import World


@dataclass(frozen=True, slots=True)
class Observed:
    """What was found, before and after it was validated."""

    facts: GcFacts
    loader: AnchorLoader
    now: Now
    warnings: tuple[str, ...]
    is_writable: bool = True
    """Whether a file could be made, where that was tried."""


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


def observe(world: World, checkpoint_dir: str, policy: GcPolicy, *, is_busy: bool = False) -> Observed:
    """Everything that the plan depends on. `is_busy`: somebody else holds the lock and is at work, so nothing was interrupted.

    Raises:
        NothingThereError, UsageError: it is no checkpoint directory.
        RefusedError: an unfinished transaction cannot be read, so nobody knows what it uses.
        StorageError: something cannot be listed.
    """
    anchors = require_checkpoint_dir(world, checkpoint_dir)
    loader = AnchorLoader(world.store, world.limits, world.room)
    uses, warnings = _uses(world, is_busy=is_busy)
    pins = load_pins(world, checkpoint_dir)
    listed = {name: entries_of(world.store, f"{checkpoint_dir}/{name}/{SNAPSHOTS_FOLDER}") for name in anchors}
    trash = entries_of(world.store, f"{checkpoint_dir}/{TRASH_FOLDER}")
    published = {
        snapshot_path(anchor, entry.path): (anchor, entry)
        for anchor, found in listed.items()
        for entry in found
        if snapshot_number(entry.path) is not None and entry.kind in {"directory", "symlink"}
    }
    snapshots = tuple(_snapshot(anchor, entry.path, pins, uses) for anchor, entry in published.values())
    has_dates = bool(trash) or any(_is_leftover(item.path) for found in listed.values() for item in found)
    is_asked = has_dates or bool(proofs_wanted(GcFacts(snapshots=snapshots), policy))
    latest = max(published, key=lambda path: published[path][1].modified_s, default=None)
    now = Now(
        world.clock.now_s(),
        ask_file_system(world, checkpoint_dir) if is_asked else None,
        newest_record(world),
        None if latest is None else Trace(published[latest][1].modified_s, f"the time of `{latest}`"),
    )
    facts = GcFacts(
        snapshots=snapshots,
        leftovers=tuple(
            _leftover(world, f"{checkpoint_dir}/{anchor}/{SNAPSHOTS_FOLDER}", entry, uses, now)
            for anchor, found in listed.items()
            for entry in found
            if _is_leftover(entry.path)
        ),
        trashed=tuple(_trashed(entry.path, pins, now) for entry in trash),
        anchors=anchors,
        durable_steps=tuple(
            name for name in anchors if name != BOOTSTRAP_FOLDER and is_durable(loader, f"{checkpoint_dir}/{name}")
        ),
    )
    return Observed(
        facts=prove(world, checkpoint_dir, facts, policy, loader),
        loader=loader,
        now=now,
        is_writable=not is_asked or now.file_system_s is not None,
        warnings=(*warnings, *(() if now.is_believed else (now.doubt(),)), *_idle_pins(pins, facts)),
    )


def is_durable(loader: AnchorLoader, path: str) -> bool:
    """Whether a step was published whole: its training info says that it is this step, and its weights are there."""
    anchor = loader.load(path)
    info = anchor.training_info.value
    return info is not None and info.current_step == anchor.number and anchor.has_policy


def _uses(world: World, *, is_busy: bool) -> tuple[dict[str, str], tuple[str, ...]]:
    """Path -> the unfinished transaction that refers to it, and what to say of that transaction."""
    try:
        unfinished = find_unfinished(world)
    except JournalDamagedError as error:
        raise RefusedError(f"{error.message}: nobody knows which snapshot it uses", hint=error.hint) from error
    if unfinished is None:
        return {}, ()
    uses = uses_of(unfinished)
    command = finishing_command(unfinished)
    warning = (
        f"transaction `{unfinished.name}` is under way: what it uses stays"
        if is_busy
        else f"transaction `{unfinished.name}` was interrupted: what it uses stays; `{command}` finishes it"
    )
    return dict.fromkeys(uses.paths, uses.owner), (warning,)


def _idle_pins(pins: Mapping[str, str], facts: GcFacts) -> tuple[str, ...]:
    """What to say of pins that keep nothing: somebody believes that they do."""
    there = {snapshot_path(item.anchor, item.name) for item in facts.snapshots}
    trashed = {snapshot_path(item.anchor, item.name) for item in facts.trashed if item.state == "whole"}
    return tuple(
        f"`{path}` is pinned, but is {'in the trash' if path in trashed else 'not there'}: "
        f"`ckptctl gc --{'undelete' if path in trashed else 'unpin'} {path}`"
        for path in sorted(pins.keys() - there)
    )


def _snapshot(anchor: str, name: str, pins: Mapping[str, str], uses: Mapping[str, str]) -> SnapshotFacts:
    path = snapshot_path(anchor, name)
    return SnapshotFacts(
        anchor=anchor,
        name=name,
        number=snapshot_number(name) or 0,
        pin_reason=pins.get(path),
        used_by=uses.get(path),
    )


def _trashed(entry: str, pins: Mapping[str, str], now: Now) -> TrashedFacts:
    found = trashed_facts(entry, now)
    is_whole = found.state == "whole"
    reason = pins.get(snapshot_path(found.anchor, found.name)) if is_whole else None
    return found.model_copy(update={"pin_reason": reason})


def _is_leftover(name: str) -> bool:
    return TMP_SNAPSHOT_NAME.match(name) is not None or TRASH_SNAPSHOT_NAME.match(name) is not None


def _leftover(world: World, folder: str, entry: TreeEntry, uses: Mapping[str, str], now: Now) -> LeftoverFacts:
    anchor = folder.split("/")[-2]
    is_tmp = TMP_SNAPSHOT_NAME.match(entry.path) is not None
    return LeftoverFacts(
        anchor=anchor,
        name=entry.path,
        kind="tmp" if is_tmp else "trash",
        age_s=untouched_s(world.store, f"{folder}/{entry.path}", entry, now),
        used_by=uses.get(snapshot_path(anchor, entry.path)),
    )


def _folders(world: World, path: str) -> tuple[str, ...]:
    return tuple(entry.path for entry in world.store.list_tree(path, max_depth=1) if entry.kind == "directory")
