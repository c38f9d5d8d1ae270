"""What cannot be looked at now (permissions, an I/O error) is never called damaged: it could not be checked, and the path is named."""

from __future__ import annotations

import shutil

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.errors import NotCheckedError, StorageError
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_evidence import Known, load_target
from ckptctl.workflows.selection import select_snapshot
from ckptctl.workflows.targets import Target
from ckptctl.workflows.validate import ValidateRequest, judge
from tests.builders import a_run_files, write_tree
from tests.fakes.small_world import a_world
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

    def _demand(self, path):
        if path.endswith(self._forbidden) or f"{self._forbidden}/" in path:
            raise StorageError(operation="open", path=path, detail="Permission denied")


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
    assert f"/{forbidden}`: Permission denied; fix its permissions, or the file system" in reasons[0]


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
