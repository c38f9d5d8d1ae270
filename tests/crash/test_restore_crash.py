"""The process dies in the middle of a restore; the same command again must reach the goal. Or the servers died too."""

from __future__ import annotations

import asyncio
import re
import shutil
from dataclasses import replace

import pytest

from ckptctl.domain.restore import RestoreRequest
from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import AdmissionClosedError, BusyError, JournalDamagedError, NotFreshError
from ckptctl.planning import restore as steps
from ckptctl.planning.snapshot import OPEN, RESUME_AGENTS, RESUME_MODELS, RESUME_RESOURCES
from ckptctl.workflows.find_unfinished import find_unfinished
from ckptctl.workflows.ownership import begin_transaction
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.restore import restore
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.mortal import DeadError, Life, mortal
from tests.fakes.restored_runs import attempt, ids, journal, play_to_the_end, reborn, saved

GONE = {"pid": 2**22 + 1}
"""An owner whose process is not there any more."""
RESTORING = (
    *(steps.RESTORE_CONTROLLER, steps.RESTORE_MODELS, steps.RESTORE_AGENTS, steps.RESTORE_RESOURCES),
    *(steps.CHECK_RESTORED, steps.PLAN_ATTEMPTS, steps.DISCARD, steps.CLEAR_STAGING),
)
RESUMING = (RESUME_RESOURCES, RESUME_MODELS, RESUME_AGENTS, OPEN)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run that died after a snapshot with everything in flight; made once, copied by each test."""
    folder = tmp_path_factory.mktemp("kept")
    asyncio.run(saved(folder))
    return folder


@pytest.fixture
def dead(kept, tmp_path):
    """A copy of that run, to be brought back."""
    return shutil.copytree(kept, tmp_path / "dead")


async def die(gym, life: Life) -> str | None:
    """Restore in a process that dies; the id that it used, if it came so far."""
    async with gym.world(**GONE) as (world, wire):
        try:
            await restore(mortal(world, life), gym.config, RestoreRequest())
        except DeadError:
            assert life.is_over
    return next(iter(ids(wire)), None)


async def again(gym, used: str | None) -> None:
    """The same command once more: it goes on under the same id, everybody works, and every rollout is dispatched once."""
    is_done = used is not None and "finish" == journal(gym)[-1]["event"]
    result, wire = await attempt(gym)
    if is_done:  # it died after it had recorded its end: the run goes on, and is no place for a restore any more
        assert isinstance(result, NotFreshError)
        assert gym.is_released(), gym.phases()
        return
    assert "restored" == result.outcome, result
    assert used in (None, result.checkpoint_id)
    assert {result.checkpoint_id} == ids(wire)
    assert {(0, 1, "continue")} == {
        (item.source_attempt, item.replacement_attempt, item.mode) for item in result.rollouts
    }
    assert gym.is_released(), gym.phases()
    async with gym.world() as (world, _):
        assert "nothing_to_do" == (await finish_publish(world, gym.config, PublishRequest())).outcome


@pytest.mark.parametrize("how", [pytest.param("before_step", marks=pytest.mark.long), "outcome_of"])
def test_killed_at_each_step(dead, how) -> None:
    """Before each step's intent, and after its effect without a record of it."""

    async def scenario():
        for incarnation, step in enumerate((*RESTORING, *RESUMING), 2):
            async with reborn(dead, incarnation=incarnation) as gym:
                gym.cluster.hold_at(3)
                life = Life(**{how: step})
                used = await die(gym, life)
                assert life.is_over, step
                await again(gym, used)

    asyncio.run(scenario())


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_operation(dead, after) -> None:
    """For k = 0, 1, 2 ...: the process ends at its k-th operation, before it is done or with its answer lost."""

    async def scenario():
        count = 0
        while True:
            async with reborn(dead, incarnation=2 + count) as gym:
                gym.cluster.hold_at(3)
                life = Life(dies_at=count, after=after)
                used = await die(gym, life)
                if not life.is_over:
                    assert count > 40
                    return
                await again(gym, used)
            count += 1

    asyncio.run(scenario())


def test_killed_again_and_again_on_the_way(dead) -> None:
    """Each run comes one step further than the one before; the last one finishes. The run ends as it should."""

    async def scenario():
        async with reborn(dead) as gym:
            used = None
            for step in (*RESTORING, *RESUMING):
                life = Life(outcome_of=step)
                used = await die(gym, life) or used
                assert life.is_over
            await again(gym, used)
            await play_to_the_end(gym)

    asyncio.run(scenario())


