"""Garbage collection on real directories: what goes, what stays, and everything that may come in between."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ckptctl.adapters import durable
from ckptctl.domain.config import RunConfig, RunSections
from ckptctl.domain.retention import GcRequest
from ckptctl.errors import (
    BusyError,
    ConfigError,
    LockHeldError,
    NothingThereError,
    RefusedError,
    StorageError,
    UsageError,
)
from ckptctl.workflows.gc import remaining_error, run_gc
from tests.runs import GONE, a_run, damage, names, offline_world

DAY_S, HOUR_S = 86_400.0, 3_600.0
SNAPSHOT_FACTS = {
    "schema_version": 1,
    "tool_version": "0.1.0",
    "checkpoint_id": "ck-1",
    "anchor": "step_3",
    "number": 1,
    "staged": "step_3/rollout_snapshots/tmp_snapshot_000009",
    "final": "step_3/rollout_snapshots/snapshot_000001",
    "controller_instance_id": "i-1",
    "train_step": 3,
    "trainer_version": 3,
    "mutation_version": 41,
    "unfinished_rollouts": 4,
    "topology_fingerprint": "0" * 64,
    "models": ["policy_model"],
    "agents": ["a"],
    "resources": ["counter"],
    "plan": {},
}
RESTORE_FACTS = {
    "schema_version": 1,
    "tool_version": "0.1.0",
    "checkpoint_id": "restore-1",
    "anchor": "step_3",
    "snapshot": "step_3/rollout_snapshots/snapshot_000001",
    "manifest_sha256": "0" * 64,
    "controller_instance_id": "i-1",
    "models": [],
    "agents": [],
    "resources": [],
}


def gc(root, *, ahead_s: float = 0.0, config=None, notices=None, **request):
    """One run in a world of its own."""
    world = offline_world(root, ahead_s=ahead_s, notices=notices)
    return run_gc(world, str(root), GcRequest(**request), config)


def told(result) -> dict[str, tuple[str, str]]:
    """Path -> (action, outcome)."""
    return {item.path: (item.action, item.outcome) for item in result.items}


def trash(root) -> list[str]:
    folder = root / ".ckptctl" / "trash"
    return sorted(path.name.split(".", 1)[1] for path in folder.iterdir()) if folder.is_dir() else []


def a_config(root, keep: int) -> RunConfig:
    raw = {"rollout_checkpointing": {"keep_latest_k": keep}}
    return RunConfig("run.yaml", raw, RunSections.model_validate(raw), str(root))


def beside(root, name: str, *, age_s: float) -> None:
    """A leftover of an interrupted write, last touched so long ago."""
    folder = root / "step_3" / "rollout_snapshots" / name
    (folder / "data_plane").mkdir(parents=True)
    (folder / "data_plane" / "part").write_bytes(b"12345")
    then_s = time.time() - age_s
    for path in (folder / "data_plane" / "part", folder / "data_plane", folder):
        os.utime(path, (then_s, then_s))


def test_older_ones_go_to_the_trash_and_later_for_good(tmp_path) -> None:
    """First run: moved, with its grace period. Then nothing, until the period is over. Then deleted, and nothing again."""
    root = a_run(tmp_path, step_3=4)
    first = gc(root)
    second = gc(root)
    entry = next(item.trash_entry for item in first.items if item.action == "trash")
    age(root, entry, DAY_S + 10)
    third = gc(root)
    fourth = gc(root)

    assert ["snapshot_000003", "snapshot_000004"] == names(root)
    assert ("collected", "nothing_to_do", "collected", "nothing_to_do") == tuple(
        result.outcome for result in (first, second, third, fourth)
    )
    assert 2 == sum(item.outcome == "moved" for item in first.items)
    assert 1 == sum(item.outcome == "deleted" for item in third.items)
    assert 1 == len(trash(root))


def age(root, entry: str, seconds: float) -> None:
    """Date an entry of the trash back."""
    folder = root / ".ckptctl" / "trash"
    at_s, rest = entry.split(".", 1)
    (folder / entry).rename(folder / f"{int(at_s) - int(seconds)}.{rest}")


def test_a_dry_run_says_exactly_what_a_run_does(tmp_path) -> None:
    """Same items, same actions, same reasons, same sizes; and nothing at all was changed by asking."""
    root = a_run(tmp_path, step_3=3, bootstrap=2)
    beside(root, "tmp_snapshot_000007", age_s=2 * DAY_S)
    beside(root, "tmp_snapshot_000008", age_s=10)
    beside(root, "trash_snapshot_000001", age_s=2 * HOUR_S)
    before = everything(root)
    planned = gc(root, dry_run=True, keep=1)
    after = everything(root)
    done = gc(root, keep=1)

    def plan(result):
        return [(item.path, item.action, item.reasons, item.size_bytes) for item in result.items]

    assert before == after
    assert plan(planned) == plan(done)
    assert {"planned", "kept"} == {item.outcome for item in planned.items}
    assert ["snapshot_000003", "tmp_snapshot_000008"] == names(root)
    assert [] == names(root, "bootstrap")


def everything(root) -> list[tuple[str, bytes]]:
    return sorted(
        (str(path.relative_to(root)), path.read_bytes() if path.is_file() else b"") for path in root.rglob("*")
    )


def test_the_newest_valid_one_stays_however_old_it_is(tmp_path) -> None:
    """Two newer ones are damaged: the newest stay as upstream counts, the valid one beside them, the others go."""
    root = a_run(tmp_path, step_3=5)
    damage(root, "step_3", 4)
    damage(root, "step_3", 5)
    result = gc(root, keep=2)

    assert ["snapshot_000003", "snapshot_000004", "snapshot_000005"] == names(root)
    assert ("newest valid snapshot of `step_3`",) == next(
        item.reasons for item in result.items if item.path.endswith("3") and item.action == "keep"
    )


@pytest.mark.parametrize(
    ("path", "make", "told"),
    [
        ("run", os.mkfifo, "it is a fifo, not a regular file"),
        ("run", os.mkdir, "it is a directory, not a regular file"),
        ("run", lambda path: os.symlink("x", path), "it is a symlink, not a regular file"),
        ("trash", os.mkfifo, "nothing could be moved there"),
        ("lock", lambda path: Path(path).write_text("x"), "locked by another ckptctl: an owner who is unknown"),
    ],
)
def test_a_dry_run_tells_what_a_run_would_stop_at(tmp_path, path, make, told) -> None:
    """Things in the places of ours: the run itself would fail, so its plan alone is no honest answer."""
    root = a_run(tmp_path, step_3=2)
    (root / ".ckptctl").mkdir(exist_ok=True)
    assert () == gc(root, keep=1, dry_run=True).warnings
    make(f"{root}/.ckptctl/{path}")

    [warning] = gc(root, keep=1, dry_run=True).warnings
    assert told in warning
    if path == "trash":
        assert ["failed"] == [item.outcome for item in gc(root, keep=1).items if item.action != "keep"]
    else:
        with pytest.raises((StorageError, LockHeldError)):
            gc(root, keep=1)


def test_a_damaged_one_that_stays_is_told(tmp_path) -> None:
    """`gc` found out on its way, and who reads its answer should not have to ask again; before and after."""
    root = a_run(tmp_path, step_3=3)
    damage(root, "step_3", 3)
    path = "step_3/rollout_snapshots/snapshot_000003"
    warning = f"`{path}` is not valid: `ckptctl validate {root}/{path}` says why"

    assert (warning,) == gc(root, keep=1, dry_run=True).warnings
    assert (warning,) == gc(root, keep=1).warnings


@pytest.mark.parametrize(("level", "stays"), [("standard", ["snapshot_000003"]), ("full", ["2", "3"])])
def test_what_counts_as_valid_is_a_wish(tmp_path, level, stays) -> None:
    """A byte of a tensor is damaged in the newest one: level standard does not read it, level full does, in the trash too."""
    root = a_run(tmp_path, step_3=3)
    units = (root / "step_3/rollout_snapshots/snapshot_000003/data_plane").rglob("su_*.pkl")
    unit = max(units, key=lambda path: path.stat().st_size)
    content = bytearray(unit.read_bytes())
    content[content.index(bytes(16)) + 8] ^= 1
    unit.write_bytes(content)
    gc(root, keep=1, level=level)

    assert [name[-len(stay) :] for name, stay in zip(names(root), stays, strict=True)] == stays
    for path in sorted((root / ".ckptctl/trash").iterdir()):
        age(root, path.name, 2 * DAY_S)
    gc(root, keep=1, level="full")
    assert (["step_3.snapshot_000002"] if level == "standard" else []) == trash(root)


class NoRoom:
    """A lock for which there is no room while that file is there (None: at no time)."""

    def __init__(self, lock, number: int, room=None) -> None:
        self._lock, self._number, self._room = lock, number, room

    def __getattr__(self, name):
        return getattr(self._lock, name)

    def acquire(self, *, break_lock: bool) -> None:
        if self._room is None or self._room.exists():
            error = OSError(self._number, os.strerror(self._number))
            raise durable.storage_error("create", "lock", error) from error
        self._lock.acquire(break_lock=break_lock)


@pytest.mark.parametrize("has_room", [False, True])
@pytest.mark.parametrize(("number", "is_full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False)])
def test_a_disk_without_room_for_the_lock(tmp_path, number, is_full, has_room) -> None:
    """Who comes to make room is told how to begin; any other failure is told as it is, and costs no room."""
    root = a_run(tmp_path, step_3=3)
    if has_room:
        gc(root)
    world = offline_world(root)
    with pytest.raises(StorageError, match=os.strerror(number)) as caught:
        run_gc(replace(world, lock=NoRoom(world.lock, number)), str(root), GcRequest(keep=1))

    assert is_full == (f"`{root}/.ckptctl/trash`" in (caught.value.hint or ""))
    assert (has_room and not is_full) == (root / ".ckptctl/room").exists()
    assert (2 if has_room else 3) == len(names(root))


def test_the_room_that_was_left(tmp_path) -> None:
    """A full disk is collected in the room that the run before has left, and the next one finds room again."""
    root = a_run(tmp_path, step_3=4)
    gc(root)
    room, world, notices = root / ".ckptctl/room", offline_world(root), []
    assert 64 << 10 == room.stat().st_size
    world = replace(world, lock=NoRoom(world.lock, errno.ENOSPC, room), notice=notices.append)
    result = run_gc(world, str(root), GcRequest(keep=1))

    assert ["snapshot_000004"] == names(root)
    assert any("the disk is full" in notice for notice in (*notices, *result.warnings))
    assert room.exists()


def test_more_valid_copies_on_request(tmp_path) -> None:
    """With `min_valid` 2 a second valid one stays beyond the newest."""
    root = a_run(tmp_path, step_3=4)
    damage(root, "step_3", 4)
    gc(root, keep=1, min_valid=2)

    assert ["snapshot_000002", "snapshot_000003", "snapshot_000004"] == names(root)


def test_what_cannot_be_checked_may_be_valid(tmp_path) -> None:
    """A snapshot of another schema is not called invalid: it stays until a newer one is known to be valid."""
    root = a_run(tmp_path, step_3=3)
    manifest = root / "step_3/rollout_snapshots/snapshot_000002/manifest.json"
    raw = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**raw, "schema_version": 7}, indent=2, sort_keys=True) + "\n")
    damage(root, "step_3", 3)
    result = gc(root, keep=1)

    assert ["snapshot_000001", "snapshot_000002", "snapshot_000003"] == names(root)
    assert "it may be valid" in next(item.reasons[0] for item in result.items if item.path.endswith("2"))


@pytest.mark.parametrize(
    ("method", "part"),
    [
        ("read_bytes", "manifest.json"),
        ("open_source", "rollout_snapshots/snapshot_00000"),
        ("open_source", "rollout_recovery.pt"),
        ("open_source", "controller_state.pkl"),
        ("open_source", "agent/"),
        ("open_source", "resources/"),
        ("list_tree", "rollout_snapshots/snapshot_00000"),
    ],
)
def test_an_outage_while_validating_loses_nothing(tmp_path, method, part) -> None:
    """What cannot be read right now is not called invalid: nothing goes that may be the newest valid one."""
    root = a_run(tmp_path, step_3=3, bootstrap=1)
    world = offline_world(root)
    store = FaultyStore(world.store, method, part)
    result = run_gc(replace(world, store=store), str(root), GcRequest(keep=1))

    assert store.refused
    assert "nothing_to_do" == result.outcome
    assert 3 == len(names(root))
    assert 1 == len(names(root, "bootstrap"))


def test_bootstrap_goes_when_a_durable_step_has_a_valid_snapshot(tmp_path) -> None:
    """All of it, its newest too; a step without training info, or with nothing valid, does not count."""
    root = a_run(tmp_path, step_3=1, bootstrap=2)
    info = root / "step_3/training_info.json"
    kept = info.read_bytes()
    info.unlink()
    gc(root)
    assert 2 == len(names(root, "bootstrap"))

    info.write_bytes(kept)
    damage(root, "step_3", 1)
    gc(root)
    assert 2 == len(names(root, "bootstrap"))

    a_run(tmp_path, step_3=1)
    gc(root)
    assert [] == names(root, "bootstrap")


def test_nothing_is_validated_where_nothing_might_go(tmp_path) -> None:
    """With room for all of them even a damaged one is not looked at."""
    root = a_run(tmp_path, step_3=2)
    damage(root, "step_3", 2)
    result = gc(root)

    assert "nothing_to_do" == result.outcome
    assert [("one of the newest 2 of `step_3`",)] * 2 == [item.reasons for item in result.items]


def test_how_many_are_kept(tmp_path) -> None:
    """The request wins over the configuration, the configuration over the default; a configured 0 is refused unless overruled."""
    root = a_run(tmp_path, step_3=3)

    assert 1 == gc(root, dry_run=True, config=a_config(root, 3), keep=1).policy.keep_latest_k
    assert 3 == gc(root, dry_run=True, config=a_config(root, 3)).policy.keep_latest_k
    assert 2 == gc(root, dry_run=True).policy.keep_latest_k
    with pytest.raises(ConfigError, match="at least one snapshot must survive"):
        gc(root, dry_run=True, config=a_config(root, 0))
    assert 4 == gc(root, dry_run=True, config=a_config(root, 0), keep=4).policy.keep_latest_k


def test_leftovers_by_age(tmp_path) -> None:
    """An old `tmp_` goes, a young one and one with a young file deep inside stay; a `trash_` goes when nobody deletes it any more."""
    root = a_run(tmp_path, step_3=1)
    beside(root, "tmp_snapshot_000002", age_s=2 * DAY_S)
    beside(root, "tmp_snapshot_000003", age_s=60)
    beside(root, "tmp_snapshot_000004", age_s=2 * DAY_S)
    os.utime(root / "step_3/rollout_snapshots/tmp_snapshot_000004/data_plane/part")
    beside(root, "trash_snapshot_000005", age_s=2 * HOUR_S)
    beside(root, "trash_snapshot_000006", age_s=60)
    gc(root)

    assert ["snapshot_000001", "tmp_snapshot_000003", "tmp_snapshot_000004", "trash_snapshot_000006"] == names(root)
    assert [] == trash(root)


def test_no_grace_period_makes_a_writer_dead(tmp_path) -> None:
    """NeMo-RL knows no lock of ours: what it writes or deletes at this moment stays, whatever is asked for."""
    root = a_run(tmp_path, step_3=1)
    beside(root, "tmp_snapshot_000002", age_s=0)
    beside(root, "trash_snapshot_000003", age_s=0)
    beside(root, "tmp_snapshot_000004", age_s=2 * HOUR_S)
    result = gc(root, grace_s=0.0)

    assert ["snapshot_000001", "tmp_snapshot_000002", "trash_snapshot_000003"] == names(root)
    assert [
        "no transaction of ours owns it, and its writer may be alive",
        "something in it changed of late: somebody may be deleting it",
    ] == [item.reasons[0] for item in result.items if item.action == "keep" and item.kind != "snapshot"]


@pytest.mark.parametrize("ahead_s", [40 * DAY_S, -40 * DAY_S])
def test_a_wrong_clock_deletes_nothing_by_age(tmp_path, ahead_s) -> None:
    """A clock that disagrees with the file system's, in whichever direction, is said and not believed; retention goes on."""
    root = a_run(tmp_path, step_3=3)
    beside(root, "tmp_snapshot_000009", age_s=2 * DAY_S)
    gc(root, keep=2)
    age(root, next(path.name for path in (root / ".ckptctl/trash").iterdir()), 2 * DAY_S)
    beside(root, "tmp_snapshot_000008", age_s=2 * DAY_S)
    result = gc(root, keep=1, ahead_s=ahead_s)

    assert ["snapshot_000003", "tmp_snapshot_000008"] == names(root)
    assert 2 == len(trash(root))
    assert ["the clock of this host is" in warning for warning in result.warnings] == [True]
    assert 2 == sum("the clock cannot be believed" in item.reasons[0] for item in result.items)


