"""Dataloader state and reserve: tensors inside the archive, small ones read, nothing decoded of the reserve."""

import struct
from dataclasses import replace

import pytest

from ckptctl.domain.dataplane import StoredValue, TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats import zip_tensor
from ckptctl.formats.dataloader_file import decode_dataloader, encode_dataloader, encode_reserve, inspect_reserve
from ckptctl.formats.pickle_machine import Call, Global, PersistentId
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.torch_zip import write_torch_zip
from ckptctl.formats.zip_tensor import tensor_tree

REBUILD = Global("torch._utils", "_rebuild_tensor_v2")
ORDERED = Global("collections", "OrderedDict")
BYTES = Global("torch", "ByteStorage")
HOOKS = Call(ORDERED, ())


def storage(
    kind: Global = BYTES, key: object = "0", count: object = 6, place: str = "cpu", word: str = "storage"
) -> PersistentId:
    return PersistentId((word, kind, key, place, count))


def tensor(
    source: object = None, offset: object = 0, shape: object = (6,), stride: object = (1,), *rest: object
) -> Call:
    return Call(REBUILD, (storage() if source is None else source, offset, shape, stride, *(rest or (False, HOOKS))))


def decode(tree: object, tensors: dict[str, bytes] | None = None):
    data = write_torch_zip(write_pickle(tree, 2), {"0": b"abcdef"} if tensors is None else tensors)
    return decode_dataloader(BytesSource(data), DEFAULT_LIMITS)


STATE = {
    "_sampler_iter_state": {"yielded": 20, "generator": TensorValue("uint8", (5056,), bytes(5056))},
    "_iterator_finished": False,
    "_shared_seed": None,
    "rng": (3, (1, 2, 3), 0.5),
    "workers": [{"worker_0": {"n": -1}}, "text"],
    "shapes": [TensorValue("int64", (), struct.pack("<q", 7)), TensorValue("float32", (0, 3), b"")],
}


def test_what_is_written_is_what_is_read():
    """Plain values and tensors of any shape; the same state gives the same bytes."""
    data = encode_dataloader(STATE)

    assert STATE == decode_dataloader(BytesSource(data), DEFAULT_LIMITS)
    assert data == encode_dataloader(STATE)


def test_views_are_gathered():
    """Offset, shape and stride select elements of the storage."""
    found = decode({"row": tensor(offset=1, shape=(2, 2), stride=(3, 1)), "column": tensor(shape=(3,), stride=(2,))})

    assert TensorValue("uint8", (2, 2), b"bcef") == found["row"]
    assert TensorValue("uint8", (3,), b"ace") == found["column"]


def test_ordered_mappings_are_mappings():
    """A dataloader's own state may hold OrderedDicts."""
    assert {"a": {"b": [1]}, "e": {}} == decode({"a": Call(ORDERED, (), entries={"b": [1]}), "e": HOOKS})


def test_tensors_with_metadata_have_a_seventh_part():
    """Newer torch appends a mapping of attributes."""
    assert b"abcdef" == decode({"t": tensor(None, 0, (6,), (1,), False, HOOKS, {})})["t"].data


def test_large_tensors_are_described(monkeypatch):
    """Bytes are read of small tensors, and of all together no more than a budget."""
    large = TensorValue("float32", (20_000,), bytes(80_000))
    found = decode_dataloader(BytesSource(encode_dataloader({"large": large})), DEFAULT_LIMITS)["large"]
    monkeypatch.setattr(zip_tensor, "_READ_TENSORS_BYTES", 10)
    several = decode({"t": [tensor(), tensor(), tensor(shape=(4,))]})["t"]

    assert isinstance(found, StoredValue)
    assert ("float32", (20_000,), 80_000) == (found.dtype, found.shape, found.byte_count)
    assert [TensorValue, StoredValue, TensorValue] == [type(value) for value in several]


