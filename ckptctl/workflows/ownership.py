"""Whether the checkpoint directory is still ours: asked right before what a coordinator who lost its lock must not do.

What asking cannot exclude, because a process may stand still between the question and the effect, names do: the
number of an attempt that somebody else finished is given to no other attempt, so a late rename finds nothing to rename.
"""

from __future__ import annotations

from typing import Literal

from ckptctl.domain.restore import RestoreFacts
from ckptctl.domain.transaction import SnapshotFacts
from ckptctl.errors import BusyError
from ckptctl.ports import JournalWriter
from ckptctl.workflows.told_transactions import snapshots_backwards
from ckptctl.workflows.transaction import Recorder
from ckptctl.workflows.world import World

UNDONE: dict[Literal["snapshot", "restore"], str] = {"snapshot": "aborted", "restore": "abandoned"}
"""How each kind ends when it did nothing."""


def demand_ownership(world: World, checkpoint_dir: str, *, doing: str, outcome: str) -> None:
    """Raise BusyError when another coordinator has taken the directory over while we were `doing` something."""
    if not world.lock.is_owner():
        raise BusyError(
            f"the lock of `{checkpoint_dir}` was taken over while {doing}",
            hint=f"another ckptctl is at work there; {outcome}",
        )


def begin_transaction(
    world: World, kind: Literal["snapshot", "restore"], facts: SnapshotFacts | RestoreFacts, checkpoint_dir: str
) -> JournalWriter:
    """Begin what will hold servers. Its id is durable before any of them hears of it: whoever comes next can go on under it.

    Ownership is asked for after the record, not before. Whoever takes the directory over later finds the record and
    finishes it; who was passed over earlier, while it looked around, says so here and has asked nobody for anything.

    Raises:
        BusyError: another coordinator has taken the directory over; the transaction is closed again.
    """
    writer = world.journal.begin(kind, facts.model_dump(mode="json"))
    try:
        demand_ownership(world, checkpoint_dir, doing=f"the {kind} was being prepared", outcome="nothing was changed")
    except BusyError as error:
        Recorder(world, writer).finish(UNDONE[kind], reason=error.message)
        raise
    return writer


def names_given_up(world: World, anchor: str) -> tuple[str, ...]:
    """Final names of attempts of this anchor that another process than their own aborted, since its last published snapshot.

    Their own process may stand still and wake up: nobody else may use the staged name that it would rename.
    """
    found: list[str] = []
    for transaction in snapshots_backwards(world):
        facts = transaction.facts()
        if facts is None or facts.anchor != anchor:
            continue
        if transaction.is_published:
            break
        if transaction.is_recovered:
            found.append(facts.final.rpartition("/")[2])
    return tuple(found)
