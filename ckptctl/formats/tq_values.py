"""What one value of a storage unit is: pickled tensor, array, text or object as a StoredValue (data-plane sections 3 to 5).

Decides: which forms are known, that a view lies inside its storage and is not absurd, and that sizes agree; no raw byte is
read, only the head of each tensor stream. Leaves to others: where values stand (`tq_checkpoint`) and their bytes (`tensor_view`).
"""

from __future__ import annotations

import math
from typing import Any

from ckptctl.domain.dataplane import DTYPE_BYTES, StoredValue, ValueKind
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.safe_text import shown
from ckptctl.domain.source import ByteSource
from ckptctl.formats.pickle_machine import ByteSpan, Call, Global
from ckptctl.formats.torch_stream import StreamHeader, decode_stream_header
from ckptctl.formats.tq_nodes import defect, kind_of, refuse

TENSOR_GLOBALS = frozenset(
    {
        ("torch._utils", "_rebuild_tensor_v2"),
        ("torch.storage", "_load_from_bytes"),
        ("collections", "OrderedDict"),
        ("torch", "Size"),
    }
)
TORCH_DTYPES = frozenset(
    {"float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"}
)
_NEWER_DTYPES = frozenset(
    {"uint16", "uint32", "uint64", "complex32", "complex64", "complex128"}
    | {f"float8_{form}" for form in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")}
    | {"float4_e2m1fn_x2"}
)
DTYPE_GLOBALS = frozenset(("torch", name) for name in TORCH_DTYPES | _NEWER_DTYPES)
OPAQUE_TENSOR_GLOBALS = frozenset({("torch._utils", "_rebuild_tensor_v3")}) | DTYPE_GLOBALS
NUMPY_GLOBALS = frozenset(
    {("numpy", "dtype"), ("numpy", "ndarray")}
    | {
        (f"numpy.{core}.{module}", name)
        for core in ("_core", "core")
        for module, name in (("numeric", "_frombuffer"), ("multiarray", "_reconstruct"), ("multiarray", "scalar"))
    }
)

_NUMPY_DTYPES = {
    "i8": "int64",
    "i4": "int32",
    "i2": "int16",
    "i1": "int8",
    "u1": "uint8",
    "b1": "bool",
    "f8": "float64",
    "f4": "float32",
    "f2": "float16",
    "c8": "complex64",
}
_MOST_DIMENSIONS = 64
_MOST = 2**63 - 1
_MOST_EXPANDED_ELEMENTS = 1 << 24
"""A view with stride 0 may be larger than its storage (torch allows it), but not without end."""


def classify_value(node: Any, source: ByteSource, where: str) -> StoredValue:
    """The StoredValue of one value's nodes; `where` places it in defects.

    Raises:
        DefectError: a tensor or array whose parts do not fit together.
    """
    kind = type(node)
    if kind is Call:
        name = node.callee.name if type(node.callee) is Global else ""
        if name == "_rebuild_tensor_v2":
            return decode_tensor(node, source, where)
        if name == "_rebuild_tensor_v3":
            return _opaque_tensor(node, source, where)
        if name in ("_frombuffer", "_reconstruct", "scalar"):
            return _numpy_value(node, where)
    elif kind is ByteSpan:
        return StoredValue("bytes", shape=(node.length,), blob_offset=node.offset, byte_count=node.length)
    elif kind is str:
        return StoredValue("text", byte_count=len(node.encode("utf-8", "surrogatepass")))
    return StoredValue("other")


def decode_tensor(node: Any, source: ByteSource, where: str) -> StoredValue:
    """The StoredValue of a pickled tensor.

    Raises:
        DefectError: it is no tensor of the known form, or its view leaves its storage.
    """
    header, span, (offset, shape, stride) = _tensor_parts(node, "_rebuild_tensor_v2", (6, 7), source, where)
    check_view(shape, stride, offset, header.element_count, where)
    kind: ValueKind = "opaque" if header.is_opaque else "tensor"
    dtype = header.kind if header.is_opaque else header.dtype
    byte_count = span.offset + span.length - header.data_offset
    return StoredValue(kind, dtype, shape, stride, offset, header.element_count, header.data_offset, None, byte_count)


def decode_offloaded(entry: Any, where: str, limits: Limits) -> StoredValue:
    """The StoredValue of a row that lies in a blob file of its own.

    Raises:
        DefectError: the entry is not of the known form, or its blob's name is no bare file name.
    """
    if type(entry) is not dict or not {"filename", "size_bytes", "codec", "dtype", "shape"} <= entry.keys():
        refuse(
            "an offloaded value is not described as known",
            where,
            "filename, size_bytes, codec, dtype, shape",
            kind_of(entry),
        )
    name, size = entry["filename"], entry["size_bytes"]
    if type(name) is not str or not _is_bare_name(name, limits):
        refuse("the name of a blob is no bare file name", where, "<32 hex>.bin", shown(name))
    if type(size) is not int or size < 0:
        refuse("the size of a blob is no count of bytes", where, ">= 0", shown(size))
    codec = entry["codec"]
    if codec == "bytes":
        return StoredValue("bytes", shape=(size,), blob_name=name, byte_count=size)
    if codec == "pickle":
        return StoredValue("opaque", blob_name=name, byte_count=size)
    if codec not in ("tensor", "numpy"):
        refuse(
            "an offloaded value has a codec ckptctl does not know",
            where,
            "tensor, numpy, bytes or pickle",
            shown(codec),
        )
    shape = _integers(entry["shape"], "the shape of an offloaded value", where)
    dtype = _numpy_dtype(entry["dtype"], where) if codec == "numpy" else entry["dtype"]
    if type(dtype) is not str:
        refuse("the dtype of an offloaded tensor is no text", where, "int64", kind_of(dtype))
    count = math.prod(shape)
    if dtype in DTYPE_BYTES and count * DTYPE_BYTES[dtype] != size:
        refuse(
            "a blob does not have the size of its shape", where, f"{count * DTYPE_BYTES[dtype]} bytes", f"{size} bytes"
        )
    kind: ValueKind = "numpy" if codec == "numpy" else "tensor" if dtype in DTYPE_BYTES else "opaque"
    return StoredValue(kind, dtype, shape, row_major(shape), 0, count, blob_name=name, byte_count=size)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor, as torch writes them: a dimension of no elements counts as one."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def check_view(shape: tuple[int, ...], stride: tuple[int, ...], offset: int, element_count: int, where: str) -> None:
    """Refuse a view that is not inside a storage of `element_count`, or that repeats it without end. Raises DefectError."""
    if len(shape) != len(stride):
        refuse("a tensor has another number of strides than dimensions", where, str(len(shape)), str(len(stride)))
    if not 0 <= offset <= _MOST:
        refuse("the offset of a tensor is negative or absurd", where)
    count = math.prod(shape)
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) if count else offset - 1
    if last >= element_count:
        refuse("a tensor's view leaves its storage", where, f"at most {element_count} elements", f"element {last}")
    if count > max(element_count, _MOST_EXPANDED_ELEMENTS):
        refuse(
            "a tensor repeats its storage absurdly often",
            where,
            f"at most {_MOST_EXPANDED_ELEMENTS} elements",
            str(count),
        )


