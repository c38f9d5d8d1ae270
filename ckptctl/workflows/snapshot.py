"""`snapshot`: one coordinated snapshot, from closing admission to release (design section 5).

Before step 2 an error is what it is. From step 2 on the outcome decides: an attempt that failed is aborted under the
same id and raises AttemptAbortedError, or AdmissionClosedError when not everybody could be released; once the
snapshot is published, only its release can fail (ReleasePendingError). A signal aborts and releases as well, or
releases what is published, within `control_timeout_s`.
"""

from __future__ import annotations

import asyncio

from ckptctl.domain.amounts import set_time
from ckptctl.domain.config import RunConfig
from ckptctl.domain.participant import AgentCommitReply, ResourcesCommitReply
from ckptctl.domain.plan import Plan
from ckptctl.domain.traffic import Asked
from ckptctl.domain.transaction import SnapshotRequest, TransactionCounts, TransactionResult
from ckptctl.errors import (
    AttemptAbortedError,
    CkptctlError,
    DeadlineError,
    MalformedReplyError,
    PublicationUnseenError,
    StoppedError,
)
from ckptctl.planning import snapshot as steps
from ckptctl.workflows.acknowledgements import Outbox
from ckptctl.workflows.attempt import Attempt, Begun
from ckptctl.workflows.begin import begin, last_published
from ckptctl.workflows.commit import commit_actions
from ckptctl.workflows.gc_room import FULL_HINT, is_full, leave_room, take_lock
from ckptctl.workflows.load_config import require_checkpoint_dir, require_sound
from ckptctl.workflows.more_time import way_to_more_time
from ckptctl.workflows.ownership import begin_transaction
from ckptctl.workflows.prepare import prepare_actions
from ckptctl.workflows.publication import Publication
from ckptctl.workflows.recovery import admission_closed, finish_unfinished, release_pending
from ckptctl.workflows.release import Release
from ckptctl.workflows.transaction import Recorder, execute
from ckptctl.workflows.world import World, with_warnings

SYNCED = (steps.WRITE_MANIFEST, steps.WRITE_CHECKSUMS, steps.PUBLISH)
"""Steps whose outcome must survive a crash of the machine: what they did could not be told from the disk alone."""


async def take_snapshot(world: World, config: RunConfig, request: SnapshotRequest) -> TransactionResult:
    """Take one snapshot, or say why none is needed.

    Raises:
        CkptctlError: see the table of exit statuses; the class says whether anything was changed.
    """
    require_sound(config, "snapshot")
    world, warnings = with_warnings(world)
    require_checkpoint_dir(world.store, config)
    has_room = take_lock(world, config.checkpoint_dir, break_lock=request.break_lock)
    try:
        left = await finish_unfinished(world, config, may_publish=False)
        if left is not None and left.outcome == "released" and not request.force and await _is_recent(world):
            # What was asked for is there: nothing moved since it was taken.
            return left.model_copy(update={"warnings": tuple(warnings)})
        begun = await _begin_in_time(world, config, request)
        if isinstance(begun, TransactionResult):
            return begun.model_copy(update={"warnings": tuple(warnings)})
        if has_room:  # before anybody is held: whoever finishes what this one may leave will need it
            leave_room(world, config.checkpoint_dir)
        result = await _Transaction(world, begun).run()
        return result.model_copy(update={"warnings": tuple(warnings)})
    finally:
        if not has_room:
            leave_room(world, config.checkpoint_dir)
        world.lock.release()


async def _begin_in_time(world: World, config: RunConfig, request: SnapshotRequest) -> Begun | TransactionResult:
    """Step 1 within the deadline that was given from outside. Raises TimedOutError: nothing was changed."""
    if request.deadline_ts is None:
        return await begin(world, config, request)
    left_s = max(0.0, request.deadline_ts - world.clock.now_s())
    task = asyncio.ensure_future(begin(world, config, request))
    try:
        await asyncio.wait({task}, timeout=left_s)
        if task.done():
            return task.result()
        silent = world.under_way()  # asked before the task is stopped, for then nobody is waited for any more
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    raise _not_begun(request, silent)


def _not_begun(request: SnapshotRequest, silent: tuple[Asked, ...]) -> DeadlineError:
    """Whom a snapshot was waiting for that could not begin in time."""
    first = silent[0] if silent else None
    return DeadlineError(
        server="ckptctl" if first is None else first.server,
        operation="discovery" if first is None else first.operation,
        url=None if first is None else first.url,
        others=tuple(other.told() for other in silent[1:]),
        within=None if request.deadline_s is None else set_time(request.deadline_s),
        last=f"the bound was given from outside (`{request.deadline_option}`); nothing was changed",
        hint=f"give more time with `{request.deadline_option}`, or see with `ckptctl inspect --live` who does not answer",
    )


