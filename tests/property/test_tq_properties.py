"""Arbitrary data planes and staged rows: what is written is what is read, and damage gives a value or a defect, nothing else."""

import math
import os
import struct
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptctl.domain.dataplane import DTYPE_BYTES, StoredValue, TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.domain.staged import ROUTES_ENVELOPE, ROUTES_NESTED, ROUTES_NONE, extras_to_hash, structural_defects
from ckptctl.formats import tensor_view
from ckptctl.formats.staged_row import call_digest, decode_staged_row, encode_staged_row, extras_digest, stage_call
from ckptctl.formats.tensor_view import read_tensor
from ckptctl.formats.tq_checkpoint import decode_controller_state, decode_storage_unit
from ckptctl.formats.tq_values import row_major
from ckptctl.formats.tq_writer import encode_controller_state, encode_storage_unit
from tests.unit.formats.planes import a_partition, a_state, ints, number

BOUNDED = bool(os.environ.get("CKPTCTL_LONG_BOUNDED"))  # taken now: tests run without the variables of their caller
EXAMPLES = 60
QUICK = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
dtypes = st.sampled_from(sorted(DTYPE_BYTES))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def tensors(draw, dtype=None):
    dtype = dtype or draw(dtypes)
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    size = math.prod(shape) * DTYPE_BYTES[dtype]
    return TensorValue(dtype, shape, draw(st.binary(min_size=size, max_size=size)))


@st.composite
def columns(draw, indexes):
    dtype = draw(dtypes)
    return {index: draw(tensors(dtype)) for index in indexes if draw(st.booleans())}


@st.composite
def states(draw):
    """Partitions over disjoint indexes, with and without rows, tags and consumption."""
    indexes = draw(st.permutations(range(10)))
    partitions = []
    for number_, name in enumerate(draw(st.lists(texts, unique=True, min_size=1, max_size=3))):
        mine = indexes[number_ * 3 : number_ * 3 + draw(st.integers(0, 3))]
        keys = {f"{draw(texts)}/{index}": index for index in mine}
        rows = {field: draw(columns(mine)) for field in draw(st.lists(texts, unique=True, max_size=3))}
        tags = {index: draw(st.dictionaries(texts, json_values, max_size=2)) for index in mine}
        partitions.append(a_partition(name, keys, rows, tags))
    return a_state(*partitions)


@QUICK
@given(states())
def test_any_controller_state_comes_back(state):
    """Partitions, keys, bits, tags, field metadata and index tables."""
    assert state == decode_controller_state(BytesSource(encode_controller_state(state)), DEFAULT_LIMITS)


@QUICK
@given(
    st.dictionaries(texts, columns(range(6)), max_size=4),
    st.sets(st.integers(0, 2**40)),
    st.none() | st.integers(0, 2**40),
)
def test_any_storage_unit_comes_back(rows, active, size):
    """Every dtype and shape, also without elements."""
    source = BytesSource(encode_storage_unit("u", size, rows, active))
    unit = decode_storage_unit(source, "su_0_u.pkl", DEFAULT_LIMITS)

    assert active == unit.active_keys
    assert rows == {
        field: {index: read_tensor(source, value) for index, value in values.items()}
        for field, values in unit.rows.items()
    }


@st.composite
def views(draw):
    """A storage and a view inside it, with strides of any order, zero included."""
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    stride = tuple(draw(st.integers(0, 6)) for _ in shape)
    offset = draw(st.integers(0, 5))
    count = (
        offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + draw(st.integers(0, 3))
    )
    return shape, stride, offset, count


@contextmanager
def bounds(**limits):
    """Other bounds of reading a view, so that small views meet every way of reading."""
    kept = {name: getattr(tensor_view, name) for name in limits}
    try:
        for name, value in limits.items():
            setattr(tensor_view, name, value)
        yield
    finally:
        for name, value in kept.items():
            setattr(tensor_view, name, value)


@QUICK
@given(
    views(),
    st.sampled_from(["uint8", "int16", "int32", "int64"]),
    st.sampled_from(
        [
            {},
            {"_WHOLE_BYTES": 0, "_SPARSE": 0},
            {"_WHOLE_BYTES": 0, "_SPARSE": 0, "_WINDOW_BYTES": 64},
            {"_WHOLE_BYTES": 0, "_SPARSE": 0, "_PAGE_BYTES": 8},
        ]
    ),
)
def test_any_view_is_gathered_element_by_element(view, dtype, limits):
    """Against the definition of a strided view, whichever way it is read."""
    shape, stride, offset, count = view
    size = DTYPE_BYTES[dtype]
    storage = b"".join((at % 251 * 3 + 1).to_bytes(size, "little") for at in range(count))
    value = StoredValue("tensor", dtype, shape, stride, offset, count, 7, byte_count=len(storage))
    expected = b""
    for flat in range(math.prod(shape)):
        place, rest = offset, flat
        for extent, step, inner in zip(shape, stride, row_major(shape), strict=True):
            place += rest // inner % extent * step
        expected += storage[place * size : (place + 1) * size]

    with bounds(**limits):
        assert TensorValue(dtype, shape, expected) == read_tensor(BytesSource(bytes(7) + storage), value)


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def staged_rows(draw):
    """A root call, or a child of one, with any extras and routes."""
    length = draw(st.integers(1, 5))
    encoding = draw(st.sampled_from([ROUTES_NONE, ROUTES_ENVELOPE, ROUTES_NESTED]))
    mask = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=length, max_size=length))
    routes = None
    if encoding != ROUTES_NONE:
        dtype = "int16" if encoding == ROUTES_NESTED else draw(st.sampled_from(["int8", "int16", "int32"]))
        shape = (length, draw(st.integers(1, 2)), draw(st.integers(1, 2)))
        size = math.prod(shape) * DTYPE_BYTES[dtype]
        routes = TensorValue(dtype, shape, draw(st.binary(min_size=size, max_size=size)))
    parent = draw(st.none() | staged_rows()) if length == 1 else None
    return stage_call(
        rollout_id=draw(texts),
        model_call_id=draw(texts),
        token_ids=draw(st.lists(st.integers(0, 2**63 - 1), min_size=length, max_size=length)),
        token_mask=mask,
        logprobs=[draw(floats) if generated else 0.0 for generated in mask],
        weight_version=draw(st.integers(0, 2**63 - 1)),
        parent=parent,
        prefix_ids=[0] * (parent.cum_len if parent else 0),
        extras=draw(st.none() | st.dictionaries(texts, json_values, max_size=3)),
        routed_experts=routes,
        routed_experts_encoding=encoding,
    )


