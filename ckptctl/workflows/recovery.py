"""Finish what an interrupted run left, before anything else is begun: any command that writes does this first (design
section 5).

Decided by `planning.recovery` from the journal and the disk. A published snapshot is released; a staged one is
published by `publish`, if it validates; everything else is aborted. Always under the checkpoint id that the journal
recorded.
"""

from __future__ import annotations

import asyncio

from ckptctl.domain.config import OwnSection, RunConfig
from ckptctl.domain.digest import sha256_of
from ckptctl.domain.finding import Level
from ckptctl.domain.plan import Plan
from ckptctl.domain.transaction import SnapshotFacts, TransactionResult
from ckptctl.errors import (
    AdmissionClosedError,
    CkptctlError,
    ReleasePendingError,
    StorageError,
)
from ckptctl.planning import snapshot as steps
from ckptctl.planning.publish import MANIFEST_FILE
from ckptctl.planning.recovery import DiskFacts, Transaction, decide, stages_of
from ckptctl.workflows.find_unfinished import find_unfinished
from ckptctl.workflows.load_config import require_own
from ckptctl.workflows.publication import Publication
from ckptctl.workflows.release import Release
from ckptctl.workflows.restore_run import finish_restore
from ckptctl.workflows.transaction import Recorder, execute
from ckptctl.workflows.world import World

LEVEL: Level = "standard"


async def finish_unfinished(world: World, config: RunConfig, *, may_publish: bool) -> TransactionResult | None:
    """Finish the interrupted transaction and say what became of it; None when there is none.

    Raises:
        ReleasePendingError: the snapshot is published, but somebody is still held.
        AdmissionClosedError: the attempt is undone, or the restore continued, as far as possible, but somebody may still be held.
    """
    transaction = find_unfinished(world)
    if transaction is None:
        return None
    if transaction.kind == "restore":
        return await finish_restore(world, config, transaction)
    facts = transaction.facts()
    assert facts is not None, "what is found can be read"
    decision = decide(transaction, disk_facts(world, config.checkpoint_dir, facts), may_publish=may_publish)
    recovery = _Recovery(world, config, require_own(config), transaction, facts)
    world.progress.phase("recovery", f"{transaction.name}: {decision}")
    if decision == "publish":
        problem = await recovery.publish()
        if problem is not None:
            return await recovery.abort(f"it does not validate: {problem.message}")
        released = await recovery.release()
        return released.model_copy(update={"outcome": "published", "reason": "an interrupted run had left it staged"})
    if decision == "release":
        return await recovery.release()
    return await recovery.abort("it was interrupted before its snapshot was complete")


def disk_facts(world: World, checkpoint_dir: str, facts: SnapshotFacts) -> DiskFacts:
    """What lies where a transaction wrote."""
    try:
        with world.store.open_source(f"{checkpoint_dir}/{facts.final}/{MANIFEST_FILE}") as source:
            digest: str | None = sha256_of(source)
    except FileNotFoundError:
        digest = None
    except StorageError:
        digest = "unreadable"
    return DiskFacts(world.store.kind_of(f"{checkpoint_dir}/{facts.staged}") is not None, digest)


class _Recovery:
    """The three ways to finish one transaction."""

    def __init__(
        self, world: World, config: RunConfig, own: OwnSection, transaction: Transaction, facts: SnapshotFacts
    ) -> None:
        self._world = world
        self._config = config
        self._own = own
        self._facts = facts
        self._recorder = Recorder(
            world, world.journal.resume(transaction.name), synced=(steps.WRITE_CHECKSUMS, steps.PUBLISH)
        )
        self._recorder.note("recovery")

    async def publish(self) -> CkptctlError | None:
        """Validate and publish; the error when it does not validate."""
        facts = self._facts
        work = Publication(
            world=self._world,
            checkpoint_dir=self._config.checkpoint_dir,
            anchor=facts.anchor,
            staged=facts.staged,
            final=facts.final,
            level=LEVEL,
            keep_latest_k=self._config.sections.rollout_checkpointing.keep_latest_k,
        )
        plan = steps.plan_publish(facts.checkpoint_id, facts.staged, facts.final)
        try:
            await execute(plan, work.actions(), self._recorder, done=(steps.WRITE_MANIFEST,))
        except StorageError:
            raise  # the disk may be mended; nothing is given up for it
        except CkptctlError as error:
            return error
        return None

    async def release(self) -> TransactionResult:
        """Release everybody of a published snapshot. Whoever renamed it may have died before its name was durable.

        Raises:
            StorageError: it cannot be made durable; the disk may be mended, so nothing is given up.
        """
        self._recorder.is_lenient = True
        facts = self._facts
        folder = f"{self._config.checkpoint_dir}/{facts.final}".rpartition("/")[0]
        await asyncio.to_thread(self._world.store.sync_names, folder)
        release = self._release("released")
        await release.run(steps.plan_release(facts.checkpoint_id, stages_of(facts)), self._recorder)
        path = f"{self._config.checkpoint_dir}/{facts.final}"
        if release.failures:
            raise release_pending(path, release)
        self._recorder.finish("released")
        reason = "an interrupted run had left it: everybody is released now"
        return self._result("released", reason, path)

    async def abort(self, why: str) -> TransactionResult:
        """Undo the attempt. What the journal does not show may have happened all the same, so everybody is resumed."""
        self._recorder.is_lenient = True
        facts = self._facts
        release = self._release("aborted")
        plan: Plan = steps.plan_abort(
            facts.checkpoint_id, (*steps.PREPARED_BY, steps.ALLOCATE), stages_of(facts), facts.staged
        )
        await release.run(plan, self._recorder)
        if release.failures:
            raise admission_closed(release, None)
        self._recorder.finish("aborted", reason=why)
        return self._result("aborted", f"an interrupted run had left it: {why}", None)

    def _release(self, outcome: str) -> Release:
        return Release(
            world=self._world,
            checkpoint_id=self._facts.checkpoint_id,
            outcome="released" if outcome == "released" else "aborted",
            deadline_ts=self._world.clock.now_s() + self._own.control_timeout_s,
            servers=frozenset(self._own.urls()),
            left_by_instance=self._facts.controller_instance_id,
            staged_path=f"{self._config.checkpoint_dir}/{self._facts.staged}",
        )

    def _result(self, outcome: str, reason: str, snapshot: str | None) -> TransactionResult:
        return TransactionResult(
            outcome="released" if outcome == "released" else "aborted",
            checkpoint_id=self._facts.checkpoint_id,
            snapshot=snapshot,
            anchor=self._facts.anchor,
            reason=reason,
            steps=tuple(self._recorder.times),
        )


def release_pending(path: str, release: Release) -> ReleasePendingError:
    """The snapshot is durable, its release is not done."""
    return ReleasePendingError(
        f"snapshot `{path}` is published, but not everybody was released under `{release.checkpoint_id}`; "
        f"admission stays closed: {release.told()}",
        hint="mend what is named, then run `ckptctl publish`: it repeats the release under the same id",
        cause=next(iter(release.failures.values())),
    )


def admission_closed(release: Release, cause: BaseException | None) -> AdmissionClosedError:
    """The attempt failed and could not be undone completely."""
    return AdmissionClosedError(
        f"attempt `{release.checkpoint_id}` was aborted, but not everybody was released; "
        f"admission stays closed: {release.told()}",
        hint="mend what is named, then run `ckptctl publish`: it repeats the release under the same id",
        cause=cause or next(iter(release.failures.values())),
    )
