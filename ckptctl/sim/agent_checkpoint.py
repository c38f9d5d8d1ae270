"""The checkpoint routes of an agent (participant-protocol sections 5.3, 8 and 9).

1. Prepare closes admission, asks every running execution to park and waits: until all are, until the deadline, or
   until nothing runs any more. Not ready is `agent_prepare_incomplete`: requests are withdrawn, who is parked stays
   parked, admission stays closed.
2. Ready = nothing running, nothing parked without a boundary, nothing completed and unacknowledged.
3. Commit writes the boundaries of all parked executions.
4. Restore installs attempt N for exactly N+1 and fences exactly N.
5. Resume lets parked executions go on; one whose caller is gone is over.
6. A batch of acknowledgements is taken whole or not at all.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ckptctl.controller.fence import IDLE, Fence, Operation
from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.document import CheckpointId, Document, Id
from ckptctl.domain.ids import agent_folder
from ckptctl.domain.participant import (
    AcknowledgeBody,
    AcknowledgeReply,
    AgentCommitReply,
    AgentRestoreReply,
    AgentStatus,
    CommonBody,
    CompletionReceipt,
    DirectoryBody,
    DiscardReply,
    Execution,
    ExecutionBody,
    ResumeReply,
    SelectedBoundary,
)
from ckptctl.sim.agent_files import commit_records, read_agent_folder
from ckptctl.sim.agent_store import AgentStore
from ckptctl.sim.artifacts import ArtifactError
from ckptctl.sim.identity import Pair
from ckptctl.sim.server import SimulatedServer

PREPARE = Operation(
    "agent-checkpoint/prepare", frozenset({IDLE}), during="preparing", after="prepared", is_waiting=True
)
COMMIT = Operation("agent-checkpoint/commit", frozenset({"prepared"}), during="committing", after="committed_paused")
RESTORE = Operation("agent-checkpoint/restore", frozenset({IDLE}), during="restoring", after="restored_paused")
RESUME = Operation(
    "agent-checkpoint/resume",
    frozenset({IDLE, "preparing", "prepared", "committed_paused", "restored_paused"}),
    retires=True,
)
RETIRE_PHASES = frozenset({IDLE, "preparing", "prepared"})
ERROR = "agent_checkpoint_error"


class CheckpointQuery(BaseModel):
    """Query of the status route."""

    model_config = ConfigDict(extra="forbid")

    checkpoint_id: CheckpointId


class PairQuery(BaseModel):
    """Query of the receipt route."""

    model_config = ConfigDict(extra="forbid")

    rollout_id: Id
    attempt_index: Annotated[int, Field(ge=0)]


class ResumedReply(ResumeReply):
    """The agent's resume."""

    released: int


class AcknowledgedReply(Document):
    """`acknowledge`: one receipt."""

    acknowledged: bool
    idempotent: bool


class UniqueAcknowledgeBody(AcknowledgeBody):
    """As AcknowledgeBody; a pair may stand there once only."""

    def model_post_init(self, _: Any, /) -> None:
        """Refuse repeated pairs."""
        pairs = [(item.rollout_id, item.attempt_index) for item in self.executions]
        if len(set(pairs)) != len(pairs):
            raise ValueError("an execution stands there twice")