def test_a_date_in_the_future_is_not_believed(tmp_path) -> None:
    """An entry that was put into the trash tomorrow, and a `tmp_` that will be written tomorrow, stay."""
    root = a_run(tmp_path, step_3=3)
    gc(root)
    entry = next((root / ".ckptctl/trash").iterdir())
    age(root, entry.name, -DAY_S)
    beside(root, "tmp_snapshot_000009", age_s=-DAY_S)
    result = gc(root, grace_s=0.0)

    assert "nothing_to_do" == result.outcome
    assert 2 == sum("the clock cannot be believed" in item.reasons[0] for item in result.items)


def test_a_wrong_clock_never_shortens_the_grace_period(tmp_path) -> None:
    """Somebody whose clock is a year behind moves a snapshot: the entry is dated by the file system, not by that clock."""
    root = a_run(tmp_path, step_3=3)
    result = gc(root, ahead_s=-365 * DAY_S)
    entry = next((root / ".ckptctl/trash").iterdir())

    assert abs(int(entry.name.split(".")[0]) - time.time()) < 300
    assert ["the clock of this host is" in warning for warning in result.warnings] == [True]


@pytest.mark.parametrize("told_by", ["journal", "snapshot"])
def test_a_clock_that_was_set_back_is_found_out(tmp_path, told_by) -> None:
    """Host and file system went back a day together: what was written before lies in the future, so no age counts."""
    root = a_run(tmp_path, step_3=3)
    gc(root, keep=2)
    age(root, next((root / ".ckptctl/trash").iterdir()).name, 2 * DAY_S)
    beside(root, "tmp_snapshot_000009", age_s=2 * DAY_S)
    if told_by == "journal":
        offline_world(root, ahead_s=DAY_S).journal.begin("gc", {"schema_version": 1, "tool_version": "0.1.0"})
    else:
        os.utime(root / "step_3/rollout_snapshots/snapshot_000003", (time.time() + DAY_S,) * 2)
    planned, done = gc(root, keep=1, dry_run=True), gc(root, keep=1)
    moved = next(item.trash_entry for item in done.items if item.outcome == "moved")

    assert ["snapshot_000003", "tmp_snapshot_000009"] == names(root)
    assert 2 == sum("the clock cannot be believed" in item.reasons[0] for item in done.items)
    assert [(item.path, item.reasons) for item in planned.items] == [(item.path, item.reasons) for item in done.items]
    bearer = "the last line of journal `000002-gc`" if told_by == "journal" else "the time of `step_3/rollout_snapshots"
    assert f" s behind {bearer}" in done.warnings[0]
    assert (told_by == "journal") == (int(moved.split(".")[0]) > time.time() + DAY_S / 2)


