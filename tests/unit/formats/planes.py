"""A data plane in small, valid by default, for tests of the checkpoint's reader and writer."""

from typing import Any

from ckptctl.domain.dataplane import ControllerState, FieldMeta, Partition, TensorValue
from ckptctl.formats.tq_writer import field_meta


def ints(*values: int) -> TensorValue:
    """An int64 column."""
    return TensorValue("int64", (len(values),), b"".join(value.to_bytes(8, "little", signed=True) for value in values))


def number(value: int) -> TensorValue:
    """An int64 scalar."""
    return TensorValue("int64", (), value.to_bytes(8, "little", signed=True))


def a_partition(
    name: str = "rollout_data",
    keys: dict[str, int] | None = None,
    rows: dict[str, dict[int, TensorValue]] | None = None,
    tags: dict[int, dict[str, Any]] | None = None,
    **changes: Any,
) -> Partition:
    """A partition whose bits, indexes and field metadata follow from its rows."""
    keys = {"g_g0": 0, "g_g1": 2} if keys is None else keys
    rows = {"ids": {0: ints(1, 2), 2: ints(3)}, "length": {0: number(2), 2: number(1)}} if rows is None else rows
    columns = {field: column for column, field in enumerate(rows)}
    height, width = max(keys.values(), default=0) + 1, max(len(columns), 1)
    bits = bytearray(height * width)
    metas: dict[str, FieldMeta] = {}
    for field, values in rows.items():
        for index in values:
            bits[index * width + columns[field]] = 1
        if values:
            metas[field] = field_meta(values)
    facts: dict[str, Any] = {
        "partition_id": name,
        "keys": keys,
        "reverse_keys": {index: key for key, index in keys.items()},
        "columns": columns,
        "global_indexes": frozenset(keys.values()),
        "pre_allocated": frozenset(),
        "field_metas": metas,
        "tags": {index: {"weight_version": 3} for index in keys.values()} if tags is None else tags,
        "production_rows": height,
        "production_columns": width,
        "production": bytes(bits),
        "consumed": {"train": b"\1" + bytes(height - 1)},
    }
    return Partition(**(facts | changes))


def a_state(*partitions: Partition, **changes: Any) -> ControllerState:
    """A controller whose index tables follow from its partitions."""
    partitions = partitions or (a_partition(),)
    used = {index for partition in partitions for index in partition.global_indexes}
    following = max(used, default=-1) + 1
    facts: dict[str, Any] = {
        "controller_id": "TQ_CONTROLLER_0123abcd",
        "partitions": {partition.partition_id: partition for partition in partitions},
        "partition_indexes": {partition.partition_id: partition.global_indexes for partition in partitions},
        "reusable_indexes": tuple(sorted(set(range(following)) - used)),
        "next_index": following,
    }
    return ControllerState(**(facts | changes))
