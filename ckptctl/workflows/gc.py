"""`gc`: retention, leftovers, our trash; pins and bringing back (design section 4).

Observe, plan, let rule 95 judge the plan, then execute it item by item as it stands; `--dry-run` ends before the last. The
lock is held throughout, and asked for again before every effect. A plan that was interrupted anywhere is a normal
beginning of the next run, so the journal is only a record here: on a full disk collecting goes on without it. With an
archive every snapshot is packed before it goes (`gc_archive`).

What may go is `planning.gc`'s decision. Unfinished transactions are left to the commands that can reach servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Any

from ckptctl import __version__
from ckptctl.domain.config import RunConfig
from ckptctl.domain.evidence import LiveFacts
from ckptctl.domain.ids import BOOTSTRAP_FOLDER
from ckptctl.domain.retention import TRASH_FOLDER, GcPlan, GcPolicy, GcRequest, GcResult, snapshot_path
from ckptctl.domain.safe_text import safe
from ckptctl.errors import CkptctlError, ConfigError, RefusedError, StorageError, UsageError
from ckptctl.planning.gc import is_superseded, plan_gc
from ckptctl.ports import JournalWriter
from ckptctl.rules.layout import KIND_WORDS
from ckptctl.workflows.gc_archive import Archive, Packer, require_archive
from ckptctl.workflows.gc_execute import Collector
from ckptctl.workflows.gc_facts import Observed, observe, require_checkpoint_dir
from ckptctl.workflows.gc_room import leave_room, take_lock
from ckptctl.workflows.gc_single import pin, undelete, unpin
from ckptctl.workflows.judging import RETENTION, judge_live
from ckptctl.workflows.world import World, with_warnings

MOST_REASON_CHARS = 2000


def run_gc(
    world: World,
    checkpoint_dir: str,
    request: GcRequest,
    config: RunConfig | None = None,
    archive: Archive | None = None,
) -> GcResult:
    """Do what `ckptctl gc` was asked for; `config` gives the default of what is kept, `archive` is where packs go.

    Raises:
        NothingThereError, UsageError: no checkpoint directory, or names that fit nothing in it.
        LockHeldError, BusyError: another ckptctl is at work, or took the lock away.
        RefusedError: it cannot be told what an unfinished transaction uses, or a place is taken.
        StorageError: something cannot be looked at. What cannot be *deleted* is in the result.
    """
    _require_one_wish(request, has_archive=archive is not None)
    require_checkpoint_dir(world, checkpoint_dir)
    packer = None
    if archive is not None:
        require_archive(archive)
        packer = Packer(world, checkpoint_dir, archive)
    if request.dry_run:
        return _dry_run(world, checkpoint_dir, request, config, packer)
    world, warnings = with_warnings(world)
    take_lock(world, checkpoint_dir, break_lock=request.break_lock)
    try:
        result = _change(world, checkpoint_dir, request, config, packer)
    finally:
        world.lock.release()
    return result.model_copy(update={"warnings": (*result.warnings, *warnings)})


def _change(
    world: World, checkpoint_dir: str, request: GcRequest, config: RunConfig | None, packer: Packer | None
) -> GcResult:
    """What is done under the lock."""
    if request.undelete is not None:
        return undelete(world, checkpoint_dir, request.undelete)
    if request.pin is not None:
        return pin(world, checkpoint_dir, request.pin, request.reason or "")
    if request.unpin is not None:
        return unpin(world, checkpoint_dir, request.unpin)
    return _collect(world, checkpoint_dir, request, config, packer)


def _require_one_wish(request: GcRequest, *, has_archive: bool) -> None:
    wishes = [name for name in ("undelete", "pin", "unpin") if getattr(request, name) is not None]
    if len(wishes) > 1 or (wishes and (request.dry_run or has_archive)):
        raise UsageError("`--undelete`, `--pin` and `--unpin` stand alone", hint="give one of them at a time")
    if (request.pin is not None) != bool((request.reason or "").strip()):
        raise UsageError(
            "`--pin SNAPSHOT` and `--reason TEXT` belong together",
            hint="the reason is what those read who want to delete the snapshot later",
        )
    reason = request.reason or ""
    is_long, is_text = len(reason) > MOST_REASON_CHARS, not any("\ud800" <= one <= "\udfff" for one in reason)
    if is_long or not is_text:
        problem = "is too long" if is_long else "has bytes that are no text"
        raise UsageError(f"`--reason` {problem}", hint=f"a line of UTF-8, at most {MOST_REASON_CHARS} characters")


def _policy(request: GcRequest, config: RunConfig | None) -> GcPolicy:
    keep = None if config is None else config.sections.rollout_checkpointing.keep_latest_k
    if config is not None and keep is not None and keep < 1 and request.keep is None:
        raise ConfigError(
            path=config.path,
            location="rollout_checkpointing.keep_latest_k",
            problem=f"is {keep}: at least one snapshot must survive",
            hint="set it to 1 or more, or give `--keep N`",
        )
    return request.policy(keep)


def _plan(world: World, checkpoint_dir: str, policy: GcPolicy, *, is_busy: bool = False) -> tuple[GcPlan, Observed]:
    observed = observe(world, checkpoint_dir, policy, is_busy=is_busy)
    plan = plan_gc(observed.facts, policy)
    _judge(plan, observed, checkpoint_dir)
    return plan, observed


def _judge(plan: GcPlan, observed: Observed, checkpoint_dir: str) -> None:
    """Rule 95 says whether an anchor would lose its newest valid snapshot. Bootstrap may, once a durable step has its own."""
    going: dict[str, list[str]] = {}
    for item in plan.of("trash"):
        anchor, _, rest = item.path.partition("/")
        going.setdefault(anchor, []).append(rest.rpartition("/")[2])
    for anchor, names in going.items():
        if anchor == BOOTSTRAP_FOLDER and is_superseded(observed.facts):
            continue
        known = observed.loader.load(f"{checkpoint_dir}/{anchor}")
        for finding in judge_live((RETENTION,), LiveFacts(prune=tuple(names)), anchor=known):
            raise RefusedError(f"{finding.rule}: {finding.message}", hint=finding.hint)


def _dry_run(
    world: World, checkpoint_dir: str, request: GcRequest, config: RunConfig | None, packer: Packer | None
) -> GcResult:
    policy = _policy(request, config)
    holder = world.lock.holder()
    is_busy = holder is not None and not holder.is_dead
    plan, observed = _plan(world, checkpoint_dir, policy, is_busy=is_busy)
    items = Collector(world, checkpoint_dir, plan, observed, packer=packer).foresee()
    stops = tuple(_stops(world, checkpoint_dir, observed)) if any(item.action != "keep" for item in plan.items) else ()
    busy = (f"locked by another ckptctl: {holder.told}",) if holder is not None and is_busy else ()
    return GcResult(
        outcome="planned",
        checkpoint_dir=checkpoint_dir,
        policy=policy,
        archive=None if packer is None else packer.folder,
        items=items,
        warnings=(*observed.warnings, *_damaged(observed, plan, checkpoint_dir), *_refusal(world), *stops, *busy),
    )


def _refusal(world: World) -> tuple[str, ...]:
    """Why a run would not even ask for the lock. Nobody else's hold on it is meant, which passes."""
    try:
        world.lock.demand_run()
    except CkptctlError as error:
        return (f"this is what a run would end with: {error.message}",)
    return ()


