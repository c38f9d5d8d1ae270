"""Level full: reads every staged row that something needs, once, and keeps its facts (data-plane section 9.3).

Rows are visited from the root of each call chain downwards. On the way the ids of the calls above a row are held, since its
cumulative hash runs over them all (their number is hashed first, so no hash can be carried on from the parent's); nothing else
of a row outlives its examination. Chains of sound rows, which are nearly all, are taken many at a time (`staged_batches`).
Rows that INV004 and INV005 miss are not looked for here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ckptctl.domain.dataplane import (
    DTYPE_BYTES,
    ROUTED_EXPERTS_FIELD,
    STAGED_FIELDS,
    StorageUnit,
    StoredValue,
    TensorValue,
)
from ckptctl.domain.evidence import Part
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.memory_room import NoRoomError
from ckptctl.domain.share import Share
from ckptctl.domain.staged import ROUTES_NONE
from ckptctl.domain.staged_columns import big_endian
from ckptctl.domain.staged_facts import Ancestry, RoutesState, StagedFacts, examine
from ckptctl.errors import StorageError
from ckptctl.formats.staged_row import decode_staged_row
from ckptctl.rules.staged_plan import StagedPlan
from ckptctl.workflows.staged_batches import PREFIX_RATIO, SoundRows, Tree, examine_trees, parent_calls
from ckptctl.workflows.staged_columns import ColumnReader, most_bytes
from ckptctl.workflows.tensor_sources import TensorSources

_PREFIX_BYTES = 4 << 30
TOO_LONG = "its call chain is so long that the hash over all of it is not computed"
Fields = dict[str, StoredValue]


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The facts of every needed row that is stored, and of the ancestors without which they cannot be checked.

    `digested`: file -> bytes that went into a digest. `left`: file -> bytes of rows that belong to another part of the data.
    """

    rows: Mapping[str, Part[StagedFacts]] = field(default_factory=dict)
    digested: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)


def read_staged_rows(
    plan: StagedPlan, sources: TensorSources, limits: Limits, share: Share | None = None, jobs: int = 1
) -> StagedRows:
    """Read and examine all rows, or those of the call chains that belong to `share`; `jobs` threads hash."""
    walk = _Walk(plan, sources, limits, share)
    return StagedRows(walk.rows(jobs), walk.digested, walk.left)


@dataclass(slots=True)
class _Path:
    """The ids of the calls above the current row, root first."""

    ids: list[bytes] = field(default_factory=list)
    size_bytes: int = 0

    def cut(self, depth: int) -> None:
        while len(self.ids) > depth:
            self.size_bytes -= len(self.ids.pop())

    def add(self, ids: bytes) -> None:
        self.ids.append(ids)
        self.size_bytes += len(ids)


