"""Clocks that differ by more than there is time: refused before anything is changed, not called a refusal of the server."""

import asyncio
from dataclasses import replace

import pytest

from ckptctl.domain.transaction import SnapshotRequest
from ckptctl.errors import RefusedError
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.simulated_gym import simulated


@pytest.mark.parametrize(
    ("deadline_s", "ahead_s", "is_refused"), [(None, 3600.0, True), (5.0, 6.0, True), (None, 6.0, False)]
)
def test_a_server_whose_clock_is_past_the_deadline(tmp_path, deadline_s, ahead_s, is_refused) -> None:
    """`prepare_timeout_s`, or the bound of the command line, is what there is."""

    async def scenario():
        async with simulated(tmp_path) as gym:
            await gym.run_in_flight()
            async with gym.world() as (world, wire):
                request = SnapshotRequest(force=True)
                if deadline_s is not None:
                    request = request.within(deadline_s, world.clock.now_s())
                other = replace(world, clocks_ahead=lambda: {"counter": 0.4, "controller": ahead_s})
                try:
                    result = await take_snapshot(other, gym.config, request)
                except RefusedError as refusal:
                    result = refusal
            return result, {item.route for item in wire.sent}, gym.is_released()

    result, routes, is_released = asyncio.run(scenario())

    assert is_released
    assert is_refused == ("admission/close" not in routes)
    if is_refused:
        assert "the clock of `controller` is" in result.message
        assert "same time service" in result.hint
    else:
        assert "published" == result.outcome
