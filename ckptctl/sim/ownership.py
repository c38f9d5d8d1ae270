"""Taking a result over: the receipt is read, then the attempt is sealed and its acknowledgement owed in one mutation.

Until that mutation the agent keeps the result and blocks every prepare; afterwards the ledger owns it, whatever
happens to the agent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from ckptctl.domain.canonical import compact_digest
from ckptctl.domain.finding import DefectError
from ckptctl.domain.ids import capture_key
from ckptctl.domain.participant import CompletionReceipt
from ckptctl.sim.agent_client import FORGOTTEN, AgentClient, AgentClientError
from ckptctl.sim.ledger_book import SealedResult
from ckptctl.sim.rollout_state import RolloutState
from ckptctl.sim.run_files import RunLog
from ckptctl.sim.sealing import call_chain, capture_receipt

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 2.0


class ResultOwner:
    """Seals what agents return."""

    def __init__(self, state: RolloutState, results: RunLog) -> None:
        self._state, self._results = state, results
        self.problems: list[str] = []

    async def own(
        self, group_id: str, generation_index: int, pair: tuple[str, int], agent: AgentClient, result: Mapping[str, Any]
    ) -> bool:
        """Own one result. Returns whether its group is ready to be finalized.

        Raises:
            AgentClientError: the agent is another process by now, and the result is gone with the one that had it.
        """
        receipt = await self._receipt(agent, pair, result)
        async with self._state.plane.mutation():
            sealed = self._sealed_result(pair, agent, receipt, result)
            is_ready = self._state.ledger.sealed(group_id, generation_index, sealed)
            # Inside the mutation: no cut may see an attempt sealed that the log does not know.
            self._log(group_id, generation_index, pair, sealed, result)
        return is_ready

    async def _receipt(self, agent: AgentClient, pair: tuple[str, int], result: Mapping[str, Any]) -> CompletionReceipt:
        """Ask until the agent answers with the receipt of this result: while it does not, it may still hold it."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                receipt = await agent.completion_receipt(*pair)
            except AgentClientError as problem:
                if problem.code == FORGOTTEN:
                    raise
            else:
                # One that is not of this result could never be acknowledged: the agent would hold the result for ever.
                if (receipt.rollout_id, receipt.attempt_index) == pair and receipt.result_digest == compact_digest(
                    result
                ):
                    return receipt
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _sealed_result(
        self, pair: tuple[str, int], agent: AgentClient, receipt: CompletionReceipt, result: Mapping[str, Any]
    ) -> SealedResult:
        """The sealed attempt; one whose calls cannot be found is sealed without tokens and masked, never lost."""
        reward = float(result["reward"])
        masked = SealedResult(agent.name, receipt, None, (), reward, mask_sample=True)
        if receipt.manifest_capture_key is None or receipt.terminal_model_call_id is None:
            return masked
        rollout, attempt_index = pair
        try:
            chain = call_chain(
                self._state.plane,
                self._state.settings.staging_partition,
                rollout=rollout,
                attempt_index=attempt_index,
                capture=receipt.manifest_capture_key,
                call_id=receipt.terminal_model_call_id,
            )
        except DefectError as problem:
            self.problems.append(f"{rollout} attempt {attempt_index}: token capture failed: {problem}")
            return masked
        own_key = capture_key(rollout, attempt_index)
        document, keys = capture_receipt(chain, capture=own_key, reward=reward, sealed_at=time.time())
        return SealedResult(agent.name, receipt, document, keys, reward, mask_sample=False)

    def _log(
        self,
        group_id: str,
        generation_index: int,
        pair: tuple[str, int],
        sealed: SealedResult,
        result: Mapping[str, Any],
    ) -> None:
        transcript = result.get("transcript", [])
        self._results.append(
            {
                "kind": "sibling",
                "incarnation": self._state.settings.incarnation,
                "group_id": group_id,
                "environment": self._state.ledger.group(group_id).prompt_ref.task_name,
                "rollout_id": pair[0],
                "generation_index": generation_index,
                "attempt_index": pair[1],
                "reward": sealed.reward,
                "mask_sample": sealed.mask_sample,
                "final_state": result.get("final_state"),
                "transcript_digest": compact_digest(transcript),
                "transcript": transcript,
            }
        )
