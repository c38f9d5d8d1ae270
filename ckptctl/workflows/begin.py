"""Step 1: discover the topology, read the controller, choose the anchor, name the attempt. Nothing is changed;
refusals exit 20.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptctl import __version__
from ckptctl.domain.config import RunConfig
from ckptctl.domain.controller import ControllerStatus
from ckptctl.domain.fingerprint import topology_fingerprint
from ckptctl.domain.ids import BOOTSTRAP_FOLDER, SNAPSHOTS_FOLDER, snapshot_name, step_number, tmp_snapshot_name
from ckptctl.domain.transaction import SnapshotFacts, SnapshotRequest, TransactionResult
from ckptctl.errors import AnchorRefusedError, RefusedError
from ckptctl.planning.publish import new_checkpoint_id, next_number
from ckptctl.planning.recovery import Transaction
from ckptctl.planning.snapshot import SAVE, plan_snapshot
from ckptctl.workflows.attempt import Begun
from ckptctl.workflows.clocks import require_time_left
from ckptctl.workflows.discovery import controller_status, discover_topology
from ckptctl.workflows.load_config import require_own
from ckptctl.workflows.ownership import names_given_up
from ckptctl.workflows.publication import snapshot_names
from ckptctl.workflows.told_transactions import snapshots_backwards
from ckptctl.workflows.validate import run_facts
from ckptctl.workflows.world import World

ANCHOR_FILES = {"step": "training_info.json", "bootstrap": "manifest.json"}
"""What makes an anchor durable: the trainer writes it before it renames the directory."""


async def begin(world: World, config: RunConfig, request: SnapshotRequest) -> Begun | TransactionResult:
    """Everything the transaction needs to know, or why none is needed.

    Raises:
        RefusedError, BusyError, UnreachableError, ServerRefusedError: nothing was changed.
    """
    own = require_own(config)
    topology = await discover_topology(world, own)
    status = await controller_status(world, own, config.checkpoint_dir)
    for refusal in readiness_refusals(status, sessions_only=request.sessions_only):
        raise refusal
    require_time_left(world, _bound_s(world, config, request))
    anchor = require_anchor(world, config.checkpoint_dir, status)
    _warn_of_other_configuration(world, config, status, anchor)
    if not request.force:
        same = _same_as_before(world, config.checkpoint_dir, anchor, status)
        if same is not None:
            reason = "nothing changed since the last snapshot: no unfinished rollouts, same mutation version"
            return TransactionResult(outcome="skipped", snapshot=same, anchor=anchor, reason=reason)
    names = snapshot_names(world, config.checkpoint_dir, anchor)
    number = next_number((*names, *names_given_up(world, anchor)))
    checkpoint_id = new_checkpoint_id(status.train_step, number, world.nonce())
    staged = f"{anchor}/{SNAPSHOTS_FOLDER}/{tmp_snapshot_name(number)}"
    final = f"{anchor}/{SNAPSHOTS_FOLDER}/{snapshot_name(number)}"
    plan = plan_snapshot(checkpoint_id, topology, staged, final)
    facts = SnapshotFacts(
        tool_version=__version__,
        checkpoint_id=checkpoint_id,
        anchor=anchor,
        number=number,
        staged=staged,
        final=final,
        controller_instance_id=status.instance_id,
        train_step=status.train_step,
        trainer_version=status.trainer_version,
        mutation_version=status.mutation_version,
        unfinished_rollouts=status.unfinished_rollouts,
        topology_fingerprint=topology_fingerprint(topology.discovered),
        models=tuple(item.server_name for item in topology.models),
        agents=tuple(item.server_name for item in topology.agents),
        resources=tuple(item.server_name for item in topology.resources),
        plan=plan.model_dump(mode="json"),
    )
    return Begun(config, own, request, topology, status, facts, plan)


def _bound_s(world: World, config: RunConfig, request: SnapshotRequest) -> float:
    """How long the attempt may take until everybody has prepared."""
    if request.deadline_ts is None:
        return config.prepare_timeout_s
    return min(config.prepare_timeout_s, request.deadline_ts - world.clock.now_s())


def readiness_refusals(status: ControllerStatus, *, sessions_only: bool = False) -> Iterator[RefusedError]:
    """Why there is nothing to take a snapshot of right now, or, `sessions_only`, no leaked session to retire."""
    if status.restore_expected:
        what = (
            "there is no session that could have leaked yet; nothing was changed"
            if sessions_only
            else "there is nothing to take a snapshot of"
        )
        yield RefusedError(
            f"the controller waits for a restore: {what}",
            hint="run `ckptctl restore` first",
        )
    if status.trainer_busy:
        yield RefusedError(
            "the trainer is publishing an optimizer step: the cut would fall between two versions",
            hint="try again when the step is published",
        )


def _warn_of_other_configuration(world: World, config: RunConfig, status: ControllerStatus, anchor: str) -> None:
    """Told, not refused: the run goes on under its own configuration, but a restore with this one would be (invariant 13)."""
    mine = run_facts(config.raw).bootstrap_manifest
    if anchor != BOOTSTRAP_FOLDER or status.bootstrap_fingerprint is None or mine is None:
        return
    if mine.bootstrap_fingerprint != status.bootstrap_fingerprint:
        world.notice(
            f"configuration `{config.path}` is not the one that the run was started with (another bootstrap fingerprint): "
            "`ckptctl restore` with it would refuse this snapshot"
        )


def require_anchor(world: World, checkpoint_dir: str, status: ControllerStatus) -> str:
    """The durable anchor of the trainer's present state. Raises AnchorRefusedError."""
    name = status.anchor
    if name is None:
        raise AnchorRefusedError(
            f"there is no durable trainer checkpoint for step {status.train_step} yet: a snapshot must belong to one",
            hint="wait for the trainer to publish it, then run the same command again",
        )
    number = step_number(name)
    if number is None and name != BOOTSTRAP_FOLDER:
        raise AnchorRefusedError(f"`{name}` is no anchor (`step_N` or `bootstrap`)", hint="the controller reports it")
    wanted = 0 if number is None else number
    if (status.train_step, status.trainer_version) != (wanted, wanted):
        raise AnchorRefusedError(
            f"the trainer is at step {status.train_step}, version {status.trainer_version}; "
            f"its newest durable checkpoint is `{name}`",
            hint="wait for the trainer to publish the checkpoint of that step (`checkpointing.save_period`)",
        )
    marker = ANCHOR_FILES["bootstrap" if number is None else "step"]
    for path, kind in ((name, "directory"), (f"{name}/{marker}", "file")):
        found = world.store.kind_of(f"{checkpoint_dir}/{path}")
        if found != kind:
            what = "is missing" if found is None else f"is a {found}"
            raise AnchorRefusedError(
                f"anchor `{name}` is not published: `{path}` {what}",
                hint="the trainer must publish it first; is the directory shared with the controller?",
            )
    return name


def _same_as_before(world: World, checkpoint_dir: str, anchor: str, status: ControllerStatus) -> str | None:
    """Path of the last snapshot when it already holds everything, or None.

    Mutation versions are comparable within one controller process only.
    """
    if status.unfinished_rollouts:
        return None
    last = last_published(world)
    facts = None if last is None else last.facts()
    if last is None or facts is None:
        return None
    saved = last.outcomes.get(SAVE, {}).get("mutation_version")
    path = f"{checkpoint_dir}/{facts.final}"
    is_same = (
        facts.anchor == anchor
        and facts.controller_instance_id == status.instance_id
        and saved == status.mutation_version
        and world.store.kind_of(path) == "directory"
    )
    return path if is_same else None


def last_published(world: World) -> Transaction | None:
    """The newest snapshot transaction that ended with a published snapshot."""
    return next((found for found in snapshots_backwards(world) if found.is_published), None)
