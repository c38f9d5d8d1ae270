"""A restore against the simulated cluster: the wire, the answer, what is refused before, what a failing step leaves."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.restore import RestoreRequest
from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import (
    AdmissionClosedError,
    CheckpointConflictError,
    DiscoveryRefusedError,
    IncompatibleSnapshotError,
    LockHeldError,
    NotFreshError,
    NothingThereError,
    RefusedError,
    ReleasePendingError,
    StoppedError,
)
from ckptctl.render.transaction_text import transaction_text
from ckptctl.sim.equivalence import compare
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.restore import restore
from ckptctl.workflows.restore_preview import preview_restore, select_only
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.restored_runs import (
    answering,
    attempt,
    born,
    ids,
    journal,
    play_to_the_end,
    reborn,
    run,
    saved,
    snapshot,
)
from tests.workflows.test_snapshot_outcomes import with_config

RESTORES = [
    ("controller", "restore"),
    ("policy_model", "model-checkpoint/restore"),
    ("simple_agent", "agent-checkpoint/restore"),
    ("counter", "resources-checkpoint/restore"),
]
RESUMES = [
    ("counter", "resources-checkpoint/resume"),
    ("policy_model", "model-admission/resume"),
    ("simple_agent", "agent-checkpoint/resume"),
    ("controller", "admission/open"),
]
ALL_PAUSED = "`controller`, `policy_model`, `simple_agent`, `counter`"


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


def only_snapshot(dead) -> str:
    [path] = dead.glob("checkpoints/bootstrap/rollout_snapshots/snapshot_*")
    return str(path)


# --- what happens -------------------------------------------------------------------------------------------------------------


def test_order_id_and_deadline_of_every_request(dead) -> None:
    """Controller, policy, agents, resources; then resources, policy, agents, controller. One id; one deadline for steps 3 to 6."""

    async def scenario():
        path = only_snapshot(dead)
        async with reborn(dead) as gym:
            result, wire = await attempt(gym)
            assert gym.is_released()
            await play_to_the_end(gym)
            return path, result, wire, gym.notices, journal(gym)

    path, result, wire, notices, lines = run(scenario)
    posted = [item for item in wire.sent if item.method == "POST"]
    manifest = Path(path, "manifest.json").read_bytes()

    assert ([*RESTORES, *RESUMES], []) == (wire.posts(), notices)
    assert {result.checkpoint_id} == ids(wire)
    assert result.checkpoint_id.startswith("restore-")
    assert 1 == len({item.body["deadline_ts"] for item in posted[:4]})
    assert 1 == len({item.body["deadline_ts"] for item in posted[4:]})
    assert {path} == {item.body["checkpoint_dir"] for item in posted[:4]}
    assert sha256_hex(manifest) == posted[0].body["manifest_sha256"]
    assert ("restored", [item.model_dump() for item in result.rollouts]) == (
        posted[-1].body["outcome"],
        posted[-1].body["redispatch"],
    )
    assert json.loads(manifest)["gym_checkpoint"]["checkpoint_id"] == result.saved_checkpoint_id
    steps = [(step.number, step.name) for step in result.steps]
    assert steps == [(item["number"], item["step"]) for item in lines if item["event"] == "outcome"]
    assert ("begin", "finish", "restored") == (lines[0]["event"], lines[-1]["event"], lines[-1]["outcome"])
    assert "sim-token" not in json.dumps(lines)


def test_a_restored_run_ends_like_an_uninterrupted_one_and_so_does_one_restored_twice(tmp_path) -> None:
    """Attempts 0 become 1, a second restore makes them 2; each mutation happens once in the history that stands."""

    async def scenario():
        async with born(tmp_path / "whole") as gym:
            await gym.run_whole(2)
        await saved(tmp_path / "cut")
        async with reborn(tmp_path / "cut") as gym:
            gym.cluster.hold_at(3)
            first, _ = await attempt(gym)
            gym.controller.loop.set_goal(2)
            store = gym.cluster.agent.service.store
            await until_parked(store, 4)
            await snapshot(gym)
        async with reborn(tmp_path / "cut", incarnation=3) as gym:
            second, _ = await attempt(gym)
            await play_to_the_end(gym)
        return first, second

    first, second = run(scenario)
    found = compare(str(tmp_path / "whole" / "run"), str(tmp_path / "cut" / "run"), "counter")

    assert {(0, 1, "continue")} == pairs(first)
    assert {(1, 2, "continue")} == pairs(second)
    assert [] == found.differences
    assert (True, 2, 4) == (found.equal, found.restores, found.rollouts)


def test_finished_groups_and_sealed_siblings_are_kept(tmp_path) -> None:
    """Neither is dispatched again; the answer names the sealed ones."""

    async def scenario():
        async with born(tmp_path, prompts=4) as gym:
            await gym.run_whole(2)
            gym.cluster.hold_at(2)
            gym.controller.loop.set_goal(4)
            store = gym.cluster.agent.service.store
            await until_parked(store, 4)
            free = store.parked()[0]
            store.set_state(free, "running")
            ledger = gym.controller.state.ledger
            await until_true(lambda: ledger.unfinished_rollouts() == 3 and not ledger.outbox())
            await snapshot(gym)
            finished = gym.controller.state.replay.group_ids()
        async with reborn(tmp_path, prompts=4) as gym:
            async with gym.world() as (world, _):
                plan = preview_restore(world, gym.config, falls_back=True)
            result, _ = await attempt(gym)
            return free.pair.rollout_id, finished, plan, result

    sealed, finished, plan, result = run(scenario)

    assert [(sealed, 0)] == [(item.rollout_id, item.attempt_index) for item in result.reused]
    assert 3 == len(result.rollouts) == result.dispatched
    assert not finished & {item.group_id for item in result.rollouts}
    assert (sorted(plan.rollouts, key=str), plan.reused) == (sorted(result.rollouts, key=str), result.reused)


# --- refused before anything is changed ---------------------------------------------------------------------------------------


def test_what_is_refused_before_anything_is_changed(dead) -> None:
    """Busy, not fresh, another anchor, another data plane, a held lock, no directory: the cause decides, nothing is sent."""

    async def scenario():
        path = only_snapshot(dead)
        found = {}
        async with reborn(dead) as gym:
            status = {
                "anchor": {"anchor": "step_9"},
                "partition": {"canonical_partition": "elsewhere"},
                "sampler": {"sampler_name": "another"},
                "step": {"train_step": 4},
                "units": {"storage_units": 5},
                "own snapshots": {"takes_own_snapshots": True},
                "held": {"phase": "closed", "active_checkpoint_id": "other-1"},
            }
            for name, changes in status.items():
                found[name] = await attempt(gym, controller=answering(status=changes))
            await gym.cluster.ok("counter", "resources-checkpoint/restore", "other-1", checkpoint_dir=path)
            found["busy"] = await attempt(gym)
        async with reborn(dead, incarnation=3) as gym:
            async with gym.world() as (world, _):
                world.lock.acquire()
                found["lock"] = await attempt(gym)
                world.lock.release()
            found["topology"] = await attempt(gym, participants=answering(capabilities=with_more_workers))
            gym.config = replace(gym.config, checkpoint_dir=str(dead / "mistyped"))
            found["directory"] = await attempt(gym)
        async with reborn(dead, incarnation=4, restore_expected=False) as gym:
            found["not fresh"] = await attempt(gym)
        return found

    found = run(scenario)
    expected = {
        "anchor": (RefusedError, 20),
        "partition": (RefusedError, 20),
        "sampler": (RefusedError, 20),
        "step": (RefusedError, 20),
        "units": (IncompatibleSnapshotError, 12),
        "own snapshots": (RefusedError, 20),
        "held": (CheckpointConflictError, 21),
        "busy": (CheckpointConflictError, 21),
        "lock": (LockHeldError, 21),
        "topology": (IncompatibleSnapshotError, 12),
        "directory": (NothingThereError, 3),
        "not fresh": (NotFreshError, 20),
    }

    assert expected == {name: (type(error), error.exit_code) for name, (error, _) in found.items()}
    assert [[]] * len(expected) == [wire.posts() for _, wire in found.values()]
    assert "canonical partition `rollout_data` / `elsewhere`" in found["partition"][0].message
    assert not (dead / "mistyped").exists()


def test_the_trainer_checkpoint_alone(tmp_path) -> None:
    """Participants off and no snapshot: nothing to restore; but a controller that waits for one would wait for ever, exit 20."""

    async def scenario():
        async with born(tmp_path) as gym:
            await gym.run_whole(2)
            await gym.server._train()
        async with reborn(tmp_path) as gym:
            with_config(gym, participant_checkpointing_enabled=False)
            waiting, wire = await attempt(gym)
        async with reborn(tmp_path, incarnation=3, restore_expected=False) as gym:
            with_config(gym, participant_checkpointing_enabled=False)
            result, other_wire = await attempt(gym)
        return waiting, result, wire.posts() + other_wire.posts()

    waiting, result, posts = run(scenario)

    assert (RefusedError, 20, []) == (type(waiting), waiting.exit_code, posts)
    assert "expects a restore: its admission would stay closed" in waiting.message
    assert ("trainer_checkpoint", "step_1", None) == (result.outcome, result.anchor, result.snapshot)


def test_agents_that_cannot_discard_are_refused_where_something_must_be_discarded(tmp_path) -> None:
    """Unknown dependencies need the discard route even without a restart_only server: exit 20 before anything is changed."""
    from ckptctl.domain.topology import topology_of
    from ckptctl.workflows.restore import _require_discarding
    from tests.builders import an_evidence, edited
    from tests.world import a_topology

    evidence = an_evidence()
    rows = evidence.agents[0].continuations.value
    unknown = tuple(msgspec.structs.replace(row, resource_state_revisions=None) for row in rows)
    unknowing = replace(evidence.agents[0], continuations=replace(evidence.agents[0].continuations, value=unknown))
    evidence = edited(replace(evidence, agents=(unknowing, *evidence.agents[1:])), {})
    able = topology_of(a_topology())
    features = [without_discarding(item) for item in a_topology()]

    _require_discarding(able, evidence)
    _require_discarding(None, evidence)
    _require_discarding(topology_of(features), an_evidence())
    with pytest.raises(DiscoveryRefusedError, match="must restart .dependencies unknown., but `policy_agent`"):
        _require_discarding(topology_of(features), evidence)


# --- failing steps ------------------------------------------------------------------------------------------------------------

FAILING = {
    "controller": ("controller", "restore", "restore_failed", "`controller`"),
    "models": ("policy_model", "model-checkpoint/restore", "ledger_mismatch", "`controller`, `policy_model`"),
    "agents": (
        "simple_agent",
        "agent-checkpoint/restore",
        "agent_checkpoint_error",
        "`controller`, `policy_model`, `simple_agent`",
    ),
    "resources": ("counter", "resources-checkpoint/restore", "resource_revision_mismatch", ALL_PAUSED),
    "ledger": ("controller", "ledger", "invalid_phase", ALL_PAUSED),
}


@pytest.mark.parametrize("step", FAILING)
def test_a_failing_step_leaves_everybody_paused_and_says_who(dead, step) -> None:
    """Exit 24 with names, id and what to do; once the cause is gone the same command goes on under the same id."""
    server, operation, code, paused = FAILING[step]

    async def scenario():
        async with reborn(dead) as gym:
            await gym.fault(server, kind="refuse", code=code, operation=operation, times=0)
            error, wire = await attempt(gym)
            closed = not gym.controller.loop.is_open
            gym.clear_faults()
            result, again = await attempt(gym)
            assert gym.is_released()
            return error, wire, closed, result, again

    error, wire, closed, result, again = run(scenario)

    assert (AdmissionClosedError, 24, True) == (type(error), error.exit_code, closed)
    assert f"refused {operation}: {code}" in error.message
    assert error.message.endswith(f"; paused under `{result.checkpoint_id}`, admission closed: {paused}")
    assert "run `ckptctl restore` again" in error.hint
    assert {result.checkpoint_id} == ids(wire) == ids(again)
    assert [*RESTORES, *RESUMES] == again.posts()
    assert 4 == result.dispatched


WRONG = {
    "another-checkpoint": (
        {"participants": answering(agent_restore={"source_checkpoint_id": "ck-other"})},
        "restored checkpoint `ck-other`, expected `rollout-step-0",
    ),
    "no-checkpoint": (
        {"participants": answering(model_restore={"checkpoint_id": None})},
        "`policy_model` restored checkpoint `None`",
    ),
    "other-sessions": ({"participants": answering(resources_restore={"sessions": 3})}, "`counter` restored 3 sessions"),
    "other-step": ({"controller": answering(restore={"train_step": 7})}, "`train_step` is 7, the snapshot has 0"),
    "other-groups": (
        {"controller": answering(restore={"ledger_groups": 1})},
        "`ledger_groups` is 1, the snapshot has 2",
    ),
    "fewer-groups": (
        {"controller": answering(ledger=lambda reply: reply.model_copy(update={"groups": reply.groups[:1]}))},
        "1 group came, announced: 2",
    ),
    "no-end": ({"controller": answering(ledger={"next": "g", "groups": []})}, "its cursor does not move on"),
}


@pytest.mark.parametrize("name", WRONG)
def test_replies_that_are_not_what_was_saved(dead, name) -> None:
    """Another checkpoint, other counts, another ledger: exit 24 before anybody resumes, and the servers must be restarted."""
    ports, text = WRONG[name]

    async def scenario():
        async with reborn(dead) as gym:
            return await attempt(gym, **ports)

    error, wire = run(scenario)

    assert (AdmissionClosedError, 24) == (type(error), error.exit_code)
    assert text in error.message
    assert "restart the controller and all Gym servers" in error.hint
    assert not set(RESUMES) & set(wire.posts())


def test_another_artifact_reference(dead) -> None:
    """The digests in the replies of model and agent must be the saved ones (invariant 86)."""

    async def scenario():
        found = []
        for incarnation, server in enumerate(("policy_model", "simple_agent"), 2):
            async with reborn(dead, incarnation=incarnation) as gym:
                await gym.fault(server, kind="wrong_digest", operation="*/restore")
                found.append((await attempt(gym))[0])
        return found

    errors = run(scenario)

    assert [24, 24] == [error.exit_code for error in errors]
    assert "restored another `model-ledger/policy_model/storage-references.jsonl`" in errors[0].message
    assert "continuations.jsonl`" in errors[1].message


DIFFERENT_LEDGERS = {
    "attempt": ({"current_attempt": 3}, "is at attempt 3, saved was 0"),
    "sealed": ({"status": "sealed"}, "attempt 0 is sealed, saved was dispatched"),
    "reserved": ({"status": "reserved"}, "attempt 0 is reserved, saved was dispatched"),
    "stranger": ({"rollout_id": "stranger_g0"}, "`stranger_g0` is not in the saved ledger"),
}


@pytest.mark.parametrize("name", DIFFERENT_LEDGERS)
def test_a_restored_ledger_that_is_not_the_saved_one(dead, name) -> None:
    """A mapping made from it would run an attempt twice or lose a rollout: exit 24."""
    changes, text = DIFFERENT_LEDGERS[name]

    def changed(reply):
        group = reply.groups[0]
        siblings = [group.siblings[0].model_copy(update=changes), *group.siblings[1:]]
        return reply.model_copy(update={"groups": [group.model_copy(update={"siblings": siblings}), *reply.groups[1:]]})

    async def scenario():
        async with reborn(dead) as gym:
            return await attempt(gym, controller=answering(ledger=changed))

    error, wire = run(scenario)

    assert 24 == error.exit_code
    assert "its ledger is not the saved one" in error.message
    assert text in error.message
    assert not set(RESUMES) & set(wire.posts())


@pytest.mark.parametrize("kind", ["lost", "drop", "rubbish", "cut"])
def test_lost_requests_and_replies_are_repeated_under_the_same_id(dead, kind) -> None:
    """Every restore and every resume goes wrong once: the fence replays what was done, the command succeeds."""

    async def scenario():
        async with reborn(dead) as gym:
            for server in ("controller", "policy_model", "simple_agent", "counter"):
                for operation in ("*restore", "*resume", "*open"):
                    await gym.fault(server, kind=kind, operation=operation)
            result, wire = await attempt(gym)
            assert gym.is_released()
            await play_to_the_end(gym)
            return result, wire

    result, wire = run(scenario)

    assert "restored" == result.outcome
    assert {result.checkpoint_id} == ids(wire)
    assert [route for route in [*RESTORES, *RESUMES] for _ in range(2)] == wire.posts()


def test_the_deadline_bounds_steps_3_to_6(dead) -> None:
    """A restore that does not end in time is exit 24 with the cause; the next attempt joins what was done meanwhile."""

    async def scenario():
        async with reborn(dead) as gym:
            patient = gym.config
            with_config(gym, prepare_timeout_s=0.3)
            await gym.fault("simple_agent", kind="late", operation="agent-checkpoint/restore", times=1)
            error, wire = await attempt(gym)
            gym.config = patient
            result, _ = await attempt(gym)
            return error, wire, result

    error, wire, result = run(scenario)

    assert (24, "deadline-passed") == (error.exit_code, error.cause_code)
    assert "paused under" in error.message
    assert 1 == len({item.body["deadline_ts"] for item in wire.sent if item.method == "POST"})
    assert {result.checkpoint_id} == ids(wire)


def test_being_stopped_leaves_everybody_paused_and_can_be_continued(dead) -> None:
    """A signal in the middle: there is no way back, so it says who is paused; the next restore goes on under the same id."""

    async def scenario():
        async with reborn(dead) as gym:
            stopped = []
            for route in ("agent-checkpoint/restore", "model-admission/resume"):
                async with gym.world() as (world, wire):
                    task = asyncio.ensure_future(restore(world, gym.config, RestoreRequest()))
                    wire.before = lambda sent, task=task, route=route: task.cancel() if sent.route == route else None
                    with pytest.raises(StoppedError) as error:
                        await task
                    stopped.append((error.value, wire))
            result, last = await attempt(gym)
            return stopped, result, last

    [(first, wire), (second, later)], result, last = run(scenario)

    assert (
        f"paused under `{result.checkpoint_id}`, admission closed: `controller`, `policy_model`, `simple_agent`"
        in first.message
    )
    assert second.message.endswith("`controller`, `policy_model`, `simple_agent`")
    assert {result.checkpoint_id} == ids(wire) == ids(later) == ids(last)
    assert RESUMES == last.posts()


# --- resuming -----------------------------------------------------------------------------------------------------------------


def test_a_refused_resume_is_tried_again_by_the_next_restore(dead) -> None:
    """Exit 24, admission closed, the others resumed; the next one goes on with resuming under the same id and mapping."""

    async def scenario():
        async with reborn(dead) as gym:
            await gym.fault("counter", kind="refuse", code="resources_checkpoint_error", operation="*resume", times=0)
            error, wire = await attempt(gym)
            closed = not gym.controller.loop.is_open
            planned = [item for item in journal(gym) if item["event"] == "outcome" and item["step"] == "plan-attempts"]
            gym.clear_faults()
            result, again = await attempt(gym)
            assert gym.is_released()
            await play_to_the_end(gym)
            return error, wire, closed, planned, result, again

    error, wire, closed, [planned], result, again = run(scenario)

    assert (AdmissionClosedError, 24, True) == (type(error), error.exit_code, closed)
    assert "is restored, but not everybody was resumed under" in error.message
    assert "`counter`" in error.message
    assert 3 == wire.posts().count(RESUMES[0])
    assert RESUMES[1:3] == wire.posts()[-2:]
    assert RESUMES == again.posts()
    assert {result.checkpoint_id} == ids(wire) == ids(again)
    assert planned["redispatch"] == again.sent[-1].body["redispatch"]
    assert planned["redispatch"] == [item.model_dump() for item in result.rollouts]


@pytest.mark.parametrize("command", ["publish", "snapshot"])
def test_any_command_that_writes_goes_on_with_an_interrupted_restore(dead, command) -> None:
    """`publish` finishes it, exit 0; `snapshot` finishes it and takes its snapshot."""

    async def scenario():
        async with reborn(dead) as gym:
            await gym.fault("simple_agent", kind="refuse", code="invalid_phase", operation="*restore")
            error, wire = await attempt(gym)
            async with gym.world() as (world, later):
                if command == "publish":
                    result = await finish_publish(world, gym.config, PublishRequest())
                    nothing = await finish_publish(world, gym.config, PublishRequest())
                else:
                    result = await take_snapshot(world, gym.config, SnapshotRequest(force=True))
                    nothing = None
            assert gym.is_released()
            return error, wire, result, later, nothing

    error, wire, result, later, nothing = run(scenario)
    [used] = ids(wire)

    assert 24 == error.exit_code
    assert [*RESTORES, *RESUMES] == later.posts()[:8]
    if command == "publish":
        assert ("restored", used) == (result.outcome, result.checkpoint_id)
        assert "an interrupted restore had left it: 4 rollouts handed to the dispatcher now" == result.reason
        assert transaction_text(result).startswith("restored: the restore that an earlier run had begun")
        assert "nothing_to_do" == nothing.outcome
    else:
        assert "published" == result.outcome
        assert {used, result.checkpoint_id} == ids(later)


def test_a_snapshot_that_was_interrupted_is_finished_before_a_restore(tmp_path) -> None:
    """Its servers are gone: what it staged is removed, then the newest published snapshot is restored."""

    async def scenario():
        async with born(tmp_path) as gym:
            await gym.run_in_flight()
            path = await snapshot(gym)
            await gym.fault("controller", kind="refuse", code="storage_error", operation="save")
            await gym.fault("counter", kind="refuse", code="resources_checkpoint_error", operation="*resume", times=0)
            async with gym.world() as (world, _):
                with pytest.raises(AdmissionClosedError):
                    await take_snapshot(world, gym.config, SnapshotRequest(force=True))
        async with reborn(tmp_path) as gym:
            async with gym.world() as (world, _):
                plan = preview_restore(world, gym.config, falls_back=True)
            result, _ = await attempt(gym)
            return path, plan, result, gym.snapshots()

    path, plan, result, left = run(scenario)

    assert [path, path] == [plan.snapshot, result.snapshot]
    assert ["was interrupted: a restore aborts or releases it first"] == [item[-54:] for item in plan.warnings]
    assert ["snapshot_000001"] == left


def test_a_release_that_is_still_pending_comes_first(tmp_path) -> None:
    """A published snapshot's servers are still held, and one still refuses: exit 23, nothing is restored."""

    async def scenario():
        async with born(tmp_path) as gym:
            await gym.run_in_flight()
            await gym.fault("counter", kind="refuse", code="resources_checkpoint_error", operation="*resume", times=0)
            async with gym.world() as (world, _):
                with pytest.raises(ReleasePendingError):
                    await take_snapshot(world, gym.config, SnapshotRequest(force=True))
            return await attempt(gym)

    error, wire = run(scenario)

    assert (ReleasePendingError, 23) == (type(error), error.exit_code)
    assert not set(RESTORES) & set(wire.posts())


