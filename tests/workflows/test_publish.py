"""`publish` beyond finishing one's own: staged directories that no journal knows, ids that a dead coordinator left, restarted servers."""

from __future__ import annotations

import asyncio
import os
import shutil

from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import (
    AdmissionClosedError,
    InvalidSnapshotError,
    LockHeldError,
    NothingThereError,
    RefusedError,
    UsageError,
)
from ckptctl.sim.resources import create_resources_app
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.snapshot import take_snapshot
from tests.crash.test_snapshot_crash import die
from tests.fakes.mortal import Life
from tests.fakes.simulated_gym import simulated
from tests.unit.sim.inprocess import TOKEN


async def publish(gym, **request):
    """One `publish` in a world of its own: result or error."""
    async with gym.world() as (world, wire):
        try:
            return await finish_publish(world, gym.config, PublishRequest(**request)), wire
        except Exception as error:
            return error, wire


def run(directory, scenario):
    async def main():
        async with simulated(directory) as gym:
            await gym.run_in_flight()
            return await scenario(gym)

    return asyncio.run(main())


def test_a_staged_directory_that_no_journal_knows(tmp_path) -> None:
    """It is validated and becomes the next snapshot; nobody is asked or released; a damaged one stays where it is."""

    async def scenario(gym):
        async with gym.world() as (world, _):
            taken = await take_snapshot(world, gym.config, SnapshotRequest())
        folder = gym.checkpoint_dir / "bootstrap" / "rollout_snapshots"
        staged = folder / "tmp_snapshot_000007"
        shutil.move(taken.snapshot, staged)
        good, wire = await publish(gym, staged=str(staged))
        shutil.move(folder / "snapshot_000001", staged)
        (staged / "rollout_recovery.pt").write_bytes(b"damaged")
        bad, _ = await publish(gym, staged=str(staged))
        left, _ = await publish(gym)
        return good, wire.sent, bad, left, gym.snapshots()

    good, sent, bad, left, names = run(tmp_path, scenario)

    assert ("published", []) == (good.outcome, sent)
    assert good.snapshot.endswith("/bootstrap/rollout_snapshots/snapshot_000001")
    assert isinstance(bad, InvalidSnapshotError), bad
    assert ("nothing_to_do", ["tmp_snapshot_000007"]) == (left.outcome, names)


def test_a_copy_of_a_published_snapshot_is_no_new_one(tmp_path) -> None:
    """It would become the newest under an id that is published already, and a restore would choose old state."""

    async def scenario(gym):
        async with gym.world() as (world, _):
            taken = await take_snapshot(world, gym.config, SnapshotRequest())
        folder = gym.checkpoint_dir / "bootstrap" / "rollout_snapshots"
        shutil.copytree(taken.snapshot, folder / "tmp_snapshot_000007")
        error, _ = await publish(gym, staged=str(folder / "tmp_snapshot_000007"))
        return error, gym.snapshots()

    error, names = run(tmp_path, scenario)

    assert isinstance(error, RefusedError), error
    assert "is also used by" in error.message
    assert ["snapshot_000001", "tmp_snapshot_000007"] == names


def test_nothing_to_finish_but_somebody_is_held(tmp_path) -> None:
    """Without a journal `publish` cannot know whose id it is: it says who is held and how to free them, exit 21."""

    async def scenario(gym):
        await gym.cluster.ok("counter", "resources-checkpoint/prepare", "foreign-1")
        error, _ = await publish(gym)
        return error

    error = run(tmp_path, scenario)

    assert 21 == error.exit_code, error
    assert "--release" in error.hint


def test_what_is_no_staged_directory(tmp_path) -> None:
    """Another name, another place, nothing there."""

    async def scenario(gym):
        folder = gym.checkpoint_dir / "bootstrap" / "rollout_snapshots"
        paths = (
            f"{folder}/snapshot_000001",
            "/elsewhere/bootstrap/rollout_snapshots/tmp_snapshot_1",
            f"{folder}/tmp_snapshot_9",
        )
        return [(await publish(gym, staged=path))[0] for path in paths]

    assert [UsageError, UsageError, NothingThereError] == [type(error) for error in run(tmp_path, scenario)]


def test_the_staged_directory_of_an_interrupted_run(tmp_path) -> None:
    """Named or not, it is finished under its own id."""

    async def scenario(gym):
        await die(gym, Life(outcome_of="sync"))
        staged = gym.checkpoint_dir / "bootstrap" / "rollout_snapshots" / "tmp_snapshot_000001"
        result, wire = await publish(gym, staged=str(staged))
        assert gym.is_released()
        return result, {item.body["checkpoint_id"] for item in wire.sent if "checkpoint_id" in item.body}

    result, ids = run(tmp_path, scenario)

    assert ("published", {result.checkpoint_id}) == (result.outcome, ids)


