"""One field of a storage unit as columns: where each tensor lies, and which of a few forms it has.

A unit of a million rows has two dozen such fields. As a StoredValue each value takes some 200 bytes, here it takes 12: values of
one field differ in their place in the file, and for some fields in length. Whoever asks for one gets its StoredValue.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, TypeVar, overload

from ckptctl.domain.dataplane import StoredValue

T = TypeVar("T")
_OFFSET = StoredValue._fields.index("blob_offset")
_form_of = itemgetter(*(place for place in range(len(StoredValue._fields)) if place != _OFFSET))
_stored_value = partial(tuple.__new__, StoredValue)


class TensorColumn(Mapping[int, StoredValue]):
    """The tensors of one field by global index; they lie in the unit's own file. `places`: index -> place in the columns."""

    __slots__ = ("_form_ids", "_forms", "_offsets", "_places")

    def __init__(
        self, places: dict[int, int], forms: Sequence[StoredValue], form_ids: array[int], offsets: array[int]
    ) -> None:
        self._places, self._forms, self._form_ids, self._offsets = places, forms, form_ids, offsets

    def __getitem__(self, index: int) -> StoredValue:
        return self._at(self._places[index])

    def _at(self, place: int) -> StoredValue:
        form = self._forms[self._form_ids[place]]
        return _stored_value((*form[:_OFFSET], self._offsets[place], *form[_OFFSET + 1 :]))

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __contains__(self, index: object) -> bool:
        return index in self._places

    @overload
    def get(self, key: int, /) -> StoredValue | None: ...
    @overload
    def get(self, key: int, /, default: StoredValue | T) -> StoredValue | T: ...
    def get(self, key: int, /, default: StoredValue | T | None = None) -> StoredValue | T | None:
        """The value of a row, or `default`."""
        place = self._places.get(key)
        return default if place is None else self._at(place)

    def keys(self) -> KeysView[int]:
        """The global indexes."""
        return self._places.keys()

    def items(self) -> ItemsView[int, StoredValue]:
        """Index and value of each row; every value is made anew."""
        return ItemsView(self)

    def unlike(self, fits: Callable[[StoredValue], bool]) -> frozenset[int]:
        """The indexes of values of which `fits` is false; it is asked once for each form, and may not look at the place."""
        wrong = {number for number, form in enumerate(self._forms) if not fits(form)}
        if not wrong:
            return frozenset()
        return frozenset(index for index, place in self._places.items() if self._form_ids[place] in wrong)

    def pick(self, indexes: Sequence[int]) -> tuple[list[StoredValue], Sequence[int]] | None:
        """Form (a StoredValue whose place means nothing) and offset of each row, or None if one of them is not there."""
        places = list(map(self._places.get, indexes))
        if None in places:
            return None
        return (
            [self._forms[self._form_ids[place]] for place in places if place is not None],
            [self._offsets[place] for place in places if place is not None],
        )

    @property
    def byte_count(self) -> int:
        """The bytes of all tensors together."""
        return sum(self._forms[number].byte_count for number in self._form_ids)


class ColumnBuilder:
    """A column while it is being read."""

    __slots__ = ("_form_ids", "_forms", "_indexes", "_numbers", "_offsets")

    def __init__(self) -> None:
        self._indexes, self._offsets, self._form_ids = array("Q"), array("Q"), array("I")
        self._forms: list[StoredValue] = []
        self._numbers: dict[tuple[Any, ...], int] = {}

    def add(self, indexes: Sequence[int], values: Sequence[StoredValue]) -> None:
        """Some more rows."""
        forms = list(map(_form_of, values))
        first = forms[0]
        if forms.count(first) == len(forms):
            self._form_ids.extend([self._number(first, values[0])] * len(forms))
        else:
            self._form_ids.extend(map(self._number, forms, values))
        self._indexes.extend(indexes)
        self._offsets.extend(value.blob_offset for value in values)

    def _number(self, form: tuple[Any, ...], value: StoredValue) -> int:
        number = self._numbers.get(form)
        if number is None:
            number = self._numbers[form] = len(self._forms)
            self._forms.append(value)
        return number

    @property
    def indexes(self) -> bytes:
        """The indexes in their order, to be compared with another column's."""
        return self._indexes.tobytes()

    def places(self) -> dict[int, int] | None:
        """Index -> place; None if one is there twice."""
        found = dict(zip(self._indexes, range(len(self._indexes)), strict=True))
        return found if len(found) == len(self._indexes) else None

    def column(self, places: dict[int, int]) -> TensorColumn:
        """The column; columns with the same indexes share their places."""
        return TensorColumn(places, self._forms, self._form_ids, self._offsets)
