"""One real Ray and one real TransferQueue for the whole group; its warnings are its own business.

Nothing is imported from torch, ray or transfer_queue before a test of this group runs, so that the ordinary suite can collect it.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from tests.integration.embedded import build_snapshot
from tests.integration.real_queue import RealQueues
from tests.integration.slurm_node import PYTHON, SlurmNode

SNAPSHOT_VARIABLE = "CKPTCTL_INTEGRATION_SNAPSHOT"
GIVEN_SNAPSHOTS = [Path(item) for item in os.environ.get(SNAPSHOT_VARIABLE, "").split(os.pathsep) if item]
"""Snapshot directories to check as well; taken now, since tests run without the variables of their caller."""


OBJECT_STORE_BYTES = 80 << 20
"""About the least that Ray takes; rows never go through it."""
ROW_META = "nemo_rl.data_plane.interfaces"


def pytest_collection_modifyitems(items):
    """Mark the group, and let foreign packages warn."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            item.add_marker(pytest.mark.timeout(900))


def pytest_generate_tests(metafunc):
    """Every test that takes `snapshot_source` runs for each snapshot that was named, and for one of the embedded cluster."""
    if "snapshot_source" in metafunc.fixturenames:
        metafunc.parametrize("snapshot_source", [*GIVEN_SNAPSHOTS, "embedded cluster"], ids=str)


@pytest.fixture(scope="session")
def ray_session():
    """A local Ray that believes in eight CPUs, so that every actor of TransferQueue finds a place on two."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = pytest.importorskip("ray", reason="needs the environment of tests/integration/run.sh")
    pytest.importorskip("transfer_queue", reason="needs the environment of tests/integration/run.sh")
    ray.init(
        num_cpus=8,
        include_dashboard=False,
        log_to_driver=False,
        address="local",
        object_store_memory=OBJECT_STORE_BYTES,
    )
    yield ray
    ray.shutdown()


@pytest.fixture(scope="session")
def queues(ray_session):
    """Starts TransferQueues one at a time: `queues.use(units=2)` gives the running one if it is like that. A start takes 15 s."""
    with contextlib.closing(RealQueues()) as running:
        yield running


@pytest.fixture
def queue(queues):
    """A TransferQueue of two storage units. Loading a checkpoint replaces everything in it."""
    return queues.use(units=2)


@pytest.fixture(scope="session")
def torch():
    """The real torch."""
    return pytest.importorskip("torch", reason="needs the environment of tests/integration/run.sh")


@pytest.fixture
def row_meta(torch, monkeypatch):
    """A stand-in for NeMo-RL's KVBatchMeta under its own name, allowed in weights-only loading for one test."""
    module = types.ModuleType(ROW_META)
    cls = type("KVBatchMeta", (), {"__module__": ROW_META})
    module.KVBatchMeta = cls
    for name in ("nemo_rl", "nemo_rl.data_plane"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, ROW_META, module)
    with torch.serialization.safe_globals([cls]):
        yield cls


@pytest.fixture(scope="session")
def embedded_snapshot(tmp_path_factory):
    """A snapshot that the embedded cluster wrote, built once by the command line."""
    return build_snapshot(tmp_path_factory.mktemp("embedded"))


@pytest.fixture
def snapshot(snapshot_source, request):
    """The folder of the snapshot that a test checks."""
    return snapshot_source if isinstance(snapshot_source, Path) else request.getfixturevalue("embedded_snapshot")


@pytest.fixture(scope="session")
def told(request):
    """Lines for the end of the run: what happened to the node of Slurm."""
    lines = []
    yield lines
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("", f"{'what happened':<46} {'job':<10} {'verdicts':<28} node", *lines, sep="\n  slurm: ")


@pytest.fixture(scope="session")
def slurm_node(told):
    """A Slurm of one node for all tests of this group, in a place that every user may enter."""
    root = Path("/var/tmp") / f"ckptctl-slurm-{os.getpid()}"
    root.mkdir(mode=0o755)
    node = SlurmNode(root, Path(PYTHON))
    try:
        node.up()
        yield node
    finally:
        node.down()
        shutil.rmtree(root, ignore_errors=True)
    told.append(f"the tests on Slurm took {node.seconds:.0f} s")


@pytest.fixture
def slurm(slurm_node):
    """The node; what a test's jobs leave running ends with the test. Servers outlive their job: they are sessions of their own."""
    began_s = time.monotonic()
    yield slurm_node
    slurm_node.end_jobs()
    for record in slurm_node.root.rglob("cluster.json"):
        subprocess.run([PYTHON, "-m", "ckptctl", "sim", "down", "--kill", "-q", "--dir", record.parent], check=False)
        record.unlink()
    slurm_node.seconds += time.monotonic() - began_s
