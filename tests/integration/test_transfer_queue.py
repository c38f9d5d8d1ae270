"""Data planes that we wrote, loaded by a real TransferQueue; and data planes that it wrote, read by us."""

import shutil
from dataclasses import replace

import pytest

from ckptctl.domain.dataplane import STAGED_FIELDS, ControllerState, Partition, TensorValue
from ckptctl.formats.staged_row import call_digest, decode_staged_row, encode_staged_row, row_tags, stage_call
from ckptctl.formats.tq_writer import (
    encode_controller_state,
    encode_metadata,
    encode_storage_unit,
    encode_unit_info,
    field_meta,
)
from tests.conftest import shared_fixtures
from tests.integration.real_queue import ReadPlane, check_same_rows, put_everything
from tests.unit.formats.planes import a_partition, a_state, ints, number

UNITS = ("TQ_STORAGE_UNIT_00000001", "TQ_STORAGE_UNIT_00000002")
REAL_PLANES = [
    "tq/small/step_1/data_plane",
    "tq/v019/small/step_1/data_plane",
    "turn/step_1/rollout_snapshots/snapshot_000002/data_plane",
    "norollouts/step_2/rollout_snapshots/snapshot_000001/data_plane",
]


def floats(count: int) -> TensorValue:
    return TensorValue("float32", (count,), bytes(range(count * 4)))


def a_staged_partition() -> tuple[Partition, dict]:
    """A chain of two calls and one row with routes, under indexes that were freed before."""
    root = stage_call(
        rollout_id="g_g0",
        model_call_id="call-0",
        token_ids=[1, 2, 3],
        token_mask=[0, 0, 1],
        logprobs=[0, 0, -0.5],
        weight_version=3,
    )
    child = stage_call(
        rollout_id="g_g0",
        model_call_id="call-1",
        token_ids=[4, 5],
        token_mask=[0, 1],
        logprobs=[0, -0.0],
        weight_version=4,
        parent=root,
        prefix_ids=[1, 2, 3],
        extras={"é": [1, 2.5, None]},
    )
    routes = TensorValue("int16", (2, 3, 2), bytes(range(24)))
    routed = stage_call(
        rollout_id="g_g1-a1",
        model_call_id="call-0",
        token_ids=[7, 8],
        token_mask=[0, 1],
        logprobs=[0, -1],
        weight_version=4,
        routed_experts=routes,
        routed_experts_encoding=1,
    )
    rows: dict = {}
    calls = {9: root, 2: child, 4: routed}
    for index, row in calls.items():
        for field, value in encode_staged_row(row).items():
            rows.setdefault(field, {})[index] = value
    keys = {row.key: index for index, row in calls.items()}
    return a_partition("rollout_staging", keys, rows, {index: row_tags(row) for index, row in calls.items()}), rows


def a_plane() -> tuple[ControllerState, dict]:
    """Two partitions over two units: ragged and scalar fields, a tag-only key, a key with one field, consumed rows, gaps."""
    canonical = {
        "input_ids": {0: ints(1, 2, 3), 3: ints(4, 5), 7: ints(6)},
        "generation_logprobs": {0: floats(3), 3: floats(2)},
        "input_lengths": {0: number(3), 3: number(2)},
        "sample_mask": {0: TensorValue("float32", (), b"\0\0\x80?"), 3: TensorValue("float32", (), bytes(4))},
        "advantages": {},
    }
    keys = {"g_g0": 0, "g_g1": 3, "g_g2": 7, "tag-only": 8}
    tags = {
        0: {"weight_version": 3, "route": {"spans": [], "é": None}},
        3: {"weight_version": 4},
        7: {"one": "field"},
        8: {"note": "tag only"},
    }
    staged, staged_rows = a_staged_partition()
    rows = {**canonical, **staged_rows}
    return a_state(a_partition("rollout_data", keys, canonical, tags), staged), rows


def write_plane(folder, state, rows) -> None:
    storage = folder / "simple_storage"
    storage.mkdir(parents=True)
    (folder / "controller_state.pkl").write_bytes(encode_controller_state(state, created_at=1.5))
    for position, unit in enumerate(UNITS):
        mine = {
            field: {index: value for index, value in values.items() if index % 2 == position}
            for field, values in rows.items()
        }
        active = {index for values in mine.values() for index in values}
        (storage / f"su_{position}_{unit}.pkl").write_bytes(encode_storage_unit(unit, 500, mine, active))
    (storage / "storage_unit_info.json").write_bytes(
        encode_unit_info({"position": position, "storage_unit_id": unit} for position, unit in enumerate(UNITS))
    )
    (folder / "metadata.json").write_bytes(encode_metadata({"data_plane_checkpoint_schema_version": 2}))


def test_a_written_plane_is_loaded_with_the_same_rows(queue, tmp_path):
    """Keys, tags, ragged and scalar columns, staged rows, two units, freed indexes."""
    state, rows = a_plane()
    write_plane(tmp_path / "data_plane", state, rows)

    assert check_same_rows(tmp_path / "data_plane", queue) > 70
    found = queue.rows("rollout_data", ["g_g1", "g_g0"], ["input_ids", "input_lengths"])
    assert {"input_ids": ints(4, 5), "input_lengths": number(2)} == found["g_g1"]


