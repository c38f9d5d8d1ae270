"""Which transaction an earlier run left unfinished, by looking at the journals only.

Apart from `recovery`, which finishes it, so that a command that only looks does not start with all that finishing takes.
"""

from __future__ import annotations

from ckptctl.errors import JournalDamagedError
from ckptctl.planning.recovery import Transaction, read_transaction
from ckptctl.workflows.world import World

HOLDING = ("-snapshot", "-restore")
"""Kinds of transactions that hold servers; of the others an interruption leaves nothing to be finished."""


def find_unfinished(world: World) -> Transaction | None:
    """The transaction that an earlier run left, if any.

    There is at most one that asked servers for anything: none goes that far before the one before it is finished. Beside
    it may stand one of a coordinator that was passed over while it stood still (`ownership.begin_transaction`): with no
    intent on record it says nothing of those before it.

    Raises:
        JournalDamagedError: nobody can tell whether it has ended, or what it was.
    """
    idle: Transaction | None = None
    for name in reversed(world.journal.transactions()):
        if not name.endswith(HOLDING):
            continue
        records = [item.record for item in world.journal.read(name)]
        if not records:
            continue  # its first line was torn by a crash: it never began
        transaction = read_transaction(name, records)
        if transaction.finish is None and transaction.facts() is None and transaction.restore_facts() is None:
            problem = "its first record does not say what began, or another version of ckptctl wrote it"
            raise JournalDamagedError(path=world.journal.path_of(name), transaction=name, problem=problem)
        if not transaction.intents:
            idle = idle or (transaction if transaction.finish is None else None)
            continue
        return transaction if transaction.finish is None else idle
    return idle
