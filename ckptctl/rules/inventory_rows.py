"""Is every value that something needs really stored? Invariants 34 and 37.

A reference is decided by three places that can disagree: key map, production bit, storage row. Keys that are absent are
`inventory`'s business. Shapes are judged; level full adds values whose bytes are not there to be read, and routed experts that a
staged row says it has. What bytes say is the business of `staged_rows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ckptctl.domain.amounts import plural
from ckptctl.domain.dataplane import (
    ROUTED_EXPERTS_FIELD,
    STAGED_FIELDS,
    DataPlane,
    Partition,
    StorageUnit,
    StoredValue,
)
from ckptctl.domain.evidence import Evidence, Part
from ckptctl.domain.finding import Violation
from ckptctl.domain.replay import DEFAULT_REQUIRED_FIELDS
from ckptctl.domain.tensor_column import TensorColumn
from ckptctl.rules._model import CannotRunError, NotAskedError, Rule
from ckptctl.rules._views import (
    INVENTORY_REQUIRES,
    data_plane_of,
    needed_staging_keys,
    optional_replay,
    staging_rows,
    unit_path,
    unreadable_units,
)

_COLUMNS = ("token_ids_delta", "token_mask_delta", "generation_logprobs_delta")
_DIGEST_FIELDS = ("digest_bytes", "extras_digest_bytes", "chain_hash_bytes", "cumulative_hash_bytes")
_ROUTED_DTYPES = frozenset({"int8", "int16", "int32"})


def check_canonical_rows(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 34; for a data plane alone, every value that the controller calls produced."""
    plane = data_plane_of(evidence)
    if evidence.kind == "data_plane":
        yield from _dangling_values(evidence, plane)
    else:
        yield from _unusable_samples(evidence, plane)
    yield from _unreadable_values(evidence, plane)
    unreadable = unreadable_units(evidence, plane)
    if unreadable is not None:
        raise unreadable


def _unreadable_values(evidence: Evidence, plane: DataPlane) -> Iterator[Violation]:
    """Level full: produced and stored, but the bytes could not be read through."""
    unread: Part[Any] | None = None
    for (_, name, index), part in evidence.unreadable_values.items():
        if part.state != "damaged":
            unread = part
            continue
        names = (partition.reverse_keys.get(index) for partition in plane.controller.partitions.values())
        key = next((found for found in names if found is not None), f"row {index}")
        yield Violation(
            f"field `{name}` of `{key}` cannot be read: {part.reason}",
            artifact=part.path,
            location=f"{key} {name}",
            expected="bytes that can be read",
            actual=part.reason,
        )
    if unread is not None:
        raise CannotRunError(f"`{unread.path}`: {unread.reason}", artifact=unread.path)


def _unusable_samples(evidence: Evidence, plane: DataPlane) -> Iterator[Violation]:
    replay = optional_replay(evidence)
    if replay is None:
        raise NotAskedError("there is no replay metadata to compare with")
    partition = plane.controller.partitions.get(replay.partition_id)
    opaque = 0
    for group in replay.groups if partition is not None else ():
        fields = group.meta.fields if group.meta.fields is not None else list(DEFAULT_REQUIRED_FIELDS)
        for sample in group.meta.sample_ids:
            index = partition.keys.get(sample) if partition is not None else None
            if partition is None or index is None:
                continue  # a missing key is rule 33's
            for name in fields:
                found = plane.resolve_index(partition, index, name)
                if found.verdict == "unproduced":
                    yield Violation(
                        f"field `{name}` of sample `{sample}` was never produced",
                        artifact=evidence.controller_state.path,
                        location=f"{sample} {name}",
                        expected="produced, as the replay metadata lists it",
                        actual="not produced",
                    )
                elif found.verdict == "dangling":
                    yield _dangling(evidence, sample, name, found.unit_position)
                elif found.value is not None and found.value.kind == "opaque":
                    opaque += 1
    if opaque:
        raise CannotRunError(f"{plural(opaque, 'value')} of a codec or dtype that is not read")


