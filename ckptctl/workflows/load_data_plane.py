"""Loads a TransferQueue checkpoint without its tensor bytes: metadata, unit list, controller state, storage units.

File names of units are built from the unit list and looked up in the listing; what lies in `simple_storage/` besides
is loaded as well, so that a rule can say that it does not belong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ckptctl.domain.binding import DataPlaneMetadata, UnitInfo
from ckptctl.domain.dataplane import ControllerState, StorageUnit
from ckptctl.domain.evidence import Part
from ckptctl.domain.source import ByteSource
from ckptctl.domain.tensor_column import TensorColumn
from ckptctl.formats.tq_checkpoint import (
    decode_controller_state,
    decode_metadata,
    decode_storage_unit,
    decode_unit_info,
)
from ckptctl.workflows.read_parts import PartReader

METADATA_FILE, CONTROLLER_FILE = "metadata.json", "controller_state.pkl"
STORAGE_FOLDER, UNIT_INFO_FILE = "simple_storage", "simple_storage/storage_unit_info.json"
CONTROLLER_BYTES = 4 << 30
TENSORS = "tensor bytes are not read at this level"
BLOBS = "blobs of offloaded rows are not read at this level; only their sizes are compared"
_UNIT_NAME = re.compile(r"su_[0-9]+_[^/]+\.pkl\Z")


@dataclass(frozen=True, slots=True)
class DataPlaneParts:
    """The parts of a data plane, as Evidence takes them."""

    metadata: Part[DataPlaneMetadata]
    unit_info: Part[tuple[UnitInfo, ...]]
    controller_state: Part[ControllerState]
    units: Mapping[str, Part[StorageUnit]]


def load_data_plane(parts: PartReader, folder: str, *, is_quick: bool) -> DataPlaneParts:
    """The data plane in `folder` (with a final slash; empty for a data plane alone)."""
    limits = parts.limits
    metadata_path, controller_path = f"{folder}{METADATA_FILE}", f"{folder}{CONTROLLER_FILE}"
    info_path = f"{folder}{UNIT_INFO_FILE}"
    if is_quick:
        for path in parts.entries:
            if path.startswith(folder) and parts.is_file(path):
                parts.pass_over(path)
        return DataPlaneParts(
            parts.pass_over(metadata_path), parts.pass_over(info_path), parts.pass_over(controller_path), {}
        )
    metadata = parts.read_document(
        metadata_path, lambda data: decode_metadata(data, limits), limits.json_document_bytes
    )
    unit_info = parts.read_document(info_path, lambda data: decode_unit_info(data, limits), limits.json_document_bytes)
    controller = parts.read_container(
        controller_path, lambda source: decode_controller_state(source, limits), CONTROLLER_BYTES
    )
    storage = f"{folder}{STORAGE_FOLDER}"
    names = {name for name in parts.names_in(storage) if _UNIT_NAME.match(name)}
    names.update(f"su_{info.position}_{info.storage_unit_id}.pkl" for info in unit_info.value or ())
    units = {
        name: parts.read_tensors(f"{storage}/{name}", _unit_reader(parts, name), tensor_bytes, TENSORS)
        for name in sorted(names)
    }
    for path in parts.entries:
        if path.startswith(f"{storage}/") and ".pkl.blobs/" in path and parts.is_file(path):
            parts.reasons[path] = BLOBS
    return DataPlaneParts(metadata, unit_info, controller, units)


def _unit_reader(parts: PartReader, name: str) -> Callable[[ByteSource], StorageUnit]:
    return lambda source: decode_storage_unit(source, name, parts.limits)


def tensor_bytes(unit: StorageUnit) -> int:
    """How many bytes of a unit's file are tensors or other long values that were passed over, each counted once."""
    columns = {id(rows): rows for rows in unit.rows.values() if isinstance(rows, TensorColumn)}
    spans = {
        value.blob_offset: value.byte_count
        for rows in unit.rows.values()
        if not isinstance(rows, TensorColumn)
        for value in rows.values()
        if value.blob_name is None and value.blob_offset
    }
    return sum(spans.values()) + sum(column.byte_count for column in columns.values())


def missing(path: str) -> Part[Any]:
    """The part of a file that a target cannot have."""
    return Part(path, "missing")
