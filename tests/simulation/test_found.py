"""Faults of the product that seeds found and that have no better place: each as a test of its own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.errors import StorageError
from ckptctl.sim.equivalence import differences
from ckptctl.sim.run_history import read_history
from tests.runs import a_run, judge_snapshot
from tests.unit.sim.test_resources import Resources


class Unlisted(LocalStore):
    """The names in a snapshot cannot be listed, but its files be read (seed 257 of the first thousand)."""

    def list_tree(self, root: str, *, max_depth: int | None = None):
        if root.endswith("snapshot_000001"):
            raise StorageError(operation="list", path=root, detail="Permission denied")
        return super().list_tree(root, max_depth=max_depth)


@pytest.mark.parametrize("level", ["standard", "full"])
def test_a_snapshot_that_cannot_be_listed_is_not_valid_and_no_bug(tmp_path, level) -> None:
    """Nobody knows what else lies there, so it is not said to be valid; the digests of what was read compare with nothing."""
    a_run(tmp_path, step_3=1)
    report = judge_snapshot(Unlisted(str(tmp_path)), str(tmp_path / "step_3/rollout_snapshots/snapshot_000001"), level)

    assert "valid" != report.verdict


@contextmanager
def full_disk(descriptor: int) -> Iterator[None]:
    """Nothing more can be appended to this open file."""
    kept, full = os.dup(descriptor), os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
        os.close(full)


def test_a_mutation_that_cannot_be_written_down_does_not_happen(tmp_path) -> None:
    """Else the session was one revision ahead of its agent, and no later snapshot valid (seed 403 of the first thousand)."""

    async def play() -> list[int]:
        counter = Resources(tmp_path)
        await counter.seed()
        with full_disk(counter.service.audit._descriptor), pytest.raises(StorageError, match="No space left"):
            await counter.call("increment", {"by": 1, "ticket": 0}, expected=1)
        again = await counter.call("increment", {"by": 1, "ticket": 0}, expected=1)
        counter.service.audit.close()
        [session] = counter.service.book.bound()
        return [again.status_code, session.revision]

    assert [200, 2] == asyncio.run(play())


def test_a_restore_that_cannot_be_written_down_can_be_repeated(tmp_path) -> None:
    """The sessions were installed, so the same restore was refused ever after."""

    async def play() -> list[object]:
        before, after = Resources(tmp_path), Resources(tmp_path, restore_expected=True)
        await before.seed()
        await before.control("prepare")
        await before.control("commit", checkpoint_dir=str(tmp_path / "snapshot"))
        with full_disk(after.service.audit._descriptor):
            refused, _ = await after.control("restore", "restore-1", checkpoint_dir=str(tmp_path / "snapshot"))
        repeated, _ = await after.control("restore", "restore-1", checkpoint_dir=str(tmp_path / "snapshot"))
        before.service.audit.close()
        after.service.audit.close()
        return [refused, repeated, len(after.service.book.bound())]

    assert ["resources_checkpoint_error", 200, 1] == asyncio.run(play())


@pytest.mark.parametrize(("restores", "found"), [(1, 1), (2, 0)])
def test_who_was_turned_away_before_another_restore_is_not_missed(tmp_path, restores, found) -> None:
    """The agent was dead when the run went on, and the whole was restored once more (seed 1404 of the first five thousand)."""
    lines = [
        {"incarnation": 2 + number, "redispatch": [
            {"rollout_id": "p_g0", "source_attempt": 0, "replacement_attempt": 1}
        ], "finished_groups": [], "siblings": []}
        for number in range(restores)
    ]  # fmt: skip
    sent = [
        {"incarnation": 2, "rollout_id": "p_g0", "attempt_index": 1, "event": event}
        for event in ("dispatched", "turned_away")
    ]
    again = [{"incarnation": 3, "rollout_id": "p_g0", "attempt_index": 1, "event": "dispatched"}]
    for name, content in (("results", []), ("restores", lines), ("dispatches", [*sent, *again])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in content))
    history = read_history(str(tmp_path))

    assert found == len(list(differences(history, history, "counter")))
