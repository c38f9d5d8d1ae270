"""A field as columns answers as the mapping of its values does."""

from array import array

from ckptctl.domain.dataplane import StoredValue
from ckptctl.domain.tensor_column import ColumnBuilder, TensorColumn


def a_value(offset: int, length: int = 3, dtype: str = "int64") -> StoredValue:
    return StoredValue("tensor", dtype, (length,), (1,), 0, length, offset, None, 8 * length)


def built(values: dict[int, StoredValue], batch: int = 2) -> TensorColumn:
    builder, items = ColumnBuilder(), list(values.items())
    for begin in range(0, len(items), batch):
        indexes, stored = zip(*items[begin : begin + batch], strict=True)
        builder.add(indexes, stored)
    places = builder.places()
    assert places is not None
    return builder.column(places)


VALUES = {7: a_value(100), 2: a_value(200, 5), 9: a_value(90), 4: a_value(400, 3, "float32"), 1: a_value(500, 5)}


def test_it_is_the_mapping_that_went_in():
    """Order, values and what is not there."""
    column = built(VALUES)

    assert VALUES == column
    assert list(VALUES.items()) == list(column.items())
    assert list(VALUES.values()) == list(column.values())
    assert {2, 9} == column.keys() & {2, 3, 9}
    assert 7 in column
    assert (None, "x", VALUES[7]) == (column.get(3), column.get(3, "x"), column.get(7))
    assert 5 == len(column)
    assert sum(value.byte_count for value in VALUES.values()) == column.byte_count


def test_forms_are_asked_once_each():
    """Three forms; two rows are of the one that does not fit."""
    asked = []
    column = built(VALUES)

    assert {2, 1} == column.unlike(lambda form: asked.append(form) or form.shape == (3,))
    assert 3 == len(asked)
    assert frozenset() == column.unlike(lambda _: True)


def test_rows_are_picked_together():
    """Their forms and places; nothing if one is missing."""
    forms, offsets = built(VALUES).pick([4, 7, 1])

    assert [("float32", (3,)), ("int64", (3,)), ("int64", (5,))] == [(form.dtype, form.shape) for form in forms]
    assert [400, 100, 500] == offsets
    assert built(VALUES).pick([4, 3]) is None


def test_an_index_twice_has_no_places():
    """Whoever builds it says what is wrong."""
    builder = ColumnBuilder()
    builder.add([1, 2], [a_value(0), a_value(9)])
    builder.add([1], [a_value(20)])

    assert builder.places() is None
    assert array("Q", [1, 2, 1]).tobytes() == builder.indexes
