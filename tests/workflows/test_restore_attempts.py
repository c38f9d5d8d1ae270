"""Which attempt replaces which: with servers that lose their state, whole groups, siblings never sent, and no Gym state at all."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ckptctl.domain.ids import CHECKSUMS_FILE
from ckptctl.sim.equivalence import compare
from ckptctl.sim.run_files import RESULTS, read_log
from ckptctl.workflows.restore_preview import preview_restore
from tests.conftest import shared_fixtures
from tests.fakes.restored_runs import (
    answering,
    attempt,
    born,
    journal,
    make_dependent,
    play_to_the_end,
    reborn,
    run,
    saved,
    snapshot,
)
from tests.unit.sim.inprocess import until
from tests.workflows.test_restore import RESTORES, RESUMES, pairs
from tests.workflows.test_selection import fixture_config, world
from tests.workflows.test_snapshot_outcomes import with_config

DISCARD = ("simple_agent", "agent-checkpoint/discard-restored-continuation")
CLEAR = ("controller", "staging/clear")
JUDGE = {"restart_only": ("genrm",)}


async def saved_with_judge(directory) -> str:
    """In each group the first rollout depends on a judge too, which loses its state."""
    async with born(directory, **JUDGE) as gym:
        gym.cluster.hold_at(2)
        make_dependent(gym, "genrm", lambda rollout: rollout.endswith("_g0"))
        gym.controller.loop.set_goal(2)
        await until(lambda: len(gym.cluster.agent.service.store.parked()) == 4)
        return await snapshot(gym)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A dead run with a judge; made once, copied by each test."""
    folder = tmp_path_factory.mktemp("judged")
    asyncio.run(saved_with_judge(folder))
    return folder


@pytest.fixture
def dead(judged, tmp_path):
    """A copy of that run, to be brought back."""
    return shutil.copytree(judged, tmp_path / "dead")


def test_what_depends_on_a_server_without_state_restarts(dead) -> None:
    """Its continuation is discarded by its replacement's number, exactly its rows are cleared, both before anybody resumes."""

    async def scenario():
        async with reborn(dead, **JUDGE) as gym:
            async with gym.world() as (files, _):
                plan = preview_restore(files, gym.config, falls_back=True)
            staging = gym.controller.state.settings.staging_partition
            seen = {}
            gym.cluster.hold_at(0)
            result, wire = await attempt(gym)
            seen["rows"] = gym.controller.state.plane.keys(staging)
            seen["continuations"] = set(gym.cluster.agent.service.store.continuations)
            finish = journal(gym)[-1]
            return plan, result, wire, seen, finish

    plan, result, wire, seen, finish = run(scenario)
    restarted = [item for item in result.rollouts if item.mode == "restart"]
    posted = [item for item in wire.sent if (item.server, item.route) in (DISCARD, CLEAR)]

    assert {"depends on restart_only genrm"} == {item.reason for item in restarted}
    assert (2, 4) == (len(restarted), len(result.rollouts))
    assert {(0, 1, "continue"), (0, 1, "restart")} == pairs(result)
    assert [*RESTORES, DISCARD, DISCARD, CLEAR, *RESUMES] == wire.posts()
    assert [(item.rollout_id, 1) for item in result.discards] == [
        (item.body["rollout_id"], item.body["attempt_index"]) for item in posted[:2]
    ]
    assert list(result.cleared_staging_keys) == posted[2].body["keys"]
    assert {item.rollout_id for item in restarted} == {key.partition("/")[0] for key in result.cleared_staging_keys}
    assert not set(result.cleared_staging_keys) & seen["rows"]
    assert {(item.rollout_id, 0, "counter") for item in restarted} == {
        (item.rollout_id, item.attempt_index, item.server_name) for item in result.unclaimed_sessions
    }
    assert finish["unclaimed_sessions"] == [item.model_dump() for item in result.unclaimed_sessions]
    for name in ("rollouts", "discards", "unclaimed_sessions"):
        assert by_rollout(getattr(plan, name)) == by_rollout(getattr(result, name))
    assert plan.cleared_staging_keys == result.cleared_staging_keys


def test_rollouts_that_restarted_end_like_in_an_uninterrupted_run(dead, tmp_path) -> None:
    """They start over from the task, although the exporting server brought a session of theirs back."""

    async def scenario():
        async with reborn(dead, **JUDGE) as gym:
            result, _ = await attempt(gym)
            await play_to_the_end(gym)
        async with born(tmp_path / "whole") as gym:
            await gym.run_whole(2)
        return result

    result = run(scenario)
    ours, theirs = (
        {
            line["rollout_id"]: (line["reward"], line["final_state"])
            for line in read_log(f"{folder}/run/{RESULTS}")
            if line["kind"] == "sibling"
        }
        for folder in (tmp_path / "whole", dead)
    )

    assert ("restored", 4) == (result.outcome, result.dispatched)
    assert ours == theirs


