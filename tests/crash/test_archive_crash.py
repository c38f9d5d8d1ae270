"""`gc --archive` stops anywhere: nothing goes before its pack is durable and proved, and the next run reaches the goal."""

from __future__ import annotations

from itertools import islice

import pytest

from ckptctl.adapters.pack_store import PackedReader
from ckptctl.domain.retention import GcRequest
from ckptctl.errors import StorageError
from ckptctl.workflows.gc import run_gc
from ckptctl.workflows.gc_archive import Archive
from tests.crash.test_gc_crash import GOAL, ROOT, a_gc_world, a_store, assert_sound, names, run_files
from tests.fakes.fixed_clock import START_S
from tests.fakes.memory_store import LOSSES
from tests.fakes.mortal import DeadError, Life, Mortal, mortal

FOLDER = "/archive"
ARCHIVE_CHANGES = ("store.rename", "store.remove_tree", "archive.write_stream", "archive.rename", "archive.remove_tree")
PACKED = {
    "step_3.snapshot_000000.tar.zst": "step_3/rollout_snapshots/snapshot_000000",
    "bootstrap.snapshot_000001.tar.zst": "bootstrap/rollout_snapshots/snapshot_000001",
    "step_3.snapshot_000001.tar.zst": "step_3/rollout_snapshots/snapshot_000001",
    "step_3.snapshot_000002.tar.zst": "step_3/rollout_snapshots/snapshot_000002",
}
TRASHED = "step_3/rollout_snapshots/snapshot_000000/part"
"""What an older run moved into the trash without packing it; its grace period is over."""


def a_place():
    """A run to be collected, and an empty archive on the same file system."""
    store = a_store()
    store.make_directory(FOLDER)
    return store


def archive_in(store, front=None):
    return Archive(FOLDER, front or store, lambda: PackedReader(store))


def collect(store):
    return run_gc(a_gc_world(store), ROOT, GcRequest(keep=1), None, archive_in(store))


def packs(store) -> list[str]:
    return [entry.path for entry in store.list_tree(FOLDER, max_depth=1) if entry.path.endswith(".tar.zst")]


def content(store, pack: str) -> dict[str, bytes]:
    """What a pack holds, by path in the run."""
    path = f"{FOLDER}/{pack}"
    with PackedReader(store) as reader:
        assert reader.pack_at(path, whole=True).value is not None, pack
        files = [entry.path for entry in reader.list_tree(path) if entry.kind == "file"]
        return {name: reader.read_bytes(f"{path}/{name}", 1 << 30) for name in files}


def assert_kept(store) -> None:
    """Whatever is called a pack is a whole one, and no snapshot is gone without one."""
    files = {**run_files(), TRASHED: b"12345"}
    for pack in packs(store):
        snapshot = PACKED[pack]
        anchor = snapshot.partition("/")[0]
        beside = {f"{anchor}/{name}" for name in ("training_info.json", "config.yaml", "manifest.json")}
        wanted = {path: data for path, data in files.items() if path.startswith(f"{snapshot}/") or path in beside}
        assert wanted == content(store, pack), pack
    for pack, snapshot in PACKED.items():
        is_there = store.kind_of(f"{ROOT}/{snapshot}") is not None or snapshot in whole_trash(store)
        assert is_there or pack in packs(store), snapshot
    assert_sound(store)


def whole_trash(store) -> set[str]:
    """Snapshots of the first trash that nobody has begun to delete."""
    names_there = [entry.path for entry in store.list_tree(f"{ROOT}/.ckptctl/trash", max_depth=1)]
    return {
        TRASHED.rpartition("/")[0] for name in names_there if name == f"{int(START_S) - 200_000}.step_3.snapshot_000000"
    }


def assert_finished(store) -> None:
    """The same command again reaches the goal, leaves nothing of an earlier attempt, and a third run has nothing to do."""
    assert () == collect(store).remaining()
    assert GOAL == {folder: names(store, folder) for folder in GOAL}
    assert sorted(PACKED) == [entry.path for entry in store.list_tree(FOLDER)]
    assert_kept(store)
    assert "nothing_to_do" == collect(store).outcome


def run_until(store, life: Life) -> None:
    world = mortal(a_gc_world(store), life)
    run_gc(world, ROOT, GcRequest(keep=1), None, archive_in(store, Mortal(life, "archive", store)))


def places() -> list[int]:
    """The places in a whole run where it changes something from the first packing on: before, it is a run without archive."""
    life = Life()
    run_until(a_place(), life)
    first = life.operations.index("archive.write_stream")
    return [place for place, name in enumerate(life.operations) if name in ARCHIVE_CHANGES and place >= first]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("place", places())
def test_it_dies_at_any_change(place, after) -> None:
    """Before the operation or after it: pack written, not yet renamed; renamed, the snapshot not yet moved; and every power loss."""
    for loss in LOSSES if after else ("nothing",):
        store = a_place()
        with pytest.raises(DeadError):
            run_until(store, Life(dies_at=place, after=after))
        store.crash(loss)

        assert_kept(store)
        assert_finished(store)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("written", [0, 1, 2, 3])
def test_it_dies_in_the_middle_of_a_pack(written, loss) -> None:
    """Half a pack under its temporary name is no pack; the next run begins it anew."""
    store = a_place()

    class Dying:
        def __getattr__(self, name):
            return getattr(store, name)

        def write_stream(self, path, pieces):
            def some():
                yield from islice(pieces, written)
                raise DeadError

            store.write_stream(path, some())

    with pytest.raises(DeadError):
        run_gc(a_gc_world(store), ROOT, GcRequest(keep=1), None, archive_in(store, Dying()))
    store.crash(loss)

    assert [] == packs(store)
    assert_kept(store)
    assert_finished(store)


@pytest.mark.parametrize("method", ["write_stream", "rename"])
def test_the_archive_refuses(method) -> None:
    """A full archive: nothing is deleted, it is said, nothing half is left, and the next run does it."""
    store = a_place()

    class Refusing:
        def __getattr__(self, name):
            found = getattr(store, name)
            if name != method:
                return found

            def act(path, *rest):
                raise StorageError(operation=name, path=path, detail="No space left on device")

            return act

    result = run_gc(a_gc_world(store), ROOT, GcRequest(keep=1), None, archive_in(store, Refusing()))

    assert len(PACKED) == len(result.remaining())
    assert all("No space left" in item.problem for item in result.remaining())
    assert [] == packs(store)
    assert_kept(store)
    assert_finished(store)
