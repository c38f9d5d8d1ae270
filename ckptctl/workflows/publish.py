"""`publish`: finish what an interrupted run left, publish a staged directory, or free what a dead coordinator holds.

Without an argument the journal and the disk decide (`workflows.recovery`). A staged directory that no journal knows
is validated at level full before it becomes visible. `--release ID` resumes everybody under an id that is not ours to
finish; it is recorded with its reason, and changes nothing on disk. A journal that cannot be read is `set_aside`'s.
"""

from __future__ import annotations

from ckptctl import __version__
from ckptctl.domain.config import OwnSection, RunConfig
from ckptctl.domain.finding import Level
from ckptctl.domain.ids import SNAPSHOTS_FOLDER, TMP_SNAPSHOT_NAME, is_checkpoint_id, snapshot_name
from ckptctl.domain.topology import topology_of
from ckptctl.domain.transaction import PublishRequest, TransactionResult
from ckptctl.errors import AdmissionClosedError, CheckpointConflictError, NothingThereError, RefusedError, UsageError
from ckptctl.planning import snapshot as steps
from ckptctl.planning.discovery import way_to_free
from ckptctl.planning.publish import next_number
from ckptctl.workflows.discovery import discover
from ckptctl.workflows.find_unfinished import find_unfinished
from ckptctl.workflows.gc_room import in_room, leave_room, take_lock
from ckptctl.workflows.held import observe_held
from ckptctl.workflows.load_config import require_checkpoint_dir, require_own
from ckptctl.workflows.publication import Publication, snapshot_names
from ckptctl.workflows.recovery import finish_unfinished
from ckptctl.workflows.release import Release
from ckptctl.workflows.set_aside import set_aside
from ckptctl.workflows.transaction import Recorder, execute
from ckptctl.workflows.world import World, with_warnings

FOREIGN_LEVEL: Level = "full"
"""For what no journal knows (design section 4)."""


async def finish_publish(world: World, config: RunConfig, request: PublishRequest) -> TransactionResult:
    """Do what `ckptctl publish` was asked for.

    Raises:
        CkptctlError: see the table of exit statuses.
    """
    require_checkpoint_dir(world.store, config)
    world, warnings = with_warnings(world)
    has_room = take_lock(world, config.checkpoint_dir, break_lock=request.break_lock)
    try:
        result = await in_room(world, config.checkpoint_dir, lambda: _publish(world, config, request))
        return result.model_copy(update={"warnings": tuple(warnings)})
    finally:
        if not has_room:
            leave_room(world, config.checkpoint_dir)
        world.lock.release()


async def _publish(world: World, config: RunConfig, request: PublishRequest) -> TransactionResult:
    if request.set_aside is not None:
        return await set_aside(world, config, request)
    if request.release_id is not None:
        return await _release_foreign(world, config, request)
    if request.staged is not None:
        return await _publish_staged(world, config, request.staged)
    left = await finish_unfinished(world, config, may_publish=True)
    if left is None:
        await _tell_of_foreign_holds(world, config)
    return left or TransactionResult(outcome="nothing_to_do", reason="no transaction is unfinished")


async def _tell_of_foreign_holds(world: World, config: RunConfig) -> None:
    """No journal knows of anything, but a coordinator without one may have left servers held. Raises CheckpointConflictError.

    Servers that do not answer are told of only: there is nothing to finish with them.
    """
    held, silent = await observe_held(world, require_own(config))
    for error in silent.values():
        world.notice(f"{error.message}; whether somebody holds it is not known")
    if held:
        raise CheckpointConflictError(
            f"no journal here knows of it, but somebody is {'; '.join(item.told() for item in held)}",
            hint=f"wait for that coordinator; if it is certainly gone, {held[0].way()}",
        )


async def _publish_staged(world: World, config: RunConfig, path: str) -> TransactionResult:
    anchor, name = _place(world, config, path)
    staged = f"{anchor}/{SNAPSHOTS_FOLDER}/{name}"
    if world.store.kind_of(f"{config.checkpoint_dir}/{staged}") != "directory":
        raise NothingThereError(f"there is no staged directory `{path}`", hint="`ckptctl inspect` lists what is staged")
    unfinished = find_unfinished(world)
    facts = None if unfinished is None else unfinished.facts()
    left = None
    if unfinished is not None:
        left = await finish_unfinished(world, config, may_publish=facts is not None and facts.staged == staged)
        if facts is not None and facts.staged == staged:
            return left or TransactionResult(outcome="nothing_to_do")
    number = next_number(snapshot_names(world, config.checkpoint_dir, anchor))
    final = f"{anchor}/{SNAPSHOTS_FOLDER}/{snapshot_name(number)}"
    work = Publication(
        world=world,
        checkpoint_dir=config.checkpoint_dir,
        anchor=anchor,
        staged=staged,
        final=final,
        level=FOREIGN_LEVEL,
        demands_new_id=True,
        keep_latest_k=config.sections.rollout_checkpointing.keep_latest_k,
    )
    plan = steps.plan_publish(None, staged, final)
    begin = {"schema_version": 1, "tool_version": __version__, "staged": staged, "final": final}
    recorder = Recorder(world, world.journal.begin("publish", begin), synced=(steps.WRITE_CHECKSUMS, steps.PUBLISH))
    try:
        await execute(plan, work.actions(), recorder, done=(steps.WRITE_MANIFEST,))
    finally:
        recorder.is_lenient = True
        recorder.finish("published" if world.store.kind_of(work.final_path) is not None else "refused")
    return TransactionResult(
        outcome="published",
        snapshot=work.final_path,
        anchor=anchor,
        steps=tuple(recorder.times),
        removed=work.removed,
        reason="" if left is None else left.reason,
    )


