"""The admission and checkpoint routes of the policy model (participant-protocol sections 5.1 and 5.2), coordinator shape.

1. Pause closes admission and returns at once; its reply is replayed verbatim, progress shows in the status only.
2. Reading a status that says paused, nothing in flight and every worker acknowledged, moves preparing to prepared.
3. Commit needs an empty flight (`ledger_not_quiescent`), restore a clean capture directory (`ledger_mismatch`).
4. Restore fences every saved tombstone and source attempt. A failed restore keeps the id and may be repeated.
5. Aborting an attempt's calls fences the attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ckptctl.controller.fence import IDLE, Fence, Operation
from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.amounts import plural
from ckptctl.domain.document import CheckpointId, Document
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.participant import (
    CommonBody,
    DirectoryBody,
    ExecutionBody,
    ModelCommitBody,
    ModelRestoreReply,
    PauseReply,
    ResumeReply,
    Workers,
)
from ckptctl.sim.artifacts import ArtifactError, told_as_artifact_error
from ckptctl.sim.identity import Pair
from ckptctl.sim.policy_capture import CaptureStore
from ckptctl.sim.policy_files import MISMATCH, LedgerFolder, LedgerState, commit_ledger, read_ledger
from ckptctl.sim.policy_workers import WorkerPool
from ckptctl.sim.server import Signal, SimulatedServer

PAUSE = Operation("model-admission/pause", frozenset({IDLE}), during="preparing", after="preparing")
COMMIT = Operation("model-checkpoint/commit", frozenset({"prepared"}), during="committing", after="committed_paused")
RESTORE = Operation(
    "model-checkpoint/restore",
    frozenset({IDLE, "restore_failed_paused"}),
    during="restoring",
    after="restored_paused",
    failed="restore_failed_paused",
)
RESUME = Operation(
    "model-admission/resume",
    frozenset({IDLE, "preparing", "prepared", "committed_paused", "restore_failed_paused", "restored_paused"}),
    retires=True,
)
NOT_IDLE = RESUME.phases - {IDLE} | {"committing", "restoring"}
LOOK_AGAIN_S = 0.2
"""How often a waiting status asks workers again that have not acknowledged."""


class StatusQuery(BaseModel):
    """Query of the status route."""

    model_config = ConfigDict(extra="forbid")

    checkpoint_id: CheckpointId
    deadline_ts: Annotated[float, Field(allow_inf_nan=False)]
    wait_state: Literal["paused"] | None = None
    timeout_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class ModelRestoreBody(DirectoryBody):
    """Restore; the lists of generation cuts are taken and must be empty, schema 4 has none."""

    generation_cut_receipts: Annotated[list[Any], Field(max_length=0)] = Field(default_factory=list)
    generation_cut_exclusions: Annotated[list[Any], Field(max_length=0)] = Field(default_factory=list)


class ResumedReply(ResumeReply):
    """The model's resume."""

    workers: Workers
    released_waiters: int


class AbortReply(Document):
    """`abort_inflight`."""

    state: str
    aborted_inflight: int
    inflight_total: int


