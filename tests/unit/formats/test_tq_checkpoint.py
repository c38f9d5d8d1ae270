"""Reading TransferQueue checkpoints: structure, kinds of values, and what is refused."""

from typing import Any

import pytest

from ckptctl.domain.dataplane import StoredValue, TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.pickle_machine import Call, Global
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.tq_checkpoint import (
    FIELD_CLASS,
    SSD_FORMAT,
    STATUS_CLASS,
    decode_controller_state,
    decode_metadata,
    decode_storage_unit,
    decode_unit_info,
    read_tensor,
)
from ckptctl.formats.tq_writer import encode_controller_state, encode_storage_unit, tensor_node
from tests.unit.formats.planes import a_state, ints

HOOKS = Call(Global("collections", "OrderedDict"), ())


def a_unit_tree(rows: dict[str, dict[int, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "storage_unit_id": "TQ_STORAGE_UNIT_0123abcd",
        "storage_unit_size": 100,
        "field_data": {"ids": {0: tensor_node(ints(7, 8, 9))}} if rows is None else rows,
        "active_keys": {0},
    } | changes


def unit_of(tree: Any):
    source = BytesSource(write_pickle(tree, 5))
    return decode_storage_unit(source, "su_0_x.pkl", DEFAULT_LIMITS), source


def value_of(node: Any) -> tuple[StoredValue, BytesSource]:
    unit, source = unit_of(a_unit_tree({"f": {0: node}}))
    return unit.rows["f"][0], source


def a_view(
    shape: tuple, stride: tuple, offset: int = 0, storage: TensorValue = ints(0, 1, 2, 3, 4, 5), *more: Any
) -> Call:
    node = tensor_node(storage)
    return Call(node.callee, (node.arguments[0], offset, shape, stride, False, HOOKS, *more))


def numbers(value: TensorValue) -> list[int]:
    return [int.from_bytes(value.data[at : at + 8], "little") for at in range(0, len(value.data), 8)]


# --- documents -------------------------------------------------------------------------------------------------------------------


def test_metadata_of_any_writer_is_read():
    """The binding is opaque here, null and unknown keys included."""
    assert {"a": 1} == decode_metadata(
        b'{"storage_saved": true, "user_metadata": {"a": 1}}', DEFAULT_LIMITS
    ).user_metadata
    assert decode_metadata(b'{"storage_saved": false, "more": 1}', DEFAULT_LIMITS).user_metadata is None


def test_unit_info_is_read_in_file_order():
    """Positions are not judged here."""
    data = b'[{"position": 1, "storage_unit_id": "b"}, {"position": 0, "storage_unit_id": "a"}]'

    assert [(1, "b"), (0, "a")] == [
        (unit.position, unit.storage_unit_id) for unit in decode_unit_info(data, DEFAULT_LIMITS)
    ]


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"{}", ""),
        (b"[1]", "[0]"),
        (b'[{"position": 0}]', "[0]"),
        (b'[{"position": true, "storage_unit_id": "a"}]', "[0].position"),
        (b'[{"position": -1, "storage_unit_id": "a"}]', "[0].position"),
        (b'[{"position": 0, "storage_unit_id": 1}]', "[0].storage_unit_id"),
        (b"[", "line 1 column 2"),
    ],
)
def test_a_damaged_unit_list_names_the_element(data, place):
    """Every wrong element is placed."""
    with pytest.raises(DefectError) as caught:
        decode_unit_info(data, DEFAULT_LIMITS)

    assert place == caught.value.defects[0].location


# --- units -----------------------------------------------------------------------------------------------------------------------


def test_a_tensor_is_described_without_its_bytes():
    """Dtype, shape and the place of the raw bytes."""
    value, source = value_of(tensor_node(ints(7, 8, 9)))

    assert ("tensor", "int64", (3,), (1,), 0, 3, 24) == (*value[:6], value.byte_count)
    assert ints(7, 8, 9).data == source.data[value.blob_offset : value.blob_offset + 24]
    assert ints(7, 8, 9) == read_tensor(source, value)