class AgentCheckpoint:
    """The control side of one agent."""

    def __init__(self, server: SimulatedServer, store: AgentStore) -> None:
        self.fence = Fence()
        self._server, self._store = server, store
        self._releases = 0
        """How often everything was released: a prepare that waits sees that it was overtaken."""

    async def prepare(self, body: CommonBody) -> dict[str, Any]:
        """Park everything."""

        async def work() -> dict[str, Any]:
            store, before = self._store, self._releases
            store.is_open = False
            for execution in store.in_state("running"):
                store.set_state(execution, "park_requested")
            await store.signal.until(
                lambda: not store.is_busy or self._releases != before,
                self._server.remaining_s(body.deadline_ts),
            )
            if self._releases != before:
                raise RefusalError("stale_checkpoint", "released while the prepare was waiting")
            status = self._status()
            if not status["ready_to_commit"]:
                for execution in store.in_state("park_requested"):
                    store.set_state(execution, "running")
                raise RefusalError("agent_prepare_incomplete", _why_not(status))
            return status

        return await self.fence.run(body.checkpoint_id, PREPARE, work, deadline_ts=body.deadline_ts)

    async def status(self, query: CheckpointQuery) -> dict[str, Any]:
        """What prepare would say now."""
        self.fence.require(query.checkpoint_id)
        return {"checkpoint_id": query.checkpoint_id, **self._status()}

    async def commit(self, body: DirectoryBody) -> AgentCommitReply:
        """Write the selected boundaries."""

        async def work() -> AgentCommitReply:
            records = [item.boundary for item in self._store.parked() if item.boundary is not None]
            name = self._server.settings.name
            try:
                return await asyncio.to_thread(commit_records, body.checkpoint_dir, body.checkpoint_id, name, records)
            except ArtifactError as error:
                raise RefusalError(ERROR, str(error)) from error

        return await self.fence.run(body.checkpoint_id, COMMIT, work, deadline_ts=body.deadline_ts)

    async def restore(self, body: DirectoryBody) -> AgentRestoreReply:
        """Install saved boundaries; admission stays closed."""

        async def work() -> AgentRestoreReply:
            if self._store.in_state("running", "park_requested", "parked"):
                raise RefusalError(ERROR, "executions are at work in this process")
            was_open, self._store.is_open = self._store.is_open, False
            name = self._server.settings.name
            try:
                folder = await asyncio.to_thread(read_agent_folder, body.checkpoint_dir, agent_folder(name))
                if folder.manifest.instance_name != name:
                    raise ArtifactError(f"the folder was written by {folder.manifest.instance_name}")  # noqa: TRY301 - one refusal for all
            except ArtifactError as error:
                self._store.is_open = was_open
                raise RefusalError(ERROR, str(error)) from error
            for record in folder.records:
                saved = Pair(record.rollout_id, record.attempt_index)
                self._store.tombstones.add(saved)
                self._store.continuations[saved.successor] = record
            return AgentRestoreReply(
                records=len(folder.records),
                source_checkpoint_id=folder.manifest.checkpoint_id,
                continuation_index=folder.manifest.continuation_index,
            )

        return await self.fence.run(body.checkpoint_id, RESTORE, work, deadline_ts=body.deadline_ts)

    async def resume(self, body: CommonBody) -> ResumedReply:
        """Reopen admission, let parked executions go on, and end the checkpoint id."""

        async def work() -> ResumedReply:
            self._releases += 1
            released = 0
            for execution in self._store.in_state("park_requested", "parked"):
                if execution.state == "parked" and execution.is_connection_lost:
                    self._store.end(execution.pair)
                    continue
                released += execution.state == "parked"
                self._store.set_state(execution, "running")
            self._store.is_open = True
            self._store.signal.fire()
            return ResumedReply(state="accepting", released=released)

        return await self.fence.run(body.checkpoint_id, RESUME, work, deadline_ts=body.deadline_ts)

    async def retire(self, body: ExecutionBody) -> dict[str, bool]:
        """End one attempt for good; a completed result is not thrown away."""
        pair = Pair(body.rollout_id, body.attempt_index)
        name = f"agent-checkpoint/retire:{pair.rollout_id}/{pair.attempt_index}"

        async def work() -> dict[str, bool]:
            known = self._store.executions.get(pair)
            if known is not None and known.state == "completed":
                return {"retired": False, "tombstoned": False, "completed_unacknowledged": True}
            had = known is not None or pair in self._store.continuations
            self._store.end(pair)
            return {"retired": had, "tombstoned": True}

        operation = Operation(name, RETIRE_PHASES, is_recorded=False)
        return await self.fence.run(body.checkpoint_id, operation, work, deadline_ts=body.deadline_ts)

    async def discard(self, body: ExecutionBody) -> DiscardReply:
        """Drop a restored continuation: its attempt starts from the task."""
        pair = Pair(body.rollout_id, body.attempt_index)
        name = f"agent-checkpoint/discard-restored-continuation:{pair.rollout_id}/{pair.attempt_index}"

        async def work() -> DiscardReply:
            return DiscardReply(discarded=self._store.continuations.pop(pair, None) is not None)

        operation = Operation(name, frozenset({"restored_paused"}), is_recorded=False)
        return await self.fence.run(body.checkpoint_id, operation, work, deadline_ts=body.deadline_ts)

    async def completion_receipt(self, query: PairQuery) -> CompletionReceipt:
        """The receipt of a completed result."""
        return self._store.receipt(Pair(query.rollout_id, query.attempt_index))

    async def acknowledge_completed(self, body: UniqueAcknowledgeBody) -> AcknowledgeReply:
        """Release a batch of results."""
        self._store.acknowledge(body.executions)
        return AcknowledgeReply(acknowledged=body.executions)

    async def acknowledge(self, body: CompletionReceipt) -> AcknowledgedReply:
        """Release one result."""
        return AcknowledgedReply(acknowledged=True, idempotent=self._store.acknowledge([body]) == 1)

    def _status(self) -> dict[str, Any]:
        store = self._store
        parked = store.parked()
        without = [item for item in parked if item.boundary is None]
        busy = store.in_state("running", "park_requested")
        completed = store.in_state("completed")
        selected = [
            SelectedBoundary(
                rollout_id=record.rollout_id,
                attempt_index=record.attempt_index,
                boundary_index=record.boundary_index,
                turn_index=record.turn_index,
                boundary_kind=record.boundary_kind,
                resource_state_revisions=record.resource_state_revisions,
            )
            for item in parked
            if (record := item.boundary) is not None
        ]
        now_s = store.now()
        status = AgentStatus(
            state="accepting" if store.is_open else "preparing",
            ready_to_commit=not store.is_open and not (busy or without or completed),
            running=len(busy),
            parked=len(parked),
            parked_with_boundary=len(selected),
            parked_without_boundary=len(without),
            completed_unacknowledged=len(completed),
            acknowledged_completed=len(store.acknowledged),
            active=len(busy) + len(parked),
            blocking_attempts=[_execution(item.pair) for item in (*busy, *without)],
            completed_unacknowledged_attempts=[_execution(item.pair) for item in completed],
            executions=[item.describe(now_s) for _, item in sorted(store.executions.items())],
            selected_boundaries=selected,
        )
        return status.model_dump(mode="json", exclude={"checkpoint_id"})


