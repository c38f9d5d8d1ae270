"""What level full adds to the evidence of a target: facts of staged rows, values that cannot be read, and an honest account.

Which bytes count as looked at: those that went into a digest which was compared. Samples, rows that nothing needs and the rest of
a batch's buffer are covered by no digest inside the snapshot, and stay listed as such however often they were read.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ckptctl.domain.dataplane import ROUTED_EXPERTS_FIELD, STAGED_FIELDS, DataPlane, StorageUnit, StoredValue
from ckptctl.domain.evidence import Evidence, Part
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.share import Share
from ckptctl.domain.tensor_column import TensorColumn
from ckptctl.errors import StorageError
from ckptctl.rules.inventory_rows import produced_rows
from ckptctl.rules.staged_plan import StagedPlan, find_data_plane, find_plan
from ckptctl.workflows.load_staged import StagedRows, read_staged_rows
from ckptctl.workflows.read_parts import PartReader
from ckptctl.workflows.tensor_sources import TensorSources

NO_DIGEST = "no digest covers these tensor bytes: samples, rows that nothing needs, or what no view shows"
NO_DIGEST_BLOB = "no digest covers what this blob holds"
OPAQUE = "holds values of a codec or dtype that is not read"
_STAGED = frozenset({*STAGED_FIELDS, ROUTED_EXPERTS_FIELD})
Place = tuple[str, str, int]
"""Unit file name, field and index of a stored value."""


def with_tensor_bytes(evidence: Evidence, parts: PartReader, folder: str) -> Evidence:
    """The evidence with what only the bytes of tensors show. `folder`: that of the data plane, with a final slash."""
    plane, plan = find_data_plane(evidence), find_plan(evidence)
    if plane is None:
        return evidence
    with TensorSources(parts, plane, folder) as sources:
        staged = StagedRows()
        if plan is not None:
            staged = read_staged_rows(plan, sources, parts.limits, parts.share, parts.jobs)
        unreadable = dict(_unreadable(evidence, plane, sources, _places_read(plan, staged), parts.share))
        _account(parts, plane, sources, staged)
    return replace(evidence, staged=staged.rows if plan is not None else None, unreadable_values=unreadable)


def _places_read(plan: StagedPlan | None, staged: StagedRows) -> Container[int]:
    """The rows whose fields were read already."""
    return frozenset(plan.partition.keys[key] for key in staged.rows) if plan is not None else frozenset()


def _unreadable(
    evidence: Evidence,
    plane: DataPlane,
    sources: TensorSources,
    staged_rows: Container[int],
    share: Share | None,
) -> Iterator[tuple[Place, Part[Any]]]:
    """Every value that something refers to and whose bytes are not there to be read, of those that belong to `share`."""
    for position, unit in enumerate(plane.units):
        for field, index, value in _referenced(evidence, plane, unit) if unit is not None else ():
            if index in staged_rows and field in _STAGED:
                continue
            place = (unit.file_name if unit is not None else "", field, index)
            if share is not None and not share.has(repr(place)):
                continue
            problem = _scanned(sources, position, value)
            if problem is not None:
                yield place, problem


def _referenced(evidence: Evidence, plane: DataPlane, unit: StorageUnit) -> Iterator[tuple[str, int, StoredValue]]:
    """The samples of a unit; of a data plane alone, all values that the controller calls produced."""
    partitions = list(plane.controller.partitions.values())
    if evidence.kind != "data_plane":
        canonical = evidence.replay.value.partition_id if evidence.replay.value is not None else ""
        partitions = [partition for partition in partitions if partition.partition_id == canonical]
    for field, values in unit.rows.items():
        having = [partition for partition in partitions if field in partition.columns]
        produced = {index for partition in having for index in produced_rows(partition, field)}
        for index in values if produced else ():
            if index in produced:
                yield field, index, values[index]


def _scanned(sources: TensorSources, position: int, value: StoredValue) -> Part[Any] | None:
    """Read a value's bytes through; what is in the way, or None. Opaque blobs are never opened."""
    if value.kind in ("text", "other") or (value.kind == "opaque" and value.blob_name is not None):
        return None
    path = sources.path_of(position, value)
    try:
        sources.scan(position, value)
    except DefectError as error:
        return Part(path, "unsupported" if error.is_unsupported else "damaged", None, error.defects)
    except (StorageError, FileNotFoundError) as error:
        what = "it was deleted while it was being read" if isinstance(error, FileNotFoundError) else str(error)
        return Part(path, "unreadable", None, (Defect(what),))
    return None


def _account(parts: PartReader, plane: DataPlane, sources: TensorSources, staged: StagedRows) -> None:
    """Say of each unit and blob how much of it a digest covers, and why not the rest."""
    for position, unit in enumerate(plane.units):
        if unit is None:
            continue
        path = sources.path_of(position)
        size = parts.entries[path].size_bytes
        parts.looked_at[path] = min(size, parts.looked_at.get(path, 0) + staged.digested[path])
        parts.left[path] = staged.left[path]
        if parts.looked_at[path] == size:
            parts.reasons.pop(path, None)
        else:
            parts.reasons[path] = f"{NO_DIGEST}; it {OPAQUE}" if _has_opaque(unit.rows) else NO_DIGEST
        for values in unit.rows.values():
            for value in values.values() if not isinstance(values, TensorColumn) else ():
                if value.blob_name is not None:
                    _account_blob(parts, sources.path_of(position, value), value, staged)


def _account_blob(parts: PartReader, path: str, value: StoredValue, staged: StagedRows) -> None:
    if not parts.is_file(path):
        return
    parts.left[path] = staged.left[path]
    if staged.digested[path] >= parts.entries[path].size_bytes:
        parts.looked_at[path] = parts.entries[path].size_bytes
        parts.reasons.pop(path, None)
    else:
        parts.reasons[path] = OPAQUE if value.kind == "opaque" else NO_DIGEST_BLOB


def _has_opaque(rows: Mapping[str, Mapping[int, StoredValue]]) -> bool:
    return any(
        value.kind == "opaque" and value.blob_name is None
        for values in rows.values()
        if not isinstance(values, TensorColumn)
        for value in values.values()
    )
