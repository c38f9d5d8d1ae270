"""The embedded data plane: TransferQueue's partitions, keys, indexes, production bits, tags and storage units, in memory.

It decides which global index a row gets (freed indexes first, in the order in which they were freed). What a consistent
cut is, `plane` says; how an image of it becomes files, and back, is `plane_files`' business; what the rows mean is the
rollout loop's.

    register -> columns, no rows      put -> key, index, rows, bits, tags      clear -> all gone, index reusable
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ckptctl.domain.dataplane import TensorValue
from ckptctl.sim.plane import Barrier, Binding, PlaneCopy, PlaneKind
from ckptctl.sim.plane_files import PlaneIdentity, encode_plane
from ckptctl.sim.plane_image import PartitionState, PlaneImage

CANONICAL_FIELDS = (
    "input_ids",
    "input_lengths",
    "generation_logprobs",
    "prev_logprobs",
    "reference_policy_logprobs",
    "advantages",
    "token_mask",
    "sample_mask",
)
"""Columns that the canonical partition has from its registration; the first put adds two more (data-plane section 8)."""


class EmbeddedDataPlane(Barrier):
    """One event loop owns it. Methods that change something may be called inside `mutation()` only."""

    def __init__(self, *, units: int, unit_size: int, clock: Any = time.time) -> None:
        super().__init__()
        self.kind: PlaneKind = "embedded"
        self.storage_units = units
        self.unit_ids = tuple(f"TQ_STORAGE_UNIT_{secrets.token_hex(4)}" for _ in range(units))
        self.controller_id = f"TQ_CONTROLLER_{secrets.token_hex(4)}"
        self.unit_size = unit_size
        self._clock = clock
        self._partitions: dict[str, PartitionState] = {}
        self._rows: dict[str, dict[int, TensorValue]] = {}
        self._next_index = 0
        self._reusable: deque[int] = deque()

    # --- changes -------------------------------------------------------------------------------------------------------------

    def register(self, partition_id: str, fields: Sequence[str]) -> None:
        """Create a partition with its columns. As TransferQueue's placeholder does, it uses up and frees one index."""
        self._require_mutation()
        if partition_id in self._partitions:
            return
        partition = PartitionState(partition_id, float(self._clock()))
        self._partitions[partition_id] = partition
        for name in fields:
            self._column(partition, name)
        self._reusable.append(self._take_index())

    def put(
        self, partition_id: str, key: str, fields: Mapping[str, TensorValue], tags: Mapping[str, Any] | None
    ) -> int:
        """Store the fields of one row; a known key keeps its index and gains or replaces fields. Returns the global index."""
        self._require_mutation()
        partition = self._partitions[partition_id]
        index = partition.keys.get(key)
        if index is None:
            index = self._take_index()
            partition.keys[key] = index
        for name, value in fields.items():
            self._column(partition, name)
            self._rows[name][index] = value
            partition.produced[name].add(index)
        if tags is not None:
            partition.tags[index] = dict(tags)
        return index

    def clear(self, partition_id: str, keys: Iterable[str]) -> int:
        """Remove rows by key; unknown keys are no error. Returns how many there were."""
        self._require_mutation()
        partition = self._partitions[partition_id]
        cleared = 0
        for key in keys:
            index = partition.keys.pop(key, None)
            if index is None:
                continue
            cleared += 1
            for name, indexes in partition.produced.items():
                indexes.discard(index)
                self._rows[name].pop(index, None)
            partition.tags.pop(index, None)
            self._reusable.append(index)
        return cleared

    def load(self, image: PlaneImage) -> None:
        """Replace everything. Indexes that no key names are free, whatever the image calls them."""
        self._require_mutation()
        self._partitions = {name: partition.copy() for name, partition in image.partitions.items()}
        used = {index for partition in self._partitions.values() for index in partition.keys.values()}
        self._rows = {
            name: {index: value for index, value in values.items() if index in used}
            for name, values in image.rows.items()
        }
        self._next_index = image.next_index
        queued = [index for index in image.reusable_indexes if index not in used]
        known = used.union(queued)
        self._reusable = deque(queued + [index for index in range(image.next_index) if index not in known])

    async def take_over(self, image: PlaneImage, root: str) -> None:  # noqa: ARG002 - the image is all of it
        """Load an image."""
        self.load(image)

    # --- reading -------------------------------------------------------------------------------------------------------------

    def image(self) -> PlaneImage:
        """A copy of the memory state. Values are immutable, so only the maps are copied."""
        return PlaneImage(
            {name: partition.copy() for name, partition in self._partitions.items()},
            {name: dict(values) for name, values in self._rows.items()},
            self._next_index,
            tuple(self._reusable),
        )

    async def checkpoint(self, root: str, binding: Callable[[], Binding], deadline_ts: float) -> PlaneCopy:  # noqa: ARG002 - nothing is written yet
        """An image, which becomes files outside the cut."""
        image, identity = self.image(), PlaneIdentity(self.controller_id, self.unit_ids, self.unit_size)

        def files(made: Binding) -> Iterator[tuple[str, bytes]]:
            return encode_plane(image, identity, made)

        return PlaneCopy(files)

    def keys(self, partition_id: str) -> frozenset[str]:
        """The keys of one partition; none for an unknown one."""
        partition = self._partitions.get(partition_id)
        return frozenset() if partition is None else frozenset(partition.keys)

    def get(self, partition_id: str, key: str) -> dict[str, TensorValue]:
        """The produced fields of one row. Raises KeyError."""
        partition = self._partitions[partition_id]
        index = partition.keys[key]
        return {name: self._rows[name][index] for name, indexes in partition.produced.items() if index in indexes}

    def tags(self, partition_id: str, key: str) -> dict[str, Any]:
        """The tags of one row. Raises KeyError."""
        partition = self._partitions[partition_id]
        return dict(partition.tags.get(partition.keys[key], {}))

    # --- inside --------------------------------------------------------------------------------------------------------------

    def _take_index(self) -> int:
        if self._reusable:
            return self._reusable.popleft()
        self._next_index += 1
        return self._next_index - 1

    def _column(self, partition: PartitionState, name: str) -> None:
        partition.columns.setdefault(name, len(partition.columns))
        partition.produced.setdefault(name, set())
        self._rows.setdefault(name, {})
