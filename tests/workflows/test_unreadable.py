"""What cannot be looked at now (permissions, an I/O error) is never called damaged: it could not be checked, and the path is named."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.errors import NotCheckedError, StorageError
from ckptctl.render.inspect_text import inspection_text
from ckptctl.rules._model import STORAGE_HINT
from ckptctl.workflows.inspect import run_inspection
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_evidence import Known, load_target
from ckptctl.workflows.observe import observe_directory
from ckptctl.workflows.selection import select_snapshot
from ckptctl.workflows.targets import Target
from ckptctl.workflows.validate import ValidateRequest, judge
from tests.builders import a_run_files, write_tree
from tests.fakes.small_world import a_world
from tests.runs import a_run, offline_world
from tests.workflows.test_selection import snapshot_of, two

NEWEST = "rollout_snapshots/snapshot_000002"


class ForbiddenStore(LocalStore):
    """The real store; everything below one path is somebody else's."""

    def __init__(self, forbidden: str) -> None:
        super().__init__()
        self._forbidden = forbidden

    def list_tree(self, root, *, max_depth=None):
        self._demand(root)
        return super().list_tree(root, max_depth=max_depth)

    def open_source(self, path):
        self._demand(path)
        return super().open_source(path)

    def kind_of(self, path):
        if f"{self._forbidden}/" in path:
            self._demand(path)
        return super().kind_of(path)

    def _demand(self, path):
        if path.endswith(self._forbidden) or f"{self._forbidden}/" in path:
            raise StorageError(operation="open", path=path, detail="Permission denied", cause=PermissionError())


@pytest.mark.parametrize("forbidden", [NEWEST, "rollout_snapshots", f"{NEWEST}/manifest.json"])
def test_an_anchor_is_not_called_invalid(tmp_path, forbidden) -> None:
    """Nobody knows whether one of its snapshots could be selected; the reason says where, and what to do about it."""
    anchor = write_tree(tmp_path, a_run_files()) / "step_3"
    store = ForbiddenStore(forbidden)
    target = Target("anchor", str(anchor), str(anchor))
    loaded = load_target(store, target, "quick", Known(), AnchorLoader(store, DEFAULT_LIMITS))
    report = judge(loaded, ValidateRequest(paths=(str(anchor),), level="quick"))
    reasons = [item.reason for item in report.outcomes if item.rule == "ANC006" and item.outcome == "could_not_run"]

    assert ("incomplete", 1) == (report.verdict, len(reasons))
    assert STORAGE_HINT in {finding.hint for finding in report.findings}
    assert f"/{forbidden}`: Permission denied; fix its permissions, or the file system" in reasons[0]


@pytest.mark.parametrize(
    "forbidden", ["rollout_recovery.pt", "data_plane", "g7_g0.a1.json", "agent-index.jsonl", NEWEST]
)
def test_what_could_not_be_opened_says_so_once(tmp_path, forbidden) -> None:
    """Each name once in a reason, and the way out is to mend the permissions, not to take another snapshot."""
    root = write_tree(tmp_path, a_run_files())
    snapshot = f"{root}/step_3/{NEWEST}"
    store = ForbiddenStore(forbidden)
    target = Target("snapshot", snapshot, f"{root}/step_3")
    loaded = load_target(store, target, "standard", Known(), AnchorLoader(store, DEFAULT_LIMITS))
    report = judge(loaded, ValidateRequest(paths=(snapshot,)))
    gaps = [finding for finding in report.findings if finding.kind == "gap"]

    assert "incomplete" == report.verdict
    assert {STORAGE_HINT} == {finding.hint for finding in gaps}
    assert not any(re.search(r"(`[^`]+`: )\1", finding.message) for finding in gaps)


def test_a_restore_does_not_call_it_damaged(tmp_path) -> None:
    """It is passed over with that reason, and without an older one the status is 11."""
    config = two(tmp_path)
    world = a_world(store=ForbiddenStore(NEWEST))
    found = select_snapshot(world, config).selection
    shutil.rmtree(snapshot_of(config, "snapshot_000001"))
    with pytest.raises(NotCheckedError, match="Permission denied; fix its permissions"):
        select_snapshot(world, config)

    assert found.snapshot.endswith("snapshot_000001")
    assert ["incomplete"] == [item.verdict for item in found.rejected]


def two_anchors(tmp_path):
    root = a_run(tmp_path, step_3=1, bootstrap=1)
    (root / ".ckptctl/trash").mkdir(parents=True, exist_ok=True)
    return root


def test_an_overview_shows_the_rest(tmp_path) -> None:
    """The anchor that cannot be listed has its entry and says why; it is not said to have no snapshot, and the status is 11."""
    root = two_anchors(tmp_path)
    world = replace(offline_world(root), store=ForbiddenStore("/step_3"))
    result = run_inspection(world, str(root))
    newest, other = result.anchors
    text = inspection_text(result)

    assert ("step_3", "incomplete", ()) == (newest.name, newest.verdict, newest.snapshots)
    assert "Permission denied; fix its permissions, or the file system" in newest.unlisted
    assert ("bootstrap", "valid", 1, "") == (other.name, other.verdict, len(other.snapshots), other.unlisted)
    assert "incomplete" == result.verdict
    assert "its snapshots are not known: " in text
    assert "no snapshot" not in text


def test_an_overview_without_the_trash(tmp_path) -> None:
    """It says that it could not look there; nothing else is less known for it."""
    root = two_anchors(tmp_path)
    world = replace(offline_world(root), store=ForbiddenStore(".ckptctl/trash"))
    result = run_inspection(world, str(root))

    assert ("valid", ()) == (result.verdict, result.trash)
    assert ["Permission denied" in text for text in result.warnings] == [True]


def test_monitoring_does_not_take_an_older_snapshot_for_the_newest(tmp_path) -> None:
    """The newest may lie in the anchor that nobody could list."""
    root = two_anchors(tmp_path)
    world = replace(offline_world(root), store=ForbiddenStore("/step_3"))
    facts = observe_directory(world, str(root), {})

    assert facts.snapshots is None
    assert "step_3: " in facts.obstacle
