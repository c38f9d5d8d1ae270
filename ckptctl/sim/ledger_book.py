"""The recovery ledger of a running controller: unfinished groups, their attempts, and the outbox of acknowledgements owed.

Every method is one transition and keeps the structural rules of snapshot-layout section 6.3; what is dispatched
when, and what is written where, others decide. Groups are immutable documents, so a `ledger()` taken in a cut
cannot change afterwards.

    reserved -> dispatched -> sealed                  the group: generating -> ready_to_finalize -> finalizing -> (dropped)
                    |-> failed, next attempt reserved
    restart: dispatched or failed -> abandoned, the redispatch appends the next attempt; reserved stays what it is
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.controller import Acknowledgement, LedgerGroup, LedgerSibling, Redispatch
from ckptctl.domain.ids import capture_key
from ckptctl.domain.ledger import LEDGER_SCHEMA_VERSION, Attempt, Group, Ledger
from ckptctl.domain.participant import CompletionReceipt, Execution

UNDECIDED = frozenset({"finalizing", "finalization_unknown"})


@dataclass(frozen=True, slots=True)
class SealedResult:
    """A finished attempt: everything that the ledger keeps of it."""

    agent_name: str
    completion_receipt: CompletionReceipt
    receipt: dict[str, Any] | None
    """The token-capture receipt; None for an explicit capture failure."""
    staging_keys: tuple[str, ...]
    reward: float
    mask_sample: bool


def new_attempt(index: int) -> Attempt:
    """An attempt that was not dispatched yet."""
    return Attempt(
        attempt_index=index,
        status="reserved",
        receipt=None,
        completion_receipt=None,
        reward=None,
        mask_sample=None,
        staging_keys=[],
    )


class LedgerBook:
    """The unfinished groups by id, in the order of their admission, and the outbox."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._outbox: dict[tuple[str, int], Acknowledgement] = {}
        self._held: dict[tuple[str, int], SealedResult] = {}
        """Results of `prompt_group` siblings that wait for the whole group; a crash loses them, by design."""

    # --- reading -------------------------------------------------------------------------------------------------------------

    def groups(self) -> tuple[Group, ...]:
        """All unfinished groups."""
        return tuple(self._groups.values())

    def group(self, group_id: str) -> Group:
        """One unfinished group. Raises KeyError."""
        return self._groups[group_id]

    def has(self, group_id: str) -> bool:
        """Whether the group is unfinished."""
        return group_id in self._groups

    def unfinished_rollouts(self) -> int:
        """Siblings whose current attempt is not sealed."""
        return sum(sibling.current.status != "sealed" for group in self.groups() for sibling in group.siblings)

    def undecided_groups(self) -> tuple[str, ...]:
        """Groups whose finalization is running, or ended in doubt."""
        return tuple(group.group_id for group in self.groups() if group.status in UNDECIDED)

    def staging_keys(self) -> set[str]:
        """The staging keys that sealed current attempts need."""
        return {key for group in self.groups() for sibling in group.siblings for key in sibling.current.staging_keys}

    def ledger(self, *, owned_by_replay: Iterable[str], stamps_target_steps: bool) -> Ledger:
        """The document to save; groups that the replay metadata owns are left out."""
        owned = frozenset(owned_by_replay)
        return Ledger(
            schema_version=LEDGER_SCHEMA_VERSION,
            groups=[group for group in self.groups() if group.group_id not in owned],
            pending_completed_execution_acknowledgements=list(self.outbox()),
            batch_shortfall={},
            sampler_stamps_target_steps=stamps_target_steps,
        )

    def page(self, limit: int, after: str | None) -> tuple[list[LedgerGroup], int, str | None]:
        """Groups after `after` by id, the total, and the next cursor."""
        ordered = sorted(self._groups)
        begin = 0 if after is None else next((at for at, name in enumerate(ordered) if name > after), len(ordered))
        names = ordered[begin : begin + limit]
        more = begin + limit < len(ordered)
        return [_shown(self._groups[name]) for name in names], len(ordered), names[-1] if more else None

    # --- a group's life ------------------------------------------------------------------------------------------------------

    def add(self, groups: Iterable[Group]) -> None:
        """Take reserved groups in."""
        for group in groups:
            assert group.group_id not in self._groups, "a group is admitted twice"
            self._groups[group.group_id] = group

    def admit(self, admission_id: str) -> None:
        """All groups of one admission become admitted together (rule 8)."""
        for group in self.groups():
            if group.admission_id == admission_id:
                self._groups[group.group_id] = group.model_copy(update={"phase": "admitted"})

    def dispatched(self, group_id: str, generation_index: int) -> None:
        """The current attempt goes to its agent."""
        self._set_status(group_id, generation_index, "reserved", "dispatched")

    def not_dispatched(self, group_id: str, generation_index: int) -> None:
        """The agent turned the current attempt away before it began: it is as if it had never been sent."""
        self._set_status(group_id, generation_index, "dispatched", "reserved")

    def failed(self, group_id: str, generation_index: int) -> int:
        """The current attempt ended without a result; its successor is reserved. Returns the new attempt index."""
        self._set_status(group_id, generation_index, "dispatched", "failed")
        return self._append_attempt(group_id, generation_index)

    def sealed(self, group_id: str, generation_index: int, result: SealedResult) -> bool:
        """Own a result and owe its acknowledgement, in one step. Returns whether the group is ready to be finalized."""
        group = self.group(group_id)
        attempt = group.siblings[generation_index].current
        assert attempt.status == "dispatched", f"a result for an attempt that is {attempt.status}"
        pair = (group.rollout_of(group.siblings[generation_index]), attempt.attempt_index)
        self._outbox[pair] = Acknowledgement(receipt=result.completion_receipt, agent_name=result.agent_name)
        if group.recovery_granularity == "sibling":
            self._seal(group_id, generation_index, result)
        else:
            self._held[pair] = result
            self._seal_whole_group(group)
        group = self.group(group_id)
        if any(sibling.current.status != "sealed" for sibling in group.siblings):
            return False
        self._groups[group_id] = group.model_copy(update={"status": "ready_to_finalize"})
        return True

    def finalizing(self, group_id: str) -> None:
        """Canonical rows are being made; until `finalized` a crash would leave it unknown whether they exist."""
        self._change_group(group_id, "ready_to_finalize", "finalizing")

    def not_finalized(self, group_id: str) -> None:
        """Finalization failed before anything was written."""
        self._change_group(group_id, "finalizing", "ready_to_finalize")

    def drop(self, group_id: str) -> Group:
        """The replay metadata owns the group from now on."""
        return self._groups.pop(group_id)

    # --- the outbox ----------------------------------------------------------------------------------------------------------

    def outbox(self) -> tuple[Acknowledgement, ...]:
        """What is owed, sorted by agent, rollout, attempt."""
        return tuple(sorted(self._outbox.values(), key=_outbox_order))

    def confirm(self, receipts: Iterable[CompletionReceipt]) -> tuple[int, list[Execution]]:
        """Remove exactly what was delivered. Returns how many, and the pairs that are not owed in just this form."""
        removed, unknown = 0, []
        for receipt in receipts:
            pair = (receipt.rollout_id, receipt.attempt_index)
            owed = self._outbox.get(pair)
            if owed is None or owed.receipt != receipt:
                unknown.append(Execution(rollout_id=receipt.rollout_id, attempt_index=receipt.attempt_index))
                continue
            del self._outbox[pair]
            removed += 1
        return removed, unknown

    def owns(self, receipt: CompletionReceipt) -> bool:
        """Whether a sealed attempt (or a held result) stands for exactly this receipt."""
        held = self._held.get((receipt.rollout_id, receipt.attempt_index))
        return (held is not None and held.completion_receipt == receipt) or any(
            attempt.completion_receipt == receipt
            for group in self.groups()
            for sibling in group.siblings
            for attempt in sibling.attempts
        )

    # --- restart (snapshot-layout section 6.4) -------------------------------------------------------------------------------

    def load(self, ledger: Ledger, *, owned_by_replay: Iterable[str]) -> None:
        """Take over a saved ledger as a restart does. Acknowledgements name executions of processes that are gone: dropped."""
        owned = frozenset(owned_by_replay)
        self._outbox, self._held = {}, {}
        self._groups = {group.group_id: _restarted(group) for group in ledger.groups if group.group_id not in owned}

    def check_redispatch(self, mapping: Sequence[Redispatch]) -> None:
        """Demand that the mapping covers every unsealed sibling exactly once, with the right attempts.

        Raises:
            RefusalError: `unowned_redispatch`; nothing was changed.
        """
        wanted = {
            (group.group_id, sibling.generation_index): (group.rollout_of(sibling), sibling.current)
            for group in self.groups()
            for sibling in group.siblings
            if sibling.current.status != "sealed"
        }
        for item in mapping:
            found = wanted.pop((item.group_id, item.generation_index), None)
            if found is None or found[0] != item.rollout_id:
                raise RefusalError(
                    "unowned_redispatch", f"{item.rollout_id}: no such unsealed sibling, or it is listed twice"
                )
            attempt = found[1]
            replacement = attempt.attempt_index + (attempt.status != "reserved")
            if (item.source_attempt, item.replacement_attempt) != (attempt.attempt_index, replacement):
                raise RefusalError(
                    "unowned_redispatch",
                    f"{item.rollout_id} is {attempt.status} at attempt {attempt.attempt_index}: the replacement is "
                    f"{replacement}, the mapping says {item.source_attempt} -> {item.replacement_attempt}",
                )
        if wanted:
            missing = sorted(rollout for rollout, _ in wanted.values())
            raise RefusalError(
                "unowned_redispatch", f"{len(missing)} unsealed siblings are left out: {', '.join(missing[:10])}"
            )

    def redispatch(self, group_id: str, generation_index: int) -> int:
        """Append the next attempt of an abandoned sibling, or keep a reserved one. Returns the attempt to dispatch."""
        attempt = self.group(group_id).siblings[generation_index].current
        if attempt.status == "reserved":
            return attempt.attempt_index
        return self._append_attempt(group_id, generation_index)

    # --- inside --------------------------------------------------------------------------------------------------------------

    def _seal(self, group_id: str, generation_index: int, result: SealedResult) -> None:
        group = self.group(group_id)
        sibling = group.siblings[generation_index]
        assert result.receipt is None or result.receipt["rollout_id"] == capture_key(
            group.rollout_of(sibling), sibling.current.attempt_index
        ), "a receipt names another capture key than its attempt's"
        attempt = sibling.current.model_copy(
            update={
                "status": "sealed",
                "receipt": result.receipt,
                "completion_receipt": result.completion_receipt,
                "reward": result.reward,
                "mask_sample": result.mask_sample,
                "staging_keys": list(result.staging_keys),
            }
        )
        self._put_attempts(group_id, generation_index, [*sibling.attempts[:-1], attempt])
        self._groups[group_id] = self.group(group_id).model_copy(update={"resolved_agent_name": result.agent_name})

    def _seal_whole_group(self, group: Group) -> None:
        pairs = [(group.rollout_of(sibling), sibling.current.attempt_index) for sibling in group.siblings]
        if all(pair in self._held for pair in pairs):
            for sibling, pair in zip(group.siblings, pairs, strict=True):
                self._seal(group.group_id, sibling.generation_index, self._held.pop(pair))

    def _append_attempt(self, group_id: str, generation_index: int) -> int:
        sibling = self.group(group_id).siblings[generation_index]
        index = sibling.current.attempt_index + 1
        self._put_attempts(group_id, generation_index, [*sibling.attempts, new_attempt(index)])
        return index

    def _set_status(self, group_id: str, generation_index: int, before: str, after: str) -> None:
        sibling = self.group(group_id).siblings[generation_index]
        assert sibling.current.status == before, f"{after} from {sibling.current.status}, not {before}"
        attempt = sibling.current.model_copy(update={"status": after})
        self._put_attempts(group_id, generation_index, [*sibling.attempts[:-1], attempt])

    def _put_attempts(self, group_id: str, generation_index: int, attempts: list[Attempt]) -> None:
        group = self.group(group_id)
        siblings = list(group.siblings)
        siblings[generation_index] = siblings[generation_index].model_copy(update={"attempts": attempts})
        self._groups[group_id] = group.model_copy(update={"siblings": siblings})

    def _change_group(self, group_id: str, before: str, after: str) -> None:
        group = self.group(group_id)
        assert group.status == before, f"{after} from {group.status}, not {before}"
        self._groups[group_id] = group.model_copy(update={"status": after})