def _stops(world: World, checkpoint_dir: str, observed: Observed) -> Iterator[str]:
    """What a run with something to do would fail by."""
    if not observed.is_writable:
        yield f"nothing can be written in `{checkpoint_dir}` from here"
    trash = f"{checkpoint_dir}/{TRASH_FOLDER}"
    kind = world.store.kind_of(trash) or "directory"
    if kind != "directory":
        yield f"`{trash}` is {KIND_WORDS[kind]}, where a directory belongs: nothing could be moved there"


def _collect(
    world: World, checkpoint_dir: str, request: GcRequest, config: RunConfig | None, packer: Packer | None
) -> GcResult:
    policy = _policy(request, config)
    plan, observed = _plan(world, checkpoint_dir, policy)
    going = [item for item in plan.items if item.action != "keep"]
    writer = _begin(world, policy, plan) if going else None
    if packer is not None:
        packer.clean()
    collector = Collector(world, checkpoint_dir, plan, observed, writer, packer)
    items = collector.run()
    collector.finish()
    leave_room(world, checkpoint_dir)
    return GcResult(
        outcome="collected" if going else "nothing_to_do",
        checkpoint_dir=checkpoint_dir,
        policy=policy,
        archive=None if packer is None else packer.folder,
        items=items,
        warnings=(*observed.warnings, *_damaged(observed, plan, checkpoint_dir)),
    )


def _damaged(observed: Observed, plan: GcPlan, checkpoint_dir: str) -> tuple[str, ...]:
    """What to say of snapshots that stay, as upstream counts them, and were found to be damaged on the way."""
    kept = {item.path for item in plan.of("keep")}
    found = (snapshot_path(item.anchor, item.name) for item in observed.facts.snapshots if item.is_valid is False)
    return tuple(
        f"`{path}` is not valid: `ckptctl validate {quote(safe(f'{checkpoint_dir}/{path}'))}` says why"
        for path in found
        if path in kept
    )


def _begin(world: World, policy: GcPolicy, plan: GcPlan) -> JournalWriter | None:
    facts: Mapping[str, Any] = {
        "schema_version": 1,
        "tool_version": __version__,
        "policy": policy.model_dump(mode="json"),
        "going": [item.model_dump(mode="json") for item in plan.items if item.action != "keep"],
    }
    try:
        return world.journal.begin("gc", facts)
    except StorageError as error:
        world.notice(f"the journal could not be written, collecting goes on without it: {error.message}")
        return None


def remaining_error(result: GcResult) -> StorageError:
    """What to end with when something could not be moved or deleted; everything else was done."""
    first, *others = result.remaining()
    named = f"; also remaining: {', '.join(f'`{item.path}`' for item in others)}" if others else ""
    return StorageError(
        operation="move to the trash" if first.action == "trash" else "delete",
        path=f"{result.checkpoint_dir}/{first.path}",
        detail=f"{first.problem}{named}",
    )
