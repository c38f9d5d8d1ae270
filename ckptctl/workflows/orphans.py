"""Step 4.5: sessions that nothing refers to are retired while the resources servers are prepared, the only time when they can be.

Which ones may go, `planning.orphans` decides; that nothing is left over which would make the snapshot unrestorable,
rule PAR022 says afterwards, on the inventories as they are then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ckptctl.domain.controller import LedgerGroup
from ckptctl.domain.participant import SelectedBoundary
from ckptctl.domain.plan import Step
from ckptctl.domain.redispatch import SessionFacts
from ckptctl.errors import InvalidPhaseError, InvalidSnapshotError, MalformedReplyError
from ckptctl.planning.orphans import find_orphans, plan_orphans
from ckptctl.workflows.attempt import Attempt
from ckptctl.workflows.ledger_pages import read_ledger
from ckptctl.workflows.waiting import ask, side_by_side

CALLS_AT_ONCE = 16
"""Retirements that one server is asked for side by side."""
TOLD = 3
IN_USE_HINT = (
    "run the same command again: the attempt claims its session, or ends, as it goes on; retiring the session now would fence an "
    "attempt that is alive"
)


async def retire_orphans(attempt: Attempt, _: Step) -> Mapping[str, Any]:
    """Retire what belongs to nobody. Raises InvalidSnapshotError for a session whose attempt is alive and does not name it."""
    boundaries = [item for found in attempt.boundaries.values() for item in found]
    orphans = find_orphans(attempt.inventories, boundaries)
    if not orphans:
        return {"retired": []}
    plan = plan_orphans(orphans, boundaries, await _ledger(attempt))
    if plan.in_use and not attempt.begun.request.sessions_only:
        raise InvalidSnapshotError(
            f"PAR022: with these sessions the snapshot could not be restored: {_in_use(plan.in_use, boundaries)}",
            hint=IN_USE_HINT,
        )
    if plan.in_use:
        attempt.world.notice(f"kept, because their attempts are alive: {_in_use(plan.in_use, boundaries)}")
    servers = {item.server_name for item in plan.retire}
    await side_by_side({server: partial(_retire_all, attempt, server, plan.retire) for server in servers})
    return {"retired": [item.model_dump(mode="json") for item in attempt.retired]}


async def _ledger(attempt: Attempt) -> list[LedgerGroup]:
    """What the controller calls unfinished; a controller that shows it only after a restore is taken as it is."""
    try:
        return await read_ledger(attempt.world, attempt.deadline_ts)
    except InvalidPhaseError:
        attempt.world.notice(
            "the controller does not show its ledger while admission is closed: only the agents say whose sessions are in use"
        )
        return []


async def _retire_all(attempt: Attempt, server: str, sessions: Iterable[SessionFacts]) -> None:
    slots = asyncio.Semaphore(CALLS_AT_ONCE)
    mine = [item for item in sessions if item.server_name == server]
    calls = {f"{item.rollout_id}/{item.attempt_index}": partial(_retire, attempt, item, slots) for item in mine}
    await side_by_side(calls)


async def _retire(attempt: Attempt, session: SessionFacts, slots: asyncio.Semaphore) -> None:
    call = partial(
        attempt.world.participants.resources_retire,
        session.server_name,
        attempt.begun.checkpoint_id,
        attempt.deadline_ts,
        session.rollout_id,
        session.attempt_index,
    )
    async with slots:
        reply = await ask(attempt.world, attempt.deadline_ts, call)
    if not reply.retired or (reply.rollout_id, reply.attempt_index) != (session.rollout_id, session.attempt_index):
        raise MalformedReplyError(
            server=session.server_name,
            operation="resources-checkpoint/retire",
            status=200,
            server_code="malformed",
            detail=f"asked to retire `{session.rollout_id}` attempt {session.attempt_index}, it did something else",
        )
    attempt.forget_session(session)


def _in_use(sessions: tuple[SessionFacts, ...], boundaries: Iterable[SelectedBoundary]) -> str:
    at_work = {(item.rollout_id, item.attempt_index) for item in boundaries}
    told = [
        f"`{item.server_name}` holds a session of `{item.rollout_id}` attempt {item.attempt_index}, which "
        + ("is at work and does not name it" if (item.rollout_id, item.attempt_index) in at_work else "is not sent yet")
        for item in sessions[:TOLD]
    ]
    if len(sessions) > TOLD:
        told.append(f"and {len(sessions) - TOLD} more")
    return "; ".join(told)
