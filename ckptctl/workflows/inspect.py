"""`inspect PATH`: what lies there, described for people and programs; nothing is executed, followed or changed.

Which description a path gets is decided here; they are made by `inspect_directory`, `inspect_snapshot` and `inspect_live`.
"""

from __future__ import annotations

from ckptctl.domain.evidence import TreeEntry
from ckptctl.domain.finding import Level
from ckptctl.domain.ids import CONTROL_FOLDER, SNAPSHOTS_FOLDER
from ckptctl.domain.inspection import DataPlaneInspection, DirectoryInspection, SnapshotInspection
from ckptctl.errors import NothingThereError
from ckptctl.workflows.inspect_directory import inspect_directory
from ckptctl.workflows.inspect_snapshot import inspect_data_plane, inspect_snapshot
from ckptctl.workflows.measure import entries_of
from ckptctl.workflows.targets import Target, find_targets, is_anchor_name
from ckptctl.workflows.world import World

Inspection = DirectoryInspection | SnapshotInspection | DataPlaneInspection


def run_inspection(world: World, path: str, level: Level | None = None) -> Inspection:
    """Describe an absolute path. Without a level a directory is judged at `quick`, one thing in depth at `standard`.

    Raises:
        NothingThereError: there is nothing, or nothing that could be described.
        UsageError: it is something else.
        StorageError: it cannot be listed.
    """
    if path.rpartition("/")[2] == SNAPSHOTS_FOLDER and is_anchor_name(_above(path).rpartition("/")[2]):
        path = _above(path)
    targets = _targets(world, path)
    if len(targets) == 1 and targets[0].kind == "snapshot" and targets[0].path == path:
        return inspect_snapshot(world, targets[0], level or "standard")
    if len(targets) == 1 and targets[0].kind == "data_plane":
        return inspect_data_plane(world, targets[0], level or "standard")
    if targets and targets[-1].path == path:
        return inspect_directory(world, _above(path), level or "quick", only=path.rpartition("/")[2])
    return inspect_directory(world, path, level or "quick")


def checkpoint_dir_of(path: str) -> str:
    """The checkpoint directory in which an absolute path lies, as far as names tell."""
    parts = path.split("/")
    for place, part in enumerate(parts):
        if place and (is_anchor_name(part) or part == CONTROL_FOLDER):
            return "/".join(parts[:place]) or "/"
    return path


def _targets(world: World, path: str) -> tuple[Target, ...]:
    try:
        return find_targets(world.store, path)
    except NothingThereError:
        # A run that has only begun has no anchor yet, but perhaps a lock, a trash or something unfinished.
        if not any(_is_control(entry) for entry in entries_of(world.store, f"{path}/.")):
            raise
        return ()


def _is_control(entry: TreeEntry) -> bool:
    return entry.path == CONTROL_FOLDER and entry.kind == "directory"


def _above(path: str) -> str:
    return path.rpartition("/")[0]
