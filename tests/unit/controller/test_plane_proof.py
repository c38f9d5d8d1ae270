"""What a live queue may unpickle: checkpoints of the known form, and nothing that hides a call, a stream or a value of another kind."""

import shutil

import pytest

from ckptctl.controller.plane_proof import prove_controller, prove_plane, read_plane_metadata
from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.source import BytesSource
from ckptctl.formats.pickle_tree import Call, Global
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.torch_stream import encode_stream
from ckptctl.formats.tq_writer import encode_controller_state, encode_storage_unit, encode_unit_info, tensor_node
from tests.conftest import shared_fixtures
from tests.fakes.queue_package import FakeQueue
from tests.unit.formats.planes import a_state, ints, number

REAL_PLANES = [
    "tq/small/step_1/data_plane",
    "tq/v019/small/step_1/data_plane",
    "turn/step_1/rollout_snapshots/snapshot_000002/data_plane",
]
STREAM = Global("torch.storage", "_load_from_bytes")


@pytest.fixture
def plane(tmp_path):
    """A checkpoint of two units with rows in both."""
    queue = FakeQueue()
    for number_of in range(4):
        queue.put(
            "rows", f"k{number_of}", {"ids": ints(number_of), "length": number(1)}, {"n": [1, {"deep": (2.5, None)}]}
        )
    folder = tmp_path / "data_plane"
    queue.save(str(folder), {})
    return folder


def a_controller_file(**changes):
    """`controller_state.pkl` without partitions."""
    manager = {
        "partition_to_indexes": {},
        "reusable_indexes": [],
        "global_index_counter": 0,
        "allocated_indexes": set(),
    }
    tree = {"controller_id": "c", "partitions": {}, "index_manager": manager, "sampler": {"_states": {}}}
    return write_pickle({**tree, **changes}, 5)


def test_our_own_checkpoint_is_proved(plane):
    """Files as TransferQueue writes them, with tags that are nested."""
    prove_plane(str(plane), units=2)

    assert read_plane_metadata(str(plane)).storage_saved


@pytest.mark.parametrize("name", REAL_PLANES)
def test_real_checkpoints_are_proved(name):
    """What two versions of TransferQueue and NeMo-RL wrote."""
    folder = shared_fixtures() / name
    units = len(list((folder / "simple_storage").glob("su_*.pkl")))

    prove_plane(str(folder), units=units)


def test_a_tensor_in_the_samplers_state_is_proved_too():
    """It is not kept by our reader, but the queue would unpickle it."""
    prove_controller(BytesSource(a_controller_file(sampler={"_states": {"a": [tensor_node(ints(1))]}})))
    prove_controller(BytesSource(encode_controller_state(a_state())))


