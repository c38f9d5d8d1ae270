"""`inspect --live`: every server as it is, every reason why a snapshot would be refused, and the status to end with."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import replace

from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.render.inspect_live_text import live_text
from ckptctl.workflows.inspect_live import inspect_live
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.mortal import DeadError, Life, mortal
from tests.fakes.simulated_gym import simulated
from tests.runs import GONE


def run(directory, scenario, **options):
    """Run a scenario in a fresh cluster with rollouts in flight."""

    async def main():
        async with simulated(directory, **options) as gym:
            await gym.run_in_flight()
            return await scenario(gym)

    return asyncio.run(main())


async def look(gym, config=None):
    """What a process of its own sees, and the routes that it asked."""
    async with gym.world() as (world, wire):
        return await inspect_live(world, config or gym.config), wire


def with_sections(config, **changes):
    return replace(config, sections=config.sections.model_copy(update=changes))


def test_all_is_well(tmp_path) -> None:
    """Everybody is shown, nothing is refused, nothing but questions was sent, and nobody was asked for a checkpoint's status."""

    async def scenario(gym):
        return await look(gym)

    result, wire = run(tmp_path, scenario)

    assert (True, 0, ()) == (result.would_snapshot, result.exit_code, result.problems)
    assert {"GET"} == {item.method for item in wire.sent}
    assert {"capabilities", "status"} == {item.route for item in wire.sent}
    assert {
        "counter": ("resources_servers", "export_restore", "idle"),
        "policy_model": ("responses_api_models", "export_restore", "idle"),
        "simple_agent": ("responses_api_agents", "export_restore", "idle"),
    } == {item.server_name: (item.component, item.checkpoint_mode, item.phase) for item in result.servers}
    assert ("idle", "open", "bootstrap", 4) == (
        result.controller.phase,
        result.controller.admission,
        result.controller.anchor,
        result.controller.unfinished_rollouts,
    )
    assert 64 == len(result.topology_fingerprint)


def test_everything_that_is_wrong_is_listed_at_once(tmp_path) -> None:
    """Configuration, a server that is not there, one that refuses, a controller in another directory: all of it, and the worst counts."""

    async def scenario(gym):
        await gym.fault("policy_model", kind="status", status=500, operation="capabilities", times=0)
        gym.cluster.reachable["counter"].is_up = False
        section = gym.config.sections.token_capture.model_copy(update={"enabled": False})
        config = replace(with_sections(gym.config, token_capture=section), checkpoint_dir=str(tmp_path / "other"))
        return await look(gym, config)

    result, _ = run(tmp_path, scenario)
    found = {(item.about, item.code): item.exit_code for item in result.problems}

    assert {
        ("token_capture.enabled", "config-invalid"): 20,
        ("counter", "unreachable"): 30,
        ("policy_model", "server-refused"): 31,
        ("controller", "refused"): 20,
        ("anchor", "anchor-refused"): 20,
    } == found
    assert (False, 31) == (result.would_snapshot, result.exit_code)
    assert [False, False, True] == [item.is_answering for item in result.servers]
    assert result.topology_fingerprint is None


def test_a_controller_that_does_not_answer(tmp_path) -> None:
    """The servers are shown all the same."""

    async def scenario(gym):
        await gym.fault("controller", kind="rubbish", operation="status", times=0)
        return await look(gym)

    result, _ = run(tmp_path, scenario)

    assert result.controller is None
    assert [("controller", "malformed-reply", 31)] == [
        (item.about, item.code, item.exit_code) for item in result.problems
    ]
    assert 3 == len(result.servers)


def test_held_by_a_snapshot_that_was_interrupted(tmp_path) -> None:
    """The servers that our own transaction holds are told with what finishes it, not as somebody else's; afterwards all is well."""

    async def scenario(gym):
        life = Life(before_step="commit-models")
        async with gym.world(**GONE) as (world, _):
            try:
                await take_snapshot(mortal(world, life), gym.config, SnapshotRequest(force=True))
            except DeadError:
                assert life.is_over
        held = await look(gym)
        async with gym.world() as (world, _):
            await finish_publish(world, gym.config, PublishRequest())
        return held, await look(gym)

    (result, wire), (after, _) = run(tmp_path, scenario)
    [problem] = result.problems
    servers = {item.server_name: item for item in result.servers}

    assert ("transaction", "unfinished-transaction", 21) == (problem.about, problem.code, problem.exit_code)
    assert "`ckptctl publish` finishes it, and so does the next snapshot" == problem.hint
    assert all(name in problem.message for name in ("counter", "policy_model", "simple_agent", "controller"))
    assert ("prepared", "paused", 0) == (
        servers["policy_model"].phase,
        servers["policy_model"].admission,
        servers["policy_model"].calls_in_flight,
    )
    assert ("committed_paused", 0, 4) == (
        servers["simple_agent"].phase,
        servers["simple_agent"].running,
        servers["simple_agent"].parked,
    )
    assert result.lock.is_dead
    assert {"GET"} == {item.method for item in wire.sent}
    assert (True, 0) == (after.would_snapshot, after.exit_code)


def test_held_by_somebody_else(tmp_path) -> None:
    """An id that our journal does not know is a conflict; the hint says how to free it."""

    async def scenario(gym):
        async with gym.world() as (world, _):
            await world.participants.resources_prepare("counter", "foreign-1", world.clock.now_s() + 5)
            await world.controller.close_admission("foreign-1", world.clock.now_s() + 5)
        held = await look(gym)
        async with gym.world() as (world, _):
            await finish_publish(world, gym.config, PublishRequest(release_id="foreign-1", reason="test"))
        return held

    result, _ = run(tmp_path, scenario)

    assert [("topology", "checkpoint-conflict", 21), ("controller", "checkpoint-conflict", 21)] == [
        (item.about, item.code, item.exit_code) for item in result.problems
    ]
    assert all("--release foreign-1" in item.hint for item in result.problems)
    assert 21 == result.exit_code


