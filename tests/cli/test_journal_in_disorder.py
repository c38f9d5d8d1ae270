"""A journal of which nobody can tell whether its transaction has ended: every command says so, none goes on, none crashes."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.command_line import run
from tests.runs import a_run

NAME = "000005-snapshot"
TOKEN = {"NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": "t" * 32}
PLACED = {
    "symlink": lambda path: path.symlink_to("/etc/hostname"),
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "noise": lambda path: path.write_bytes(b"\x00\xff\n\x01"),
}


@pytest.fixture
def journal(tmp_path) -> Path:
    """Where the journal of an unfinished snapshot would lie, beside two snapshots that are valid."""
    folder = a_run(tmp_path / "run", step_3=2) / ".ckptctl" / "journal"
    folder.mkdir(parents=True)
    return folder / f"{NAME}.jsonl"


def demand_damaged(journal: Path) -> None:
    """What every command says of it."""
    root = journal.parents[2]
    config = root.parent / "run.yaml"
    own = {"controller": {"url": "http://127.0.0.1:9"}}
    config.write_text(json.dumps({"checkpointing": {"enabled": True, "checkpoint_dir": str(root)}, "ckptctl": own}))
    metrics = root.parent / "run.prom"
    nagios = run("inspect", str(root), "--nagios")
    seen = run("inspect", str(root), "--format", "json", "--metrics-textfile", str(metrics))
    ended = {
        "nagios": nagios.status,
        "gc": run("gc", str(root)).status,
        "dry run": run("gc", str(root), "--dry-run").status,
        "publish": run("publish", "--config", str(config), environment=TOKEN).status,
        "aside": run("inspect", str(root)).status,
    }

    assert {"nagios": 3, "gc": 20, "dry run": 20, "publish": 24, "aside": 0} == ended
    assert "CKPTCTL UNKNOWN" in nagios.stdout
    assert [True] == [f"{NAME}.jsonl` is damaged" in text for text in json.loads(seen.stdout)["warnings"]]
    assert metrics.exists()


@pytest.mark.parametrize("kind", PLACED)
def test_what_is_no_journal(journal, kind):
    """Random bytes, or what is no file at all."""
    PLACED[kind](journal)

    demand_damaged(journal)


def test_an_empty_file_never_began(journal):
    """Its first line was torn."""
    journal.write_bytes(b"")

    assert [0, 0] == [run(*words, str(journal.parents[2])).status for words in (("gc",), ("inspect", "--nagios"))]
