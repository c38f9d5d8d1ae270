"""The replay sidecar: its shape, numbers of numpy, and the one key under which anything may stand."""

import copy
import struct

import pytest

from ckptctl.domain.canonical import replay_digest
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.numpy_scalar import read_numpy_scalar
from ckptctl.formats.pickle_machine import ByteSpan, Call, Global, PersistentId
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.replay_file import ROW_META, decode_replay, encode_replay
from ckptctl.formats.torch_zip import write_torch_zip

PUBLISHED_DIGEST = "014d8a2a9380d6295bc2c854e6bc87acfd8f71e906607372b662dde1f1695537"
SCALAR = Global("numpy._core.multiarray", "scalar")
DTYPE = Global("numpy", "dtype")


def a_state(**changes: object) -> dict:
    return {
        "partition_id": "rollout_data",
        "task_name": None,
        "sample_ids": ["g5_g0", "g5_g1"],
        "fields": ["input_ids", "input_lengths"],
        "sequence_lengths": [7, 9],
        "extra_info": {},
        "tags": [{"weight_version": 3}, {"weight_version": 3}],
        **changes,
    }


def row_meta(state: object, **changes: object) -> Call:
    return Call(**{"callee": ROW_META, "arguments": (), "is_new": True, "state": state, "has_state": True, **changes})


def a_group(**changes: object) -> dict:
    return {
        "meta": row_meta(a_state()),
        "start_weight": 3,
        "end_weight": 3,
        "target_step": 4,
        "group_id": "g5",
        **changes,
    }


def a_replay(**changes: object) -> dict:
    return {
        "schema_version": 1,
        "storage": "tq_checkpoint",
        "partition_id": "rollout_data",
        "saved_capacity": 8,
        "manifest_digest": PUBLISHED_DIGEST,
        "groups": [a_group()],
        **changes,
    }


def with_state(**changes: object) -> dict:
    return a_replay(groups=[a_group(meta=row_meta(a_state(**changes)))])


def decode(tree: object):
    return decode_replay(BytesSource(write_torch_zip(write_pickle(tree, 2))), DEFAULT_LIMITS)


def first_defect(tree: object):
    with pytest.raises(DefectError) as caught:
        decode(tree)
    assert not caught.value.is_unsupported
    return caught.value.defects[0]


def numpy_number(code: str, data: bytes, order: str = "<", callee: Global = SCALAR) -> Call:
    dtype = Call(DTYPE, (code, False, True), state=(3, order, None, None, None, -1, -1, 0), has_state=True)
    return Call(callee, (dtype, data))


def test_replay_metadata_is_decoded_and_written():
    """The published example: its digest, and the same value after a round trip."""
    found = decode(a_replay())

    assert PUBLISHED_DIGEST == replay_digest(found.groups)
    assert found == decode_replay(BytesSource(encode_replay(found)), DEFAULT_LIMITS)
    assert encode_replay(found) == encode_replay(found)


@pytest.mark.parametrize(
    ("tree", "location"),
    [
        (a_replay(fields_data=None), "fields_data"),
        (a_replay(schema_version=2), "schema_version"),
        (a_replay(storage="tensors"), "storage"),
        (a_replay(more=1), "more"),
        (a_replay(groups=None), "groups"),
        (a_replay(groups=[5]), "groups[0]"),
        (a_replay(groups=[{"group_id": "g5"}]), "groups[0] (group g5).meta"),
        (a_replay(groups=[a_group(), a_group(group_id="g6", end_weight=None)]), "groups[1] (group g6).end_weight"),
        (a_replay(groups=[a_group(meta=a_state())]), "groups[0] (group g5).meta"),
        (a_replay(groups=[a_group(meta=row_meta([]))]), "groups[0] (group g5).meta"),
        (a_replay(groups=[a_group(meta=row_meta(a_state(), is_new=False))]), "groups[0] (group g5).meta"),
        (a_replay(groups=[a_group(meta=row_meta(a_state(), arguments=(1,)))]), "groups[0] (group g5).meta"),
        (a_replay(groups=[a_group(meta=row_meta(a_state(), appended=[1]))]), "groups[0] (group g5).meta"),
        (with_state(sample_ids=("g5_g0",)), "groups[0] (group g5).meta.sample_ids"),
        (with_state(unknown=1), "groups[0] (group g5).meta.unknown"),
        (with_state(tags=[{"x": float("inf")}]), "groups[0] (group g5).meta.tags.0.x"),
        (with_state(tags=[{"x": row_meta(a_state())}]), "groups[0] (group g5).meta.tags.0.x"),
        (with_state(sequence_lengths=[numpy_number("i8", struct.pack("<q", 7)), 9]), "groups[0] (group g5).meta.sequence_lengths.0"),
        (with_state(extra_info={"t": PersistentId("x")}), "groups[0] (group g5).meta.extra_info.t"),
        (with_state(extra_info={"t": DTYPE}), "groups[0] (group g5).meta.extra_info.t"),
        (with_state(extra_info=[]), "groups[0] (group g5).meta.extra_info"),
        ({key: value for key, value in a_replay().items() if key != "groups"}, "groups"),
    ],
)  # fmt: skip
def test_wrong_fields_are_named(tree, location):
    """Each with its place, the group's id in it."""
    assert location == first_defect(copy.deepcopy(tree)).location


@pytest.mark.parametrize("changes", [{"start_weight": -1}, {"end_weight": -1}, {"target_step": -2}])
def test_versions_and_steps_are_not_negative(changes):
    """A group of a weight version that no trainer ever had is damage."""
    [name] = changes

    assert f"groups[0] (group g5).{name}" == first_defect(a_replay(groups=[a_group(**changes)])).location


