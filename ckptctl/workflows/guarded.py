"""Where a file of the user must not be written: what lies there is proved by its names, and one more makes it worthless.

An answer, a bundle, a pack or a cluster may go anywhere but into an anchor, a snapshot, a data plane or a control folder.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptctl.domain.ids import (
    CONTROL_FOLDER,
    SNAPSHOT_NAME,
    SNAPSHOTS_FOLDER,
    TMP_SNAPSHOT_NAME,
    TRASH_SNAPSHOT_NAME,
)
from ckptctl.domain.safe_text import safe
from ckptctl.errors import StorageError
from ckptctl.ports import SnapshotReader
from ckptctl.workflows.load_anchor import CONFIG_FILE, MANIFEST_FILE, TRAINING_INFO_FILE
from ckptctl.workflows.targets import DATA_PLANE_FOLDER, is_anchor_name

_SNAPSHOT_NAMES = (SNAPSHOT_NAME, TMP_SNAPSHOT_NAME, TRASH_SNAPSHOT_NAME)
_POLICY = "policy"


def owner_of(reader: SnapshotReader, folder: str) -> str | None:
    """What a real, absolute folder is or lies in, in words with its path ("the snapshot `...`"); None for any other place."""
    for path in _upwards(folder):
        kind = _kind(reader, path)
        if kind is not None:
            return f"{kind} `{safe(path)}`"
    return None


def _upwards(folder: str) -> Iterator[str]:
    while folder.strip("/"):
        yield folder
        folder = folder.rpartition("/")[0]


def _kind(reader: SnapshotReader, path: str) -> str | None:
    """What one folder is: by its name where no other use is likely, else by what lies in it."""

    def holds(*names: str) -> bool:
        return any(_is_there(reader, f"{path}/{name}") for name in names)

    name = path.rpartition("/")[2]
    if name == CONTROL_FOLDER:
        return "the control folder"
    if name == SNAPSHOTS_FOLDER:
        return "the folder of snapshots"
    if name == DATA_PLANE_FOLDER or (holds("controller_state.pkl") and holds("metadata.json")):
        return "the data plane"
    if holds(DATA_PLANE_FOLDER) and holds(MANIFEST_FILE):
        return "the snapshot"
    if any(pattern.match(name) for pattern in _SNAPSHOT_NAMES) and holds(DATA_PLANE_FOLDER, MANIFEST_FILE):
        return "the snapshot"
    if holds(SNAPSHOTS_FOLDER, TRAINING_INFO_FILE):
        return "the anchor"
    if is_anchor_name(name) and holds(MANIFEST_FILE, CONFIG_FILE, _POLICY):
        return "the anchor"
    return None


def _is_there(reader: SnapshotReader, path: str) -> bool:
    try:
        return reader.kind_of(path) is not None
    except StorageError:
        return False  # whoever may not look there may not write there either