def test_unit_facts_are_taken_over():
    """Id, active keys, empty fields, and no limit on the size."""
    unit, _ = unit_of(a_unit_tree({"ids": {}, "é": {}}, storage_unit_size=None, active_keys=set()))

    assert ("su_0_x.pkl", "TQ_STORAGE_UNIT_0123abcd", frozenset(), False) == (
        unit.file_name,
        unit.unit_id,
        unit.active_keys,
        unit.has_ssd,
    )
    assert {"ids": {}, "é": {}} == unit.rows


@pytest.mark.parametrize(
    ("shape", "stride", "offset", "expected"),
    [
        ((), (), 4, [4]),
        ((2,), (1,), 3, [3, 4]),
        ((2,), (2,), 1, [1, 3]),
        ((2, 3), (3, 1), 0, [0, 1, 2, 3, 4, 5]),
        ((3, 2), (1, 3), 0, [0, 3, 1, 4, 2, 5]),
        ((2, 1, 2), (2, 99, 1), 1, [1, 2, 3, 4]),
        ((2, 2), (0, 1), 1, [1, 2, 1, 2]),
        ((2, 3), (1, 0), 4, [4, 4, 4, 5, 5, 5]),
        ((2, 2, 2), (1, 2, 1), 0, [0, 1, 2, 3, 1, 2, 3, 4]),
        ((0,), (1,), 6, []),
        ((3, 0, 2), (1, 1, 1), 0, []),
    ],
)
def test_views_are_made_contiguous(shape, stride, offset, expected):
    """Offset, size and stride select elements in row-major order."""
    value, source = value_of(a_view(shape, stride, offset))

    assert (shape, stride, offset, 6) == (value.shape, value.stride, value.element_offset, value.element_count)
    assert (shape, expected) == (read_tensor(source, value).shape, numbers(read_tensor(source, value)))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (a_view((7,), (1,)), "leaves its storage"),
        (a_view((2,), (1,), 5), "leaves its storage"),
        (a_view((2, 3), (4, 1)), "leaves its storage"),
        (a_view((), (), 6), "leaves its storage"),
        (a_view((0,), (1,), 7), "leaves its storage"),
        (a_view((2,), (-1,), 3), "negative or absurd"),
        (a_view((-2,), (1,)), "negative or absurd"),
        (a_view((2**63,), (0,)), "negative or absurd"),
        (a_view((1,) * 65, (1,) * 65), "negative or absurd"),
        (a_view((2,), (1,), -1), "offset of a tensor"),
        (a_view((2,), (1,), True), "offset of a tensor"),
        (a_view((2, 3), (1,)), "another number of strides"),
        (a_view((1 << 25,), (0,)), "absurdly often"),
        (a_view((True,), (1,)), "no sequence of whole numbers"),
        (a_view([2.0], (1,)), "no sequence of whole numbers"),
        (a_view((2,), (1,), 0, ints(1, 2), {}, {}), "another number of parts"),
        (Call(Global("torch._utils", "_rebuild_tensor_v2"), (b"raw", 0, (), (), False, HOOKS)), "has no storage"),
        (
            Call(
                Global("torch._utils", "_rebuild_tensor_v2"),
                (Call(Global("torch.storage", "_load_from_bytes"), ("x",)), 0, (), (), False, HOOKS),
            ),
            "no byte string",
        ),
        (Call(Global("torch._utils", "_rebuild_tensor_v2"), (), is_new=True), "this is no tensor"),
        (Call(Global("torch._utils", "_rebuild_tensor_v3"), ()), "another number of parts"),
    ],
)
def test_a_bad_view_is_refused(node, message):
    """Nothing outside the storage, backwards or without end; the place names field and index."""
    with pytest.raises(DefectError, match=message) as caught:
        value_of(node)

    assert caught.value.defects[0].location.startswith("field_data['f'][0]")


