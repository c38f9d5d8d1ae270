"""Steps 2 to 4: close admission, deliver acknowledgements, prepare policy -> agents -> resources, all before one deadline.

Every request carries the same checkpoint id and the same deadline. Pausing a policy model does not wait: calls that
it accepted finish while agents and resources servers prepare; commit may begin only when its status says paused, with
nothing in flight and every worker acknowledged. While an agent waits for its completed results to be acknowledged,
they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ckptctl.domain.amounts import plural
from ckptctl.domain.evidence import LiveFacts
from ckptctl.domain.participant import AgentStatus, ModelStatus, PauseReply
from ckptctl.domain.plan import Step
from ckptctl.errors import MalformedReplyError, PrepareIncompleteError, ServerRefusedError
from ckptctl.planning import snapshot as steps
from ckptctl.workflows.acknowledgements import Outbox
from ckptctl.workflows.attempt import Attempt
from ckptctl.workflows.judging import ORPHANS_BEFORE_COMMIT, finding_error, judge_live
from ckptctl.workflows.orphans import retire_orphans
from ckptctl.workflows.transaction import Action
from ckptctl.workflows.waiting import Pauses, ask, ask_each, side_by_side


def prepare_actions(attempt: Attempt, outbox: Outbox) -> dict[str, Action]:
    """What steps 2 to 4 do."""
    return {
        steps.CLOSE: partial(_close, attempt),
        steps.DRAIN: partial(_drain, attempt, outbox),
        steps.PAUSE_MODELS: partial(_pause_models, attempt),
        steps.PREPARE_AGENTS: partial(_prepare_agents, attempt, outbox),
        steps.PREPARE_RESOURCES: partial(_prepare_resources, attempt),
        steps.DRAIN_MODELS: partial(_drain_models, attempt),
        steps.RETIRE_ORPHANS: partial(retire_orphans, attempt),
        steps.CHECK_PREPARED: partial(_check_prepared, attempt, outbox),
    }


async def _close(attempt: Attempt, _: Step) -> Mapping[str, Any]:
    world, begun = attempt.world, attempt.begun
    attempt.closed_at_s = world.clock.monotonic_s()
    call = partial(world.controller.close_admission, begun.checkpoint_id, attempt.deadline_ts)
    reply = await ask(world, attempt.deadline_ts, call)
    return {"unfinished_rollouts": reply.unfinished_rollouts, "in_flight_dispatches": reply.in_flight_dispatches}


async def _drain(attempt: Attempt, outbox: Outbox, _: Step) -> Mapping[str, Any]:
    return {"acknowledgements": await outbox.drain(attempt.deadline_ts)}


async def _pause_models(attempt: Attempt, step: Step) -> None:
    world, begun = attempt.world, attempt.begun
    arguments = (begun.checkpoint_id, attempt.deadline_ts)
    attempt.paused = await ask_each(
        world, attempt.deadline_ts, step.targets, world.participants.model_pause, *arguments
    )


async def _prepare_agents(attempt: Attempt, outbox: Outbox, step: Step) -> Mapping[str, Any]:
    statuses = await side_by_side({server: partial(_prepare_agent, attempt, outbox, server) for server in step.targets})
    attempt.boundaries = {server: tuple(status.selected_boundaries) for server, status in statuses.items()}
    return {"boundaries": {server: len(found) for server, found in attempt.boundaries.items()}}


async def _prepare_agent(attempt: Attempt, outbox: Outbox, server: str) -> AgentStatus:
    """Ask until the agent is ready. "Not ready" is the normal answer; unacknowledged results make it come at once."""
    world, begun = attempt.world, attempt.begun
    pauses = Pauses(world)
    while True:
        call = partial(world.participants.agent_prepare, server, begun.checkpoint_id, attempt.deadline_ts)
        try:
            status = await ask(world, attempt.deadline_ts, call)
        except PrepareIncompleteError as refusal:
            if await outbox.flush(attempt.deadline_ts):
                pauses.reset()
            if not await pauses.wait(attempt.deadline_ts):
                last = f"it last answered `{refusal.server_code}`: {refusal.detail}"
                raise attempt.deadline_passed(server, "agent-checkpoint/prepare", last) from refusal
            continue
        if not status.ready_to_commit:
            detail = "it says that it prepared, but also that it is not ready to commit"
            raise MalformedReplyError(
                server=server, operation="agent-checkpoint/prepare", status=200, server_code="malformed", detail=detail
            )
        return status


async def _prepare_resources(attempt: Attempt, step: Step) -> Mapping[str, Any]:
    world, begun = attempt.world, attempt.begun
    arguments = (begun.checkpoint_id, attempt.deadline_ts)
    replies = await ask_each(world, attempt.deadline_ts, step.targets, world.participants.resources_prepare, *arguments)
    for server, reply in replies.items():
        if reply.sessions != len(reply.inventory):
            detail = f"it counts {plural(reply.sessions, 'session')} and lists {len(reply.inventory)}"
            raise MalformedReplyError(
                server=server,
                operation="resources-checkpoint/prepare",
                status=200,
                server_code="malformed",
                detail=detail,
            )
    attempt.inventories = {server: tuple(reply.inventory) for server, reply in replies.items()}
    return {"sessions": {server: reply.sessions for server, reply in replies.items()}}


async def _drain_models(attempt: Attempt, step: Step) -> None:
    await side_by_side({server: partial(_drain_model, attempt, server) for server in step.targets})


async def _drain_model(attempt: Attempt, server: str) -> None:
    world, begun = attempt.world, attempt.begun
    pauses = Pauses(world)
    while True:
        left_s = max(0.0, attempt.deadline_ts - world.clock.now_s())
        call = partial(
            world.participants.model_status,
            server,
            begun.checkpoint_id,
            attempt.deadline_ts,
            wait_paused_s=left_s,
        )
        status = await ask(world, attempt.deadline_ts, call)
        waits_for = still_draining(status, attempt.paused.get(server))
        if waits_for is None:
            return
        if status.state == "paused" and status.generation_pending_total:
            raise ServerRefusedError(
                server=server,
                operation="model-admission/status",
                status=200,
                server_code="generation_cut",
                detail="a prefix cut stands in for a running call, which a schema 4 snapshot cannot hold",
            )
        if not await pauses.wait(attempt.deadline_ts):
            raise attempt.deadline_passed(server, "model-admission/status", waits_for)


def still_draining(status: ModelStatus, pause: PauseReply | None) -> str | None:
    """What a policy model still waits for, or None when commit may begin."""
    if status.state != "paused":
        return f"it is {status.state} with {plural(status.inflight_total, 'call')} in flight"
    if status.inflight_total:
        return f"{plural(status.inflight_total, 'call')} in flight"
    if status.generation_pending_total:
        return f"{status.generation_pending_total} generations are pending"
    if status.missing_workers:
        return "workers are missing"
    # A single worker's status does not count workers; then its own pause reply, or being paused, says it all.
    workers = status.workers
    if workers is not None and workers.acknowledged < workers.expected:
        return f"{workers.acknowledged} of {plural(workers.expected, 'worker')} acknowledged"
    if any(worker.get("connected") is False for worker in status.per_worker.values()):
        return "a worker is not connected"
    if workers is None and pause is not None and pause.workers.expected > max(1, len(status.per_worker)):
        return f"{len(status.per_worker)} of {plural(pause.workers.expected, 'worker')} reported"
    return None


async def _check_prepared(attempt: Attempt, outbox: Outbox, _: Step) -> Mapping[str, Any]:
    """Nothing owed, and sessions and boundaries are those of each other (invariant 80), now that orphans are retired."""
    count = await outbox.drain(attempt.deadline_ts)
    attempt.acknowledged = outbox.delivered
    live = LiveFacts(
        selected_boundaries=tuple(item for found in attempt.boundaries.values() for item in found),
        inventories=attempt.inventories,
    )
    for finding in judge_live((ORPHANS_BEFORE_COMMIT,), live):
        raise finding_error(finding)
    return {"acknowledgements": count}
