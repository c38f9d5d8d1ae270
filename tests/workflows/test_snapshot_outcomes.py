"""What a snapshot comes to: published, skipped, refused, aborted, pending, closed; and what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from dataclasses import replace

import pytest

from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import (
    AdmissionClosedError,
    AnchorRefusedError,
    AttemptAbortedError,
    CheckpointConflictError,
    ConfigError,
    CredentialError,
    LockHeldError,
    NothingThereError,
    RefusedError,
    ReleasePendingError,
    StoppedError,
    UnreachableError,
)
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.simulated_gym import simulated
from tests.runs import judge_snapshot

REQUEST = SnapshotRequest()


def run(directory, scenario, *, in_flight=True, **options):
    """Run a scenario in a fresh cluster, by default with rollouts in flight, and give what the scenario gave."""

    async def main():
        async with simulated(directory, **options) as gym:
            if in_flight:
                await gym.run_in_flight()
            return await scenario(gym)

    return asyncio.run(main())


async def attempt(gym, request=REQUEST, **faults):
    """One snapshot attempt in a world of its own: (result or error, wire)."""
    async with gym.world() as (world, wire):
        try:
            return await take_snapshot(world, gym.config, request), wire
        except Exception as error:
            return error, wire


def with_config(gym, **changes):
    """The configuration with another prepare time."""
    gym_section = gym.config.sections.rollout_checkpointing.gym.model_copy(update=changes)
    checkpointing = gym.config.sections.rollout_checkpointing.model_copy(update={"gym": gym_section})
    sections = gym.config.sections.model_copy(update={"rollout_checkpointing": checkpointing})
    gym.config = replace(gym.config, sections=sections)


def assert_untouched(gym, names=()):
    """Nothing but these snapshots is there, and everybody works."""
    assert list(names) == gym.snapshots()
    assert gym.is_released(), gym.phases()


def test_a_call_that_outlasts_the_deadline_aborts_the_attempt(tmp_path) -> None:
    """The policy call does not end in time: same id everywhere, everything released, the previous snapshot is the newest and valid, exit 22."""

    async def scenario(gym):
        first, _ = await attempt(gym)
        with_config(gym, prepare_timeout_s=0.5)
        await gym.fault("policy_model", kind="stall", operation="model-admission/status", times=0)
        await gym.fault(
            "simple_agent",
            kind="refuse",
            code="agent_prepare_incomplete",
            operation="agent-checkpoint/prepare",
            times=0,
        )
        error, wire = await attempt(gym)
        gym.clear_faults()
        async with gym.world() as (world, _):
            report = judge_snapshot(world.store, first.snapshot, "standard", under_final_name=False)
        assert_untouched(gym, ["snapshot_000001"])
        await gym.finish_run()
        return error, wire, report

    error, wire, report = run(tmp_path, scenario)
    ids = {item.body["checkpoint_id"] for item in wire.sent if "checkpoint_id" in item.body}

    assert isinstance(error, AttemptAbortedError)
    assert (22, "deadline-passed") == (error.exit_code, error.cause_code)
    assert 1 == len(ids)
    assert [
        ("policy_model", "model-admission/resume"),
        ("simple_agent", "agent-checkpoint/resume"),
        ("controller", "admission/open"),
    ] == (wire.posts()[-3:])
    assert "aborted" == wire.sent[-1].body["outcome"]
    assert "valid" == report.verdict


def test_a_server_that_refuses_to_resume_makes_the_release_pending(tmp_path) -> None:
    """After publication the snapshot is durable, admission stays closed, exit 23; `publish` releases under the same id later."""

    async def scenario(gym):
        await gym.fault(
            "counter",
            kind="refuse",
            code="resources_checkpoint_error",
            operation="resources-checkpoint/resume",
            times=0,
        )
        error, wire = await attempt(gym)
        closed = not gym.controller.loop.is_open
        again, again_wire = await attempt(gym)
        gym.clear_faults()
        async with gym.world() as (world, later):
            result = await finish_publish(world, gym.config, PublishRequest())
            nothing = await finish_publish(world, gym.config, PublishRequest())
        assert_untouched(gym, ["snapshot_000001"])
        await gym.finish_run()
        return error, wire, closed, again, again_wire, result, later, nothing

    error, wire, closed, again, again_wire, result, later, nothing = run(tmp_path, scenario)
    [used] = {item.body["checkpoint_id"] for item in wire.sent if "checkpoint_id" in item.body}

    assert isinstance(error, ReleasePendingError)
    assert (23, True) == (error.exit_code, closed)
    assert 3 == wire.posts().count(("counter", "resources-checkpoint/resume"))
    assert ("controller", "admission/open") not in wire.posts()
    assert [("policy_model", "model-admission/resume"), ("simple_agent", "agent-checkpoint/resume")] == wire.posts()[
        -2:
    ]
    assert isinstance(again, ReleasePendingError)
    assert ("controller", "admission/close") not in again_wire.posts()
    assert ("released", used) == (result.outcome, result.checkpoint_id)
    assert {used} == {item.body["checkpoint_id"] for item in later.sent if "checkpoint_id" in item.body}
    assert "nothing_to_do" == nothing.outcome


def test_the_next_snapshot_finishes_a_pending_release_and_takes_no_other(tmp_path) -> None:
    """What was asked for is there already: the same controller process has been closed since."""

    async def scenario(gym):
        await gym.fault(
            "counter",
            kind="refuse",
            code="resources_checkpoint_error",
            operation="resources-checkpoint/resume",
            times=3,
        )
        await attempt(gym)
        result, _ = await attempt(gym)
        assert_untouched(gym, ["snapshot_000001"])
        return result

    assert "released" == run(tmp_path, scenario).outcome


def test_an_abort_that_cannot_release_everybody_keeps_admission_closed(tmp_path) -> None:
    """A participant that cannot be reached may be paused: exit 24, and `publish` undoes the rest later."""

    async def scenario(gym):
        await gym.fault(
            "counter", kind="refuse", code="resources_checkpoint_error", operation="resources-checkpoint/commit"
        )
        await gym.fault("simple_agent", kind="lost", operation="agent-checkpoint/resume", times=0)
        error, _ = await attempt(gym)
        closed = not gym.controller.loop.is_open
        gym.clear_faults()
        async with gym.world() as (world, _):
            result = await finish_publish(world, gym.config, PublishRequest())
        assert_untouched(gym)
        return error, closed, result

    error, closed, result = run(tmp_path, scenario)

    assert isinstance(error, AdmissionClosedError)
    assert (24, "resources-checkpoint-error", True) == (error.exit_code, error.cause_code, closed)
    assert "`simple_agent`" in error.message
    assert "aborted" == result.outcome


EVERYWHERE = (
    ("controller", "admission/close"),
    ("policy_model", "model-admission/pause"),
    ("simple_agent", "agent-checkpoint/prepare"),
    ("counter", "resources-checkpoint/prepare"),
    ("policy_model", "model-admission/status"),
    ("simple_agent", "agent-checkpoint/commit"),
    ("policy_model", "model-checkpoint/commit"),
    ("counter", "resources-checkpoint/commit"),
    ("controller", "save"),
)
"""Every request before publication that changes something or decides."""
RELEASING = (
    ("counter", "resources-checkpoint/resume"),
    ("policy_model", "model-admission/resume"),
    ("simple_agent", "agent-checkpoint/resume"),
    ("controller", "admission/open"),
)


def test_a_refusal_anywhere_aborts_and_releases(tmp_path) -> None:
    """An unknown code at any step: exit 22, nothing visible, everybody released, and the same command succeeds afterwards."""

    async def scenario(gym):
        errors = []
        for server, operation in EVERYWHERE:
            await gym.fault(server, kind="refuse", code="brand_new", operation=operation)
            errors.append((await attempt(gym))[0])
            assert_untouched(gym)
        result, _ = await attempt(gym)
        assert_untouched(gym, ["snapshot_000001"])
        await gym.finish_run()
        return errors, result

    errors, result = run(tmp_path, scenario)

    assert [AttemptAbortedError] * len(EVERYWHERE) == [type(error) for error in errors]
    assert {("server-refused", "brand_new")} == {(error.cause_code, error.cause.server_code) for error in errors}
    assert "published" == result.outcome


def test_a_lost_reply_is_asked_for_again(tmp_path) -> None:
    """Lost before arrival, applied but unanswered, torn, rubbish: the fence makes the repetition safe, the snapshot succeeds."""
    everywhere = (*EVERYWHERE, *RELEASING)

    async def scenario(gym):
        outcomes = []
        kinds = ("lost", "drop", "cut", "rubbish")
        for turn in (0, 2):
            for place, (server, operation) in enumerate(everywhere):
                await gym.fault(server, kind=kinds[(place + turn) % len(kinds)], operation=operation)
            result, wire = await attempt(gym, SnapshotRequest(force=True))
            outcomes.append(
                (result.outcome, [wire.posts().count(item) for item in everywhere if "status" not in item[1]])
            )
            assert gym.is_released(), gym.phases()
        return outcomes

    outcomes = run(tmp_path, scenario, keep_latest_k=9)

    assert [("published", [2] * (len(everywhere) - 1))] * 2 == outcomes


def test_wrong_digests_and_counts_are_found(tmp_path) -> None:
    """A reply that does not agree with what lies on disk stops the attempt before anything is visible."""

    async def scenario(gym):
        errors = []
        for server, operation in (
            ("simple_agent", "agent-checkpoint/commit"),
            ("policy_model", "model-checkpoint/commit"),
            ("counter", "resources-checkpoint/commit"),
            ("controller", "save"),
        ):
            for kind in ("wrong_digest", "wrong_count"):
                await gym.fault(server, kind=kind, operation=operation)
                errors.append((await attempt(gym))[0])
                assert_untouched(gym)
        return errors

    assert [22] * 8 == [error.exit_code for error in run(tmp_path, scenario)]


def test_nothing_changed_is_said_and_nothing_is_taken(tmp_path) -> None:
    """No unfinished rollouts and no mutation since the last snapshot: skipped, unless forced."""

    async def scenario(gym):
        await gym.run_whole(2)
        first, _ = await attempt(gym)
        second, wire = await attempt(gym)
        third, _ = await attempt(gym, SnapshotRequest(force=True))
        return first, second, wire, third

    first, second, wire, third = run(tmp_path, scenario, in_flight=False)

    assert ("published", "skipped", "published") == (first.outcome, second.outcome, third.outcome)
    assert (first.snapshot, []) == (second.snapshot, wire.posts())


def test_retention_keeps_the_newest(tmp_path) -> None:
    """Beyond `keep_latest_k` the oldest are moved to our trash, never deleted at once."""

    async def scenario(gym):
        results = [(await attempt(gym, SnapshotRequest(force=True)))[0] for _ in range(3)]
        return results, gym.snapshots(), [path.name for path in (gym.checkpoint_dir / ".ckptctl" / "trash").iterdir()]

    results, names, trash = run(tmp_path, scenario)

    assert ["snapshot_000002", "snapshot_000003"] == names
    assert ("bootstrap/rollout_snapshots/snapshot_000001",) == results[2].removed
    assert [".bootstrap.snapshot_000001"] == ["." + name.split(".", 1)[1] for name in trash]


def test_retention_on_a_host_whose_clock_is_behind(tmp_path) -> None:
    """What it moves is dated by the file system: else the grace period would be over as soon as another host looks."""

    class DayAhead:
        def __init__(self, store) -> None:
            self._store = store

        def __getattr__(self, name):
            return getattr(self._store, name)

        def file_system_now_s(self, folder):
            return self._store.file_system_now_s(folder) + 86_400

    async def scenario(gym):
        for _ in range(3):
            async with gym.world() as (world, _):
                await take_snapshot(
                    replace(world, store=DayAhead(world.store)), gym.config, SnapshotRequest(force=True)
                )
        return [path.name for path in (gym.checkpoint_dir / ".ckptctl" / "trash").iterdir()]

    [entry] = run(tmp_path, scenario)

    assert int(entry.split(".")[0]) > time.time() + 80_000


def test_retention_keeps_everything_where_one_was_renamed(tmp_path) -> None:
    """The highest number is not the newest: nothing goes on its word, and the warning says why; put right, retention goes on."""

    async def scenario(gym):
        await attempt(gym, SnapshotRequest(force=True))
        folder = gym.checkpoint_dir / "bootstrap" / "rollout_snapshots"
        (folder / "snapshot_000001").rename(folder / "snapshot_000005")
        renamed, _ = await attempt(gym, SnapshotRequest(force=True))
        after = gym.snapshots()
        (folder / "snapshot_000005").rename(folder / "snapshot_000001")
        mended, _ = await attempt(gym, SnapshotRequest(force=True))
        names = gym.snapshots()
        await gym.finish_run()
        return renamed, after, mended, names

    renamed, after, mended, names = run(tmp_path, scenario, keep_latest_k=1)

    assert ["snapshot_000005", "snapshot_000006"] == sorted(after)
    assert ((), True) == (renamed.removed, "`snapshot_000005` was published as" in str(renamed.warnings))
    assert (2, ()) == (len(mended.removed), mended.warnings)
    assert 1 == len(names)


def test_what_is_refused_before_anything_is_closed(tmp_path) -> None:
    """Wrong token, no anchor, a busy server, a held lock, a server that is down: the cause decides, and nothing is sent that changes anything."""

    async def scenario(gym):
        found = {}
        await gym.fault("controller", kind="status", status=401, operation="status", times=0)
        found["token"] = await attempt(gym)
        gym.clear_faults()
        await gym.cluster.ok("counter", "resources-checkpoint/prepare", "other-1")
        found["busy"] = await attempt(gym)
        await gym.cluster.ok("counter", "resources-checkpoint/resume", "other-1")
        gym.cluster.reachable["simple_agent"].is_up = False
        found["down"] = await attempt(gym)
        gym.cluster.reachable["simple_agent"].is_up = True
        async with gym.world() as (world, _):
            world.lock.acquire()
            found["lock"] = await attempt(gym)
            world.lock.release()
        (gym.checkpoint_dir / "bootstrap" / "manifest.json").rename(gym.checkpoint_dir / "manifest.json")
        found["anchor"] = await attempt(gym)
        (gym.checkpoint_dir / "manifest.json").rename(gym.checkpoint_dir / "bootstrap" / "manifest.json")
        gym.controller.state.trainer.anchor = None
        found["no anchor"] = await attempt(gym)
        gym.controller.state.trainer.anchor = "bootstrap"
        gym.config = replace(gym.config, checkpoint_dir=str(gym.directory / "elsewhere"))
        found["nowhere"] = await attempt(gym)
        assert not (gym.directory / "elsewhere").exists()
        (gym.directory / "elsewhere").mkdir()
        found["directory"] = await attempt(gym)
        with_config(gym, participant_checkpointing_enabled=False)
        found["config"] = await attempt(gym)
        return found

    found = run(tmp_path, scenario)
    expected = {
        "token": (CredentialError, 31),
        "busy": (CheckpointConflictError, 21),
        "down": (UnreachableError, 30),
        "lock": (LockHeldError, 21),
        "anchor": (AnchorRefusedError, 20),
        "no anchor": (AnchorRefusedError, 20),
        "nowhere": (NothingThereError, 3),
        "directory": (RefusedError, 20),
        "config": (ConfigError, 2),
    }

    assert expected == {name: (type(error), error.exit_code) for name, (error, _) in found.items()}
    assert [[]] * len(expected) == [wire.posts() for _, wire in found.values()]


def test_the_trainer_moving_on_aborts_with_its_reason(tmp_path) -> None:
    """Step or version changed between the beginning and the cut: `trainer_state_changed`."""

    async def scenario(gym):
        async with gym.world() as (world, wire):

            def move(sent):
                if sent.route == "save":
                    gym.controller.state.trainer.trainer_version += 1

            wire.before = move
            with pytest.raises(AttemptAbortedError) as refusal:
                await take_snapshot(world, gym.config, REQUEST)
            return refusal.value

    assert "trainer-state-changed" == run(tmp_path, scenario).cause_code


def test_a_deadline_from_outside_bounds_everything(tmp_path) -> None:
    """`--deadline` caps the deadline that servers are given; one that has passed ends discovery, before anything is changed."""

    async def scenario(gym):
        limit = time.time() + 20
        result, wire = await attempt(gym, SnapshotRequest(deadline_ts=limit))
        late, _ = await attempt(gym, SnapshotRequest(deadline_ts=time.time() - 1, deadline_s=0.001))
        assert_untouched(gym, ["snapshot_000001"])
        return limit, result, wire, late

    limit, result, wire, late = run(tmp_path, scenario)

    assert "published" == result.outcome
    assert all(item.body["deadline_ts"] <= limit for item in wire.sent if "deadline_ts" in item.body)
    assert 30 == late.exit_code
    assert late.message.startswith("the deadline of 1 ms passed")
    assert "nothing was changed" in late.message


def test_being_stopped_aborts_and_releases(tmp_path) -> None:
    """A signal in the middle of preparing: the attempt is undone, and the command says that it was stopped."""

    async def scenario(gym):
        async with gym.world() as (world, wire):
            task = asyncio.ensure_future(take_snapshot(world, gym.config, REQUEST))
            wire.before = lambda sent: task.cancel() if sent.route == "agent-checkpoint/commit" else None
            with pytest.raises(StoppedError, match="was aborted; everything was released"):
                await task
        assert_untouched(gym)
        result, _ = await attempt(gym)
        return result

    assert "published" == run(tmp_path, scenario).outcome


def test_being_stopped_while_releasing_finishes_the_release(tmp_path) -> None:
    """After the rename the snapshot stays: a signal only shortens the time for releasing."""

    async def scenario(gym):
        async with gym.world() as (world, wire):
            task = asyncio.ensure_future(take_snapshot(world, gym.config, REQUEST))
            wire.before = lambda sent: task.cancel() if sent.route == "model-admission/resume" else None
            with pytest.raises(StoppedError, match="is published; everybody was released"):
                await task
        assert_untouched(gym, ["snapshot_000001"])

    run(tmp_path, scenario)


def test_the_journal_tells_the_whole_story(tmp_path) -> None:
    """One file: what was begun, intent and outcome of every numbered step in order, the end; no token in it."""

    async def scenario(gym):
        result, _ = await attempt(gym)
        [path] = (gym.checkpoint_dir / ".ckptctl" / "journal").iterdir()
        return result, path.read_text()

    result, text = run(tmp_path, scenario)
    records = [json.loads(line) for line in text.splitlines()]
    steps = [(item["number"], item["step"]) for item in records if item["event"] == "outcome"]

    assert "sim-token" not in text
    assert ("begin", "finish") == (records[0]["event"], records[-1]["event"])
    assert [(step["number"], step["name"]) for step in records[0]["plan"]["steps"]] == steps
    assert steps == [(step.number, step.name) for step in result.steps]


def test_acknowledgements_are_drained_in_one_batch_per_agent(tmp_path) -> None:
    """Results that the controller owes an acknowledgement for are delivered, confirmed and gone before anything is prepared."""

    async def scenario(gym):
        await gym.run_whole(4, is_acknowledged=False)
        ledger = gym.controller.state.ledger
        owed = len(ledger.outbox())
        result, wire = await attempt(gym)
        assert_untouched(gym, ["snapshot_000001"])
        return owed, len(ledger.outbox()), result, wire

    owed, left, result, wire = run(tmp_path, scenario, in_flight=False, acknowledge_interval_s=3600)
    batches = [
        len(item.body["executions"]) for item in wire.sent if item.route == "agent-checkpoint/acknowledge-completed"
    ]

    assert (0, [owed]) == (left, batches)
    assert owed == result.counts.acknowledgements > 0
    assert wire.posts().index(("controller", "acknowledgements/confirm")) < wire.posts().index(
        ("policy_model", "model-admission/pause")
    )


def test_a_copy_with_a_number_that_nobody_counts(tmp_path) -> None:
    """`cp -a` to the highest number of 64 bits: the next snapshot follows the last one of ours, and tells of the copy; gc keeps it."""
    strange = "snapshot_18446744073709551615"

    async def scenario(gym):
        await attempt(gym)
        folder = gym.checkpoint_dir / "bootstrap" / "rollout_snapshots"
        shutil.copytree(folder / "snapshot_000001", folder / strange)
        result, _ = await attempt(gym, SnapshotRequest(force=True))
        last = folder / f"snapshot_{10**12 - 1}"
        shutil.copytree(folder / "snapshot_000001", last)
        refused, _ = await attempt(gym, SnapshotRequest(force=True))
        return result, refused, (folder / strange).is_dir()

    result, refused, is_kept = run(tmp_path, scenario, in_flight=False)
    assert result.snapshot.endswith("/snapshot_000002")
    assert [True] == [f"{strange}` is not counted" in text for text in result.warnings if strange in text]
    assert is_kept
    assert (RefusedError, True) == (type(refused), "snapshot_999999999999" in refused.hint)


def test_sessions_of_a_controller_that_waits_for_a_restore(tmp_path) -> None:
    """`gc --sessions` takes no snapshot, and does not speak of one."""

    async def main():
        async with simulated(tmp_path, restore_expected=True) as gym:
            return [
                (await attempt(gym, SnapshotRequest(sessions_only=is_for_sessions)))[0]
                for is_for_sessions in (True, False)
            ]

    sessions, snapshot = asyncio.run(main())
    assert ("session" in sessions.message, "snapshot" in sessions.message) == (True, False)
    assert "snapshot" in snapshot.message
    assert "ckptctl restore" in sessions.hint
