"""The embedded controller with its rows in a queue outside: runs, saves, restores and refuses as on its own plane."""

import asyncio
import time

import pytest

from ckptctl.controller.live_tq import LiveTransferQueue
from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.controller import ClearBody
from ckptctl.sim.live_data_plane import LiveDataPlane
from tests.fakes.queue_package import FakeQueue
from tests.unit.sim.stand_in import StandInAgent, a_controller, until
from tests.unit.sim.test_controller import close, common, half_finished, open_with, publish, restore, save


@pytest.fixture
def queue():
    """The queue outlives a controller; a test that wants a fresh one makes it."""
    return FakeQueue()


def attached(queue):
    return LiveDataPlane(LiveTransferQueue.attach_to(queue, None, timeout_s=10))


async def saved(tmp_path, agent, queue):
    """A run with one group in flight, and its snapshot."""
    async with a_controller(tmp_path, agent, plane=attached(queue)) as controller:
        await half_finished(controller, agent)
        await close(controller)
        return await save(controller, tmp_path / "snapshot")


def test_a_run_plays_on_a_queue_outside(tmp_path, queue):
    """Rows are staged, sealed, finalized and cleared there; the status says what holds them."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent, plane=attached(queue)) as controller:
            controller.loop.set_goal(4)
            await until(lambda: controller.state.finished_count() == 4 and not controller.state.ledger.outbox())
            return await controller.facts(), controller.problems(), controller.state.replay.sample_ids()

    facts, problems, samples = asyncio.run(scenario())

    assert ("transferqueue", 2) == (facts.data_plane, facts.storage_units)
    assert [] == problems
    assert (samples, frozenset()) == (queue.plane.keys("rollout_data"), queue.plane.keys("rollout_staging"))


def test_a_snapshot_is_the_queues_own_and_fills_a_fresh_one(tmp_path, queue):
    """Every file of the reply is there; another controller and another queue go on from them."""

    async def scenario():
        agent = StandInAgent()
        reply = await saved(tmp_path, agent, queue)
        fresh = FakeQueue()
        async with a_controller(tmp_path, agent, plane=attached(fresh), restore_expected=True) as controller:
            await restore(controller, tmp_path / "snapshot", publish(reply, tmp_path / "snapshot"))
            return reply, fresh, controller.state.plane.keys("rollout_staging")

    reply, fresh, _ = asyncio.run(scenario())

    root = tmp_path / "snapshot"
    assert {item.relative_path: item.bytes for item in reply.files} == {
        str(path.relative_to(root)): path.stat().st_size
        for path in root.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }
    assert 5 == sum(item.relative_path.startswith("data_plane/") for item in reply.files)
    assert reply.staging_rows == len(queue.plane.keys("rollout_staging")) == 4
    assert ["save", "load"] == [name for name in queue.asked + fresh.asked if name in ("save", "load")]


def test_saving_again_replaces_an_earlier_try(tmp_path, queue):
    """What a first attempt left in the directory is not in the way of the second."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent, plane=attached(queue)) as controller:
            await half_finished(controller, agent)
            await close(controller)
            await save(controller, tmp_path / "snapshot")
            return await save(controller, tmp_path / "snapshot")

    reply = asyncio.run(scenario())

    assert 9 == len(reply.files) == sum(path.is_file() for path in (tmp_path / "snapshot").rglob("*"))


def test_a_queue_that_fails_to_save_leaves_the_directory_empty(tmp_path, queue):
    """The refusal has the queue's words; admission may be opened again, and the next save succeeds."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent, plane=attached(queue)) as controller:
            await half_finished(controller, agent)
            await close(controller)
            queue.failures["save"] = RuntimeError("disk is full")
            with pytest.raises(RefusalError, match=r"storage_error: .*disk is full"):
                await save(controller, tmp_path / "snapshot")
            left = list((tmp_path / "snapshot").iterdir())
            queue.failures.clear()
            await save(controller, tmp_path / "snapshot")
            return left

    assert [] == asyncio.run(scenario())


def test_a_save_that_is_given_up_is_undone(tmp_path, queue):
    """At the deadline the queue's answer is still waited for, and then nothing of it stays."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent, plane=attached(queue)) as controller:
            await half_finished(controller, agent)
            await close(controller)
            queue.silent_at = "save"
            saving = asyncio.create_task(save(controller, tmp_path / "snapshot"))
            await until(lambda: queue.asked[-1] == "save")
            saving.cancel()
            await asyncio.sleep(0)
            queue.goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await saving
            return list((tmp_path / "snapshot").iterdir())

    assert [] == asyncio.run(scenario())


def test_a_queue_that_fails_to_load_is_a_failed_restore(tmp_path, queue):
    """The part is named; the same restore once more succeeds."""

    async def scenario():
        agent = StandInAgent()
        reply = await saved(tmp_path, agent, queue)
        digest, fresh = publish(reply, tmp_path / "snapshot"), FakeQueue()
        async with a_controller(tmp_path, agent, plane=attached(fresh), restore_expected=True) as controller:
            fresh.failures["load"] = RuntimeError("a unit is gone")
            with pytest.raises(RefusalError, match=r"restore_failed: data plane: .*a unit is gone"):
                await restore(controller, tmp_path / "snapshot", digest)
            fresh.failures.clear()
            return await restore(controller, tmp_path / "snapshot", digest), fresh

    restored, fresh = asyncio.run(scenario())

    assert restored.staging_rows == len(fresh.plane.keys("rollout_staging"))


def test_a_queue_that_is_gone_refuses_what_needs_it(tmp_path, queue):
    """Clearing rows says so with a code of the interface; the controller still answers."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent, plane=attached(queue)) as controller:
            await half_finished(controller, agent)
            await close(controller)
            queue.failures["list"] = RuntimeError("no route to host")
            with pytest.raises(RefusalError, match=r"storage_error: .*no route to host"):
                await controller.clear_staging(ClearBody(**common(keys=["a"])))
            queue.failures.clear()
            await open_with(controller, "aborted")
            return await controller.facts()

    assert "transferqueue" == asyncio.run(scenario()).data_plane


def test_the_patience_with_a_save_ends_at_its_deadline(tmp_path, queue):
    """A deadline that is near bounds the wait for a silent queue."""

    async def scenario():
        agent = StandInAgent()
        async with a_controller(tmp_path, agent, plane=attached(queue)) as controller:
            queue.silent_at = "save"
            async with controller.state.plane.cut():
                with pytest.raises(Exception, match="nothing was heard for 1 s"):
                    await controller.state.plane.checkpoint(str(tmp_path / "snapshot"), dict, time.time())
            queue.goes_on.set()

    asyncio.run(scenario())