def test_the_trash_keeps_the_last_valid_copy(tmp_path) -> None:
    """What stayed because it was valid is damaged by now: a copy in the trash is the newest valid one, and older ones may go."""
    root = a_run(tmp_path, step_3=4)
    gc(root, keep=1)
    for entry in sorted((root / ".ckptctl/trash").iterdir()):
        age(root, entry.name, 2 * DAY_S)
    damage(root, "step_3", 4)
    inner = next((root / ".ckptctl/trash").glob("*.snapshot_000003")) / "rollout_recovery.pt"
    inner.write_bytes(inner.read_bytes()[:-40])
    planned, done = gc(root, keep=1, dry_run=True), gc(root, keep=1)
    kept = next(item for item in done.items if item.kind == "trashed" and item.action == "keep")

    assert ["step_3.snapshot_000002"] == trash(root)
    assert (
        "its grace period is over, but `step_3` has no valid snapshot without it; `--undelete` brings it back",
    ) == kept.reasons
    assert [(item.path, item.reasons) for item in planned.items] == [(item.path, item.reasons) for item in done.items]
    gc(root, undelete="step_3/snapshot_000002")
    assert "nothing_to_do" == gc(root, keep=2).outcome


def test_the_trash_of_an_anchor_that_is_gone_is_emptied(tmp_path) -> None:
    """Nothing could be brought back to it; nor is anything of bootstrap needed once a step supersedes it."""
    root = a_run(tmp_path, step_3=2, bootstrap=1)
    gc(root, keep=1)
    (root / "step_9/rollout_snapshots").mkdir(parents=True)
    for entry in sorted((root / ".ckptctl/trash").iterdir()):
        age(root, entry.name, 2 * DAY_S)
    assert 2 == sum(item.outcome == "deleted" for item in gc(root).items)

    a_run(tmp_path, step_3=2)
    gc(root, keep=1)
    age(root, next((root / ".ckptctl/trash").iterdir()).name, 2 * DAY_S)
    (root / "step_3").rename(tmp_path / "moved")
    gc(root)
    assert [] == trash(root)


