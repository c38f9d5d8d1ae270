"""Whether the numbers of an anchor's snapshots tell which is newer: not where the journal published one under another name.

Whoever deletes older ones asks first: `gc`, and the retention at the end of every publication.
"""

from __future__ import annotations

from dataclasses import replace

from ckptctl.domain.digest import blake3_hex
from ckptctl.domain.ids import CHECKSUMS_FILE
from ckptctl.domain.retention import snapshot_path
from ckptctl.errors import StorageError
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_publications import Identity


def disorder_of(checkpoint_dir: str, anchor: str, loader: AnchorLoader) -> str | None:
    """Which snapshot of an anchor was published under another name; by its id, or without one by its checksum file."""
    for item in loader.siblings(f"{checkpoint_dir}/{anchor}"):
        path = f"{checkpoint_dir}/{snapshot_path(anchor, item.name)}"
        found = Identity(item.checkpoint_id is not None, item.checkpoint_id, None)
        if item.checkpoint_id is None:
            found = replace(found, checksums_blake3=_own_digest(loader, path))
        there = loader.publication_of(path, found).elsewhere
        if there is not None:
            return f"`{item.name}` was published as `{there.snapshot}`"
    return None


def _own_digest(loader: AnchorLoader, path: str) -> str | None:
    try:
        return blake3_hex(loader.reader.read_bytes(f"{path}/{CHECKSUMS_FILE}", loader.limits.checksums_bytes))
    except (FileNotFoundError, StorageError):
        return None