def _tensor_parts(
    node: Any, rebuild: str, counts: tuple[int, ...], source: ByteSource, where: str
) -> tuple[StreamHeader, ByteSpan, tuple[int, tuple[int, ...], tuple[int, ...]]]:
    if type(node) is not Call or not node.is_plain_call_of("torch._utils", rebuild):
        refuse("this is no tensor", where, f"torch._utils.{rebuild}", kind_of(node))
    arguments = node.arguments
    if len(arguments) not in counts:
        refuse("a tensor has another number of parts", where, " or ".join(map(str, counts)), str(len(arguments)))
    storage, offset = arguments[0], arguments[1]
    if type(storage) is not Call or not storage.is_plain_call_of("torch.storage", "_load_from_bytes"):
        refuse("a tensor has no storage", where, "torch.storage._load_from_bytes", kind_of(storage))
    if len(storage.arguments) != 1 or type(storage.arguments[0]) is not ByteSpan:
        refuse("the storage of a tensor is no byte string", where)
    if type(offset) is not int:
        refuse("the offset of a tensor is no whole number", where, actual=kind_of(offset))
    span: ByteSpan = storage.arguments[0]
    shape = _integers(arguments[2], "the size of a tensor", where)
    stride = _integers(arguments[3], "the stride of a tensor", where)
    try:
        header = decode_stream_header(source, span.offset, span.length, span.head)
    except DefectError as error:
        first = error.defects[0]
        raise DefectError(Defect(first.message, f"{where}, {first.location}", first.expected, first.actual)) from error
    return header, span, (offset, shape, stride)


