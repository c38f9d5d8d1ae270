"""The wishes of `gc` that concern one snapshot: bring it back from the trash, pin it, unpin it. The caller holds the lock."""

from __future__ import annotations

from shlex import quote

from ckptctl import __version__
from ckptctl.domain.ids import SNAPSHOTS_FOLDER, snapshot_number
from ckptctl.domain.retention import (
    GOING_PREFIX,
    TRASH_FOLDER,
    GcResult,
    is_anchor,
    snapshot_path,
    trashed_snapshot,
)
from ckptctl.domain.safe_text import safe
from ckptctl.errors import NothingThereError, RefusedError, UsageError
from ckptctl.workflows.gc_facts import require_checkpoint_dir
from ckptctl.workflows.measure import entries_of
from ckptctl.workflows.pins import load_pins, pins_hint, remove_pin, write_pin
from ckptctl.workflows.targets import absolute
from ckptctl.workflows.transaction import Recorder
from ckptctl.workflows.world import World


def undelete(world: World, checkpoint_dir: str, name: str) -> GcResult:
    """Bring a snapshot back. `name`: an entry of the trash, or the snapshot's own path or name where only one is meant.

    Raises:
        NothingThereError, UsageError: nothing, or several things, fit.
        RefusedError: its place is taken or gone, or its deletion has begun.
    """
    if not name.strip("/ "):
        raise UsageError("an empty name names nothing in the trash", hint=_trash_hint(checkpoint_dir))
    entry, anchor, snapshot = _require_entry(world, checkpoint_dir, name)
    path = snapshot_path(anchor, snapshot)
    if world.store.kind_of(f"{checkpoint_dir}/{anchor}") != "directory":
        raise RefusedError(
            f"`{entry}` belongs to anchor `{anchor}`, which is gone", hint="without its anchor it cannot be restored"
        )
    if world.store.kind_of(f"{checkpoint_dir}/{path}") is not None:
        raise RefusedError(
            f"`{path}` exists: a newer snapshot took that number",
            hint=f"move it away, or look at the old one where it is: `{checkpoint_dir}/{TRASH_FOLDER}/{entry}`",
        )
    recorder = _recorder(world, {"undelete": entry, "snapshot": path})
    world.store.make_directory(f"{checkpoint_dir}/{anchor}/{SNAPSHOTS_FOLDER}")
    world.store.rename(f"{checkpoint_dir}/{TRASH_FOLDER}/{entry}", f"{checkpoint_dir}/{path}")
    recorder.finish("undeleted")
    warning = f"the next `ckptctl gc` may move it away again: `ckptctl gc --pin {path} --reason TEXT` keeps it"
    return GcResult(outcome="undeleted", checkpoint_dir=checkpoint_dir, snapshot=path, warnings=(warning,))


def pin(world: World, checkpoint_dir: str, snapshot: str, reason: str) -> GcResult:
    """Keep a snapshot whatever retention says. Raises NothingThereError, UsageError."""
    path = _require_snapshot(world, checkpoint_dir, snapshot)
    if world.store.kind_of(f"{checkpoint_dir}/{path}") != "directory":
        raise NothingThereError(f"there is no snapshot `{path}`", hint=_trash_hint(checkpoint_dir))
    recorder = _recorder(world, {"pin": path, "reason": reason})
    write_pin(world, checkpoint_dir, path, reason)
    recorder.finish("pinned")
    return GcResult(outcome="pinned", checkpoint_dir=checkpoint_dir, snapshot=path)


def unpin(world: World, checkpoint_dir: str, snapshot: str) -> GcResult:
    """Take a pin away; of a snapshot that is gone too. Raises NothingThereError, UsageError."""
    path = _require_snapshot(world, checkpoint_dir, snapshot)
    if path not in load_pins(world, checkpoint_dir):
        raise NothingThereError(f"`{path}` is not pinned", hint=pins_hint(checkpoint_dir))
    recorder = _recorder(world, {"unpin": path})
    remove_pin(world, checkpoint_dir, path)
    recorder.finish("unpinned")
    return GcResult(outcome="unpinned", checkpoint_dir=checkpoint_dir, snapshot=path)


def _trash_hint(checkpoint_dir: str) -> str:
    return f"`ckptctl inspect {quote(safe(checkpoint_dir))}` lists the snapshots, and what is in the trash"


def _recorder(world: World, facts: dict[str, str]) -> Recorder:
    begin = {"schema_version": 1, "tool_version": __version__, **facts}
    recorder = Recorder(world, world.journal.begin("gc", begin))
    recorder.is_lenient = True
    return recorder


