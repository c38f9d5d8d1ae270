"""The checkpoint routes of a resources server (participant-protocol section 5.4).

1. Prepare closes admission, waits for every session's lock within the deadline and takes **every** bound session,
   whether or not an agent refers to it. A failed prepare leaves admission closed.
2. An uncertain session, or traffic without identity, makes every prepare fail.
3. Restore wants a process that served nothing; it installs attempt N for exactly N+1 and fences exactly N.
4. A process that expects a restore answers no resume before one.
5. Retire fences first, then waits for the lock; a timeout leaves the fence.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ckptctl.controller.fence import IDLE, Fence, Operation
from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.document import CheckpointId
from ckptctl.domain.participant import (
    CommonBody,
    DirectoryBody,
    ExecutionBody,
    ResourcesCommitReply,
    ResourcesPrepareReply,
    ResourcesRestoreReply,
    ResourcesRetireReply,
    ResumeReply,
    SessionInventory,
)
from ckptctl.domain.participant_files import SessionRecord
from ckptctl.sim.artifacts import ArtifactError, told_as_artifact_error
from ckptctl.sim.audit import AuditLog
from ckptctl.sim.environments import Environment
from ckptctl.sim.identity import Pair
from ckptctl.sim.resources_files import commit_sessions, read_sessions
from ckptctl.sim.server import SimulatedServer
from ckptctl.sim.sessions import Session, SessionBook

PREPARE = Operation(
    "resources-checkpoint/prepare", frozenset({IDLE}), during="preparing", after="prepared", is_waiting=True
)
COMMIT = Operation(
    "resources-checkpoint/commit", frozenset({"prepared"}), during="committing", after="committed_paused"
)
RESTORE = Operation("resources-checkpoint/restore", frozenset({IDLE}), during="restoring", after="restored_paused")
RESUME = Operation(
    "resources-checkpoint/resume",
    frozenset({IDLE, "prepared", "committed_paused", "restored_paused"}),
    retires=True,
)
NOT_IDLE = frozenset(
    {"preparing", "prepared", "committing", "committed_paused", "restoring", "restored_paused"},
)
ERROR = "resources_checkpoint_error"


class StatusQuery(BaseModel):
    """Query of the status route."""

    model_config = ConfigDict(extra="forbid")

    checkpoint_id: CheckpointId
    deadline_ts: Annotated[float, Field(allow_inf_nan=False)]


class ResourcesCheckpoint:
    """The control side of one resources server."""

    def __init__(
        self, server: SimulatedServer, book: SessionBook, audit: AuditLog, environment: Environment, *, exports: bool
    ) -> None:
        self.fence = Fence()
        self.exports = exports
        self.is_restore_expected = server.settings.restore_expected and exports
        self.is_open = not self.is_restore_expected
        self.has_untracked_traffic = False
        self._server, self._book, self._audit, self._environment = server, book, audit, environment
        self._prepared: dict[Pair, SessionRecord] | None = None

    async def prepare(self, body: CommonBody) -> ResourcesPrepareReply:
        """Close admission and take every bound session."""

        async def work() -> ResourcesPrepareReply:
            self.is_open = False
            uncertain = self._book.uncertain()
            if uncertain:
                reasons = "; ".join(f"{item.pair.rollout_id}: {item.uncertain_reason}" for item in uncertain[:10])
                what = "1 uncertain session" if len(uncertain) == 1 else f"{len(uncertain)} uncertain sessions"
                raise RefusalError("resource_mutation_uncertain", f"{what}: {reasons}")
            if self.has_untracked_traffic:
                raise RefusalError(ERROR, "calls without identity have changed state that no session holds")
            prepared: dict[Pair, SessionRecord] = {}
            for session in self._book.bound():
                async with self._locked(session, body.deadline_ts):
                    if session.is_bound:
                        prepared[session.pair] = session.record()
                if session.uncertain_reason is not None:  # by the call that held the lock
                    raise RefusalError("resource_mutation_uncertain", session.uncertain_reason)
            self._prepared = prepared
            return ResourcesPrepareReply(sessions=len(prepared), state="prepared", inventory=self._inventory())

        return await self.fence.run(body.checkpoint_id, PREPARE, work, deadline_ts=body.deadline_ts)

    async def commit(self, body: DirectoryBody) -> ResourcesCommitReply:
        """Write what prepare took."""

        async def work() -> ResourcesCommitReply:
            assert self._prepared is not None
            sessions = list(self._prepared.values())
            name = self._server.settings.name
            try:
                return await asyncio.to_thread(commit_sessions, body.checkpoint_dir, body.checkpoint_id, name, sessions)
            except ArtifactError as error:
                raise RefusalError(ERROR, str(error)) from error

        return await self.fence.run(body.checkpoint_id, COMMIT, work, deadline_ts=body.deadline_ts)

    async def restore(self, body: DirectoryBody) -> ResourcesRestoreReply:
        """Install saved sessions into a fresh process; admission stays closed."""

        async def work() -> ResourcesRestoreReply:
            if not self._book.is_empty or self.has_untracked_traffic:
                raise RefusalError("unsafe_resources_restore", "this process has served stateful traffic")
            was_open, self.is_open = self.is_open, False
            try:
                source, sessions = await asyncio.to_thread(
                    read_sessions, body.checkpoint_dir, self._server.settings.name
                )
                with told_as_artifact_error():  # the line first, as of every effect
                    self._audit.append(
                        "restored", checkpoint_id=source, sessions=[_restored(item) for item in sessions]
                    )
            except (ArtifactError, RefusalError) as error:
                self.is_open = was_open
                raise error if isinstance(error, RefusalError) else RefusalError(ERROR, str(error)) from error
            self._book.install(sessions)
            self.is_restore_expected = False
            return ResourcesRestoreReply(sessions=len(sessions), source_checkpoint_id=source)

        return await self.fence.run(body.checkpoint_id, RESTORE, work, deadline_ts=body.deadline_ts)

    async def resume(self, body: CommonBody) -> ResumeReply:
        """Reopen admission and end the checkpoint id."""

        async def work() -> ResumeReply:
            if self.is_restore_expected:
                raise RefusalError(ERROR, "this process expects a restore first")
            self._prepared = None
            self.is_open = True
            return ResumeReply(state="accepting")

        return await self.fence.run(body.checkpoint_id, RESUME, work, deadline_ts=body.deadline_ts)

    async def retire(self, body: ExecutionBody) -> ResourcesRetireReply:
        """End one attempt's session for good."""
        pair = Pair(body.rollout_id, body.attempt_index)
        operation = Operation(
            f"resources-checkpoint/retire:{pair.rollout_id}/{pair.attempt_index}",
            frozenset({"preparing", "prepared"}),
            is_recorded=False,
        )

        async def work() -> ResourcesRetireReply:
            self._book.tombstones.add(pair)
            session = self._book.find(pair)
            if session is not None:
                async with self._locked(session, body.deadline_ts):
                    self._environment.forget(pair.rollout_id, session.state)
                    self._book.drop(pair)
            if self._prepared is not None:
                self._prepared.pop(pair, None)
            self._audit.append("retired", rollout=pair.rollout_id, attempt=pair.attempt_index)
            return ResourcesRetireReply(retired=True, rollout_id=pair.rollout_id, attempt_index=pair.attempt_index)

        return await self.fence.run(body.checkpoint_id, operation, work, deadline_ts=body.deadline_ts)

    async def status(self, query: StatusQuery) -> dict[str, Any]:
        """Everything an operator asks of a paused server."""
        self.fence.require(query.checkpoint_id, NOT_IDLE)
        bound = self._book.bound()
        released = self._book.released()
        receipts = sum(len(session.receipts) for session in (*bound, *released))
        return {
            "checkpoint_id": query.checkpoint_id,
            "state": self.fence.phase,
            "admission_state": "accepting" if self.is_open else "paused",
            "sessions": len(bound),
            "per_session": [
                {**item.pair.as_json(), "revision": item.revision, "locked": item.lock.locked()} for item in bound
            ],
            "lock_entries": len(bound) + len(released),
            "locked_sessions": sum(item.lock.locked() for item in bound),
            "tombstones": len(self._book.tombstones),
            "evicted_receipt_tombstones": self._book.evicted_count,
            "receipt_history_saturated": self._book.is_saturated,
            "uncertain_sessions": [
                {**item.pair.as_json(), "reason": item.uncertain_reason} for item in self._book.uncertain()
            ],
            "mutation_receipts": receipts,
            "retired_receipt_sessions": len(released),
            "prepared_inventory": [item.model_dump(mode="json") for item in self._inventory()],
        }

    def _inventory(self) -> list[SessionInventory]:
        return [
            SessionInventory(
                rollout_id=pair.rollout_id,
                attempt_index=pair.attempt_index,
                revision=record.state_revision,
                mutation_receipts=len(record.mutation_receipts),
            )
            for pair, record in sorted((self._prepared or {}).items())
        ]

    def _locked(self, session: Session, deadline_ts: float) -> _Locked:
        return _Locked(session, self._server.remaining_s(deadline_ts))


