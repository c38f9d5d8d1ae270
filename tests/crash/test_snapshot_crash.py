"""The process dies in the middle of a snapshot; the same command again must recover and succeed.

By default after the effect of the steps that matter most, its outcome unrecorded; in the long mode after and before every numbered
step, and at every single operation of every port, before it and after it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import CkptctlError, StorageError
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.mortal import DeadError, Life, mortal
from tests.fakes.simulated_gym import simulated
from tests.runs import judge_snapshot

GONE = {"pid": 2**22 + 1}
"""An owner whose process is not there any more."""
STEPS = (
    "close-admission",
    "drain-acknowledgements",
    "pause-models",
    "prepare-agents",
    "prepare-resources",
    "drain-models",
    "retire-orphans",
    "check-prepared",
    "allocate",
    "commit-agents",
    "commit-models",
    "commit-resources",
    "check-committed",
    "save",
    "write-manifest",
    "validate",
    "write-checksums",
    "sync",
    "publish",
    "retain",
)
WORST = ("close-admission", "prepare-agents", "commit-models", "save", "write-manifest", "publish", "resume-models")
"""Where the effect matters most and its record is missing: these in every run of the tests, all of them in the long mode."""
RELEASE_STEPS = ("resume-resources", "resume-models", "resume-agents", "open-admission")


async def die(gym, life: Life) -> None:
    """Take a snapshot in a process that dies."""
    async with gym.world(**GONE) as (world, _):
        try:
            await take_snapshot(mortal(world, life), gym.config, SnapshotRequest(force=True))
        except DeadError:
            assert life.is_over


async def again(gym) -> None:
    """The same command once more: exactly one more snapshot is visible and valid, and everybody works."""
    before = [name for name in gym.snapshots() if name.startswith("snapshot_")]
    async with gym.world() as (world, _):
        result = await take_snapshot(world, gym.config, SnapshotRequest())
        report = judge_snapshot(world.store, result.snapshot, "standard", under_final_name=False)
    after = gym.snapshots()

    assert "valid" == report.verdict, [finding.message for finding in report.findings]
    assert gym.is_released(), gym.phases()
    if result.outcome == "published":
        assert after == [*before, result.snapshot.rpartition("/")[2]]
    else:
        assert result.outcome in ("released", "skipped")
        assert before == after


def assert_covered(snapshot: str) -> None:
    """The checksum file is there, covers every byte, and is the one that the journal knows, whoever finished the publication."""
    report = judge_snapshot(LocalStore(), snapshot, "full", under_final_name=False)
    outcomes = {item.rule: item.outcome for item in report.outcomes}

    assert "valid" == report.verdict, [finding.message for finding in report.findings]
    assert {"passed"} == {outcomes[f"SUM{number:03d}"] for number in range(1, 9)}
    assert () == report.coverage.unchecked


async def fresh(gym) -> None:
    """Forget the snapshots so that the next crash begins from nothing visible; the servers stay as they are."""
    for path in gym.checkpoint_dir.glob("bootstrap/rollout_snapshots/snapshot_*"):
        path.rename(gym.directory / f"seen-{len(list(gym.directory.glob('seen-*')))}")


@pytest.mark.parametrize(
    ("how", "places"),
    [
        pytest.param("before_step", (*STEPS, *RELEASE_STEPS), marks=pytest.mark.long),
        pytest.param("outcome_of", (*STEPS, *RELEASE_STEPS), marks=pytest.mark.long),
        ("outcome_of", WORST),
    ],
)
def test_killed_at_each_numbered_step(tmp_path, how, places) -> None:
    """Before each step's intent, and after its effect without a record of it: the next run recovers and succeeds."""

    async def scenario():
        async with simulated(tmp_path, keep_latest_k=50) as gym:
            await gym.run_in_flight()
            for step in places:
                life = Life(**{how: step})
                await die(gym, life)
                assert life.is_over, step
                await again(gym)
                await fresh(gym)
            await gym.finish_run()

    asyncio.run(scenario())


