"""Ask every configured server what it is, and the controller how it stands; refuse what cannot take part (step 1 of a
transaction).

Nothing is changed here. The rules are `planning.discovery`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ckptctl.domain.config import OwnSection
from ckptctl.domain.controller import ControllerStatus
from ckptctl.domain.participant import Capabilities, DiscoveredParticipant
from ckptctl.domain.topology import Topology
from ckptctl.errors import CheckpointConflictError, CkptctlError, RefusedError
from ckptctl.planning.discovery import busy_refusal, name_warnings, require_one_actor, require_topology, way_to_free
from ckptctl.workflows.more_time import CONTROL, bounded_by
from ckptctl.workflows.waiting import ask, ask_each, side_by_side
from ckptctl.workflows.world import World


async def discover(world: World, own: OwnSection) -> tuple[DiscoveredParticipant, ...]:
    """What every configured server says of itself, by server name.

    Raises:
        DiscoveryRefusedError: more than one Gym actor, or another protocol generation.
        UnreachableError, ServerRefusedError: a server does not answer.
    """
    require_one_actor(own.groups())
    deadline_ts = world.clock.now_s() + own.control_timeout_s
    with bounded_by(CONTROL):
        found = await ask_each(world, deadline_ts, own.urls(), world.participants.capabilities)
    return tuple(
        DiscoveredParticipant(server_name=server, capabilities=capabilities)
        for server, capabilities in sorted(found.items())
    )


async def observe(world: World, own: OwnSection) -> dict[str, Capabilities | CkptctlError]:
    """As `discover`, but every server's failure stands beside the answers of the others: for looking, not for acting."""

    async def look(server: str) -> Capabilities | CkptctlError:
        try:
            return await world.participants.capabilities(server)
        except CkptctlError as error:
            return error

    return await side_by_side({server: partial(look, server) for server in sorted(own.urls())})


async def discover_topology(world: World, own: OwnSection) -> Topology:
    """The topology, if it may take part and nobody is held by another checkpoint."""
    topology = require_topology(await discover(world, own))
    for warning in name_warnings(topology):
        world.notice(warning)
    busy = busy_refusal(topology.discovered)
    if busy is not None:
        raise busy
    return topology


async def controller_status(world: World, own: OwnSection, checkpoint_dir: str) -> ControllerStatus:
    """The controller's status, if it is ours to coordinate.

    Raises:
        RefusedError: it takes its own snapshots, or works in another directory.
        CheckpointConflictError: another checkpoint id is active.
    """
    deadline_ts = world.clock.now_s() + own.control_timeout_s
    with bounded_by(CONTROL):
        status = await ask(world, deadline_ts, world.controller.status)
    for refusal in controller_refusals(world, status, checkpoint_dir):
        raise refusal
    return status


def controller_refusals(world: World, status: ControllerStatus, checkpoint_dir: str) -> Iterator[CkptctlError]:
    """Why the controller is not ours to coordinate."""
    if status.takes_own_snapshots:
        yield RefusedError(
            "the controller takes its own snapshots: its loop would delete what is staged here",
            hint="turn NeMo-RL's own snapshot loop off where ckptctl coordinates",
        )
    if not world.is_same_directory(status.checkpoint_dir, checkpoint_dir):
        yield RefusedError(
            f"the controller works in `{status.checkpoint_dir}`, the configuration says `{checkpoint_dir}`",
            hint="give both the same `checkpointing.checkpoint_dir`, on a shared file system",
        )
    if status.phase != "idle" and status.active_checkpoint_id is not None:
        way = way_to_free(status.active_checkpoint_id, [status.phase])
        yield CheckpointConflictError(
            f"another checkpoint is active: the controller is {status.phase} under `{status.active_checkpoint_id}`",
            hint=f"wait for that coordinator; if it is certainly gone, {way}",
        )
