"""The attachment to a live TransferQueue, around a package that is not there: what is asked of it, waited for, refused and undone."""

import asyncio
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from ckptctl.controller import live_tq
from ckptctl.controller.live_tq import LiveTransferQueue
from ckptctl.controller.patient import PatientCaller
from ckptctl.errors import InvalidSnapshotError, TimedOutError, UnreachableError, UsageError
from tests.conftest import REPOSITORY
from tests.fakes.queue_package import FakeQueue
from tests.unit.formats.planes import ints, number

ROW = {"ids": ints(1, 2), "length": number(2)}


@pytest.fixture
def package():
    return FakeQueue()


@pytest.fixture
def queue(package):
    return LiveTransferQueue.attach_to(package, None, timeout_s=10)


def test_without_the_extra_nothing_is_attached(monkeypatch):
    """The error names what is missing and what installs it; nothing of it was imported."""
    monkeypatch.setattr(live_tq, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="needs `ray` and `transfer_queue`, which are not installed") as caught:
        LiveTransferQueue.attach("auto")

    assert "pip install 'ckptctl[transferqueue]'" == caught.value.hint


def test_the_library_and_the_cluster_load_without_the_extra():
    """Ray and torch are imported by an attachment, and by nothing before it."""
    program = (
        "import sys, ckptctl.controller.live_tq, ckptctl.controller.tq_package, ckptctl.sim.cluster, ckptctl.sim.queue_client;"
        "print(sorted({'ray', 'torch', 'transfer_queue', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()


def test_rows_go_in_and_come_out(queue, package):
    """Put, list, get and clear of one row; a second put adds fields."""
    queue.put("rows", "a", ROW, {"n": 1})
    queue.put("rows", "a", {"more": number(5)})

    assert 2 == queue.storage_units
    assert frozenset({"a"}) == queue.keys("rows")
    assert {"n": 1} == queue.tags("rows", "a")
    assert ROW | {"more": number(5)} == queue.get("rows", "a")
    assert frozenset() == queue.keys("unknown")
    assert (1, 0) == (queue.clear("rows", ["a", "b", "a"]), queue.clear("rows", ["a"]))
    assert 1 == package.asked.count("clear")


@pytest.mark.parametrize("ask", ["get", "tags"])
def test_an_absent_row_is_a_key_error(queue, ask):
    """As in a mapping; nothing is made by asking."""
    queue.put("rows", "a", ROW)
    with pytest.raises(KeyError):
        getattr(queue, ask)("rows", "b")

    assert frozenset({"a"}) == queue.keys("rows")


def test_a_partition_is_registered_once(queue, package):
    """Columns without rows; a partition that is there is left alone."""
    queue.register("rows", ("ids", "length"))
    queue.register("rows", ("others",))

    assert frozenset() == queue.keys("rows")
    assert ["ids", "length"] == list(package.plane.image().partitions["rows"].columns)
    assert 1 == package.asked.count("put")


def test_a_checkpoint_comes_back(queue, package, tmp_path):
    """Saved with its binding, loaded over other rows: exactly what was there."""
    queue.put("rows", "a", ROW, {"n": 1})
    queue.save(str(tmp_path / "plane"), {"step": 3})
    queue.clear("rows", ["a"])
    queue.put("rows", "late", ROW)
    queue.load(str(tmp_path / "plane"))

    assert frozenset({"a"}) == queue.keys("rows")
    assert ROW == queue.get("rows", "a")
    assert {"step": 3} == live_tq.read_plane_metadata(str(tmp_path / "plane")).user_metadata


@pytest.mark.parametrize("trouble", ["fails", "saves no rows"])
def test_a_failed_save_leaves_nothing_behind(queue, package, tmp_path, trouble):
    """Whatever the queue had written by then is removed, its temporary folder too."""
    queue.put("rows", "a", ROW)
    (tmp_path / "plane.tmp").mkdir()
    if trouble == "fails":
        package.failures["save"] = RuntimeError("no space left on device")
    else:
        package.saves_rows = False
    with pytest.raises(UnreachableError, match=r"no space left on device|it saved no rows"):
        queue.save(str(tmp_path / "plane"), {})

    assert [] == list(tmp_path.iterdir())


def test_a_folder_that_exists_is_not_replaced(queue, package, tmp_path):
    """A checkpoint is written under a new name, and never below a relative path."""
    (tmp_path / "plane").mkdir()
    with pytest.raises(UsageError, match="exists"):
        queue.save(str(tmp_path / "plane"), {})
    with pytest.raises(UsageError, match="is no absolute path"):
        queue.save("plane", {})
    with pytest.raises(UsageError, match="is no absolute path"):
        queue.load("plane")

    assert [tmp_path / "plane"] == list(tmp_path.iterdir())
    assert "save" not in package.asked


def test_what_cannot_be_proved_is_not_handed_to_the_queue(queue, package, tmp_path):
    """Another number of units, a missing file: refused before anything is loaded."""
    queue.put("rows", "a", ROW)
    queue.save(str(tmp_path / "plane"), {})
    other = LiveTransferQueue(package, storage_units=3)
    with pytest.raises(InvalidSnapshotError, match="another number of storage units"):
        other.load(str(tmp_path / "plane"))
    (tmp_path / "plane" / "controller_state.pkl").unlink()
    with pytest.raises(InvalidSnapshotError, match=r"cannot be opened.*controller_state.pkl"):
        queue.load(str(tmp_path / "plane"))

    assert "load" not in package.asked


def test_failures_of_the_package_have_a_name(queue, package):
    """Foreign exceptions do not leak; what was asked is said."""
    package.failures["put"] = RuntimeError("unit is full")
    with pytest.raises(UnreachableError, match="`TransferQueue` cannot be reached for put: RuntimeError: unit is full"):
        queue.put("rows", "a", ROW)


def test_attaching_to_nothing_fails(package):
    """The package's own error comes through; nothing is started."""
    with pytest.raises(UnreachableError, match="none answers at `nowhere`"):
        LiveTransferQueue.attach_to(package, "nowhere", timeout_s=10)

    assert ["connect"] == package.asked


def test_the_readmes_lines_do_what_they_say(package, monkeypatch, tmp_path):
    """Saved inside the caller's barrier, cleared with both counts, loaded again."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    block = readme.split("#### Rows in a live TransferQueue", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    made = LiveTransferQueue.attach_to(package, None, timeout_s=10)
    monkeypatch.setattr(LiveTransferQueue, "attach", lambda: made)
    names = {"asyncio": asyncio}
    exec(block, names)
    half, request = names["QueueHalf"](), SimpleNamespace(checkpoint_dir=str(tmp_path), keys=["a", "b"])
    made.put("rollout_staging", "a", ROW)
    asyncio.run(half.save_rows(request, {"step": 1}))
    reply = asyncio.run(half.clear_staging(request))
    asyncio.run(half.load_rows(request))

    assert (1, 1) == (reply.cleared, reply.absent)
    assert frozenset({"a"}) == made.keys("rollout_staging")


def test_detaching_only_leaves(queue, package):
    """One thread made all the calls, none of which ends a queue."""
    queue.put("rows", "a", ROW)
    queue.detach()

    assert "disconnect" == package.asked[-1]
    assert 1 == len(package.threads - {threading.get_ident()})
    assert frozenset({"a"}) == package.plane.keys("rows")


def test_a_silent_queue_is_not_waited_for(package):
    """The call ends; the ones behind it say that they never began, and when the queue speaks again all is as before."""
    calls = PatientCaller("TransferQueue")
    queue = LiveTransferQueue(package, storage_units=2, calls=calls)
    package.silent_at = "put"
    with pytest.raises(TimedOutError, match="nothing was heard for 10 ms$"):
        calls.call("put", lambda: package.put("rows", "late", ROW, None), 0.01)
    with pytest.raises(TimedOutError, match="nothing was heard for 1 s, because of the request before it"):
        calls.call("clear", lambda: package.clear("rows", ["late"]), 3600)
    package.goes_on.set()

    assert frozenset({"late"}) == queue.keys("rows")  # what was given up was done later; what had not begun never was


def test_an_error_of_the_call_is_the_callers():
    """A TimeoutError that the work itself raises is not taken for a silent queue."""

    def work():
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        PatientCaller("TransferQueue").call("get", work, 10)
