"""Level full, the usual case: call chains of sound rows, some hundred rows at a time, read by column and hashed on all cores.

A chain in which anything is unusual (a value that is no plain tensor, routed experts, a digest that differs) is left to
`load_staged`, which visits one row after the other: this module is quick and decides nothing. Hashing needs no interpreter, so
threads are enough; reading stays in the calling one. The result does not depend on their number.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.staged import extras_digest
from ckptctl.domain.staged_facts import StagedFacts
from ckptctl.domain.staged_sound import Above, examine_sound
from ckptctl.formats.canonical_json import load_json
from ckptctl.workflows.staged_columns import ColumnReader, Located, rows_of

_BATCH_ROWS, _BATCH_BYTES = 128, 16 << 20
_MOST_TREE_ROWS = 4096
"""Of larger trees one row at a time is in memory, not all of them."""
_WAITING = 2
"""Batches that may wait for each thread, if there is room for them."""
PREFIX_RATIO = 256
"""Hashing all prefixes takes the square of a chain's length. Beyond this many times the ids themselves it is not done."""
_MOST_EXTRAS_KEPT = 1024
_NO_EXTRAS = b"null"
_PARENT = ("parent_call_id_present", "parent_call_id_utf8")
Tree = Mapping[str, str | None]
"""A root call and the calls below it, in the order of a visit: key -> parent's key (of the root: None)."""


class SoundRow(NamedTuple):
    """A row that is as it should be: its facts and unit, how many bytes they cover, and how many its cumulative hash took."""

    facts: StagedFacts
    position: int
    size_bytes: int
    prefix_bytes: int


SoundRows = Mapping[str, SoundRow]


class Batch(NamedTuple):
    """Trees that are examined together, their numbers, and where their rows lie."""

    numbers: Sequence[int]
    trees: Sequence[Tree]
    located: Sequence[Located]
    rows: Mapping[str, tuple[int, int]]

    @property
    def size_bytes(self) -> int:
        """Of all rows as they are stored."""
        return sum(size for _, size in self.rows.values())


def examine_trees(
    trees: Sequence[Tree], needed: frozenset[str], reader: ColumnReader, limits: Limits, jobs: int
) -> list[SoundRows | None]:
    """For each tree the facts of its rows, or None for one that is to be visited row by row. Never raises for what is stored."""
    found: list[SoundRows | None] = [None] * len(trees)
    for number, rows in examine_batches(locate_trees(trees, reader), needed, reader, limits, jobs):
        found[number] = rows
    return found


def examine_batches(
    batches: Iterable[Batch], needed: frozenset[str], reader: ColumnReader, limits: Limits, jobs: int
) -> Iterator[tuple[int, SoundRows | None]]:
    """As `examine_trees`, for rows that were located: (number of the tree, its rows), in the order of the batches."""
    extras = _Extras(limits)
    waiting: deque[tuple[Batch, Future[list[SoundRows | None]]]] = deque()
    with ThreadPoolExecutor(max(1, jobs), "staged-rows") as pool:
        for batch in batches:
            while waiting and not reader.has_room(batch.size_bytes):
                yield from _taken(*waiting.popleft())
            fields = _read(batch, reader)
            if fields is not None:
                waiting.append((batch, pool.submit(_examine_batch, batch, fields, needed, extras)))
            if len(waiting) > _WAITING * jobs:
                yield from _taken(*waiting.popleft())
        for batch, future in waiting:
            yield from _taken(batch, future)


def _taken(batch: Batch, future: Future[list[SoundRows | None]]) -> Iterator[tuple[int, SoundRows | None]]:
    return zip(batch.numbers, future.result(), strict=True)


def parent_calls(keys: Iterable[str], reader: ColumnReader) -> dict[str, str | None]:
    """The call that each row names as its parent's, or None for a root. Rows of which that is not easily told are left out."""
    found: dict[str, str | None] = {}
    for located in reader.locate(keys, _PARENT):
        for key, (flag, text) in (reader.read(located) or {}).items():
            try:
                found[key] = text.decode() if flag == b"\x01" else None
            except UnicodeDecodeError:
                found[key] = None  # the whole row will not decode either
    return found


