"""A TransferQueue checkpoint without its tensor bytes: metadata, unit list, controller, units (data-plane sections 1 to 5).

Decides: that each file has the structure that TransferQueue writes, and that every number has its type and range. Leaves to
others: how values are recognised (`tq_values`), whether the places agree (`domain.dataplane` and the INV rules), the binding in
`user_metadata`, and the tensors' bytes (`read_tensor`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ckptctl.domain.binding import DataPlaneMetadata, UnitInfo
from ckptctl.domain.dataplane import ControllerState, FieldMeta, Partition, StorageUnit, StoredValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.safe_text import shown
from ckptctl.domain.source import ByteSource
from ckptctl.formats.canonical_json import decode_document, load_json
from ckptctl.formats.pickle_machine import ByteSpan, Call, Global, read_pickle
from ckptctl.formats.tensor_view import read_tensor
from ckptctl.formats.tq_columns import IndexSets, ShapeColumns, TensorColumns
from ckptctl.formats.tq_nodes import (
    PLAIN_TYPES,
    demand_by_index,
    demand_index,
    demand_indexes,
    demand_instance,
    demand_mapping,
    demand_name_indexes,
    demand_named,
    demand_record,
    demand_shape,
    demand_text,
    demand_whole,
    kind_of,
    refuse,
)
from ckptctl.formats.tq_proof import prove_plain
from ckptctl.formats.tq_runs import TensorRuns
from ckptctl.formats.tq_values import (
    DTYPE_GLOBALS,
    NUMPY_GLOBALS,
    OPAQUE_TENSOR_GLOBALS,
    TENSOR_GLOBALS,
    classify_value,
    decode_offloaded,
    decode_tensor,
)

__all__ = ["decode_controller_state", "decode_metadata", "decode_storage_unit", "decode_unit_info", "read_tensor"]

SSD_FORMAT = "transfer_queue_hybrid_storage_v1"
STATUS_CLASS = ("transfer_queue.controller", "DataPartitionStatus")
FIELD_CLASS = ("transfer_queue.controller", "FieldMeta")
_CONTROLLER_GLOBALS = frozenset({STATUS_CLASS, FIELD_CLASS}) | TENSOR_GLOBALS | DTYPE_GLOBALS
_UNIT_GLOBALS = TENSOR_GLOBALS | OPAQUE_TENSOR_GLOBALS | NUMPY_GLOBALS

_CONTROLLER_KEYS = frozenset({"controller_id", "partitions", "index_manager", "sampler"})
_INDEX_KEYS = frozenset({"partition_to_indexes", "reusable_indexes", "global_index_counter", "allocated_indexes"})
_PARTITION_KEYS = frozenset(
    {
        "partition_id",
        "created_at",
        "production_status",
        "consumption_status",
        "global_indexes",
        "pre_allocated_global_indexes",
        "field_name_mapping",
        "field_metadata",
        "field_custom_backend_meta",
        "custom_meta",
        "keys_mapping",
        "revert_keys_mapping",
    }
)
_FIELD_KEYS = frozenset({"global_indexes", "dtype", "shape", "is_nested", "is_non_tensor", "per_sample_shapes"})
_UNIT_KEYS = frozenset({"storage_unit_id", "storage_unit_size", "field_data", "active_keys"})
_SSD_KEYS = frozenset({"format", "ssd_index"})


def decode_metadata(data: bytes, limits: Limits) -> DataPlaneMetadata:
    """Read `metadata.json`. Raises DefectError."""
    return decode_document(data, DataPlaneMetadata, limits)


def decode_unit_info(data: bytes, limits: Limits) -> tuple[UnitInfo, ...]:
    """Read `storage_unit_info.json`; whether the positions are 0 to n-1 is a rule. Raises DefectError."""
    items = load_json(data, limits)
    if type(items) is not list:
        refuse("the list of storage units is no list", "", "a list", type(items).__name__)
    found = []
    for number, item in enumerate(items):
        place = f"[{number}]"
        fields = demand_record(item, frozenset({"position", "storage_unit_id"}), place)
        found.append(
            UnitInfo(
                position=demand_index(fields["position"], f"{place}.position"),
                storage_unit_id=demand_text(fields["storage_unit_id"], f"{place}.storage_unit_id"),
            )
        )
    return tuple(found)


def decode_controller_state(source: ByteSource, limits: Limits) -> ControllerState:
    """Read `controller_state.pkl`; production and consumption bits become bytes, the sampler's state is not kept.

    Raises:
        DefectError: placed by offset while the pickle is read, by attribute afterwards.
    """
    try:
        return read_controller(source, limits, has_short_lists=True)
    except DefectError as error:
        if error.is_unsupported:
            raise
        return read_controller(source, limits, has_short_lists=False)  # says exactly what is wrong, and where


def read_controller(source: ByteSource, limits: Limits, *, has_short_lists: bool) -> ControllerState:
    """As `decode_controller_state`, in one reading. Raises DefectError, which is exact only without short lists."""
    kept = _Kept(IndexSets(), ShapeColumns())
    tree = read_pickle(
        source,
        allowed=_CONTROLLER_GLOBALS,
        limits=limits,
        keep=kept.keep if has_short_lists else kept.sets.keep,
        has_short_lists=has_short_lists,
    )
    root = demand_record(tree, _CONTROLLER_KEYS, "")
    manager = demand_record(root["index_manager"], _INDEX_KEYS, "index_manager")
    prove_plain(demand_mapping(root["sampler"], "sampler"), source, "sampler")
    demand_indexes(manager["allocated_indexes"], "index_manager.allocated_indexes", kept.sets)
    owned = demand_named(manager["partition_to_indexes"], "index_manager.partition_to_indexes")
    reusable = manager["reusable_indexes"]
    if type(reusable) is not list:
        refuse("the reusable indexes are no list", "index_manager.reusable_indexes", "a list", kind_of(reusable))
    bits = _StatusBits(source)
    state = ControllerState(
        controller_id=demand_text(root["controller_id"], "controller_id"),
        partitions={
            name: _partition(node, bits, kept, source, f"partitions[{name!r:.80}]")
            for name, node in demand_named(root["partitions"], "partitions").items()
        },
        partition_indexes={
            name: demand_indexes(node, f"index_manager.partition_to_indexes[{name!r:.80}]", kept.sets)
            for name, node in owned.items()
        },
        reusable_indexes=tuple(demand_whole(reusable, "index_manager.reusable_indexes")),
        next_index=demand_index(manager["global_index_counter"], "index_manager.global_index_counter"),
    )
    if not kept.shapes.are_claimed:
        refuse("shapes stand where none belong", "")
    return state


def decode_storage_unit(source: ByteSource, file_name: str, limits: Limits) -> StorageUnit:
    """Read `su_<position>_<id>.pkl` up to the head of each tensor; offloaded rows are included, their blobs are not looked at.

    Raises:
        DefectError: placed by offset while the pickle is read, by field and index afterwards.
    """
    try:
        return read_unit(source, file_name, limits, TensorRuns())
    except DefectError as error:
        if (
            error.is_unsupported
        ):  # another TransferQueue's, or no room in memory for it: nothing that reading again would help
            raise
        return read_unit(source, file_name, limits, None)  # what is wrong, and where, the opcode machine alone says


def read_unit(source: ByteSource, file_name: str, limits: Limits, shortcut: TensorRuns | None) -> StorageUnit:
    """As `decode_storage_unit`, in one reading. Raises DefectError, which is exact only without a shortcut."""
    columns, sets = TensorColumns(), IndexSets()
    pickled = read_pickle(
        source,
        allowed=_UNIT_GLOBALS,
        limits=limits,
        shortcut=shortcut,
        keep=lambda target, values: sets.keep(target, columns.keep(target, values)),
    )
    tree = demand_mapping(pickled, "")
    has_ssd = "format" in tree
    if has_ssd and tree["format"] != SSD_FORMAT:
        refuse(
            "the storage unit has a format ckptctl does not know",
            "format",
            SSD_FORMAT,
            shown(tree["format"]),
            is_unsupported=True,
        )
    root = demand_record(tree, _UNIT_KEYS | (_SSD_KEYS if has_ssd else frozenset()), "")
    if root["storage_unit_size"] is not None:
        demand_index(root["storage_unit_size"], "storage_unit_size")
    rows: dict[str, Mapping[int, StoredValue]] = {
        field: _column(nodes, columns, source, f"field_data[{field!r:.80}]")
        for field, nodes in demand_named(root["field_data"], "field_data").items()
    }
    if not columns.are_claimed:
        refuse("tensors stand where none belong", "")
    for field, entries in demand_named(root.get("ssd_index", {}), "ssd_index").items():
        place, column = f"ssd_index[{field!r:.80}]", rows.get(field, {})
        blobs: dict[int, StoredValue] = {}
        for index, entry in demand_by_index(entries, place).items():
            if index in column:
                refuse("a row is stored both in the unit and in a blob", f"{place}[{index}]")
            blobs[index] = decode_offloaded(entry, f"{place}[{index}]", limits)
        rows[field] = {**column, **blobs} if column else blobs
    return StorageUnit(
        file_name=file_name,
        unit_id=demand_text(root["storage_unit_id"], "storage_unit_id"),
        active_keys=demand_indexes(root["active_keys"], "active_keys", sets),
        rows=rows,
        has_ssd=has_ssd,
    )


def _column(nodes: Any, columns: TensorColumns, source: ByteSource, place: str) -> Mapping[int, StoredValue]:
    """The values of one field: those that were kept as columns, and what else there is."""
    values = demand_by_index(nodes, place)
    odd = {index: node for index, node in values.items() if type(node) is not StoredValue}
    for index, node in odd.items():
        value = values[index] = classify_value(node, source, f"{place}[{index}]")
        if value.kind == "other" or (
            value.kind == "numpy" and not value.byte_count
        ):  # objects: there may be anything in them
            prove_plain(node, source, f"{place}[{index}]")
    more = {index: value for index, value in values.items() if value.kind == "tensor"}
    try:
        column = columns.column_of(nodes, more)
    except KeyError:
        refuse("a mapping has a key twice", place)
    if column is None or len(more) == len(values):
        return values if column is None else column
    whole = {**column, **values}
    if len(whole) < len(column) + len(values) - len(more):
        refuse("a mapping has a key twice", place)
    return whole


def _partition(node: Any, bits: _StatusBits, kept: _Kept, source: ByteSource, place: str) -> Partition:
    fields = demand_instance(node, STATUS_CLASS, _PARTITION_KEYS, place)
    created = fields["created_at"]
    if type(created) not in (float, int):
        refuse("the creation time is no number", f"{place}.created_at", "a number", kind_of(created))
    backend = demand_mapping(fields["field_custom_backend_meta"], f"{place}.field_custom_backend_meta")
    prove_plain(backend, source, f"{place}.field_custom_backend_meta")
    shape, production = bits.read(fields["production_status"], 2, f"{place}.production_status")
    consumption = demand_named(fields["consumption_status"], f"{place}.consumption_status")
    metas = demand_named(fields["field_metadata"], f"{place}.field_metadata")
    reverse = demand_by_index(fields["revert_keys_mapping"], f"{place}.revert_keys_mapping")
    return Partition(
        partition_id=demand_text(fields["partition_id"], f"{place}.partition_id"),
        keys=demand_name_indexes(fields["keys_mapping"], f"{place}.keys_mapping"),
        reverse_keys={
            index: demand_text(key, f"{place}.revert_keys_mapping[{index}]") for index, key in reverse.items()
        },
        columns=demand_name_indexes(fields["field_name_mapping"], f"{place}.field_name_mapping"),
        global_indexes=demand_indexes(fields["global_indexes"], f"{place}.global_indexes", kept.sets),
        pre_allocated=demand_indexes(
            fields["pre_allocated_global_indexes"], f"{place}.pre_allocated_global_indexes", kept.sets
        ),
        field_metas={
            name: _field_meta(meta, kept, f"{place}.field_metadata[{name!r:.80}]") for name, meta in metas.items()
        },
        tags=_tags(fields["custom_meta"], source, f"{place}.custom_meta"),
        production_rows=shape[0],
        production_columns=shape[1],
        production=production,
        consumed={
            task: bits.read(status, 1, f"{place}.consumption_status[{task!r:.80}]")[1]
            for task, status in consumption.items()
        },
    )


def _field_meta(node: Any, kept: _Kept, place: str) -> FieldMeta:
    fields = demand_instance(node, FIELD_CLASS, _FIELD_KEYS, place)
    dtype = fields["dtype"]
    if dtype is not None and (type(dtype) is not Global or (dtype.module, dtype.name) not in DTYPE_GLOBALS):
        refuse("the dtype of a field is no torch dtype", f"{place}.dtype", "torch.<dtype> or None", kind_of(dtype))
    for name in ("is_nested", "is_non_tensor"):
        if type(fields[name]) not in (bool, type(None)):
            refuse("a mark of a field is no bool", f"{place}.{name}", "bool or None", kind_of(fields[name]))
    shapes = _sample_shapes(fields["per_sample_shapes"], kept.shapes, f"{place}.per_sample_shapes")
    return FieldMeta(
        global_indexes=demand_indexes(fields["global_indexes"], f"{place}.global_indexes", kept.sets),
        dtype=None if dtype is None else dtype.name,
        shape=None if fields["shape"] is None else demand_shape(fields["shape"], f"{place}.shape"),
        is_nested=fields["is_nested"],
        is_non_tensor=fields["is_non_tensor"],
        sample_shapes=shapes,
    )


def _sample_shapes(node: Any, kept: ShapeColumns, place: str) -> Mapping[int, tuple[int, ...]]:
    """The shapes of a field's rows: those that were kept as a column, or all of them."""
    shapes = demand_by_index(node, place)
    try:
        column = kept.column_of(node)
    except KeyError:
        refuse("a mapping has a key twice", place)
    rest = {index: demand_shape(shape, f"{place}[{index}]") for index, shape in shapes.items() if shape is not None}
    if column is None or not shapes:
        return rest if column is None else column
    if not column.keys().isdisjoint(shapes):
        refuse("a mapping has a key twice", place)
    return {**column, **rest}


