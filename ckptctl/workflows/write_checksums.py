"""The checksum file of a staged directory that was judged valid: composed of the digests of that very reading, and written last.

What an interrupted run left is handled here too. A checksum file that lies there already was judged like every other file, so it
agrees with what was read; it is written anew all the same, since the time and the version in it are those of who publishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ckptctl import __version__
from ckptctl.domain.checksums import CHECKSUMS_SCHEMA, Checksums, FileChecksum, FileDigest
from ckptctl.domain.digest import blake3_hex
from ckptctl.domain.evidence import Evidence, TreeEntry
from ckptctl.domain.ids import CHECKSUMS_FILE, TORN_WRITE_NAME
from ckptctl.domain.safe_text import safe
from ckptctl.errors import InvalidSnapshotError, StorageError
from ckptctl.formats.checksums_file import encode_checksums
from ckptctl.planning.checksum_pass import unlistable
from ckptctl.ports import SnapshotReader, SnapshotStore
from ckptctl.workflows.load_publications import CHECKPOINT_KEY, CHECKSUMS_KEY
from ckptctl.workflows.world import World

_CHANGED_HINT = "something still writes into the staged directory; stop it and try again"
_NAME_HINT = "delete what does not belong, then try again"


def checksums_of(evidence: Evidence, now_s: float) -> Checksums:
    """The checksums of a directory that was loaded with a digest of every file.

    Raises:
        InvalidSnapshotError: a name or a kind that no checksum file can hold, or a file that changed while it was read.
        StorageError: a file that could not be read.
    """
    refused = unlistable(evidence.tree)
    if refused is not None:
        name, why = refused
        raise InvalidSnapshotError(f"`{safe(name)}` cannot be published: {why}", hint=_NAME_HINT)
    files = [entry.path for entry in evidence.tree if entry.kind == "file" and entry.path != CHECKSUMS_FILE]
    digests = {path: _demand_digest(evidence, path) for path in files}
    manifest = evidence.manifest.manifest
    gym = manifest.gym_checkpoint if manifest is not None else None
    return Checksums(
        schema_version=CHECKSUMS_SCHEMA,
        tool_version=__version__,
        checkpoint_id=gym.checkpoint_id if gym is not None else None,
        created_at=datetime.fromtimestamp(int(now_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        files={
            path: FileChecksum(blake3=found.blake3 or "", bytes=found.size_bytes) for path, found in digests.items()
        },
    )


def write_checksums(world: World, path: str, checksums: Checksums) -> Mapping[str, Any]:
    """Write the checksum file into the staged directory; what the journal keeps of it.

    Raises:
        InvalidSnapshotError: the directory is not the one any more that was validated, or holds too many files.
        StorageError: it cannot be written.
    """
    data = encode_checksums(checksums)
    if len(data) > world.limits.checksums_bytes:
        what = f"its {len(checksums.files)} files make a checksum file of {len(data)} bytes"
        most = f"more than the {world.limits.checksums_bytes} that are read"
        raise InvalidSnapshotError(f"`{path}` cannot be published: {what}, {most}", hint=None)
    _demand_unchanged(world.store, path, checksums)
    world.store.write_file(f"{path}/{CHECKSUMS_FILE}", data)
    return {
        "files": len(checksums.files),
        "bytes": sum(found.bytes for found in checksums.files.values()),
        CHECKPOINT_KEY: checksums.checkpoint_id,
        CHECKSUMS_KEY: blake3_hex(data),
    }


def remove_torn_writes(store: SnapshotStore, path: str) -> None:
    """Delete what a write of ours left in the directory itself when it was killed: no checksum file shall list that."""
    for entry in _listed(store, path, max_depth=1):
        if entry.kind == "file" and TORN_WRITE_NAME.match(entry.path):
            store.remove_tree(f"{path}/{entry.path}")


def _demand_digest(evidence: Evidence, path: str) -> FileDigest:
    found = evidence.digests.get(path)
    if found is None or found.problem:
        raise StorageError(operation="read", path=path, detail=found.problem if found is not None else "nobody read it")
    if found.changed:
        raise InvalidSnapshotError(f"`{path}` changed while it was validated: {found.changed}", hint=_CHANGED_HINT)
    return found


def _listed(reader: SnapshotReader, path: str, max_depth: int | None = None) -> tuple[TreeEntry, ...]:
    """What lies there; nothing when the directory is gone, which whoever needs it says."""
    try:
        return reader.list_tree(path, max_depth=max_depth)
    except FileNotFoundError:
        return ()


def _demand_unchanged(reader: SnapshotReader, path: str, checksums: Checksums) -> None:
    """Look once more, right before it becomes final: the same names with the same sizes."""
    listed = {
        entry.path: entry.size_bytes
        for entry in _listed(reader, path)
        if entry.kind != "directory" and entry.path != CHECKSUMS_FILE
    }
    for name in sorted(listed.keys() ^ checksums.files.keys()):
        change = "appeared" if name in listed else "is gone"
        raise InvalidSnapshotError(f"`{safe(name)}` {change} after it was validated", hint=_CHANGED_HINT)
    for name, found in checksums.files.items():
        if listed[name] != found.bytes:
            what = f"`{name}` had {found.bytes} bytes when it was validated and has {listed[name]} now"
            raise InvalidSnapshotError(what, hint=_CHANGED_HINT)
