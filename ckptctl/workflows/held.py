"""Who is held under which checkpoint id, as the servers themselves say: for when no journal knows it, or none can be read."""

from __future__ import annotations

from dataclasses import dataclass

from ckptctl.domain.config import OwnSection
from ckptctl.domain.controller import ControllerStatus
from ckptctl.domain.participant import Capabilities
from ckptctl.errors import CkptctlError
from ckptctl.planning.discovery import way_to_free
from ckptctl.workflows.discovery import observe
from ckptctl.workflows.world import World


@dataclass(frozen=True, slots=True)
class Held:
    """Everybody who shows one checkpoint id."""

    checkpoint_id: str
    phases: tuple[tuple[str, str], ...]
    """Server and its phase."""

    def told(self) -> str:
        """Who it is, in one line."""
        return f"held under `{self.checkpoint_id}`: " + ", ".join(f"`{name}` ({phase})" for name, phase in self.phases)

    def way(self) -> str:
        """What frees them."""
        return way_to_free(self.checkpoint_id, (phase for _, phase in self.phases))


async def observe_held(world: World, own: OwnSection) -> tuple[tuple[Held, ...], dict[str, CkptctlError]]:
    """Who is held, by id; and the servers that did not answer, each with the reason."""
    seen: dict[str, Capabilities | ControllerStatus | CkptctlError] = {**await observe(world, own)}
    try:
        seen["controller"] = await world.controller.status()
    except CkptctlError as error:
        seen["controller"] = error
    phases: dict[str, list[tuple[str, str]]] = {}
    for server, found in seen.items():
        if not isinstance(found, CkptctlError) and found.active_checkpoint_id is not None:
            phases.setdefault(found.active_checkpoint_id, []).append((server, found.phase))
    silent = {server: found for server, found in seen.items() if isinstance(found, CkptctlError)}
    return tuple(Held(checkpoint_id, tuple(names)) for checkpoint_id, names in phases.items()), silent
