"""Clusters of real processes that are used, killed and brought back by the real program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from ckptctl.adapters.clock import SystemClock
from ckptctl.adapters.journal import FileJournal
from ckptctl.cli.app import app
from ckptctl.planning import restore as steps
from ckptctl.planning.snapshot import OPEN, RESUME_AGENTS, RESUME_MODELS, RESUME_RESOURCES
from ckptctl.sim.cluster_options import read_record
from ckptctl.sim.processes import OWNER_ENV, identity_of, stop
from ckptctl.sim.run_files import read_log
from tests.conftest import REPOSITORY

KILLED = Path(__file__).with_name("killed_ckptctl.py")
COMMAND_TIMEOUT_S = 300
HELD_S = "1.0"
HELD = {
    steps.RESTORE_CONTROLLER: ("controller", "restore"),
    steps.RESTORE_MODELS: ("policy_model", "model-checkpoint/restore"),
    steps.RESTORE_AGENTS: ("simple_agent", "agent-checkpoint/restore"),
    steps.RESTORE_RESOURCES: ("counter", "resources-checkpoint/restore"),
    steps.PLAN_ATTEMPTS: ("controller", "ledger"),
    RESUME_RESOURCES: ("counter", "resources-checkpoint/resume"),
    RESUME_MODELS: ("policy_model", "model-admission/resume"),
    RESUME_AGENTS: ("simple_agent", "agent-checkpoint/resume"),
    OPEN: ("controller", "admission/open"),
}
"""Step of a restore -> the server that holds it, and at which request."""


@contextmanager
def owning() -> Iterator[None]:
    """Whatever is started ends with this process at the latest."""
    before = os.environ.get(OWNER_ENV)
    os.environ[OWNER_ENV] = str(identity_of(os.getpid()))
    try:
        yield
    finally:
        if before is None:
            del os.environ[OWNER_ENV]
        else:
            os.environ[OWNER_ENV] = before


class Running:
    """A cluster in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = str(folder / "ckptctl.yaml")
        self.environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}

    def sim(self, *words: str) -> dict[str, Any]:
        """`ckptctl sim`, in this process."""
        result = CliRunner().invoke(app, ["sim", words[0], "--dir", str(self.folder), *words[1:], "--format", "json"])
        assert 0 == result.exit_code, result.output
        answer: dict[str, Any] = json.loads(result.stdout)
        return answer

    def ckptctl(self, *words: str, expect: int = 0) -> dict[str, Any]:
        """ckptctl as a process; its answer, or its error."""
        command = [sys.executable, "-m", "ckptctl", *words, "--config", self.config, "--format", "json"]
        done = self._run(command)
        assert expect == done.returncode, (done.stdout, done.stderr)
        answer: dict[str, Any] = json.loads(done.stdout or done.stderr.splitlines()[-1])
        return answer

    def kill_at(self, step: str, when: str) -> None:
        """A snapshot by a process that kills itself at a step."""
        done = self._run([sys.executable, str(KILLED), step, when, "snapshot", "--force", "--config", self.config])
        assert -signal.SIGKILL == done.returncode, (done.stdout, done.stderr)

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S
        )

    def published(self) -> set[str]:
        """Paths of all snapshots that are visible."""
        return {str(path) for path in self.folder.glob("checkpoints/*/rollout_snapshots/snapshot_*")}

    def assert_finished(self) -> None:
        """Everybody is released, and no transaction waits for its end."""
        live = self.sim("status")
        journal = FileJournal(str(self.folder / "checkpoints"), SystemClock())
        assert {"idle"} == {item["phase"] for item in live["processes"] if item["phase"] is not None}, live
        assert "finish" == journal.read(journal.transactions()[-1])[-1].record["event"]

    def end(self) -> None:
        """No process is left."""
        if (self.folder / "cluster.json").exists():
            stop([process.identity for process in read_record(str(self.folder)).processes], kill=True)


class Life(Running):
    """A cluster that dies and comes back."""

    groups = 2
    """Its goal."""

    @property
    def journals(self) -> Path:
        """Where the journals of its checkpoint directory lie."""
        return self.folder / "checkpoints" / ".ckptctl" / "journal"

    def hold_generation(self, after_calls: int = 0) -> None:
        """Rollouts wait before their next model call: what is in flight stays so, however slow this machine is."""
        order = ("fault", "--server", "policy_model", "--operation", "generate", "--kind")
        if after_calls:
            self.sim(*order, "late", "--delay", "0", "--times", str(after_calls))
        self.sim(*order, "refuse", "--code", "checkpoint_parked", "--times", "0")

    def mutations(self) -> int:
        """What any server of this incarnation was asked to change."""
        incarnation = read_record(str(self.folder)).incarnation
        paths = self.folder.glob(f"audit-*-{incarnation}-*.jsonl")
        return sum(line["event"] == "mutation" for path in paths for line in read_log(str(path)))

    def wait_for_mutations(self, count: int) -> None:
        """Until so many were made."""
        while self.mutations() < count:
            time.sleep(0.01)

    def snapshot_and_die(self) -> str:
        """A snapshot with rollouts held in flight, more work that no snapshot holds, and the death of every process."""
        path: str = self.ckptctl("snapshot")["snapshot"]
        self.sim("fault", "--server", "policy_model", "--clear")
        self.wait_for_mutations(self.mutations() + 2)
        self.sim("down", "--kill")
        return path

    def kill_restore_at(self, step: str) -> None:
        """Nothing inside the process is touched: the server is slow, the step's intent stands in the journal, the process is killed."""
        server, operation = HELD[step]
        self.sim("fault", "--server", server, "--operation", operation, "--kind", "slow", "--delay", HELD_S)
        before = self.intents(step)
        command = [sys.executable, "-m", "ckptctl", "restore", "--config", self.config]
        process = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with process:
            while process.poll() is None:
                if self.intents(step) > before:
                    process.kill()
                    break
                time.sleep(0.01)
            assert process.stderr is not None
            errors = process.stderr.read().decode()
        assert -signal.SIGKILL == process.returncode, errors

    def intents(self, step: str) -> int:
        """How often the journals of restores say that a step is about to be done."""
        texts = [path.read_text() for path in self.journals.glob("*-restore.jsonl")]
        return sum(f'"step":"{step}"' in line and '"intent"' in line for text in texts for line in text.splitlines())

    def finish(self) -> None:
        """The run reaches its goal, and nothing went wrong in it."""
        run = self.sim("run", "--until-groups", str(self.groups), "--wait", "--timeout", "300")["run"]
        assert (self.groups, []) == (run["finished_groups"], run["problems"])
