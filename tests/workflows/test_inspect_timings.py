"""`inspect --timings` of real snapshots: what the journal recorded of every step."""

import asyncio

import pytest

from ckptctl.domain.transaction import SnapshotRequest
from ckptctl.errors import CkptctlError, NothingThereError
from ckptctl.render.machine import to_json
from ckptctl.workflows.inspect_timings import inspect_timings
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.simulated_gym import simulated
from tests.schemas import problems


def test_snapshots_of_a_run(tmp_path) -> None:
    """Every request and byte is in it; one that was aborted counts apart; a path picks what lies below it."""

    async def scenario():
        async with simulated(tmp_path) as gym, gym.world() as (world, wire):
            await gym.run_in_flight()
            published = await take_snapshot(world, gym.config, SnapshotRequest())
            within = [item.route for item in wire.sent]
            within = within[within.index("admission/close") : within.index("admission/open") + 1]
            await gym.fault("counter", operation="resources-checkpoint/commit", kind="refuse", code="x")
            with pytest.raises(CkptctlError, match="aborted"):
                await take_snapshot(world, gym.config, SnapshotRequest())
            (gym.checkpoint_dir / ".ckptctl" / "journal" / "000009-snapshot.jsonl").write_text("{}\n")
            where = str(gym.checkpoint_dir)
            found = [inspect_timings(world, where, path) for path in (where, published.snapshot)]
            with pytest.raises(NothingThereError, match="no journal tells of a snapshot"):
                inspect_timings(world, where, f"{where}/step_9")
            await gym.finish_run()
            return published, within, *found

    published, within, whole, one = asyncio.run(scenario())

    assert {"published": 1, "aborted": 1} == whole.outcomes
    assert {"published": 1} == one.outcomes
    assert (1.0, float(len(within))) == (whole.requests.count, whole.requests.max)
    assert whole.bytes.max > 1000
    assert 0 < whole.own_s.max < whole.admission_closed_s.max
    assert sum(step.seconds for step in published.steps) < whole.admission_closed_s.max + 1e-3
    assert {step.name: step.seconds for step in published.steps} == {step.name: step.seconds for step in one.last_steps}
    assert ["failed"] == [step.state for step in whole.last_steps if step.name == "commit-resources"]
    assert 1 == len(whole.warnings)
    assert [] == problems(to_json(whole), "inspect-timings.v1.json")