# --- servers restarted meanwhile ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step", [steps.RESTORE_CONTROLLER, steps.RESTORE_AGENTS, steps.PLAN_ATTEMPTS, RESUME_MODELS, OPEN]
)
def test_all_servers_are_fresh(dead, step) -> None:
    """Wherever it stopped: nothing of the old restore is left, it is closed, and a new one begins under a new id."""

    async def scenario():
        async with reborn(dead) as gym:
            used = await die(gym, Life(outcome_of=step))
        async with reborn(dead, incarnation=3) as gym:
            result, wire = await attempt(gym)
            await play_to_the_end(gym)
            return used, result, wire, journal(gym, -2), journal(gym), gym.notices

    used, result, wire, old, new, notices = asyncio.run(scenario())

    assert ("restored", {result.checkpoint_id}) == (result.outcome, ids(wire))
    assert used not in (None, result.checkpoint_id)
    assert ("finish", "abandoned") == (old[-1]["event"], old[-1]["outcome"])
    assert "restored" == new[-1]["outcome"]
    assert [f"restore `{used}` had been interrupted; every server is another process now, so it is closed"] == notices
    assert tuple(notices) == result.warnings


@pytest.mark.parametrize("server", ["controller", "policy_model", "simple_agent", "counter"])
def test_one_server_was_restarted(dead, server) -> None:
    """A half-restored cluster cannot be mended: exit 24, who it was, who is paused, and what to restart; nothing is sent."""

    async def scenario():
        async with reborn(dead) as gym:
            used = await die(gym, Life(outcome_of=steps.PLAN_ATTEMPTS))
            await gym.restart(server)
            error, wire = await attempt(gym)
            async with gym.world() as (world, other):
                with pytest.raises(AdmissionClosedError) as published:
                    await finish_publish(world, gym.config, PublishRequest())
            return used, error, wire.posts() + other.posts(), published.value

    used, error, posts, published = asyncio.run(scenario())

    assert (AdmissionClosedError, 24, []) == (type(error), error.exit_code, posts)
    assert (
        f"restore `{used}` was interrupted, and `{server}` was restarted since: the cluster is half restored"
        in error.message
    )
    assert f"paused under `{used}`, admission closed: `controller`" in error.message
    assert error.hint.startswith(
        "restart the controller and all Gym servers, told to expect a restore, then run `ckptctl restore`"
    )
    assert error.message == published.message


def test_a_server_that_had_not_been_restored_may_be_restarted(dead) -> None:
    """It lost nothing: the restore goes on."""

    async def scenario():
        async with reborn(dead) as gym:
            used = await die(gym, Life(before_step=steps.RESTORE_RESOURCES))
            await gym.restart("counter")
            await again(gym, used)
            await play_to_the_end(gym)

    asyncio.run(scenario())


def test_a_server_restarted_while_the_others_were_resumed(dead) -> None:
    """One that was resumed may be idle; one that was not, and is, has lost its state: exit 24."""

    async def scenario():
        async with reborn(dead) as gym:
            used = await die(gym, Life(before_step=RESUME_AGENTS))
            await gym.restart("simple_agent")
            error, wire = await attempt(gym)
            return used, error, wire.posts()

    used, error, posts = asyncio.run(scenario())

    assert (24, []) == (error.exit_code, posts)
    assert f"restore `{used}` was interrupted, and `simple_agent` was restarted since" in error.message
    assert error.message.endswith("admission closed: `controller`, `simple_agent`")


def test_a_resumed_server_that_was_restarted_refuses_to_resume(dead) -> None:
    """It expects a restore first, so admission stays closed: exit 24 until all are restarted."""

    async def scenario():
        async with reborn(dead) as gym:
            await die(gym, Life(outcome_of=RESUME_RESOURCES))
            await gym.restart("counter")
            error, wire = await attempt(gym)
        async with reborn(dead, incarnation=9) as gym:
            result, _ = await attempt(gym)
            return error, wire.posts(), result

    error, posts, result = asyncio.run(scenario())

    assert (24, "restored") == (error.exit_code, result.outcome)
    assert "`counter` refused resources-checkpoint/resume" in error.message
    assert "restart all of them first" in error.hint
    assert ("controller", "admission/open") not in posts


def test_everything_was_started_anew_without_a_restore(dead) -> None:
    """Nothing is left of the old restore: it is closed. A restore is refused (20), a snapshot can be taken."""

    async def scenario():
        async with reborn(dead) as gym:
            used = await die(gym, Life(outcome_of=steps.RESTORE_AGENTS))
        async with reborn(dead, incarnation=3, restore_expected=False) as gym:
            await gym.run_in_flight()
            error, _ = await attempt(gym)
            closed = journal(gym)
            async with gym.world() as (world, wire):
                result = await take_snapshot(world, gym.config, SnapshotRequest(force=True))
            return used, error, closed, result, wire

    used, error, closed, result, wire = asyncio.run(scenario())

    assert (NotFreshError, 20) == (type(error), error.exit_code)
    assert "abandoned" == closed[-1]["outcome"]
    assert "published" == result.outcome
    assert used not in ids(wire)