def test_a_view_that_spans_much_is_described():
    """Two elements at the ends of a large storage would read all of it."""
    found = decode({"t": tensor(storage(count=200_000), 0, (2,), (199_999,))}, {"0": bytes(200_000)})

    assert (
        StoredValue("tensor", "uint8", (2,), (199_999,), 0, 200_000, found["t"].blob_offset, None, 200_000)
        == found["t"]
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (tensor(storage(key="1")), "storage `data/1` is not in the archive"),
        (tensor(storage(key="../0")), "is not in the archive"),
        (tensor(storage(count=5)), "storage has another size"),
        (tensor(storage(Global("torch", "LongStorage"))), "storage has another size"),
        (tensor(offset=1), "leaves its storage"),
        (tensor(shape=(7,)), "leaves its storage"),
        (tensor(shape=(2, 2)), "another number of strides"),
        (tensor(shape=(1 << 40,), stride=(0,)), "absurdly often"),
        (tensor(shape=(-1,)), "negative or absurd"),
        (tensor(shape=(1 << 63,)), "negative or absurd"),
        (tensor(offset=-1), "negative or absurd"),
        (tensor(shape=[6]), "no sequence of whole numbers"),
        (tensor(shape=(6.0,)), "no sequence of whole numbers"),
        (tensor(shape=(1,) * 65, stride=(1,) * 65), "no sequence of whole numbers"),
        (tensor(5), "no storage of the documented form"),
        (tensor(storage(word="module")), "no storage of the documented form"),
        (tensor(storage(place="cuda:0")), "no storage of the documented form"),
        (tensor(storage(count=True)), "no storage of the documented form"),
        (tensor(storage(count=-6)), "no storage of the documented form"),
        (tensor(storage(key=0)), "no storage of the documented form"),
        (tensor(storage(ORDERED)), "no storage of the documented form"),
        (tensor(PersistentId(("storage", BYTES))), "no storage of the documented form"),
        (tensor(None, 0, (6,), (1,), True, HOOKS), "gradients or hooks"),
        (tensor(None, 0, (6,), (1,), False, None), "gradients or hooks"),
        (tensor(None, 0, (6,), (1,), False, Call(ORDERED, (), entries={"a": 1})), "gradients or hooks"),
        (tensor(None, 0, (6,), (1,), False), "is no tensor"),
        (storage(), "holds a tensor"),
        (ORDERED, "holds the global `collections.OrderedDict`"),
        (Call(ORDERED, (1,)), "holds an object made by `collections.OrderedDict`"),
        (Call(REBUILD, (), state=1, has_state=True), "holds an object made by"),
    ],
)
def test_tensors_that_do_not_fit(value, message):
    """Every part of a tensor is held against the archive; the place is the key path."""
    with pytest.raises(DefectError, match=message) as caught:
        decode({"a": [0, {"t": value}]})
    assert "a.1.t" == caught.value.defects[0].location


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ([], "must be a mapping, and is a list"),
        ({1: 2}, "a key that is no text"),
        ({"a": Call(Global("datetime", "date"), ())}, "`datetime.date`"),
        ({"a": b"bytes"}, "`_codecs.encode`"),
        (tensor(), "must be a mapping, and is an object made by"),
    ],
)
def test_states_that_are_none(tree, message):
    """The state is a mapping of plain values and tensors."""
    with pytest.raises(DefectError, match=message):
        decode(tree)


def test_damaged_tensor_bytes():
    """The CRC of a tensor that the state uses is looked at, once per entry."""
    data = write_torch_zip(write_pickle({"a": tensor(), "b": tensor()}, 2), {"0": b"abcdef"})

    with pytest.raises(DefectError, match="CRC differs"):
        decode_dataloader(BytesSource(data.replace(b"abcdef", b"abcdeg")), DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": {1, 2}}, "type set"),
        ({"a": StoredValue("tensor")}, "type StoredValue"),
        ({"a": TensorValue("int64", (2,), b"12345678")}, "8 bytes are no int64 tensor"),
        ({"a": TensorValue("uint16", (1,), b"12")}, "are no uint16 tensor"),
    ],
)
def test_states_that_cannot_be_written(state, message):
    """Writers refuse what readers would."""
    with pytest.raises(ValueError, match=message):
        encode_dataloader(state)


def test_tensor_trees_are_row_major():
    """As torch writes a contiguous tensor."""
    tree = tensor_tree(TensorValue("int16", (2, 3), bytes(12)), "4")

    assert ((2, 3), (3, 1), "4", 6) == (
        tree.arguments[2],
        tree.arguments[3],
        tree.arguments[0].value[2],
        tree.arguments[0].value[4],
    )


def test_a_reserve_is_counted_and_not_decoded():
    """Any global may be in it; only the archive is looked at."""
    prompts = [{"idx": 1, "token_ids": TensorValue("int64", (1,), bytes(8))}]
    stranger = write_torch_zip(write_pickle(Call(Global("PIL.Image", "open"), ()), 2))

    assert 4 == inspect_reserve(BytesSource(encode_reserve(prompts)), DEFAULT_LIMITS)
    assert 3 == inspect_reserve(BytesSource(stranger), DEFAULT_LIMITS)


def test_a_damaged_reserve():
    """Every entry's CRC is looked at."""
    data = encode_reserve([{"t": TensorValue("uint8", (6,), b"abcdef")}])

    with pytest.raises(DefectError, match="CRC differs"):
        inspect_reserve(BytesSource(data.replace(b"abcdef", b"abcdeg")), DEFAULT_LIMITS)
    with pytest.raises(DefectError, match="4 entries, above the limit of 3"):
        inspect_reserve(BytesSource(data), replace(DEFAULT_LIMITS, zip_entries=3))
