"""What an agent remembers: executions, their boundaries, results, receipts, tombstones and restored continuations.

Values and waiting only. Order of checks of `/run`, and parking (participant-protocol sections 5.3, 6.2, 8, 9):

1. acknowledged -> `stale_attempt`; 2. tombstoned -> `stale_attempt`; 3. completed -> the stored result; 4. active ->
   `duplicate_execution`; 5. admission closed -> `agent_admission_closed`; 6. a new execution, which takes the
   restored continuation of exactly this pair.

An execution parks itself at its next boundary when it was asked to; nothing stops it in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.canonical import compact_digest
from ckptctl.domain.participant import CompletionReceipt
from ckptctl.domain.participant_files import BoundaryRecord
from ckptctl.sim.identity import Pair
from ckptctl.sim.run_wire import RunBody
from ckptctl.sim.server import Signal

State = Literal["running", "park_requested", "parked", "completed", "retired"]
MAX_RESULT_IDENTITY = 512


@dataclass(slots=True, eq=False)
class Execution:
    """One attempt at work here."""

    pair: Pair
    generation: int
    body: RunBody
    started_at: float
    state: State = "running"
    boundary: BoundaryRecord | None = None
    task: asyncio.Task[Any] | None = None
    is_connection_lost: bool = False
    result: dict[str, Any] | None = None
    receipt: CompletionReceipt | None = None
    signal: Signal = field(default_factory=Signal)
    """Wakes this execution only; waking all for each would cost the square of their number."""

    @property
    def is_active(self) -> bool:
        """Whether it still works or waits."""
        return self.state in ("running", "park_requested", "parked")

    def describe(self, now_s: float) -> dict[str, Any]:
        """Its element of `executions`."""
        boundary = self.boundary
        parked = None
        if self.state == "parked":
            parked = "parked_without_boundary" if boundary is None else "parked_with_boundary"
        described: dict[str, Any] = {
            **self.pair.as_json(),
            "generation": self.generation,
            "state": self.state,
            "parked_boundary_state": parked,
            "boundary_index": None if boundary is None else boundary.boundary_index,
            "turn_index": None if boundary is None else boundary.turn_index,
            "boundary_kind": None if boundary is None else boundary.boundary_kind,
            "resource_state_revisions": None if boundary is None else boundary.resource_state_revisions,
            "age_seconds": max(0.0, now_s - self.started_at),
        }
        if self.receipt is not None:
            described["completion_receipt"] = self.receipt.model_dump(mode="json")
        return described


@dataclass(slots=True)
class AgentStore:
    """The memory of one agent process."""

    now: Callable[[], float]
    is_open: bool = True
    executions: dict[Pair, Execution] = field(default_factory=dict)
    tombstones: set[Pair] = field(default_factory=set)
    acknowledged: dict[Pair, CompletionReceipt] = field(default_factory=dict)
    continuations: dict[Pair, BoundaryRecord] = field(default_factory=dict)
    """Restored boundaries, under the pair that will take them."""
    signal: Signal = field(default_factory=Signal)
    _generations: dict[Pair, int] = field(default_factory=dict)

    def begin(self, body: RunBody) -> tuple[Execution, bool]:
        """The execution that a `/run` is about, and whether it is new. Raises RefusalError."""
        pair = Pair(body.rollout_id, body.attempt_index)
        if pair in self.acknowledged or pair in self.tombstones:  # 1, 2
            raise RefusalError("stale_attempt", f"{pair.rollout_id} attempt {pair.attempt_index} is over")
        known = self.executions.get(pair)
        if known is not None and known.state == "completed":  # 3
            return known, False
        if known is not None:  # 4
            raise RefusalError("duplicate_execution", f"{pair.rollout_id} attempt {pair.attempt_index} is at work")
        if not self.is_open:  # 5
            raise RefusalError("agent_admission_closed", "admission is closed for a checkpoint")
        self._generations[pair] = self._generations.get(pair, 0) + 1  # 6
        execution = Execution(pair, self._generations[pair], body, self.now())
        saved = self.continuations.pop(pair, None)
        if saved is not None:
            execution.boundary = saved.model_copy(update={"attempt_index": pair.attempt_index})
        self.executions[pair] = execution
        return execution, True

    async def reach_boundary(self, execution: Execution, boundary: BoundaryRecord) -> None:
        """Set a new durable point, and park there when asked to."""
        execution.boundary = boundary
        await self.park(execution)

    async def park(self, execution: Execution) -> None:
        """Wait here while parking is asked for. The execution must stand exactly at its last boundary."""
        if execution.state == "park_requested":
            execution.state = "parked"
            self.signal.fire()
            await execution.signal.until(lambda: execution.state != "parked")

    async def wait_refused(self, execution: Execution, delay_s: float) -> None:
        """Wait before a refused call is tried again; park meanwhile when asked to."""
        await execution.signal.until(lambda: execution.state == "park_requested", delay_s)
        await self.park(execution)

    def complete(self, execution: Execution, result: dict[str, Any]) -> None:
        """Keep a result until it is acknowledged."""
        digest = compact_digest(result)
        response = result.get("response")
        identity = result.get("id") or (response.get("id") if isinstance(response, dict) else None) or digest
        boundary = execution.boundary
        execution.result = result
        execution.receipt = CompletionReceipt(
            rollout_id=execution.pair.rollout_id,
            attempt_index=execution.pair.attempt_index,
            execution_generation=execution.generation,
            result_identity=str(identity)[:MAX_RESULT_IDENTITY],
            result_digest=digest,
            manifest_capture_key=None if boundary is None else boundary.last_committed_model_capture_key,
            terminal_model_call_id=None if boundary is None else boundary.last_committed_model_call_id,
        )
        execution.state = "completed"
        self.signal.fire()

    def end(self, pair: Pair) -> Execution | None:
        """Fence a pair for good and stop what works under it."""
        self.tombstones.add(pair)
        self.continuations.pop(pair, None)
        execution = self.executions.pop(pair, None)
        if execution is not None:
            self.set_state(execution, "retired")
            if execution.task is not None:
                execution.task.cancel()
        self.signal.fire()
        return execution

    def receipt(self, pair: Pair) -> CompletionReceipt:
        """The receipt of a completed, unacknowledged result. Raises RefusalError."""
        execution = self.executions.get(pair)
        if execution is None or execution.receipt is None:
            raise _unknown(pair, "has no unacknowledged result here")
        return execution.receipt

    def acknowledge(self, receipts: Iterable[CompletionReceipt]) -> int:
        """Release all these results, or none. Returns how many were released before.

        Raises:
            RefusalError: one is unknown, unfinished or differs; nothing is released.
        """
        listed = [(Pair(item.rollout_id, item.attempt_index), item) for item in receipts]
        repeated = 0
        for pair, given in listed:
            if pair in self.acknowledged:
                if self.acknowledged[pair] != given:
                    raise _unknown(pair, "was acknowledged with another receipt")
                repeated += 1
            elif self.receipt(pair) != given:
                raise _unknown(pair, "has another receipt")
        for pair, given in listed:
            self.acknowledged[pair] = given
            self.executions.pop(pair, None)
        self.signal.fire()
        return repeated

    def set_state(self, execution: Execution, state: State) -> None:
        """Change an execution's state from outside, and wake it."""
        execution.state = state
        execution.signal.fire()

    @property
    def is_busy(self) -> bool:
        """Whether anything runs, or has not reached its boundary yet."""
        return any(item.state in ("running", "park_requested") for item in self.executions.values())

    def parked(self) -> list[Execution]:
        """Parked executions, sorted by pair."""
        return sorted((item for item in self.executions.values() if item.state == "parked"), key=lambda item: item.pair)

    def in_state(self, *states: State) -> list[Execution]:
        """Executions in one of `states`, sorted by pair."""
        return sorted((item for item in self.executions.values() if item.state in states), key=lambda item: item.pair)


def _unknown(pair: Pair, what: str) -> RefusalError:
    return RefusalError(
        "completed_execution_acknowledgement_error", f"{pair.rollout_id} attempt {pair.attempt_index} {what}"
    )
