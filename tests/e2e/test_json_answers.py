"""One cluster of real processes, driven by the command line in JSON: every answer and every failure as its schema promises it, and the
exit statuses that only live servers can bring about.
"""

import json
import os
from pathlib import Path

import pytest

from ckptctl.adapters.locks import FileLock
from ckptctl.sim.cluster_options import read_record
from ckptctl.sim.processes import OWNER_ENV, identity_of, stop
from tests.command_line import run, run_process
from tests.schemas import problems
from tests.workflows.test_journal_lines import journal_problems

pytestmark = pytest.mark.e2e
SIM = {
    "up": "sim-cluster.v1.json",
    "down": "sim-cluster.v1.json",
    "restart": "sim-cluster.v1.json",
    "status": "sim-cluster.v1.json",
    "run": "sim-run.v1.json",
    "step": "sim-run.v1.json",
    "fault": "sim-fault.v1.json",
    "compare": "sim-compare.v1.json",
}
LIVE = {
    "snapshot": "snapshot.v1.json",
    "publish": "publish.v1.json",
    "restore": "restore.v1.json",
    "inspect": "inspect-live.v1.json",
}


class Driven:
    """A cluster and the command lines that drive it; each answer is compared with its schema at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint_dir = folder / "checkpoints"

    def sim(self, word: str, *words: str) -> dict:
        places = (str(self.folder),) * 2 if word == "compare" else ("--dir", str(self.folder))
        ran = run("sim", word, *places, *words, "--format", "json")
        assert [] == problems(ran.stdout or ran.stderr, SIM[word] if ran.stdout else "error.v1.json")
        return json.loads(ran.stdout or ran.stderr)

    def fault(self, server: str, operation: str, *words: str) -> None:
        self.sim("fault", "--server", server, "--operation", operation, *words)

    def clear(self) -> None:
        for server in ("policy_model", "simple_agent", "counter", "controller"):
            self.sim("fault", "--server", server, "--clear")

    def ckptctl(self, expect: int, *words: str, runner=run) -> dict:
        ran = runner(*words, "--config", str(self.folder / "ckptctl.yaml"), "--format", "json")
        assert expect == ran.status, (ran.stdout, ran.stderr)
        # An answer whose own status is not 0 is an answer all the same: `inspect --live` of servers that would refuse.
        assert "" in (ran.stdout, ran.stderr)
        assert [] == problems(ran.stdout or ran.stderr, LIVE[words[0]] if ran.stdout else "error.v1.json")
        return json.loads(ran.stdout or ran.stderr)

    def process(self, name: str):
        return next(item for item in read_record(str(self.folder)).processes if item.name == name)


@pytest.fixture
def driven(tmp_path, monkeypatch):
    """A run directory; whatever runs in it is killed in the end."""
    monkeypatch.setenv(OWNER_ENV, str(identity_of(os.getpid())))
    made = Driven(tmp_path / "run")
    yield made
    if (made.folder / "cluster.json").exists():
        stop([process.identity for process in read_record(str(made.folder)).processes], kill=True)


@pytest.mark.long
def test_every_answer_of_a_life_with_failures(driven) -> None:
    """Aborted 22, pending 23, closed 24, refused 20, busy 21, unreachable 30, refused by a server 31; then killed, restored and compared."""
    driven.sim("up", "--prompts", "3", "--turns", "400", "--turn-delay", "0.02", "--prepare-timeout", "20")
    driven.sim("run", "--until-groups", "1")
    refuse = ("--kind", "refuse", "--code", "resources_checkpoint_error")

    driven.fault("counter", "resources-checkpoint/commit", *refuse)
    assert "resources_checkpoint_error" == driven.ckptctl(22, "snapshot")["server_code"]
    driven.fault("counter", "resources-checkpoint/resume", "--times", "0", *refuse)
    assert driven.ckptctl(23, "snapshot")["retryable"]
    assert "closed" == driven.ckptctl(21, "inspect", "--live")["controller"]["admission"]
    driven.clear()
    assert "released" == driven.ckptctl(0, "publish")["outcome"]

    driven.fault("counter", "resources-checkpoint/commit", *refuse)
    driven.fault("simple_agent", "agent-checkpoint/resume", "--times", "0", "--kind", "lost")
    assert "admission-may-be-closed" == driven.ckptctl(24, "snapshot", "--force")["code"]
    driven.clear()
    assert "aborted" == driven.ckptctl(0, "publish")["outcome"]

    assert "not-fresh" == driven.ckptctl(20, "restore")["code"]
    driven.fault("controller", "status", "--kind", "status", "--status", "401", "--times", "0")
    assert "credential-refused" == driven.ckptctl(31, "snapshot")["code"]
    driven.clear()
    lock = FileLock(str(driven.checkpoint_dir))
    lock.acquire()
    try:
        assert "lock-held" == driven.ckptctl(21, "snapshot", runner=run_process)["code"]
    finally:
        lock.release()

    assert "published" == driven.ckptctl(0, "snapshot", "--force")["outcome"]
    assert driven.ckptctl(0, "inspect", "--live")["would_snapshot"]
    stop([driven.process("counter").identity], kill=True)
    assert "unreachable" == driven.ckptctl(30, "snapshot")["code"]
    assert "counter" in json.dumps(driven.ckptctl(30, "inspect", "--live")["problems"])

    driven.sim("down", "--kill")
    driven.sim("restart")
    plan = driven.ckptctl(0, "restore", "--plan")
    restored = driven.ckptctl(0, "restore")
    assert {item["rollout_id"] for item in plan["rollouts"]} == {item["rollout_id"] for item in restored["rollouts"]}
    assert [] != restored["rollouts"]
    driven.sim("status")
    assert "differences" in driven.sim("compare")
    driven.sim("down")
    assert [] == [problem for told in journal_problems(driven.checkpoint_dir).values() for problem in told]