def test_a_damaged_stream_is_placed_by_field_and_offset():
    """Whoever reads the report finds the row and the byte."""
    node = Call(
        Global("torch._utils", "_rebuild_tensor_v2"),
        (Call(Global("torch.storage", "_load_from_bytes"), (bytes(300),)), 0, (), (), False, HOOKS),
    )

    with pytest.raises(DefectError) as caught:
        value_of(node)

    assert "field_data['f'][0], offset " in caught.value.defects[0].location


def test_a_size_may_be_a_torch_size_and_metadata_may_follow():
    """Forms that torch writes now and then."""
    node = a_view(Call(Global("torch", "Size"), ((2,),)), (1,), 0, ints(1, 2), {})
    value, _ = value_of(node)

    assert (2,) == value.shape


def an_untyped(dtype: Any) -> Call:
    stream = tensor_node(TensorValue("uint8", (4,), bytes(4))).arguments[0].arguments[0]
    stream = stream.replace(b"ctorch\nByteStorage", b"ctorch.storage\nUntypedStorage")
    storage = Call(Global("torch.storage", "_load_from_bytes"), (stream,))
    return Call(Global("torch._utils", "_rebuild_tensor_v3"), (storage, 0, (2,), (1,), False, HOOKS, dtype))


def test_newer_dtypes_are_opaque():
    """A uint16 or float8 tensor is recognised, never read."""
    value, source = value_of(an_untyped(Global("torch", "uint16")))

    assert ("opaque", "uint16", (2,)) == value[:3]
    with pytest.raises(DefectError, match="no elements to read"):
        read_tensor(source, value)
    with pytest.raises(DefectError, match="has no dtype"):
        value_of(an_untyped("uint16"))


def test_a_storage_kind_without_reader_is_opaque():
    """complex128 has a legacy storage, but this tool does not know its elements."""
    stream = tensor_node(TensorValue("complex64", (1,), bytes(8))).arguments[0].arguments[0]
    stream = stream.replace(b"ComplexFloatStorage", b"ComplexDoubleStorage") + bytes(8)
    node = Call(
        Global("torch._utils", "_rebuild_tensor_v2"),
        (Call(Global("torch.storage", "_load_from_bytes"), (stream,)), 0, (1,), (1,), False, HOOKS),
    )

    assert ("opaque", "ComplexDoubleStorage") == value_of(node)[0][:2]


@pytest.mark.parametrize(
    ("node", "kind", "byte_count"),
    [
        ("café", "text", 5),
        (b"raw", "bytes", 3),
        (bytes(1000), "bytes", 1000),
        (None, "other", 0),
        ({"turns": [1, None]}, "other", 0),
        (HOOKS, "other", 0),
    ],
)
def test_other_values_have_a_kind(node, kind, byte_count):
    """Text, bytes and objects are no tensors and no defects."""
    value, _ = value_of(node)

    assert (kind, byte_count) == (value.kind, value.byte_count)


def a_dtype(code: str, order: str = "<", state: Any = None) -> Call:
    state = (3, order, None, None, None, -1, -1, 0) if state is None else state
    return Call(Global("numpy", "dtype"), (code, False, True), state=state, has_state=True)


def an_array(data: Any, dtype: Any, shape: Any, order: Any = "C", core: str = "_core") -> Call:
    return Call(Global(f"numpy.{core}.numeric", "_frombuffer"), (data, dtype, shape, order))


def test_arrays_are_read_in_either_order():
    """C and Fortran order, new and old names of numpy's core."""
    data = ints(0, 1, 2, 3, 4, 5).data
    rows, source = value_of(an_array(data, a_dtype("i8"), (2, 3)))
    columns, other = value_of(an_array(data, a_dtype("i8"), (2, 3), "F", "core"))

    assert ("numpy", "int64", (2, 3), (3, 1)) == rows[:4]
    assert [0, 1, 2, 3, 4, 5] == numbers(read_tensor(source, rows))
    assert [0, 2, 4, 1, 3, 5] == numbers(read_tensor(other, columns))


