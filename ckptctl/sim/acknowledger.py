"""The background flusher: tells agents that their completed results are owned, and takes them out of the outbox.

ckptctl's drain may do the same at the same time: repeats are harmless on both sides, because the agent accepts an
exact repetition and `confirm` removes only what is still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ckptctl.domain.participant import CompletionReceipt
from ckptctl.sim.agent_client import AgentClient, AgentClientError
from ckptctl.sim.ledger_book import LedgerBook
from ckptctl.sim.plane import DataPlane

BATCH_RECEIPTS = 1000


class Acknowledger:
    """Flushes the outbox, one batch per agent at a time, whatever admission says."""

    def __init__(
        self, plane: DataPlane, ledger: LedgerBook, agents: Mapping[str, AgentClient], *, interval_s: float
    ) -> None:
        self._plane, self._ledger, self._agents = plane, ledger, agents
        self._interval_s = interval_s
        self._flushing = asyncio.Lock()
        self.last_problem = ""

    async def run(self) -> None:
        """Flush for ever; the owner cancels it."""
        while True:
            await asyncio.sleep(self._interval_s)
            async with self._flushing:
                await self._flush()

    async def settle(self) -> None:
        """Return when no acknowledgement is on its way: afterwards the outbox says what is really owed."""
        async with self._flushing:
            pass

    async def _flush(self) -> None:
        by_agent: dict[str, list[CompletionReceipt]] = {}
        for entry in self._ledger.outbox():
            by_agent.setdefault(entry.agent_name, []).append(entry.receipt)
        await asyncio.gather(*(self._deliver(name, receipts[:BATCH_RECEIPTS]) for name, receipts in by_agent.items()))

    async def _deliver(self, agent_name: str, receipts: list[CompletionReceipt]) -> None:
        try:
            await self._agents[agent_name].acknowledge(receipts)
        except AgentClientError as problem:
            self.last_problem = str(problem)  # it stays owed; the next round, or the coordinator, tries again
            return
        async with self._plane.mutation():
            self._ledger.confirm(receipts)
