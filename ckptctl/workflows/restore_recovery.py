"""A restore that an earlier run left unfinished: go on with it, close it, or say why neither can be done.

1. The controller is another process and every participant is idle: whatever was restored is gone with the old processes. The old
   restore is closed in the journal; whether a new one may begin is looked at as if there had been none.
2. The controller alone, or a participant that had been restored and not yet resumed, is another process, or the servers are not
   the same any more: a half-restored cluster cannot be mended.
3. Otherwise the restore goes on under its own id; the fences replay what was done. Once resuming was begun it goes on there, with
   the plan that the journal recorded.

While it is unfinished admission is closed, whatever keeps it from going on: every failure here is an AdmissionClosedError.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from pydantic import ValidationError

from ckptctl.domain.config import OwnSection, RunConfig
from ckptctl.domain.controller import ControllerStatus
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.participant import DiscoveredParticipant
from ckptctl.domain.redispatch import AttemptPlan
from ckptctl.domain.restore import RestoreFacts
from ckptctl.domain.topology import Topology, topology_of
from ckptctl.errors import AdmissionClosedError, CkptctlError, UnreachableError
from ckptctl.planning import restore as steps
from ckptctl.planning.recovery import Transaction
from ckptctl.planning.snapshot import Stages
from ckptctl.workflows.discovery import discover
from ckptctl.workflows.judging import require_valid
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_evidence import Known, load_target
from ckptctl.workflows.restore_attempt import RestoreAttempt
from ckptctl.workflows.selection import LEVEL
from ckptctl.workflows.targets import snapshot_target
from ckptctl.workflows.transaction import Recorder
from ckptctl.workflows.validate import ValidateRequest, judge
from ckptctl.workflows.waiting import ask
from ckptctl.workflows.world import World

RESTART = steps.RESTART
GONE = "every server is another process now"


@dataclass(frozen=True, slots=True)
class Continued:
    """An interrupted restore that goes on."""

    transaction: str
    attempt: RestoreAttempt
    intents: tuple[str, ...]
    done: tuple[str, ...]
    is_resuming: bool


async def read_unfinished_restore(
    world: World, config: RunConfig, own: OwnSection, transaction: Transaction
) -> Continued | None:
    """What goes on, or None when the old restore was closed and a new one may begin.

    Raises:
        AdmissionClosedError: it cannot go on; the hint says what must be done first.
    """
    facts = transaction.restore_facts()
    assert facts is not None, "what is found unfinished can be read"
    try:
        discovered = await discover(world, own) if any(_stages(facts)) else ()
        status = await ask(world, world.clock.now_s() + own.control_timeout_s, world.controller.status)
        if _is_gone(facts, status, discovered):
            Recorder(world, world.journal.resume(transaction.name)).finish("abandoned", reason=GONE)
            world.notice(f"restore `{facts.checkpoint_id}` had been interrupted; {GONE}, so it is closed")
            return None  # 1
        _demand_same_servers(facts, transaction, status, discovered)  # 2
        is_resuming = bool(steps.RESUMING.intersection(transaction.intents))
        attempt = RestoreAttempt(
            world=world,
            facts=facts,
            snapshot_path=f"{config.checkpoint_dir}/{facts.snapshot}",
            evidence=await asyncio.to_thread(_evidence, world, config, facts),
            topology=_topology(discovered, facts),
            is_repeated=True,
            plan=_recorded_plan(transaction) if is_resuming else None,
        )
    except AdmissionClosedError:
        raise
    except CkptctlError as error:
        silent = error.server if isinstance(error, UnreachableError) else None
        hint = f"{error.hint}; then run `ckptctl restore` again" if error.hint else RESTART
        raise AdmissionClosedError(
            f"restore `{facts.checkpoint_id}` was interrupted and cannot go on: {error.message}; "
            f"{_standing(facts, transaction, silent)}",
            hint=steps.way_on(_stages(facts), transaction.outcomes, silent) if silent else hint,
            cause=error,
        ) from error
    return Continued(transaction.name, attempt, transaction.intents, tuple(transaction.outcomes), is_resuming)  # 3


def _stages(facts: RestoreFacts) -> Stages:
    return facts.models, facts.agents, facts.resources


def _is_gone(facts: RestoreFacts, status: ControllerStatus, discovered: tuple[DiscoveredParticipant, ...]) -> bool:
    """Whether nothing is left of the old restore: the controller has other things to do, and nobody is held."""
    is_another = status.instance_id != facts.controller_instance_id and status.phase == "idle"
    return is_another and all(item.capabilities.phase == "idle" for item in discovered)


def _demand_same_servers(
    facts: RestoreFacts,
    transaction: Transaction,
    status: ControllerStatus,
    discovered: tuple[DiscoveredParticipant, ...],
) -> None:
    """The servers that the restore began with, as processes where they hold something. Raises AdmissionClosedError."""
    idle = [item.server_name for item in discovered if item.capabilities.phase == "idle"]
    lost = steps.lost_servers(_stages(facts), transaction.intents, transaction.outcomes, idle)
    if status.instance_id != facts.controller_instance_id:
        lost = ("controller", *lost)
    if lost:
        names = ", ".join(f"`{name}`" for name in lost)
        raise AdmissionClosedError(
            f"restore `{facts.checkpoint_id}` was interrupted, and {names} was restarted since: the cluster is half restored; "
            f"{_standing(facts, transaction)}",
            hint=RESTART,
        )
    topology = topology_of(discovered)
    found = tuple(
        tuple(item.server_name for item in kind) for kind in (topology.models, topology.agents, topology.resources)
    )
    if any(_stages(facts)) and found != _stages(facts):
        raise AdmissionClosedError(
            f"restore `{facts.checkpoint_id}` was interrupted, and the configured servers are not those that it began with; "
            f"{_standing(facts, transaction)}",
            hint=f"configure the same servers as before, then run `ckptctl restore` again; or {RESTART}",
        )


def _standing(facts: RestoreFacts, transaction: Transaction, silent: str | None = None) -> str:
    """Who is paused; of a server that does not answer nobody knows."""
    begun = steps.paused_after(_stages(facts), transaction.intents, transaction.outcomes)
    paused = tuple(name for name in begun if name != silent)
    if not paused:
        return "nothing was restored yet"
    return f"paused under `{facts.checkpoint_id}`, admission closed: {', '.join(f'`{name}`' for name in paused)}"


def _evidence(world: World, config: RunConfig, facts: RestoreFacts) -> Evidence:
    """The snapshot again, which must still be the one that was being restored."""
    path = f"{config.checkpoint_dir}/{facts.snapshot}"
    world.progress.phase("validate", path)
    loaded = load_target(
        world.store,
        snapshot_target(path),
        LEVEL,
        Known(),
        AnchorLoader(world.store, world.limits, world.room),
        world.limits,
    )
    require_valid(judge(loaded, ValidateRequest(paths=(path,), level=LEVEL)), world.room)
    if loaded.evidence.manifest.part.sha256 != facts.manifest_sha256:
        raise AdmissionClosedError(
            f"snapshot `{path}` is not the one that restore `{facts.checkpoint_id}` began with", hint=RESTART
        )
    return loaded.evidence


def _topology(discovered: tuple[DiscoveredParticipant, ...], facts: RestoreFacts) -> Topology | None:
    return topology_of(discovered) if any(_stages(facts)) else None


def _recorded_plan(transaction: Transaction) -> AttemptPlan:
    """What step 5 decided. After the first resume it cannot be decided anew."""
    recorded = transaction.outcomes.get(steps.PLAN_ATTEMPTS, {})
    fields = {name: recorded.get(name) for name in AttemptPlan.model_fields}
    try:
        return AttemptPlan.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        raise AdmissionClosedError(
            f"the journal `{transaction.name}` does not say what becomes of the rollouts, and everybody was being resumed",
            hint=RESTART,
        ) from error
