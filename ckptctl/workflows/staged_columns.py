"""Finds and reads the 24 fields of many staged rows at once, column by column, where each is a contiguous tensor in its unit.

What is not (a value in a blob, a strided view, a field that was not produced or has another type) makes its row unusual, and
unusual rows are nobody's business here. Leaves to others: which rows belong together, and what their bytes mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ckptctl.domain.dataplane import DTYPE_BYTES, STAGED_FIELDS, Partition, StoredValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.staged_sound import FIELDS
from ckptctl.domain.tensor_column import TensorColumn
from ckptctl.errors import StorageError
from ckptctl.rules.staged_plan import StagedPlan
from ckptctl.workflows.tensor_sources import TensorSources

TOKEN_COLUMNS = {"token_ids_delta": 8, "token_mask_delta": 4, "generation_logprobs_delta": 4}


class Column(NamedTuple):
    """One field of some rows of a unit: where each begins, and how many bytes it has."""

    offsets: Sequence[int]
    sizes: Sequence[int]


class Located(NamedTuple):
    """Rows of one unit, and their columns."""

    position: int
    keys: Sequence[str]
    columns: Sequence[Column]

    @property
    def row_bytes(self) -> list[int]:
        """The bytes of each row."""
        return list(map(sum, zip(*(column.sizes for column in self.columns), strict=True)))


class ColumnReader:
    """Reads rows of a plan's staging partition."""

    def __init__(self, plan: StagedPlan, sources: TensorSources, limits: Limits) -> None:
        self._keys, self._units, self._sources = plan.partition.keys, plan.plane.units, sources
        self._produced = _all_produced(plan.partition)
        self._most = most_bytes(limits)

    def locate(self, keys: Iterable[str], fields: Sequence[str] = FIELDS) -> list[Located]:
        """The rows that are usual in these fields, by unit and in the order of their indexes.

        With all fields, only those of which the controller says that they were all produced.
        """
        by_unit: dict[int, list[tuple[int, str]]] = {}
        for key in keys if self._units else ():
            index = self._keys[key]
            if fields is not FIELDS or self._produced[index : index + 1] == b"\x01":
                by_unit.setdefault(index % len(self._units), []).append((index, key))
        found = [self._located(position, sorted(rows), fields) for position, rows in sorted(by_unit.items())]
        return [located for located in found if located is not None]

    def _located(self, position: int, rows: list[tuple[int, str]], fields: Sequence[str]) -> Located | None:
        unit = self._units[position]
        if unit is None:
            return None
        while rows:
            odd: set[int] = set()
            columns = [_column(unit.rows.get(name, {}), rows, (name, self._most[name]), odd) for name in fields]
            if not odd:
                return Located(position, [key for _, key in rows], columns)
            rows = [row for number, row in enumerate(rows) if number not in odd]
        return None

    def has_room(self, size: int) -> bool:
        """Whether rows of so many bytes can be in memory besides what is there."""
        return self._sources.has_room(size)

    def read(self, located: Located) -> dict[str, Sequence[bytes]] | None:
        """The stored bytes of each row, by key; None if some could not be read, or there is no room left for so many bytes."""
        if not self._sources.take_room(sum(located.row_bytes)):
            return None
        try:
            read = [self._sources.gather(located.position, column.offsets, column.sizes) for column in located.columns]
        except (DefectError, StorageError, FileNotFoundError):
            return None
        columns = [column for column in read if column is not None]
        if len(columns) < len(read):
            return None
        return dict(zip(located.keys, zip(*columns, strict=True), strict=True))


def most_bytes(limits: Limits) -> dict[str, int]:
    """The most bytes that each field of a row may have."""
    most = dict.fromkeys(STAGED_FIELDS, limits.staged_text_bytes)
    most["extras_metadata_json"] = limits.staged_extras_bytes
    return most | {name: limits.staged_row_tokens * size for name, size in TOKEN_COLUMNS.items()}


def _column(
    stored: Mapping[int, StoredValue], rows: list[tuple[int, str]], field: tuple[str, int], odd: set[int]
) -> Column:
    """The column of one field; the numbers of rows that are unusual in it go to `odd`. Most columns have one form throughout."""
    indexes = [index for index, _ in rows]
    picked = stored.pick(indexes) if isinstance(stored, TensorColumn) else None
    if picked is not None:
        forms, places = picked
        size = _bytes_of(forms[0], *field)
        if size is not None and forms[0].element_offset == 0 and all(form is forms[0] for form in forms):
            return Column(places, (size,) * len(places))
    values = list(map(stored.get, indexes))
    offsets, sizes = [0] * len(values), [0] * len(values)
    for number, value in enumerate(values):
        found = _bytes_of(value, *field)
        if value is None or found is None:
            odd.add(number)
        else:
            offsets[number] = value.blob_offset + value.element_offset * DTYPE_BYTES[value.dtype]
            sizes[number] = found
    return Column(offsets, sizes)


def _bytes_of(value: StoredValue | None, name: str, most: int) -> int | None:
    """The bytes of a value that is a contiguous tensor of the field's type in the unit itself; None for any other."""
    dtype, rank = STAGED_FIELDS[name]
    if value is None or value.kind != "tensor" or value.dtype != dtype or value.blob_name is not None:
        return None
    if len(value.shape) != rank or value.stride != (1,) * rank:
        return None
    size = (value.shape[0] if rank else 1) * DTYPE_BYTES[dtype]
    return size if size <= most else None


def _all_produced(partition: Partition) -> bytes:
    """One byte per row: 1 where the controller says that all 24 fields were produced."""
    width, height = partition.production_columns, partition.production_rows
    every = int.from_bytes(b"\x01" * height, "little")
    for name in FIELDS:
        column = partition.columns.get(name, -1)
        bits = partition.production[column : height * width : width] if 0 <= column < width else bytes(height)
        every &= int.from_bytes(bits, "little")
    return every.to_bytes(height, "little")


def rows_of(located: Iterable[Located]) -> Mapping[str, tuple[int, int]]:
    """Unit position and size in bytes of each row."""
    return {key: (rows.position, size) for rows in located for key, size in zip(rows.keys, rows.row_bytes, strict=True)}