class ModelCheckpoint:
    """Admission and the control side of the policy model."""

    def __init__(self, server: SimulatedServer, pool: WorkerPool, capture: CaptureStore) -> None:
        self.fence = Fence()
        self.is_open = True
        self.tombstones: set[Pair] = set()
        self._server, self._pool, self._capture = server, pool, capture
        self._served: set[Pair] = set()
        self._aborted: set[Pair] = set()
        self._calls: list[tuple[Pair, asyncio.Future[None]]] = []
        self._changed = Signal()

    @contextmanager
    def accepted(self, pair: Pair) -> Iterator[asyncio.Future[None]]:
        """Count a call as in flight; the future is done when its attempt is aborted."""
        entry = (pair, asyncio.get_running_loop().create_future())
        self._served.add(pair)
        self._calls.append(entry)
        try:
            yield entry[1]
        finally:
            self._calls.remove(entry)
            self._changed.fire()

    @property
    def inflight(self) -> int:
        """Calls accepted and not finished."""
        return len(self._calls)

    @property
    def state(self) -> Literal["accepting", "draining", "paused"]:
        """The admission state as replies name it."""
        if self.is_open:
            return "accepting"
        live = [view for view in self._pool.views.values() if view.is_connected]
        is_drained = not self.inflight and all(view.acked_seq >= self._pool.number for view in live)
        return "paused" if is_drained else "draining"

    @property
    def is_ready(self) -> bool:
        """Whether a coordinator may commit."""
        return self.state == "paused" and self._pool.acknowledged == len(self._pool.views)

    async def pause(self, body: CommonBody) -> PauseReply:
        """Close admission; accepted calls finish."""

        async def work() -> PauseReply:
            self.is_open = False
            await self._pool.change(is_open=False)
            return PauseReply(state=self.state, workers=self._workers(), inflight_total=self.inflight, waiters_total=0)

        reply = await self.fence.run(body.checkpoint_id, PAUSE, work, deadline_ts=body.deadline_ts)
        if self.is_ready:
            self.fence.advance(body.checkpoint_id, "preparing", "prepared")
        return reply

    async def status(self, query: StatusQuery) -> dict[str, Any]:
        """Where admission stands; with `wait_state` after waiting for it."""
        self.fence.require(query.checkpoint_id, NOT_IDLE)
        budget_s = min(query.timeout_s, self._server.remaining_s(query.deadline_ts)) if query.wait_state else 0.0
        until = asyncio.get_running_loop().time() + budget_s
        await self._pool.refresh()
        while not self.is_ready and not self.is_open:
            left_s = until - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            if self.inflight:
                await self._changed.until(lambda: not self.inflight or self.is_open, left_s)
            else:
                await asyncio.sleep(min(LOOK_AGAIN_S, left_s))
            await self._pool.refresh()
        self.fence.require(query.checkpoint_id, NOT_IDLE)  # it may have been released while we waited
        if self.is_ready:
            self.fence.advance(query.checkpoint_id, "preparing", "prepared")
        return {
            "state": self.state,
            "workers": {**self._workers().model_dump(), "live": len(self._pool.views) - len(self._pool.missing)},
            "missing_workers": self._pool.missing,
            "per_worker": {
                name: {"acked_seq": view.acked_seq, "inflight": view.inflight, "connected": view.is_connected}
                for name, view in self._pool.views.items()
            },
            "inflight_total": self.inflight,
            "waiters_total": 0,
        }

    async def resume(self, body: CommonBody) -> ResumedReply:
        """Reopen admission and end the checkpoint id."""

        async def work() -> ResumedReply:
            await self._pool.change(is_open=True)
            self.is_open = True
            self._aborted.clear()
            self._changed.fire()
            return ResumedReply(state="accepting", workers=self._workers(), released_waiters=0)

        return await self.fence.run(body.checkpoint_id, RESUME, work, deadline_ts=body.deadline_ts)

    async def abort_inflight(self, body: ExecutionBody) -> AbortReply:
        """Fence one attempt and stop its calls."""
        pair = Pair(body.rollout_id, body.attempt_index)
        name = f"model-admission/abort_inflight:{pair.rollout_id}/{pair.attempt_index}"
        operation = Operation(name, frozenset({"preparing", "prepared"}))

        async def work() -> AbortReply:
            self.tombstones.add(pair)
            self._aborted.add(pair)
            own = [future for owner, future in self._calls if owner == pair]
            for future in own:
                if not future.done():
                    future.set_result(None)
            await self._changed.until(
                lambda: not any(owner == pair for owner, _ in self._calls), self._server.remaining_s(body.deadline_ts)
            )
            return AbortReply(state=self.state, aborted_inflight=len(own), inflight_total=self.inflight)

        return await self.fence.run(body.checkpoint_id, operation, work, deadline_ts=body.deadline_ts)

    async def commit(self, body: ModelCommitBody) -> dict[str, Any]:
        """Write the lineage of all continuations."""

        async def work() -> dict[str, Any]:
            if self.is_open or self.inflight:
                raise RefusalError("ledger_not_quiescent", f"in flight: {plural(self.inflight, 'call')}")
            state = LedgerState(
                self._capture.custody(), frozenset(self._aborted), frozenset(self.tombstones), frozenset(self._served)
            )
            indexes: list[ArtifactReference] = body.continuation_indexes
            reply = await asyncio.to_thread(
                commit_ledger, body.checkpoint_dir, body.checkpoint_id, self._server.settings.name, indexes, state
            )
            return reply.model_dump(mode="json", exclude_none=True)

        return await self.fence.run(body.checkpoint_id, COMMIT, work, deadline_ts=body.deadline_ts)

    async def restore(self, body: ModelRestoreBody) -> dict[str, Any]:
        """Install saved lineage and fences; admission stays closed."""

        async def work() -> dict[str, Any]:
            self.is_open = False
            await self._pool.change(is_open=False)
            try:
                folder = await asyncio.to_thread(self._install, body.checkpoint_dir)
            except ArtifactError as error:
                raise RefusalError(MISMATCH, str(error)) from error
            manifest = folder.manifest
            for listed in (manifest.tombstones, manifest.source_attempts):
                self.tombstones.update(Pair(item.rollout_id, item.attempt_index) for item in listed)
            return _restore_reply(folder).model_dump(mode="json", exclude={"generation_cuts_restored"})

        return await self.fence.run(body.checkpoint_id, RESTORE, work, deadline_ts=body.deadline_ts)

    def _install(self, checkpoint_dir: str) -> LedgerFolder:
        leftovers = self._capture.leftovers()
        if leftovers:
            raise ArtifactError(
                f"the capture directory is not clean: {plural(len(leftovers), 'file')}, first {leftovers[0]}"
            )
        folder = read_ledger(checkpoint_dir, self._server.settings.name)
        with told_as_artifact_error():
            self._capture.install(folder.custody)
        return folder

    def _workers(self) -> Workers:
        return Workers(acknowledged=self._pool.acknowledged, expected=len(self._pool.views))


def _restore_reply(folder: LedgerFolder) -> ModelRestoreReply:
    manifest = folder.manifest
    return ModelRestoreReply(
        rollouts=manifest.rollout_count,
        rows=manifest.row_count,
        checkpoint_id=manifest.checkpoint_id,
        tombstones=manifest.tombstones,
        source_attempts=manifest.source_attempts,
        storage_reference_index=manifest.storage_reference_index,
    )


def install_routes(server: SimulatedServer, checkpoint: ModelCheckpoint) -> None:
    """Install the control routes."""
    admission, ledger = "model-admission/", "model-checkpoint/"
    server.control("POST", admission + "pause", checkpoint.pause, body=CommonBody)
    server.control("GET", admission + "status", checkpoint.status, query=StatusQuery)
    server.control("POST", admission + "resume", checkpoint.resume, body=CommonBody)
    server.control("POST", admission + "abort_inflight", checkpoint.abort_inflight, body=ExecutionBody)
    server.control("POST", ledger + "commit", checkpoint.commit, body=ModelCommitBody)
    server.control("POST", ledger + "restore", checkpoint.restore, body=ModelRestoreBody)