EVIL_STREAM = Call(STREAM, (b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00idtR.",))
HOSTILE = {
    "a stream that is no tensor's": (EVIL_STREAM, "a tensor stream outside a tensor"),
    "a tensor with another stream": (
        Call(
            Global("torch._utils", "_rebuild_tensor_v2"),
            (EVIL_STREAM, 0, (1,), (1,), False, Call(Global("collections", "OrderedDict"), ())),
        ),
        None,
    ),
    "a stream with something behind its head": (
        Call(
            Global("torch._utils", "_rebuild_tensor_v2"),
            (
                Call(STREAM, (b"\x80\x02N." + encode_stream("int64", bytes(8), "1"),)),
                0, (1,), (1,), False, Call(Global("collections", "OrderedDict"), ()),
            ),
        ),
        None,
    ),
    "a record that is called": (Call(Global("transfer_queue.controller", "FieldMeta"), ("x",)), "no plain data"),
    "a name that is unknown": (Call(Global("os", "system"), ("id",)), None),
    "a call of what a call made": (Call(Call(Global("collections", "OrderedDict"), ()), ("x",)), None),
}  # fmt: skip


@pytest.mark.parametrize("where", ["sampler", "inside"])
@pytest.mark.parametrize("what", HOSTILE)
def test_what_would_run_is_refused(what, where):
    """At any depth, in the part of the state that no rule looks at."""
    node, message = HOSTILE[what]
    state = {"_states": {"p": [({"x": node},)]}} if where == "inside" else {"_states": node}

    with pytest.raises(DefectError, match=message):
        prove_controller(BytesSource(a_controller_file(sampler=state)))


@pytest.mark.parametrize("value", [[1, 2], {"a": EVIL_STREAM}, EVIL_STREAM, 5])
def test_values_that_are_no_rows_are_refused(plane, value):
    """Only tensors, arrays, texts and bytes: anything else might hold a stream."""
    [unit] = (plane / "simple_storage").glob("su_0_*.pkl")
    unit_id = unit.stem.removeprefix("su_0_")
    tree = {"storage_unit_id": unit_id, "storage_unit_size": 5, "field_data": {"x": {0: value}}, "active_keys": {0}}
    unit.write_bytes(write_pickle(tree, 5))

    with pytest.raises(DefectError) as caught:
        prove_plane(str(plane), units=2)
    assert unit.name in caught.value.defects[0].location


def test_an_offloaded_value_is_refused(plane):
    """A blob is a file of its own, which may be a pickle."""
    [unit] = (plane / "simple_storage").glob("su_0_*.pkl")
    entry = {"filename": "0" * 32 + ".bin", "size_bytes": 8, "codec": "tensor", "dtype": "int64", "shape": (1,)}
    tree = {
        "format": "transfer_queue_hybrid_storage_v1", "ssd_index": {"x": {0: entry}}, "storage_unit_id": unit.stem.removeprefix("su_0_"),
        "storage_unit_size": 5, "field_data": {}, "active_keys": {0},
    }  # fmt: skip
    unit.write_bytes(write_pickle(tree, 5))

    with pytest.raises(DefectError, match="cannot be proved harmless"):
        prove_plane(str(plane), units=2)


def test_files_that_are_none_are_refused(plane, tmp_path):
    """Absent, a link, a folder, damaged, without rows: each with the file's name."""
    copies = [shutil.copytree(plane, tmp_path / str(number_of)) for number_of in range(4)]
    (copies[0] / "controller_state.pkl").unlink()
    (copies[0] / "controller_state.pkl").symlink_to(plane / "controller_state.pkl")
    (copies[1] / "controller_state.pkl").unlink()
    (copies[1] / "controller_state.pkl").mkdir()
    (copies[2] / "simple_storage" / "storage_unit_info.json").write_bytes(b"[")
    (copies[3] / "metadata.json").write_text('{"storage_saved": false, "user_metadata": {}}')
    for folder, name in zip(
        copies, ("controller_state.pkl", "controller_state.pkl", "storage_unit_info.json", "metadata.json"), strict=True
    ):
        with pytest.raises(DefectError) as caught:
            prove_plane(str(folder), units=2)
        assert name in caught.value.defects[0].location


def test_units_are_counted(plane):
    """A queue with another number of units would load some of them and then fail; gaps are no better."""
    with pytest.raises(DefectError, match="another number of storage units"):
        prove_plane(str(plane), units=1)
    (plane / "simple_storage" / "storage_unit_info.json").write_bytes(
        encode_unit_info([{"position": 0, "storage_unit_id": "a"}, {"position": 2, "storage_unit_id": "b"}])
    )
    with pytest.raises(DefectError, match="another number of storage units"):
        prove_plane(str(plane), units=2)


def test_rows_of_every_known_form_are_proved(plane):
    """Texts and byte strings are harmless."""
    [unit] = (plane / "simple_storage").glob("su_1_*.pkl")
    unit_id = unit.stem.removeprefix("su_1_")
    rows = {"x": {1: TensorValue("bool", (2,), b"\1\0")}}
    unit.write_bytes(encode_storage_unit(unit_id, 5, rows, {1}))
    prove_plane(str(plane), units=2)
    tree = {
        "storage_unit_id": unit_id, "storage_unit_size": 5, "field_data": {"x": {1: "text", 3: b"bytes"}}, "active_keys": {1, 3},
    }  # fmt: skip
    unit.write_bytes(write_pickle(tree, 5))
    prove_plane(str(plane), units=2)
