"""Deadlines are absolute times: where a server's clock is further ahead than the time that it gets, each has passed already."""

from __future__ import annotations

from ckptctl.domain.amounts import duration
from ckptctl.errors import RefusedError
from ckptctl.workflows.world import World

SURELY_AHEAD_S = 2.0
"""Servers tell their time in whole seconds."""


def require_time_left(world: World, bound_s: float) -> None:
    """Compare the clocks of the servers that were asked so far with ours. A smaller difference the channel warns of.

    Raises:
        RefusedError: what is to be done within `bound_s` would be past its deadline at a server when it hears of it.
    """
    ahead = {server: off_s for server, off_s in world.clocks_ahead().items() if off_s >= max(bound_s, SURELY_AHEAD_S)}
    if not ahead:
        return
    server = max(ahead, key=ahead.__getitem__)
    raise RefusedError(
        f"the clock of `{server}` is {duration(ahead[server])} ahead of ours: it would refuse everything as past its deadline, "
        f"{duration(bound_s)} from now",
        hint="one of the two clocks is wrong: have both set by the same time service, then run the same command again",
    )
