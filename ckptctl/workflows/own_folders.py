"""Folders below the checkpoint directory that must be real ones, for every command that writes; those that only look follow none
in the control folder.

A symbolic link there would lead what is written, renamed or deleted to another place, perhaps to another file system,
where a rename is no rename. The checkpoint directory itself, and whatever lies above it, may be a link. Looked at
before anything is changed; what is exchanged afterwards the store notices, which follows no link below its root.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptctl.domain.ids import CONTROL_FOLDER, SNAPSHOTS_FOLDER
from ckptctl.domain.retention import PINS_FOLDER, TRASH_FOLDER, is_anchor
from ckptctl.domain.wrong_kind import MISPLACED_HINT
from ckptctl.errors import RefusedError
from ckptctl.ports import SnapshotReader
from ckptctl.rules.layout import KIND_WORDS

JOURNAL_FOLDER = f"{CONTROL_FOLDER}/journal"


def demand_real_folders(reader: SnapshotReader, checkpoint_dir: str) -> None:
    """Our own folders, every anchor, and its folder of snapshots. Raises RefusedError, StorageError."""
    anchors = [entry.path for entry in reader.list_tree(checkpoint_dir, max_depth=1) if is_anchor(entry.path)]
    folders = [path for name in anchors for path in (name, f"{name}/{SNAPSHOTS_FOLDER}")]
    demand_no_link(reader, checkpoint_dir, (CONTROL_FOLDER, JOURNAL_FOLDER, TRASH_FOLDER, PINS_FOLDER, *folders))
    for path in folders:
        kind = reader.kind_of(f"{checkpoint_dir}/{path}") or "directory"
        if kind != "directory":
            raise RefusedError(
                f"`{checkpoint_dir}/{path}` is {KIND_WORDS[kind]}, where a directory belongs: nothing was changed",
                hint=MISPLACED_HINT,
            )


def demand_no_link(reader: SnapshotReader, checkpoint_dir: str, folders: Iterable[str]) -> None:
    """None of these folders is a link. Raises RefusedError, StorageError."""
    for path in folders:
        if reader.kind_of(f"{checkpoint_dir}/{path}") == "symlink":
            raise RefusedError(
                f"`{checkpoint_dir}/{path}` is a symbolic link, and none is followed there: nothing was changed",
                hint="put the directory itself there; to keep it elsewhere, let `checkpointing.checkpoint_dir` lead there",
            )
