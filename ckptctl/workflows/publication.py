"""Steps 7 and 8: prove the staged directory on exactly the bytes to be published, make it durable, make it visible.

Used by the snapshot transaction and by `publish`. Before the rename any failure is an error; after it nothing here
is: the snapshot is durable, whatever happens next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ckptctl.domain.checksums import Checksums
from ckptctl.domain.finding import Level, TargetReport
from ckptctl.domain.ids import MAX_SNAPSHOT_NUMBER, SNAPSHOTS_FOLDER, is_uncounted, snapshot_number
from ckptctl.domain.participant import DiscoveredParticipant
from ckptctl.domain.plan import Step
from ckptctl.domain.retention import TRASH_FOLDER, GcFacts, GcPlan, GcPolicy, snapshot_path, trash_entry
from ckptctl.domain.retention import SnapshotFacts as RetainedSnapshot
from ckptctl.errors import CkptctlError, DeadlineError, PublicationUnseenError, RefusedError, StorageError
from ckptctl.planning import snapshot as steps
from ckptctl.planning.gc import plan_gc
from ckptctl.rules import ALL_RULES
from ckptctl.workflows.disorder import disorder_of
from ckptctl.workflows.judging import judge_staged, require_valid
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_publications import CHECKSUMS_KEY
from ckptctl.workflows.measure import Now, ask_file_system
from ckptctl.workflows.ownership import demand_ownership
from ckptctl.workflows.pins import load_pins
from ckptctl.workflows.transaction import Action
from ckptctl.workflows.world import World
from ckptctl.workflows.write_checksums import checksums_of, remove_torn_writes, write_checksums

WRITING = "this snapshot was being written"
LOOKS_AFTER_RENAME = 3
"""How often it is looked for after a rename that failed."""
REUSED_ID = 90
"""Invariant: a checkpoint id belongs to one snapshot."""


@dataclass(slots=True)
class Publication:
    """One staged directory on its way to its final name. Paths of snapshots are relative to the checkpoint directory."""

    world: World
    checkpoint_dir: str
    anchor: str
    staged: str
    final: str
    level: Level
    keep_latest_k: int
    capabilities: tuple[DiscoveredParticipant, ...] | None = None
    deadline_ts: float | None = None
    """From outside; publication does not begin after it."""
    demands_new_id: bool = False
    """For a directory that no journal knows: a copy of a published snapshot must not become the newest one."""
    removed: tuple[str, ...] = ()
    checksums: Checksums | None = None
    """Of what was validated; written before it is published."""
    checksums_blake3: str = ""
    on_published: Callable[[], None] = lambda: None

    def actions(self) -> dict[str, Action]:
        """What steps 7 and 8 do."""
        return {
            steps.VALIDATE: partial(_validate, self),
            steps.WRITE_CHECKSUMS: partial(_write_checksums, self),
            steps.SYNC: partial(_sync, self),
            steps.PUBLISH: partial(_publish, self),
            steps.RETAIN: partial(_retain, self),
        }

    @property
    def staged_path(self) -> str:
        """Absolute."""
        return f"{self.checkpoint_dir}/{self.staged}"

    @property
    def final_path(self) -> str:
        """Absolute."""
        return f"{self.checkpoint_dir}/{self.final}"


async def _validate(work: Publication, _: Step) -> Mapping[str, Any]:
    _demand_time(work)
    await asyncio.to_thread(remove_torn_writes, work.world.store, work.staged_path)
    world = work.world
    judged = await asyncio.to_thread(
        judge_staged, world.store, work.staged_path, work.level, work.capabilities, world.room
    )
    report = judged.report
    require_valid(report, world.room)
    if work.demands_new_id:
        _refuse_copy(report)
    work.checksums = checksums_of(judged.evidence, work.world.clock.now_s())
    warnings = sum(finding.count for finding in report.findings)
    coverage = report.coverage
    return {"level": work.level, "warnings": warnings, "files": coverage.files_checked, "bytes": coverage.bytes_checked}


def _refuse_copy(report: TargetReport) -> None:
    """Raise RefusedError when the checkpoint id is that of a published snapshot (invariant 90)."""
    reused = {rule.id for rule in ALL_RULES if rule.invariant == REUSED_ID}
    for finding in report.findings:
        if finding.rule in reused:
            raise RefusedError(
                f"{finding.rule}: {finding.message}",
                hint="a copy of a published snapshot is no new one; `ckptctl gc --undelete NAME` brings a deleted one back",
            )


async def _write_checksums(work: Publication, _: Step) -> Mapping[str, Any]:
    assert work.checksums is not None, "validation comes first"
    facts = await asyncio.to_thread(write_checksums, work.world, work.staged_path, work.checksums)
    work.checksums_blake3 = facts[CHECKSUMS_KEY]
    return facts


async def _sync(work: Publication, _: Step) -> None:
    await asyncio.to_thread(work.world.store.sync_tree, work.staged_path)


async def _publish(work: Publication, _: Step) -> Mapping[str, Any]:
    """The commit point. Asked last: is there time left, and is the directory still ours."""
    _demand_time(work)
    demand_ownership(work.world, work.checkpoint_dir, doing=WRITING, outcome="this one publishes nothing")
    _rename(work)
    work.on_published()
    return {"snapshot": work.final, CHECKSUMS_KEY: work.checksums_blake3}


def _rename(work: Publication) -> None:
    """Make it visible for good. A name that cannot be made durable is taken back: who believed in it would delete older ones.

    A disk that fails may not even show what became of the rename: then it is taken back as well, and looked at again.

    Raises:
        PublicationUnseenError: nobody can say whether it is visible.
        StorageError: nothing is visible.
    """
    store, folder = work.world.store, work.final_path.rpartition("/")[0]
    try:
        store.rename(work.staged_path, work.final_path)
    except StorageError as error:
        is_renamed: bool | None = None
        for _ in range(LOOKS_AFTER_RENAME):
            is_renamed = _is_renamed(work)
            if is_renamed is False:
                raise
            if is_renamed:
                with suppress(StorageError):
                    store.sync_names(folder)
                    return
            with suppress(StorageError):
                store.rename(work.final_path, work.staged_path)
        if is_renamed is None:
            raise PublicationUnseenError(path=work.final_path, detail=error.detail, cause=error) from error
        work.world.notice(f"`{work.final_path}` is published, but may not survive a power failure: {error.message}")


def _is_renamed(work: Publication) -> bool | None:
    """What the disk shows; None where it shows nothing."""
    store = work.world.store
    try:
        return store.kind_of(work.final_path) is not None and store.kind_of(work.staged_path) is None
    except StorageError:
        return None


async def _retain(work: Publication, _: Step) -> Mapping[str, Any]:
    """Move what is beyond `keep_latest_k` out of sight; a failure is told and left to the next run."""
    removed: list[str] = []
    try:
        going = (await asyncio.to_thread(_retention, work)).of("trash")
        date_s = (
            int(Now(work.world.clock.now_s(), ask_file_system(work.world, work.checkpoint_dir)).earliest_s)
            if going
            else 0
        )
        for item in going:
            demand_ownership(
                work.world, work.checkpoint_dir, doing="older snapshots were moved", outcome="it does that"
            )
            _move_to_trash(work, item.path, date_s)
            removed.append(item.path)
    except CkptctlError as error:
        work.world.notice(f"older snapshots were not removed: {error.message}")
    work.removed = tuple(removed)
    return {"removed": removed}


def _retention(work: Publication) -> GcPlan:
    """The one just published was validated, so the newest valid one stays whatever the others are (invariant 95).

    Where one was renamed, nobody can tell by the numbers which is older: then all of them stay, as with `gc`.
    """
    published = work.final.rpartition("/")[2]
    pins = load_pins(work.world, work.checkpoint_dir)
    facts = [
        RetainedSnapshot(
            anchor=work.anchor,
            name=name,
            number=snapshot_number(name) or 0,
            is_valid=True if name == published else None,
            pin_reason=pins.get(snapshot_path(work.anchor, name)),
        )
        for name in _counted(_names(work.world, work.checkpoint_dir, work.anchor))
    ]
    policy = GcPolicy(keep_latest_k=work.keep_latest_k)
    plan = plan_gc(GcFacts(snapshots=tuple(facts)), policy)
    if not plan.of("trash"):
        return plan
    disorder = disorder_of(work.checkpoint_dir, work.anchor, AnchorLoader(work.world.store, work.world.limits))
    if disorder is None:
        return plan
    work.world.notice(
        f"older snapshots of `{work.anchor}` stay: {disorder}, so their numbers do not tell which is newer"
    )
    return plan_gc(GcFacts(snapshots=tuple(item.model_copy(update={"disorder": disorder}) for item in facts)), policy)


def _move_to_trash(work: Publication, path: str, date_s: int) -> None:
    store = work.world.store
    entry = trash_entry(date_s, work.anchor, path.rpartition("/")[2])
    store.make_directory(f"{work.checkpoint_dir}/{TRASH_FOLDER}")
    store.rename(f"{work.checkpoint_dir}/{path}", f"{work.checkpoint_dir}/{TRASH_FOLDER}/{entry}")


def snapshot_names(world: World, checkpoint_dir: str, anchor: str) -> tuple[str, ...]:
    """Names of the published snapshots of an anchor; of one that is not counted is warned."""
    names = _names(world, checkpoint_dir, anchor)
    for name in names:
        if is_uncounted(name):
            world.notice(
                f"`{snapshot_path(anchor, name)}` is not counted, no snapshot has a number above {MAX_SNAPSHOT_NUMBER}; "
                "NeMo-RL would take it for the newest: move it away"
            )
    return _counted(names)


def _names(world: World, checkpoint_dir: str, anchor: str) -> tuple[str, ...]:
    try:
        entries = world.store.list_tree(f"{checkpoint_dir}/{anchor}/{SNAPSHOTS_FOLDER}", max_depth=1)
    except FileNotFoundError:
        return ()
    return tuple(entry.path for entry in entries)


def _counted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if snapshot_number(name) is not None)


def _demand_time(work: Publication) -> None:
    if work.deadline_ts is not None and work.world.clock.now_s() >= work.deadline_ts:
        last = "the bound was given from outside, and it is not published yet"
        raise DeadlineError(server="ckptctl", operation="publication", last=last)
