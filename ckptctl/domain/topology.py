"""Who takes part: the discovered servers, sorted by what a coordinator does with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ckptctl.domain.ids import AGENT, MODEL, RESOURCES
from ckptctl.domain.manifest import ParticipantIdentity
from ckptctl.domain.participant import DiscoveredParticipant


def identity_of(participant: DiscoveredParticipant) -> ParticipantIdentity:
    """The triple that names a participant everywhere."""
    return ParticipantIdentity(
        server_name=participant.server_name,
        component=participant.capabilities.component,
        participant_name=participant.capabilities.name,
    )


@dataclass(frozen=True, slots=True)
class Topology:
    """A discovered topology; the lists hold `export_restore` participants only, sorted by server name."""

    discovered: tuple[DiscoveredParticipant, ...]
    models: tuple[ParticipantIdentity, ...]
    agents: tuple[ParticipantIdentity, ...]
    resources: tuple[ParticipantIdentity, ...]
    restart_only: tuple[ParticipantIdentity, ...]
    """Resources servers whose state is lost at a restart; their dependants begin anew."""

    @property
    def participants(self) -> tuple[ParticipantIdentity, ...]:
        """Everybody who is prepared, committed and resumed."""
        return (*self.agents, *self.models, *self.resources)


def topology_of(discovered: Iterable[DiscoveredParticipant]) -> Topology:
    """Sort what was discovered; whether it may take part is `planning.discovery`'s business."""
    ordered = tuple(sorted(discovered, key=lambda item: (item.capabilities.component, item.server_name)))

    def of(component: str, mode: str) -> tuple[ParticipantIdentity, ...]:
        return tuple(
            identity_of(item)
            for item in ordered
            if item.capabilities.component == component and item.capabilities.checkpoint_mode == mode
        )

    return Topology(
        discovered=ordered,
        models=of(MODEL, "export_restore"),
        agents=of(AGENT, "export_restore"),
        resources=of(RESOURCES, "export_restore"),
        restart_only=of(RESOURCES, "restart_only"),
    )
