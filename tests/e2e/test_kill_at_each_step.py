"""`kill -9` of a real ckptctl at each numbered step of the transaction, against a real cluster; then the same command again."""

import json
import signal
import subprocess
import sys
import time

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.planning import snapshot as steps
from tests.e2e.lives import Running, owning
from tests.runs import judge_snapshot

pytestmark = pytest.mark.e2e
OFTEN = {steps.PUBLISH}
"""Killed there in every run of the tests; at the others in the long mode (tests/crash has all of them in one process)."""
ALL = [
    *(steps.CLOSE, steps.DRAIN, steps.PAUSE_MODELS, steps.PREPARE_AGENTS, steps.PREPARE_RESOURCES, steps.DRAIN_MODELS),
    *(steps.RETIRE_ORPHANS, steps.CHECK_PREPARED, steps.ALLOCATE),
    *(steps.COMMIT_AGENTS, steps.COMMIT_MODELS, steps.COMMIT_RESOURCES, steps.CHECK_COMMITTED),
    *(steps.SAVE, steps.WRITE_MANIFEST, steps.VALIDATE, steps.WRITE_CHECKSUMS, steps.SYNC, steps.PUBLISH, steps.RETAIN),
    *(steps.RESUME_RESOURCES, steps.RESUME_MODELS, steps.RESUME_AGENTS, steps.OPEN),
]
EACH = [pytest.param(step, marks=() if step in OFTEN else pytest.mark.long) for step in ALL]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """One cluster for all steps; its processes end with this module at the latest."""
    folder = tmp_path_factory.mktemp("cluster") / "run"
    cluster = Running(folder)
    with owning():
        try:
            # A session takes 1,024 mutations, so no run is longer; at this pace it lasts for all tests.
            cluster.sim("up", "--prompts", "2", "--turns", "1020", "--turn-delay", "1.5")
            cluster.sim("run", "--until-groups", "2")
            yield cluster
        finally:
            cluster.end()


@pytest.mark.parametrize("step", EACH)
@pytest.mark.parametrize("when", ["intent", pytest.param("effect", marks=pytest.mark.long)])
def test_killed_at_a_step(running, step, when) -> None:
    """The same command again recovers and succeeds: one snapshot that is valid, everybody released, nothing left to finish."""
    before = running.published()
    running.kill_at(step, when)
    of_the_killed = running.published() - before
    result = running.ckptctl("snapshot")
    report = judge_snapshot(LocalStore(), result["snapshot"], "standard", under_final_name=False)

    assert "valid" == report.verdict
    # Killed before the rename, it shows nothing and its number is taken again or left out; after it, it shows one.
    assert len(of_the_killed) <= 1
    assert running.published() - before <= {result["snapshot"], *of_the_killed}
    assert result["snapshot"] in running.published()
    running.assert_finished()


def test_killed_from_outside_while_a_server_holds_the_step(running) -> None:
    """Nothing inside the process is touched: the save is slow, its intent stands in the journal, the process is killed."""
    running.sim("fault", "--server", "controller", "--operation", "save", "--kind", "slow", "--delay", "3")
    journal = running.folder / "checkpoints" / ".ckptctl" / "journal"
    known = set(journal.glob("*.jsonl")) if journal.exists() else set()
    command = [sys.executable, "-m", "ckptctl", "snapshot", "--force", "--config", running.config]
    process = subprocess.Popen(command, env=running.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    with process:
        while process.poll() is None:
            texts = [path.read_text() for path in (set(journal.glob("*.jsonl")) - known)] if journal.exists() else []
            if any('"event":"intent","number":"6.1"' in text for text in texts):
                process.kill()
                break
            time.sleep(0.01)
    assert -signal.SIGKILL == process.returncode
    result = running.ckptctl("snapshot")

    assert "published" == result["outcome"]
    running.assert_finished()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_terminated_while_preparing(running, number) -> None:
    """SIGTERM, or a connection that is dropped: the attempt is aborted and released, exit 143, and the journal has nothing left to finish."""
    running.sim(
        "fault", "--server", "counter", "--operation", "resources-checkpoint/prepare", "--kind", "slow", "--delay", "2"
    )
    command = [
        sys.executable,
        "-m",
        "ckptctl",
        "snapshot",
        "--force",
        "--config",
        running.config,
        "--format",
        "json",
        "-v",
    ]
    process = subprocess.Popen(
        command, env=running.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if "prepare-resources" in line:
            process.send_signal(number)
            break
    _, errors = process.communicate(timeout=120)
    running.assert_finished()

    assert 143 == process.returncode, errors
    assert "stopped" == json.loads(errors.splitlines()[-1])["code"]
