"""A numpy scalar as a pickle holds it: `scalar(dtype, bytes)`, with the bytes as latin-1 text in protocol 2.

Decides: the int or float it stands for, as the replay digest sees it (integral numbers are ints, real ones floats; a numpy bool
is neither and has no canonical form). Leaves to others: where one may stand (`replay_file`). Other numpy values are not read.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from ckptctl.formats.pickle_machine import ByteSpan, Call, Global

NUMPY_SCALAR_GLOBALS = frozenset(
    {
        ("numpy._core.multiarray", "scalar"),
        ("numpy.core.multiarray", "scalar"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    }
)

_FORMATS = {
    "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q", "f2": "e", "f4": "f", "f8": "d",
}  # fmt: skip
_DTYPE_PARTS = frozenset({str, int, bool, type(None)})
_ORDERS = {"<": "<", ">": ">", "|": "<"}


def read_numpy_scalar(call: Call) -> int | float:
    """The number that a called object is.

    Raises:
        ValueError: with the clause that says why it is none.
    """
    callee = call.callee
    is_scalar = type(callee) is Global and callee.name == "scalar" and call.is_plain_call_of(callee.module, "scalar")
    if not is_scalar or len(call.arguments) != 2:
        raise ValueError(f"is an object made by `{callee}`, where only plain values and numpy numbers are legal")
    form = _struct_format(call.arguments[0])
    data = _raw_bytes(call.arguments[1])
    if len(data) != struct.calcsize(form):
        raise ValueError("is a numpy number of the wrong size")
    number: int | float = struct.unpack(form, data)[0]
    if not math.isfinite(number):
        raise ValueError("is a number that is not finite")
    return number


def _struct_format(dtype: Any) -> str:
    """The struct format of a dtype: `numpy.dtype(code, False, True)` with the state (version, byte order, ...)."""
    if type(dtype) is not Call or dtype.is_new or dtype.callee != Global("numpy", "dtype") or len(dtype.arguments) != 3:
        raise ValueError("is a numpy value without a dtype")
    code, state = dtype.arguments[0], dtype.state if type(dtype.state) is tuple and len(dtype.state) == 8 else ()
    order = state[1] if state else None
    if not _DTYPE_PARTS.issuperset(map(type, (*dtype.arguments, *state))):
        raise ValueError("is a numpy value whose dtype has parts")
    if type(code) is not str or code not in _FORMATS or type(order) is not str or order not in _ORDERS:
        raise ValueError("is a numpy value that is neither an integer nor a real number")
    return _ORDERS[order] + _FORMATS[code]


def _raw_bytes(node: Any) -> bytes:
    if type(node) is ByteSpan and len(node.head) == node.length:
        return node.head
    if type(node) is Call and node.is_plain_call_of("_codecs", "encode") and len(node.arguments) == 2:
        text, encoding = node.arguments
        if type(text) is str and encoding == "latin1" and len(text) <= 16 and max(map(ord, text), default=0) < 256:
            return text.encode("latin1")
    raise ValueError("is a numpy value without its bytes")
