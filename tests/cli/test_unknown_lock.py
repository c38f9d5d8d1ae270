"""A lock that cannot be looked at may be held: nobody says that it is free, nor that what it guards was interrupted."""

from __future__ import annotations

import json
import os

import pytest

from tests.cli.test_journal_in_disorder import TOKEN, lines_of
from tests.command_line import run
from tests.runs import a_run
from tests.schemas import problems

PLACED = {
    "fifo": os.mkfifo,
    "directory": lambda path: path.mkdir(),
    "symlink": lambda path: path.symlink_to("/etc/hostname"),
}
UNKNOWN = "not known, because it could not be looked at"


@pytest.fixture(params=PLACED)
def root(request, tmp_path):
    root = a_run(tmp_path / "run", step_3=1)
    (root / ".ckptctl" / "journal").mkdir(parents=True)
    PLACED[request.param](root / ".ckptctl" / "lock")
    text = "".join(f"{json.dumps(line)}\n" for line in lines_of("snapshot"))
    (root / ".ckptctl" / "journal" / "000005-snapshot.jsonl").write_text(text)
    return root


def test_an_overview(root, tmp_path):
    """Text, page and JSON say that it is not known, and why; the unfinished transaction may be running."""
    page, metrics = tmp_path / "x.html", tmp_path / "x.prom"
    text = run("inspect", str(root)).stdout
    answer = run("inspect", str(root), "--format", "json", "--metrics-textfile", str(metrics)).stdout
    run("inspect", str(root), "--html", str(page))
    found = json.loads(answer)

    assert f"lock: {UNKNOWN}" in text
    assert "interrupted or running: 000005-snapshot" in text
    assert UNKNOWN in page.read_text()
    assert (None, [found["lock_problem"]]) == (found["lock"], found["warnings"])
    assert "/.ckptctl/lock`: it is a " in found["lock_problem"]
    assert [] == problems(answer, "inspect-directory.v1.json")
    assert "ckptctl_locked{" not in metrics.read_text()


def test_a_plugin(root):
    """Unknown, not critical: admission may be closed for a good reason."""
    told = run("inspect", str(root), "--nagios")

    assert (3, True) == (told.status, "/.ckptctl/lock" in told.stdout), told


def test_live_servers(root, tmp_path):
    """A snapshot would fail at it: that is a problem of the lock, and nothing is said of an interruption."""
    config = tmp_path / "run.yaml"
    own = {"controller": {"url": "http://127.0.0.1:9"}}
    config.write_text(json.dumps({"checkpointing": {"enabled": True, "checkpoint_dir": str(root)}, "ckptctl": own}))
    told = run("inspect", "--live", "--config", str(config), "--format", "json", environment=TOKEN)
    found = json.loads(told.stdout)

    assert ["storage"] == [item["code"] for item in found["problems"] if item["about"] == "lock"]
    assert [] == [item for item in found["problems"] if item["code"] == "unfinished-transaction"]
    assert found["lock_problem"]
