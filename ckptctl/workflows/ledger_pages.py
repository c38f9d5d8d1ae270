"""The controller's unfinished groups, read page by page."""

from __future__ import annotations

from functools import partial

from ckptctl.domain.amounts import plural
from ckptctl.domain.controller import LedgerGroup
from ckptctl.errors import ServerRefusedError
from ckptctl.workflows.waiting import ask
from ckptctl.workflows.world import World


async def read_ledger(world: World, deadline_ts: float) -> list[LedgerGroup]:
    """All of them. Raises ServerRefusedError, also for pages that do not add up."""
    groups: list[LedgerGroup] = []
    after: str | None = None
    while True:
        page = await ask(world, deadline_ts, partial(world.controller.ledger, after=after))
        groups += page.groups
        if page.next is None:
            if len(groups) != page.total:
                raise _unusable(f"{plural(len(groups), 'group')} came, announced: {page.total}")
            return groups
        if page.next == after or not page.groups:
            raise _unusable("its cursor does not move on")
        after = page.next


def _unusable(detail: str) -> ServerRefusedError:
    return ServerRefusedError(
        server="controller", operation="ledger", status=200, server_code="unexpected-reply", detail=detail
    )