def _execution(pair: Pair) -> Execution:
    return Execution(rollout_id=pair.rollout_id, attempt_index=pair.attempt_index)


def _why_not(status: dict[str, Any]) -> str:
    names = ("running", "parked_without_boundary", "completed_unacknowledged")
    return "not ready to commit: " + ", ".join(f"{name} {status[name]}" for name in names if status[name])


def install_routes(server: SimulatedServer, checkpoint: AgentCheckpoint) -> None:
    """Install the control routes."""
    prefix = "agent-checkpoint/"
    for method, route, handler, body, query in (
        ("POST", "prepare", checkpoint.prepare, CommonBody, None),
        ("GET", "status", checkpoint.status, None, CheckpointQuery),
        ("POST", "commit", checkpoint.commit, DirectoryBody, None),
        ("POST", "restore", checkpoint.restore, DirectoryBody, None),
        ("POST", "resume", checkpoint.resume, CommonBody, None),
        ("POST", "retire", checkpoint.retire, ExecutionBody, None),
        ("POST", "discard-restored-continuation", checkpoint.discard, ExecutionBody, None),
        ("GET", "completion-receipt", checkpoint.completion_receipt, None, PairQuery),
        ("POST", "acknowledge-completed", checkpoint.acknowledge_completed, UniqueAcknowledgeBody, None),
        ("POST", "acknowledge", checkpoint.acknowledge, CompletionReceipt, None),
    ):
        server.control(method, prefix + route, handler, body=body, query=query)
