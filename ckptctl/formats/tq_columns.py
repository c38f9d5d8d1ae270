"""Keeps the values of large containers of TransferQueue's pickles as columns while they are read, not as objects.

In the tree that the opcode machine builds such a container stays empty, so that whatever refers to it finds the one container;
what belongs into it is asked for here afterwards. Decides nothing: a container in which anything is unusual is the machine's,
and of an index that is there twice whoever asks is told, so that the machine says it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any

from ckptctl.domain.dataplane import StoredValue
from ckptctl.domain.tensor_column import ColumnBuilder, TensorColumn

_MOST_INDEX = 2**63 - 1


class TensorColumns:
    """Mappings from whole numbers to tensors that a shortcut took."""

    __slots__ = ("_builders", "_claimed", "_places")

    def __init__(self) -> None:
        self._builders: dict[int, tuple[dict[Any, Any], ColumnBuilder]] = {}
        self._claimed: set[int] = set()
        self._places: tuple[bytes, dict[int, int]] | None = None

    def keep(self, target: Any, values: list[Any]) -> list[Any]:
        """Keep what is a tensor of these pairs of `target`; gives the rest of them."""
        if type(target) is not dict or len(values) % 2:
            return values
        indexes, stored = values[0::2], values[1::2]
        kinds = set(map(type, stored))
        if StoredValue not in kinds or {int} != set(map(type, indexes)):
            return values
        if min(indexes) < 0 or max(indexes) > _MOST_INDEX:
            return values
        rest: list[Any] = []
        if len(kinds) > 1:  # the first tensor of a file is never taken by the shortcut
            pairs = list(zip(indexes, stored, strict=True))
            rest = [one for pair in pairs if type(pair[1]) is not StoredValue for one in pair]
            indexes = [index for index, value in pairs if type(value) is StoredValue]
            stored = [value for value in stored if type(value) is StoredValue]
        self._builders.setdefault(id(target), (target, ColumnBuilder()))[1].add(indexes, stored)
        return rest

    @property
    def are_claimed(self) -> bool:
        """Whether all that was kept stood where it was asked for."""
        return self._claimed == self._builders.keys()

    def column_of(self, target: dict[Any, Any], more: Mapping[int, StoredValue]) -> TensorColumn | None:
        """What was kept of a mapping, with `more` tensors; None if nothing was. Raises KeyError for an index there twice."""
        if id(target) not in self._builders:
            return None
        builder = self._builders[id(target)][1]
        if id(target) not in self._claimed and more:
            builder.add(list(more), list(more.values()))
        self._claimed.add(id(target))
        indexes = builder.indexes
        if self._places is None or self._places[0] != indexes:
            places = builder.places()
            if places is None:
                raise KeyError
            self._places = (indexes, places)
        return builder.column(self._places[1])


class IndexSets:
    """Sets of whole numbers. A controller has the same ones for each of its fields: equal ones are kept once."""

    __slots__ = ("_frozen", "_known", "_latest", "_sets")

    def __init__(self) -> None:
        self._sets: dict[int, tuple[set[Any], array[int]]] = {}
        self._latest: int | None = None
        self._known: dict[int, array[int]] = {}
        self._frozen: dict[bytes, frozenset[int]] = {}

    def keep(self, target: Any, values: list[Any]) -> list[Any]:
        """Keep these items of `target`, if all are indexes; gives those that are not kept."""
        if type(target) is not set or {int} != set(map(type, values)):
            return values
        if min(values) < 0 or max(values) > _MOST_INDEX:
            return values
        if self._latest != id(target):
            if id(target) in self._sets:
                return values  # its items may be those of another set by now
            self._settle()
            self._latest = id(target)
            self._sets[id(target)] = (target, array("Q"))
        self._sets[id(target)][1].extend(values)
        return []

    def _settle(self) -> None:
        """The set before this one gets no more items: if there is an equal one, they are kept once."""
        if self._latest is not None:
            target, items = self._sets[self._latest]
            known = self._known.setdefault(hash(items.tobytes()), items)
            if known == items:
                self._sets[self._latest] = (target, known)

    def items_of(self, target: set[Any]) -> frozenset[int]:
        """What was kept of a set."""
        if id(target) not in self._sets:
            return frozenset()
        items = self._sets[id(target)][1]
        key = items.tobytes()
        if key not in self._frozen:
            self._frozen[key] = frozenset(items)
        return self._frozen[key]


class ShapeColumn(Mapping[int, tuple[int, ...]]):
    """The shapes of one field's rows, each of one dimension. `places`: global index -> place."""

    __slots__ = ("_lengths", "_places")

    def __init__(self, places: dict[int, int], lengths: array[int]) -> None:
        self._places, self._lengths = places, lengths

    def __getitem__(self, index: int) -> tuple[int, ...]:
        return (self._lengths[self._places[index]],)

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class ShapeColumns:
    """Mappings from whole numbers to shapes of one dimension."""

    __slots__ = ("_claimed", "_kept", "_places")

    def __init__(self) -> None:
        self._kept: dict[int, tuple[dict[Any, Any], array[int], array[int]]] = {}
        self._claimed: set[int] = set()
        self._places: tuple[array[int], dict[int, int]] = (array("Q"), {})

    def keep(self, target: Any, values: list[Any]) -> list[Any]:
        """Keep these pairs of `target`, if all are such; gives those that are not kept."""
        if type(target) is not dict or len(values) % 2:
            return values
        indexes, shapes = values[0::2], values[1::2]
        if {int} != set(map(type, indexes)) or not {tuple, list}.issuperset(map(type, shapes)):
            return values
        if {1} != set(map(len, shapes)):
            return values
        lengths = [shape[0] for shape in shapes]
        if {int} != set(map(type, lengths)):
            return values
        if min(*indexes, *lengths) < 0 or max(*indexes, *lengths) > _MOST_INDEX:
            return values
        _, known, column = self._kept.setdefault(id(target), (target, array("Q"), array("Q")))
        known.extend(indexes)
        column.extend(lengths)
        return []

    @property
    def are_claimed(self) -> bool:
        """Whether all that was kept stood where it was asked for."""
        return self._claimed == self._kept.keys()

    def column_of(self, target: dict[Any, Any]) -> ShapeColumn | None:
        """What was kept of a mapping, or None. Raises KeyError for an index there twice."""
        if id(target) not in self._kept:
            return None
        self._claimed.add(id(target))
        _, indexes, lengths = self._kept[id(target)]
        if self._places[0] != indexes:
            places = dict(zip(indexes, range(len(indexes)), strict=True))
            if len(places) < len(indexes):
                raise KeyError
            self._places = (indexes, places)
        return ShapeColumn(self._places[1], lengths)