def test_publish_finishes_what_was_staged_completely(tmp_path) -> None:
    """Save and manifest were done: `publish` publishes under the same id; before that it aborts; exit 0 both ways."""

    async def scenario():
        async with simulated(tmp_path) as gym:
            await gym.run_in_flight()
            outcomes = []
            for step in ("save", "write-manifest", "validate", "write-checksums", "sync", "publish", "resume-models"):
                life = Life(outcome_of=step)
                await die(gym, life)
                async with gym.world() as (world, wire):
                    result = await finish_publish(world, gym.config, PublishRequest())
                ids = {item.body["checkpoint_id"] for item in wire.sent if "checkpoint_id" in item.body}
                assert {result.checkpoint_id} == ids
                assert gym.is_released(), gym.phases()
                if result.outcome != "aborted":
                    assert_covered(result.snapshot)
                outcomes.append(
                    (step, result.outcome, len([name for name in gym.snapshots() if name.startswith("snapshot_")]))
                )
                await fresh(gym)
            await gym.finish_run()
            return outcomes

    assert [
        ("save", "aborted", 0),
        ("write-manifest", "aborted", 0),
        ("validate", "published", 1),
        ("write-checksums", "published", 1),
        ("sync", "published", 1),
        ("publish", "released", 1),
        ("resume-models", "released", 1),
    ] == asyncio.run(scenario())


def test_a_rename_that_a_dead_process_made_is_made_durable_before_anybody_is_released(tmp_path) -> None:
    """It may have died between the rename and its sync; afterwards the power must not take the snapshot back."""

    class Recorded:
        def __init__(self, store, events):
            self._store, self._events = store, events

        def __getattr__(self, name):
            return getattr(self._store, name)

        def sync_names(self, folder):
            self._events.append(folder)
            self._store.sync_names(folder)

    async def scenario():
        async with simulated(tmp_path) as gym:
            await gym.run_in_flight()
            await die(gym, Life(outcome_of="publish"))
            events = []
            async with gym.world() as (world, wire):
                wire.before = lambda sent: events.append(sent.route) if sent.method == "POST" else None
                await finish_publish(replace(world, store=Recorded(world.store, events)), gym.config, PublishRequest())
            await gym.finish_run()
            return events

    first, *rest = asyncio.run(scenario())

    assert str(tmp_path / "checkpoints" / "bootstrap" / "rollout_snapshots") == first
    assert "resources-checkpoint/resume" == rest[0]


class Blind:
    """A disk that fails from the rename on, so that nothing shows what became of it; or only so many times."""

    def __init__(self, store, final: str, *, times: int) -> None:
        self._store, self._final, self._left = store, final, times
        self.is_failing = False

    def __getattr__(self, name: str):
        return getattr(self._store, name)

    def _fail(self, path: str) -> None:
        if self.is_failing and self._left:
            self._left -= 1
            raise StorageError(operation="look at", path=path, detail="Input/output error")

    def kind_of(self, path: str):
        self._fail(path)
        return self._store.kind_of(path)

    def sync_names(self, folder: str) -> None:
        self._fail(folder)
        self._store.sync_names(folder)

    def rename(self, source: str, target: str) -> None:
        self._fail(source)
        self._store.rename(source, target)
        self.is_failing |= target.endswith(self._final)
        self._fail(target)


@pytest.mark.parametrize(
    ("times", "code", "finished", "names"),
    [(2, "attempt-aborted", "nothing_to_do", []), (99, "publication-unseen", "released", ["snapshot_000001"])],
)
def test_a_rename_of_which_the_disk_shows_nothing(tmp_path, times, code, finished, names) -> None:
    """Taken back where that goes; else not called aborted, for it may be published: the next command sees it (seed 46873)."""

    async def scenario():
        async with simulated(tmp_path) as gym:
            await gym.run_in_flight()
            async with gym.world() as (world, _):
                blind = replace(world, store=Blind(world.store, "/snapshot_000001", times=times))
                with pytest.raises(CkptctlError) as failed:
                    await take_snapshot(blind, gym.config, SnapshotRequest(force=True))
            is_released = gym.is_released()
            async with gym.world() as (world, _):
                then = await finish_publish(world, gym.config, PublishRequest())
            return failed.value.code, is_released, then.outcome, gym.snapshots()

    assert (code, True, finished, names) == asyncio.run(scenario())


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_operation(tmp_path, after) -> None:
    """For k = 0, 1, 2 ...: the process ends at its k-th operation; the next run recovers and succeeds; a third finds nothing to finish."""

    async def scenario():
        async with simulated(tmp_path, keep_latest_k=500) as gym:
            await gym.run_in_flight()
            count = 0
            while True:
                life = Life(dies_at=count, after=after)
                await die(gym, life)
                if not life.is_over:
                    break
                await again(gym)
                async with gym.world() as (world, _):
                    result = await finish_publish(world, gym.config, PublishRequest())
                assert "nothing_to_do" == result.outcome
                await fresh(gym)
                count += 1
            assert count > 60
            await gym.finish_run()

    asyncio.run(scenario())