@QUICK
@given(staged_rows())
def test_any_staged_row_comes_back_and_still_digests(row):
    """Through tensors and through a storage unit."""
    fields = encode_staged_row(row)
    source = BytesSource(encode_storage_unit("u", None, {name: {3: value} for name, value in fields.items()}, {3}))
    unit = decode_storage_unit(source, "su_0_u.pkl", DEFAULT_LIMITS)
    found = decode_staged_row({name: read_tensor(source, values[3]) for name, values in unit.rows.items()})

    assert row == found
    assert () == structural_defects(found)
    assert (row.digest, row.extras_digest) == (call_digest(found), extras_digest(extras_to_hash(found)))


DIGESTED = ("token_ids_delta", "token_mask_delta", "generation_logprobs_delta", "rollout_id_utf8", "model_call_id_utf8", "capture_mode",
            "prev_len", "delta_len", "cum_len", "weight_version", "extras_digest_bytes", "chain_hash_bytes", "cumulative_hash_bytes")  # fmt: skip


@QUICK
@given(staged_rows(), st.sampled_from(DIGESTED), st.integers(0, 10**6), st.integers(0, 7))
def test_any_changed_bit_of_a_staged_row_shows(row, field, place, bit):
    """The call digest covers every bit of the fields it names, or the row no longer decodes."""
    fields = encode_staged_row(row)
    data = bytearray(fields[field].data)
    if not data:
        return
    data[place % len(data)] ^= 1 << bit
    try:
        found = decode_staged_row(fields | {field: fields[field]._replace(data=bytes(data))})
    except DefectError:
        return

    assert found.digest != call_digest(found)


UNIT = encode_storage_unit(
    "TQ_STORAGE_UNIT_0123abcd", 9, {"ids": {0: ints(1, 2), 1: ints()}, "n": {0: number(5)}}, {0, 1}
)
CONTROLLER = encode_controller_state(
    a_state(a_partition(), a_partition("rollout_staging", {"r/c": 1}, {"x": {1: ints(4)}}))
)


def survive_unit(data: bytes) -> None:
    source = BytesSource(data)
    try:
        unit = decode_storage_unit(source, "su_0_x.pkl", DEFAULT_LIMITS)
        for values in unit.rows.values():
            for value in values.values():
                read_tensor(source, value)
    except DefectError:
        return


def survive_controller(data: bytes) -> None:
    try:
        decode_controller_state(BytesSource(data), DEFAULT_LIMITS)
    except DefectError:
        return


def damaged(data: bytes, edits: list[tuple[int, int]], cut: int | None) -> bytes:
    changed = bytearray(data)
    for place, value in edits:
        changed[place % len(changed)] = value
    return bytes(changed) if cut is None else bytes(changed[: cut % len(changed)])


edits = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4)
cuts = st.none() | st.integers(0, 10**6)


@settings(QUICK, max_examples=5 * EXAMPLES)
@given(edits, cuts)
def test_a_damaged_unit_is_a_value_or_a_defect(edits, cut):
    """Never another exception, whatever bytes changed."""
    survive_unit(damaged(UNIT, edits, cut))


@settings(QUICK, max_examples=5 * EXAMPLES)
@given(edits, cuts)
def test_a_damaged_controller_is_a_value_or_a_defect(edits, cut):
    """Never another exception, whatever bytes changed."""
    survive_controller(damaged(CONTROLLER, edits, cut))


def test_every_truncation_is_a_defect():
    """No prefix of a unit or controller passes for the whole."""
    for data, decode in (
        (UNIT, lambda source: decode_storage_unit(source, "u", DEFAULT_LIMITS)),
        (CONTROLLER, lambda source: decode_controller_state(source, DEFAULT_LIMITS)),
    ):
        for cut in range(len(data)):
            with pytest.raises(DefectError):
                decode(BytesSource(data[:cut]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("data", "survive"), [(UNIT, survive_unit), (CONTROLLER, survive_controller)], ids=["unit", "controller"]
)
def test_every_single_byte_may_take_every_value(data, survive):
    """Exhaustive over one byte; bounded to a few values per place in CI."""
    values = (0, 1, 0x2E, 0x7F, 0x80, 0xFF) if BOUNDED else range(256)
    for place in range(len(data)):
        for value in values:
            survive(data[:place] + bytes((value,)) + data[place + 1 :])


def test_float_words_are_swapped_and_not_computed():
    """Subnormal, negative zero and the largest float keep their bits through a staged row."""
    raw = struct.pack("<4f", -0.0, 1e-45, 3.4028234663852886e38, -1.5)
    row = stage_call(
        rollout_id="r",
        model_call_id="c",
        token_ids=[1] * 4,
        token_mask=[1] * 4,
        logprobs=struct.unpack("<4f", raw),
        weight_version=0,
    )

    assert raw == encode_staged_row(row)["generation_logprobs_delta"].data
