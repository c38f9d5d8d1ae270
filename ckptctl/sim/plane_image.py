"""A data plane's memory state as values: what a checkpoint of it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ckptctl.domain.dataplane import TensorValue


@dataclass(slots=True)
class PartitionState:
    """One partition: who has which index, and what of it was produced."""

    partition_id: str
    created_at: float
    keys: dict[str, int] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)
    produced: dict[str, set[int]] = field(default_factory=dict)
    tags: dict[int, dict[str, Any]] = field(default_factory=dict)

    def copy(self) -> PartitionState:
        """A copy that later changes do not reach. Tags are replaced as a whole, never edited, so they may be shared."""
        return PartitionState(
            self.partition_id,
            self.created_at,
            dict(self.keys),
            dict(self.columns),
            {name: set(indexes) for name, indexes in self.produced.items()},
            dict(self.tags),
        )


@dataclass(frozen=True, slots=True)
class PlaneImage:
    """Everything that a checkpoint of the data plane holds."""

    partitions: Mapping[str, PartitionState]
    rows: Mapping[str, Mapping[int, TensorValue]]
    next_index: int
    reusable_indexes: tuple[int, ...]
