"""Tensors of a torch zip: a view in the pickle, the raw bytes in an entry of their own (snapshot-layout section 12).

Decides: that a tensor is of the documented form, that its entry exists and has the size of its storage, and that the view lies
inside. Small tensors are read; of others only the description is kept, so memory does not grow with the file.
Leaves to others: where tensors may stand (`dataloader_file`), gathering a view (`tensor_view`).
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

from ckptctl.domain.dataplane import DTYPE_BYTES, StoredValue, TensorValue
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.source import ByteSource
from ckptctl.formats.pickle_machine import Call, Global, PersistentId
from ckptctl.formats.tensor_view import read_tensor
from ckptctl.formats.torch_stream import STORAGE_DTYPES
from ckptctl.formats.torch_zip import TorchZip
from ckptctl.formats.tq_values import check_view, row_major
from ckptctl.formats.zip_directory import check_crc

ZIP_TENSOR_GLOBALS = frozenset(
    {("torch._utils", "_rebuild_tensor_v2"), ("collections", "OrderedDict")}
    | {("torch", kind) for kind in STORAGE_DTYPES}
)
_KINDS = {dtype: kind for kind, dtype in STORAGE_DTYPES.items()}
_SMALL_TENSOR_BYTES = 1 << 16
_READ_TENSORS_BYTES = 4 << 20
"""How much all tensors of one file may be read; many views of one entry would add up otherwise."""
_MOST_DIMENSIONS = 64


class ZipTensors:
    """Reads the tensors of one opened container."""

    def __init__(self, source: ByteSource, archive: TorchZip) -> None:
        self._source, self._archive = source, archive
        self._left_bytes = _READ_TENSORS_BYTES
        self._checked_keys: set[str] = set()

    def value_of(self, call: Call, place: str) -> TensorValue | StoredValue:
        """The tensor that a called object is; small ones with their bytes.

        Raises:
            DefectError: located at `place`.
        """
        if not call.is_plain_call_of("torch._utils", "_rebuild_tensor_v2") or len(call.arguments) not in (6, 7):
            _refuse(f"an object made by `{call.callee}` is no tensor", place)
        persistent, offset, shape, stride, requires_grad, hooks = call.arguments[:6]
        if (
            not isinstance(hooks, Call)
            or not hooks.is_plain_call_of("collections", "OrderedDict")
            or requires_grad is not False
        ):
            _refuse("a tensor carries gradients or hooks", place)
        dtype, key, count = _storage(persistent, place)
        value = self._stored(dtype, key, count, place)
        check_view(_sizes(shape, place), _sizes(stride, place), _sizes((offset,), place)[0], count, place)
        value = value._replace(shape=shape, stride=stride, element_offset=offset)
        span = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        wanted = max(span, math.prod(shape)) * DTYPE_BYTES[dtype]
        if wanted > min(_SMALL_TENSOR_BYTES, self._left_bytes):
            return value
        self._left_bytes -= max(wanted, 1)
        return read_tensor(self._source, value)

    def _stored(self, dtype: str, key: str, count: int, place: str) -> StoredValue:
        """The storage behind a key, as a place in the file."""
        entry = self._archive.entries.get(f"data/{key}")
        if entry is None:
            _refuse(f"a tensor's storage `data/{key[:40]}` is not in the archive", place)
        byte_count = count * DTYPE_BYTES[dtype]
        if entry.size_bytes != byte_count:
            _refuse("a tensor's storage has another size", place, f"{byte_count} bytes", f"{entry.size_bytes} bytes")
        if key not in self._checked_keys:
            check_crc(self._source, entry)
            self._checked_keys.add(key)
        return StoredValue("tensor", dtype, element_count=count, blob_offset=entry.data_offset, byte_count=byte_count)


def tensor_tree(value: TensorValue, key: str) -> Call:
    """The tree of a tensor whose bytes become the entry `data/<key>`.

    Raises:
        ValueError: a dtype without storage kind, or bytes that are not those of the shape.
    """
    kind = _KINDS.get(value.dtype)
    count = math.prod(value.shape)
    if kind is None or len(value.data) != count * DTYPE_BYTES[value.dtype]:
        raise ValueError(f"{len(value.data)} bytes are no {value.dtype} tensor of shape {value.shape}")
    storage = PersistentId(("storage", Global("torch", kind), key, "cpu", count))
    hooks = Call(Global("collections", "OrderedDict"), ())
    arguments = (storage, 0, value.shape, row_major(value.shape), False, hooks)
    return Call(Global("torch._utils", "_rebuild_tensor_v2"), arguments)


def _storage(persistent: Any, place: str) -> tuple[str, str, int]:
    """Dtype, key and element count out of ("storage", <torch KindStorage>, key, "cpu", count)."""
    parts = persistent.value if type(persistent) is PersistentId else None
    if type(parts) is not tuple or len(parts) != 5 or parts[0] != "storage" or parts[3] != "cpu":
        _refuse("a tensor has no storage of the documented form", place)
    _, kind, key, _, count = parts
    dtype = STORAGE_DTYPES.get(kind.name) if type(kind) is Global and kind.module == "torch" else None
    if dtype is None or type(key) is not str or type(count) is not int or count < 0:
        _refuse("a tensor has no storage of the documented form", place)
    return dtype, key, count


def _sizes(values: Any, place: str) -> tuple[int, ...]:
    if type(values) is not tuple or len(values) > _MOST_DIMENSIONS or not {int}.issuperset(map(type, values)):
        _refuse("a tensor's size, stride or offset is no sequence of whole numbers", place)
    if not all(0 <= value < 1 << 63 for value in values):
        _refuse("a tensor's size, stride or offset is negative or absurd", place)
    sizes: tuple[int, ...] = values
    return sizes


def _refuse(message: str, place: str, expected: str = "", actual: str = "") -> NoReturn:
    raise DefectError(Defect(message, place, expected, actual))