@pytest.mark.parametrize(
    ("operation", "server"),
    [("*/discard-restored-continuation", "simple_agent"), ("staging/clear", "controller")],
    ids=["discard", "clear"],
)
def test_a_failing_discard_or_clearing(dead, operation, server) -> None:
    """Exit 24 with everybody paused; repeated under the same id, what is discarded already is not missed."""

    async def scenario():
        async with reborn(dead, **JUDGE) as gym:
            await gym.fault(server, kind="refuse", code="invalid_phase", operation=operation)
            error, wire = await attempt(gym)
            result, again = await attempt(gym)
            assert gym.is_released()
            return error, wire, result, again

    error, wire, result, again = run(scenario)

    assert 24 == error.exit_code
    assert "refused" in error.message
    assert "admission closed: `controller`, `policy_model`, `simple_agent`, `counter`" in error.message
    assert not set(RESUMES) & set(wire.posts())
    assert [*RESTORES, DISCARD, DISCARD, CLEAR, *RESUMES] == again.posts()
    assert 2 == len(result.discards)


def test_a_continuation_that_no_agent_holds_is_an_error(dead) -> None:
    """A committed boundary that must be dropped, and is nowhere, may still be somewhere: exit 24."""

    async def scenario():
        async with reborn(dead, **JUDGE) as gym:
            return await attempt(gym, participants=answering(agent_discard={"discarded": False}))

    error, wire = run(scenario)

    assert 24 == error.exit_code
    assert "no agent held the continuation of" in error.message
    assert CLEAR not in wire.posts()


def test_a_whole_prompt_group_is_dispatched_again(tmp_path) -> None:
    """Its finished sibling too: N+1 from the task, the one with a boundary continues."""

    async def scenario():
        options = {"granularity": "prompt_group"}
        async with born(tmp_path / "cut", **options) as gym:
            await gym.run_in_flight()
            store = gym.cluster.agent.service.store
            free = store.parked()[0].pair.rollout_id
            store.set_state(store.parked()[0], "running")
            await until(lambda: len(store.acknowledged) == 1)
            await snapshot(gym)
        async with reborn(tmp_path / "cut", **options) as gym:
            result, _ = await attempt(gym)
            await play_to_the_end(gym)
        async with born(tmp_path / "whole", **options) as gym:
            await gym.run_whole(2)
        return free, result

    free, result = run(scenario)
    found = compare(str(tmp_path / "whole" / "run"), str(tmp_path / "cut" / "run"), "counter")

    assert ((), 4) == (result.reused, result.dispatched)
    assert [(free, "no boundary")] == [
        (item.rollout_id, item.reason) for item in result.rollouts if item.mode == "restart"
    ]
    assert {(0, 1, "continue"), (0, 1, "restart")} == pairs(result)
    assert [] == found.differences


def test_a_sibling_that_was_never_sent_keeps_its_number(tmp_path) -> None:
    """Nothing of it can run twice; it starts from the task, and is dispatched once."""

    async def scenario():
        options = {"max_in_flight": 3}
        async with born(tmp_path / "cut", **options) as gym:
            gym.cluster.hold_at(2)
            gym.controller.loop.set_goal(2)
            await until(lambda: len(gym.cluster.agent.service.store.parked()) == 3)
            await snapshot(gym)
        async with reborn(tmp_path / "cut", **options) as gym:
            result, _ = await attempt(gym)
            await play_to_the_end(gym)
        async with born(tmp_path / "whole", **options) as gym:
            await gym.run_whole(2)
        return result

    result = run(scenario)
    found = compare(str(tmp_path / "whole" / "run"), str(tmp_path / "cut" / "run"), "counter")

    assert {(0, 1, "continue"), (0, 0, "restart")} == pairs(result)
    assert ["reserved, never dispatched"] == [item.reason for item in result.rollouts if item.mode == "restart"]
    assert ([], 1) == (found.differences, found.account.reserved)