def _place(world: World, config: RunConfig, path: str) -> tuple[str, str]:
    """Anchor and name of a staged directory; it must lie where its snapshot will be visible."""
    folder, _, name = path.rstrip("/").rpartition("/")
    above, _, parent = folder.rpartition("/")
    base, _, anchor = above.rpartition("/")
    is_here = bool(base) and world.is_same_directory(base, config.checkpoint_dir)
    if TMP_SNAPSHOT_NAME.match(name) is None or parent != SNAPSHOTS_FOLDER or not is_here:
        raise UsageError(
            f"`{path}` is no staged snapshot of `{config.checkpoint_dir}`",
            hint=f"give the path of a `tmp_snapshot_N` in `{SNAPSHOTS_FOLDER}/` of one of its anchors",
        )
    return anchor, name


async def _release_foreign(world: World, config: RunConfig, request: PublishRequest) -> TransactionResult:
    """Resume everybody who is held by an id that no journal of ours can finish."""
    checkpoint_id = request.release_id or ""
    if not is_checkpoint_id(checkpoint_id) or not (request.reason or "").strip():
        raise UsageError(
            f"`{checkpoint_id}` cannot be released like this",
            hint="give a checkpoint id and, with `--reason`, why it may be released",
        )
    own = require_own(config)
    unfinished = find_unfinished(world)
    if unfinished is not None:
        facts = unfinished.facts()
        if facts is not None and facts.checkpoint_id == checkpoint_id:
            left = await finish_unfinished(world, config, may_publish=True)
            return left or TransactionResult(outcome="nothing_to_do")
        raise RefusedError(
            f"another transaction (`{unfinished.name}`) is unfinished",
            hint="run `ckptctl publish` first, it finishes that one",
        )
    stages, holds_controller, phases = await _held(world, own, checkpoint_id)
    if not any(stages) and not holds_controller:
        raise NothingThereError(
            f"nobody is held under `{checkpoint_id}`", hint="`ckptctl inspect --live` shows who holds what"
        )
    if any(phase.startswith("restor") for phase in phases):
        raise RefusedError(
            f"`{checkpoint_id}` is a restore: nobody is let go in the middle of one",
            hint=way_to_free(checkpoint_id, phases),
        )
    begin = {"schema_version": 1, "tool_version": __version__, "checkpoint_id": checkpoint_id, "reason": request.reason}
    recorder = Recorder(world, world.journal.begin("release", begin))
    release = Release(
        world=world,
        checkpoint_id=checkpoint_id,
        outcome="aborted",
        deadline_ts=world.clock.now_s() + own.control_timeout_s,
        servers=frozenset(own.urls()),
    )
    plan = steps.plan_release(checkpoint_id, stages)
    if not holds_controller:
        plan = plan.model_copy(update={"steps": tuple(step for step in plan.steps if step.name != steps.OPEN)})
    await release.run(plan, recorder)
    recorder.finish("failed" if release.failures else "released")
    if release.failures:
        raise AdmissionClosedError(
            f"not everybody who was held under `{checkpoint_id}` was released; admission stays closed: {release.told()}",
            hint="mend what is named, then run the same command again",
            cause=next(iter(release.failures.values())),
        )
    return TransactionResult(
        outcome="released", checkpoint_id=checkpoint_id, reason=request.reason or "", steps=tuple(recorder.times)
    )


async def _held(world: World, own: OwnSection, checkpoint_id: str) -> tuple[steps.Stages, bool, list[str]]:
    """Who shows the id as active, whether the controller does, and the phases of all of them.

    Agents whose prepare failed show no id, but stay closed.
    """
    topology = topology_of(await discover(world, own))
    phases = {item.server_name: item.capabilities for item in topology.discovered}
    is_anybody = any(item.active_checkpoint_id == checkpoint_id for item in phases.values())
    status = await world.controller.status()
    holds_controller = status.active_checkpoint_id == checkpoint_id
    is_ours = is_anybody or holds_controller

    def held(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if is_ours and phases[name].active_checkpoint_id in (checkpoint_id, None))

    models, agents, resources = (
        tuple(item.server_name for item in group) for group in (topology.models, topology.agents, topology.resources)
    )
    shown: list[str] = [item.phase for item in phases.values() if item.active_checkpoint_id == checkpoint_id]
    shown += [status.phase] if holds_controller else []
    return (held(models), held(agents), held(resources)), holds_controller, shown