def test_pins(tmp_path) -> None:
    """A pinned one stays with its reason, however it was named; unpinned it goes."""
    root = a_run(tmp_path, step_3=4)
    (root / "bootstrap").mkdir()
    pinned = gc(root, pin=str(root / "step_3/rollout_snapshots/snapshot_000001"), reason="paper [red]figure\x1b[2J")
    gc(root, pin="step_3/snapshot_000002", reason="audit")
    result = gc(root, keep=1)

    assert "step_3/rollout_snapshots/snapshot_000001" == pinned.snapshot
    assert ["snapshot_000001", "snapshot_000002", "snapshot_000004"] == names(root)
    assert ("pinned: paper [red]figure\x1b[2J",) == next(
        item.reasons for item in result.items if item.path.endswith("rollout_snapshots/snapshot_000001")
    )
    assert "unpinned" == gc(root, unpin="snapshot_000001").outcome
    gc(root, keep=1)
    assert ["snapshot_000002", "snapshot_000004"] == names(root)


def test_a_pin_that_cannot_be_read_keeps_too(tmp_path) -> None:
    """Its name says what it keeps."""
    root = a_run(tmp_path, step_3=3)
    gc(root, pin="snapshot_000001", reason="audit")
    (root / ".ckptctl/pins/step_3.snapshot_000001.json").write_bytes(b'{"schema_version":1,')
    (root / ".ckptctl/pins/stray").write_bytes(b"")
    gc(root, keep=1)

    assert ["snapshot_000001", "snapshot_000003"] == names(root)