class _Walk:
    def __init__(self, plan: StagedPlan, sources: TensorSources, limits: Limits, share: Share | None) -> None:
        self._plan, self._sources, self._limits, self._share = plan, sources, limits, share
        self._needed = frozenset(plan.needed)
        self._reader = ColumnReader(plan, sources, limits)
        self._most_bytes = most_bytes(limits)
        self._rows: dict[str, Part[StagedFacts]] = {}
        self._without_room: dict[str, Part[StagedFacts]] = {}
        self._path = _Path()
        self.digested: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self._ids_bytes = 0
        self._prefix_bytes = 0

    def rows(self, jobs: int) -> dict[str, Part[StagedFacts]]:
        parents = self._parents()
        children: dict[str, list[str]] = {}
        for key, parent in parents.items():
            if parent is not None:
                children.setdefault(parent, []).append(key)
        roots = [key for key, parent in parents.items() if parent is None]
        mine = [root for root in roots if self._share is None or self._share.has(root)]
        trees = [_tree(root, children) for root in mine]
        sound = dict(zip(mine, examine_trees(trees, self._needed, self._reader, self._limits, jobs), strict=True))
        for root in roots:
            if root not in sound:
                self._leave(root, children)
                continue
            rows = sound.pop(root)
            if rows is None or not self._take(rows):
                self._descend(root, parents, children)
        for key in parents.keys() - self._rows.keys():
            self._visit(key, parents[key], is_whole=False)  # chains that bite their own tail have no root
        return {key: part for key, part in self._rows.items() if part.value is not None or key in self._needed}

    def _take(self, rows: SoundRows) -> bool:
        """Take the facts of a whole tree, unless they or the hashes over its chains are more than there is room for."""
        if not self._sources.has_room(0):
            return False
        ids_bytes = self._ids_bytes + sum(8 * row.facts.delta_len for row in rows.values())
        prefixes = [row.prefix_bytes for row in rows.values()]
        if self._is_too_long(max(prefixes), sum(prefixes), ids_bytes):
            return False
        self._ids_bytes = ids_bytes
        self._prefix_bytes += sum(prefixes)
        for key, row in rows.items():
            path = self._sources.path_of(row.position)
            self.digested[path] += row.size_bytes
            self._rows[key] = Part(path, "decoded", row.facts)
        return True

    def _descend(self, root: str, parents: Mapping[str, str | None], children: Mapping[str, list[str]]) -> None:
        pending = [(root, 0, True)]
        while pending:
            key, depth, is_whole = pending.pop()
            self._path.cut(depth)
            ids = self._visit(key, parents[key], is_whole=is_whole)
            if ids is not None and is_whole:
                self._path.add(ids)
            below = is_whole and ids is not None
            pending.extend((child, depth + 1, below) for child in reversed(children.get(key, ())))
        self._path.cut(0)

    def _leave(self, root: str, children: Mapping[str, list[str]]) -> None:
        """Do not read a call chain that belongs to another part of the data, but count its bytes."""
        pending = [root]
        while pending:
            key = pending.pop()
            pending.extend(children.get(key, ()))
            found = self._stored(key) if key not in self._rows else None
            if found is None:
                continue
            position, fields = found
            why = Defect(f"staging row `{key}` was not read: it belongs to another part of the data")
            self._rows[key] = Part(self._sources.path_of(position), "not_read", None, (why,))
            for value in (*fields.values(), *self._stored_routes(key)):
                self.left[self._sources.path_of(position, value)] += _view_bytes(value)

    def _parents(self) -> dict[str, str | None]:
        """Each row's parent by its key, from the two small fields that name it."""
        parents: dict[str, str | None] = {}
        calls = parent_calls(self._plan.needed, self._reader)
        for needed in self._plan.needed:
            key: str | None = needed
            while key is not None and key not in parents:
                call = calls[key] if key in calls else self._parent_call(key)
                parent = self._plan.parent_of(key, call) if call is not None else None
                parents[key] = parent
                key = parent
        return parents

    def _parent_call(self, key: str) -> str | None:
        index = self._plan.partition.keys[key]
        position, unit = self._unit_of(index)
        flag, text = (
            unit.rows.get(name, {}).get(index) if unit is not None else None
            for name in ("parent_call_id_present", "parent_call_id_utf8")
        )
        if flag is None or text is None:
            return None
        try:
            if self._sources.tensor(position, flag, self._limits.staged_text_bytes).data != b"\x01":
                return None
            return self._sources.tensor(position, text, self._limits.staged_text_bytes).data.decode()
        except UnicodeDecodeError:
            return None  # the whole row will not decode either
        except (DefectError, StorageError, FileNotFoundError) as error:
            self._rows[key] = _not_read(self._sources.path_of(position), error)
            return None

    def _visit(self, key: str, parent_key: str | None, *, is_whole: bool) -> bytes | None:
        """Read and examine one row; its ids, if they and those of all its ancestors can be trusted by the calls below."""
        found = self._stored(key) if key not in self._rows else None
        if found is None:
            return None
        position, fields = found
        path = self._sources.path_of(position)
        try:
            self._sources.demand_room()
            tensors = {name: self._tensor(position, name, fields) for name in STAGED_FIELDS}
            routes, with_routes = self._routes(key, position, fields, tensors)
            row = decode_staged_row(tensors, self._limits, with_routes=with_routes)
        except NoRoomError as error:
            self._rows[key] = self._without_room.setdefault(path, _not_read(path, error))
            return None
        except (DefectError, StorageError, FileNotFoundError) as error:
            self._rows[key] = _not_read(path, error)
            return None
        self._account(position, path, fields, tensors)
        ids = big_endian(row.token_ids)
        ancestry = self._ancestry(parent_key, is_whole=is_whole, own_bytes=len(ids))
        facts = examine(row, ancestry, ids=ids, routes=routes, is_needed=key in self._needed)
        self._rows[key] = Part(path, "decoded", facts)
        return ids if facts.cumulative_found is not None and facts.is_sound_as(key) else None

    def _account(self, position: int, path: str, fields: Fields, tensors: Mapping[str, TensorValue]) -> None:
        """Count what was digested of a row, and of which files."""
        self.digested[path] += sum(len(value.data) for value in tensors.values())
        for name, value in fields.items():
            if value.blob_name is not None:
                self.digested[path] -= len(tensors[name].data)
                self.digested[self._sources.path_of(position, value)] += len(tensors[name].data)

    def _ancestry(self, parent_key: str | None, *, is_whole: bool, own_bytes: int) -> Ancestry:
        part = self._rows.get(parent_key) if parent_key is not None else None
        parent = part.value if part is not None else None
        if parent is not None and (parent_key is None or not parent.is_sound_as(parent_key)):
            parent = None
        if parent_key is not None and (parent is None or not is_whole):
            return Ancestry(parent_key, parent, gap=parent.gap if parent is not None else "")
        size = self._path.size_bytes + own_bytes
        self._ids_bytes += own_bytes
        if self._is_too_long(size, size, self._ids_bytes):
            return Ancestry(parent_key, parent, gap=TOO_LONG)
        self._prefix_bytes += size
        return Ancestry(parent_key, parent, self._path.ids)

    def _is_too_long(self, longest_bytes: int, more_bytes: int, ids_bytes: int) -> bool:
        """Whether a chain, or all chains together with `more_bytes` to hash, are more than there is room for."""
        return (
            longest_bytes > 8 * self._limits.staged_chain_tokens
            or self._prefix_bytes + more_bytes > _PREFIX_BYTES + PREFIX_RATIO * ids_bytes
        )

    def _routes(
        self, key: str, position: int, fields: Fields, tensors: dict[str, TensorValue]
    ) -> tuple[RoutesState, bool]:
        """Add the routed experts to a row that says that it has some, if they can be read."""
        if int.from_bytes(tensors["routed_experts_encoding"].data, "little") == ROUTES_NONE:
            return "none", False
        index = self._plan.partition.keys[key]
        found = self._plan.plane.resolve_index(self._plan.partition, index, ROUTED_EXPERTS_FIELD)
        if found.verdict == "unproduced":
            return "unproduced", False
        if found.verdict == "dangling":
            return "missing", False
        if found.value is None or found.verdict != "holds":
            return "unchecked", False
        if found.value.kind != "tensor":
            return "unchecked", False
        try:
            tensors[ROUTED_EXPERTS_FIELD] = self._sources.tensor(
                position, found.value, self._limits.staged_routes_bytes
            )
        except DefectError as error:
            if not error.is_unsupported:
                raise
            return "unchecked", False
        fields[ROUTED_EXPERTS_FIELD] = found.value
        return "read", True

    def _tensor(self, position: int, name: str, fields: Fields) -> TensorValue:
        return self._sources.tensor(position, fields[name], self._most_bytes[name])

    def _stored(self, key: str) -> tuple[int, Fields] | None:
        """Where the row lies and its values; None when one of the 24 is not there (INV005 says so), or its unit is not."""
        plane, partition = self._plan.plane, self._plan.partition
        index = partition.keys[key]
        position, unit = self._unit_of(index)
        if unit is None:
            return None
        fields = dict(_values(unit, index))
        for name, value in fields.items():
            if not partition.is_produced(name, index):
                return None
            if (
                value.blob_name is not None
                and plane.blob_sizes.get((unit.file_name, value.blob_name)) != value.byte_count
            ):
                return None
        return (position, fields) if len(fields) == len(STAGED_FIELDS) else None

    def _stored_routes(self, key: str) -> Iterator[StoredValue]:
        index = self._plan.partition.keys[key]
        found = self._plan.plane.resolve_index(self._plan.partition, index, ROUTED_EXPERTS_FIELD)
        if found.verdict == "holds" and found.value is not None and found.value.kind == "tensor":
            yield found.value

    def _unit_of(self, index: int) -> tuple[int, StorageUnit | None]:
        units = self._plan.plane.units
        position = index % len(units) if units else 0
        return position, units[position] if units else None


def _not_read(path: str, error: DefectError | StorageError | FileNotFoundError) -> Part[StagedFacts]:
    if isinstance(error, DefectError):
        return Part(path, "unsupported" if error.is_unsupported else "damaged", None, error.defects)
    what = "it was deleted while it was being read" if isinstance(error, FileNotFoundError) else str(error)
    return Part(path, "unreadable", None, (Defect(f"`{path}`: {what}"),))


def _view_bytes(value: StoredValue) -> int:
    """The bytes of what a value shows, which are fewer than its storage's where a batch was put at once."""
    return math.prod(value.shape) * DTYPE_BYTES.get(value.dtype, 1)


def _values(unit: StorageUnit, index: int) -> Iterator[tuple[str, StoredValue]]:
    for name in STAGED_FIELDS:
        value = unit.rows.get(name, {}).get(index)
        if value is not None:
            yield name, value


def _tree(root: str, children: Mapping[str, list[str]]) -> Tree:
    """A root and all below it, a parent before its children."""
    found: dict[str, str | None] = {}
    pending: list[tuple[str, str | None]] = [(root, None)]
    while pending:
        key, parent = pending.pop()
        found[key] = parent
        pending.extend((child, key) for child in reversed(children.get(key, ())))
    return found
