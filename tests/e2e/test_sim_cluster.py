"""The embedded cluster as real processes, driven by its command line."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ckptctl.cli.app import app
from ckptctl.sim.cluster_options import read_record
from ckptctl.sim.processes import OWNER_ENV, identity_of, is_alive, stop

pytestmark = pytest.mark.e2e


@pytest.fixture
def ckptctl(monkeypatch):
    """Runs a command line in this process; every process it starts ends with this test at the latest."""
    monkeypatch.setenv(OWNER_ENV, str(identity_of(os.getpid())))

    def run(*words, expect=0):
        result = CliRunner().invoke(app, list(words))
        assert expect == result.exit_code, result.output
        return result

    return run


@pytest.fixture
def run_dir(tmp_path):
    """A run directory; whatever runs in it is killed in the end."""
    folder = tmp_path / "run"
    yield str(folder)
    if (folder / "cluster.json").exists():
        stop([process.identity for process in read_record(str(folder)).processes], kill=True)


def answer(process):
    return json.loads(process.stdout)


def test_a_cluster_runs_from_up_to_down(ckptctl, run_dir):
    """Up, run to the end, a train step, a fault, status and down; nothing is left running."""
    started = answer(ckptctl("sim", "up", "--dir", run_dir, "--prompts", "2", "--turns", "2", "--format", "json"))
    assert 6 == len(started["processes"])
    assert {"idle", None} == {process["phase"] for process in started["processes"]}
    again = ckptctl("sim", "up", "--dir", run_dir, expect=20)
    assert "runs in" in again.stderr

    finished = answer(ckptctl("sim", "run", "--dir", run_dir, "--wait", "--timeout", "60", "--format", "json"))
    assert (2, []) == (finished["run"]["finished_groups"], finished["run"]["problems"])
    assert 1 == answer(ckptctl("sim", "step", "--dir", run_dir, "--format", "json"))["run"]["train_step"]
    nothing_left = ckptctl("sim", "step", "--dir", run_dir, "--format", "json", expect=31)
    assert "nothing_to_train" in nothing_left.stderr

    order = ("sim", "fault", "--dir", run_dir, "--server")
    ordered = answer(ckptctl(*order, "controller", "--operation", "save", "--kind", "refuse", "--format", "json"))
    assert ["refuse"] == [fault["kind"] for fault in ordered["faults"]]
    assert "no faults left" in ckptctl(*order, "controller", "--clear").stdout
    assert "no server" in ckptctl(*order, "nobody", "--clear", expect=2).stderr
    assert "no server" in ckptctl(*order, "nobody", "--kind", "lost", expect=2).stderr
    assert "no kind of fault `bogus`" in ckptctl(*order, "counter", "--kind", "bogus", expect=2).stderr
    unknown = ckptctl(*order, "counter", "--kind", "lost", "--operation", "increments", expect=2)
    assert "increment, resources-checkpoint/commit" in unknown.stderr
    assert "no faults of kind" in ckptctl(*order, "controller", "--kind", "orphan_session", expect=2).stderr
    orphan = ckptctl(*order, "counter", "--kind", "orphan_session").stdout
    assert "`counter` has an orphan session now: `orphan-0_g0` attempt 0\n" == orphan
    assert "--rollout" in ckptctl(*order, "counter", "--kind", "orphan_session", "--rollout", "a/../b", expect=2).stderr
    assert "--kind, --clear and --list" in ckptctl(*order, "counter", expect=2).stderr
    menu = answer(ckptctl(*order[:4], "--list", "--format", "json"))["menu"]
    assert {process.name for process in read_record(run_dir).processes} == {item["server"] for item in menu}
    assert "model-admission/pause" in ckptctl(*order[:4], "--list").stdout
    # A model call can be named although its path holds the rollout's name.
    assert "generate" in next(item["operations"] for item in menu if item["server"] == "policy_model")

    record = read_record(run_dir)
    assert 0o600 == Path(run_dir, "control.token").stat().st_mode & 0o777
    assert record.token() not in Path(run_dir, "ckptctl.yaml").read_text()
    assert Path(run_dir, "checkpoints/step_1/training_info.json").exists()
    ckptctl("sim", "down", "--dir", run_dir)
    assert not [process.name for process in record.processes if is_alive(process.identity)]


def test_a_process_that_died_is_reported_with_its_log(ckptctl, run_dir):
    """A dead controller is named with the end of its log and what to do; a restart brings it back on new ports."""
    ckptctl("sim", "up", "--dir", run_dir, "--prompts", "2", "--turns", "1")
    record = read_record(run_dir)
    (controller,) = [process for process in record.processes if process.role == "controller"]
    stop([controller.identity], kill=True)

    refused = ckptctl("sim", "run", "--dir", run_dir, expect=30)
    assert "has ended; its log ends" in refused.stderr
    restarted = answer(ckptctl("sim", "restart", "--dir", run_dir, "--format", "json"))
    assert (2, True) == (restarted["incarnation"], restarted["restore_expected"])
    waiting = ckptctl("sim", "status", "--dir", run_dir).stdout
    assert "it waits for a restore" in waiting
    assert "0 groups finished, 0 begun, 0 rollouts in flight (admission is closed)" in waiting
    fresh = ckptctl("sim", "restart", "--dir", run_dir, "--fresh").stdout
    assert ("no goal yet" in waiting, "no goal yet" in fresh) == (False, True)
    assert "waits for a restore" not in fresh
    assert max(len(line) for line in fresh.splitlines() if "http://" in line) <= 80
    record = read_record(run_dir)
    (controller,) = [process for process in record.processes if process.role == "controller"]
    begun = answer(ckptctl("sim", "run", "--dir", run_dir, "--until-groups", "2", "--format", "json"))["run"]
    assert begun["in_flight"] or 2 == begun["finished_groups"]
    stop([process.identity for process in record.processes], kill=True)
    assert not [process.name for process in record.processes if is_alive(process.identity)]


def test_no_cluster_there(ckptctl, tmp_path):
    """A directory without a cluster is status 3."""
    assert "holds no embedded cluster" in ckptctl("sim", "status", "--dir", str(tmp_path), expect=3).stderr