def test_a_pin_that_keeps_nothing_is_told(tmp_path) -> None:
    """Somebody believes that it does: its snapshot was removed by hand, or lies in the trash."""
    root = a_run(tmp_path, step_3=3)
    for number in (1, 2):
        gc(root, pin=f"snapshot_00000{number}", reason="audit")
    shutil.rmtree(root / "step_3/rollout_snapshots/snapshot_000001")
    entry = root / ".ckptctl/trash" / f"{int(time.time())}.step_3.snapshot_000002"
    entry.parent.mkdir()
    (root / "step_3/rollout_snapshots/snapshot_000002").rename(entry)
    age(root, entry.name, 2 * DAY_S)
    result = gc(root)
    gc(root, unpin="step_3/snapshot_000001")
    gc(root, undelete="step_3/snapshot_000002")

    first, second = (f"step_3/rollout_snapshots/snapshot_00000{number}" for number in (1, 2))
    assert (
        f"`{first}` is pinned, but is not there: `ckptctl gc --unpin {first}`",
        f"`{second}` is pinned, but is in the trash: `ckptctl gc --undelete {second}`",
    ) == result.warnings
    assert ("pinned: audit",) == result.items[-1].reasons
    assert () == gc(root).warnings


def test_undelete_twice_says_where_it_is(tmp_path) -> None:
    """By any of its names."""
    root = a_run(tmp_path, step_3=3)
    entry = next(item.trash_entry for item in gc(root).items if item.outcome == "moved")
    gc(root, undelete=entry)
    for name in (entry, "snapshot_000001", "step_3/snapshot_000001"):
        with pytest.raises(NothingThereError, match="is not in the trash: it is in its place"):
            gc(root, undelete=name)


@pytest.mark.parametrize(
    ("wish", "error", "match"),
    [
        ({"undelete": ""}, UsageError, "an empty name"),
        ({"pin": "snapshot_000007", "reason": "x"}, NothingThereError, "no anchor has a snapshot"),
        ({"pin": "step_3/snapshot_000007", "reason": "x"}, NothingThereError, "there is no snapshot"),
        ({"pin": "/elsewhere/step_3/snapshot_000001", "reason": "x"}, UsageError, "does not lie in"),
        ({"pin": "step_3/../x", "reason": "x"}, UsageError, "is no snapshot"),
        ({"pin": "snapshot_000001", "reason": "x"}, UsageError, "may be any of"),
        ({"pin": "snapshot_000002"}, UsageError, "belong together"),
        ({"reason": "x"}, UsageError, "belong together"),
        ({"pin": "snapshot_000002", "reason": "\udcff"}, UsageError, "bytes that are no text"),
        ({"pin": "snapshot_000002", "reason": "x" * 100_000}, UsageError, "is too long"),
        ({"pin": "a", "unpin": "b", "reason": "x"}, UsageError, "stand alone"),
        ({"undelete": "a", "dry_run": True}, UsageError, "stand alone"),
        ({"unpin": "snapshot_000002"}, NothingThereError, "is not pinned"),
        ({"undelete": "snapshot_000009"}, NothingThereError, "nothing in the trash is called"),
        ({"undelete": "../../etc"}, NothingThereError, "nothing in the trash is called"),
    ],
)
def test_wishes_that_fit_nothing(tmp_path, wish, error, match) -> None:
    """Each is refused in words of its own, and changes nothing."""
    root = a_run(tmp_path, step_3=2, bootstrap=1)
    with pytest.raises(error, match=match):
        gc(root, **wish)


