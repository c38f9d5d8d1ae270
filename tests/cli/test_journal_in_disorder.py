"""A journal of which nobody can tell whether its transaction has ended: every command says so, none goes on, none crashes."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from ckptctl.planning.snapshot import CLOSE
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
    assert [True] == [f"{journal.name}` is damaged" in text for text in json.loads(seen.stdout)["warnings"]]
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


def lines_of(kind: str) -> list[dict]:
    """An unfinished transaction that asked servers for something, as its own classes have it."""
    folder = "step_3/rollout_snapshots"
    common = {"schema_version": 1, "tool_version": "1", "checkpoint_id": "ck-1", "anchor": "step_3"}
    common |= {"controller_instance_id": "c-1", "models": [], "agents": [], "resources": []}
    own = {"snapshot": f"{folder}/snapshot_000002", "manifest_sha256": "0" * 64}
    if kind == "snapshot":
        own = {"number": 3, "staged": f"{folder}/tmp_snapshot_000003", "final": f"{folder}/snapshot_000003"}
        own |= dict.fromkeys(("train_step", "trainer_version", "mutation_version", "unfinished_rollouts"), 3)
        own |= {"topology_fingerprint": "0" * 64, "plan": {}}
    begin = {"at": 1.0, "event": "begin", "kind": kind, "transaction": f"000005-{kind}", **common, **own}
    return [begin, {"at": 2.0, "event": "intent", "step": CLOSE, "number": "2"}]


@pytest.mark.parametrize("value", ["a\0b", "a\nb", "\x1b[2J", "../step_3", "/etc", "\ud800"])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("snapshot", "anchor"),
        ("snapshot", "staged"),
        ("snapshot", "final"),
        ("restore", "anchor"),
        ("restore", "snapshot"),
    ],
)
def test_a_path_that_is_none(journal, kind, field, value):
    """What would lead out of the checkpoint directory, or to no place at all."""
    begin, *others = lines_of(kind)
    told = "".join(f"{json.dumps(line)}\n" for line in ({**begin, field: value}, *others))
    journal.with_name(f"000005-{kind}.jsonl").write_text(told)

    demand_damaged(journal.with_name(f"000005-{kind}.jsonl"))


@pytest.mark.parametrize("kind", ["snapshot", "restore"])
def test_a_value_with_a_nul(journal, kind):
    """Whatever field bears it, no command fails by a bug of its own."""
    begin, *others = lines_of(kind)
    path = journal.with_name(f"000005-{kind}.jsonl")
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (begin, *others)))
    assert 2 == run("inspect", str(journal.parents[2]), "--nagios").status  # as it is, it can be read
    for field in (*begin, "path", "number"):
        value = ["a\0b"] if isinstance(begin.get(field), list) else "a\0b"
        wrong = [{**line, field: value} for line in (begin, *others)]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in wrong))
        for words in (("gc", "--dry-run"), ("inspect",), ("inspect", "--nagios"), ("inspect", "--timings")):
            ended = run(*words, str(journal.parents[2]))
            assert "Traceback" not in ended.stderr, (field, words)
