"""Something else under the name of an anchor, or of its folder of snapshots, is never passed over: not by a verdict, nor by a choice."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.errors import AnchorRefusedError, RefusedError
from ckptctl.render.report_text import report_text
from ckptctl.workflows.own_folders import demand_real_folders
from ckptctl.workflows.selection import select_snapshot
from ckptctl.workflows.validate import ValidateRequest, validate
from tests.builders import a_bootstrap_world
from tests.sample_list import third_step
from tests.workflows.test_inspect import inspect
from tests.workflows.test_selection import a_run, world
from tests.workflows.test_unreadable import ForbiddenStore

FOLDER = "rollout_snapshots"
LINKED, MISPLACED = "replace the link", "move it away"
PLACES = ("step_3", "bootstrap", f"step_3/{FOLDER}", f"bootstrap/{FOLDER}")


def put(path: Path, kind: str) -> None:
    """Move a directory aside, and leave something of this kind in its place."""
    aside = path.parent / f"aside-{path.name}"
    path.rename(aside)
    if kind == "symlink":
        path.symlink_to(aside)
    elif kind == "file":
        path.write_bytes(b"")
    else:
        os.mkfifo(path)


@pytest.fixture
def run(tmp_path):
    """Its configuration; a step and the bootstrap anchor, a snapshot in each."""
    return a_run(tmp_path, third_step(), a_bootstrap_world())


def errors(report):
    """Name of the target and error, of all targets."""
    return [
        (target.path.rpartition("/")[2], finding)
        for target in report.targets
        for finding in target.findings
        if finding.severity == "error"
    ]


@pytest.mark.parametrize("kind", ["symlink", "file", "fifo"])
@pytest.mark.parametrize("place", PLACES)
def test_it_is_told_by_the_verdict_and_the_overview(run, place, kind) -> None:
    """One error that says what lies there and what to do; the rules that could see nothing wait for it."""
    root = Path(run.checkpoint_dir)
    put(root / place, kind)
    report = validate(LocalStore(), ValidateRequest(paths=(str(root),), level="quick"))
    anchor = place.partition("/")[0]
    ((name, finding),) = errors(report)
    seen = {item.name: item for item in inspect(root).anchors}

    assert ("invalid", anchor) == (report.verdict, name)
    assert (LINKED if kind == "symlink" else MISPLACED) in finding.hint
    assert "a directory" == finding.expected
    assert [] == [item for target in report.targets for item in target.outcomes if item.outcome == "could_not_run"]
    assert "invalid" == seen[anchor].verdict
    assert seen[anchor].problems[0].startswith(finding.rule)
    assert () == seen[anchor].snapshots


@pytest.mark.parametrize("kind", ["symlink", "file", "fifo"])
@pytest.mark.parametrize("place", ["step_3", f"step_3/{FOLDER}"])
def test_a_restore_never_goes_back_over_it(run, place, kind) -> None:
    """The newest anchor by name decides; an older one would silently lose the steps between."""
    put(Path(run.checkpoint_dir, place), kind)
    with pytest.raises(AnchorRefusedError, match="`step_3` cannot be used.*no older one is tried") as caught:
        select_snapshot(world(), run)

    assert (LINKED if kind == "symlink" else MISPLACED) in str(caught.value.hint)
    assert 20 == caught.value.exit_code


@pytest.mark.parametrize("kind", ["symlink", "file", "fifo"])
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_written_beside_it(run, place, kind) -> None:
    """Snapshot, publish, gc and restore look first."""
    put(Path(run.checkpoint_dir, place), kind)
    with pytest.raises(RefusedError, match="nothing was changed"):
        demand_real_folders(LocalStore(), run.checkpoint_dir)


def test_an_older_one_does_not_stop_a_restore(run) -> None:
    """Only the anchor that would be used must be a directory."""
    put(Path(run.checkpoint_dir, "bootstrap"), "symlink")

    assert "step_3" == select_snapshot(world(), run).selection.anchor


def test_of_a_linked_snapshot_one_thing_is_said(run) -> None:
    """Nothing behind the link was read: so nothing is gone, and no rule is called open on its own."""
    snapshot = Path(run.checkpoint_dir, "step_3", FOLDER, "snapshot_000002")
    put(snapshot, "symlink")
    report = validate(LocalStore(), ValidateRequest(paths=(str(snapshot),)))
    ((_, finding),) = errors(report)
    (target,) = report.targets

    assert ("MAN001", 1) == (finding.rule, len(target.findings))
    assert LINKED in finding.hint
    assert [] == [item.rule for item in target.outcomes if item.outcome == "could_not_run"]


def test_the_last_line_says_what_is_invalid_beside_sound_snapshots(run) -> None:
    """An empty directory with the name of a step is no snapshot, so the count of snapshots does not show it."""
    Path(run.checkpoint_dir, "step_7").mkdir()
    text = report_text(validate(LocalStore(), ValidateRequest(paths=(run.checkpoint_dir,))))

    assert "2 of 2 snapshots valid, invalid: anchor step_7)" in text


def test_what_could_not_be_checked_is_not_headed_as_broken(run) -> None:
    """A journal that is a pipe hides what was published; the hint is about the journal."""
    journal = Path(run.checkpoint_dir, ".ckptctl", "journal")
    journal.mkdir(parents=True)
    os.mkfifo(journal / "000001-snapshot.jsonl")
    text = report_text(validate(LocalStore(), ValidateRequest(paths=(run.checkpoint_dir,))))

    assert "not checked[SUM009] (rule renamed-snapshot)" in text
    assert "warning[SUM009]" not in text
    assert "it is the journal that cannot be read" in " ".join(text.split())


@pytest.mark.parametrize("number", [3, 0])
def test_an_anchor_that_cannot_be_looked_into_is_not_called_half_written(tmp_path, number) -> None:
    """Moving it away would lose a step that may be whole. The verdict is that it could not be checked."""
    run = a_run(tmp_path, third_step() if number else a_bootstrap_world())
    anchor = f"step_{number}" if number else "bootstrap"
    store = ForbiddenStore(anchor)
    with pytest.raises(AnchorRefusedError, match="Permission denied") as caught:
        select_snapshot(replace(world(), store=store), run)
    report = validate(store, ValidateRequest(paths=(run.checkpoint_dir,), level="quick"))

    assert "mend its permissions" in str(caught.value.hint)
    assert ["incomplete"] == [target.verdict for target in report.targets]
