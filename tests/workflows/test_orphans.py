"""Leaked sessions: retired before commit, or the attempt is given up because somebody may still use them; uncertain ones in words."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from ckptctl.domain.transaction import SnapshotRequest
from ckptctl.errors import InvalidPhaseError
from ckptctl.render.transaction_text import transaction_text
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes import restored_runs
from tests.fakes.mortal import DeadError, Life, mortal
from tests.fakes.restored_runs import answering, born, journal, make_dependent, play_to_the_end, reborn, run, saved
from tests.runs import judge_snapshot
from tests.unit.sim.inprocess import HoldingStore, until

RETIRE = ("counter", "resources-checkpoint/retire")
COMMIT = ("counter", "resources-checkpoint/commit")


async def attempt(gym, request=SnapshotRequest(force=True), **ports):
    """One snapshot in a world of its own: (result or error, wire)."""
    async with gym.world() as (world, wire):
        world = replace(world, **{name: before(getattr(world, name)) for name, before in ports.items()})
        try:
            return await take_snapshot(world, gym.config, request), wire
        except Exception as error:
            return error, wire


def retired(result):
    return [(item.server_name, item.rollout_id, item.attempt_index) for item in result.retired_sessions]


def sessions_of(path: str) -> set[str]:
    return {item.name for item in Path(path, "resources", "counter").glob("*.a*.json")}


def verdict(gym, path: str) -> str:
    from ckptctl.adapters.local_store import LocalStore

    return judge_snapshot(LocalStore(), path, "full", under_final_name=False).verdict


def test_an_orphan_is_retired_before_commit_and_the_snapshot_is_whole(tmp_path) -> None:
    """One call to the server that holds it, while everybody is prepared; it is in no snapshot, and never comes back."""

    async def scenario():
        async with born(tmp_path) as gym:
            await gym.run_in_flight()
            await gym.fault("counter", kind="orphan_session", rollout_id="lost_g0")
            first, wire = await attempt(gym)
            lines = journal(gym)
            second, _ = await attempt(gym)
            return gym, first, wire.posts(), lines, second, verdict(gym, first.snapshot)

    gym, first, posts, lines, second, found = run(scenario)

    assert [("counter", "lost_g0", 0)] == retired(first)
    assert posts.index(("counter", "resources-checkpoint/prepare")) < posts.index(RETIRE)
    assert posts.index(RETIRE) < posts.index(("simple_agent", "agent-checkpoint/commit"))
    [outcome] = [line for line in lines if line.get("step") == "retire-orphans" and line["event"] == "outcome"]
    assert [{"server_name": "counter", "rollout_id": "lost_g0", "attempt_index": 0}] == outcome["retired"]
    assert "retired 1 leaked session, which no attempt was using:" in transaction_text(first)
    assert "counter: lost_g0 attempt 0" in transaction_text(first)
    assert 4 == len(sessions_of(first.snapshot))
    assert not {name for name in sessions_of(first.snapshot) if name.startswith("lost")}
    assert ([], "valid") == (retired(second), found)


def test_a_rollout_whose_verify_failed_leaks_its_session_and_the_next_snapshot_retires_it(tmp_path) -> None:
    """The failed attempt is over for agent and controller, its session is not; after the snapshot a restore takes place as ever."""

    async def scenario():
        async with born(tmp_path) as gym:
            await gym.fault("counter", operation="verify", kind="status", status=500)
            gym.controller.loop.set_goal(1)
            store = gym.cluster.agent.service.store
            await until(lambda: any(pair.attempt_index == 1 for pair in store.executions))
            gym.cluster.hold_at(2)
            await until(lambda: store.parked() and not store.is_busy)
            result, _ = await attempt(gym)
            await asyncio.sleep(0)
        async with reborn(tmp_path) as gym:
            restored, _ = await restored_runs.attempt(gym)
            await play_to_the_end(gym)
        return result, restored

    result, restored = run(scenario)
    [(server, rollout, number)] = retired(result)

    assert ("counter", 0) == (server, number)
    assert "restored" == restored.outcome
    assert not restored.unclaimed_sessions
    assert (rollout, 2) in {(item.rollout_id, item.replacement_attempt) for item in restored.rollouts}


def test_many_orphans_are_retired_side_by_side(tmp_path) -> None:
    """Each once; a lost reply is asked for again and changes nothing."""

    async def scenario():
        async with born(tmp_path) as gym:
            await gym.run_in_flight()
            for number in range(40):
                await gym.fault("counter", kind="orphan_session", rollout_id=f"lost-{number:02d}_g0")
            await gym.fault("counter", operation="resources-checkpoint/retire", kind="drop")
            result, wire = await attempt(gym)
            return result, wire.posts().count(RETIRE)

    result, calls = run(scenario)

    assert (40, 41) == (len(result.retired_sessions), calls)
    assert "and 35 more" in transaction_text(result)
    assert "lost-39_g0" in transaction_text(result, verbose=1)


@pytest.mark.parametrize("shows_ledger", [True, False])
def test_a_session_of_an_attempt_at_work_is_not_retired(tmp_path, shows_ledger) -> None:
    """Retiring would fence an attempt that is alive: given up, released, told whose it is; later it is claimed, and all is well."""

    class Forgetful(HoldingStore):
        """Its first boundaries do not name the server yet."""

        __slots__ = ()

        async def reach_boundary(self, execution, boundary):
            if boundary.boundary_index < 2:
                boundary = boundary.model_copy(update={"resource_state_revisions": {}})
            await super().reach_boundary(execution, boundary)

    async def scenario():
        async with born(tmp_path, prompts=1, generations=1) as gym:
            gym.cluster.hold_at(1)
            store = gym.cluster.agent.service.store
            store.__class__ = Forgetful
            gym.controller.loop.set_goal(1)
            await until(lambda: store.parked())
            gym.cluster.hold_at(3)
            store.__class__ = Forgetful
            hidden = {} if shows_ledger else {"controller": answering(ledger=_refuse)}
            error, wire = await attempt(gym, **hidden)
            released = gym.is_released()
            await until(lambda: store.parked())
            again, _ = await attempt(gym)
            return gym, error, wire.posts(), released, again

    def _refuse(_):
        raise InvalidPhaseError(
            server="controller", operation="ledger", status=409, server_code="invalid_phase", detail="closed"
        )

    gym, error, posts, released, again = run(scenario)

    assert (22, True) == (error.exit_code, released)
    assert "attempt 0, which is at work and does not name it" in str(error.cause)
    assert "would fence an attempt that is alive" in error.hint
    assert RETIRE not in posts
    assert COMMIT not in posts
    assert "published" == again.outcome
    told = [text for text in gym.notices if "does not show its ledger" in text]
    assert (0 if shows_ledger else 1) == len(told)


def test_a_session_that_waits_for_its_continuation_to_be_sent_is_not_retired(tmp_path) -> None:
    """Right after a restore not everything may be at the agents yet: those sessions are not leaked."""

    async def scenario():
        await saved(tmp_path)
        async with reborn(tmp_path, max_in_flight=1) as gym:
            gym.cluster.hold_at(3)
            await restored_runs.attempt(gym)
            store = gym.cluster.agent.service.store
            await until(lambda: store.parked())
            error, wire = await attempt(gym)
            gym.cluster.hold_at(-1)
            await play_to_the_end(gym)
            return error, wire.posts()

    error, posts = run(scenario)

    assert 22 == error.exit_code
    assert "attempt 1, which is not sent yet" in str(error.cause)
    assert "and 1 more" not in str(error.cause)
    assert RETIRE not in posts


def test_restored_sessions_that_nothing_claims_are_claimed_or_retired_later(tmp_path) -> None:
    """Rollouts that restart seed over the session that came back: it is theirs again, and the next snapshot retires nothing."""

    async def scenario():
        judge = {"restart_only": ("genrm",)}
        async with born(tmp_path, **judge) as gym:
            gym.cluster.hold_at(2)
            make_dependent(gym, "genrm", lambda rollout: rollout.endswith("_g0"))
            gym.controller.loop.set_goal(2)
            await until(lambda: len(gym.cluster.agent.service.store.parked()) == 4)
            await attempt(gym)
        async with reborn(tmp_path, **judge) as gym:
            gym.cluster.hold_at(1)
            restored, _ = await restored_runs.attempt(gym)
            store = gym.cluster.agent.service.store
            await until(lambda: len(store.parked()) == 4 or not store.is_busy)
            result, _ = await attempt(gym)
            return restored, result

    restored, result = run(scenario)

    assert 2 == len(restored.unclaimed_sessions)
    assert ("published", []) == (result.outcome, retired(result))


def test_an_uncertain_session_is_diagnosed_in_words(tmp_path) -> None:
    """Which session, why no snapshot is possible, and what helps; everybody is released."""

    async def scenario():
        async with born(tmp_path) as gym:
            await gym.run_in_flight()
            await gym.fault("counter", kind="uncertain_session")
            error, _ = await attempt(gym)
            return error, gym.is_released()

    error, released = run(scenario)

    assert (22, True) == (error.exit_code, released)
    assert "1 uncertain session" in str(error.cause)
    assert "nobody knows whether it took effect" in error.hint
    assert "ckptctl restore" in error.hint


@pytest.mark.parametrize("point", ["before_step", "outcome_of"])
def test_a_coordinator_that_dies_while_it_retires(tmp_path, point) -> None:
    """The next command ends the attempt under its id, and the one after it finds whatever is left of the orphan."""

    async def scenario():
        async with born(tmp_path) as gym:
            await gym.run_in_flight()
            await gym.fault("counter", kind="orphan_session", rollout_id="lost_g0")
            async with gym.world(pid=2**22 + 1) as (world, _):
                dying = mortal(world, Life(**{point: "retire-orphans"}))
                with pytest.raises(DeadError):
                    await take_snapshot(dying, gym.config, SnapshotRequest(force=True))
            result, _ = await attempt(gym)
            return result, verdict(gym, result.snapshot), gym.is_released()

    result, found, released = run(scenario)

    assert ("published", "valid", True) == (result.outcome, found, released)
    assert "lost_g0" not in " ".join(sessions_of(result.snapshot))
    assert [("counter", "lost_g0", 0)][: point == "before_step"] == retired(result)


SESSIONS = SnapshotRequest(force=True, sessions_only=True)


def test_sessions_alone(tmp_path) -> None:
    """`gc --sessions`: prepare, retire, resume; nothing is committed, nothing published, rollouts go on."""

    async def scenario():
        async with born(tmp_path) as gym:
            await gym.run_in_flight()
            await gym.fault("counter", kind="orphan_session", rollout_id="lost_g0")
            result, wire = await attempt(gym, SESSIONS)
            quiet, _ = await attempt(gym, SESSIONS)
            released, lines = gym.is_released(), journal(gym)
            await play_to_the_end(gym)
            return result, quiet, wire.posts(), gym.snapshots(), released, lines

    result, quiet, posts, snapshots, released, lines = run(scenario)

    assert ("retired", [("counter", "lost_g0", 0)]) == (result.outcome, retired(result))
    assert ("nothing_to_do", [], "no session is leaked") == (quiet.outcome, retired(quiet), quiet.reason)
    assert ([], True) == (snapshots, released)
    assert not [route for _, route in posts if route.endswith("commit") or route == "save"]
    assert ("finish", "aborted") == (lines[-1]["event"], lines[-1]["outcome"])
    assert "leaked sessions are gone" in transaction_text(result)


def test_sessions_alone_keeps_what_is_in_use_and_releases_whatever_happens(tmp_path) -> None:
    """A waiting continuation's session stays and is told; a server that refuses ends the attempt, which is undone."""

    async def scenario():
        await saved(tmp_path)
        async with reborn(tmp_path, max_in_flight=1) as gym:
            gym.cluster.hold_at(3)
            await restored_runs.attempt(gym)
            await until(lambda: gym.cluster.parked())
            kept, _ = await attempt(gym, SESSIONS)
            await gym.fault("counter", kind="orphan_session", rollout_id="lost_g0")
            await gym.fault("counter", operation="resources-checkpoint/retire", kind="refuse", code="stale_checkpoint")
            refused, _ = await attempt(gym, SESSIONS)
            await gym.fault("counter", operation="resources-checkpoint/resume", kind="refuse", code="x", times=9)
            closed, _ = await attempt(gym, SESSIONS)
            return kept, refused, closed

    kept, refused, closed = run(scenario)

    assert "nothing_to_do" == kept.outcome
    assert ["kept, because their attempts are alive: `counter` holds"] == [item[:55] for item in kept.warnings]
    assert (22, 24) == (refused.exit_code, closed.exit_code)


def test_a_retirement_that_did_something_else(tmp_path) -> None:
    """A reply about another execution ends the attempt."""

    async def scenario():
        async with born(tmp_path) as gym:
            await gym.run_in_flight()
            await gym.fault("counter", kind="orphan_session", rollout_id="lost_g0")
            return (await attempt(gym, participants=answering(resources_retire={"rollout_id": "other"})))[0]

    error = run(scenario)

    assert 22 == error.exit_code
    assert "it did something else" in str(error.cause)
