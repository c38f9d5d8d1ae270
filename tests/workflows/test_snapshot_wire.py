"""The snapshot transaction as it is seen on the wire."""

from __future__ import annotations

import asyncio

from ckptctl.domain.transaction import SnapshotRequest
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.simulated_gym import simulated
from tests.runs import judge_snapshot

PREPARE = [
    ("controller", "admission/close"),
    ("policy_model", "model-admission/pause"),
    ("simple_agent", "agent-checkpoint/prepare"),
    ("counter", "resources-checkpoint/prepare"),
]
COMMIT = [
    ("simple_agent", "agent-checkpoint/commit"),
    ("policy_model", "model-checkpoint/commit"),
    ("counter", "resources-checkpoint/commit"),
    ("controller", "save"),
]
RELEASE = [
    ("counter", "resources-checkpoint/resume"),
    ("policy_model", "model-admission/resume"),
    ("simple_agent", "agent-checkpoint/resume"),
    ("controller", "admission/open"),
]


def test_order_id_and_deadline_of_every_request(tmp_path) -> None:
    """Prepare policy, agents, resources; commit agents, policy, resources, save; resume resources, policy, agents; one id, one deadline."""

    async def scenario():
        async with simulated(tmp_path) as gym, gym.world() as (world, wire):
            await gym.run_in_flight()
            result = await take_snapshot(world, gym.config, SnapshotRequest())
            report = judge_snapshot(world.store, result.snapshot, "standard", under_final_name=False)
            released = gym.is_released()
            await gym.finish_run()
            return result, wire, report, released, gym.notices

    result, wire, report, released, notices = asyncio.run(scenario())
    fenced = [item for item in wire.sent if "checkpoint_id" in item.body]

    assert ([*PREPARE, *COMMIT, *RELEASE], []) == (wire.posts(), notices)
    assert {result.checkpoint_id} == {item.body["checkpoint_id"] for item in fenced}
    assert 1 == len({item.body["deadline_ts"] for item in fenced[: len(PREPARE)]})
    assert "published" == result.outcome
    assert "valid" == report.verdict, [finding.message for finding in report.findings]
    assert 4 == result.counts.continuations
    assert released
