"""What the journals tell, transaction by transaction, read only as far as somebody asks."""

from __future__ import annotations

from collections.abc import Iterator

from ckptctl.planning.recovery import Transaction, read_transaction
from ckptctl.workflows.world import World


def transaction_named(world: World, name: str) -> Transaction:
    """One transaction. Raises what `ports.Journal.read` raises."""
    return read_transaction(name, (item.record for item in world.journal.read(name)))


def snapshots_backwards(world: World) -> Iterator[Transaction]:
    """The transactions of `snapshot`, the newest first; each is read when it is asked for."""
    for name in reversed(world.journal.transactions()):
        if name.endswith("-snapshot"):
            yield transaction_named(world, name)
