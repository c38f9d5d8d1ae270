"""Builds a snapshot with the embedded cluster, through the command line and nothing else."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 300


def command() -> list[str]:
    """The `ckptctl` of the ordinary environment, which has the embedded cluster's extras; else that of this one."""
    installed = REPOSITORY / ".venv" / "bin" / "ckptctl"
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "ckptctl"]


def ckptctl(folder: Path, *words: str) -> dict:
    """Run one command that answers in JSON; its output is the message when it fails."""
    done = subprocess.run(
        [*command(), *words, "--format", "json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"ckptctl {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def build_snapshot(folder: Path) -> Path:
    """Start a cluster under `folder`, let it work until something is finished and something in flight, take a snapshot."""
    run = folder / "cluster"
    ckptctl(folder, "sim", "up", "--dir", str(run), "--prompts", "6", "--turns", "6", "--turn-delay", "0.2")
    try:
        ckptctl(folder, "sim", "run", "--dir", str(run))
        # Held in front of their next model call, so that some are in flight however slowly the commands start here.
        deadline = time.monotonic() + PATIENCE_S
        while not _is_under_way(ckptctl(folder, "sim", "status", "--dir", str(run))):
            assert time.monotonic() < deadline, "the cluster does not get anywhere"
        hold = (
            "--server",
            "policy_model",
            "--operation",
            "generate",
            "--kind",
            "refuse",
            "--code",
            "checkpoint_parked",
            "--times",
            "0",
        )
        ckptctl(folder, "sim", "fault", "--dir", str(run), *hold)
        taken = ckptctl(folder, "snapshot", "--config", str(run / "ckptctl.yaml"))
    finally:
        with contextlib.suppress(AssertionError):
            ckptctl(folder, "sim", "down", "--dir", str(run), "--kill")
    assert taken["outcome"] == "published"
    return Path(taken["snapshot"])


def _is_under_way(status: dict) -> bool:
    run = status["run"] or {}
    return run.get("finished_groups", 0) >= 1