class _Locked:
    """A session's lock, taken within a time. Raises RefusalError."""

    def __init__(self, session: Session, timeout_s: float) -> None:
        self._session, self._timeout_s = session, timeout_s

    async def __aenter__(self) -> None:
        lock = self._session.lock
        if not lock.locked():
            await lock.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await lock.acquire()
        except TimeoutError:
            text = f"the session of {self._session.pair.rollout_id} is busy and the deadline has passed"
            raise RefusalError(ERROR, text) from None

    async def __aexit__(self, *_: object) -> Literal[False]:
        self._session.lock.release()
        return False


def _restored(record: SessionRecord) -> dict[str, Any]:
    return {
        "rollout_id": record.rollout_id,
        "attempt_index": record.attempt_index + 1,
        "revision": record.state_revision,
        "request_ids": [receipt.request_id for receipt in record.mutation_receipts],
    }


def install_routes(server: SimulatedServer, checkpoint: ResourcesCheckpoint) -> None:
    """Install the control routes."""
    prefix = "resources-checkpoint/"
    server.control("POST", prefix + "prepare", checkpoint.prepare, body=CommonBody)
    server.control("POST", prefix + "commit", checkpoint.commit, body=DirectoryBody)
    server.control("POST", prefix + "restore", checkpoint.restore, body=DirectoryBody)
    server.control("POST", prefix + "resume", checkpoint.resume, body=CommonBody)
    server.control("POST", prefix + "retire", checkpoint.retire, body=ExecutionBody)
    server.control("GET", prefix + "status", checkpoint.status, query=StatusQuery)
