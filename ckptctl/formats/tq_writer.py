"""Writes the files of a TransferQueue checkpoint as TransferQueue itself would, without torch (data-plane sections 1 to 5).

Each tensor gets a storage of its own that holds exactly its elements. Equal input gives equal bytes: the storage key is always
`0`, and sets are sorted. Leaves to others: which index a row gets and in which unit it lies, the order in which files are
written, and whether the state is consistent (the INV rules).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ckptctl.domain.binding import UnitInfo
from ckptctl.domain.dataplane import DTYPE_BYTES, ControllerState, FieldMeta, Partition, TensorValue
from ckptctl.formats.pickle_machine import Call, Global
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.torch_stream import encode_stream
from ckptctl.formats.tq_checkpoint import FIELD_CLASS, STATUS_CLASS
from ckptctl.formats.tq_values import row_major

_REBUILD = Global("torch._utils", "_rebuild_tensor_v2")
_LOAD = Global("torch.storage", "_load_from_bytes")
_HOOKS = Call(Global("collections", "OrderedDict"), ())


def encode_metadata(user_metadata: Mapping[str, Any] | None, *, storage_saved: bool = True) -> bytes:
    """`metadata.json`."""
    content = {"storage_saved": storage_saved, "user_metadata": dict(user_metadata or {})}
    return json.dumps(content, indent=2, allow_nan=False).encode()


def encode_unit_info(units: Iterable[UnitInfo | Mapping[str, Any]]) -> bytes:
    """`storage_unit_info.json`."""
    return json.dumps([unit.model_dump() if isinstance(unit, UnitInfo) else dict(unit) for unit in units]).encode()


def field_meta(values: Mapping[int, TensorValue]) -> FieldMeta:
    """What TransferQueue's controller would believe of a field that holds these rows by global index.

    Rows of several shapes make the field nested; scalars count as `(1,)`.

    Raises:
        ValueError: no rows, or rows of several dtypes, which TransferQueue refuses.
    """
    dtypes = {value.dtype for value in values.values()}
    if len(dtypes) != 1:
        raise ValueError(f"a field has rows of one dtype, not of {len(dtypes)}")
    shapes = {index: value.shape or (1,) for index, value in values.items()}
    is_nested = len(set(shapes.values())) > 1
    return FieldMeta(
        global_indexes=frozenset(values),
        dtype=dtypes.pop(),
        shape=None if is_nested else next(iter(shapes.values())),
        is_nested=is_nested,
        is_non_tensor=False,
        sample_shapes=shapes if is_nested else {},
    )


def encode_controller_state(state: ControllerState, *, created_at: float = 0.0) -> bytes:
    """`controller_state.pkl`, the sampler without state. A partition without rows or columns gets the one that a new one has.

    Raises:
        ValueError: the production bits do not fit their shape, or a tag has no form in the pickle.
    """
    owned = state.partition_indexes
    tree = {
        "controller_id": state.controller_id,
        "partitions": {name: _partition(partition, created_at) for name, partition in state.partitions.items()},
        "index_manager": {
            "partition_to_indexes": {name: set(indexes) for name, indexes in owned.items()},
            "reusable_indexes": list(state.reusable_indexes),
            "global_index_counter": state.next_index,
            "allocated_indexes": set().union(*owned.values()),
        },
        "sampler": {"_states": {}},
    }
    return write_pickle(tree, 5)


def encode_storage_unit(
    unit_id: str,
    unit_size: int | None,
    rows: Mapping[str, Mapping[int, TensorValue]],
    active_keys: Iterable[int],
) -> bytes:
    """`su_<position>_<unit_id>.pkl`; `rows` by field and global index.

    Raises:
        ValueError: a tensor has another dtype than streams carry, or does not have the bytes of its shape.
    """
    tree = {
        "storage_unit_id": unit_id,
        "storage_unit_size": unit_size,
        "field_data": {
            field: {index: tensor_node(value) for index, value in values.items()} for field, values in rows.items()
        },
        "active_keys": set(active_keys),
    }
    return write_pickle(tree, 5)


def tensor_node(value: TensorValue) -> Call:
    """The nodes of one pickled tensor. Raises ValueError."""
    if len(value.data) != math.prod(value.shape) * DTYPE_BYTES.get(value.dtype, 0):
        raise ValueError(f"a {value.dtype} tensor of shape {value.shape} does not have {len(value.data)} bytes")
    storage = Call(_LOAD, (encode_stream(value.dtype, value.data),))
    return Call(_REBUILD, (storage, 0, value.shape, row_major(value.shape), False, _HOOKS))


def _partition(partition: Partition, created_at: float) -> Call:
    height, width = partition.production_rows, partition.production_columns
    if len(partition.production) != height * width:
        raise ValueError(f"the production bits of partition {partition.partition_id} do not fit their shape")
    shape = (max(height, 1), max(width, 1))
    production = partition.production.ljust(math.prod(shape), b"\0")
    state = {
        "partition_id": partition.partition_id,
        "created_at": created_at,
        "production_status": tensor_node(TensorValue("int8", shape, production)),
        "consumption_status": {
            task: tensor_node(TensorValue("int8", (max(shape[0], len(bits)),), bits.ljust(shape[0], b"\0")))
            for task, bits in partition.consumed.items()
        },
        "global_indexes": set(partition.global_indexes),
        "pre_allocated_global_indexes": set(partition.pre_allocated),
        "field_name_mapping": dict(partition.columns),
        "field_metadata": {name: _field_meta(meta) for name, meta in partition.field_metas.items()},
        "field_custom_backend_meta": {},
        "custom_meta": {index: dict(tags) for index, tags in partition.tags.items()},
        "keys_mapping": dict(partition.keys),
        "revert_keys_mapping": dict(partition.reverse_keys),
    }
    return Call(Global(*STATUS_CLASS), (), is_new=True, state=state, has_state=True)


def _field_meta(meta: FieldMeta) -> Call:
    state = {
        "global_indexes": set(meta.global_indexes),
        "dtype": None if meta.dtype is None else Global("torch", meta.dtype),
        "shape": None if meta.shape is None else list(meta.shape),
        "is_nested": meta.is_nested,
        "is_non_tensor": meta.is_non_tensor,
        "per_sample_shapes": {index: list(shape) for index, shape in meta.sample_shapes.items()},
    }
    return Call(Global(*FIELD_CLASS), (), is_new=True, state=state, has_state=True)