def test_while_a_snapshot_is_being_taken(tmp_path) -> None:
    """Another ckptctl is at work: that is the reason, its servers are not listed as conflicts."""

    async def scenario(gym):
        seen = []

        async def observe(step):
            if step == "commit-models":
                seen.append(await look(gym))

        async with gym.world() as (world, _):
            await take_snapshot(replace(world, observer=observe), gym.config, SnapshotRequest(force=True))
        return seen[0]

    result, _ = run(tmp_path, scenario)

    assert [("lock", "lock-held", 21)] == [(item.about, item.code, item.exit_code) for item in result.problems]
    assert "snapshot" == result.unfinished[0].kind


def test_two_groups_of_endpoints(tmp_path) -> None:
    """More than one actor is refused before anything else is asked of it."""

    async def scenario(gym):
        own = gym.config.sections.ckptctl
        grouped = own.model_copy(
            update={
                "participants": {
                    "one": {"policy_model": own.participants["policy_model"]},
                    "two": {name: endpoint for name, endpoint in own.participants.items() if name != "policy_model"},
                }
            }
        )
        return await look(gym, with_sections(gym.config, ckptctl=grouped))

    result, _ = run(tmp_path, scenario)

    assert ["2 endpoint groups" in item.message for item in result.problems] == [True]
    assert 20 == result.exit_code


def test_a_server_that_stops_answering_while_it_is_held(tmp_path) -> None:
    """Its capabilities came, the status of its checkpoint did not: both are shown."""

    async def scenario(gym):
        async with gym.world() as (world, _):
            await world.participants.agent_prepare("simple_agent", "foreign-1", world.clock.now_s() + 5)
        await gym.fault("simple_agent", kind="status", status=500, operation="agent-checkpoint/status", times=1)
        held = await look(gym)
        async with gym.world() as (world, _):
            await world.participants.agent_resume("simple_agent", "foreign-1", world.clock.now_s() + 5)
        return held

    result, _ = run(tmp_path, scenario)

    assert {("topology", 21), ("simple_agent", 31)} == {(item.about, item.exit_code) for item in result.problems}
    assert ("prepared", None) == (result.servers[2].phase, result.servers[2].running)


def test_an_unfinished_transaction_that_holds_nobody_any_more(tmp_path) -> None:
    """After its servers were restarted the answer does not say ready and interrupted in one breath."""

    async def scenario(gym):
        life = Life(outcome_of="close-admission")
        async with gym.world(**GONE) as (world, _):
            with suppress(DeadError):
                await take_snapshot(mortal(world, life), gym.config, SnapshotRequest(force=True))
        await gym.restart("controller")
        return (await look(gym))[0]

    result = run(tmp_path, scenario)
    text = live_text(result, width=200)

    assert (False, 21, ["unfinished-transaction"]) == (
        result.would_snapshot,
        result.exit_code,
        [problem.code for problem in result.problems],
    )
    assert "is not finished; nobody shows its id any more" in text
    assert "live: ready" not in text


def test_a_journal_that_is_damaged_is_a_reason(tmp_path) -> None:
    """A snapshot would stop at it, so it is no mere warning; the way out is told."""

    async def scenario(gym):
        folder = gym.checkpoint_dir / ".ckptctl" / "journal"
        folder.mkdir(parents=True)
        (folder / "000001-snapshot.jsonl").write_bytes(b"rubbish\n")
        return (await look(gym))[0]

    result = run(tmp_path, scenario)

    assert (24, "journal-damaged", ()) == (result.exit_code, result.problems[0].code, result.warnings)
    assert "--set-aside 000001-snapshot" in result.problems[0].hint


def test_a_silent_owner_of_the_lock(tmp_path) -> None:
    """A snapshot would be refused, and the answer says how long nobody has heard of the owner."""

    async def scenario(gym):
        async with gym.world(host="node-9") as (world, _):
            world.lock.acquire()
            path = gym.checkpoint_dir / ".ckptctl" / "lock"
            os.utime(path, (path.stat().st_mtime - 600,) * 2)
            seen = (await look(gym))[0]
            world.lock.release()
        return seen

    [problem] = run(tmp_path, scenario).problems

    assert ("lock-held", 21) == (problem.code, problem.exit_code)
    assert "silent for 10 min by this host's clock" in problem.message
    assert "`--break-lock`" in problem.hint


def test_sessions_that_held_servers_have_and_no_boundary_names(tmp_path) -> None:
    """Servers and agents say it while a checkpoint holds them; where an agent is not held nobody knows."""

    async def scenario(gym):
        async with gym.world() as (world, _):
            until = world.clock.now_s() + 20
            await world.participants.resources_prepare("counter", "foreign-1", until)
            alone = (await look(gym))[0]
            await world.participants.agent_prepare("simple_agent", "foreign-1", until)
            both = (await look(gym))[0]
        async with gym.world() as (world, _):
            await finish_publish(world, gym.config, PublishRequest(release_id="foreign-1", reason="test"))
        return alone, both

    alone, both = run(tmp_path, scenario)
    held = {item.server_name: item for item in both.servers}["counter"]

    assert (4, 0) == (held.sessions, held.uncertain_sessions)
    assert () == alone.unclaimed_sessions
    assert all(item.told_by == "servers" for item in both.unclaimed_sessions)
