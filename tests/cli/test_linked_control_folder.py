"""A control folder that leads out of its checkpoint directory: nobody follows it, whatever only looks included."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_journal_in_disorder import TOKEN, lines_of
from tests.command_line import run
from tests.runs import a_run


@pytest.fixture(params=[".ckptctl", ".ckptctl/journal"])
def linked(request, tmp_path):
    """A directory whose folder is a link to another run's, with an unfinished snapshot; and the link."""
    root, other = a_run(tmp_path / "run", step_3=1), tmp_path / "other"
    (other / ".ckptctl" / "journal").mkdir(parents=True)
    text = "".join(f"{json.dumps(line)}\n" for line in lines_of("snapshot"))
    (other / ".ckptctl" / "journal" / "000005-snapshot.jsonl").write_text(text)
    (root / request.param).parent.mkdir(exist_ok=True)
    (root / request.param).symlink_to(other / request.param)
    return root, root / request.param


def test_an_overview(linked, tmp_path):
    """The snapshots are shown; of the lock and of transactions nothing is known, and the reason is told once."""
    root, link = linked
    metrics = tmp_path / "x.prom"
    done = run("inspect", str(root), "--format", "json", "--metrics-textfile", str(metrics))
    found = json.loads(done.stdout)
    plugin = run("inspect", str(root), "--nagios")

    assert (0, "valid", None, []) == (done.status, found["verdict"], found["lock"], found["unfinished"])
    [warning] = [text for text in found["warnings"] if "a symbolic link, and none is followed there" in text]
    assert f"`{link}`" in warning
    assert found["lock_problem"] == (warning if link.name == ".ckptctl" else "")
    assert (3, True) == (plugin.status, "a symbolic link" in plugin.stdout)
    assert "000005" not in done.stdout + plugin.stdout + run("inspect", str(root)).stdout + metrics.read_text()


@pytest.mark.parametrize("words", [("inspect", "--timings"), ("gc", "--dry-run")], ids=" ".join)
def test_what_needs_the_folder(linked, words):
    """It refuses, as every command that writes."""
    root, link = linked
    done = run(*words, str(root))

    assert 20 == done.status, done
    assert f"`{link}` is a symbolic link" in done.stderr


def test_one_snapshot(linked, tmp_path):
    """Page and bundle tell of no other run."""
    root, _ = linked
    [snapshot] = root.glob("step_3/rollout_snapshots/*")
    pages = [tmp_path / "x.html", tmp_path / "y.html"]
    done = [
        run("inspect", str(root), "--html", str(pages[0])),
        run("inspect", str(snapshot), "--html", str(pages[1])),
        run("inspect", str(snapshot), "--bundle", str(tmp_path / "x.tar.zst")),
    ]

    assert not [item for item in done if item.status not in {0, 11, 13} or "Traceback" in item.stderr], done
    assert not [page for page in pages if "000005-snapshot" in page.read_text()]


def test_live_servers(linked, tmp_path):
    """A snapshot would refuse it."""
    root, link = linked
    config = tmp_path / "run.yaml"
    own = {"controller": {"url": "http://127.0.0.1:9"}}
    config.write_text(json.dumps({"checkpointing": {"enabled": True, "checkpoint_dir": str(root)}, "ckptctl": own}))
    told = run("inspect", "--live", "--config", str(config), "--format", "json", environment=TOKEN)
    found = json.loads(told.stdout)

    [told] = [item["message"] for item in found["problems"] if item["about"] in {"lock", "journal"}]
    assert f"`{link}`" in told
    assert "a symbolic link" in told
    assert [] == found["unfinished"]
