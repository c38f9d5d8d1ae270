"""Columns and routes of staged rows as a whole against the same, element by element."""

import math
import struct
from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from ckptctl.domain.dataplane import DTYPE_BYTES, TensorValue
from ckptctl.domain.staged_columns import (
    big_endian,
    has_negative,
    is_finite,
    is_mask,
    is_zero_outside,
    little_endian,
)
from ckptctl.domain.staged_extras import envelope, envelope_pieces, nested, nested_pieces, typed_pieces

QUICK = settings(max_examples=150, deadline=None)
WORDS = st.sampled_from(
    [
        0x00000000,
        0x80000000,
        0x3F800000,
        0xBF800000,
        0x7F800000,
        0xFF800000,
        0x7F7FFFFF,
        0x7FC00000,
        0x00800000,
        0x3F000000,
        0x00003F80,
    ]
)
floats = st.lists(WORDS | st.integers(0, 2**32 - 1), max_size=9).map(
    lambda words: struct.pack(f"<{len(words)}I", *words)
)
masks = st.lists(st.sampled_from([0x00000000, 0x80000000, 0x3F800000]), max_size=9)


def values(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


@QUICK
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9))
def test_ids(ids):
    """Signs are found, and both byte orders are those of `struct`."""
    data = struct.pack(f"<{len(ids)}q", *ids)

    assert any(number < 0 for number in ids) == has_negative(data)
    assert data == little_endian(array("q", ids))
    assert struct.pack(f">{len(ids)}q", *ids) == big_endian(array("q", ids))


@QUICK
@given(floats)
def test_floats(data):
    """Infinities, what is no number, and masks are told as `math` and comparison tell them."""
    assert all(map(math.isfinite, values(data))) == is_finite(data)
    assert all(value in (0.0, 1.0) for value in values(data)) == is_mask(data)


@QUICK
@given(masks, st.data())
def test_log_probabilities_outside_the_mask(words, data):
    """Only zeros, negative ones included, may stand where nothing was generated."""
    logprobs = data.draw(st.lists(WORDS, min_size=len(words), max_size=len(words)))
    mask, column = (struct.pack(f"<{len(words)}I", *items) for items in (words, logprobs))
    expected = all(value == 0.0 for bit, value in zip(values(mask), values(column), strict=True) if bit == 0.0)

    assert expected == is_zero_outside(mask, column)


@st.composite
def routes(draw):
    dtype = draw(st.sampled_from(["int8", "int16", "int32"]))
    shape = (draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    size = math.prod(shape) * DTYPE_BYTES[dtype]
    return TensorValue(dtype, shape, draw(st.binary(min_size=size, max_size=size)))


@QUICK
@given(routes(), st.integers(1, 40))
def test_routes_are_encoded_in_pieces_as_they_are_at_once(value, chunk):
    """However small the pieces are."""
    import ckptctl.domain.staged_extras as module

    kept, module._CHUNK_BYTES = module._CHUNK_BYTES, 3 * chunk
    try:
        assert b"".join(typed_pieces(envelope(value))) == b"".join(envelope_pieces(value))
        assert b"".join(typed_pieces(nested(value))) == b"".join(nested_pieces(value))
    finally:
        module._CHUNK_BYTES = kept


def test_routes_of_nothing_are_nested_all_the_same():
    """No layer, or no expert in one."""
    for shape in ((2, 0, 3), (2, 3, 0), (0, 1, 1)):
        value = TensorValue("int16", shape, b"")

        assert b"".join(typed_pieces(nested(value))) == b"".join(nested_pieces(value))
