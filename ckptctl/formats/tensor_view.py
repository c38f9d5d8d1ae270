"""The bytes of one stored value: the view that offset, size and stride select, made contiguous.

Of a contiguous view exactly its own bytes are read, whatever else its storage holds. A strided one is read as a whole where that
is not much more than it needs, and otherwise run by run, so that a tiny view with huge strides costs neither memory nor reading.
Views were checked when the value was decoded (`tq_values`); whether the source still has the bytes is checked here. How many
bytes all views of a file may have together is for those who read many of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Literal

from ckptctl.domain.dataplane import DTYPE_BYTES, StoredValue, TensorValue
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.source import ByteSource

_WORDS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_WHOLE_BYTES = 64 << 10
"""A span up to this is read at once, however little of it is needed."""
_MOST_WHOLE_BYTES = 64 << 20
_SPARSE = 8
"""A larger span is read at once while it has at most so many times the bytes that are needed."""
_WINDOW_BYTES = 4 << 20
_PAGE_BYTES = 4096


def read_tensor(source: ByteSource, value: StoredValue) -> TensorValue:
    """The value's elements, contiguous and little-endian; `source` is its unit, or its blob file where it has one.

    Raises:
        DefectError: the value has no readable elements, or the source is shorter than it was.
    """
    element_bytes = DTYPE_BYTES.get(value.dtype)
    if value.kind not in ("tensor", "numpy") or element_bytes is None or len(value.stride) != len(value.shape):
        raise DefectError(
            Defect("this value has no elements to read", expected="a tensor", actual=value.kind), is_unsupported=True
        )
    begin = value.blob_offset + value.element_offset * element_bytes
    count = math.prod(value.shape)
    if count == 0:
        return TensorValue(value.dtype, value.shape, b"")
    shape, stride = (value.shape, value.stride) if value.stride == (1,) else _merged(value.shape, value.stride)
    if not shape or stride == (1,):
        return TensorValue(value.dtype, value.shape, _read(source, begin, count * element_bytes))
    span_bytes = element_bytes * (1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)))
    if span_bytes <= max(_WHOLE_BYTES, min(_SPARSE * count * element_bytes, _MOST_WHOLE_BYTES)):
        data = _gathered(_read(source, begin, span_bytes), shape, stride, element_bytes)
    else:
        data = b"".join(_runs(source, begin, (shape, stride), element_bytes))
    return TensorValue(value.dtype, value.shape, data)


def _read(source: ByteSource, offset: int, count: int) -> bytes:
    data = source.read_at(offset, count)
    if len(data) != count:
        raise DefectError(Defect("the file became shorter while it was read", f"offset {offset}"))
    return data


def _merged(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same elements in the same order with as few dimensions as possible; a contiguous view becomes one of stride 1."""
    sizes: list[int] = []
    steps: list[int] = []
    for size, step in zip(shape, stride, strict=True):
        if size == 1:
            continue
        if sizes and steps[-1] == size * step:
            sizes[-1] *= size
            steps[-1] = step
        else:
            sizes.append(size)
            steps.append(step)
    return tuple(sizes), tuple(steps)


def _gathered(data: bytes, shape: tuple[int, ...], stride: tuple[int, ...], element_bytes: int) -> bytes:
    """Copy a strided view out of `data`, one run of the last dimension after the other."""
    words = memoryview(data).cast(_WORDS[element_bytes])
    size, step = shape[-1], stride[-1]
    if step == 0:
        return b"".join(words[at : at + 1].tobytes() * size for at in _starts(shape, stride))
    return b"".join(words[at : at + (size - 1) * step + 1 : step].tobytes() for at in _starts(shape, stride))


def _runs(
    source: ByteSource, begin: int, view: tuple[tuple[int, ...], tuple[int, ...]], element_bytes: int
) -> Iterator[bytes]:
    """Read a strided view one run of the last dimension after the other, and no run further than a window at a time."""
    (*_, size), (*_, step) = view
    step_bytes = step * element_bytes
    for start in _starts(*view):
        offset = begin + start * element_bytes
        if step == 0:
            yield _read(source, offset, element_bytes) * size
        elif step == 1:
            yield _read(source, offset, size * element_bytes)
        elif step_bytes >= _PAGE_BYTES:
            for at in range(size):
                yield _read(source, offset + at * step_bytes, element_bytes)
        else:
            most = _WINDOW_BYTES // step_bytes
            for at in range(0, size, most):
                window = _read(
                    source, offset + at * step_bytes, (min(most, size - at) - 1) * step_bytes + element_bytes
                )
                yield memoryview(window).cast(_WORDS[element_bytes])[::step].tobytes()


def _starts(shape: tuple[int, ...], stride: tuple[int, ...]) -> Iterable[int]:
    """Where each run of the last dimension begins, in elements; one after the other, as there may be millions."""
    starts: Iterable[int] = (0,)
    for extent, step in zip(shape[:-1], stride[:-1], strict=True):
        starts = _stepped(starts, extent, step)
    return starts


def _stepped(starts: Iterable[int], extent: int, step: int) -> Iterator[int]:
    for start in starts:
        for at in range(extent):
            yield start + at * step