def test_freeing_what_a_dead_coordinator_holds(tmp_path) -> None:
    """Everybody who shows the id is resumed in order, and admission opened; who is held by nobody is left alone; the reason is kept."""

    async def scenario(gym):
        await gym.cluster.ok("policy_model", "model-admission/pause", "foreign-1")
        await gym.cluster.ok("counter", "resources-checkpoint/prepare", "foreign-1")
        nobody, _ = await publish(gym, release_id="foreign-2", reason="typing error")
        no_reason, _ = await publish(gym, release_id="foreign-1", reason=" ")
        result, wire = await publish(gym, release_id="foreign-1", reason="node lost")
        assert gym.is_released(), gym.phases()
        journal = "".join(path.read_text() for path in (gym.checkpoint_dir / ".ckptctl" / "journal").iterdir())
        return nobody, no_reason, result, wire.posts(), journal

    nobody, no_reason, result, posts, journal = run(tmp_path, scenario)

    assert (NothingThereError, UsageError) == (type(nobody), type(no_reason))
    assert ("released", "node lost") == (result.outcome, result.reason)
    assert [
        ("counter", "resources-checkpoint/resume"),
        ("policy_model", "model-admission/resume"),
        ("simple_agent", "agent-checkpoint/resume"),
    ] == posts
    assert '"reason":"node lost"' in journal


def test_an_own_transaction_is_not_released_as_a_foreign_one(tmp_path) -> None:
    """With an unfinished transaction of our own another id is refused; its own id finishes it."""

    async def scenario(gym):
        await die(gym, Life(outcome_of="prepare-agents"))
        refused, _ = await publish(gym, release_id="foreign-1", reason="x")
        _, own = gym.phases()["policy_model"]
        result, _ = await publish(gym, release_id=own, reason="x")
        assert gym.is_released()
        return refused, result, own

    refused, result, own = run(tmp_path, scenario)

    assert isinstance(refused, RefusedError)
    assert ("aborted", own) == (result.outcome, result.checkpoint_id)


def test_a_server_that_was_restarted_meanwhile_is_not_waited_for(tmp_path) -> None:
    """After a crash of everything the fresh processes hold nothing: even one that waits for a restore does not block the recovery."""

    async def scenario(gym):
        await die(gym, Life(outcome_of="prepare-resources"))
        settings = gym.cluster.counter.settings.model_copy(update={"restore_expected": True, "incarnation": 2})
        gym.cluster.counter.service.audit.close()
        gym.cluster.resources["counter"] = gym.cluster.mount("counter", create_resources_app(settings, TOKEN))
        result, _ = await publish(gym)
        return result, gym.notices

    result, notices = run(tmp_path, scenario)

    assert "aborted" == result.outcome
    assert "`counter` is another process than the one that was paused: nothing to release there" in notices


def test_a_server_that_is_down_keeps_the_transaction_unfinished(tmp_path) -> None:
    """Nobody knows whether it is paused: exit 24 until it answers."""

    async def scenario(gym):
        await die(gym, Life(outcome_of="pause-models"))
        gym.cluster.reachable["policy_model"].is_up = False
        down, _ = await publish(gym)
        gym.cluster.reachable["policy_model"].is_up = True
        up, _ = await publish(gym)
        assert gym.is_released()
        return down, up

    down, up = run(tmp_path, scenario)

    assert isinstance(down, AdmissionClosedError)
    assert ("`policy_model`" in down.message, "aborted") == (True, up.outcome)


def test_an_unfinished_transaction_of_another_host_needs_the_flag(tmp_path) -> None:
    """Its lock may belong to a living process; with `--break-lock` and an ended lease the transaction is taken over."""

    async def scenario(gym):
        async with gym.world(host="elsewhere") as (world, _):
            world.lock.acquire()
            held, _ = await publish(gym)
            world.lock._stop.set()
            world.lock._renewal.join()
        lock = gym.checkpoint_dir / ".ckptctl" / "lock"
        os.utime(lock, (1, 1))
        still, _ = await publish(gym)
        taken, _ = await publish(gym, break_lock=True)
        return held, still, taken

    held, still, taken = run(tmp_path, scenario)

    assert (LockHeldError, LockHeldError, "nothing_to_do") == (type(held), type(still), taken.outcome)
    assert ("once its lease has ended" in held.hint, "its lease has ended: if" in still.hint) == (True, True)


def test_a_journal_that_cannot_be_read_is_not_passed_over(tmp_path) -> None:
    """What it hides may be a release that is owed: exit 24, with the name of the file."""

    async def scenario(gym):
        async with gym.world() as (world, _):
            world.journal.begin("snapshot", {"schema_version": 1})
        error, _ = await publish(gym)
        return error

    error = run(tmp_path, scenario)

    assert isinstance(error, AdmissionClosedError)
    assert "000001-snapshot.jsonl`" in error.message