def _outbox_order(entry: Acknowledgement) -> tuple[str, str, int]:
    return entry.agent_name, entry.receipt.rollout_id, entry.receipt.attempt_index


def _shown(group: Group) -> LedgerGroup:
    return LedgerGroup(
        group_id=group.group_id,
        recovery_granularity=group.recovery_granularity,
        siblings=[
            LedgerSibling(
                generation_index=sibling.generation_index,
                rollout_id=group.rollout_of(sibling),
                current_attempt=sibling.current.attempt_index,
                status=sibling.current.status,
            )
            for sibling in group.siblings
        ],
    )


def _restarted(group: Group) -> Group:
    """One group after a restart. What was never dispatched stays reserved, whatever the granularity."""
    if group.status != "generating":
        return group
    keeps_sealed = group.recovery_granularity == "sibling"
    siblings = []
    for sibling in group.siblings:
        attempt = sibling.current
        if attempt.status == "reserved" or (attempt.status == "sealed" and keeps_sealed):
            siblings.append(sibling)
            continue
        abandoned = new_attempt(attempt.attempt_index).model_copy(update={"status": "abandoned"})
        siblings.append(sibling.model_copy(update={"attempts": [*sibling.attempts[:-1], abandoned]}))
    changes: dict[str, Any] = {"siblings": siblings}
    if not any(sibling.current.status == "sealed" for sibling in siblings):
        changes["resolved_agent_name"] = None
    return group.model_copy(update=changes)