def test_undelete_brings_it_back(tmp_path) -> None:
    """By its entry or by its own path; byte for byte."""
    root = a_run(tmp_path, step_3=4)
    before = everything(root / "step_3")
    gc(root)
    entry = next(path.name for path in (root / ".ckptctl/trash").iterdir() if path.name.endswith("1"))
    result = gc(root, undelete=entry)
    gc(root, undelete="step_3/rollout_snapshots/snapshot_000002")

    assert "step_3/rollout_snapshots/snapshot_000001" == result.snapshot
    assert before == everything(root / "step_3")
    assert [] == trash(root)


def test_undelete_needs_a_free_place_and_an_anchor(tmp_path) -> None:
    """A number that was taken meanwhile, an anchor that is gone, several of one name, a deletion that has begun: refused."""
    root = a_run(tmp_path, step_3=3)
    gc(root, keep=1)
    a_run(tmp_path, step_3=2)
    with pytest.raises(RefusedError, match="took that number"):
        gc(root, undelete="snapshot_000001")
    gc(root, keep=1)
    with pytest.raises(UsageError, match="may be any of"):
        gc(root, undelete="snapshot_000001")
    first = min((root / ".ckptctl/trash").glob("*snapshot_000002"))
    first.rename(first.with_name(f"going.{first.name}"))
    with pytest.raises(RefusedError, match="has begun"):
        gc(root, undelete=first.name)
    (root / "step_3").rename(root / "moved")
    with pytest.raises(RefusedError, match="which is gone"):
        gc(root, undelete=max((root / ".ckptctl/trash").glob("*snapshot_000001")).name)


def test_strangers_in_the_trash_stay(tmp_path) -> None:
    """What ckptctl did not put there is listed and left alone."""
    root = a_run(tmp_path, step_3=1)
    (root / ".ckptctl/trash/5....").mkdir(parents=True)
    (root / ".ckptctl/trash/notes\x1b[2J").write_bytes(b"")
    result = gc(root, grace_s=0.0)

    assert [("ckptctl did not put it here",)] * 2 == [item.reasons for item in result.items if item.kind == "trashed"]


@pytest.mark.parametrize(("kind", "facts"), [("snapshot", SNAPSHOT_FACTS), ("restore", RESTORE_FACTS)])
def test_what_an_unfinished_transaction_uses_stays(tmp_path, kind, facts) -> None:
    """Its snapshot and its staged directory, however old; everything else is collected, and the transaction is told."""
    root = a_run(tmp_path, step_3=3)
    beside(root, "tmp_snapshot_000009", age_s=3 * DAY_S)
    offline_world(root).journal.begin(kind, facts)
    result = gc(root, keep=1)
    expected = ["snapshot_000001", "snapshot_000003"] + (["tmp_snapshot_000009"] if kind == "snapshot" else [])

    assert expected == names(root)
    assert f"`000001-{kind}` was interrupted" in result.warnings[0]


def test_a_transaction_that_cannot_be_read_stops_collecting(tmp_path) -> None:
    """Nobody knows what it uses, so nothing may go."""
    root = a_run(tmp_path, step_3=3)
    offline_world(root).journal.begin("snapshot", {"schema_version": 1})
    with pytest.raises(RefusedError, match="nobody knows which snapshot it uses"):
        gc(root, keep=1)

    assert 3 == len(names(root))


def test_the_lock(tmp_path) -> None:
    """Held by somebody alive: refused, and a dry run says so; held by the dead: taken over; given back afterwards."""
    root = a_run(tmp_path, step_3=3)
    holder = offline_world(root).lock
    holder.acquire()
    with pytest.raises(LockHeldError):
        gc(root)
    offline_world(root).journal.begin("snapshot", SNAPSHOT_FACTS)
    dry = gc(root, dry_run=True)
    (root / ".ckptctl/journal/000001-snapshot.jsonl").unlink()
    holder.release()
    dead = offline_world(root, **GONE).lock
    dead.acquire()
    quiet = gc(root, dry_run=True)
    gc(root)

    assert "transaction `000001-snapshot` is under way: what it uses stays" == dry.warnings[0]
    assert "locked by another ckptctl" in dry.warnings[1]
    assert () == quiet.warnings
    assert 2 == len(names(root))
    assert offline_world(root).lock.holder() is None


def test_a_lock_that_is_taken_away_ends_it(tmp_path) -> None:
    """Asked before every effect: somebody else works here now."""
    root = a_run(tmp_path, step_3=4)
    world = offline_world(root)
    lock = world.lock
    asked = []

    class Taken:
        def __getattr__(self, name):
            return getattr(lock, name)

        def is_owner(self):
            asked.append(1)
            return len(asked) < 2

    with pytest.raises(BusyError, match="taken over"):
        run_gc(replace(world, lock=Taken()), str(root), GcRequest())

    assert 3 == len(names(root))