def _opaque_tensor(node: Any, source: ByteSource, where: str) -> StoredValue:
    """A tensor of a dtype without legacy storage: untyped bytes, and the dtype as a name at the end."""
    header, span, (offset, shape, stride) = _tensor_parts(node, "_rebuild_tensor_v3", (7, 8), source, where)
    dtype = node.arguments[6]
    if type(dtype) is not Global or dtype.module != "torch":
        refuse("a tensor has no dtype", where, "torch.<dtype>", kind_of(dtype))
    byte_count = span.offset + span.length - header.data_offset
    return StoredValue(
        "opaque", dtype.name, shape, stride, offset, header.element_count, header.data_offset, byte_count=byte_count
    )


def _numpy_value(node: Call, where: str) -> StoredValue:
    arguments, name = node.arguments, node.callee.name
    if name == "_frombuffer" and len(arguments) == 4 and not node.has_state:
        buffer, dtype, shape, order = arguments
        if order in ("C", "F"):
            return _array(buffer, dtype, shape, order == "F", where)
    if name == "scalar" and len(arguments) == 2 and not node.has_state:
        return _array(arguments[1], arguments[0], (), False, where)
    state = node.state
    if (
        name == "_reconstruct"
        and node.has_state
        and type(state) is tuple
        and len(state) == 5
        and type(state[3]) is bool
    ):
        return _array(state[4], state[2], state[1], state[3], where)
    raise defect("a numpy value is not of the known form", where, actual=name)


def _array(data: Any, dtype_node: Any, shape_node: Any, is_column_major: bool, where: str) -> StoredValue:
    shape = _integers(shape_node, "the shape of an array", where)
    dtype = _numpy_dtype(dtype_node, where)
    if type(data) is not ByteSpan:  # an object array: its items were read as what they are, and mean nothing here
        return StoredValue("numpy", dtype, shape)
    count = math.prod(shape)
    if dtype not in DTYPE_BYTES:
        return StoredValue("numpy", dtype, shape, blob_offset=data.offset, byte_count=data.length)
    if count * DTYPE_BYTES[dtype] != data.length:
        refuse(
            "an array does not have the bytes of its shape",
            where,
            f"{count * DTYPE_BYTES[dtype]} bytes",
            f"{data.length} bytes",
        )
    stride = tuple(reversed(row_major(shape[::-1]))) if is_column_major else row_major(shape)
    return StoredValue("numpy", dtype, shape, stride, 0, count, data.offset, byte_count=data.length)


def _numpy_dtype(node: Any, where: str) -> str:
    """A dtype's name: torch's for those that both have, otherwise numpy's own code with its byte order, as in `>i4`."""
    if type(node) is Call and type(node.callee) is Global and node.callee.name == "dtype" and len(node.arguments) == 3:
        code, state = node.arguments[0], node.state
        if type(code) is str and (not node.has_state or (type(state) is tuple and len(state) > 1)):
            order = state[1] if node.has_state else "|"
            known = _NUMPY_DTYPES.get(code) if order in ("<", "|") else None
            return known or f"{order}{code}"[:80]
    raise defect("a numpy dtype is not of the known form", where, actual=kind_of(node))


def _integers(node: Any, what: str, where: str) -> tuple[int, ...]:
    """A tuple or list of whole numbers, also as torch.Size."""
    values = node
    if type(node) is Call and node.is_plain_call_of("torch", "Size") and len(node.arguments) == 1:
        values = node.arguments[0]
    if type(values) not in (tuple, list) or not {int}.issuperset(map(type, values)):
        refuse(f"{what} is no sequence of whole numbers", where, actual=kind_of(node))
    if len(values) > _MOST_DIMENSIONS or not all(0 <= value <= _MOST for value in values):
        refuse(f"{what} is negative or absurd", where, f"at most {_MOST_DIMENSIONS} numbers from 0 to {_MOST}")
    return tuple(values)


def _is_bare_name(name: str, limits: Limits) -> bool:
    return (
        0 < len(name.encode("utf-8", "surrogatepass")) <= limits.name_bytes
        and name.isprintable()
        and "/" not in name
        and name not in (".", "..")
    )
