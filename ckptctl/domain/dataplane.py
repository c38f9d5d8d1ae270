"""The data plane as read from disk, without tensor bytes, and the decision whether a reference (partition, key, field) holds.

A reference is decided by three places that can disagree: key map, production bit, storage row.
Source: data-plane sections 2, 3 and 6.
Identity and digest of staged rows need tensor bytes and are the business of the full level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

STAGED_FIELDS: dict[str, tuple[str, int]] = {
    "token_ids_delta": ("int64", 1),
    "token_mask_delta": ("float32", 1),
    "generation_logprobs_delta": ("float32", 1),
    "schema_version": ("int64", 0),
    "digest_version": ("int64", 0),
    "extras_digest_version": ("int64", 0),
    "rollout_id_utf8": ("uint8", 1),
    "model_call_id_utf8": ("uint8", 1),
    "parent_call_id_utf8": ("uint8", 1),
    "parent_call_id_present": ("bool", 0),
    "capture_mode": ("int64", 0),
    "prev_len": ("int64", 0),
    "delta_len": ("int64", 0),
    "cum_len": ("int64", 0),
    "weight_version": ("int64", 0),
    "digest_bytes": ("uint8", 1),
    "extras_digest_bytes": ("uint8", 1),
    "chain_hash_bytes": ("uint8", 1),
    "chain_hash_present": ("bool", 0),
    "cumulative_hash_bytes": ("uint8", 1),
    "cumulative_hash_present": ("bool", 0),
    "extras_metadata_json": ("uint8", 1),
    "routed_experts_encoding": ("int64", 0),
    "routed_len": ("int64", 0),
}
"""The 24 required fields of a staged row: dtype and rank (data-plane section 9.1)."""

ROUTED_EXPERTS_FIELD = "routed_experts"

ValueKind = Literal["tensor", "numpy", "bytes", "text", "other", "opaque"]


class StoredValue(NamedTuple):
    """One value of a storage unit. `blob_offset` is the file offset of the first raw byte of the tensor's storage
    (of the SSD blob file when `blob_name` is set); `element_offset`, `shape` and `stride` (in elements) select the view.
    """

    kind: ValueKind
    dtype: str = ""
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    element_offset: int = 0
    element_count: int = 0
    blob_offset: int = 0
    blob_name: str | None = None
    byte_count: int = 0


class TensorValue(NamedTuple):
    """A tensor with its bytes (contiguous, little-endian), as writers take it and full-level readers give it."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


DTYPE_BYTES: dict[str, int] = {
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "complex64": 8,
}
"""Element sizes of the dtypes that legacy torch streams carry (data-plane section 4)."""


@dataclass(frozen=True, slots=True)
class FieldMeta:
    """What the controller believes of a field; trust the stored value instead.

    A scalar column has shape `(1,)` here; a ragged one has `sample_shapes` by index instead.
    """

    global_indexes: frozenset[int]
    dtype: str | None
    shape: tuple[int, ...] | None
    is_nested: bool | None = False
    is_non_tensor: bool | None = False
    sample_shapes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of the controller state. `production` is row-major int8: row = global index, column = field column."""

    partition_id: str
    keys: Mapping[str, int]
    reverse_keys: Mapping[int, str]
    columns: Mapping[str, int]
    global_indexes: frozenset[int]
    pre_allocated: frozenset[int]
    field_metas: Mapping[str, FieldMeta]
    tags: Mapping[int, Mapping[str, object]]
    production_rows: int
    production_columns: int
    production: bytes
    consumed: Mapping[str, bytes] = field(default_factory=dict)

    def is_produced(self, field_name: str, index: int) -> bool:
        """Whether the controller says that `field_name` of row `index` was produced."""
        column = self.columns.get(field_name)
        if column is None or not 0 <= index < self.production_rows or not 0 <= column < self.production_columns:
            return False
        return self.production[index * self.production_columns + column] == 1


@dataclass(frozen=True, slots=True)
class ControllerState:
    """`controller_state.pkl`. `partitions` is keyed by the dict key, which rule INV044 compares with `partition_id`."""

    controller_id: str
    partitions: Mapping[str, Partition]
    partition_indexes: Mapping[str, frozenset[int]]
    reusable_indexes: tuple[int, ...]
    next_index: int


@dataclass(frozen=True, slots=True)
class StorageUnit:
    """One `su_<position>_<id>.pkl`. `rows[field][index]`; SSD rows are included, with `blob_name` set."""

    file_name: str
    unit_id: str
    active_keys: frozenset[int]
    rows: Mapping[str, Mapping[int, StoredValue]]
    has_ssd: bool = False


Verdict = Literal["holds", "lost", "unproduced", "dangling", "unchecked"]


@dataclass(frozen=True, slots=True)
class Resolution:
    """The outcome of one reference: what to say, and the value where there is one."""

    verdict: Verdict
    unit_position: int | None = None
    value: StoredValue | None = None


@dataclass(frozen=True, slots=True)
class DataPlane:
    """Controller and units together; `units` in the order of their positions, None where one cannot be read.

    `blob_sizes` has the size of every SSD blob file found, by (unit file name, blob name).
    """

    controller: ControllerState
    units: tuple[StorageUnit | None, ...]
    blob_sizes: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def resolve(self, partition_id: str, key: str, field_name: str) -> Resolution:
        """Decide one reference. `unchecked` when its unit could not be read or the value is opaque."""
        partition = self.controller.partitions.get(partition_id)
        index = None if partition is None else partition.keys.get(key)
        if partition is None or index is None:
            return Resolution("lost")
        return self.resolve_index(partition, index, field_name)

    def resolve_index(self, partition: Partition, index: int, field_name: str) -> Resolution:
        """As `resolve`, for a row that is known by its global index."""
        if not partition.is_produced(field_name, index):
            return Resolution("unproduced")
        if not self.units:
            return Resolution("dangling")
        position = index % len(self.units)
        unit = self.units[position]
        if unit is None:
            return Resolution("unchecked", position)
        value = unit.rows.get(field_name, {}).get(index)
        if value is None:
            return Resolution("dangling", position)
        if value.blob_name is not None and self.blob_sizes.get((unit.file_name, value.blob_name)) != value.byte_count:
            return Resolution("dangling", position)
        if value.kind == "opaque":
            return Resolution("unchecked", position, value)
        return Resolution("holds", position, value)