def locate_trees(trees: Sequence[Tree], reader: ColumnReader) -> Iterator[Batch]:
    """The trees whose rows are all of the usual kind, some hundred rows together."""
    begin = 0
    while begin < len(trees):
        end, rows = begin, 0
        while end < len(trees) and (rows < _BATCH_ROWS or end == begin):
            rows += len(trees[end])
            end += 1
        yield from _located(range(begin, end), trees, reader)
        begin = end


def _located(numbers: Sequence[int], trees: Sequence[Tree], reader: ColumnReader) -> Iterator[Batch]:
    """These trees in as many batches as fit in memory, without those that are unusual or too large."""
    located = reader.locate(key for number in numbers if len(trees[number]) <= _MOST_TREE_ROWS for key in trees[number])
    rows = rows_of(located)
    if sum(size for _, size in rows.values()) > _BATCH_BYTES:
        if len(numbers) > 1:
            half = len(numbers) // 2
            yield from _located(numbers[:half], trees, reader)
            yield from _located(numbers[half:], trees, reader)
        return
    usual = [number for number in numbers if rows.keys() >= trees[number].keys()]
    if usual:
        yield Batch(usual, [trees[number] for number in usual], located, rows)


def _read(batch: Batch, reader: ColumnReader) -> dict[str, Sequence[bytes]] | None:
    """The stored bytes of each row in the order of FIELDS; None if some could not be read."""
    fields: dict[str, Sequence[bytes]] = {}
    for located in batch.located:
        found = reader.read(located)
        if found is None:
            return None
        fields.update(found)
    return fields


def _examine_batch(
    batch: Batch, fields: Mapping[str, Sequence[bytes]], needed: frozenset[str], extras: _Extras
) -> list[SoundRows | None]:
    return [_examine_tree(tree, batch, fields, needed, extras) for tree in batch.trees]


def _examine_tree(
    tree: Tree, batch: Batch, fields: Mapping[str, Sequence[bytes]], needed: frozenset[str], extras: _Extras
) -> SoundRows | None:
    found: dict[str, SoundRow] = {}
    ids_of: dict[str, tuple[array[int], ...]] = {}
    ids_bytes = prefixes_bytes = 0
    for key, parent in tree.items():
        above = Above(parent, found[parent].facts, ids_of[parent]) if parent is not None else None
        examined = examine_sound(key, fields[key], above, extras.digest_of, is_needed=key in needed)
        if examined is None:
            return None
        facts, ids = examined
        ids_of[key] = (*(above.ids if above is not None else ()), ids)
        position, size = batch.rows[key]
        prefix_bytes = 8 * facts.delta_len + (found[parent].prefix_bytes if parent is not None else 0)
        ids_bytes, prefixes_bytes = ids_bytes + 8 * facts.delta_len, prefixes_bytes + prefix_bytes
        if prefixes_bytes > PREFIX_RATIO * ids_bytes:
            return None
        found[key] = SoundRow(facts, position, size, prefix_bytes)
    return found


class _Extras:
    """Digests of stored extras; rows of one run mostly have the same few."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._digests: dict[bytes, bytes | None] = {_NO_EXTRAS: bytes.fromhex(extras_digest(None))}

    def digest_of(self, metadata: bytes) -> bytes | None:
        """The digest, or None for what is no object or has no typed encoding."""
        if metadata not in self._digests:
            digest = self._digest(metadata)
            if len(self._digests) >= _MOST_EXTRAS_KEPT:
                return digest
            self._digests[metadata] = digest
        return self._digests[metadata]

    def _digest(self, metadata: bytes) -> bytes | None:
        try:
            value = load_json(metadata, self._limits)
            return bytes.fromhex(extras_digest(value)) if value is None or isinstance(value, dict) else None
        except (DefectError, ValueError):
            return None
