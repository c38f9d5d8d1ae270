"""`ckptctl sim up` and `sim restart` that are stopped or killed in the middle: nothing is left that nothing can end."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.command_line import REPOSITORY, clean_environment, run, run_process

pytestmark = pytest.mark.e2e

STRUCK = """
import os, sys
from ckptctl.sim import cluster
def strike_after(holder, name):
    real = getattr(holder, name)
    def struck(*given, **named):
        found = real(*given, **named)
        os.kill(os.getpid(), {number})
        return found
    setattr(holder, name, struck)
strike_after({holder}, {name!r})
from ckptctl.__main__ import main
sys.argv = ["ckptctl", "sim", {command!r}, "--dir", {run_dir!r}]
main()
"""
"""A command that is sent a signal at one moment of its start."""
MOMENTS = {
    "before a process is started": ("cluster", "_prepare_directory"),
    "when they run and nobody has recorded them": ("cluster", "launch"),
    "when they are recorded": ("cluster", "write_record"),
    "when it waits for them": ("cluster.ClusterClient", "wait_ready"),
}
PATIENCE_S = 60


def alive(run_dir) -> list[int]:
    """Processes whose output goes to a log of this cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and os.readlink(entry / "fd/1").startswith(f"{run_dir}/logs/"):
                found.append(int(entry.name))
    return found


def all_gone(run_dir) -> bool:
    """Whether they all end, which may take them a moment."""
    deadline = time.monotonic() + PATIENCE_S
    while alive(run_dir) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(run_dir)


def struck(command, run_dir, number, moment):
    holder, name = MOMENTS[moment]
    program = STRUCK.format(number=int(number), holder=holder, name=name, command=command, run_dir=str(run_dir))
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def run_dir(tmp_path):
    """A run directory; whatever runs in it is killed in the end."""
    folder = tmp_path / "run"
    yield folder
    for pid in alive(folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGINT, 130)],
    ids=["TERM", "HUP", "INT"],
)
def test_a_start_that_is_stopped_leaves_nothing(number, status, moment, run_dir):
    """Every signal that asks for an end has the processes ended, and says nothing."""
    done = struck("up", run_dir, number, moment)

    assert (status, "", "") == (done.returncode, done.stdout, done.stderr)
    assert [] == alive(run_dir)


@pytest.mark.parametrize("moment", ["when they run and nobody has recorded them", "when they are recorded"])
def test_what_a_killed_start_leaves_can_be_ended(moment, run_dir):
    """Processes that the record does not name end by themselves."""
    assert -signal.SIGKILL == struck("up", run_dir, signal.SIGKILL, moment).returncode
    if (run_dir / "cluster.json").exists():
        assert 0 == run("sim", "down", "--kill", "--dir", str(run_dir)).status

    assert all_gone(run_dir)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)], ids=["TERM", "KILL"])
def test_a_restart_that_was_ended_can_be_done_again(number, status, run_dir):
    """One set of processes runs afterwards, the one that the record names."""
    assert 0 == run_process("sim", "up", "--dir", str(run_dir)).status
    assert status == struck("restart", run_dir, number, "when they run and nobody has recorded them").returncode
    assert all_gone(run_dir)

    assert 0 == run_process("sim", "restart", "--dir", str(run_dir)).status
    assert 6 == len(alive(run_dir))
    assert 0 == run("sim", "down", "--kill", "--dir", str(run_dir)).status
    assert [] == alive(run_dir)