class _Kept(NamedTuple):
    """What was kept apart while a controller was read."""

    sets: IndexSets
    shapes: ShapeColumns

    def keep(self, target: Any, values: list[Any]) -> list[Any]:
        """As `read_pickle` asks."""
        return self.sets.keep(target, self.shapes.keep(target, values))


class _StatusBits:
    """Reads the bit tensors of one file.

    Together they are no longer than the file: many views of one storage would add up otherwise.
    """

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._left_bytes = source.size_bytes

    def read(self, node: Any, rank: int, place: str) -> tuple[tuple[int, ...], bytes]:
        """Shape and bytes of an int8 tensor of zeros and ones."""
        value = decode_tensor(node, self._source, place)
        if value.dtype != "int8" or len(value.shape) != rank:
            found = f"{value.dtype}, rank {len(value.shape)}"
            refuse("status bits are of another type", place, f"int8, rank {rank}", found)
        self._left_bytes -= math.prod(value.shape)
        if self._left_bytes < 0:
            refuse("status bits are longer than the file", place, f"at most {self._source.size_bytes} bytes")
        return value.shape, read_tensor(self._source, value).data


def _tags(node: Any, source: ByteSource, place: str) -> dict[int, Mapping[str, object]]:
    found: dict[int, Mapping[str, object]] = {}
    for index, tag in demand_by_index(node, place).items():
        values = demand_named(tag, f"{place}[{index}]")
        if PLAIN_TYPES.issuperset(map(type, values.values())):
            found[index] = values
            continue
        prove_plain(values, source, f"{place}[{index}]")
        found[index] = {key: _plain(value) for key, value in values.items()}
    return found


def _plain(value: Any) -> object:
    """A tag's value with nodes made values; what is no plain data is shown by its name, since tags may be anything."""
    if type(value) in (list, tuple):
        return [_plain(item) for item in value]
    if type(value) is dict:
        return {key: _plain(item) for key, item in value.items()}
    if type(value) is Call and value.is_new is False and value.callee == Global("collections", "OrderedDict"):
        return _plain(value.entries or {})
    if type(value) is ByteSpan:
        return value.head if len(value.head) == value.length else f"<{value.length} bytes>"
    return value if type(value) in PLAIN_TYPES else f"<{kind_of(value)}>"
