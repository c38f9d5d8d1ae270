"""The evidence of a pack as a container: what was found wrong while its snapshots were read.

At level full all of it is decoded, whether or not a snapshot in it asked for it.
"""

from __future__ import annotations

from typing import Any

from ckptctl.domain.evidence import Evidence, ManifestReading, PackFacts, Part
from ckptctl.domain.finding import Coverage, Level, Unchecked
from ckptctl.ports import PackReader, SnapshotReader
from ckptctl.workflows.targets import Target


def load_pack(reader: SnapshotReader, target: Target, level: Level) -> tuple[Evidence, Coverage]:
    """The container at `target.path`. Raises StorageError when the file cannot be opened."""
    assert isinstance(reader, PackReader), "only such a reader yields a pack as a target"
    part = reader.pack_at(target.path, whole=level == "full")
    return pack_evidence(target.path, part, level), _coverage(part, level)


def pack_evidence(path: str, part: Part[PackFacts], level: Level) -> Evidence:
    """A container as a target of rules; it has no files of its own."""
    none: Part[Any] = Part("", "missing")
    return Evidence(
        path=path,
        kind="pack",
        name=path.rpartition("/")[2],
        level=level,
        tree=(),
        manifest=ManifestReading(part=none),
        anchor=None,
        cut=None,
        config=none,
        dataloader=none,
        reserve=none,
        replay=none,
        ledger=none,
        metadata=none,
        unit_info=none,
        controller_state=none,
        units={},
        pack=part,
    )


def _coverage(part: Part[PackFacts], level: Level) -> Coverage:
    checked = part.value.checked_bytes if part.value is not None else 0
    reason = f"nothing at level {level} asked for it" if part.value is not None else "the pack cannot be read"
    left = part.size_bytes - checked
    return Coverage(
        files_total=1,
        files_checked=int(checked > 0),
        bytes_total=part.size_bytes,
        bytes_checked=checked,
        unchecked=(Unchecked(path=part.path, bytes=left, reason=reason),) if left else (),
    )
