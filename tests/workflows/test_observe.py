"""How a checkpoint directory stands: what is pending, how long admission was closed, and what cannot be looked at."""

import pytest

from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import CkptctlError
from ckptctl.workflows.observe import observe_directory
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.restored_runs import born, run
from tests.runs import a_run, offline_world


async def refused_at(gym, world, operation) -> int:
    """A snapshot with rollouts in flight that `counter` refuses at one operation, again and again; the exit status."""
    await gym.run_in_flight(2)
    await gym.fault("counter", kind="refuse", code="resources_checkpoint_error", operation=operation, times=0)
    with pytest.raises(CkptctlError) as refused:
        await take_snapshot(world, gym.config, SnapshotRequest())
    return refused.value.exit_code


def test_a_pending_release_is_told_until_it_is_done(tmp_path) -> None:
    """Published, but a server refuses to resume: pending, with the command that ends it; afterwards the window is known."""

    async def scenario():
        async with born(tmp_path) as gym:
            async with gym.world() as (world, _):
                status = await refused_at(gym, world, "resources-checkpoint/resume")
                held = observe_directory(world, str(gym.checkpoint_dir), {})
                gym.clear_faults()
                await finish_publish(world, gym.config, PublishRequest())
                done = observe_directory(world, str(gym.checkpoint_dir), {})
            await gym.finish_run()
            return status, held, done

    status, held, done = run(scenario)

    assert (23, True, True) == (status, held.is_release_pending, held.may_be_closed)
    assert ("000001-snapshot", "ckptctl publish") == (held.unfinished, held.finished_by)
    assert (None, False, False) == (done.unfinished, done.is_release_pending, done.may_be_closed)
    assert done.admission_closed_s > 0
    assert ("valid", "quick") == (done.newest().verdict, done.newest("valid").level)


def test_an_attempt_that_was_undone_leaves_its_window(tmp_path) -> None:
    """Aborted and released: nothing is pending, and how long it kept admission closed is told."""

    async def scenario():
        async with born(tmp_path) as gym:
            async with gym.world() as (world, _):
                status = await refused_at(gym, world, "resources-checkpoint/commit")
                found = observe_directory(world, str(gym.checkpoint_dir), {})
            gym.clear_faults()
            await gym.finish_run()
            return status, found

    status, found = run(scenario)

    assert (22, None, False) == (status, found.unfinished, found.may_be_closed)
    assert found.admission_closed_s > 0
    assert found.newest() is None


def test_a_live_coordinator_is_no_interrupted_one(tmp_path) -> None:
    """While the lock is held whatever is unfinished is being done right now."""
    root = a_run(tmp_path / "run", step_3=1)
    world = offline_world(root)
    world.journal.begin("snapshot", {"schema_version": 1})
    world.lock.acquire()
    found = observe_directory(offline_world(root), str(root), {})

    assert (True, None, False) == (found.is_locked, found.unfinished, found.may_be_closed)


def test_what_cannot_be_looked_at_is_an_obstacle(tmp_path) -> None:
    """No directory, and a journal of which nobody can tell whether its transaction has ended."""
    gone = observe_directory(offline_world(tmp_path / "gone"), str(tmp_path / "gone"), {})
    root = a_run(tmp_path / "run", step_3=1)
    (root / ".ckptctl/journal").mkdir(parents=True)
    (root / ".ckptctl/journal/000001-snapshot.jsonl").write_text("rubbish\n")
    damaged = observe_directory(offline_world(root), str(root), {})

    assert (None, None) == (gone.snapshots, gone.is_release_pending)
    assert "is no directory" in gone.obstacle
    assert "is no journal record" in damaged.obstacle
    assert (1, None, None) == (len(damaged.snapshots), damaged.is_release_pending, damaged.may_be_closed)
