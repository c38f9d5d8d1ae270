"""How a checkpoint directory stands, as facts for monitoring: snapshots with age and size, what is unfinished, the last window.

The overview of `inspect` at level quick, with what the command itself proved at a deeper level in its place. Looks only, and
never raises for what it finds: a directory that cannot be looked at is a fact too.
"""

from __future__ import annotations

from collections.abc import Mapping

from ckptctl.domain.finding import Level, VerdictName
from ckptctl.domain.inspection import DirectoryInspection
from ckptctl.domain.metrics import DirectoryFacts, SeenSnapshot
from ckptctl.domain.safe_text import safe
from ckptctl.errors import CkptctlError
from ckptctl.planning.recovery import Transaction, decide
from ckptctl.planning.snapshot import CLOSE
from ckptctl.planning.timings import UNFINISHED, read_times
from ckptctl.workflows.find_unfinished import find_unfinished
from ckptctl.workflows.inspect_directory import inspect_directory
from ckptctl.workflows.inspect_timings import KIND
from ckptctl.workflows.recovery import disk_facts
from ckptctl.workflows.unfinished import finishing_command
from ckptctl.workflows.world import World

Proofs = Mapping[str, tuple[VerdictName, Level]]
"""Absolute path of a snapshot, as `safe` writes it -> the verdict that the command came to, and how deep it looked."""
MOST_JOURNALS = 8
"""Newest journals of snapshots that are read for one that has ended."""


def observe_directory(
    world: World,
    checkpoint_dir: str,
    proofs: Proofs,
    *,
    level: Level = "quick",
    seen: DirectoryInspection | None = None,
) -> DirectoryFacts:
    """Look at one checkpoint directory; `seen` is an overview of it that was just made."""
    try:
        if world.store.kind_of(checkpoint_dir) not in {"directory", "symlink"}:
            return DirectoryFacts(checkpoint_dir, obstacle=f"`{checkpoint_dir}` is no directory")
        view = seen or inspect_directory(world, checkpoint_dir, level)
        return _facts(world, checkpoint_dir, view, proofs)
    except CkptctlError as error:
        return DirectoryFacts(checkpoint_dir, obstacle=error.message)
    except FileNotFoundError:
        return DirectoryFacts(checkpoint_dir, obstacle="it went away while it was looked at")


def _facts(world: World, checkpoint_dir: str, view: DirectoryInspection, proofs: Proofs) -> DirectoryFacts:
    snapshots = tuple(
        SeenSnapshot.of(item, *proofs.get(f"{safe(checkpoint_dir)}/{item.path}", (item.verdict, view.level)))
        for anchor in view.anchors
        for item in anchor.snapshots
    )
    is_locked = None if view.lock_problem else view.lock is not None and not view.lock.is_dead
    transaction, obstacle = None, view.lock_problem or None
    if is_locked is False:  # otherwise nobody can tell what was interrupted
        try:
            transaction = find_unfinished(world)
        except CkptctlError as error:
            obstacle = error.message
    is_known = obstacle is None
    unlisted = [f"{anchor.name}: {anchor.unlisted}" for anchor in view.anchors if anchor.unlisted]
    return DirectoryFacts(
        checkpoint_dir=checkpoint_dir,
        obstacle=obstacle or (unlisted[0] if unlisted else None),
        snapshots=None if unlisted else snapshots,  # the newest may be one of those that nobody could list
        anchors=tuple(anchor.name for anchor in view.anchors),
        sizes_bytes={
            "snapshots": sum(item.size_bytes for item in snapshots),
            "leftovers": sum(item.size_bytes or 0 for item in view.leftovers),
            "trash": sum(item.size_bytes or 0 for item in view.trash),
        },
        unfinished=None if transaction is None else transaction.name,
        is_release_pending=_is_pending(world, checkpoint_dir, transaction) if is_known else None,
        may_be_closed=_may_be_closed(transaction) if is_known else None,
        finished_by="" if transaction is None else finishing_command(transaction),
        is_locked=is_locked,
        admission_closed_s=_last_window_s(world),
        warnings=view.warnings,
    )


def _may_be_closed(transaction: Transaction | None) -> bool:
    return transaction is not None and (transaction.kind == "restore" or CLOSE in transaction.intents)


def _is_pending(world: World, checkpoint_dir: str, transaction: Transaction | None) -> bool:
    facts = None if transaction is None else transaction.facts()
    if transaction is None or facts is None:
        return False
    return decide(transaction, disk_facts(world, checkpoint_dir, facts), may_publish=False) == "release"


def _last_window_s(world: World) -> float | None:
    """How long the newest attempt that ended kept admission closed; one that never closed it is passed over."""
    try:
        names = [name for name in world.journal.transactions() if name.endswith(KIND)]
    except CkptctlError:
        return None
    for name in reversed(names[-MOST_JOURNALS:]):
        try:
            found = read_times(name, (item.record for item in world.journal.read(name)))
        except CkptctlError:
            continue
        if found is not None and found.times.outcome != UNFINISHED:
            return found.times.admission_closed_s
    return None
