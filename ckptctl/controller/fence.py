"""The fence: one per server process, in front of every control route that carries a checkpoint id.

Participants and the controller share it; they differ only in their phases, which are plain strings here. For a call
with (checkpoint id, operation), in this order (participant-protocol section 4):

1. the id is retired: the recorded result of the operation that retired it is replayed, anything else is
   `stale_checkpoint`, for the life of the process;
2. a recorded success of the pair is replayed; a duplicate that arrives while the first still runs waits and shares
   its outcome, whatever that is; failures are not recorded, so a retry runs again;
3. another id is active: `checkpoint_conflict`;
4. the phase does not allow the operation: `invalid_phase`;
5. the work runs. Success sets the next phase; failure restores the entry phase, and clears the active id if that was
   idle.

Operations of one id run one after the other: a resume that arrives during a commit waits, then resumes; a commit
that arrives during a resume waits and finds the id retired. The exception is an operation that waits for others
(`is_waiting`, the prepares): it can be overtaken, and when the id was retired meanwhile its own outcome is
`stale_checkpoint`.

The work runs in a task of its own: a caller that hangs up does not stop it. What the work does, and deadlines, are
the caller's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from ckptctl.controller.refusal import RefusalError

R = TypeVar("R")

IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Operation:
    """What the fence must know of one route."""

    name: str
    """Names the replay slot; operations on one of many things put the thing into the name."""
    phases: frozenset[str]
    """Phases in which it may begin."""
    during: str | None = None
    """Phase while it runs; None keeps the entry phase."""
    after: str | None = None
    """Phase after success; None keeps what is there."""
    failed: str | None = None
    """Phase after a failure, with the id kept; None restores the entry phase."""
    is_recorded: bool = True
    """Whether a success is replayed."""
    is_waiting: bool = False
    """It mostly waits for others, so other operations of the id need not wait for it."""
    retires: bool = False
    """Success retires the id for ever and sets idle."""


@dataclass(slots=True, eq=False)
class _Running:
    checkpoint_id: str
    operation: Operation
    task: asyncio.Task[Any]


@dataclass(slots=True)
class Fence:
    """Phases, replay, coalescing and retirement. Not thread-safe: it lives in one event loop."""

    phase: str = IDLE
    active_checkpoint_id: str | None = None
    deadline_ts: float | None = None
    _retired: dict[str, tuple[str, Any]] = field(default_factory=dict)
    _recorded: dict[str, Any] = field(default_factory=dict)
    _running: list[_Running] = field(default_factory=list)

    async def run(
        self,
        checkpoint_id: str,
        operation: Operation,
        work: Callable[[], Awaitable[R]],
        *,
        deadline_ts: float | None = None,
    ) -> R:
        """Run `work` under the fence, or replay, or wait for the same call.

        Raises:
            RefusalError: `stale_checkpoint`, `checkpoint_conflict`, `invalid_phase`, or what `work` raises.
        """
        while True:
            if checkpoint_id in self._retired:  # 1
                by, result = self._retired[checkpoint_id]
                if operation.retires and by == operation.name:
                    return cast("R", result)
                raise self._stale(checkpoint_id)
            if self.active_checkpoint_id == checkpoint_id and operation.name in self._recorded:  # 2
                return cast("R", self._recorded[operation.name])
            if self.active_checkpoint_id not in (None, checkpoint_id):  # 3
                raise self._conflict(checkpoint_id)
            own = [running for running in self._running if running.checkpoint_id == checkpoint_id]
            for running in own:
                if operation.is_recorded and running.operation.name == operation.name:  # 2, still running
                    return cast("R", await asyncio.shield(running.task))
            before = [running.task for running in own if not running.operation.is_waiting]
            if not before:
                break
            await asyncio.wait(before)
        if self.phase not in operation.phases:  # 4
            raise RefusalError("invalid_phase", f"{operation.name} is not possible in phase {self.phase}")
        # 5. The slot is filled before the task first runs, so a duplicate can never slip in between.
        entry, self.active_checkpoint_id = self.phase, checkpoint_id
        self.deadline_ts = self.deadline_ts if deadline_ts is None else deadline_ts
        self.phase = operation.during or self.phase
        task = asyncio.ensure_future(self._work(checkpoint_id, operation, entry, work))
        slot = _Running(checkpoint_id, operation, task)
        self._running.append(slot)
        task.add_done_callback(lambda done: self._ended(slot, done))
        return await asyncio.shield(task)

    async def _work(self, checkpoint_id: str, operation: Operation, entry: str, work: Callable[[], Awaitable[R]]) -> R:
        try:
            result = await work()
        except BaseException as error:
            harmless = isinstance(error, RefusalError) and error.harmless
            self._failed(checkpoint_id, operation, entry if operation.failed is None or harmless else operation.failed)
            raise
        if checkpoint_id in self._retired:  # overtaken by the operation that released the id
            raise self._stale(checkpoint_id)
        if operation.retires:
            self._retired[checkpoint_id] = (operation.name, result)
            self._set(IDLE)
            return result
        if operation.is_recorded:
            self._recorded[operation.name] = result
        if operation.after is not None or operation.during is not None:
            self._set(operation.after or entry)
        else:
            self._set(self.phase)
        return result

    def _failed(self, checkpoint_id: str, operation: Operation, target: str) -> None:
        if self.active_checkpoint_id != checkpoint_id:
            return  # overtaken by the operation that released the id
        moves = operation.during is not None or operation.failed is not None
        self._set(target if moves else self.phase)

    def _set(self, phase: str) -> None:
        self.phase = phase
        if phase == IDLE:
            self.active_checkpoint_id = self.deadline_ts = None
            self._recorded.clear()

    def _ended(self, slot: _Running, task: asyncio.Task[Any]) -> None:
        self._running.remove(slot)
        if not task.cancelled():
            task.exception()  # marks it as seen: the caller may have hung up

    def _stale(self, checkpoint_id: str) -> RefusalError:
        return RefusalError(
            "stale_checkpoint", f"checkpoint id {checkpoint_id} was released here; it can never be used again"
        )

    def _conflict(self, checkpoint_id: str) -> RefusalError:
        return RefusalError(
            "checkpoint_conflict",
            f"checkpoint id {self.active_checkpoint_id} is active here, in phase {self.phase}, not {checkpoint_id}",
        )

    def require(self, checkpoint_id: str, phases: frozenset[str] | None = None) -> None:
        """Demand that a read (a status route) names the active id, in one of `phases`. Raises RefusalError."""
        if checkpoint_id in self._retired:
            raise self._stale(checkpoint_id)
        if self.active_checkpoint_id not in (None, checkpoint_id):
            raise self._conflict(checkpoint_id)
        if phases is not None and self.phase not in phases:
            raise RefusalError("invalid_phase", f"no status in phase {self.phase}")

    def advance(self, checkpoint_id: str, source: str, target: str) -> None:
        """Move on when an awaited condition was observed (a model's status turns preparing into prepared)."""
        if self.active_checkpoint_id == checkpoint_id and self.phase == source:
            self.phase = target

    def is_retired(self, checkpoint_id: str) -> bool:
        """Whether the id can never be used again here."""
        return checkpoint_id in self._retired
