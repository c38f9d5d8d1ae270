"""Everything that a rollout controller holds in memory, in one place: books, data plane, cursor, trainer.

A save copies it inside a cut, a restore replaces it inside a mutation, the rollout loop changes it inside
mutations; it decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ckptctl.domain.dataplane import STAGED_FIELDS
from ckptctl.domain.ids import rollout_id
from ckptctl.sim.controller_settings import ControllerSettings
from ckptctl.sim.data_plane import CANONICAL_FIELDS, EmbeddedDataPlane
from ckptctl.sim.ledger_book import LedgerBook
from ckptctl.sim.plane import DataPlane
from ckptctl.sim.prompt_source import PromptSource, group_id
from ckptctl.sim.replay_book import ReplayBook
from ckptctl.sim.trainer import Trainer

SAMPLER_NAME = "windowed"
TASK_NAME = "train"
"""Under which task the trainer asks for canonical rows."""


@dataclass(slots=True)
class RolloutState:
    """The state of one controller. `sampler_dispatch_index` is the highest target step handed out, -1 for none."""

    settings: ControllerSettings
    plane: DataPlane
    ledger: LedgerBook
    replay: ReplayBook
    prompts: PromptSource
    trainer: Trainer
    sampler_dispatch_index: int = -1
    lost_groups: int = 0
    """Drawn, but neither trained nor known any more: after a start from a trainer anchor alone."""
    closed_at: tuple[int, int] | None = field(default=None)
    """Train step and trainer version when admission was closed; None while it is open."""

    async def register_partitions(self) -> None:
        """Create both partitions with their columns."""
        async with self.plane.mutation():
            self.plane.register(self.settings.canonical_partition, CANONICAL_FIELDS)
            self.plane.register(self.settings.staging_partition, tuple(STAGED_FIELDS))

    def trained_groups(self) -> frozenset[str]:
        """Groups that were drawn and are neither unfinished nor waiting: training consumed them."""
        drawn = {group_id(self.prompts.seed, prompt) for prompt in self.prompts.drawn_prompts()}
        return frozenset(drawn - {group.group_id for group in self.ledger.groups()} - self.replay.group_ids())

    def finished_count(self) -> int:
        """Groups that were finished so far, trained ones included."""
        return self.prompts.drawn - len(self.ledger.groups()) - self.lost_groups

    def owns_result(self, rollout: str) -> bool:
        """Whether a finished group, waiting or trained, holds this rollout's result."""
        if rollout in self.replay.sample_ids():
            return True
        generations = range(self.settings.generations)
        return any(rollout == rollout_id(group, index) for group in self.trained_groups() for index in generations)


def new_state(
    settings: ControllerSettings,
    trainer: Trainer,
    *,
    plane: DataPlane | None = None,
    now: Callable[[], float] = time.time,
) -> RolloutState:
    """An empty state for these settings, by default on a data plane in this process."""
    return RolloutState(
        settings=settings,
        plane=plane or EmbeddedDataPlane(units=settings.storage_units, unit_size=settings.unit_size, clock=now),
        ledger=LedgerBook(),
        replay=ReplayBook(partition_id=settings.canonical_partition, capacity=settings.capacity),
        prompts=PromptSource(seed=settings.seed, rows=settings.prompts, batch_size=settings.groups_per_step),
        trainer=trainer,
    )
