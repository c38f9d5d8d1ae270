"""Storage units as a real TransferQueue writes them: by the standard pickler, with frames, a full memo and addresses as storage keys.

Our own writer (`formats.tq_writer`) leaves memo entries and frames out, which is legal and shorter; what must be quick and right is
the form that lies on people's disks. torch is not needed: two functions with its names stand in for it while the pickle is written.
"""

import pickle
import random
import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ckptctl.domain.dataplane import DTYPE_BYTES, STAGED_FIELDS, TensorValue
from ckptctl.formats.torch_stream import encode_stream
from ckptctl.formats.tq_values import row_major


def _function(module: str, name: str) -> Any:
    def stand_in(*_: Any) -> None:
        """Is only named, never called."""

    stand_in.__module__, stand_in.__qualname__, stand_in.__name__ = module, name, name
    return stand_in


_REBUILD, _LOAD = _function("torch._utils", "_rebuild_tensor_v2"), _function("torch.storage", "_load_from_bytes")


class _Storage:
    def __init__(self, stream: bytes) -> None:
        self.stream = stream

    def __reduce__(self) -> Any:
        return _LOAD, (self.stream,)


class _Tensor:
    def __init__(self, value: TensorValue, key: str) -> None:
        self.value, self.key = value, key

    def __reduce__(self) -> Any:
        dtype, shape, data = self.value
        # torch makes new tuples each time; one that occurs twice would be a recalled one
        sizes, strides = tuple(iter(shape)), tuple(iter(row_major(shape)))
        parts = (_Storage(encode_stream(dtype, data, self.key)), 0, sizes, strides)
        return _REBUILD, (*parts, False, OrderedDict())


@dataclass
class Made:
    """An object of TransferQueue's controller: the name of its class, and its attributes."""

    kind: str
    state: Mapping[str, Any]


_CONTROLLER = "transfer_queue.controller"
_CLASSES: dict[str, type] = {
    kind: type(kind, (), {"__module__": _CONTROLLER}) for kind in ("DataPartitionStatus", "FieldMeta")
}


def a_queue_unit(
    unit_id: str, rows: Mapping[str, Mapping[int, TensorValue]], active_keys: Iterable[int], *, seed: int = 1
) -> bytes:
    """`su_<position>_<unit_id>.pkl`; addresses are drawn from `seed`."""
    tree = {
        "storage_unit_id": unit_id,
        "storage_unit_size": None,
        "field_data": rows,
        "active_keys": set(active_keys),
    }
    return pickled(tree, seed=seed)


def pickled(tree: Any, *, seed: int = 1) -> bytes:
    """Any tree of mappings by the standard pickler; a TensorValue in it becomes a tensor, a Made an object."""
    addresses = random.Random(seed)

    def prepared(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {key: prepared(value) for key, value in node.items()}
        if isinstance(node, Made):
            made = _CLASSES[node.kind]()
            made.__dict__.update({key: prepared(value) for key, value in node.state.items()})
            return made
        if isinstance(node, TensorValue):
            return _Tensor(node, str(addresses.randrange(94 * 10**12, 95 * 10**12)))
        return node

    made = prepared(tree)
    modules = {name: ModuleType(name) for name in ("torch", "torch._utils", "torch.storage", "transfer_queue")}
    modules[_CONTROLLER] = ModuleType(_CONTROLLER)
    vars(modules[_CONTROLLER]).update(_CLASSES)
    modules["torch._utils"]._rebuild_tensor_v2 = _REBUILD  # type: ignore[attr-defined]
    modules["torch.storage"]._load_from_bytes = _LOAD  # type: ignore[attr-defined]
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        return pickle.dumps(made, 5)
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def staged_columns(indexes: Iterable[int], tokens: int) -> dict[str, dict[int, TensorValue]]:
    """The 24 fields of staged rows with these indexes; zeros, and texts of several lengths."""
    columns: dict[str, dict[int, TensorValue]] = {}
    for field, (dtype, rank) in STAGED_FIELDS.items():
        columns[field] = {}
        for index in indexes:
            shape = (_length(field, index, tokens),) if rank else ()
            count = shape[0] if rank else 1
            columns[field][index] = TensorValue(dtype, shape, bytes(count * DTYPE_BYTES[dtype]))
    return columns


def _length(field: str, index: int, tokens: int) -> int:
    if field.endswith("_delta"):
        return tokens
    return 5 + len(str(index)) if field.endswith(("_utf8", "_json")) else 32
