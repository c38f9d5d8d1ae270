"""Reads the tensor bytes of a data plane at level full: storage units by position, blobs by name.

Units stay open while they are read (a few at a time), blobs are opened for one value each. Together, views may not have much
more bytes than the files that they lie in: many views of one storage would add up otherwise. What bytes mean is the caller's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from operator import add, le
from types import TracebackType
from typing import Self

from ckptctl.domain.dataplane import DTYPE_BYTES, DataPlane, StoredValue, TensorValue
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.source import ByteSource
from ckptctl.formats.tensor_view import read_tensor
from ckptctl.workflows.read_parts import PartReader

_MOST_OPEN = 64
_PIECE_BYTES = 4 << 20
_NEAR_BYTES = 1 << 10
"""What lies so close behind a value is read with it: a call costs as much as these bytes."""
_REPEATED = 8
"""A storage may be shown by views more than once (torch expands without copying), but not without end."""
_SPARE_BYTES = 64 << 20
_LONG_BYTES = 1 << 20
"""Values from this size on are held against the memory that is left."""
_COPIES = 4
"""How often a value is in memory while it is examined: as it was read, by field, in the order that is hashed, joined."""


class TensorSources:
    """The units and blobs of `plane`, which lies in `folder` (with a final slash, relative to what `parts` reads)."""

    def __init__(self, parts: PartReader, plane: DataPlane, folder: str) -> None:
        self._parts = parts
        self._paths = tuple(
            f"{folder}simple_storage/{unit.file_name}" if unit is not None else "" for unit in plane.units
        )
        self._open: dict[int, tuple[ExitStack, ByteSource]] = {}
        self._latest: tuple[int, ByteSource | None] = (-1, None)
        size_bytes = sum(self._size_of(path) for path in self._paths) + sum(plane.blob_sizes.values())
        self._left_bytes = _REPEATED * size_bytes + _SPARE_BYTES

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stack, _ in self._open.values():
            stack.close()
        self._open.clear()

    def path_of(self, position: int, value: StoredValue | None = None) -> str:
        """The file that holds a value, or a unit's own."""
        path = self._paths[position]
        return f"{path}.blobs/{value.blob_name}" if value is not None and value.blob_name is not None else path

    def tensor(self, position: int, value: StoredValue, most_bytes: int) -> TensorValue:
        """One value of a unit.

        Raises:
            DefectError: it cannot be read as a tensor (`is_unsupported`: it is larger than `most_bytes` or what memory is left,
                or opaque).
            StorageError: its file cannot be read.
            FileNotFoundError: its file was deleted.
        """
        size = math.prod(value.shape) * DTYPE_BYTES.get(value.dtype, 1)
        self._demand_room(size, most_bytes)
        if size >= _LONG_BYTES:
            self._parts.room.demand(size * _COPIES)
        if value.blob_name is None or value.kind == "opaque":  # refused unopened: who knows what such a blob is
            return read_tensor(self._unit(position), value)
        with ExitStack() as stack:
            return read_tensor(self._blob(stack, position, value), value)

    def scan(self, position: int, value: StoredValue) -> None:
        """Read the bytes that a value spans, whatever they are, and forget them. Raises as `tensor`."""
        begin, size = value.blob_offset, value.byte_count
        element_bytes = DTYPE_BYTES.get(value.dtype)
        if value.kind in ("tensor", "numpy") and element_bytes is not None and len(value.shape) == len(value.stride):
            steps = zip(value.shape, value.stride, strict=True)
            elements = 1 + sum((size - 1) * step for size, step in steps) if math.prod(value.shape) else 0
            begin, size = begin + value.element_offset * element_bytes, elements * element_bytes
        self._demand_room(size, size)
        with ExitStack() as stack:
            source = self._unit(position) if value.blob_name is None else self._blob(stack, position, value)
            while size > 0:
                piece = source.read_at(begin, min(size, _PIECE_BYTES))
                if not piece:
                    raise DefectError(Defect("the file became shorter while it was read", f"offset {begin}"))
                begin, size = begin + len(piece), size - len(piece)

    def gather(self, position: int, offsets: Sequence[int], sizes: Sequence[int]) -> list[bytes] | None:
        """The bytes at these places of a unit, read together where they lie close by; None if some are not there.

        Whoever asks has taken room for them. Raises StorageError, FileNotFoundError and DefectError as `tensor`.
        """
        source = self._unit(position)
        found: list[bytes] = []
        for begin, end in _near(offsets, sizes):
            low = offsets[begin]
            high = offsets[end - 1] + sizes[end - 1]
            data = source.read_at(low, high - low)
            if len(data) != high - low:
                return None
            places = zip(offsets[begin:end], sizes[begin:end], strict=True)
            found += [data[offset - low : offset - low + size] for offset, size in places]
        return found

    def demand_room(self) -> None:
        """Raise NoRoomError when the memory is taken up."""
        self._parts.room.demand()

    def has_room(self, size: int) -> bool:
        """Whether values of so many bytes can be in memory, with all that is made of them."""
        return self._parts.room.has(size * _COPIES)

    def take_room(self, size: int) -> bool:
        """Whether so many more bytes of values may be read; then they count as read."""
        if size > self._left_bytes or not self.has_room(size):
            return False
        self._left_bytes -= size
        return True

    def _demand_room(self, size: int, most_bytes: int) -> None:
        if size > most_bytes:
            what = f"a value has {size} bytes, which exceeds the limit of {most_bytes}"
            raise DefectError(
                Defect(what, expected=f"at most {most_bytes} bytes", actual=str(size)), is_unsupported=True
            )
        self._left_bytes -= size
        if self._left_bytes < 0:
            what = "the values of this data plane repeat their storages so often that reading them all would not end"
            raise DefectError(Defect(what), is_unsupported=True)

    def _unit(self, position: int) -> ByteSource:
        if position == self._latest[0] and self._latest[1] is not None:
            return self._latest[1]
        stack, source = self._open.pop(position, (None, None))
        if stack is None or source is None:
            if len(self._open) >= _MOST_OPEN:
                self._open.pop(next(iter(self._open)))[0].close()
            stack = ExitStack()
            source = self._entered(stack, self._paths[position], self._size_of(self._paths[position]))
        self._open[position] = (stack, source)
        self._latest = (position, source)
        return source

    def _blob(self, stack: ExitStack, position: int, value: StoredValue) -> ByteSource:
        return self._entered(stack, self.path_of(position, value), value.byte_count)

    def _entered(self, stack: ExitStack, path: str, size_bytes: int) -> ByteSource:
        source = stack.enter_context(self._parts.reader.open_source(f"{self._parts.root}/{path}"))
        if source.size_bytes != size_bytes:
            stack.close()
            raise DefectError(
                Defect(f"`{path}` changed while it was read", "", f"{size_bytes} bytes", f"{source.size_bytes} bytes")
            )
        return source

    def _size_of(self, path: str) -> int:
        entry = self._parts.entries.get(path)
        return entry.size_bytes if entry is not None else 0


def _near(offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Runs (begin, end) of places that are worth one read each: one behind the other, and most of what they span is asked for."""
    begin, count = 0, len(offsets)
    while begin < count:
        end = count
        while end - begin > 1 and not _are_near(offsets[begin:end], sizes[begin:end]):
            end = begin + (end - begin) // 2
        yield begin, end
        begin = end


def _are_near(offsets: Sequence[int], sizes: Sequence[int]) -> bool:
    wanted, span = sum(sizes), offsets[-1] + sizes[-1] - offsets[0]
    if not wanted <= span <= min(wanted + _NEAR_BYTES * len(offsets), _PIECE_BYTES):
        return False
    # none begins before the one in front of it ends, so none reaches behind the last
    return all(map(le, map(add, offsets, sizes), islice(offsets, 1, None)))