def test_looking_tells_of_an_interrupted_restore(dead) -> None:
    """`--plan` and `--select` say what a restore would go on with."""

    async def scenario():
        async with reborn(dead) as gym:
            await gym.fault("counter", kind="refuse", code="invalid_phase", operation="*restore", times=0)
            await attempt(gym)
            async with gym.world() as (world, wire):
                plan = preview_restore(world, gym.config, falls_back=True)
                chosen = select_only(world, gym.config, falls_back=True)
            return plan, chosen, wire.sent, gym.notices

    plan, chosen, sent, notices = run(scenario)

    assert (plan.warnings, list(plan.warnings), []) == (chosen.warnings, notices, sent)
    assert "was interrupted: `ckptctl restore` goes on with that one" in plan.warnings[0]


# --- parts --------------------------------------------------------------------------------------------------------------------


def pairs(result) -> set[tuple[int, int, str]]:
    return {(item.source_attempt, item.replacement_attempt, item.mode) for item in result.rollouts}


async def until_true(condition) -> None:
    while not condition():
        await asyncio.sleep(0)


async def until_parked(store, count: int) -> None:
    await until_true(lambda: len(store.parked()) == count)


def with_more_workers(capabilities):
    processes = capabilities.multi_process.model_copy(update={"num_workers": 9, "mode": "coordinator"})
    return capabilities.model_copy(update={"multi_process": processes})


def without_discarding(item):
    features = [name for name in item.capabilities.features if not name.startswith("discard")]
    return item.model_copy(update={"capabilities": item.capabilities.model_copy(update={"features": features})})