async def _is_recent(world: World) -> bool:
    """Whether the last published snapshot was taken of this very controller process, which has been closed since."""
    last = last_published(world)
    facts = None if last is None else last.facts()
    return facts is not None and (await world.controller.status()).instance_id == facts.controller_instance_id


class _Transaction:
    """Steps 2 to 9 of one attempt, and what happens when one of them fails."""

    def __init__(self, world: World, begun: Begun) -> None:
        self._world = world
        self._begun = begun
        self._attempt = Attempt(world, begun)
        self._outbox = Outbox(world, begun.topology, begun.checkpoint_id)
        writer = begin_transaction(world, "snapshot", begun.facts, begun.config.checkpoint_dir)
        self._recorder = Recorder(world, writer, synced=SYNCED)
        self._is_published = False
        self._publication = Publication(
            world=world,
            checkpoint_dir=begun.config.checkpoint_dir,
            anchor=begun.facts.anchor,
            staged=begun.facts.staged,
            final=begun.facts.final,
            level=begun.request.level,
            keep_latest_k=begun.config.sections.rollout_checkpointing.keep_latest_k,
            capabilities=begun.topology.discovered,
            deadline_ts=begun.request.deadline_ts,
            on_published=self._note_published,
        )

    async def run(self) -> TransactionResult:
        """Run the plan; abort or release whatever happens."""
        is_for_sessions = self._begun.request.sessions_only
        plan = (steps.until_retired if is_for_sessions else steps.until_published)(self._begun.plan)
        actions = {
            **prepare_actions(self._attempt, self._outbox),
            **commit_actions(self._attempt),
            **self._publication.actions(),
        }
        self._attempt.set_deadline(self._begun.config.prepare_timeout_s)
        failure: BaseException | None = None
        try:
            await execute(plan, actions, self._recorder)
        except BaseException as error:  # noqa: BLE001 - a bug of ours must not leave participants paused either
            failure = error
        if not self._is_published:
            assert failure is not None or is_for_sessions, "a plan that ran to its end published"
            return await self._abort(failure)
        return await self._release(failure)

    def _note_published(self) -> None:
        self._is_published = True
        self._recorder.is_lenient = True

    async def _abort(self, failure: BaseException | None) -> TransactionResult:
        """Undo everything that was attempted, under the same id, and raise what that comes to; None: that was all to be done."""
        begun = self._begun
        now_s = self._world.clock.now_s()
        is_stopped = isinstance(failure, asyncio.CancelledError)
        least_s = now_s + begun.own.control_timeout_s
        self._recorder.is_lenient = True
        release = Release(
            world=self._world,
            checkpoint_id=begun.checkpoint_id,
            outcome="aborted",
            deadline_ts=least_s if is_stopped else max(self._attempt.deadline_ts, least_s),
            servers=frozenset(begun.own.urls()),
            staged_path=begun.staged_path,
        )
        stages = (begun.facts.models, begun.facts.agents, begun.facts.resources)
        plan = steps.plan_abort(begun.checkpoint_id, self._recorder.intents, stages, begun.facts.staged)
        is_stopped = await self._to_its_end(release, plan)
        if failure is None and is_stopped:
            failure = asyncio.CancelledError()
        if not release.failures and not isinstance(failure, PublicationUnseenError):
            self._recorder.finish("aborted", reason=_reason(failure))
        if failure is None and release.failures:
            raise admission_closed(release, None)
        if failure is None:
            return self._retired()
        error = self._aborted(failure, release)
        raise error from (None if error is failure else failure)

    def _aborted(self, failure: BaseException, release: Release) -> BaseException:
        if isinstance(failure, asyncio.CancelledError):
            rest = f"not everybody was released: {release.told()}" if release.failures else "everything was released"
            hint = "run `ckptctl publish`: it repeats the release under the same id" if release.failures else None
            return StoppedError(f"stopped; attempt `{release.checkpoint_id}` was aborted; {rest}", hint=hint)
        if not isinstance(failure, CkptctlError):
            return failure
        way_on = self._way_on(failure)
        if release.failures:
            return admission_closed(release, failure)
        if isinstance(failure, PublicationUnseenError):
            return failure  # the transaction stays unfinished: the next command sees what the disk shows then
        return AttemptAbortedError(
            f"attempt `{release.checkpoint_id}` was aborted and everything released; the previous snapshot is authoritative",
            hint=way_on,
            cause=failure,
        )

    def _way_on(self, failure: CkptctlError) -> str:
        if is_full(failure):
            return FULL_HINT
        if isinstance(failure, DeadlineError):
            return way_to_more_time(failure, self._attempt.bound)
        if isinstance(failure, MalformedReplyError) and failure.hint:
            return f"{failure.hint}; then run the same command again"
        return failure.hint or "run the same command again"

    async def _release(self, failure: BaseException | None) -> TransactionResult:
        """Release a published snapshot's servers; `failure` is what happened after the rename, if anything."""
        begun = self._begun
        is_stopped = isinstance(failure, asyncio.CancelledError)
        bound_s = begun.own.control_timeout_s if is_stopped else begun.config.prepare_timeout_s
        self._attempt.set_deadline(bound_s)
        least_s = self._world.clock.now_s() + begun.own.control_timeout_s
        release = Release(
            world=self._world,
            checkpoint_id=begun.checkpoint_id,
            outcome="released",
            deadline_ts=max(self._attempt.deadline_ts, least_s),
            servers=frozenset(begun.own.urls()),
        )
        stages = (begun.facts.models, begun.facts.agents, begun.facts.resources)
        is_stopped = await self._to_its_end(release, steps.plan_release(begun.checkpoint_id, stages)) or is_stopped
        if not release.failures:
            self._recorder.finish("published")
        if is_stopped:
            rest = f"not everybody was released: {release.told()}" if release.failures else "everybody was released"
            hint = "run `ckptctl publish`: it repeats the release under the same id" if release.failures else None
            raise StoppedError(f"stopped; snapshot `{begun.final_path}` is published; {rest}", hint=hint)
        if release.failures:
            raise release_pending(begun.final_path, release)
        if failure is not None:
            raise failure  # a bug of ours after publication; everybody is released
        return self._result()

    async def _to_its_end(self, release: Release, plan: Plan) -> bool:
        """Run a release to its end even when a signal arrives; then it has only `control_timeout_s`. Returns whether one did."""
        task = asyncio.ensure_future(release.run(plan, self._recorder))
        is_stopped = False
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                if task.cancelled():
                    raise
                is_stopped = True
                least_s = self._world.clock.now_s() + self._begun.own.control_timeout_s
                release.deadline_ts = min(release.deadline_ts, least_s)
        self._attempt.opened_at_s = self._world.clock.monotonic_s()
        await task
        return is_stopped

    def _closed_s(self) -> float | None:
        closed_at_s, opened_at_s = self._attempt.closed_at_s, self._attempt.opened_at_s
        return None if closed_at_s is None or opened_at_s is None else round(opened_at_s - closed_at_s, 6)

    def _retired(self) -> TransactionResult:
        """What came of an attempt that was for leaked sessions alone."""
        sessions = tuple(self._attempt.retired)
        return TransactionResult(
            outcome="retired" if sessions else "nothing_to_do",
            checkpoint_id=self._begun.checkpoint_id,
            reason="" if sessions else "no session is leaked",
            admission_closed_s=self._closed_s(),
            steps=tuple(self._recorder.times),
            retired_sessions=sessions,
        )

    def _result(self) -> TransactionResult:
        attempt, begun = self._attempt, self._begun
        assert attempt.saved is not None, "a published snapshot was saved"
        replies = attempt.committed.values()
        counts = TransactionCounts(
            continuations=sum(item.records for item in attempt.continuation_indexes()),
            records=sum(reply.records for reply in replies if isinstance(reply, AgentCommitReply)),
            sessions=sum(reply.sessions for reply in replies if isinstance(reply, ResourcesCommitReply)),
            groups=attempt.saved.groups,
            canonical_rows=attempt.saved.canonical_rows,
            staging_rows=attempt.saved.staging_rows,
            acknowledgements=attempt.acknowledged,
        )
        return TransactionResult(
            outcome="published",
            checkpoint_id=begun.checkpoint_id,
            snapshot=begun.final_path,
            anchor=begun.facts.anchor,
            admission_closed_s=self._closed_s(),
            steps=tuple(self._recorder.times),
            counts=counts,
            removed=self._publication.removed,
            retired_sessions=tuple(attempt.retired),
        )


def _reason(failure: BaseException | None) -> str:
    if failure is None:
        return "only leaked sessions were to be retired"
    if isinstance(failure, asyncio.CancelledError):
        return "stopped by a signal"
    return f"{failure.code}: {failure.message}" if isinstance(failure, CkptctlError) else repr(failure)
