"""The attachment to a real TransferQueue: rows, checkpoints, restores; it never creates a queue and never closes one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ckptctl.controller.live_tq import LiveTransferQueue
from ckptctl.domain.dataplane import STAGED_FIELDS, TensorValue
from ckptctl.errors import InvalidSnapshotError, UnreachableError, UsageError
from ckptctl.formats.staged_row import call_digest, decode_staged_row, encode_staged_row, row_tags, stage_call
from tests.conftest import REPOSITORY, shared_fixtures
from tests.integration.real_queue import ReadPlane, check_same_rows
from tests.integration.test_transfer_queue import REAL_PLANES
from tests.unit.formats.planes import ints, number

GUEST = Path(__file__).with_name("guest.py")
ACTOR = {"name": "TransferQueueController", "namespace": "transfer_queue"}
GUEST_TIMEOUT_S = 300


def a_call(number_of: int = 0):
    return stage_call(
        rollout_id=f"g_g{number_of}",
        model_call_id="call-0",
        token_ids=[1, 2, 3],
        token_mask=[0, 0, 1],
        logprobs=[0, 0, -0.5],
        weight_version=3,
        extras={"é": [1, 2.5, None]},
    )


def named_actors(ray) -> list[dict[str, str]]:
    return ray.util.list_named_actors(all_namespaces=True)


def test_where_no_queue_runs_none_is_created(ray_session, queues):
    """A Ray without one: said so, and left as it is."""
    queues.close()
    before = named_actors(ray_session)
    with pytest.raises(UnreachableError, match="this Ray runs none") as caught:
        LiveTransferQueue.attach()

    assert "it never creates one" in caught.value.hint
    assert before == named_actors(ray_session)
    assert ray_session.is_initialized()


def test_a_process_in_another_ray_is_told(queue):
    """An address that is not this process' own would be ignored by Ray."""
    with pytest.raises(UsageError, match="this process is in the Ray at"):
        LiveTransferQueue.attach("192.0.2.1:6379")


def test_rows_go_through_the_real_queue(queue):
    """Every field of a staged row, scalars, tags; known and unknown keys; a partition of columns alone."""
    live = LiveTransferQueue.attach()
    rows = [a_call(number_of) for number_of in range(5)]
    live.register("live", tuple(STAGED_FIELDS))
    for row in rows:
        live.put("live", row.key, encode_staged_row(row), row_tags(row))
    live.put("live", "other", {"input_ids": ints(1), "empty": TensorValue("float32", (0,), b""), "n": number(7)})

    assert 2 == live.storage_units
    assert {row.key for row in rows} | {"other"} == live.keys("live")
    assert row_tags(rows[3]) == live.tags("live", rows[3].key)
    for row in rows:
        back = decode_staged_row(live.get("live", row.key))
        assert (row, row.digest) == (back, call_digest(back))
    assert {"input_ids": ints(1), "empty": TensorValue("float32", (0,), b""), "n": number(7)} == live.get(
        "live", "other"
    )
    with pytest.raises(KeyError):
        live.get("live", "absent")
    assert 2 == live.clear("live", [rows[0].key, "absent", "other"])
    assert {row.key for row in rows[1:]} == live.keys("live")
    assert frozenset() == live.keys("nothing")
    assert "nothing" not in queue.tq.get_client().get_partition_list()


def test_a_checkpoint_is_the_packages_own_and_comes_back(queue, tmp_path):
    """Read by us row by row, loaded over other rows; columns that were registered and never filled are kept."""
    live, folder = LiveTransferQueue.attach(), str(tmp_path / "data_plane")
    live.register("kept", ("never", "ids"))
    live.put("kept", "a", {"ids": ints(1, 2)}, {"weight_version": 3})
    live.save(folder, {"binding": {"step": 1}})
    live.put("kept", "late", {"ids": ints(3)})
    live.clear("kept", ["a"])
    read = ReadPlane(Path(folder))
    live.load(folder)

    assert {"binding": {"step": 1}} == read.metadata.user_metadata
    assert ints(1, 2) == read.value("kept", "a", "ids")
    assert "never" in read.plane.controller.partitions["kept"].columns
    assert frozenset({"a"}) == live.keys("kept")
    assert {"ids": ints(1, 2)} == live.get("kept", "a")
    assert ["data_plane"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("name", REAL_PLANES[:3])
def test_real_checkpoints_are_loaded(queue, name):
    """What NeMo-RL's queue wrote, 0.1.9 included: proved, and then served by this one."""
    folder = shared_fixtures() / name
    live = LiveTransferQueue.attach()
    live.load(str(folder))
    read = ReadPlane(folder)

    for partition, keys in read.tags().items():
        assert frozenset(keys) == live.keys(partition)


def test_a_checkpoint_of_another_size_is_refused_and_changes_nothing(queue, tmp_path):
    """The queue itself would have replaced what it holds before it noticed."""
    live, folder = LiveTransferQueue.attach(), tmp_path / "data_plane"
    live.put("kept", "a", {"ids": ints(1)})
    live.save(str(folder), {})
    (folder / "simple_storage" / "storage_unit_info.json").write_text('[{"position": 0, "storage_unit_id": "x"}]')
    live.put("kept", "b", {"ids": ints(2)})
    with pytest.raises(InvalidSnapshotError, match="another number of storage units"):
        live.load(str(folder))

    assert {"a", "b"} <= live.keys("kept")


def test_guests_come_and_go_and_the_queue_stays(ray_session, queue, tmp_path):
    """One leaves, one is killed: actors, rows and the other's checkpoint are there afterwards, and the owner goes on."""
    address = ray_session.get_runtime_context().gcs_address
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    actors = sorted(map(str, named_actors(ray_session)))
    guests = {
        end: subprocess.Popen(
            [sys.executable, str(GUEST), address, str(tmp_path / end), end],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for end in ("leave", "die")
    }  # fmt: skip
    output = {end: guest.communicate(timeout=GUEST_TIMEOUT_S) for end, guest in guests.items()}

    assert (0, -signal.SIGKILL) == tuple(guest.returncode for guest in guests.values()), output
    assert "units 2" in output["leave"][0]
    assert actors == sorted(map(str, named_actors(ray_session)))
    assert {"leave": {"from": "leave"}, "die": {"from": "die"}} == queue.tags()["guests"]
    assert "guests" in ReadPlane(tmp_path / "leave").tags()
    assert check_same_rows(tmp_path / "leave", queue) >= 2
    queue.tq.kv_clear(["leave", "die"], "guests")


def test_an_address_where_nobody_listens(tmp_path):
    """Said within seconds; Ray by itself would try for a minute."""
    program = (
        "import sys; from ckptctl.controller.live_tq import LiveTransferQueue; LiveTransferQueue.attach('127.0.0.1:9')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, check=False
    )  # fmt: skip

    assert "UnreachableError: `Ray` cannot be reached for attach: none answers at `127.0.0.1:9`" in done.stderr
