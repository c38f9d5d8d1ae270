"""Steps 3 to 6 of a restore: what each does through the ports, and what the servers answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ckptctl.domain.document import Document
from ckptctl.domain.evidence import Evidence, LiveFacts
from ckptctl.domain.manifest import ParticipantIdentity
from ckptctl.domain.plan import Step
from ckptctl.domain.redispatch import AttemptPlan
from ckptctl.domain.restore import RejectedSnapshot, RestoreFacts, RestoreResult
from ckptctl.domain.topology import Topology
from ckptctl.domain.transaction import StepTime
from ckptctl.errors import CkptctlError, NotCheckedError, ServerRefusedError
from ckptctl.planning import restore as steps
from ckptctl.planning.restored_facts import (
    continuations_of,
    ledger_differences,
    plan_from,
    saved_counts,
    siblings_of_controller,
)
from ckptctl.rules import ALL_RULES
from ckptctl.rules.run import run_rules
from ckptctl.workflows.judging import finding_error
from ckptctl.workflows.ledger_pages import read_ledger
from ckptctl.workflows.transaction import Action
from ckptctl.workflows.waiting import ask, ask_each
from ckptctl.workflows.world import World

RESTORE_REPLIES, CLEARED_ROWS = 86, 83
"""Invariants that are judged on the way; the numbers are those of the reference list."""
CLEAR_BATCH = 10_000
BULKY = {"tombstones", "source_attempts"}
"""Fields of replies that the journal does not need: they are in the snapshot."""
TOLD = 3
"""How many differences an error names."""


@dataclass(slots=True)
class RestoreAttempt:
    """One restore: what was selected, and what was answered so far. `deadline_ts` bounds steps 3 to 6."""

    world: World
    facts: RestoreFacts
    snapshot_path: str
    evidence: Evidence
    topology: Topology | None
    rejected: tuple[RejectedSnapshot, ...] = ()
    deadline_ts: float = 0.0
    is_repeated: bool = False
    """Continued after an interruption: what is not recorded by the fence may already have been done."""
    replies: dict[ParticipantIdentity, Document] = field(default_factory=dict)
    plan: AttemptPlan | None = None
    """Made in step 5, or read from the journal when the restore is continued while it was resuming."""
    dispatched: int = 0

    @property
    def planned(self) -> AttemptPlan:
        """What becomes of every rollout; known from step 5 on."""
        assert self.plan is not None, "attempts are planned before anything depends on the plan"
        return self.plan

    def result(self, times: list[StepTime]) -> RestoreResult:
        """The answer of the command."""
        manifest = self.evidence.manifest.manifest
        gym = None if manifest is None else manifest.gym_checkpoint
        plan = self.planned
        return RestoreResult(
            outcome="restored",
            anchor=self.facts.anchor,
            snapshot=self.snapshot_path,
            saved_checkpoint_id=None if gym is None else gym.checkpoint_id,
            checkpoint_id=self.facts.checkpoint_id,
            rejected=self.rejected,
            rollouts=plan.redispatch,
            reused=plan.reused,
            discards=plan.discards,
            cleared_staging_keys=plan.clear_keys,
            kept_shared_keys=plan.kept_shared_keys,
            unclaimed_sessions=plan.unclaimed_sessions,
            dispatched=self.dispatched,
            steps=tuple(times),
        )


def restore_actions(attempt: RestoreAttempt) -> dict[str, Action]:
    """What steps 3 to 6 do."""
    return {
        steps.RESTORE_CONTROLLER: partial(_restore_controller, attempt),
        steps.RESTORE_MODELS: partial(_restore_stage, attempt),
        steps.RESTORE_AGENTS: partial(_restore_stage, attempt),
        steps.RESTORE_RESOURCES: partial(_restore_stage, attempt),
        steps.CHECK_RESTORED: partial(_check_restored, attempt),
        steps.PLAN_ATTEMPTS: partial(_plan_attempts, attempt),
        steps.DISCARD: partial(_discard, attempt),
        steps.CLEAR_STAGING: partial(_clear_staging, attempt),
    }


async def _restore_controller(attempt: RestoreAttempt, _: Step) -> Mapping[str, Any]:
    world, facts = attempt.world, attempt.facts
    call = partial(
        world.controller.restore, facts.checkpoint_id, attempt.deadline_ts, attempt.snapshot_path, facts.manifest_sha256
    )
    reply = await ask(world, attempt.deadline_ts, call)
    for name, wanted in saved_counts(attempt.evidence).items():
        found = getattr(reply, name)
        if found != wanted:
            raise _differs("controller", "restore", f"`{name}` is {found}, the snapshot has {wanted}")
    return reply.model_dump()


async def _restore_stage(attempt: RestoreAttempt, step: Step) -> Mapping[str, Any]:
    """Restore one kind of participants, side by side."""
    gym = attempt.world.participants
    assert attempt.topology is not None, "planned only with participants"
    method, members = {
        steps.RESTORE_MODELS: (gym.model_restore, attempt.topology.models),
        steps.RESTORE_AGENTS: (gym.agent_restore, attempt.topology.agents),
        steps.RESTORE_RESOURCES: (gym.resources_restore, attempt.topology.resources),
    }[step.name]
    identities = {item.server_name: item for item in members}
    arguments = (attempt.facts.checkpoint_id, attempt.deadline_ts, attempt.snapshot_path)
    replies: dict[str, Document] = await ask_each(attempt.world, attempt.deadline_ts, step.targets, method, *arguments)
    attempt.replies.update({identities[server]: reply for server, reply in replies.items()})
    told = {server: reply.model_dump(mode="json", exclude=BULKY) for server, reply in replies.items()}
    return {"replies": told}


async def _check_restored(attempt: RestoreAttempt, _: Step) -> None:
    """Every reply names the saved checkpoint and exactly the saved artifacts (invariant 86)."""
    if attempt.topology is not None:
        _judge(attempt, RESTORE_REPLIES, LiveFacts(restore_replies=dict(attempt.replies)))


def _judge(attempt: RestoreAttempt, invariant: int, live: LiveFacts) -> None:
    rules = tuple(rule for rule in ALL_RULES if rule.invariant == invariant)
    capabilities = None if attempt.topology is None else attempt.topology.discovered
    evidence = replace(attempt.evidence, live=live, capabilities=capabilities)
    judgement = run_rules(evidence, rules=rules)
    for finding in judgement.findings:
        if finding.severity == "error":
            raise finding_error(finding)
    silent = [item for item in judgement.outcomes if item.outcome != "passed"]
    if silent:
        raise NotCheckedError(f"{silent[0].rule} could not be checked: {silent[0].reason}", hint=None)


async def _plan_attempts(attempt: RestoreAttempt, _: Step) -> Mapping[str, Any]:
    groups = await read_ledger(attempt.world, attempt.deadline_ts)
    differences = tuple(ledger_differences(groups, attempt.evidence))
    if differences:
        more = f" (and {len(differences) - TOLD} more)" if len(differences) > TOLD else ""
        text = f"its ledger is not the saved one: {'; '.join(differences[:TOLD])}{more}"
        raise _differs("controller", "ledger", text)
    lost = () if attempt.topology is None else (item.participant_name for item in attempt.topology.restart_only)
    attempt.plan = plan_from(attempt.evidence, siblings_of_controller(groups, attempt.evidence), lost)
    return attempt.plan.model_dump(mode="json")


async def _discard(attempt: RestoreAttempt, step: Step) -> Mapping[str, Any]:
    """Drop what restarts, on every agent: none may go on from a boundary whose resources are gone."""
    plan, world = attempt.planned, attempt.world
    if not plan.discards:
        return {"discarded": 0}
    with_call = {
        (fact.rollout_id, fact.attempt_index) for fact in continuations_of(attempt.evidence) if fact.has_model_call
    }
    for item in plan.discards:
        arguments = (attempt.facts.checkpoint_id, attempt.deadline_ts, item.rollout_id, item.replacement_attempt)
        replies = await ask_each(world, attempt.deadline_ts, step.targets, world.participants.agent_discard, *arguments)
        if any(reply.discarded for reply in replies.values()) or attempt.is_repeated:
            continue
        text = f"no agent held the continuation of `{item.rollout_id}` attempt {item.replacement_attempt} that must restart"
        if (item.rollout_id, item.source_attempt) in with_call:
            raise _differs(", ".join(step.targets), "discard-restored-continuation", text)
        world.notice(f"{text}: it has no committed model call")
    return {"discarded": len(plan.discards)}


async def _clear_staging(attempt: RestoreAttempt, _: Step) -> Mapping[str, Any]:
    """Clear exactly the rows that only discarded continuations need (invariant 83)."""
    plan, world = attempt.planned, attempt.world
    if plan.clear_keys:
        pairs = tuple((item.rollout_id, item.source_attempt) for item in plan.discards)
        _judge(attempt, CLEARED_ROWS, LiveFacts(discarded=pairs, cleared_keys=plan.clear_keys))
    cleared = 0
    for start in range(0, len(plan.clear_keys), CLEAR_BATCH):
        batch = plan.clear_keys[start : start + CLEAR_BATCH]
        call = partial(world.controller.clear_staging, attempt.facts.checkpoint_id, attempt.deadline_ts, batch)
        cleared += (await ask(world, attempt.deadline_ts, call)).cleared
    return {"cleared": cleared}


def _differs(server: str, operation: str, detail: str) -> CkptctlError:
    """A reply that is well formed but not what the snapshot demands."""
    return ServerRefusedError(
        server=server,
        operation=operation,
        status=200,
        server_code="unexpected-reply",
        detail=detail,
        hint=None,
    )
