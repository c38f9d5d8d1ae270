"""What is kept apart while a pickle is read: nothing gets lost, nothing is taken twice, and damage is told as without it."""

from __future__ import annotations

import pytest

from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.domain.tensor_column import TensorColumn
from ckptctl.formats.tq_checkpoint import decode_controller_state, decode_storage_unit, read_controller, read_unit
from ckptctl.formats.tq_columns import IndexSets, ShapeColumn
from ckptctl.formats.tq_runs import TensorRuns
from tests.builders import a_snapshot_files
from tests.queue_pickles import Made, pickled

UNIT_ID = "TQ_STORAGE_UNIT_00000000"


def unit(field_data) -> bytes:
    """A unit with this as its field data; what is a TensorValue is pickled as TransferQueue does."""
    tree = {"storage_unit_id": UNIT_ID, "storage_unit_size": None, "field_data": field_data, "active_keys": {1, 2}}
    return pickled(tree)


def scalars(count: int, start: int = 0) -> dict[int, TensorValue]:
    return {index: TensorValue("int64", (), bytes(8)) for index in range(start, start + count)}


def test_fields_with_the_same_rows_share_where_they_are():
    """Two dozen fields of a unit mostly have the same indexes."""
    fields = {name: scalars(2500) for name in "abc"}
    found = decode_storage_unit(BytesSource(unit(fields)), "x", DEFAULT_LIMITS)
    a, b, c = (found.rows[name] for name in "abc")

    assert isinstance(b, TensorColumn)
    assert b._places is c._places
    assert list(range(2500)) == list(b) == sorted(a)


@pytest.mark.parametrize("where", [0, 1200, 2499])
def test_one_odd_value_among_many(where):
    """Text, or nothing, or a number: the field is that of a plain mapping, with all its rows."""
    rows = {"a": {**scalars(2500), where: "text"}, "b": scalars(2500)}
    found = decode_storage_unit(BytesSource(unit(rows)), "x", DEFAULT_LIMITS)

    assert set(range(2500)) == found.rows["a"].keys()
    assert "text" == found.rows["a"][where].kind
    assert ["tensor"] * 2499 == [value.kind for index, value in found.rows["a"].items() if index != where]


def doubled(data: bytes) -> bytes:
    """The same unit with one index standing in the first and in the second thousand."""
    late = data.index(b"M" + (1500).to_bytes(2, "little"))
    return data[: late + 1] + (500).to_bytes(2, "little") + data[late + 3 :]


def test_an_index_that_is_there_twice():
    """The machine says so, with the place."""
    with pytest.raises(DefectError, match="a mapping has a key twice") as caught:
        decode_storage_unit(BytesSource(doubled(unit({"a": scalars(2500)}))), "x", DEFAULT_LIMITS)

    assert caught.value.defects[0].location.startswith("offset ")


@pytest.mark.parametrize("field_data", [scalars(40), {"a": {3: scalars(40)}}, {"a": {**scalars(9), 30: scalars(5)}}])
def test_tensors_where_none_belong(field_data):
    """A mapping that stays empty in the tree is not taken for an empty one."""
    data = BytesSource(unit(field_data))
    with pytest.raises(DefectError):
        read_unit(data, "x", DEFAULT_LIMITS, TensorRuns())
    slow, quick = (
        outcome(lambda: read_unit(data, "x", DEFAULT_LIMITS, None)),
        outcome(lambda: decode_storage_unit(data, "x", DEFAULT_LIMITS)),
    )

    assert slow == quick


def outcome(read):
    try:
        return read()
    except DefectError as error:
        return error.defects


def test_equal_sets_are_kept_once():
    """As a controller has them for each of its fields; what is added to one later does not reach the others."""
    sets = IndexSets()
    one, two, three = set(), set(), set()
    for target in (one, two, three):
        assert [] == sets.keep(target, [1, 2, 300])
    for target, values in ((one, [4]), (three, ["x"]), (three, [-1]), ([], [1]), (three, [True]), (three, [])):
        assert values == sets.keep(target, values)

    assert frozenset({1, 2, 300}) == sets.items_of(one)
    assert sets.items_of(one) is sets.items_of(two) is sets.items_of(three)
    assert frozenset() == sets.items_of(set())


