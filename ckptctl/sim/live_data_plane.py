"""The rows of a rollout controller in a live TransferQueue that somebody else runs; the books stay in this process.

It makes the library's attachment (`controller.live_tq`) a data plane of the embedded controller. Rows are asked for and stored at
once, inside the mutation that needs them: that takes milliseconds, and a queue that is silent is not waited for long. Saving and
loading go through a thread. A snapshot gets the queue's own state: indexes, bits, samplers, and whatever else is in it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ckptctl.adapters import durable
from ckptctl.controller.live_tq import FILES_TIMEOUT_S, LiveTransferQueue
from ckptctl.domain.dataplane import TensorValue
from ckptctl.errors import UnreachableError
from ckptctl.sim.plane import Barrier, Binding, PlaneCopy, PlaneKind
from ckptctl.sim.plane_image import PlaneImage
from ckptctl.sim.snapshot_files import DATA_PLANE
from ckptctl.sim.threads import in_thread

LEAST_TIMEOUT_S, DETACH_TIMEOUT_S = 1.0, 3.0


class LiveDataPlane(Barrier):
    """Implements `plane.DataPlane`. Every method may raise UnreachableError; what a failed change did is then unknown."""

    def __init__(self, queue: LiveTransferQueue) -> None:
        super().__init__()
        self.kind: PlaneKind = "transferqueue"
        self.storage_units = queue.storage_units
        self._queue = queue

    def register(self, partition_id: str, fields: Sequence[str]) -> None:
        """Make a partition with its columns, unless it is there."""
        self._require_mutation()
        self._queue.register(partition_id, fields)

    def put(
        self, partition_id: str, key: str, fields: Mapping[str, TensorValue], tags: Mapping[str, Any] | None
    ) -> None:
        """Store the fields of one row; its index is the queue's own business."""
        self._require_mutation()
        self._queue.put(partition_id, key, fields, tags)

    def clear(self, partition_id: str, keys: Iterable[str]) -> int:
        """Remove rows by key. Returns how many there were."""
        self._require_mutation()
        return self._queue.clear(partition_id, keys)

    def keys(self, partition_id: str) -> frozenset[str]:
        """The keys of one partition."""
        return self._queue.keys(partition_id)

    def get(self, partition_id: str, key: str) -> dict[str, TensorValue]:
        """The produced fields of one row. Raises KeyError."""
        return self._queue.get(partition_id, key)

    async def checkpoint(self, root: str, binding: Callable[[], Binding], deadline_ts: float) -> PlaneCopy:
        """Have the queue write its own checkpoint, inside the cut."""
        folder = f"{root}/{DATA_PLANE}"
        patience_s = min(FILES_TIMEOUT_S, max(LEAST_TIMEOUT_S, deadline_ts - time.time()))
        try:
            await in_thread(durable.remove_tree, folder)  # of an earlier try
            await in_thread(self._queue.save, folder, binding(), timeout_s=patience_s)
            return PlaneCopy(_nothing_more, await in_thread(_names, folder))
        except BaseException:
            await in_thread(durable.remove_tree, folder)
            raise

    async def take_over(self, image: PlaneImage, root: str) -> None:  # noqa: ARG002 - the queue reads the files itself
        """Have the queue load its own checkpoint."""
        await in_thread(self._queue.load, f"{root}/{DATA_PLANE}")

    async def detach(self) -> None:
        """Leave the queue as it is; its owner may end at the same time, and then there is nobody to say goodbye to."""
        with suppress(UnreachableError):
            await in_thread(self._queue.detach, timeout_s=DETACH_TIMEOUT_S)


def _nothing_more(binding: Binding) -> Iterator[tuple[str, bytes]]:  # noqa: ARG001 - it stands in the files already
    return iter(())


def _names(folder: str) -> tuple[str, ...]:
    """Every file below a folder."""
    found = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    return tuple(sorted(str(path.relative_to(folder)) for path in found))
