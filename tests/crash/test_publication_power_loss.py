"""The power fails in the middle of publication: whatever survives, a visible snapshot is a whole one.

Staged files were written by others without a sync. The loop stops before operation 0, 1, 2 ... of the store, crashes with each allowed
loss, looks, and publishes again.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ckptctl.domain.transaction import SnapshotRequest
from ckptctl.errors import CkptctlError, StorageError
from ckptctl.planning import snapshot as steps
from ckptctl.workflows.publication import Publication
from ckptctl.workflows.snapshot import take_snapshot
from ckptctl.workflows.transaction import Recorder, execute
from tests.fakes.memory_store import LOSSES, MemoryStore
from tests.fakes.mortal import DeadError, Life, Mortal
from tests.fakes.simulated_gym import simulated
from tests.fakes.small_world import MemoryWriter, a_world
from tests.runs import judge_snapshot

ROOT = "/checkpoints"
SNAPSHOTS = "bootstrap/rollout_snapshots"


class Owned:
    """A lock that is ours."""

    def is_owner(self) -> bool:
        return True


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> dict[str, bytes]:
    """A real snapshot and its anchor as files."""

    async def main():
        async with simulated(tmp_path_factory.mktemp("cluster")) as gym:
            await gym.run_in_flight()
            async with gym.world() as (world, _):
                await take_snapshot(world, gym.config, SnapshotRequest())
            root = Path(gym.checkpoint_dir)
            return {
                str(path.relative_to(root)): path.read_bytes() for path in root.glob("bootstrap/**/*") if path.is_file()
            }

    return asyncio.run(main())


def a_store(written: dict[str, bytes], *, published: int) -> MemoryStore:
    """Some published snapshots, and a staged one that nobody has synced."""
    store = MemoryStore()
    store.make_directory(f"{ROOT}/{SNAPSHOTS}")
    for path, data in written.items():
        if not path.startswith(f"{SNAPSHOTS}/snapshot_000001/"):
            store.put(f"{ROOT}/{path}", data)
            continue
        rest = path.removeprefix(f"{SNAPSHOTS}/snapshot_000001/")
        for number in range(1, published + 1):
            store.put(f"{ROOT}/{SNAPSHOTS}/snapshot_{number:06d}/{rest}", data)
    store.sync_tree("/")
    for path, data in written.items():
        if path.startswith(f"{SNAPSHOTS}/snapshot_000001/"):
            rest = path.removeprefix(f"{SNAPSHOTS}/snapshot_000001/")
            store.put(f"{ROOT}/{SNAPSHOTS}/tmp_snapshot_{published + 1:06d}/{rest}", data)
    return store


def publish(store, number: int) -> None:
    """Steps 7 and 8 on this store."""
    work = Publication(
        world=a_world(store=store, lock=Owned()),
        checkpoint_dir=ROOT,
        anchor="bootstrap",
        staged=f"{SNAPSHOTS}/tmp_snapshot_{number:06d}",
        final=f"{SNAPSHOTS}/snapshot_{number:06d}",
        level="standard",
        keep_latest_k=2,
    )
    plan = steps.plan_publish("ck-1", work.staged, work.final)
    recorder = Recorder(work.world, MemoryWriter())
    asyncio.run(execute(plan, work.actions(), recorder, done=(steps.WRITE_MANIFEST,)))


def visible(store: MemoryStore) -> list[str]:
    return [
        entry.path
        for entry in store.list_tree(f"{ROOT}/{SNAPSHOTS}", max_depth=1)
        if entry.path.startswith("snapshot_")
    ]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_visible_snapshot_is_whole_after_any_loss(written, loss) -> None:
    """Stop before each change of the store: every visible snapshot is valid, the older one is untouched, publishing again ends the same."""
    changes = ("store.make_directory", "store.sync_tree", "store.rename", "store.write_file")
    place = 0
    while True:
        store = a_store(written, published=2)
        life = Life()
        life.stops = 0
        enter = life.enter

        def stop(name, arguments, life=life, enter=enter, place=place):
            if name in changes:
                if life.stops == place:
                    life.is_over = True
                life.stops += 1
            return enter(name, arguments)

        life.enter = stop
        try:
            publish(Mortal(life, "store", store), 3)
        except DeadError:
            pass
        store.crash(loss)
        for name in visible(store):
            report = judge_snapshot(store, f"{ROOT}/{SNAPSHOTS}/{name}", "standard", under_final_name=False)
            assert "valid" == report.verdict, (place, name, [finding.message for finding in report.findings])
        assert "snapshot_000002" in visible(store)
        if not life.is_over:
            break
        if "snapshot_000003" not in visible(store):
            try:
                publish(store, 3)
            except CkptctlError:
                assert loss != "nothing"  # the staged files are gone with the power: the attempt is aborted instead
        place += 1
    assert ["snapshot_000002", "snapshot_000003"] == visible(store)
    assert place >= 3


class Unsyncing:
    """A store whose renames happen, but cannot be made durable: at once, or never."""

    def __init__(self, store: MemoryStore, *, ever: bool) -> None:
        self._store, self._ever = store, ever

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    def rename(self, source: str, target: str) -> None:
        self._store.rename(source, target)
        raise StorageError(operation="sync directory", path=target, detail="Input/output error")

    def sync_names(self, folder: str) -> None:
        if not self._ever:
            raise StorageError(operation="sync directory", path=folder, detail="Input/output error")


@pytest.mark.parametrize("ever", [True, False])
def test_a_name_that_cannot_be_made_durable_is_taken_back(written, ever) -> None:
    """What is visible would be believed, and older ones deleted for it; a second try that works is as good as the first."""
    store = a_store(written, published=2)
    if ever:
        publish(Unsyncing(store, ever=True), 3)
    else:
        with pytest.raises(StorageError, match="Input/output error"):
            publish(Unsyncing(store, ever=False), 3)

    assert ever == ("snapshot_000003" in visible(store))
    assert "snapshot_000002" in visible(store)