def test_scalars_and_object_arrays_are_recognised():
    """A numpy scalar has its bytes; an object array has only its shape."""
    scalar, source = value_of(Call(Global("numpy._core.multiarray", "scalar"), (a_dtype("i8"), ints(5).data)))
    array = Call(
        Global("numpy._core.multiarray", "_reconstruct"),
        (Global("numpy", "ndarray"), (0,), b"b"),
        state=(1, (2,), a_dtype("O8", "|"), False, ["a", {"k": None}]),
        has_state=True,
    )

    assert [5] == numbers(read_tensor(source, scalar))
    assert ("numpy", "|O8", (2,)) == value_of(array)[0][:3]


def test_foreign_byte_orders_are_recognised_and_not_read():
    """Big-endian arrays keep numpy's own name."""
    value, source = value_of(an_array(bytes(8), a_dtype("i8", ">"), (1,)))

    assert ("numpy", ">i8") == value[:2]
    with pytest.raises(DefectError, match="no elements to read"):
        read_tensor(source, value)


@pytest.mark.parametrize(
    "node",
    [
        an_array(bytes(7), a_dtype("i8"), (1,)),
        an_array(bytes(8), a_dtype("i8"), (1,), "K"),
        an_array(bytes(8), a_dtype("i8"), "1"),
        an_array(bytes(8), "i8", (1,)),
        an_array(bytes(8), a_dtype("i8", state="<"), (1,)),
        Call(Global("numpy._core.multiarray", "scalar"), ()),
        Call(Global("numpy._core.multiarray", "_reconstruct"), (Global("numpy", "ndarray"), (0,), b"b")),
    ],
)
def test_arrays_that_do_not_add_up_are_refused(node):
    """Wrong sizes, orders and forms."""
    with pytest.raises(DefectError):
        value_of(node)


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        ([], ""),
        ({}, ""),
        (a_unit_tree(storage_unit_id=1), "storage_unit_id"),
        (a_unit_tree(storage_unit_size=-1), "storage_unit_size"),
        (a_unit_tree(storage_unit_size="x"), "storage_unit_size"),
        (a_unit_tree(active_keys=[0]), "active_keys"),
        (a_unit_tree(active_keys={"0"}), "active_keys"),
        (a_unit_tree(active_keys={-1}), "active_keys"),
        (a_unit_tree(field_data=[]), "field_data"),
        (a_unit_tree(field_data={1: {}}), "field_data"),
        (a_unit_tree(field_data={"f": []}), "field_data['f']"),
        (a_unit_tree(field_data={"f": {"0": 1}}), "field_data['f']"),
    ],
)
def test_a_unit_of_another_structure_is_refused(tree, place):
    """Every place of the structure is demanded."""
    with pytest.raises(DefectError) as caught:
        unit_of(tree)

    assert (place, False) == (caught.value.defects[0].location, caught.value.is_unsupported)


def test_an_unknown_attribute_is_another_transferqueue():
    """Not damage: whoever needs the unit could not run."""
    with pytest.raises(DefectError, match="another TransferQueue") as caught:
        unit_of(a_unit_tree(shards=3))

    assert caught.value.is_unsupported


@pytest.mark.parametrize("name", [("os", "system"), ("torch", "load"), ("transfer_queue.controller", "FieldMeta")])
def test_foreign_globals_are_refused(name):
    """A name outside the vocabulary is an error wherever it stands."""
    with pytest.raises(DefectError, match="names a global ckptctl does not know"):
        value_of({"deep": [Global(*name)]})


@pytest.mark.parametrize("cut", [0, 1, 20, 200, -1])
def test_a_truncated_unit_is_damage(cut):
    """A unit that ends early says so."""
    data = write_pickle(a_unit_tree(), 5)[:cut]

    with pytest.raises(DefectError):
        decode_storage_unit(BytesSource(data), "su_0_x.pkl", DEFAULT_LIMITS)


