"""The embedded data plane as files in TransferQueue's own layout (data-plane sections 1 to 4), and back.

`encode_plane` turns an image and the binding into (relative name, bytes), the order being TransferQueue's:
controller, units, unit info, metadata last. `decode_plane` reads the files and refuses what the embedded plane
could not serve. Who writes the bytes, and what the binding must say, is `saved_state`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ckptctl.domain.dataplane import ControllerState, Partition, StorageUnit, TensorValue
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.tq_checkpoint import (
    decode_controller_state,
    decode_metadata,
    decode_storage_unit,
    decode_unit_info,
    read_tensor,
)
from ckptctl.formats.tq_writer import (
    encode_controller_state,
    encode_metadata,
    encode_storage_unit,
    encode_unit_info,
    field_meta,
)
from ckptctl.sim.plane_image import PartitionState, PlaneImage

METADATA_FILE = "metadata.json"
CONTROLLER_FILE = "controller_state.pkl"
UNIT_INFO_FILE = "simple_storage/storage_unit_info.json"
_UNIT_ID = re.compile(r"[A-Za-z0-9_]{1,64}\Z")


@dataclass(frozen=True, slots=True)
class PlaneIdentity:
    """The names of one running data plane, new with every process."""

    controller_id: str
    unit_ids: tuple[str, ...]
    unit_size: int


def unit_file(position: int, unit_id: str) -> str:
    """Where one storage unit lies; `unit_id` may come from a file, so its form is demanded."""
    if _UNIT_ID.match(unit_id) is None:
        raise DefectError(
            Defect("a storage unit id is no plain name", UNIT_INFO_FILE, "letters, digits, _", unit_id[:80])
        )
    return f"simple_storage/su_{position}_{unit_id}.pkl"


def encode_plane(
    image: PlaneImage, identity: PlaneIdentity, user_metadata: Mapping[str, Any]
) -> Iterator[tuple[str, bytes]]:
    """The files of one checkpoint, `metadata.json` last."""
    yield CONTROLLER_FILE, encode_controller_state(_controller_state(image, identity))
    count = len(identity.unit_ids)
    for position, unit_id in enumerate(identity.unit_ids):
        rows = {
            name: {index: value for index, value in values.items() if index % count == position}
            for name, values in image.rows.items()
        }
        active = frozenset(index for values in rows.values() for index in values)
        yield unit_file(position, unit_id), encode_storage_unit(unit_id, identity.unit_size, rows, active)
    info = tuple(
        {"position": position, "storage_unit_id": unit_id} for position, unit_id in enumerate(identity.unit_ids)
    )
    yield UNIT_INFO_FILE, encode_unit_info(info)
    yield METADATA_FILE, encode_metadata(dict(user_metadata))


def decode_plane(read: Callable[[str], bytes], *, units: int) -> tuple[PlaneImage, dict[str, Any]]:
    """Read a checkpoint through `read(relative name)`; returns the image and the user metadata.

    Raises:
        DefectError: damaged files, storage not saved, or another number of units than the running plane has.
    """
    metadata = decode_metadata(read(METADATA_FILE), DEFAULT_LIMITS)
    if not metadata.storage_saved:
        raise DefectError(Defect("the data plane was saved without its storage", METADATA_FILE, "true", "false"))
    info = sorted(decode_unit_info(read(UNIT_INFO_FILE), DEFAULT_LIMITS), key=lambda unit: unit.position)
    if [unit.position for unit in info] != list(range(units)):
        raise DefectError(
            Defect("another number of storage units than this plane has", UNIT_INFO_FILE, str(units), str(len(info)))
        )
    state = decode_controller_state(BytesSource(read(CONTROLLER_FILE)), DEFAULT_LIMITS)
    rows: dict[str, dict[int, TensorValue]] = {}
    for unit in info:
        name = unit_file(unit.position, unit.storage_unit_id)
        source = BytesSource(read(name))
        _take_rows(rows, decode_storage_unit(source, name.rpartition("/")[2], DEFAULT_LIMITS), source)
    return _image(state, rows), dict(metadata.user_metadata or {})


def _take_rows(rows: dict[str, dict[int, TensorValue]], unit: StorageUnit, source: BytesSource) -> None:
    for name, values in unit.rows.items():
        kept = rows.setdefault(name, {})
        for index, value in values.items():
            if value.kind != "tensor" or value.blob_name is not None:
                raise DefectError(
                    Defect(
                        "a row holds a value that is no plain tensor",
                        f"{unit.file_name}: {name}[{index}]",
                        "tensor",
                        value.kind,
                    )
                )
            kept[index] = read_tensor(source, value)


def _controller_state(image: PlaneImage, identity: PlaneIdentity) -> ControllerState:
    return ControllerState(
        controller_id=identity.controller_id,
        partitions={name: _partition(partition, image) for name, partition in image.partitions.items()},
        partition_indexes={name: frozenset(state.keys.values()) for name, state in image.partitions.items()},
        reusable_indexes=image.reusable_indexes,
        next_index=image.next_index,
    )


def _partition(state: PartitionState, image: PlaneImage) -> Partition:
    columns = len(state.columns)
    height = max(state.keys.values(), default=-1) + 1
    bits = bytearray(height * columns)
    for name, indexes in state.produced.items():
        column = state.columns[name]
        for index in indexes:
            bits[index * columns + column] = 1
    active = frozenset(state.keys.values())
    return Partition(
        partition_id=state.partition_id,
        keys=state.keys,
        reverse_keys={index: key for key, index in state.keys.items()},
        columns=state.columns,
        global_indexes=active,
        pre_allocated=frozenset(),
        field_metas={
            name: field_meta({index: image.rows[name][index] for index in held})
            for name, held in state.produced.items()
            if held
        },
        tags=state.tags,
        production_rows=height,
        production_columns=columns,
        production=bytes(bits),
    )


def _image(state: ControllerState, rows: dict[str, dict[int, TensorValue]]) -> PlaneImage:
    partitions = {}
    for name, partition in state.partitions.items():
        kept = PartitionState(name, 0.0, dict(partition.keys), dict(partition.columns))
        for column in partition.columns:
            marked = {index for index in partition.keys.values() if partition.is_produced(column, index)}
            absent = sorted(marked.difference(rows.get(column, {})))
            if absent:
                raise DefectError(
                    Defect("a produced field has no row in its storage unit", f"{name}: {column}[{absent[0]}]")
                )
            kept.produced[column] = marked
            rows.setdefault(column, {})
        kept.tags = {index: dict(tags) for index, tags in partition.tags.items() if index in partition.reverse_keys}
        partitions[name] = kept
    return PlaneImage(partitions, rows, state.next_index, state.reusable_indexes)