def _require_entry(world: World, checkpoint_dir: str, name: str) -> tuple[str, str, str]:
    """The entry of the trash that `name` means, with its anchor and its snapshot's name."""
    try:
        entries = world.store.list_tree(f"{checkpoint_dir}/{TRASH_FOLDER}", max_depth=1)
    except FileNotFoundError:
        entries = ()
    bare = name.rstrip("/").rpartition("/")[2]
    if any(entry.path in {f"{GOING_PREFIX}{bare}", bare} and entry.path.startswith(GOING_PREFIX) for entry in entries):
        raise RefusedError(f"the deletion of `{safe(name)}` has begun: it is not whole any more", hint=None)
    found = [
        (entry.path, place[1], place[2])
        for entry in entries
        if (place := trashed_snapshot(entry.path)) is not None
        and (entry.path == bare or _means(name, place[1], place[2]))
    ]
    if not found:
        visible = _in_its_place(world, checkpoint_dir, name)
        if visible is not None:
            raise NothingThereError(f"`{visible}` is not in the trash: it is in its place", hint=None)
        raise NothingThereError(f"nothing in the trash is called `{safe(name)}`", hint=_trash_hint(checkpoint_dir))
    if len(found) > 1:
        told = ", ".join(f"`{entry}`" for entry, _, _ in found)
        raise UsageError(f"`{safe(name)}` may be any of {told}", hint="give the whole name")
    return found[0]


def _in_its_place(world: World, checkpoint_dir: str, name: str) -> str | None:
    """The snapshot that `name` means where none of that name is in the trash, but one is published (brought back before?)."""
    whole = trashed_snapshot(name)
    for anchor in require_checkpoint_dir(world, checkpoint_dir):
        for entry in entries_of(world.store, f"{checkpoint_dir}/{anchor}/{SNAPSHOTS_FOLDER}"):
            is_meant = whole is not None and whole[1:] == (anchor, entry.path)
            if snapshot_number(entry.path) is not None and (is_meant or _means(name, anchor, entry.path)):
                return snapshot_path(anchor, entry.path)
    return None


def _means(name: str, anchor: str, snapshot: str) -> bool:
    """Whether a person who writes `name` means that snapshot: its name, or its path with or without the folder between."""
    path = name.rstrip("/")
    return path == snapshot or any(
        path == full or path.endswith(f"/{full}") for full in (snapshot_path(anchor, snapshot), f"{anchor}/{snapshot}")
    )


def _require_snapshot(world: World, checkpoint_dir: str, text: str) -> str:
    """The path, relative to the checkpoint directory, that `text` means: any path to it, `step_1/snapshot_000001`, or a name."""
    hint = f"for example `step_1/{SNAPSHOTS_FOLDER}/snapshot_000001`"
    path = text.rstrip("/")
    if path.startswith("/"):
        if not path.startswith(f"{checkpoint_dir}/"):
            raise UsageError(f"`{safe(text)}` does not lie in `{safe(checkpoint_dir)}`", hint=hint)
        path = path[len(checkpoint_dir) + 1 :]
    else:
        full = _from_here(path)
        path = full[len(checkpoint_dir) + 1 :] if full.startswith(f"{checkpoint_dir}/") else path
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if len(parts) == 3 and parts[1] == SNAPSHOTS_FOLDER:
        del parts[1]
    if len(parts) == 2 and is_anchor(parts[0]) and snapshot_number(parts[1]) is not None:
        return snapshot_path(*parts)
    if len(parts) == 1 and snapshot_number(parts[0]) is not None:
        anchors = require_checkpoint_dir(world, checkpoint_dir)
        found = [
            path for anchor in anchors if _is_there(world, checkpoint_dir, path := snapshot_path(anchor, parts[0]))
        ]
        if len(found) == 1:
            return found[0]
        if len(found) > 1:
            told = ", ".join(f"`{path}`" for path in found)
            raise UsageError(f"`{parts[0]}` may be any of {told}", hint="give the anchor too")
        raise NothingThereError(f"no anchor has a snapshot `{parts[0]}`", hint=hint)
    raise UsageError(f"`{safe(text)}` is no snapshot of `{safe(checkpoint_dir)}`", hint=hint)


def _from_here(path: str) -> str:
    """The path as one below the working directory; as it is where it leads nowhere from there."""
    try:
        return absolute(path)
    except NothingThereError:
        return path


def _is_there(world: World, checkpoint_dir: str, path: str) -> bool:
    return world.store.kind_of(f"{checkpoint_dir}/{path}") is not None