class FaultyStore:
    """A store that refuses to do one thing to one path."""

    def __init__(self, store, method: str, part: str) -> None:
        self._store, self._method, self._part = store, method, part
        self.refused = 0

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if name != self._method:
            return found

        def refuse(path, *rest, **options):
            if self._part in path:
                self.refused += 1
                raise StorageError(operation=name, path=path, detail="Input/output error")
            return found(path, *rest, **options)

        return refuse


@pytest.mark.parametrize("method", ["rename", "remove_tree"])
def test_what_cannot_go_is_named_and_the_rest_goes(tmp_path, method) -> None:
    """The failure of one item stops no other; the result names what remains, and the next run does it."""
    root = a_run(tmp_path, step_3=4)
    beside(root, "trash_snapshot_000009", age_s=2 * HOUR_S)
    world = offline_world(root)
    part = "snapshot_000001" if method == "rename" else "snapshot_000009"
    result = run_gc(replace(world, store=FaultyStore(world.store, method, part)), str(root), GcRequest())
    [failed] = result.remaining()
    error = remaining_error(result)

    assert part in failed.path
    assert "Input/output error" in failed.problem
    assert failed.path in error.message
    assert 32 == error.exit_code
    assert (3 if method == "rename" else 2) == len(names(root))
    assert () == gc(root).remaining()
    assert ["snapshot_000003", "snapshot_000004"] == names(root)


def test_somebody_who_may_only_read(tmp_path) -> None:
    """A dry run needs no permission to write: ages are then told by this host's clock alone."""
    root = a_run(tmp_path, step_3=1)
    beside(root, "tmp_snapshot_000009", age_s=2 * DAY_S)
    world = offline_world(root)
    store = FaultyStore(world.store, "file_system_now_s", "")
    result = run_gc(replace(world, store=store), str(root), GcRequest(dry_run=True))

    assert 1 == store.refused
    assert ["delete"] == [item.action for item in result.items if item.kind == "tmp"]
    assert (f"nothing can be written in `{root}` from here",) == result.warnings


def test_a_wrong_clock_on_a_full_disk(tmp_path) -> None:
    """Not even an empty file can be made: the lock, which was made a moment ago, tells the file system's time."""
    root = a_run(tmp_path, step_3=1)
    beside(root, "tmp_snapshot_000009", age_s=2 * DAY_S)
    world = offline_world(root, ahead_s=30 * DAY_S)
    store = FaultyStore(world.store, "file_system_now_s", "")
    result = run_gc(replace(world, store=store), str(root), GcRequest())

    assert "nothing_to_do" == result.outcome
    assert "s ahead of the file system's" in result.warnings[0]


@pytest.mark.parametrize(
    "error", [StorageError(operation="list", path="x", detail="Permission denied"), FileNotFoundError()]
)
def test_a_tmp_that_cannot_be_looked_into(tmp_path, error) -> None:
    """One that is closed to us may be alive; one that is just being deleted by its owner is as old as it says."""
    root = a_run(tmp_path, step_3=1)
    beside(root, "tmp_snapshot_000009", age_s=2 * DAY_S)
    world = offline_world(root)

    class Closed:
        def __getattr__(self, name):
            return getattr(world.store, name)

        def list_tree(self, path, *, max_depth=None):
            if "tmp_snapshot" in path:
                raise error
            return world.store.list_tree(path, max_depth=max_depth)

    result = run_gc(replace(world, store=Closed()), str(root), GcRequest(dry_run=True))

    assert ["keep" if isinstance(error, StorageError) else "delete"] == [
        item.action for item in result.items if item.kind == "tmp"
    ]


def test_a_disk_without_room_for_the_journal(tmp_path) -> None:
    """Collecting is what a full disk needs: it goes on without its journal, and says so."""
    root = a_run(tmp_path, step_3=3)
    notices: list[str] = []
    world = offline_world(root, notices=notices)

    class Full:
        def __getattr__(self, name):
            return getattr(world.journal, name)

        def begin(self, kind, facts):
            raise StorageError(operation="create", path="journal", detail="No space left on device")

    run_gc(replace(world, journal=Full()), str(root), GcRequest())

    assert ["snapshot_000002", "snapshot_000003"] == names(root)
    assert ["collecting goes on without it" in text for text in notices] == [True]


def test_a_journal_that_fails_in_the_middle(tmp_path) -> None:
    """The rest is done and told once."""
    root = a_run(tmp_path, step_3=4)
    notices: list[str] = []
    world = offline_world(root, notices=notices)

    class Writer:
        def append(self, record, *, sync):
            raise StorageError(operation="append to", path="journal", detail="No space left on device")

    class Filling:
        def __getattr__(self, name):
            return getattr(world.journal, name)

        def begin(self, kind, facts):
            return Writer()

    run_gc(replace(world, journal=Filling()), str(root), GcRequest())

    assert ["snapshot_000003", "snapshot_000004"] == names(root)
    assert 1 == len(notices)


def test_somebody_deletes_the_same(tmp_path) -> None:
    """What is gone when its turn comes is no error, whether it went before the rename or during it."""
    root = a_run(tmp_path, step_3=4)
    world = offline_world(root)

    class Racing:
        def __getattr__(self, name):
            return getattr(world.store, name)

        def rename(self, source, target):
            if source.endswith("snapshot_000002"):
                for number in (1, 2):
                    durable.remove_tree(f"{source[:-1]}{number}")
            world.store.rename(source, target)

    result = run_gc(replace(world, store=Racing()), str(root), GcRequest())

    assert {"gone"} == {item.outcome for item in result.items if item.action == "trash"}
    assert () == result.remaining()


