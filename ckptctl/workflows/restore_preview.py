"""`restore --select` and `restore --plan`: what would be restored and how, from files alone. Changes nothing, asks no server.

A server that saved no state counts as restart_only here; whether one is unknown altogether shows only against the live topology.
What an earlier run left unfinished comes first in a real restore; here it is only told.
"""

from __future__ import annotations

from ckptctl.domain.config import RunConfig
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.restore import RestoreResult, Selection
from ckptctl.errors import CkptctlError
from ckptctl.planning.restore import plan_restore
from ckptctl.planning.restored_facts import plan_from, siblings_of_ledger
from ckptctl.planning.snapshot import Stages
from ckptctl.workflows.find_unfinished import find_unfinished
from ckptctl.workflows.load_config import require_sound
from ckptctl.workflows.selection import select_snapshot
from ckptctl.workflows.unfinished import uses_of
from ckptctl.workflows.world import World

NOT_YET = "restore-<new id>"


def select_only(world: World, config: RunConfig, *, falls_back: bool) -> RestoreResult:
    """Choose and validate. In text the answer is one path, so whatever else there is to say is a notice. Raises as below."""
    require_sound(config, "restore")
    selection = select_snapshot(world, config, falls_back=falls_back).selection
    path = selection.snapshot or f"{config.checkpoint_dir}/{selection.anchor}"
    warnings = _left(world)
    for text in (*(f"not used: {item.snapshot}: {item.reason}" for item in selection.rejected), *warnings):
        world.notice(text)
    return _result(selection, "selected").model_copy(update={"selected_path": path, "warnings": warnings})


def preview_restore(world: World, config: RunConfig, *, falls_back: bool) -> RestoreResult:
    """Choose, validate, and plan every rollout. Raises as `select_snapshot`."""
    require_sound(config, "restore")
    selected = select_snapshot(world, config, falls_back=falls_back)
    evidence = selected.evidence
    if evidence is None:
        return _result(selected.selection, "trainer_checkpoint")
    attempts = plan_from(evidence, siblings_of_ledger(evidence))
    return _result(selected.selection, "planned").model_copy(
        update={
            "saved_checkpoint_id": _saved_id(evidence),
            "plan": plan_restore(NOT_YET, _stages(evidence)).steps,
            "rollouts": attempts.redispatch,
            "reused": attempts.reused,
            "discards": attempts.discards,
            "cleared_staging_keys": attempts.clear_keys,
            "kept_shared_keys": attempts.kept_shared_keys,
            "unclaimed_sessions": attempts.unclaimed_sessions,
            "warnings": _left(world),
        }
    )


def _result(selection: Selection, outcome: str) -> RestoreResult:
    return RestoreResult.model_validate(
        {
            "outcome": "trainer_checkpoint" if selection.snapshot is None else outcome,
            "anchor": selection.anchor,
            "snapshot": selection.snapshot,
            "reason": selection.reason,
            "rejected": selection.rejected,
        }
    )


def _left(world: World) -> tuple[str, ...]:
    """What an interrupted run left, which a restore deals with before anything else."""
    try:
        transaction = find_unfinished(world)
        uses = None if transaction is None else uses_of(transaction)
    except CkptctlError as error:
        return (f"{error.message}: a restore stops at it",)
    if transaction is None or uses is None:
        return ()
    if transaction.kind == "restore":
        told = f"restore `{uses.checkpoint_id}` of `{uses.paths[0]}` was interrupted"
        return (f"{told}: `ckptctl restore` goes on with that one, unless all servers were restarted since",)
    return (f"snapshot `{uses.checkpoint_id}` was interrupted: a restore aborts or releases it first",)


def _saved_id(evidence: Evidence) -> str | None:
    manifest = evidence.manifest.manifest
    return None if manifest is None or manifest.gym_checkpoint is None else manifest.gym_checkpoint.checkpoint_id


def _stages(evidence: Evidence) -> Stages:
    """The saved participants, by kind."""
    models, agents, resources = (
        tuple(sorted(item.entry.participant.server_name for item in kind))
        for kind in (evidence.models, evidence.agents, evidence.resources)
    )
    return models, agents, resources