def test_a_restore_that_cannot_go_on_now(dead) -> None:
    """Unreachable servers, a damaged or exchanged snapshot, other servers in the configuration: exit 24, never less."""

    async def scenario():
        found = {}
        async with reborn(dead) as gym:
            used = await die(gym, Life(outcome_of=steps.RESTORE_AGENTS))
            gym.cluster.reachable["counter"].is_up = False
            found["unreachable"] = (await attempt(gym))[0]
            gym.cluster.reachable["counter"].is_up = True
            [path] = gym.checkpoint_dir.glob("bootstrap/rollout_snapshots/snapshot_*")
            whole = (path / "manifest.json").read_bytes()
            (path / "manifest.json").unlink()
            found["damaged"] = (await attempt(gym))[0]
            (path / "manifest.json").write_bytes(whole)
            first = max(gym.checkpoint_dir.glob(".ckptctl/journal/*-restore.jsonl"))
            text = first.read_text()
            first.write_text(text.replace('"resources":["counter"]', '"resources":["other"]'))
            found["configured"] = (await attempt(gym))[0]
            first.write_text(re.sub(r'"manifest_sha256":"[0-9a-f]*"', f'"manifest_sha256":"{"0" * 64}"', text))
            found["exchanged"] = (await attempt(gym))[0]
            first.write_text(text.replace('"manifest_sha256"', '"manifest"'))
            unreadable = (await attempt(gym))[0]
            assert isinstance(unreadable, JournalDamagedError)
            first.write_text(text)
            await again(gym, used)
        return found

    found = asyncio.run(scenario())
    words = {
        "unreachable": "cannot go on: `counter` (https://counter) cannot be reached",
        "exchanged": "is not the one that restore",
        "damaged": "is invalid: ",
        "configured": "the configured servers are not those that it began with",
    }

    assert dict.fromkeys(words, (AdmissionClosedError, 24)) == {
        name: (type(error), error.exit_code) for name, error in found.items()
    }
    assert [] == [name for name, text in words.items() if text not in found[name].message]


def test_a_journal_that_lost_its_plan_while_resuming(dead) -> None:
    """The mapping cannot be made again once somebody was resumed: exit 24, restart everything."""

    async def scenario():
        async with reborn(dead) as gym:
            await die(gym, Life(outcome_of=RESUME_MODELS))
            [path] = gym.checkpoint_dir.glob(".ckptctl/journal/*-restore.jsonl")
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(line for line in lines if '"outcome","number":"5"' not in line))
            return await attempt(gym)

    error, wire = asyncio.run(scenario())

    assert (24, []) == (error.exit_code, wire.posts())
    assert "does not say what becomes of the rollouts" in error.message


@pytest.mark.parametrize(
    ("step", "server", "is_alone_enough"),
    [
        (steps.RESTORE_MODELS, "policy_model", True),
        (steps.RESTORE_RESOURCES, "counter", True),
        (steps.RESTORE_RESOURCES, "policy_model", False),
        (steps.DISCARD, "simple_agent", False),
        (RESUME_MODELS, "counter", False),
    ],
)
def test_a_server_that_died_in_a_restore(dead, step, server, is_alone_enough) -> None:
    """The text says which one, whether it can be replaced alone, and what goes on; what it promises is so."""

    async def scenario():
        async with reborn(dead) as gym:
            gym.cluster.reachable[server].is_up = True
            await die(gym, Life(before_step=step))
            gym.cluster.reachable[server].is_up = False
            refused, _ = await attempt(gym)
            await gym.restart(server, restore_expected=True)
            gym.cluster.reachable[server].is_up = True
            return refused, (await attempt(gym))[0]

    refused, then = asyncio.run(scenario())

    assert (24, True) == (refused.exit_code, f"`{server}` (https://{server}) cannot be reached" in refused.message)
    assert f"`{server}`" not in refused.message.partition("admission closed:")[2]
    assert f"if `{server}` still runs, run `ckptctl restore` again once it answers" in refused.hint
    alone = f"start `{server}` alone again, as a fresh (empty) one"
    assert is_alone_enough == (alone in refused.hint)
    if is_alone_enough:
        assert "restored" == then.outcome, then
    else:
        assert "what was restored into it is gone: restart the controller and all Gym servers" in refused.hint
        assert 24 == then.exit_code


class PassedOver:
    """A lock that somebody else has by now."""

    def is_owner(self) -> bool:
        return False


@pytest.mark.parametrize("is_closed", [True, False])
def test_who_was_passed_over_while_it_looked_around(dead, is_closed) -> None:
    """It closes what it began, or dies before it can; the restore that failed half-way meanwhile goes on (seed 10731)."""

    async def scenario():
        async with reborn(dead) as gym:
            used = await die(gym, Life(before_step=steps.DISCARD))
            async with gym.world(**GONE) as (world, wire):
                other = find_unfinished(world).restore_facts().model_copy(update={"checkpoint_id": "restore-late"})
                if is_closed:
                    with pytest.raises(BusyError, match="was taken over while the restore was being prepared"):
                        begin_transaction(replace(world, lock=PassedOver()), "restore", other, str(gym.checkpoint_dir))
                else:
                    world.journal.begin("restore", other.model_dump(mode="json"))
                assert not ids(wire)
                assert used == find_unfinished(world).restore_facts().checkpoint_id
            result, wire = await attempt(gym)
            return used, result, ids(wire), gym.is_released()

    used, result, named, is_released = asyncio.run(scenario())

    assert ("restored", used, {used}, True) == (result.outcome, result.checkpoint_id, named, is_released)
