"""Which sessions of prepared resources servers belong to nobody, and which of those may be retired before commit.

A session whose execution has no boundary that names its server is an orphan: it commits without a word and makes the
snapshot unrestorable (invariant 80; participant-protocol section 10). Retiring drops it and fences its (rollout,
attempt) on that server for good, so it must never meet an attempt that may still call:

1. the execution stands at a boundary of some agent: it is at work and may yet use that server (a restarted attempt N+1 over the
   restored session of N, for example);
2. the controller's ledger has it as a rollout's current attempt, reserved: it is about to be sent, perhaps as the
   continuation that claims this very session. One that was dispatched and that no agent holds at a boundary is over: closing
   admission waits until every dispatch has reached its agent.

Such a session is *in use*: the attempt at a snapshot is given up, and the next one finds it claimed or gone. Every
other orphan is retired. Where the controller does not show its ledger, only the first rule is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ckptctl.domain.controller import LedgerGroup
from ckptctl.domain.participant import SelectedBoundary, SessionInventory
from ckptctl.domain.redispatch import SessionFacts


@dataclass(frozen=True, slots=True)
class OrphanPlan:
    """What becomes of orphan sessions."""

    retire: tuple[SessionFacts, ...]
    in_use: tuple[SessionFacts, ...]


def find_orphans(
    inventories: Mapping[str, Iterable[SessionInventory]], boundaries: Iterable[SelectedBoundary]
) -> tuple[SessionFacts, ...]:
    """Every prepared session that no selected boundary names, by server and execution."""
    named = {
        (server, item.rollout_id, item.attempt_index)
        for item in boundaries
        for server in item.resource_state_revisions or {}
    }
    found = {
        (server, session.rollout_id, session.attempt_index)
        for server, inventory in inventories.items()
        for session in inventory
    }
    return tuple(
        SessionFacts(server_name=server, rollout_id=rollout, attempt_index=attempt)
        for server, rollout, attempt in sorted(found - named)
    )


def plan_orphans(
    orphans: Iterable[SessionFacts], boundaries: Iterable[SelectedBoundary], ledger: Iterable[LedgerGroup]
) -> OrphanPlan:
    """Decide about each orphan; `ledger` are the controller's unfinished groups, as far as they are known."""
    in_use = {(item.rollout_id, item.attempt_index) for item in boundaries}  # 1
    in_use |= {  # 2
        (sibling.rollout_id, sibling.current_attempt)
        for group in ledger
        for sibling in group.siblings
        if sibling.status == "reserved"
    }
    sorted_out: tuple[list[SessionFacts], list[SessionFacts]] = ([], [])
    for orphan in orphans:
        sorted_out[(orphan.rollout_id, orphan.attempt_index) in in_use].append(orphan)
    return OrphanPlan(retire=tuple(sorted_out[False]), in_use=tuple(sorted_out[True]))
