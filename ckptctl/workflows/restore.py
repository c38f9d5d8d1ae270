"""`restore`: bring the controller and every participant back to a proved snapshot, paused, then let them go on.

Source: design section 6. Here are its beginning (steps 1 and 2, which change nothing) and the choice between beginning
and going on; steps 3 to 7 are `restore_run`'s.
"""

from __future__ import annotations

import asyncio

from pydantic import ValidationError

from ckptctl import __version__
from ckptctl.domain.binding import Binding
from ckptctl.domain.config import OwnSection, RunConfig
from ckptctl.domain.controller import ControllerStatus
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.restore import RestoreFacts, RestoreRequest, RestoreResult, Selection
from ckptctl.domain.topology import Topology
from ckptctl.errors import DiscoveryRefusedError, NotFreshError, RefusedError
from ckptctl.planning.discovery import cannot_discard
from ckptctl.planning.restored_facts import plan_from, siblings_of_ledger
from ckptctl.workflows.clocks import require_time_left
from ckptctl.workflows.discovery import controller_status, discover_topology
from ckptctl.workflows.find_unfinished import find_unfinished
from ckptctl.workflows.gc_room import leave_room, take_lock
from ckptctl.workflows.load_config import require_checkpoint_dir, require_own, require_sound
from ckptctl.workflows.recovery import finish_unfinished
from ckptctl.workflows.restore_attempt import RestoreAttempt
from ckptctl.workflows.restore_recovery import read_unfinished_restore
from ckptctl.workflows.restore_run import RestoreRun
from ckptctl.workflows.selection import Live, Selected, select_snapshot
from ckptctl.workflows.world import World, with_warnings


async def restore(world: World, config: RunConfig, request: RestoreRequest) -> RestoreResult:
    """Restore the newest snapshot that fits, or go on with a restore that was interrupted.

    Raises:
        CkptctlError: see the table of exit statuses; up to 20 and 21, 30 to 32 nothing was changed, 24 says what is paused.
    """
    require_sound(config, "restore")
    own = require_own(config)
    world, warnings = with_warnings(world)
    require_checkpoint_dir(world.store, config)
    has_room = take_lock(world, config.checkpoint_dir, break_lock=request.break_lock)
    try:
        result = await _restore(world, config, own, request, has_room=has_room)
    finally:
        if not has_room:
            leave_room(world, config.checkpoint_dir)
        world.lock.release()
    return result.model_copy(update={"warnings": tuple(warnings)})


async def _restore(
    world: World, config: RunConfig, own: OwnSection, request: RestoreRequest, *, has_room: bool
) -> RestoreResult:
    unfinished = find_unfinished(world)
    if unfinished is not None and unfinished.kind == "restore":
        continued = await read_unfinished_restore(world, config, own, unfinished)
        if continued is not None:
            return await RestoreRun(world, config, own, continued.attempt, continued).run()
    else:
        await finish_unfinished(world, config, may_publish=False)
    begun = await _begin(world, config, own, request)
    if isinstance(begun, RestoreResult):
        return begun
    if has_room:  # before anybody is paused, as a snapshot does
        leave_room(world, config.checkpoint_dir)
    return await RestoreRun(world, config, own, begun).run()


async def _begin(
    world: World, config: RunConfig, own: OwnSection, request: RestoreRequest
) -> RestoreAttempt | RestoreResult:
    """Sections 1 and 2, and a fresh id."""
    topology = await discover_topology(world, own) if config.takes_participants else None
    status = await controller_status(world, own, config.checkpoint_dir)
    require_time_left(world, config.prepare_timeout_s)
    live = Live(status, None if topology is None else topology.discovered)
    selected = await asyncio.to_thread(select_snapshot, world, config, falls_back=request.falls_back, live=live)
    selection, evidence = selected.selection, selected.evidence
    if selection.snapshot is None or evidence is None:
        return _without_snapshot(selection, status)
    _require_fresh(status, selection.anchor)
    _require_same_run(status, evidence)
    _require_discarding(topology, evidence)
    return _attempt(world, config, selected, status, topology)


