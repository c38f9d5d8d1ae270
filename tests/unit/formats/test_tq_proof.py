"""A pickle inside a pickle: found wherever our reader keeps nothing, and harmless data of any shape is left alone."""

import pytest

from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.pickle_machine import Call, Global
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.tq_checkpoint import decode_controller_state, decode_storage_unit
from ckptctl.formats.tq_writer import encode_controller_state, tensor_node
from tests.unit.controller.test_plane_proof import HOSTILE, a_controller_file
from tests.unit.formats.planes import a_partition, a_state, ints

HIDDEN, _ = HOSTILE["a stream that is no tensor's"]
DTYPE = Call(
    Global("numpy", "dtype"), ("O8", False, True), state=(3, "|", None, None, None, -1, -1, 63), has_state=True
)


def an_object_array(items):
    """As numpy pickles one: its items stand in the state."""
    made = Call(Global("numpy._core.multiarray", "_reconstruct"), (Global("numpy", "ndarray"), (0,), b"b"))
    made.state, made.has_state = (1, (len(items),), DTYPE, False, items), True
    return made


def read_unit(value):
    tree = {"storage_unit_id": "u", "storage_unit_size": 5, "field_data": {"x": {0: value}}, "active_keys": {0}}
    return decode_storage_unit(BytesSource(write_pickle(tree, 5)), "su_0_u.pkl", DEFAULT_LIMITS)


def read_controller(**changes):
    return decode_controller_state(BytesSource(a_controller_file(**changes)), DEFAULT_LIMITS)


@pytest.mark.parametrize("what", HOSTILE)
def test_the_samplers_state_hides_nothing(what):
    """Nobody needs what is in it, but whoever loads the checkpoint runs it."""
    node, _ = HOSTILE[what]
    for state in (node, {"p": {"train": [[0, 1], {"x": (node,)}]}}):
        with pytest.raises(DefectError):
            read_controller(sampler={"_states": state})


def test_the_place_is_named():
    """The attribute, and what it should be."""
    with pytest.raises(DefectError) as caught:
        read_controller(sampler={"_states": {"p": [HIDDEN]}})
    [defect] = caught.value.defects

    assert "sampler" == defect.location
    assert "it holds a tensor stream outside a tensor, which would be unpickled with it" == defect.message
    assert "torch.storage._load_from_bytes" == defect.actual


def test_a_sampler_may_hold_data_and_tensors():
    """As TransferQueue's own does: lists of numbers by partition and task, a tensor of the known form."""
    tensor = tensor_node(ints(1, 2))
    state = {
        "train": {"rank": {0: {3: ([1, 2], [4])}}},
        "cache": Call(Global("collections", "OrderedDict"), ()),
        "t": tensor,
    }

    assert "c" == read_controller(sampler={"_states": state}).controller_id


@pytest.mark.parametrize("value", [HIDDEN, [1, HIDDEN], {"deep": ({"er": HIDDEN},)}, an_object_array([1, HIDDEN])])
def test_values_of_a_unit_hide_nothing(value):
    """Also in rows that nothing refers to."""
    with pytest.raises(DefectError, match="a tensor stream outside a tensor") as caught:
        read_unit(value)
    assert caught.value.defects[0].location.startswith("field_data['x'][0]")


def test_values_of_other_kinds_are_left_alone():
    """Lists and arrays of objects cannot be checked, which their rule says; they are no damage."""
    nested = {"a": [1, tensor_node(TensorValue("bool", (1,), b"\1")), (None, 2.5)]}

    assert ["other", "numpy"] == [
        read_unit(value).rows["x"][0].kind for value in (nested, an_object_array(["a", None]))
    ]


@pytest.mark.parametrize("tag", [HIDDEN, [HIDDEN], {"deep": HIDDEN}])
def test_tags_hide_nothing(tag):
    """A tag may be any plain data, and this is none."""
    data = encode_controller_state(a_state(a_partition(tags={0: {"weight_version": 3, "x": tag}})))

    with pytest.raises(DefectError, match="a tensor stream outside a tensor") as caught:
        decode_controller_state(BytesSource(data), DEFAULT_LIMITS)
    assert "partitions['rollout_data'].custom_meta[0]" == caught.value.defects[0].location