# --- offloaded rows --------------------------------------------------------------------------------------------------------------

BLOB = "0123456789abcdef0123456789abcdef.bin"


def an_entry(**changes: Any) -> dict[str, Any]:
    return {"filename": BLOB, "size_bytes": 24, "codec": "tensor", "dtype": "int64", "shape": (3,)} | changes


def offloaded(**changes: Any) -> StoredValue:
    unit, _ = unit_of(a_unit_tree(format=SSD_FORMAT, ssd_index={"big": {0: an_entry(**changes)}}))

    assert unit.has_ssd
    return unit.rows["big"][0]


def test_an_offloaded_tensor_is_read_from_its_blob():
    """The blob holds the raw bytes from its beginning."""
    value = offloaded()

    assert ("tensor", "int64", (3,), (1,), BLOB, 24) == (*value[:4], value.blob_name, value.byte_count)
    assert ints(1, 2, 3) == read_tensor(BytesSource(ints(1, 2, 3).data), value)
    with pytest.raises(DefectError, match="shorter"):
        read_tensor(BytesSource(bytes(23)), value)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"codec": "numpy", "dtype": a_dtype("i8")}, "numpy"),
        ({"codec": "numpy", "dtype": a_dtype("U3")}, "numpy"),
        ({"codec": "bytes", "dtype": None, "shape": None}, "bytes"),
        ({"codec": "pickle", "dtype": None, "shape": None}, "opaque"),
        ({"dtype": "float8_e4m3fn"}, "opaque"),
    ],
)
def test_codecs_decide_the_kind(changes, kind):
    """A pickled blob is opaque and is never looked at."""
    assert kind == offloaded(**changes).kind


@pytest.mark.parametrize(
    "changes",
    [
        {"filename": "../x.bin"},
        {"filename": ".."},
        {"filename": ""},
        {"filename": "a\x1b.bin"},
        {"filename": "x" * 600},
        {"filename": 1},
        {"size_bytes": 23},
        {"size_bytes": -1},
        {"size_bytes": True},
        {"codec": "zip"},
        {"codec": []},
        {"dtype": None},
        {"shape": None},
        {"shape": (-3,)},
        {"codec": "numpy"},
    ],
)
def test_a_bad_offload_entry_is_refused(changes):
    """Names that are paths, sizes that do not fit, unknown codecs."""
    with pytest.raises(DefectError) as caught:
        offloaded(**changes)

    assert "ssd_index['big'][0]" == caught.value.defects[0].location


def test_offload_tables_are_checked():
    """A row in two places, an entry without form, a format from the future, a table without its format."""
    with pytest.raises(DefectError, match="both in the unit and in a blob"):
        unit_of(a_unit_tree(format=SSD_FORMAT, ssd_index={"ids": {0: an_entry()}}))
    with pytest.raises(DefectError, match="not described"):
        unit_of(a_unit_tree(format=SSD_FORMAT, ssd_index={"ids": {1: {}}}))
    with pytest.raises(DefectError, match="format") as caught:
        unit_of(a_unit_tree(format="v2", ssd_index={}))
    assert caught.value.is_unsupported
    with pytest.raises(DefectError, match="another TransferQueue"):
        unit_of(a_unit_tree(ssd_index={}))


def test_reading_a_unit_does_not_keep_tensor_bytes():
    """8 MiB of tensor: what is kept of it is a few numbers, and its data is stepped over."""

    class Counting(BytesSource):
        touched = 0

        def read_at(self, offset, count):
            type(self).touched += count
            return self.data[offset : offset + count]

    big = TensorValue("uint8", (8 << 20,), bytes(8 << 20))
    source = Counting(encode_storage_unit("u", None, {"f": {0: big}}, {0}))
    unit = decode_storage_unit(source, "su_0_u.pkl", DEFAULT_LIMITS)

    assert (8 << 20,) == unit.rows["f"][0].shape
    assert Counting.touched < 1 << 20