def test_staged_rows_come_back_from_the_real_queue(queue, tmp_path):
    """A row that went through TransferQueue still digests to its own name."""
    state, rows = a_plane()
    write_plane(tmp_path / "data_plane", state, rows)
    queue.tq.load_checkpoint(str(tmp_path / "data_plane"))
    for key in state.partitions["rollout_staging"].keys:
        row = decode_staged_row(
            queue.rows("rollout_staging", [key], list(STAGED_FIELDS))[key]
            | ({"routed_experts": TensorValue("int16", (2, 3, 2), bytes(range(24)))})
        )
        assert key == row.key
        assert row.digest == call_digest(row)


def test_work_goes_on_after_loading(queue, tmp_path):
    """New rows take the freed indexes, old fields grow and shrink, and the next save is read by us."""
    import torch
    from tensordict import TensorDict

    state, rows = a_plane()
    write_plane(tmp_path / "data_plane", state, rows)
    queue.tq.load_checkpoint(str(tmp_path / "data_plane"))
    fresh = {"input_ids": torch.tensor([[9, 9, 9, 9], [8, 8, 8, 8]]), "input_lengths": torch.tensor([4, 4])}
    queue.tq.kv_batch_put(
        keys=["h_g0", "h_g1"],
        partition_id="rollout_data",
        fields=TensorDict(fresh, batch_size=2),
        tags=[{"weight_version": 5}, {}],
    )
    queue.tq.kv_put(key="h_g0", partition_id="rollout_data", fields={"advantages": torch.tensor([0.5, 0.5])})
    queue.tq.kv_clear(["g_g0"], "rollout_data")
    queue.tq.save_checkpoint(str(tmp_path / "next"), metadata={"round": 2})
    read = ReadPlane(tmp_path / "next")

    partition = read.plane.controller.partitions["rollout_data"]
    assert {1, 5} == {partition.keys["h_g0"], partition.keys["h_g1"]}
    assert {"g_g1", "g_g2", "tag-only", "h_g0", "h_g1"} == set(partition.keys)
    assert ints(8, 8, 8, 8) == read.value("rollout_data", "h_g1", "input_ids")
    assert number(2) == read.value("rollout_data", "g_g1", "input_lengths")
    assert {"round": 2} == read.metadata.user_metadata
    assert check_same_rows(tmp_path / "next", queue) > 60


@pytest.mark.parametrize("name", REAL_PLANES)
def test_real_planes_agree_with_the_real_queue(queue, tmp_path, name):
    """What we read of a fixture is what TransferQueue serves from it."""
    shutil.copytree(shared_fixtures() / name, tmp_path / "data_plane")

    assert check_same_rows(tmp_path / "data_plane", queue) > 20


@pytest.mark.parametrize("name", REAL_PLANES[:1] + REAL_PLANES[2:3])
def test_a_rewritten_real_plane_is_loaded_again(queue, tmp_path, name):
    """Read by us, written by us, loaded by TransferQueue: the same rows as from the original."""
    original = ReadPlane(shared_fixtures() / name)
    rows = {}
    for partition, keys in original.tags().items():
        for fields, members in original.produced(partition).items():
            for key in members:
                for field in fields:
                    index = original.plane.controller.partitions[partition].keys[key]
                    rows.setdefault(field, {})[index] = original.value(partition, key, field)
        assert keys
    write_plane(tmp_path / "data_plane", original.plane.controller, rows)

    assert check_same_rows(tmp_path / "data_plane", queue) > 20


def test_a_plane_saved_by_transferqueue_is_read_value_by_value(queue, tmp_path):
    """Dense batches (views of one buffer), ragged columns, scalars, each dtype; cleared and reused indexes."""
    import torch

    expected = put_everything(queue)
    queue.tq.kv_clear(["k1", "k3"], "everything")
    queue.tq.kv_put(key="again", partition_id="other", fields={"x": torch.tensor([1, 2])}, tag={"late": True})
    queue.tq.save_checkpoint(str(tmp_path / "data_plane"), metadata={"a": {"b": None}})
    read = ReadPlane(tmp_path / "data_plane")

    assert {"k0": {"n": 0}, "k2": {"n": 2}, "k4": {"n": 4}} == read.tags()["everything"]
    assert {"again": {"late": True}} == read.tags()["other"]
    kept = {place: value for place, value in expected.items() if place[0] in ("k0", "k2", "k4")}
    assert kept == {(key, field): read.value("everything", key, field) for key, field in kept}
    assert ints(1, 2) == read.value("other", "again", "x")
    assert {"a": {"b": None}} == read.metadata.user_metadata


def test_field_metadata_of_the_writer_is_what_transferqueue_believes(queue, tmp_path):
    """The shapes, dtypes and nesting that we derive from rows are those that a put leaves behind."""
    put_everything(queue)
    queue.tq.save_checkpoint(str(tmp_path / "data_plane"))
    read = ReadPlane(tmp_path / "data_plane")
    partition = read.plane.controller.partitions["everything"]
    for field, believed in partition.field_metas.items():
        derived = field_meta({index: read.value("everything", key, field) for key, index in partition.keys.items()})
        if derived.is_nested:  # TransferQueue keeps the shape of the first row there and never looks at it again
            believed = replace(believed, shape=None)

        assert believed == derived
