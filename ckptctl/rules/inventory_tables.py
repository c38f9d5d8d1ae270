"""Do the data plane's own tables and files agree with each other? Invariants 44 and 47.

Whether a needed value is there at all is `inventory` and `inventory_rows`. `allocated_indexes` of the controller is never
judged: real savers leave reused indexes out of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import compress, count
from typing import Any

from ckptctl.domain.amounts import plural
from ckptctl.domain.dataplane import (
    ControllerState,
    DataPlane,
    Partition,
)
from ckptctl.domain.evidence import Evidence, Part
from ckptctl.domain.finding import Violation
from ckptctl.domain.replay import DEFAULT_REQUIRED_FIELDS
from ckptctl.rules._model import Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules._views import (
    INVENTORY_REQUIRES,
    data_plane_folder,
    data_plane_of,
    needed_staging_keys,
    optional_replay,
    staging_partition,
    unit_path,
    unreadable_units,
)


def check_tables(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 44: cross-checks 4 of data-plane section 6."""
    plane = data_plane_of(evidence)
    path = evidence.controller_state.path
    for (what, places), location in _controller_faults(plane.controller):
        yield Violation(f"TransferQueue state is inconsistent: {what}", path, location, places[0], places[1])
    reusable = frozenset(plane.controller.reusable_indexes)
    shared = _shared_rows(plane.controller)
    for name, wanted, fields in _judged_rows(evidence, plane.controller):
        partition = plane.controller.partitions[name]
        found = ((partition.keys.get(key), key) for key in wanted)
        # An absent key is for rules 33 and 36, a shared row was named above.
        rows = {index: key for index, key in found if index is not None and index not in shared}
        for index, what, expected, actual in _row_faults(plane, partition, name, rows, reusable):
            key = rows[index]
            message = f"TransferQueue state is inconsistent: row {index} of `{key}` {what}"
            yield Violation(message, path, f"{name} {key}", expected, actual)
        yield from _field_faults(evidence, plane, partition, rows, fields)
    unreadable = unreadable_units(evidence, plane)
    if unreadable is not None:
        raise unreadable


def _judged_rows(
    evidence: Evidence, controller: ControllerState
) -> Iterator[tuple[str, list[str], tuple[str, ...] | None]]:
    """(partition name, keys, fields or None for all): of a data plane alone all rows, else those that something needs."""
    if evidence.kind == "data_plane":
        for name, partition in controller.partitions.items():
            yield name, list(partition.keys), None
        return
    replay = optional_replay(evidence)
    if replay is not None and replay.partition_id in controller.partitions:
        by_fields: dict[tuple[str, ...], list[str]] = {}
        for group in replay.groups:
            fields = group.meta.fields if group.meta.fields is not None else DEFAULT_REQUIRED_FIELDS
            by_fields.setdefault(tuple(fields), []).extend(group.meta.sample_ids)
        for alike, samples in by_fields.items():
            yield replay.partition_id, samples, alike
    staging = staging_partition(evidence)
    if staging in controller.partitions:
        yield staging, sorted(needed_staging_keys(evidence)), None


def _shared_rows(controller: ControllerState) -> frozenset[int]:
    """Rows that two keys of a partition are mapped to."""
    counted = (Counter(partition.keys.values()) for partition in controller.partitions.values())
    return frozenset(index for counts in counted for index, times in counts.items() if times > 1)


Fault = tuple[str, tuple[str, str]]


