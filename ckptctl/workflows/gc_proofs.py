"""Which snapshots `gc` knows to be valid: it judges only where something might go, newest first, until enough are known.

What lies in our trash is judged as if it were in its place, where it would be brought back to. What follows from a verdict
is `planning.gc`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from ckptctl.domain.checksums import FileDigest, FileWork
from ckptctl.domain.evidence import TreeEntry
from ckptctl.domain.finding import TargetReport
from ckptctl.domain.ids import BOOTSTRAP_FOLDER
from ckptctl.domain.retention import (
    TRASH_FOLDER,
    GcFacts,
    GcPolicy,
    ProofLevel,
    SnapshotFacts,
    TrashedFacts,
    snapshot_path,
)
from ckptctl.domain.source import ByteSource
from ckptctl.planning.gc import in_trash, is_superseded, may_leave_trash, proofs_wanted
from ckptctl.ports import SnapshotReader
from ckptctl.workflows.disorder import disorder_of
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_evidence import Known, load_target
from ckptctl.workflows.targets import snapshot_target
from ckptctl.workflows.validate import ValidateRequest, judge
from ckptctl.workflows.world import World

_DOUBT_CHARS = 200


@dataclass(frozen=True, slots=True)
class InItsPlace:
    """A reader for which one directory lies at another path. Whatever else it is asked for it reads where that is."""

    reader: SnapshotReader
    place: str
    directory: str

    def list_tree(self, root: str, *, max_depth: int | None = None) -> tuple[TreeEntry, ...]:
        """As of the port."""
        return self.reader.list_tree(self._real(root), max_depth=max_depth)

    def kind_of(self, path: str) -> str | None:
        """As of the port."""
        return self.reader.kind_of(self._real(path))

    def open_source(self, path: str) -> AbstractContextManager[ByteSource]:
        """As of the port."""
        return self.reader.open_source(self._real(path))

    def read_bytes(self, path: str, max_bytes: int) -> bytes:
        """As of the port."""
        return self.reader.read_bytes(self._real(path), max_bytes)

    def digest_files(
        self, root: str, wanted: Iterable[FileWork], advance: Callable[[int], None]
    ) -> Iterator[FileDigest]:
        """As of the port."""
        return self.reader.digest_files(self._real(root), wanted, advance)

    def _real(self, path: str) -> str:
        is_moved = path == self.place or path.startswith(f"{self.place}/")
        return f"{self.directory}{path[len(self.place) :]}" if is_moved else path


def prove(world: World, checkpoint_dir: str, facts: GcFacts, policy: GcPolicy, loader: AnchorLoader) -> GcFacts:
    """Validate where it matters; each snapshot at most once."""
    for anchor, wanted in proofs_wanted(facts, policy):
        disorder = disorder_of(checkpoint_dir, anchor, loader)
        mine = [item for item in facts.snapshots if item.anchor == anchor]
        facts = _with(facts, *(item.model_copy(update={"disorder": disorder}) for item in mine))
        is_ending = may_leave_trash(anchor, facts, policy)
        needs_more = is_ending or len(mine) > policy.keep_latest_k
        if is_superseded(facts) and (anchor == BOOTSTRAP_FOLDER or not needs_more):
            continue
        found = 0
        newest_first = sorted(mine, key=lambda item: (item.number, item.name), reverse=True)
        for item in (*newest_first, *(in_trash(anchor, facts) if is_ending else ())):
            if found == wanted:
                break
            place = f"{checkpoint_dir}/{snapshot_path(anchor, item.name)}"
            is_valid, doubt = (
                _verdict(world, place, loader, policy.level)
                if isinstance(item, SnapshotFacts)
                else _verdict_in_trash(
                    world, place, f"{checkpoint_dir}/{TRASH_FOLDER}/{item.entry}", loader, policy.level
                )
            )
            known = {"is_valid": is_valid, "doubt": doubt}
            if isinstance(item, SnapshotFacts):
                known["disorder"] = disorder
            facts = _with(facts, item.model_copy(update=known))
            found += is_valid is True
    return facts


def _with(facts: GcFacts, *changed: SnapshotFacts | TrashedFacts) -> GcFacts:
    """The facts with these in the place of what was known of the same directories."""
    snapshots = {(item.anchor, item.name): item for item in changed if isinstance(item, SnapshotFacts)}
    trashed = {item.entry: item for item in changed if isinstance(item, TrashedFacts)}
    return facts.model_copy(
        update={
            "snapshots": tuple(snapshots.get((item.anchor, item.name), item) for item in facts.snapshots),
            "trashed": tuple(trashed.get(item.entry, item) for item in facts.trashed),
        }
    )


def _verdict(world: World, path: str, loader: AnchorLoader, level: ProofLevel) -> tuple[bool | None, str | None]:
    """Whether a snapshot is valid, and if that cannot be told, why. One of another schema may be what another build needs."""
    is_valid, doubt = _judged(world, path, loader, level)
    loader.verdicts[path] = is_valid
    return is_valid, doubt


def _verdict_in_trash(
    world: World, place: str, path: str, loader: AnchorLoader, level: ProofLevel
) -> tuple[bool | None, str | None]:
    """Beside the anchors as they were read already; of the snapshot itself nothing was, and nothing is kept for the next one."""
    reader = InItsPlace(world.store, place, path)
    return _judged(world, place, replace(loader, reader=reader, readings={}, _digests={}), level)


def _judged(world: World, path: str, loader: AnchorLoader, level: ProofLevel) -> tuple[bool | None, str | None]:
    world.progress.phase("validate", path)
    loaded = load_target(loader.reader, snapshot_target(path), level, Known(), loader, world.limits)
    report = judge(loaded, ValidateRequest(paths=(path,), level=level))
    if report.verdict in {"valid", "invalid"}:
        return report.verdict == "valid", None
    return None, f"{report.verdict}: {_why(report)}"


def _why(report: TargetReport) -> str:
    for finding in report.findings:
        if finding.severity == "error":
            return finding.message[:_DOUBT_CHARS]
    return next((item.reason for item in report.outcomes if item.outcome == "could_not_run"), "not everything was read")
