"""Every command that reads a snapshot stops in time when there is no room for it, says so, and decides nothing on that."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.adapters.pack_store import PackedReader
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.memory_room import MORE_MEMORY, MemoryRoom
from ckptctl.domain.retention import GcRequest
from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import AttemptAbortedError, NotCheckedError
from ckptctl.workflows import staged_batches
from ckptctl.workflows.gc import run_gc
from ckptctl.workflows.inspect import run_inspection
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.selection import select_snapshot
from ckptctl.workflows.snapshot import take_snapshot
from ckptctl.workflows.validate import ValidateRequest, exit_code, validate
from tests.fakes.simulated_gym import simulated
from tests.packs import archive_at, packed
from tests.runs import a_run, names, offline_world
from tests.workflows.test_selection import two
from tests.workflows.test_selection import world as files_alone
from tests.workflows.test_staged_batches import a_snapshot, report_of

SNAPSHOT = "step_3/rollout_snapshots/snapshot_000001"
UNREAD = "was not read further: validation would need more than"


def no_room(looks: int = 0) -> MemoryRoom:
    """A room that is taken up after so many looks at it."""
    used = iter([0] * (looks + 1))
    return MemoryRoom(lambda: next(used, 1 << 50), DEFAULT_LIMITS.memory_bytes)


@pytest.mark.parametrize("level", ["standard", "full"])
def test_inspect(tmp_path, level) -> None:
    """The verdict is that it could not be checked; what was not read is listed."""
    root = a_run(tmp_path, step_3=1)
    result = run_inspection(replace(offline_world(root), room=no_room()), f"{root}/{SNAPSHOT}", level)

    assert "incomplete" == result.verdict
    assert any(UNREAD in text for text in result.unread)


def test_inspect_of_a_directory(tmp_path) -> None:
    """Each snapshot is told to be unchecked, none to be damaged."""
    root = a_run(tmp_path, step_3=2)
    result = run_inspection(replace(offline_world(root), room=no_room()), str(root), "standard")

    assert {"incomplete"} == {item.verdict for anchor in result.anchors for item in anchor.snapshots}


def test_gc_keeps_what_it_cannot_check(tmp_path) -> None:
    """Nothing counts as valid or invalid, so nothing goes, and the reason is told."""
    root = a_run(tmp_path, step_3=3)
    result = run_gc(replace(offline_world(root), room=no_room()), str(root), GcRequest(keep=1), None)

    assert ["snapshot_000001", "snapshot_000002", "snapshot_000003"] == names(root)
    assert any(UNREAD in reason for item in result.items for reason in item.reasons)


def test_a_pack_that_is_not_looked_into_is_no_bad_pack(tmp_path) -> None:
    """Want of memory is told as such; the snapshot that was to be packed stays."""
    root, folder = a_run(tmp_path / "run", step_3=2), tmp_path / "packs"
    folder.mkdir()
    packed(root, "step_3", "snapshot_000001", folder)
    room = no_room()
    archive = replace(archive_at(folder), open_packs=lambda: PackedReader(LocalStore(str(folder)), room=room))
    world = offline_world(root)
    result = run_gc(replace(world, room=room), str(root), GcRequest(keep=1, dry_run=True), None, archive)

    assert any(UNREAD in reason for item in result.items for reason in item.reasons)


@pytest.mark.parametrize("level", ["quick", "standard", "full"])
def test_validate_of_a_pack(tmp_path, level) -> None:
    """A pack that there is no room to open is not checked, and not called damaged."""
    root, folder = a_run(tmp_path / "run", step_3=1), tmp_path / "packs"
    folder.mkdir()
    path = packed(root, "step_3", "snapshot_000001", folder)
    room = no_room()
    with PackedReader(LocalStore(), room=room) as reader:
        report = validate(reader, ValidateRequest(paths=(str(path),), level=level, room=room))
    [pack] = report.targets

    assert ("pack", "incomplete", 11) == (pack.kind, pack.verdict, exit_code(report))
    assert [UNREAD in finding.message for finding in pack.findings] == [True]


def test_a_snapshot_in_a_pack(tmp_path) -> None:
    """What fills up after a pack was opened stops the reading of what is in it."""
    root, folder = a_run(tmp_path / "run", step_3=1), tmp_path / "packs"
    folder.mkdir()
    path = packed(root, "step_3", "snapshot_000001", folder)
    with PackedReader(LocalStore()) as reader:
        report = validate(reader, ValidateRequest(paths=(str(path),), level="standard", room=no_room()))
    verdicts = {target.kind: target.verdict for target in report.targets}

    assert {"snapshot": "incomplete", "pack": "valid"} == verdicts


@pytest.mark.parametrize("looks", [0, 5, 20, 40])
def test_restore_does_not_turn_to_an_older_snapshot(tmp_path, looks) -> None:
    """The newest may be sound: nobody knows. It stops wherever that was, and the hint is `--memory`."""
    config = two(tmp_path)
    with pytest.raises(NotCheckedError, match="want of memory says nothing") as caught:
        select_snapshot(replace(files_alone(), room=no_room(looks)), config)

    assert MORE_MEMORY == caught.value.hint


def in_a_cluster(directory, scenario):
    async def main():
        async with simulated(directory) as gym:
            await gym.run_in_flight()
            return await scenario(gym)

    return asyncio.run(main())


def test_snapshot_aborts_and_releases(tmp_path) -> None:
    """What could not be checked is not published; the cause and what to do are told."""

    async def scenario(gym):
        async with gym.world() as (world, _):
            with pytest.raises(AttemptAbortedError) as caught:
                await take_snapshot(replace(world, room=no_room()), gym.config, SnapshotRequest())
        return caught.value, gym.snapshots()

    error, snapshots = in_a_cluster(tmp_path, scenario)

    assert [] == snapshots
    assert isinstance(error.cause, NotCheckedError)
    assert UNREAD in error.cause.message
    assert MORE_MEMORY == error.hint


def test_publish_leaves_what_it_cannot_check(tmp_path) -> None:
    """A staged directory stays as it is; with more memory the same command publishes it."""

    async def scenario(gym):
        async with gym.world() as (world, _):
            taken = await take_snapshot(world, gym.config, SnapshotRequest())
        folder = gym.checkpoint_dir / "bootstrap" / "rollout_snapshots"
        staged = folder / "tmp_snapshot_000007"
        (gym.checkpoint_dir / taken.snapshot).rename(staged)
        request = PublishRequest(staged=str(staged))
        async with gym.world() as (world, _):
            with pytest.raises(NotCheckedError) as caught:
                await finish_publish(replace(world, room=no_room()), gym.config, request)
        async with gym.world() as (world, _):
            await finish_publish(world, gym.config, request)
        return caught.value, gym.snapshots()

    error, snapshots = in_a_cluster(tmp_path, scenario)

    assert MORE_MEMORY == error.hint
    assert ["snapshot_000001"] == snapshots


def test_batches_wait_only_where_there_is_room(tmp_path, monkeypatch) -> None:
    """With none left one batch at a time is in memory, and the report is the same."""
    snapshot = a_snapshot(tmp_path)
    wanted = report_of(snapshot, jobs=4)
    waiting, most = [0], [0]
    read, taken = staged_batches._read, staged_batches._taken

    def counting_read(*facts):
        waiting[0] += 1
        most[0] = max(most[0], waiting[0])
        return read(*facts)

    def counting_taken(*facts):
        waiting[0] -= 1
        return taken(*facts)

    monkeypatch.setattr(staged_batches, "_BATCH_ROWS", 2)
    monkeypatch.setattr(staged_batches, "_read", counting_read)
    monkeypatch.setattr(staged_batches, "_taken", counting_taken)
    with_room = report_of(snapshot, jobs=4)
    queued, most[0] = most[0], 0
    monkeypatch.setattr(staged_batches.ColumnReader, "has_room", lambda *_: False)

    assert wanted == with_room == report_of(snapshot, jobs=4)
    assert queued > 4
    assert 1 == most[0]


@pytest.mark.parametrize("looks", range(0, 60, 6))
@pytest.mark.parametrize("level", ["standard", "full"])
def test_wherever_it_stops_nothing_is_called_wrong(tmp_path, looks, level) -> None:
    """Neither damaged nor incompatible: the verdict is that it was not checked, unless all was."""
    root = a_run(tmp_path, step_3=1)
    room = no_room(looks)
    report = validate(LocalStore(), ValidateRequest(paths=(f"{root}/{SNAPSHOT}",), level=level, room=room))

    assert ("incomplete" if room.refusals else "valid") == report.verdict
    assert {"gap"} >= {finding.kind for target in report.targets for finding in target.findings}
