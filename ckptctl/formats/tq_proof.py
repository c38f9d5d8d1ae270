"""The proof that a part of TransferQueue's pickles builds plain data and tensors, whatever shape it has.

For what has no fixed structure: the sampler's state, tags, values that are no rows. The opcode machine has let only known names
through by then, but one of them takes a byte string that is a pickle of its own: in a tensor's stream a name is not seen from
outside, and torch reads it with pickle.

1. a tensor stream stands in a tensor, and its whole head is of the one known form;
2. every other call makes a mapping, a size, an array or one of the records that the caller names.
"""

from __future__ import annotations

from typing import Any

from ckptctl.domain.source import ByteSource
from ckptctl.formats.pickle_machine import Call, Global
from ckptctl.formats.tq_nodes import PLAIN_TYPES, defect
from ckptctl.formats.tq_values import NUMPY_GLOBALS, classify_value

STREAM = Global("torch.storage", "_load_from_bytes")
_TENSORS = frozenset({Global("torch._utils", f"_rebuild_tensor_v{version}") for version in (2, 3)})
_MAKERS = frozenset({Global("collections", "OrderedDict"), Global("torch", "Size"), Global("numpy", "dtype")})
_ARRAYS = frozenset(Global(module, name) for module, name in NUMPY_GLOBALS if module != "numpy")


def prove_plain(
    node: Any, source: ByteSource, where: str, *, records: frozenset[tuple[str, str]] = frozenset()
) -> None:
    """Refuse a node, at any depth, that would make anything but data. `records`: classes whose objects are data.

    Raises:
        DefectError: placed at `where`.
    """
    pending: list[Any] = [node]
    while pending:
        found = pending.pop()
        kind = type(found)
        if kind is Call:
            pending += _inside(found, source, where, records)
        elif kind is dict:
            pending += found.values()  # keys are primitives: the machine takes no others
        elif kind in (list, tuple) and not PLAIN_TYPES.issuperset(map(type, found)):
            pending += found


def _inside(call: Call, source: ByteSource, where: str, records: frozenset[tuple[str, str]]) -> list[Any]:
    """What of a call is still to be proved. Raises DefectError."""
    callee = call.callee
    inner = [*call.arguments, call.state, *(call.appended or ()), *(call.entries or {}).values()]
    if callee in _TENSORS and not call.is_new:
        classify_value(call, source, where)  # 1
        return inner[1:]
    if callee in _ARRAYS and not call.is_new:
        classify_value(call, source, where)
        return inner
    is_record = call.is_new and type(callee) is Global and (callee.module, callee.name) in records
    if is_record or (callee in _MAKERS and not call.is_new):
        return inner  # 2
    what = (
        "a tensor stream outside a tensor, which would be unpickled with it"
        if callee == STREAM
        else "a call that makes no plain data"
    )
    raise defect(f"it holds {what}", where, "plain data and tensors", str(callee)[:200])