def test_a_controller_keeps_its_sets():
    """All fields' tables of the builders' world, and they are the same object where they are equal."""
    files = a_snapshot_files()
    state = decode_controller_state(BytesSource(files["data_plane/controller_state.pkl"]), DEFAULT_LIMITS)
    staging = state.partitions["rollout_staging"]
    tables = [meta.global_indexes for meta in staging.field_metas.values()]

    assert staging.global_indexes == tables[0] != frozenset()
    assert all(table is tables[0] for table in tables)


def a_controller(shapes, tags=None) -> bytes:
    """A controller state with one ragged field, by the standard pickler."""
    meta = {"global_indexes": {1}, "dtype": None, "shape": [3], "is_nested": True, "is_non_tensor": False}
    status = {
        "partition_id": "p",
        "created_at": 1.0,
        "production_status": TensorValue("int8", (1, 1), b"\0"),
        "consumption_status": {},
        "global_indexes": set(),
        "pre_allocated_global_indexes": set(),
        "field_name_mapping": {"f": 0},
        "field_metadata": {"f": Made("FieldMeta", {**meta, "per_sample_shapes": shapes})},
        "field_custom_backend_meta": {},
        "custom_meta": tags or {},
        "keys_mapping": {},
        "revert_keys_mapping": {},
    }
    manager = {
        "partition_to_indexes": {},
        "reusable_indexes": [],
        "global_index_counter": 1,
        "allocated_indexes": set(),
    }
    partitions = {"p": Made("DataPartitionStatus", status)}
    return pickled({"controller_id": "c", "partitions": partitions, "index_manager": manager, "sampler": {}})


def both_ways(data: bytes):
    """The state, or what is wrong, with and without short lists."""
    source = BytesSource(data)
    quick = outcome(lambda: decode_controller_state(source, DEFAULT_LIMITS))
    slow = outcome(lambda: read_controller(source, DEFAULT_LIMITS, has_short_lists=False))
    return quick, slow


def test_shapes_of_rows():
    """A column where all have one dimension, whatever the width of the numbers and wherever a frame ends."""
    shapes = {index: [index % 300 if index % 7 else 70_000] for index in range(30_000)}
    quick, slow = both_ways(a_controller(shapes))
    found = quick.partitions["p"].field_metas["f"].sample_shapes

    assert slow == quick
    assert isinstance(found, ShapeColumn)
    assert {index: tuple(shape) for index, shape in shapes.items()} == found


@pytest.mark.parametrize(
    "odd", [[1, 2], [], None, (5,), ["x"], [-1], [True], 5, [[1]], [2**40]], ids=lambda odd: str(odd)
)
@pytest.mark.parametrize("where", [0, 1500, 2999])
def test_one_odd_shape(odd, where):
    """Two dimensions, none, or something that is no shape: state or defect are the opcode machine's."""
    shapes = {index: [index % 50] for index in range(3000)} | {where: odd}
    quick, slow = both_ways(a_controller(shapes))

    assert slow == quick


def test_shapes_where_none_belong():
    """A mapping that stays empty in the tree is not taken for an empty one."""
    quick, slow = both_ways(a_controller({}, tags={index: [3] for index in range(10)}))

    assert slow == quick
    assert "a mapping" == slow[0].expected


def test_a_list_that_is_recalled():
    """One list for two rows: it is in the memo, so the whole is read again."""
    shape = [7]
    quick, slow = both_ways(a_controller({index: [4] for index in range(50)} | {50: shape, 51: shape}))

    assert slow == quick
    assert (7,) == quick.partitions["p"].field_metas["f"].sample_shapes[51]
