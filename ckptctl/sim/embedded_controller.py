"""The embedded cluster's rollout controller: the controller interface's methods on top of books, loop and trainer.

The application around it (`ckptctl.controller.app`) owns protocol, fence, phases and deadlines. Each method here is
short, because the work has a module of its own: `rollout_loop` dispatches, `saved_state` saves, `restored_state`
restores, `ledger_book` checks mappings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ckptctl.controller.interface import ControllerFacts
from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.controller import (
    Acknowledgement,
    AcknowledgementsReply,
    ClearBody,
    ClearReply,
    CloseReply,
    ConfirmBody,
    ConfirmReply,
    LedgerReply,
    OpenBody,
    Redispatch,
    RestoreBody,
    RestoreReply,
    SaveBody,
    SaveReply,
    SettleBody,
    SettleReply,
)
from ckptctl.domain.participant import CommonBody, CompletionReceipt
from ckptctl.errors import CkptctlError
from ckptctl.sim.acknowledger import Acknowledger
from ckptctl.sim.agent_client import AgentClient
from ckptctl.sim.finishing import Finisher
from ckptctl.sim.ownership import ResultOwner
from ckptctl.sim.restored_state import restore
from ckptctl.sim.rollout_loop import Dispatch, RolloutLoop
from ckptctl.sim.rollout_state import SAMPLER_NAME, RolloutState
from ckptctl.sim.run_files import RunLog
from ckptctl.sim.saved_state import save


class EmbeddedController:
    """Implements `RolloutController`. `start` begins its background tasks, `stop` ends them."""

    def __init__(
        self,
        state: RolloutState,
        agents: Mapping[str, AgentClient],
        *,
        results: RunLog,
        dispatches: RunLog,
        restores: RunLog,
    ) -> None:
        self.state = state
        self.finisher = Finisher(state, results)
        self.owner = ResultOwner(state, results)
        self.loop = RolloutLoop(state, agents, self.owner, self.finisher, dispatches)
        self._acknowledger = Acknowledger(
            state.plane, state.ledger, agents, interval_s=state.settings.acknowledge_interval_s
        )
        self._restores = restores
        self._restored: dict[str, Any] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Register the partitions and begin; admission opens at once unless a restore is expected."""
        await self.state.register_partitions()
        self._tasks = [asyncio.create_task(self.loop.run()), asyncio.create_task(self._acknowledger.run())]
        if not self.state.settings.restore_expected:
            self.loop.open()

    async def stop(self) -> None:
        """End every task."""
        self.loop.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def problems(self) -> list[str]:
        """What went wrong in the background and was not anyone's answer."""
        ended = [task.exception() for task in self._tasks if task.done() and not task.cancelled()]
        return [*self.loop.problems, *self.owner.problems, *(f"a background task ended: {error!r}" for error in ended)]

    # --- the interface's routes ----------------------------------------------------------------------------------------------

    async def facts(self) -> ControllerFacts:
        """The controller's part of the status."""
        state = self.state
        return ControllerFacts(
            train_step=state.trainer.train_step,
            trainer_version=state.trainer.trainer_version,
            epoch=state.prompts.epoch,
            mutation_version=state.plane.mutation_version,
            sampler_dispatch_index=state.sampler_dispatch_index,
            sampler_name=SAMPLER_NAME,
            unfinished_rollouts=state.ledger.unfinished_rollouts(),
            acknowledgements_pending=len(state.ledger.outbox()),
            canonical_partition=state.settings.canonical_partition,
            staging_partition=state.settings.staging_partition,
            data_plane=state.plane.kind,
            storage_units=state.plane.storage_units,
            takes_own_snapshots=False,
            trainer_busy=state.trainer.is_busy,
            checkpoint_dir=state.trainer.checkpoint_dir,
            anchor=state.trainer.anchor,
            bootstrap_fingerprint=state.trainer.bootstrap_fingerprint,
        )

    async def close_admission(self, request: CommonBody) -> CloseReply:
        """No new dispatch; those begun have reached their agents."""
        await self.loop.close(request.checkpoint_id)
        return CloseReply(
            phase="closed", unfinished_rollouts=self.state.ledger.unfinished_rollouts(), in_flight_dispatches=0
        )

    async def acknowledgements(self, limit: int, after: str | None) -> AcknowledgementsReply:
        """One page of the outbox."""
        entries = self.state.ledger.outbox()
        begin = (
            0
            if after is None
            else next((at for at, entry in enumerate(entries) if _cursor(entry) > after), len(entries))
        )
        page = entries[begin : begin + limit]
        more = begin + limit < len(entries)
        return AcknowledgementsReply(pending=list(page), total=len(entries), next=_cursor(page[-1]) if more else None)

    async def confirm(self, request: ConfirmBody) -> ConfirmReply:
        """Remove exactly what was delivered."""
        async with self.state.plane.mutation():
            removed, unknown = self.state.ledger.confirm(request.acknowledged)
        return ConfirmReply(removed=removed, unknown=unknown, remaining=len(self.state.ledger.outbox()))

    async def settle(self, request: SettleBody) -> SettleReply:
        """Remove what ledger or replay metadata own."""
        owned = [receipt for receipt in request.receipts if self._owns(receipt)]
        async with self.state.plane.mutation():
            self.state.ledger.confirm(owned)
        return SettleReply(settled=owned, unowned=[receipt for receipt in request.receipts if receipt not in owned])

    async def save(self, request: SaveBody) -> SaveReply:
        """Write the controller's part of the snapshot."""
        return await save(self.state, request, self._acknowledger.settle)

    async def restore(self, request: RestoreBody) -> RestoreReply:
        """Load a snapshot; admission stays closed."""
        reply, self._restored = await restore(self.state, request)
        return reply

    async def ledger(self, limit: int, after: str | None) -> LedgerReply:
        """One page of the restored ledger."""
        groups, total, following = self.state.ledger.page(limit, after)
        return LedgerReply(groups=groups, total=total, next=following)

    async def clear_staging(self, request: ClearBody) -> ClearReply:
        """Remove staging rows of restarted continuations."""
        keys = set(request.keys)
        async with self.state.plane.mutation():
            try:
                cleared = self.state.plane.clear(self.state.settings.staging_partition, sorted(keys))
            except CkptctlError as problem:
                raise RefusalError("storage_error", problem.message) from problem
        return ClearReply(cleared=cleared, absent=len(keys) - cleared)

    async def open_admission(self, request: OpenBody) -> int:
        """Dispatch again; after a restore exactly as the mapping says, admitted groups first."""
        if request.outcome != "restored":
            if request.redispatch:
                raise RefusalError("unowned_redispatch", "a redispatch mapping belongs to a restore")
            if self.loop.is_open:
                return 0
            return self.loop.open()
        self.state.ledger.check_redispatch(request.redispatch)
        async with self.state.plane.mutation():
            dispatches = [self._redispatch(item) for item in self._in_order(request.redispatch)]
        if self._restored is not None:
            self._restores.append(
                {**self._restored, "redispatch": [item.model_dump(mode="json") for item in request.redispatch]}
            )
        return self.loop.open(dispatches)

    # --- inside --------------------------------------------------------------------------------------------------------------

    def _owns(self, receipt: CompletionReceipt) -> bool:
        return self.state.ledger.owns(receipt) or self.state.owns_result(receipt.rollout_id)

    def _in_order(self, mapping: list[Redispatch]) -> list[Redispatch]:
        """Admitted groups first, then the reserved ones by admission (snapshot-layout section 6.4)."""
        place = {group.group_id: at for at, group in enumerate(self.state.ledger.groups())}

        def key(item: Redispatch) -> tuple[bool, int, int]:
            group = self.state.ledger.group(item.group_id)
            return group.phase != "admitted", place[item.group_id], item.generation_index

        return sorted(mapping, key=key)

    def _redispatch(self, item: Redispatch) -> Dispatch:
        attempt = self.state.ledger.redispatch(item.group_id, item.generation_index)
        reason = item.mode if attempt != item.source_attempt else "reserved"
        return Dispatch(item.group_id, item.generation_index, attempt, reason)


def _cursor(entry: Acknowledgement) -> str:
    """Sorts as the outbox does: NUL is below every character of a name."""
    return f"{entry.agent_name}\x00{entry.receipt.rollout_id}\x00{entry.receipt.attempt_index:012d}"
