"""What a rollout controller asks of its data plane, wherever the rows are: in this process (`data_plane`) or in a live
TransferQueue (`live_data_plane`).

`Barrier` decides what a consistent cut is: every change, of rows and of the books beside them, happens inside `mutation()`, and
`cut()` excludes all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ckptctl.domain.dataplane import TensorValue
from ckptctl.sim.plane_image import PlaneImage

PlaneKind = Literal["embedded", "transferqueue"]
Binding = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cut:
    """What an exclusive cut reports of itself: how long it had to wait for running mutations."""

    barrier_wait_s: float


@dataclass(frozen=True, slots=True)
class PlaneCopy:
    """What a save gets of the rows inside the cut."""

    files: Callable[[Binding], Iterator[tuple[str, bytes]]]
    """Files that are still to be written, by name below `data_plane/`, the one that completes them last."""
    written: tuple[str, ...] = ()
    """Files that were written inside the cut."""


class Barrier:
    """One event loop owns it."""

    def __init__(self) -> None:
        self.mutation_version = 0
        self._barrier = asyncio.Lock()
        self._is_mutating = False

    @asynccontextmanager
    async def mutation(self) -> AsyncIterator[None]:
        """The only place where the data plane and its books may change. Counts, even if the change fails."""
        async with self._barrier:
            self.mutation_version += 1
            self._is_mutating = True
            try:
                yield
            finally:
                self._is_mutating = False

    @asynccontextmanager
    async def cut(self) -> AsyncIterator[Cut]:
        """Exclude every mutation; leave it as soon as the memory state is copied."""
        asked = time.monotonic()
        async with self._barrier:
            yield Cut(barrier_wait_s=time.monotonic() - asked)

    def _require_mutation(self) -> None:
        assert self._is_mutating, "the data plane is changed outside `mutation()`"


class DataPlane(Protocol):
    """Partitions, keys, rows and tags. Methods that change something may be called inside `mutation()` only."""

    kind: PlaneKind
    storage_units: int
    mutation_version: int

    def mutation(self) -> AbstractAsyncContextManager[None]:
        """As `Barrier.mutation`."""
        ...

    def cut(self) -> AbstractAsyncContextManager[Cut]:
        """As `Barrier.cut`."""
        ...

    def register(self, partition_id: str, fields: Sequence[str]) -> None:
        """Make a partition with its columns, unless it is there."""
        ...

    def put(
        self, partition_id: str, key: str, fields: Mapping[str, TensorValue], tags: Mapping[str, Any] | None
    ) -> int | None:
        """Store the fields of one row. Returns its global index where that is known."""
        ...

    def clear(self, partition_id: str, keys: Iterable[str]) -> int:
        """Remove rows by key; unknown keys are no error. Returns how many there were."""
        ...

    def keys(self, partition_id: str) -> frozenset[str]:
        """The keys of one partition; none for an unknown one."""
        ...

    def get(self, partition_id: str, key: str) -> dict[str, TensorValue]:
        """The produced fields of one row. Raises KeyError."""
        ...

    async def checkpoint(self, root: str, binding: Callable[[], Binding], deadline_ts: float) -> PlaneCopy:
        """Inside a cut: copy the rows, or write them below `root` where they are not in this process' memory.

        `binding` makes the binding record, where it is needed already; what was written is gone again after a failure.
        """
        ...

    async def take_over(self, image: PlaneImage, root: str) -> None:
        """Replace everything by the data plane of the snapshot in `root`, which was read as `image`. Raises CkptctlError."""
        ...