def _controller_faults(controller: ControllerState) -> Iterator[tuple[Fault, str]]:
    """Contradictions that concern whole partitions."""
    owners: dict[int, tuple[str, str]] = {}
    for name, partition in controller.partitions.items():
        if partition.partition_id != name:
            fault = f"partition `{name}` calls itself `{partition.partition_id}`"
            yield (fault, (name, partition.partition_id)), name
        by_index: dict[int, str] = {}
        for key, index in partition.keys.items():
            other = by_index.setdefault(index, key)
            if other != key:
                fault = f"keys `{other}` and `{key}` of partition `{name}` are mapped to one row, {index}"
                yield (fault, ("one key per row", f"`{other}` and `{key}`")), f"{name} {key}"
        listed = controller.partition_indexes.get(name, frozenset())
        claimed = partition.global_indexes | partition.pre_allocated | by_index.keys() | listed
        for index in claimed:
            owner, key = owners.setdefault(index, (name, by_index.get(index, "")))
            if owner != name:
                texts = [
                    f"`{who}`" + (f" (key `{what}`)" if what else "")
                    for who, what in ((owner, key), (name, by_index.get(index, "")))
                ]
                fault = f"row {index} is in two partitions, {texts[0]} and {texts[1]}"
                yield (fault, ("one partition per row", f"{owner} and {name}")), f"{name} {index}"
    for name in sorted(controller.partition_indexes.keys() - controller.partitions.keys()):
        for index in controller.partition_indexes[name]:
            owner, _ = owners.setdefault(index, (name, ""))
            if owner != name:
                fault = f"row {index} is in two partitions, `{owner}` and `{name}`"
                yield (fault, ("one partition per row", f"{owner} and {name}")), f"{name} {index}"


def _row_faults(
    plane: DataPlane, partition: Partition, name: str, rows: Mapping[int, str], reusable: frozenset[int]
) -> Iterator[tuple[int, str, str, str]]:
    """One comparison of sets each, since there may be a million rows."""
    known = plane.controller.partition_indexes.get(name, frozenset())
    for index, key in rows.items():
        back = partition.reverse_keys.get(index)
        if back != key:
            yield index, "is another key's in the inverse key map", key, "nothing" if back is None else back
    for index in sorted(rows.keys() - partition.global_indexes):
        yield index, "is not among the partition's active rows (global_indexes)", "active", "not active"
    for index in sorted(rows.keys() - known):
        yield index, "is not the partition's in the index manager (partition_to_indexes)", "listed", "not listed"
    for index in sorted(rows.keys() & reusable):
        yield index, "is free for reuse (reusable_indexes)", "not reusable", "reusable"
    first_free = plane.controller.next_index
    for index in sorted(index for index in rows if index >= first_free):
        yield index, "was never handed out (global_index_counter)", f"below {first_free}", str(index)


_ONLY_ONE = bytes(value == 1 for value in range(256))


def _produced_among(partition: Partition, field_name: str, rows: Mapping[int, str]) -> set[int]:
    """The rows whose field the controller calls produced; over the whole column at once where many are asked for."""
    column, width = partition.columns.get(field_name), partition.production_columns
    if column is None or not 0 <= column < width or len(rows) * 8 < partition.production_rows:
        return {index for index in rows if partition.is_produced(field_name, index)}
    bits = partition.production[column : partition.production_rows * width : width].translate(_ONLY_ONE)
    return set(compress(count(), bits)) & rows.keys()


def _field_faults(
    evidence: Evidence,
    plane: DataPlane,
    partition: Partition,
    rows: Mapping[int, str],
    fields: tuple[str, ...] | None,
) -> Iterator[Violation]:
    """The controller's field tables and the units' active rows, for the fields that were produced."""
    said = "TransferQueue state is inconsistent"
    inactive: set[int] = set()
    for field_name in fields if fields is not None else partition.columns:
        produced = _produced_among(partition, field_name, rows)
        meta = partition.field_metas.get(field_name)
        for index in sorted(produced - meta.global_indexes if meta is not None else produced):
            yield Violation(
                f"{said}: field `{field_name}` of `{rows[index]}` is marked produced, its field metadata lacks row {index}",
                evidence.controller_state.path,
                f"{partition.partition_id} {rows[index]} {field_name}",
                expected="listed in field_metadata",
                actual="not listed",
            )
        for unit in plane.units:
            if unit is not None:
                inactive |= (unit.rows.get(field_name, {}).keys() & produced) - unit.active_keys
    for index in sorted(inactive):
        position = index % len(plane.units)
        yield Violation(
            f"{said}: row {index} of `{rows[index]}` is stored, but not active in storage unit {position}",
            unit_path(evidence, position),
            f"{partition.partition_id} {rows[index]}",
            expected="among active_keys",
            actual="not active",
        )