def _without_snapshot(selection: Selection, status: ControllerStatus) -> RestoreResult:
    """The run starts from its anchor alone. Raises RefusedError when the controller would wait for ever."""
    if status.restore_expected:
        raise RefusedError(
            f"{selection.reason}, but the controller expects a restore: its admission would stay closed",
            hint="start the controller and the Gym servers without telling them to expect a restore",
        )
    return RestoreResult(outcome="trainer_checkpoint", anchor=selection.anchor, snapshot=None, reason=selection.reason)


def _require_fresh(status: ControllerStatus, anchor: str) -> None:
    """A controller that already admitted work cannot take a restored state. Raises NotFreshError, RefusedError."""
    if not status.restore_expected or status.phase not in ("idle", "restore_failed"):
        raise NotFreshError(
            f"the controller is not fresh: phase {status.phase}, admission {status.admission}, "
            f"{status.unfinished_rollouts} unfinished rollouts",
            hint="start the controller and the Gym servers anew, told that they will be restored",
        )
    if status.anchor != anchor:
        raise RefusedError(
            f"the controller started from anchor `{status.anchor}`, the newest anchor here is `{anchor}`",
            hint="start the trainer from the newest anchor, or move that anchor away",
        )


def _require_same_run(status: ControllerStatus, evidence: Evidence) -> None:
    """What the controller would refuse only after it was asked to change. Raises RefusedError."""
    manifest, metadata = evidence.manifest.manifest, evidence.metadata.value
    assert manifest is not None, "a valid snapshot has a manifest"
    try:
        binding = Binding.model_validate({} if metadata is None else metadata.user_metadata)
    except ValidationError:
        raise AssertionError("a valid snapshot has a binding") from None
    pairs = {
        "train step": (manifest.base_train_step, status.train_step),
        "trainer version": (manifest.trainer_version, status.trainer_version),
        "bootstrap fingerprint": (
            manifest.bootstrap_fingerprint,
            manifest.bootstrap_fingerprint and status.bootstrap_fingerprint,
        ),
        "canonical partition": (binding.partition_id, status.canonical_partition),
        "sampler": (binding.sampler_name, status.sampler_name),
    }
    differing = [f"{name} `{saved}` / `{found}`" for name, (saved, found) in pairs.items() if saved != found]
    if differing:
        raise RefusedError(
            f"snapshot and controller differ: {', '.join(differing)}",
            hint="start the controller with the configuration and the anchor that the snapshot was taken with",
        )


def _require_discarding(topology: Topology | None, evidence: Evidence) -> None:
    """Continuations that must restart can be dropped by every agent. Raises DiscoveryRefusedError."""
    if topology is None:
        return
    lost = (item.participant_name for item in topology.restart_only)
    discards = plan_from(evidence, siblings_of_ledger(evidence), lost).discards
    lacking = cannot_discard(topology) if discards else ()
    if lacking:
        names = ", ".join(f"`{name}`" for name in lacking)
        raise DiscoveryRefusedError(
            f"{len(discards)} continuations must restart ({discards[0].reason}), but {names} cannot discard restored ones",
            hint="use a Gym build with `discard_restored_continuation_v1`",
        )


def _attempt(
    world: World, config: RunConfig, selected: Selected, status: ControllerStatus, topology: Topology | None
) -> RestoreAttempt:
    evidence, selection = selected.evidence, selected.selection
    assert evidence is not None, "a selected snapshot was loaded"
    assert selection.snapshot is not None, "checked by the caller"
    digest = evidence.manifest.part.sha256
    assert digest is not None, "a valid manifest was read whole"
    facts = RestoreFacts(
        tool_version=__version__,
        checkpoint_id=f"restore-{world.nonce()}",
        anchor=selection.anchor,
        snapshot=selection.snapshot.removeprefix(f"{config.checkpoint_dir}/"),
        manifest_sha256=digest,
        controller_instance_id=status.instance_id,
        models=tuple(item.server_name for item in topology.models) if topology else (),
        agents=tuple(item.server_name for item in topology.agents) if topology else (),
        resources=tuple(item.server_name for item in topology.resources) if topology else (),
    )
    return RestoreAttempt(
        world=world,
        facts=facts,
        snapshot_path=selection.snapshot,
        evidence=evidence,
        topology=topology,
        rejected=selection.rejected,
    )