def test_without_gym_state_everything_unfinished_restarts(tmp_path) -> None:
    """Participants off, `gym_checkpoint` null: the controller alone is restored and opened; no participant hears of it."""

    async def scenario():
        path = await saved(tmp_path)
        without_gym(path)
        async with reborn(tmp_path) as gym:
            participants_off(gym)
            gym.cluster.counter.service.checkpoint.is_open = True  # started for a run without participant checkpointing
            async with gym.world() as (files, _):
                plan = preview_restore(files, gym.config, falls_back=True)
            result, wire = await attempt(gym)
            await play_to_the_end(gym)
            return plan, result, wire

    plan, result, wire = run(scenario)

    assert [("controller", "restore"), ("controller", "admission/open")] == wire.posts()
    assert {"controller"} == {item.server for item in wire.sent}
    assert {(0, 1, "restart")} == pairs(result)
    assert {"no boundary"} == {item.reason for item in result.rollouts}
    assert (None, ()) == (result.saved_checkpoint_id, result.unclaimed_sessions)
    assert by_rollout(plan.rollouts) == by_rollout(result.rollouts)
    assert ["restore-controller", "check-restored", "plan-attempts", "clear-staging", "open-admission"] == [
        step.name for step in plan.plan
    ]


def test_gym_state_with_participants_off_is_refused(tmp_path) -> None:
    """The other way round: nothing is restored that nobody would take over."""

    async def scenario():
        await saved(tmp_path)
        async with reborn(tmp_path) as gym:
            participants_off(gym)
            return await attempt(gym)

    error, wire = run(scenario)

    assert (12, []) == (error.exit_code, wire.posts())


# --- the shared snapshots -----------------------------------------------------------------------------------------------------

RUNS = {"turn": "simple_agent", "norollouts": None}


def all_facts():
    shared = shared_fixtures()
    for name in RUNS:
        facts = json.loads((shared / f"{name}.facts.json").read_bytes())
        for path, one in facts["snapshots"].items():
            yield name, path, one


def test_the_plan_of_each_shared_snapshot_is_what_its_facts_say(tmp_path) -> None:
    """Source, replacement, continue or restart and why, reused siblings, cleared keys, for each good snapshot."""
    seen = 0
    for name, path, facts in all_facts():
        anchor = path.partition("/")[0]
        folder = tmp_path / path.replace("/", "-")
        source = shared_fixtures() / name
        shutil.copytree(source / anchor, folder / "run" / anchor, ignore=others_than(path.rpartition("/")[2]))
        config = fixture_config(folder / "run", folder, anchor, takes_participants=name == "turn")
        plan = preview_restore(world(), config, falls_back=True)
        expected = sorted(
            (item["rollout_id"], item["source_attempt"], item["replacement_attempt"], item["how"])
            for item in facts["resume"]
        )

        assert plan.snapshot.endswith(path)
        assert expected == sorted(
            (item.rollout_id, item.source_attempt, item.replacement_attempt, as_fact(item)) for item in plan.rollouts
        )
        needed = {key for keys in facts["referenced_staging_keys"].values() for key in keys}
        assert set(plan.cleared_staging_keys) <= needed
        assert not set(plan.cleared_staging_keys) & set(facts["referenced_staging_keys"]["sealed_receipts"])
        ready_or_sealed = {item.rollout_id for item in plan.reused}
        assert not ready_or_sealed & {item["rollout_id"] for item in facts["resume"]}
        seen += 1

    assert 4 == seen


# --- parts --------------------------------------------------------------------------------------------------------------------


def as_fact(item) -> str:
    """A planned rollout in the words of the facts."""
    if item.mode == "continue":
        return "continue"
    if item.reason.startswith("depends on restart_only "):
        return f"restart: continuation depends on restart_only server {item.reason.split()[-1]}"
    return f"restart: {item.reason}"


def others_than(name: str):
    """For copytree: every snapshot but one is left out."""
    return lambda _, names: [found for found in names if found.startswith("snapshot_") and found != name]


def by_rollout(items):
    return sorted(items, key=lambda item: item.rollout_id)


def participants_off(gym) -> None:
    """The configuration of a run that does not checkpoint participants."""
    with_config(gym, participant_checkpointing_enabled=False)
    section = {**gym.config.raw["rollout_checkpointing"], "gym": {"participant_checkpointing_enabled": False}}
    gym.config = replace(gym.config, raw={**gym.config.raw, "rollout_checkpointing": section})


def without_gym(path: str) -> None:
    """The snapshot as NeMo-RL would have written it by itself, in a run without participants: no checksum file and no journal."""
    root = Path(path)
    (root / CHECKSUMS_FILE).unlink()
    shutil.rmtree(root.parents[2] / ".ckptctl")
    for folder in ("agent", "model-ledger", "resources"):
        shutil.rmtree(root / folder)
    manifest = json.loads((root / "manifest.json").read_bytes())
    manifest |= {"gym_checkpoint": None, "gym_topology_fingerprint": None}
    (root / "manifest.json").write_text(json.dumps(manifest, sort_keys=True, indent=2) + "\n")