# --- controller ------------------------------------------------------------------------------------------------------------------


def controller_tree(**changes: Any) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "controller_id": "TQ_CONTROLLER_0123abcd",
        "partitions": {"p": status()},
        "index_manager": {
            "partition_to_indexes": {"p": {0}},
            "reusable_indexes": [],
            "global_index_counter": 1,
            "allocated_indexes": {0},
        },
        "sampler": {"_states": {}},
    }
    return tree | changes


def status(**changes: Any) -> Call:
    state: dict[str, Any] = {
        "partition_id": "p",
        "created_at": 1.5,
        "production_status": tensor_node(TensorValue("int8", (1, 1), b"\1")),
        "consumption_status": {"train": tensor_node(TensorValue("int8", (1,), b"\0"))},
        "global_indexes": {0},
        "pre_allocated_global_indexes": set(),
        "field_name_mapping": {"f": 0},
        "field_metadata": {"f": meta()},
        "field_custom_backend_meta": {},
        "custom_meta": {0: {"weight_version": 3}},
        "keys_mapping": {"k": 0},
        "revert_keys_mapping": {0: "k"},
    }
    return Call(Global(*STATUS_CLASS), (), is_new=True, state=state | changes, has_state=True)


def meta(**changes: Any) -> Call:
    state = {
        "global_indexes": {0},
        "dtype": Global("torch", "int64"),
        "shape": [1],
        "is_nested": False,
        "is_non_tensor": False,
        "per_sample_shapes": {},
    }
    return Call(Global(*FIELD_CLASS), (), is_new=True, state=state | changes, has_state=True)


def state_of(tree: Any):
    return decode_controller_state(BytesSource(write_pickle(tree, 5)), DEFAULT_LIMITS)


def test_a_controller_state_is_read():
    """Every attribute that a rule needs."""
    partition = state_of(controller_tree()).partitions["p"]

    assert (b"\1", 1, 1) == (partition.production, partition.production_rows, partition.production_columns)
    assert partition.is_produced("f", 0)
    assert ({"k": 0}, {0: "k"}, {"train": b"\0"}) == (partition.keys, partition.reverse_keys, partition.consumed)
    assert ({0: {"weight_version": 3}}, "int64", (1,)) == (
        partition.tags,
        partition.field_metas["f"].dtype,
        partition.field_metas["f"].shape,
    )


def test_shapes_may_be_tuples_sizes_or_absent():
    """What TransferQueue leaves there after fields lost rows."""
    metas = {
        "tuple": meta(shape=(2, 3), per_sample_shapes={0: (2, 3), 1: None}),
        "size": meta(shape=Call(Global("torch", "Size"), ((4,),))),
        "none": meta(shape=None, dtype=None, is_nested=None, is_non_tensor=None),
    }
    found = state_of(controller_tree(partitions={"p": status(field_metadata=metas)})).partitions["p"].field_metas

    assert [(2, 3), (4,), None] == [found[name].shape for name in metas]
    assert {0: (2, 3)} == found["tuple"].sample_shapes


