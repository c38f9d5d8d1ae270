"""Whether the checkpoint directory is still ours: asked right before what a coordinator who lost its lock must not do.

What asking cannot exclude, because a process may stand still between the question and the effect, names do: the
number of an attempt that somebody else finished is given to no other attempt, so a late rename finds nothing to rename.
"""

from __future__ import annotations

from ckptctl.errors import BusyError
from ckptctl.workflows.told_transactions import snapshots_backwards
from ckptctl.workflows.world import World


def demand_ownership(world: World, checkpoint_dir: str, *, doing: str, outcome: str) -> None:
    """Raise BusyError when another coordinator has taken the directory over while we were `doing` something."""
    if not world.lock.is_owner():
        raise BusyError(
            f"the lock of `{checkpoint_dir}` was taken over while {doing}",
            hint=f"another ckptctl is at work there; {outcome}",
        )


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
