"""Deliver the acknowledgements that the controller still owes to agents, and confirm what was delivered
(participant-protocol section 8).

Batched per agent, agents side by side, echo compared exactly (invariant 87), then confirmed. Repeats are harmless. An
agent that refuses a batch because it does not know a receipt (its process restarted) is asked which results it holds:
those are delivered, of the others one batch at most is tried again. An agent that does not say gets the batch in
halves until the unknown ones stand alone. Whatever stays unknown the controller settles if ledger or replay metadata
own it, and if the agent says that it does not hold the result: one that is settled is never delivered again, and would
block every later prepare of an agent that holds it. One that nobody owns cannot be resolved and stops the snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from ckptctl.domain.amounts import plural
from ckptctl.domain.controller import Acknowledgement
from ckptctl.domain.evidence import LiveFacts
from ckptctl.domain.participant import AgentStatus, CompletionReceipt, Execution
from ckptctl.domain.topology import Topology
from ckptctl.errors import AcknowledgementRefusedError, CkptctlError, DeadlineError, MalformedReplyError
from ckptctl.workflows.judging import ACKNOWLEDGEMENT_ECHO, judge_live
from ckptctl.workflows.waiting import Pauses, ask, side_by_side
from ckptctl.workflows.world import World

BATCH = 1000
"""Receipts per request and acknowledgements per page."""
OPERATION = "acknowledge-completed"
Receipts = tuple[CompletionReceipt, ...]
Pair = tuple[str, int]
"""A rollout and the index of its attempt."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """A refused batch, taken apart."""

    to_deliver: tuple[Receipts, ...]
    absent: Receipts
    """Results that the agent says it does not hold; it may remember some of them as acknowledged."""
    unknown: Receipts
    """Those of them that are not worth trying again."""


class Outbox:
    """The controller's outbox, as seen by whoever empties it. `delivered` counts what was confirmed or settled."""

    def __init__(self, world: World, topology: Topology, checkpoint_id: str) -> None:
        self._world = world
        self._checkpoint_id = checkpoint_id
        self._servers: Mapping[str, str] = {
            name: item.server_name for item in topology.agents for name in (item.participant_name, item.server_name)
        }
        self._turn = asyncio.Lock()
        self._done: set[Pair] = set()
        """What the last flush had delivered and confirmed, or settled."""
        self.delivered = 0

    async def flush(self, deadline_ts: float) -> int:
        """Deliver and confirm what is there now, and return how many that were. Concurrent callers take turns."""
        async with self._turn:
            pending = await self._pending(deadline_ts)
            self._demand_news(pending)
            by_agent: dict[str, list[CompletionReceipt]] = {}
            for item in pending:
                by_agent.setdefault(item.agent_name, []).append(item.receipt)
            calls = {
                agent: partial(self._deliver, agent, tuple(receipts), deadline_ts)
                for agent, receipts in by_agent.items()
            }
            accepted = await side_by_side(calls)
            await self._confirm(tuple(item for receipts in accepted.values() for item in receipts), deadline_ts)
            self._done = {_pair(item.receipt) for item in pending}
            self.delivered += len(pending)
            return len(pending)

    async def drain(self, deadline_ts: float) -> int:
        """Flush until the outbox is empty. Raises DeadlineError when it does not become so in time."""
        total = 0
        pauses = Pauses(self._world)
        while count := await self.flush(deadline_ts):
            total += count
            if not await pauses.wait(deadline_ts):
                last = f"completed results keep coming: {total} were acknowledged, {count} of them in the last round"
                raise DeadlineError(server="controller", operation="acknowledgements", last=last)
        return total

    def _demand_news(self, pending: Iterable[Acknowledgement]) -> None:
        """Raise MalformedReplyError when the controller owes again what it said was done: that would go on for ever."""
        again = [item.receipt for item in pending if _pair(item.receipt) in self._done]
        if again:
            raise MalformedReplyError(
                server="controller",
                operation="acknowledgements",
                status=200,
                server_code="owed-again",
                detail=f"{plural(len(again), 'completed result')} came back after it was confirmed or settled, for example "
                f"{again[0].rollout_id} attempt {again[0].attempt_index}",
                hint="its outbox keeps what it should have removed; see its log. A restart of the run and `ckptctl restore` "
                "begin with an outbox of what ledger and replay metadata own",
            )

    async def _pending(self, deadline_ts: float) -> list[Acknowledgement]:
        pending: list[Acknowledgement] = []
        after: str | None = None
        while True:
            call = partial(self._world.controller.acknowledgements, limit=BATCH, after=after)
            page = await ask(self._world, deadline_ts, call)
            pending += page.pending
            after = page.next
            if after is None:
                return pending
            if not page.pending:
                detail = "an empty page names a following one"
                raise MalformedReplyError(
                    server="controller",
                    operation="acknowledgements",
                    status=200,
                    server_code="malformed",
                    detail=detail,
                )

    async def _deliver(self, agent: str, receipts: Receipts, deadline_ts: float) -> Receipts:
        """Deliver to one agent; returns what it accepted. What it does not know is settled or raises."""
        server = self._servers.get(agent)
        if server is None:
            await self._settle(agent, receipts, deadline_ts, "it is no agent of this topology")
            return ()
        accepted: list[CompletionReceipt] = []
        unknown: list[CompletionReceipt] = []
        waiting = [(receipts[start : start + BATCH], False) for start in range(0, len(receipts), BATCH)]
        absent: set[Pair] = set()
        reasons: dict[Pair, str] = {}
        while waiting:
            batch, is_part = waiting.pop(0)
            try:
                await self._acknowledge(server, batch, deadline_ts)
            except AcknowledgementRefusedError as refusal:
                reasons.update(dict.fromkeys(map(_pair, batch), refusal.detail))
                if len(batch) == 1:
                    unknown += batch
                    continue
                parts = None if is_part else await self._told_apart(server, batch, deadline_ts)
                if parts is None:
                    middle = len(batch) // 2
                    waiting[:0] = [(batch[:middle], True), (batch[middle:], True)]
                else:
                    waiting[:0] = [(part, True) for part in parts.to_deliver]
                    unknown += parts.unknown
                    absent.update(map(_pair, parts.absent))
            else:
                accepted += batch
        if unknown:
            doubtful = tuple(item for item in unknown if _pair(item) not in absent)
            if doubtful:
                await self._demand_forgotten(server, doubtful, deadline_ts, reasons)
            await self._settle(agent, tuple(unknown), deadline_ts, reasons[_pair(unknown[0])])
        return tuple(accepted)

    async def _told_apart(self, server: str, batch: Receipts, deadline_ts: float) -> _Parts | None:
        """What a refused batch consists of, by the agent's own account; None when it gives none that can be used."""
        try:
            status = await self._status(server, deadline_ts)
        except CkptctlError:
            return None
        held = _held_by(status)
        if held is None:
            return None
        known = tuple(item for item in batch if _pair(item) in held)
        others = tuple(item for item in batch if _pair(item) not in held)
        if known == batch:
            return None  # one of them differs from what the agent holds
        # What it remembers as acknowledged it accepts again; a process that acknowledged nothing can only refuse.
        is_worth_trying = status.acknowledged_completed > 0
        delivered = (known, others) if is_worth_trying else (known,)
        return _Parts(tuple(part for part in delivered if part), others, () if is_worth_trying else others)

    async def _demand_forgotten(
        self, server: str, refused: Receipts, deadline_ts: float, reasons: Mapping[Pair, str]
    ) -> None:
        """Raise AcknowledgementRefusedError unless the agent holds none of the results whose receipts it refuses."""
        held = _held_by(await self._status(server, deadline_ts))
        if held is None:
            what, how = refused[0], "does not tell which results it holds"
        else:
            contested = [item for item in refused if _pair(item) in held]
            if not contested:
                return
            what, how = contested[0], "holds that result"
        raise AcknowledgementRefusedError(
            server=server,
            operation=OPERATION,
            status=409,
            server_code="contested",
            detail=f"it refuses the receipt of {what.rollout_id} attempt {what.attempt_index} ({reasons[_pair(what)]}) "
            f"and {how}",
            hint="try again; if it stays, compare its `completion-receipt` of that attempt with the controller's",
        )

    async def _status(self, server: str, deadline_ts: float) -> AgentStatus:
        call = partial(self._world.participants.agent_status, server, self._checkpoint_id)
        return await ask(self._world, deadline_ts, call)

    async def _acknowledge(self, server: str, batch: Receipts, deadline_ts: float) -> None:
        reply = await ask(self._world, deadline_ts, partial(self._world.participants.agent_acknowledge, server, batch))
        live = LiveFacts(acknowledged=((server, batch, tuple(reply.acknowledged)),))
        for finding in judge_live((ACKNOWLEDGEMENT_ECHO,), live):
            raise MalformedReplyError(
                server=server, operation=OPERATION, status=200, server_code=finding.rule, detail=finding.message
            )

    async def _confirm(self, receipts: Receipts, deadline_ts: float) -> None:
        for start in range(0, len(receipts), BATCH):
            batch = receipts[start : start + BATCH]
            # What the controller does not know any more was confirmed before: a reply was lost.
            await ask(self._world, deadline_ts, partial(self._world.controller.confirm, batch))

    async def _settle(self, agent: str, receipts: Receipts, deadline_ts: float, why: str) -> None:
        for start in range(0, len(receipts), BATCH):
            batch = receipts[start : start + BATCH]
            reply = await ask(self._world, deadline_ts, partial(self._world.controller.settle, batch))
            if reply.unowned:
                first = reply.unowned[0]
                raise AcknowledgementRefusedError(
                    server=agent,
                    operation=OPERATION,
                    status=409,
                    server_code="unresolved",
                    detail=f"{plural(len(reply.unowned), 'completed result')} known neither to it nor to ledger or replay "
                    f"metadata, for example {first.rollout_id} attempt {first.attempt_index}: {why}",
                )
            settled = plural(len(reply.settled), "acknowledgement")
            self._world.notice(f"settled {settled} that `{agent}` no longer knows: the results are kept")


def _pair(item: CompletionReceipt | Execution) -> Pair:
    return item.rollout_id, item.attempt_index


def _held_by(status: AgentStatus) -> set[Pair] | None:
    """The pairs whose results an agent still holds; None when it counts others than it lists."""
    held = set(map(_pair, status.completed_unacknowledged_attempts))
    return held if len(held) == status.completed_unacknowledged else None
