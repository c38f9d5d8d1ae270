"""Writing TransferQueue checkpoints: forms of the files, derived field metadata, and what cannot be written."""

import json

import pytest

from ckptctl.domain.binding import UnitInfo
from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.tq_checkpoint import (
    decode_controller_state,
    decode_metadata,
    decode_storage_unit,
    decode_unit_info,
    read_tensor,
)
from ckptctl.formats.tq_writer import (
    encode_controller_state,
    encode_metadata,
    encode_storage_unit,
    encode_unit_info,
    field_meta,
)
from tests.unit.formats.planes import a_partition, a_state, ints, number


def test_documents_have_transferqueues_form():
    """Indent 2 for the metadata, one line for the units."""
    assert b'{\n  "storage_saved": true,\n  "user_metadata": {\n    "b": 1,\n    "a": 2\n  }\n}' == encode_metadata(
        {"b": 1, "a": 2}
    )
    assert b'[{"position": 0, "storage_unit_id": "TQ_STORAGE_UNIT_0123abcd"}]' == encode_unit_info(
        [{"position": 0, "storage_unit_id": "TQ_STORAGE_UNIT_0123abcd"}]
    )


def test_documents_are_read_again():
    """From values and from plain mappings."""
    units = (UnitInfo(position=0, storage_unit_id="a"), UnitInfo(position=1, storage_unit_id="b"))

    assert units == decode_unit_info(encode_unit_info(units), DEFAULT_LIMITS)
    assert {} == decode_metadata(encode_metadata(None, storage_saved=False), DEFAULT_LIMITS).user_metadata
    with pytest.raises(ValueError):
        encode_metadata({"x": float("nan")})


def test_units_begin_as_transferqueues_do():
    """First bytes of both pickles, as a file type detector would look at them."""
    unit = encode_storage_unit("TQ_STORAGE_UNIT_0123abcd", 50, {}, set())
    controller = encode_controller_state(a_state())

    assert unit.startswith(b"\x80\x05\x95")
    assert b"\x8c\x0fstorage_unit_id" in unit[:40]
    assert controller.startswith(b"\x80\x05\x95")
    assert b"\x8c\rcontroller_id" in controller[:40]


def test_a_unit_is_read_again():
    """Columns, scalars and empty fields."""
    rows = {"ids": {0: ints(1, 2), 4: ints()}, "length": {0: number(2)}, "cleared": {}}
    source = BytesSource(encode_storage_unit("u", None, rows, [4, 0]))
    unit = decode_storage_unit(source, "su_0_u.pkl", DEFAULT_LIMITS)

    assert frozenset({0, 4}) == unit.active_keys
    assert rows == {
        field: {index: read_tensor(source, value) for index, value in values.items()}
        for field, values in unit.rows.items()
    }


def test_field_metadata_follows_from_the_rows():
    """One shape, several shapes, scalars; the rest is refused."""
    flat, ragged, scalars = (
        field_meta({0: ints(1), 3: ints(2)}),
        field_meta({0: ints(1), 3: ints(2, 3)}),
        field_meta({5: number(1)}),
    )

    assert ((1,), False, {}) == (flat.shape, flat.is_nested, flat.sample_shapes)
    assert (None, True, {0: (1,), 3: (2,)}) == (ragged.shape, ragged.is_nested, ragged.sample_shapes)
    assert ((1,), "int64", frozenset({5})) == (scalars.shape, scalars.dtype, scalars.global_indexes)
    with pytest.raises(ValueError, match="one dtype, not of 2"):
        field_meta({0: ints(1), 1: TensorValue("int8", (1,), b"\0")})
    with pytest.raises(ValueError, match="one dtype, not of 0"):
        field_meta({})


def test_an_empty_partition_gets_a_bit_of_its_own():
    """TransferQueue never has a matrix without rows or columns; consumption is as long as production."""
    partition = a_partition(
        keys={}, rows={}, production_rows=0, production_columns=0, production=b"", consumed={"t": b""}
    )
    found = decode_controller_state(
        BytesSource(encode_controller_state(a_state(partition))), DEFAULT_LIMITS
    ).partitions["rollout_data"]

    assert (1, 1, b"\0", {"t": b"\0"}) == (
        found.production_rows,
        found.production_columns,
        found.production,
        found.consumed,
    )


def test_what_does_not_add_up_is_not_written():
    """Bits of another shape, tensors of other bytes or dtypes, tags without a form: the caller's bug, before any file exists."""
    with pytest.raises(ValueError, match="production bits"):
        encode_controller_state(a_state(a_partition(production=b"\1")))
    with pytest.raises(ValueError, match="does not have 3 bytes"):
        encode_storage_unit("u", None, {"f": {0: TensorValue("int64", (1,), b"123")}}, {0})
    with pytest.raises(ValueError):
        encode_storage_unit("u", None, {"f": {0: TensorValue("uint16", (1,), b"12")}}, {0})
    with pytest.raises(ValueError, match="no form"):
        encode_controller_state(a_state(a_partition(tags={0: {"x": object()}})))


def test_metadata_is_json_for_everybody():
    """Non-ASCII text is escaped, as the json module of TransferQueue does."""
    assert {"user_metadata": {"k": "é"}, "storage_saved": True} == json.loads(
        encode_metadata({"k": "é"}).decode("ascii")
    )