def _dangling_values(evidence: Evidence, plane: DataPlane) -> Iterator[Violation]:
    for partition in plane.controller.partitions.values():
        for name in partition.columns:
            for index in produced_rows(partition, name):
                found = plane.resolve_index(partition, index, name)
                if found.verdict == "dangling":
                    yield _dangling(
                        evidence, partition.reverse_keys.get(index, f"row {index}"), name, found.unit_position
                    )


def produced_rows(partition: Partition, field_name: str) -> Iterator[int]:
    """The rows of one field that the controller calls produced."""
    column = partition.columns[field_name]
    if not 0 <= column < partition.production_columns:
        return
    bits = partition.production[column :: partition.production_columns]
    index = bits.find(b"\x01")
    while 0 <= index < partition.production_rows:
        yield index
        index = bits.find(b"\x01", index + 1)


def _dangling(evidence: Evidence, key: str, name: str, position: int | None) -> Violation:
    return Violation(
        f"dangling reference: `{key}` field `{name}` is marked produced, but storage unit {position} has no row",
        artifact=unit_path(evidence, position if position is not None else -1),
        location=f"{key} {name}",
        expected="a stored value",
        actual="none",
    )


def check_staging_rows(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 37."""
    plane = data_plane_of(evidence)
    partition = staging_rows(evidence, plane)
    if partition is None:
        return  # then no needed key is there: rule 36's
    needed = needed_staging_keys(evidence)
    keys = {index: key for key in needed if (index := partition.keys.get(key)) is not None}
    opaque = 0
    for position, unit in enumerate(plane.units):
        if unit is None:
            continue
        rows = [index for index in keys if index % len(plane.units) == position]
        for name in STAGED_FIELDS:
            for index in _suspects(plane, partition, unit, (name, rows)):
                fault = _staged_fault(evidence, plane, partition, (keys[index], index, name))
                if fault is None:
                    opaque += 1
                else:
                    yield fault
        yield from _uneven_rows(evidence, unit, position, keys, rows)
    yield from _absent_routes(evidence)
    opaque += sum(
        part.value is not None and part.value.routes == "unchecked" for part in (evidence.staged or {}).values()
    )
    unreadable = unreadable_units(evidence, plane)
    if unreadable is not None:
        raise unreadable
    if opaque:
        raise CannotRunError(f"{plural(opaque, 'staged value')} of a codec or dtype that is not read")


def _absent_routes(evidence: Evidence) -> Iterator[Violation]:
    """Level full: the encoding says that a row has routed experts, and they are not there."""
    for key, part in (evidence.staged or {}).items():
        facts = part.value
        if facts is None or not facts.is_needed or facts.routes not in {"missing", "unproduced"}:
            continue
        what = (
            "was never produced"
            if facts.routes == "unproduced"
            else "is marked produced, but its storage unit has no row"
        )
        yield Violation(
            f"field `{ROUTED_EXPERTS_FIELD}` of staging row `{key}` {what}, although the row says that it has routes",
            artifact=evidence.controller_state.path if facts.routes == "unproduced" else part.path,
            location=f"{key} {ROUTED_EXPERTS_FIELD}",
            expected="a stored value",
            actual="none",
        )


def _suspects(plane: DataPlane, partition: Partition, unit: StorageUnit, field: tuple[str, list[int]]) -> list[int]:
    """Rows whose field is not a produced, stored tensor of the right type. One expression, as a million rows pass here."""
    name, rows = field
    dtype, rank = STAGED_FIELDS[name]
    column, width = partition.columns.get(name), partition.production_columns
    if column is None or not 0 <= column < width:
        return rows
    bits, values = partition.production[column::width], unit.rows.get(name, {})
    if isinstance(values, TensorColumn):
        odd = values.unlike(lambda form: form.dtype == dtype and len(form.shape) == rank)
        return [index for index in rows if index not in values or index in odd or bits[index : index + 1] != b"\x01"]
    return [
        index
        for index in rows
        if (value := values.get(index)) is None
        or value.dtype != dtype
        or len(value.shape) != rank
        or value.kind != "tensor"
        or (value.blob_name is not None and plane.blob_sizes.get((unit.file_name, value.blob_name)) != value.byte_count)
        or bits[index : index + 1] != b"\x01"
    ]


def _staged_fault(
    evidence: Evidence, plane: DataPlane, partition: Partition, where: tuple[str, int, str]
) -> Violation | None:
    """What is wrong with one suspect field; None when it is only opaque."""
    key, index, name = where
    found = plane.resolve_index(partition, index, name)
    if found.verdict == "unproduced":
        return Violation(
            f"field `{name}` of staging row `{key}` was never produced",
            artifact=evidence.controller_state.path,
            location=f"{key} {name}",
            expected="produced",
            actual="not produced",
        )
    if found.verdict == "dangling":
        return _dangling(evidence, key, name, found.unit_position)
    if found.value is None or found.value.kind in {"opaque", "numpy"}:
        return None
    return _wrong_type(evidence, key, name, found.unit_position, found.value)


def _wrong_type(evidence: Evidence, key: str, name: str, position: int | None, value: StoredValue) -> Violation:
    dtype, rank = STAGED_FIELDS[name]
    actual = f"{value.dtype} of rank {len(value.shape)}" if value.kind == "tensor" else f"no tensor but {value.kind}"
    return Violation(
        f"field `{name}` of staging row `{key}` is {actual}",
        artifact=unit_path(evidence, position if position is not None else -1),
        location=f"{key} {name}",
        expected=f"{dtype} of rank {rank}",
        actual=actual,
    )


def _uneven_rows(
    evidence: Evidence, unit: StorageUnit, position: int, keys: dict[int, str], rows: Iterable[int]
) -> Iterator[Violation]:
    """Shapes that need no bytes: the token columns of a row are equally long, digests have 32 bytes, routes fit the tokens."""
    columns = [unit.rows.get(name, {}) for name in _COLUMNS]
    digests = [(name, unit.rows.get(name, {})) for name in _DIGEST_FIELDS]
    routes = unit.rows.get(ROUTED_EXPERTS_FIELD, {})
    for index in rows:
        shapes = [column[index].shape for column in columns if index in column]
        length = shapes[0] if shapes else ()
        if any(shape != length for shape in shapes) or length == (0,):
            actual = ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
            yield _misshapen(evidence, keys[index], position, "token columns", "equally long and not empty", actual)
        for name, values in digests:
            value = values.get(index)
            if value is not None and value.kind == "tensor" and value.shape != (32,):
                yield _misshapen(
                    evidence, keys[index], position, f"field `{name}`", "32 bytes", f"shape {list(value.shape)}"
                )
        route = routes.get(index)
        if route is not None and route.kind == "tensor":
            fits = route.dtype in _ROUTED_DTYPES and len(route.shape) == 3 and route.shape[:1] == length
            if not fits:
                actual = f"{route.dtype} {list(route.shape)}"
                yield _misshapen(
                    evidence,
                    keys[index],
                    position,
                    "field `routed_experts`",
                    "int8, int16 or int32 [tokens, layers, k]",
                    actual,
                )


def _misshapen(evidence: Evidence, key: str, position: int, what: str, expected: str, actual: str) -> Violation:
    return Violation(
        f"{what} of staging row `{key}` must be {expected}, found {actual}",
        artifact=unit_path(evidence, position),
        location=key,
        expected=expected,
        actual=actual,
    )


RULES: tuple[Rule, ...] = (
    Rule(
        id="INV002",
        invariant=34,
        name="unusable-canonical-row",
        summary="Each field that a finished sample should have is produced and stored (alone: all that is called produced).",
        why="A data plane loads although such a value is missing; training fails when it asks for the field.",
        hint="The save was torn by a put or a clear; use an older snapshot.",
        severity="error",
        level="standard",
        check=check_canonical_rows,
        requires=INVENTORY_REQUIRES,
        needs=("data_plane",),
        targets=("snapshot", "anchor", "data_plane"),
    ),
    Rule(
        id="INV005",
        invariant=37,
        name="unusable-staging-row",
        summary="All fields of each needed staging row were produced and are stored with the right type and shape.",
        why="Upstream looks at keys only, so a half-written row restores without a word and fails in the finalizer.",
        hint="The save was torn by a put or a clear; use an older snapshot.",
        severity="error",
        level="standard",
        check=check_staging_rows,
        requires=INVENTORY_REQUIRES,
        needs=("data_plane",),
        targets=("snapshot", "anchor"),
    ),
)
