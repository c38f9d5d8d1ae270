"""Which attempt replaces which after a restore, and what is given up for it.

Rules, in the order of the design (section 6):
1. A group whose siblings are all sealed is not dispatched again.
2. `sibling` granularity: a sealed sibling is reused; every other one goes from attempt N to N+1.
3. `prompt_group` granularity: no sibling is reused; each goes to N+1.
4. A sibling that is `reserved` was never dispatched: it keeps N and starts from the task.
5. *Continue* when a boundary exists for exactly N and every resources server that it names exports its state; else *restart*.
6. A restored boundary of a sibling that restarts is discarded on every agent; its staged rows are cleared unless something
   else names them: a receipt, a route plan, any boundary that is not discarded.
7. A restored session is claimed by the continuing rollout that names its server; the others are reported, not touched: the
   protocol lets them be retired only while prepared.

Left to others: whether continuations and ledger agree (rules of family PAR, checked before), and that a controller accepts
the mapping.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptctl.domain.controller import Redispatch
from ckptctl.domain.redispatch import (
    AttemptPlan,
    ContinuationFacts,
    Discard,
    ReusedSibling,
    SessionFacts,
    SiblingFacts,
)

NO_BOUNDARY = "no boundary"
UNKNOWN_DEPENDENCIES = "dependencies unknown"
NEVER_DISPATCHED = "reserved, never dispatched"


def plan_attempts(
    siblings: Iterable[SiblingFacts],
    continuations: Iterable[ContinuationFacts],
    sessions: Iterable[SessionFacts],
    *,
    restart_only: frozenset[str],
    required_keys: frozenset[str] = frozenset(),
) -> AttemptPlan:
    """Decide every rollout. `required_keys`: staged rows that route plans of finished groups need."""
    boundaries = {(item.rollout_id, item.attempt_index): item for item in continuations}
    reused: list[ReusedSibling] = []
    mapping: list[Redispatch] = []
    needed = set(required_keys)
    for sibling in siblings:
        needed.update(sibling.staging_keys)
        if sibling.is_ready or (sibling.status == "sealed" and sibling.granularity == "sibling"):
            reused.append(_reused(sibling))
        else:
            mapping.append(_redispatch(sibling, boundaries, restart_only))
    kept = {(item.rollout_id, item.source_attempt) for item in mapping if item.mode == "continue"}
    dropped = [
        item for item in mapping if item.mode == "restart" and (item.rollout_id, item.source_attempt) in boundaries
    ]
    given_up = {(item.rollout_id, item.source_attempt) for item in dropped}
    for pair, boundary in boundaries.items():
        if pair not in given_up:
            needed.update(boundary.staging_keys)
    dropped_keys = {key for pair in given_up for key in boundaries[pair].staging_keys}
    plan = AttemptPlan(
        redispatch=tuple(mapping),
        reused=tuple(reused),
        discards=tuple(_discard(item) for item in dropped),
        clear_keys=tuple(sorted(dropped_keys - needed)),
        kept_shared_keys=tuple(sorted(dropped_keys & needed)),
        unclaimed_sessions=tuple(session for session in sessions if not _is_claimed(session, kept, boundaries)),
    )
    _assert_plan(plan, needed)
    return plan


def _reused(sibling: SiblingFacts) -> ReusedSibling:
    return ReusedSibling(
        group_id=sibling.group_id, rollout_id=sibling.rollout_id, attempt_index=sibling.current_attempt
    )


def _redispatch(
    sibling: SiblingFacts, boundaries: dict[tuple[str, int], ContinuationFacts], restart_only: frozenset[str]
) -> Redispatch:
    reserved = sibling.status == "reserved"
    boundary = None if reserved else boundaries.get((sibling.rollout_id, sibling.current_attempt))
    reason = NEVER_DISPATCHED if reserved else _restart_reason(boundary, restart_only)
    return Redispatch(
        group_id=sibling.group_id,
        generation_index=sibling.generation_index,
        rollout_id=sibling.rollout_id,
        source_attempt=sibling.current_attempt,
        replacement_attempt=sibling.current_attempt if reserved else sibling.current_attempt + 1,
        mode="restart" if reason else "continue",
        reason=reason or _continue_reason(boundary),
    )


def _restart_reason(boundary: ContinuationFacts | None, restart_only: frozenset[str]) -> str:
    """Why a sibling restarts from its task; empty when it continues (rule 5)."""
    if boundary is None:
        return NO_BOUNDARY
    if boundary.revisions is None:
        return UNKNOWN_DEPENDENCIES
    lost = sorted(restart_only.intersection(boundary.revisions))
    return f"depends on restart_only {', '.join(lost)}" if lost else ""


def _continue_reason(boundary: ContinuationFacts | None) -> str:
    if boundary is not None and not boundary.has_model_call:
        return "boundary before the first model call"
    return "boundary restored"


def _discard(item: Redispatch) -> Discard:
    return Discard(
        rollout_id=item.rollout_id,
        source_attempt=item.source_attempt,
        replacement_attempt=item.replacement_attempt,
        reason=item.reason,
    )


def _is_claimed(
    session: SessionFacts, kept: set[tuple[str, int]], boundaries: dict[tuple[str, int], ContinuationFacts]
) -> bool:
    pair = (session.rollout_id, session.attempt_index)
    return pair in kept and session.server_name in (boundaries[pair].revisions or {})


def _assert_plan(plan: AttemptPlan, needed: set[str]) -> None:
    """What no plan may do, whatever it was made from: a bug here would run a tool twice or lose a row."""
    rollouts = [item.rollout_id for item in plan.redispatch]
    assert len(rollouts) == len(set(rollouts)), "a rollout would be dispatched twice"
    assert not needed.intersection(plan.clear_keys), "a row that something needs would be cleared"
    assert not {item.rollout_id for item in plan.reused}.intersection(rollouts), (
        "a sealed sibling would be dispatched again"
    )
