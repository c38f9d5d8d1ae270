"""Run a plan: for each step the intent into the journal, the effect through a port, the outcome into the journal.

Decides nothing about the order (the plan does) and nothing about effects (the actions do). Before publication a
journal that cannot be written stops the transaction; afterwards, and while releasing, it must not: what was begun can
be finished from its first record.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ckptctl.domain.plan import Plan, Step
from ckptctl.domain.traffic import TrafficCount
from ckptctl.domain.transaction import StepTime
from ckptctl.errors import CkptctlError, StorageError
from ckptctl.ports import JournalWriter
from ckptctl.workflows.world import World

Action = Callable[[Step], Awaitable[Mapping[str, Any] | None]]
"""The effect of one step; what it returns goes into the journal with the outcome."""


class Recorder:
    """One transaction's journal and what was recorded so far."""

    def __init__(self, world: World, writer: JournalWriter, *, synced: Iterable[str] = ()) -> None:
        self._world = world
        self._writer = writer
        self._synced = frozenset(synced)
        self._began_s = world.clock.monotonic_s()
        self.is_lenient = False
        """Whether a journal that cannot be written is only told, not an error."""
        self._told: set[str] = set()
        self.intents: list[str] = []
        self.times: list[StepTime] = []

    async def run(self, step: Step, action: Action) -> None:
        """Run one step between its two records."""
        await self._observe(step)
        self.intents.append(step.name)
        self._append({"event": "intent", "number": step.number, "step": step.name, "targets": list(step.targets)})
        self._world.progress.phase(f"{step.number} {step.name}", ", ".join(step.targets[:4]))
        began_s, before = self._world.clock.monotonic_s(), self._world.traffic()
        try:
            facts = await action(step)
        except BaseException as error:
            self.fail(step.name, error, self._measured(began_s, before))
            raise
        measured = self._measured(began_s, before)
        self.times.append(StepTime(number=step.number, name=step.name, seconds=measured["seconds"]))
        own = {"event": "outcome", "number": step.number, "step": step.name, **measured}
        self._append({**own, **(facts or {}), **own}, sync=step.name in self._synced)

    def _measured(self, began_s: float, before: TrafficCount) -> dict[str, Any]:
        """What a step cost; `domain.journal.Measured` says what the fields mean."""
        now_s, traffic = self._world.clock.monotonic_s(), self._world.traffic().since(before)
        return {
            "seconds": round(now_s - began_s, 6),
            "elapsed_s": round(now_s - self._began_s, 6),
            "requests": traffic.requests,
            "sent_bytes": traffic.sent_bytes,
            "received_bytes": traffic.received_bytes,
            "waiting_s": round(traffic.waiting_s, 6),
        }

    def fail(self, name: str, error: BaseException, measured: Mapping[str, Any] | None = None) -> None:
        """Record that a step failed. The error that is on its way is worth more than a journal that cannot take it."""
        code = error.code if isinstance(error, CkptctlError) else type(error).__name__
        was_lenient, self.is_lenient = self.is_lenient, True
        self._append({"event": "failure", "step": name, "code": code, "message": str(error)[:2000], **(measured or {})})
        self.is_lenient = was_lenient

    def finish(self, outcome: str, **facts: Any) -> None:
        """Record how the transaction ended."""
        self._append({"event": "finish", "outcome": outcome, **facts}, sync=True)

    def note(self, event: str, **facts: Any) -> None:
        """Record something that is no step."""
        self._append({"event": event, **facts})

    def _append(self, record: Mapping[str, Any], *, sync: bool = False) -> None:
        try:
            self._writer.append(record, sync=sync)
        except StorageError as error:
            if not self.is_lenient:
                raise
            if error.message not in self._told:
                self._told.add(error.message)
                self._world.notice(f"the journal could not be written: {error.message}")

    async def _observe(self, step: Step) -> None:
        if self._world.observer is not None:
            answer = self._world.observer(step.name)
            if inspect.isawaitable(answer):
                await answer


async def execute(plan: Plan, actions: Mapping[str, Action], recorder: Recorder, *, done: Iterable[str] = ()) -> None:
    """Run every step of a plan in order; the first failure ends it."""
    finished = set(done)
    for step in plan.steps:
        missing = set(step.requires) - finished
        assert not missing, f"{step.name} was planned before {missing}"
        await recorder.run(step, actions[step.name])
        finished.add(step.name)