def test_tags_may_hold_anything():
    """Plain data stays; what is no plain data is shown by name, so that a comparison fails instead of the reading."""
    tag = {
        "a": [1, (2.5, None)],
        "m": {"x": HOOKS},
        "b": b"raw",
        "B": bytes(999),
        "t": tensor_node(ints(1)),
        "g": Global("torch", "int64"),
    }
    found = state_of(controller_tree(partitions={"p": status(custom_meta={0: tag})})).partitions["p"].tags[0]

    assert {"a": [1, [2.5, None]], "m": {"x": {}}, "b": b"raw", "B": "<999 bytes>"} == {
        name: found[name] for name in "amb" + "B"
    }
    assert ("<torch._utils._rebuild_tensor_v2>", "<Global>") == (found["t"], found["g"])


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        (None, ""),
        ({"controller_id": "x"}, ""),
        (controller_tree(controller_id=None), "controller_id"),
        (controller_tree(sampler=None), "sampler"),
        (controller_tree(partitions=[]), "partitions"),
        (controller_tree(partitions={"p": {}}), "partitions['p']"),
        (controller_tree(partitions={"p": Call(Global(*STATUS_CLASS), ())}), "partitions['p']"),
        (controller_tree(partitions={"p": meta()}), "partitions['p']"),
        (controller_tree(index_manager={}), "index_manager"),
    ]
    + [
        (controller_tree(index_manager=controller_tree()["index_manager"] | {name: value}), f"index_manager.{name}")
        for name, value in [
            ("reusable_indexes", {0}),
            ("reusable_indexes", [True]),
            ("global_index_counter", -1),
            ("allocated_indexes", []),
            ("partition_to_indexes", {0: set()}),
        ]
    ]
    + [
        (controller_tree(partitions={"p": status(**{name: value})}), f"partitions['p'].{place or name}")
        for name, value, place in [
            ("partition_id", 3, ""),
            ("created_at", "now", ""),
            ("production_status", None, ""),
            ("production_status", tensor_node(TensorValue("int8", (1,), b"\1")), ""),
            ("production_status", tensor_node(TensorValue("uint8", (1, 1), b"\1")), ""),
            ("consumption_status", {"t": 1}, "consumption_status['t']"),
            ("consumption_status", {1: 1}, ""),
            ("global_indexes", [0], ""),
            ("pre_allocated_global_indexes", {"0"}, ""),
            ("field_name_mapping", {"f": "0"}, ""),
            ("field_name_mapping", {"f": True}, ""),
            ("field_metadata", {"f": 1}, "field_metadata['f']"),
            ("field_metadata", {"f": meta(dtype="int64")}, "field_metadata['f'].dtype"),
            ("field_metadata", {"f": meta(dtype=Global("torch", "Size"))}, "field_metadata['f'].dtype"),
            ("field_metadata", {"f": meta(shape=3)}, "field_metadata['f'].shape"),
            ("field_metadata", {"f": meta(is_nested=1)}, "field_metadata['f'].is_nested"),
            ("field_custom_backend_meta", None, ""),
            ("custom_meta", {0: []}, "custom_meta[0]"),
            ("custom_meta", {"0": {}}, ""),
            ("keys_mapping", {0: 0}, ""),
            ("keys_mapping", {"k": -1}, ""),
            ("revert_keys_mapping", {0: 0}, "revert_keys_mapping[0]"),
        ]
    ],
)
def test_a_controller_of_another_structure_is_refused(tree, place):
    """Every place of the structure is demanded, and named."""
    with pytest.raises(DefectError) as caught:
        state_of(tree)

    assert place == caught.value.defects[0].location


def test_status_bits_cannot_outgrow_their_file():
    """A few bytes seen as millions of bits, many times over, would fill the memory."""
    node = tensor_node(TensorValue("int8", (1,), b"\1"))
    wide = Call(node.callee, (node.arguments[0], 0, (1 << 20,), (0,), False, HOOKS))

    with pytest.raises(DefectError, match="longer than the file"):
        state_of(controller_tree(partitions={"p": status(consumption_status={"t": wide})}))


def test_an_attribute_of_a_newer_transferqueue_is_not_damage():
    """Also inside partitions."""
    with pytest.raises(DefectError, match="another TransferQueue") as caught:
        state_of(controller_tree(partitions={"p": status(shard=1)}))

    assert caught.value.is_unsupported


def test_what_the_writer_writes_is_read():
    """The whole state of a small plane, and the same bytes each time."""
    state = a_state()
    data = encode_controller_state(state)

    assert state == decode_controller_state(BytesSource(data), DEFAULT_LIMITS)
    assert data == encode_controller_state(state)
    assert data[:13].startswith(b"\x80\x05\x95")