def check_units(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 47, and that the data plane has the files without which it cannot be loaded at all."""
    is_whole = True
    for violation in _lacking_files(evidence):
        is_whole = False
        yield violation
    if not is_whole:
        return
    infos = value_of(evidence.unit_info)
    positions = sorted(info.position for info in infos)
    if not infos or positions != list(range(len(infos))):
        yield Violation(
            "the positions of the storage units are not 0, 1, 2 ...",
            evidence.unit_info.path,
            expected=f"0 to {len(infos) - 1}" if infos else "at least one unit",
            actual=", ".join(map(str, positions[:10])) or "no unit",
        )
    for repeated, times in sorted(Counter(info.storage_unit_id for info in infos).items()):
        if times > 1:
            yield Violation(
                f"{times} storage units have the id `{repeated}`", evidence.unit_info.path, repeated, "one", str(times)
            )
    yield from _unit_files(evidence)
    running = evidence.run.storage_units
    if running is not None and running != len(infos):
        yield Violation(
            f"storage has {plural(len(infos), 'unit')}, the running TransferQueue {running}: "
            f"set `num_storage_units: {len(infos)}`",
            evidence.unit_info.path,
            expected=str(running),
            actual=str(len(infos)),
            incompatible=True,
        )


def _lacking_files(evidence: Evidence) -> Iterator[Violation]:
    parts: list[Part[Any]] = [evidence.controller_state, evidence.unit_info]  # metadata.json is BND001's
    for part in parts:
        if part.state == "missing":
            message = f"`{part.path}` is missing: the data plane cannot be loaded"
            yield Violation(message, part.path, expected="a file", actual="missing")
        elif part.state == "damaged" and not part.path.endswith(".pkl"):  # a damaged pickle is MAN010's
            for defect in part.defects:
                message = f"`{part.path}`: {defect.message}"
                yield Violation(message, part.path, defect.location, defect.expected, defect.actual)


def _unit_files(evidence: Evidence) -> Iterator[Violation]:
    infos = value_of(evidence.unit_info)
    listed = {f"su_{info.position}_{info.storage_unit_id}.pkl": info.storage_unit_id for info in infos}
    folder = f"{data_plane_folder(evidence)}simple_storage"
    for file_name, unit_id in listed.items():
        part = evidence.units.get(file_name)
        path = f"{folder}/{file_name}"
        if part is None or part.state == "missing":
            message = f"storage unit file `{file_name}` is missing: every row on it is lost"
            yield Violation(message, path, expected="a file", actual="missing")
        elif part.value is not None and part.value.unit_id != unit_id:
            message = f"storage unit `{file_name}` calls itself `{part.value.unit_id}`"
            yield Violation(message, path, "storage_unit_id", unit_id, part.value.unit_id)
    for file_name in sorted(evidence.units.keys() - listed.keys()):
        message = f"storage unit file `{file_name}` is not in storage_unit_info.json"
        yield Violation(message, f"{folder}/{file_name}", expected="listed", actual="not listed")


RULES: tuple[Rule, ...] = (
    Rule(
        id="INV012",
        invariant=44,
        name="inconsistent-queue-state",
        summary="TransferQueue's own tables agree about every referenced row, and no row has two keys or two partitions.",
        why="A shared or reusable row is overwritten by the next put: a rollout silently continues on another one's tokens.",
        hint="The save was taken while rows were put or cleared; use an older snapshot.",
        severity="error",
        level="standard",
        check=check_tables,
        requires=INVENTORY_REQUIRES,
        needs=("data_plane",),
        targets=("snapshot", "anchor", "data_plane"),
    ),
    Rule(
        id="INV015",
        invariant=47,
        name="storage-units-differ",
        summary="Controller state, unit list and one file per storage unit are there, with matching ids and positions.",
        why="A row lives on unit (index modulo number of units): a missing, doubled or exchanged unit misplaces every row.",
        hint="Take the whole `data_plane/` from a copy; for another unit count start TransferQueue with the saved number.",
        severity="error",
        level="standard",
        check=check_units,
        requires=("BND001",),
        needs=("data_plane",),
        targets=("snapshot", "anchor", "data_plane"),
    ),
)
