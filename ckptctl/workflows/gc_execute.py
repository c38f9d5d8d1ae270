"""Execute a `gc` plan as data: each item on its own, a failure of one never stops the others.

Before anything is deleted it is renamed to where nobody takes it for something whole: a snapshot into our trash, an
entry of the trash (or a `tmp_` or `trash_`) to a name that says it is going. Deleting goes on from there in the next run
if it was interrupted. Somebody who deletes the same at the same time is no error. With an archive an item that cannot
be packed stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckptctl.domain.ids import BOOTSTRAP_FOLDER
from ckptctl.domain.retention import (
    GOING_PREFIX,
    TRASH_FOLDER,
    GcDone,
    GcItem,
    GcPlan,
    snapshot_path,
    trash_entry,
    trashed_snapshot,
)
from ckptctl.errors import BusyError, StorageError
from ckptctl.planning.gc import is_superseded
from ckptctl.ports import JournalWriter
from ckptctl.workflows.gc_archive import Packer, Packing
from ckptctl.workflows.gc_facts import Observed
from ckptctl.workflows.measure import tree_bytes
from ckptctl.workflows.world import World


class Collector:
    """One plan on its way. Without a journal (`writer`) it works all the same."""

    def __init__(
        self,
        world: World,
        checkpoint_dir: str,
        plan: GcPlan,
        observed: Observed,
        writer: JournalWriter | None = None,
        packer: Packer | None = None,
    ) -> None:
        self._world = world
        self._checkpoint_dir = checkpoint_dir
        self._plan = plan
        self._observed = observed
        self._writer = writer
        self._packer = packer
        self._has_failed = False

    def foresee(self) -> tuple[GcDone, ...]:
        """What `run` would do, for a dry run."""
        return tuple(
            self._done(item, "kept") if item.action == "keep" else self._foreseen(item) for item in self._plan.items
        )

    def run(self) -> tuple[GcDone, ...]:
        """Do it. Raises BusyError when the lock was lost on the way; what is left is the next run's."""
        return tuple(self._done(item, "kept") if item.action == "keep" else self._go(item) for item in self._plan.items)

    def finish(self) -> None:
        """Record how it ended."""
        self._record({"event": "finish", "outcome": "incomplete" if self._has_failed else "collected"}, sync=True)

    def _go(self, item: GcItem) -> GcDone:
        self._demand_lock()
        packing = None if self._packer is None else self._packer.plan(item)
        planned = self._planned(item, packing)
        if planned.outcome == "failed":
            self._has_failed = True
            return planned
        try:
            if packing is not None and packing.path is not None and not packing.is_there:
                self._pack(item, packing)
            self._world.progress.phase(item.action, item.path)
            self._record({"event": "intent", "step": item.action, "path": item.path})
            done = self._trash(item, planned) if item.action == "trash" else self._delete(item, planned)
        except StorageError as error:
            done = planned.model_copy(update={"outcome": "failed", "problem": error.message})
        self._has_failed |= done.outcome == "failed"
        self._record(
            {
                "event": "outcome",
                "step": item.action,
                "path": item.path,
                "outcome": done.outcome,
                "problem": done.problem,
            }
        )
        return done

    def _demand_lock(self) -> None:
        if not self._world.lock.is_owner():
            raise BusyError(
                f"the lock of `{self._checkpoint_dir}` was taken over while it was being collected",
                hint="another ckptctl is at work there; run the same command again when it has ended",
            )

    def _pack(self, item: GcItem, packing: Packing) -> None:
        """Pack one item; it takes long, so the lock is asked for again."""
        assert self._packer is not None, "only a packer plans a packing"
        self._world.progress.phase("pack", item.path)
        self._record({"event": "intent", "step": "pack", "path": item.path, "targets": [packing.path]})
        self._packer.pack(item, packing)
        self._record({"event": "outcome", "step": "pack", "path": item.path})
        self._demand_lock()

    def _foreseen(self, item: GcItem) -> GcDone:
        return self._planned(item, None if self._packer is None else self._packer.foresee(item))

    def _planned(self, item: GcItem, packing: Packing | None) -> GcDone:
        """What is about to be done with an item that goes, the packing before it included."""
        planned = self._done(item, "planned")
        if packing is None:
            return planned
        facts = {"reasons": (*planned.reasons, packing.reason), "pack": packing.path}
        if packing.problem:
            facts |= {"outcome": "failed", "problem": packing.problem}
        return planned.model_copy(update=facts)

    def _trash(self, item: GcItem, planned: GcDone) -> GcDone:
        anchor, _, rest = item.path.partition("/")
        lost = self._lost_copy(anchor)
        if lost is not None:
            return self._left(planned, lost)
        entry = self._free_entry(anchor, rest.rpartition("/")[2])
        moved = self._move(item.path, f"{TRASH_FOLDER}/{entry}")
        return planned.model_copy(update={"outcome": "moved", "trash_entry": entry} if moved else {"outcome": "gone"})

    def _left(self, planned: GcDone, lost: str) -> GcDone:
        problem = f"`{lost}`, the valid snapshot that was to stay, is gone: run the same command again"
        return planned.model_copy(update={"outcome": "failed", "problem": problem})

    def _delete(self, item: GcItem, planned: GcDone) -> GcDone:
        path, name = item.path, item.path.rpartition("/")[2]
        if item.kind in {"tmp", "trash"}:
            anchor = path.partition("/")[0]
            path = f"{TRASH_FOLDER}/{self._free_entry(anchor, name, GOING_PREFIX)}"
        elif item.kind == "trashed" and not name.startswith(GOING_PREFIX):
            found = trashed_snapshot(name)
            lost = None if found is None else self._lost_copy(found[1])
            if lost is not None:
                return self._left(planned, lost)
            path = f"{TRASH_FOLDER}/{GOING_PREFIX}{name}"
        if path != item.path and not self._move(item.path, path):
            return planned.model_copy(update={"outcome": "gone"})
        self._world.store.remove_tree(self._full(path))
        is_held = self._world.store.kind_of(self._full(path)) is not None
        return planned.model_copy(update={"outcome": "held_open" if is_held else "deleted"})

    def _move(self, source: str, target: str) -> bool:
        """Rename within the checkpoint directory. Returns whether there was anything: somebody else may have been quicker."""
        store = self._world.store
        if store.kind_of(self._full(source)) is None:
            return False
        store.make_directory(self._full(TRASH_FOLDER))
        try:
            store.rename(self._full(source), self._full(target))
        except StorageError:
            if store.kind_of(self._full(source)) is None and store.kind_of(self._full(target)) is None:
                return False
            raise
        return True

    def _lost_copy(self, anchor: str) -> str | None:
        """A valid snapshot that stays by plan and lets others of the anchor go, but is not there any more: upstream or a person
        deleted it. Of bootstrap, once a durable step supersedes it, any of those steps' will do.
        """
        facts, going = self._observed.facts, {item.path for item in self._plan.of("trash")}
        by_steps = anchor == BOOTSTRAP_FOLDER and is_superseded(facts)
        staying = [
            path
            for item in facts.snapshots
            if item.anchor in (facts.durable_steps if by_steps else (anchor,)) and item.is_valid
            if (path := snapshot_path(item.anchor, item.name)) not in going
        ]
        lost = [path for path in staying if self._world.store.kind_of(self._full(path)) is None]
        return lost[0] if lost and (not by_steps or len(lost) == len(staying)) else None

    def _free_entry(self, anchor: str, name: str, prefix: str = "") -> str:
        """A name in our trash. Its date is never too early: that would shorten the grace period."""
        now_s = int(max(self._world.clock.now_s(), self._observed.now.earliest_s))
        while True:
            entry = prefix + trash_entry(now_s, anchor, name)
            if self._world.store.kind_of(self._full(f"{TRASH_FOLDER}/{entry}")) is None:
                return entry
            now_s += 1

    def _done(self, item: GcItem, outcome: str) -> GcDone:
        facts = {**item.model_dump(), "outcome": outcome}
        return GcDone.model_validate(
            {
                **facts,
                "size_bytes": None if item.action == "keep" else tree_bytes(self._world.store, self._full(item.path)),
            }
        )

    def _record(self, record: Mapping[str, Any], *, sync: bool = False) -> None:
        if self._writer is None:
            return
        try:
            self._writer.append(record, sync=sync)
        except StorageError as error:
            self._world.notice(f"the journal could not be written: {error.message}")
            self._writer = None

    def _full(self, path: str) -> str:
        return f"{self._checkpoint_dir}/{path}"
