"""What an interrupted transaction refers to on disk, for those who may only leave it alone: `gc` and `inspect`.

Whoever is at work right now holds the lock; a transaction that is unfinished while the lock is free was interrupted.
Finishing it is `workflows.recovery`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckptctl.planning.recovery import Transaction


@dataclass(frozen=True, slots=True)
class Uses:
    """The paths (relative to the checkpoint directory) that a transaction refers to, and who that is."""

    owner: str
    checkpoint_id: str
    paths: tuple[str, ...]


def uses_of(transaction: Transaction) -> Uses:
    """What it refers to."""
    facts = transaction.facts()
    if facts is not None:
        owner = f"the unfinished snapshot `{facts.checkpoint_id}`"
        return Uses(owner, facts.checkpoint_id, (facts.staged, facts.final))
    restore = transaction.restore_facts()
    assert restore is not None, "what is found unfinished can be read"
    return Uses(f"the unfinished restore `{restore.checkpoint_id}`", restore.checkpoint_id, (restore.snapshot,))


def finishing_command(transaction: Transaction) -> str:
    """The command that finishes it."""
    return "ckptctl restore" if transaction.name.endswith("-restore") else "ckptctl publish"
