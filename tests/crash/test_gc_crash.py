"""Garbage collection stops anywhere: the process dies, the power fails, or an operation is refused; the next run finishes it.

After each: every anchor still has its newest valid snapshot, no snapshot is half there, the same command again reaches the goal, and
a third run does nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from ckptctl.domain.retention import GcRequest
from ckptctl.errors import StorageError
from ckptctl.workflows.gc import run_gc
from tests.builders import a_run_files
from tests.fakes.fixed_clock import START_S
from tests.fakes.memory_store import LOSSES, MemoryStore
from tests.fakes.mortal import DeadError, Life, mortal
from tests.fakes.small_world import MemoryWriter, a_world
from tests.world import a_bootstrap_world

ROOT = "/run"
REQUEST = GcRequest(keep=1)
CHANGES = ("store.make_directory", "store.rename", "store.remove_tree", "writer.append")
GOAL = {
    "bootstrap/rollout_snapshots": [],
    "step_3/rollout_snapshots": ["snapshot_000003"],
    ".ckptctl/trash": [
        "bootstrap.snapshot_000001",
        "step_3.snapshot_000001",
        "step_3.snapshot_000002",
    ],
}


@cache
def run_files() -> dict[str, bytes]:
    """Snapshots in which nothing is unfinished: they take a fifth of the time to validate."""
    bootstrap = a_bootstrap_world(name="snapshot_000001")
    steps = [
        a_bootstrap_world(anchor="step_3", step=3, name=f"snapshot_{number:06d}", anchor_config=bootstrap.config)
        for number in (1, 2, 3)
    ]
    return a_run_files(*(replace(world, config=bootstrap.config) for world in steps), bootstrap)


class FreeLock:
    """Implements `ports.Lock` where nobody else is."""

    def acquire(self, *, break_lock: bool = False) -> None:
        """Ours."""

    def is_owner(self) -> bool:
        return True

    def release(self) -> None:
        """Free again."""

    def demand_run(self) -> None:
        """No other run."""

    def holder(self) -> None:
        return None


class MemoryJournal:
    """Implements `ports.Journal` for transactions that leave nothing to be finished."""

    def begin(self, kind: str, facts) -> MemoryWriter:
        return MemoryWriter()

    def transactions(self) -> tuple[str, ...]:
        return ()


def a_store() -> MemoryStore:
    """Three snapshots of a step, one of bootstrap, an abandoned `tmp_`, an interrupted deletion, two entries of the trash."""
    store = MemoryStore()
    for name, data in run_files().items():
        store.put(f"{ROOT}/{name}", data)
    for name in (
        "step_3/rollout_snapshots/tmp_snapshot_000009",
        "step_3/rollout_snapshots/trash_snapshot_000008",
        f".ckptctl/trash/{int(START_S) - 200_000}.step_3.snapshot_000000",
        f".ckptctl/trash/going.{int(START_S)}.step_3.snapshot_000000",
    ):
        store.put(f"{ROOT}/{name}/part", b"12345")
    store.sync_tree("/")
    return store


def a_gc_world(store):
    return a_world(store=store, lock=FreeLock(), journal=MemoryJournal())


def collect(store):
    return run_gc(a_gc_world(store), ROOT, REQUEST)


def names(store, folder: str) -> list[str]:
    entries = store.list_tree(f"{ROOT}/{folder}", max_depth=1)
    return sorted(entry.path.partition(".")[2] if "trash" in folder else entry.path for entry in entries)


def assert_sound(store) -> None:
    """The newest valid snapshot is untouched, and what is called a snapshot is a whole one."""
    files = run_files()
    visible = [
        f"{anchor}/rollout_snapshots/{name}"
        for anchor in ("step_3", "bootstrap")
        for name in names(store, f"{anchor}/rollout_snapshots")
        if name.startswith("snapshot_")
    ]
    assert "step_3/rollout_snapshots/snapshot_000003" in visible
    for path in visible:
        wanted = {name[len(path) + 1 :] for name in files if name.startswith(f"{path}/")}
        found = {entry.path for entry in store.list_tree(f"{ROOT}/{path}") if entry.kind == "file"}
        assert wanted == found, path


def assert_finished(store) -> None:
    """The same command again reaches the goal, and a third run has nothing to do."""
    assert () == collect(store).remaining()
    assert {folder: names(store, folder) for folder in GOAL} == GOAL
    assert "nothing_to_do" == collect(store).outcome


def changes() -> list[int]:
    """The places in a whole run where it changes something."""
    life = Life()
    run_gc(mortal(a_gc_world(a_store()), life), ROOT, REQUEST)
    return [place for place, name in enumerate(life.operations) if name in CHANGES]


PLACES = changes()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("place", PLACES)
def test_it_dies_at_any_change(place, after) -> None:
    """Before the operation, or after it; by itself and with every loss that a power failure may bring."""
    for loss in LOSSES if after else ("nothing",):
        store = a_store()
        life = Life(dies_at=place, after=after)
        with pytest.raises(DeadError):
            run_gc(mortal(a_gc_world(store), life), ROOT, REQUEST)
        store.crash(loss)

        assert_sound(store)
        assert_finished(store)


@pytest.mark.parametrize("place", range(len(PLACES)))
def test_any_change_is_refused(place) -> None:
    """An I/O error instead: what remains is in the result or raised, and the next run does it."""
    store = a_store()
    count = [0]

    class Refusing:
        def __getattr__(self, name):
            found = getattr(store, name)
            if f"store.{name}" not in CHANGES:
                return found

            def act(*args):
                count[0] += 1
                if count[0] - 1 == place:
                    raise StorageError(operation=name, path=args[0], detail="No space left on device")
                return found(*args)

            return act

    world = a_gc_world(store)
    try:
        has_told = bool(run_gc(replace(world, store=Refusing()), ROOT, REQUEST).remaining())
    except StorageError:
        has_told = True

    assert has_told == (count[0] > place)
    assert_sound(store)
    assert_finished(store)