def test_lengths_are_not_negative():
    """Nor is a sample shorter than nothing."""
    assert "groups[0] (group g5).meta.sequence_lengths.1" == first_defect(with_state(sequence_lengths=[7, -9])).location


def test_rollout_metrics_may_be_anything():
    """Unknown objects, tensors and odd keys are kept as a text there, and refused next to it."""
    stranger = Call(Global("wandb", "Histogram"), (PersistentId("k"),), appended=[1])
    raw = write_pickle(with_state(extra_info={"rollout_metrics": {"h": stranger}, "n": 1}), 2)
    found = decode_replay(BytesSource(write_torch_zip(raw)), DEFAULT_LIMITS)

    assert {"n": 1, "rollout_metrics": "<opaque: a dict>"} == found.groups[0].meta.extra_info
    assert found == decode_replay(BytesSource(encode_replay(found)), DEFAULT_LIMITS)
    assert (
        "pickle names a global ckptctl does not know: loading it would import and may call `wandb.Histogram`"
        == first_defect(with_state(extra_info={"rollout": {"h": stranger}})).message
    )
    assert "`wandb.Histogram`" in first_defect(a_replay(groups=[a_group(start_weight=Call(stranger, ()))])).message


def test_odd_keys_only_under_rollout_metrics():
    """A mapping keyed by floats is the logger's business; in tags it is damage."""
    key = b"G?\xf8" + bytes(6)
    good = write_pickle(with_state(extra_info={"rollout_metrics": {"KEY": 1}}), 2)
    bad = write_pickle(with_state(tags=[{"KEY": 1}, {}]), 2)
    text = b"X\x03\x00\x00\x00KEY"
    memo = good[good.index(text) + len(text) :][:2]
    found = decode_replay(BytesSource(write_torch_zip(good.replace(text + memo, key))), DEFAULT_LIMITS)

    assert "<opaque: a dict>" == found.groups[0].meta.extra_info["rollout_metrics"]
    memo = bad[bad.index(text) + len(text) :][:2]
    with pytest.raises(DefectError, match="tags.0` has a key that is neither text nor int"):
        decode_replay(BytesSource(write_torch_zip(bad.replace(text + memo, key))), DEFAULT_LIMITS)


def test_numbers_of_numpy_become_plain():
    """Integral ones ints, real ones floats, of either byte order and either numpy."""
    old = Global("numpy.core.multiarray", "scalar")
    tags = [
        {"a": numpy_number("i8", struct.pack("<q", -3)), "b": numpy_number("f4", struct.pack("<f", 0.1))},
        {"c": numpy_number("u1", b"\xff", "|", old), "d": numpy_number("i4", struct.pack(">i", 9), ">")},
    ]
    found = decode(with_state(tags=tags)).groups[0].meta.tags

    assert [{"a": -3, "b": 0.10000000149011612}, {"c": 255, "d": 9}] == found


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (numpy_number("b1", b"\1", "|"), "neither an integer nor a real number"),
        (numpy_number("i8", b"\1"), "wrong size"),
        (numpy_number("f8", struct.pack("<d", float("nan"))), "not finite"),
        (numpy_number("i8", bytes(8), "!"), "neither an integer nor a real"),
        (numpy_number("i8", bytes(8), None), "neither an integer nor a real"),
        (numpy_number([1], bytes(8)), "dtype has parts"),
        (Call(SCALAR, (1,)), "only plain values and numpy numbers"),
        (Call(DTYPE, (1, 2)), "only plain values and numpy numbers"),
        (Call(SCALAR, (1, 2)), "without a dtype"),
        (Call(SCALAR, (Call(DTYPE, ("i8", False, True)), b"1")), "neither an integer nor a real"),
        (Call(SCALAR, (numpy_number("i8", b"").arguments[0], 5)), "without its bytes"),
        (Call(SCALAR, (numpy_number("i8", b"").arguments[0], b"x" * 17)), "without its bytes"),
    ],
)
def test_other_numpy_values_have_no_canonical_form(call, message):
    """They could not be digested, so they are refused where they stand."""
    assert message in first_defect(with_state(tags=[{"x": call}, {}])).message


def test_a_numpy_number_with_real_bytes():
    """Protocol 5 pickles have the bytes as bytes."""
    dtype = numpy_number("i2", b"").arguments[0]

    assert 513 == read_numpy_scalar(Call(SCALAR, (dtype, ByteSpan(0, 2, b"\1\2"))))
    with pytest.raises(ValueError, match="without its bytes"):
        read_numpy_scalar(Call(SCALAR, (dtype, ByteSpan(0, 300, b"\1\2"))))


@pytest.mark.parametrize("tree", [[], row_meta(a_state()), Global("numpy", "dtype"), PersistentId("x")])
def test_the_top_level_is_a_mapping(tree):
    """Anything else is said to be what it is."""
    assert "the replay metadata must be a mapping" in first_defect(tree).message


def test_an_unknown_object_on_top_is_named():
    """Although names are kept for one key, the top level is not under it."""
    assert "`os.system`" in first_defect(Call(Global("os", "system"), ("true",))).message


def test_tags_that_cannot_be_read_are_not_written():
    """Writers refuse what readers would."""
    found = decode(a_replay())
    found.groups[0].meta.tags[0]["odd"] = {1.5}

    with pytest.raises(ValueError, match="set"):
        encode_replay(found)