def test_the_valid_one_that_was_to_stay_is_gone(tmp_path) -> None:
    """Upstream takes no lock: when it deletes the newest valid one meanwhile, the older ones are not touched."""
    root = a_run(tmp_path, step_3=3)
    world = offline_world(root)
    lock = world.lock

    class Watching:
        def __getattr__(self, name):
            return getattr(lock, name)

        def is_owner(self):
            durable.remove_tree(str(root / "step_3/rollout_snapshots/snapshot_000003"))
            return True

    result = run_gc(replace(world, lock=Watching()), str(root), GcRequest(keep=1))

    assert ["snapshot_000001", "snapshot_000002"] == names(root)
    assert 2 == len(result.remaining())


def test_files_that_somebody_holds_open(tmp_path) -> None:
    """On NFS a name `.nfs*` stays until it is closed: no failure, the next run tries again."""
    root = a_run(tmp_path, step_3=1)
    going = root / ".ckptctl/trash/going.5.step_3.snapshot_000009"
    going.mkdir(parents=True)
    world = offline_world(root)

    class Held:
        def __getattr__(self, name):
            return getattr(world.store, name)

        def remove_tree(self, path):
            """Leaves it, as `durable.remove_tree` does where only `.nfs*` files are left."""

    result = run_gc(replace(world, store=Held()), str(root), GcRequest())

    assert [("delete", "held_open")] == [found for path, found in told(result).items() if "going" in path]
    assert () == result.remaining()
    assert [("delete", "deleted")] == [found for path, found in told(gc(root)).items() if "going" in path]


def test_a_link_is_moved_and_removed_as_a_link(tmp_path) -> None:
    """It counts as upstream counts it; what it points to is never touched."""
    root = a_run(tmp_path, step_3=2)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"1")
    (root / "step_3/rollout_snapshots/snapshot_000000").symlink_to(elsewhere)
    link = root / "step_3/rollout_snapshots/trash_snapshot_000000"
    link.symlink_to(elsewhere)
    os.utime(link, (time.time() - 2 * HOUR_S,) * 2, follow_symlinks=False)
    first = gc(root)
    entry = next(item.trash_entry for item in first.items if item.outcome == "moved")
    age(root, entry, 2 * DAY_S)
    gc(root)

    assert ["snapshot_000001", "snapshot_000002"] == names(root)
    assert [] == trash(root)
    assert b"1" == (elsewhere / "precious").read_bytes()


def test_names_that_only_look_alike_are_left_alone(tmp_path) -> None:
    """Files, names without a number, folders of other anchors: nothing that ckptctl or NeMo-RL would not have made."""
    root = a_run(tmp_path, step_3=2)
    folder = root / "step_3/rollout_snapshots"
    for name in ("tmp_snapshot_x", "trash_snapshot_", "snapshot_7.bak", "LATEST\x1b[31m"):
        (folder / name).mkdir()
    (folder / "snapshot_000009").write_bytes(b"")
    (root / "tmp_step_4/rollout_snapshots/snapshot_000001").mkdir(parents=True)
    before = everything(root)
    result = gc(root, grace_s=0.0)

    assert before == [item for item in everything(root) if not item[0].startswith(".ckptctl")]
    assert 2 == len(result.items)


@pytest.mark.parametrize(
    ("name", "error"),
    [("nowhere", NothingThereError), ("empty", NothingThereError), ("step_3", UsageError), ("file", UsageError)],
)
def test_what_is_no_checkpoint_directory(tmp_path, name, error) -> None:
    """Refused before a control folder is made in the wrong place."""
    root = a_run(tmp_path, step_3=1)
    (root / "empty").mkdir()
    (root / "file").write_bytes(b"")
    with pytest.raises(error):
        gc(root / name)

    assert not list(root.rglob(".ckptctl"))


def test_a_directory_that_only_has_a_control_folder(tmp_path) -> None:
    """Its trash is still collected when all anchors are gone, through a link to it too."""
    root = a_run(tmp_path / "run", step_3=3)
    gc(root)
    (root / "step_3").rename(tmp_path / "moved")
    age(root, next(path.name for path in (root / ".ckptctl/trash").iterdir()), 2 * DAY_S)
    (tmp_path / "link").symlink_to(root)
    result = gc(tmp_path / "link")

    assert ["deleted"] == [item.outcome for item in result.items]
    (tmp_path / "nowhere").symlink_to(tmp_path / "absent")
    with pytest.raises(NothingThereError, match="leads nowhere"):
        gc(tmp_path / "nowhere")


def test_what_is_written_to_the_journal(tmp_path) -> None:
    """Plan, intent, outcome, end; nothing at all when there is nothing to do."""
    root = a_run(tmp_path, step_3=3)
    gc(root)
    gc(root)
    gc(root, pin="snapshot_000002", reason="audit")
    journal = offline_world(root).journal
    events = [[item.record["event"] for item in journal.read(name)] for name in journal.transactions()]

    assert [["begin", "intent", "outcome", "finish"], ["begin", "finish"]] == events
