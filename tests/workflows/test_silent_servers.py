"""A server that hangs: whatever waits for it says which one it is, where it is, and what it was asked."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from ckptctl.domain.restore import RestoreRequest
from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import CkptctlError
from ckptctl.workflows.inspect_live import inspect_live
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.restore import restore
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.simulated_gym import simulated

COUNTER, AGENT = "`counter` (capabilities at https://counter)", "`simple_agent` (capabilities at https://simple_agent)"
PATIENCE_S = 0.2
SESSIONS = SnapshotRequest(force=True, sessions_only=True)


async def hang(gym, work, *, route="capabilities", servers=("counter",), patience_s=PATIENCE_S):
    """What a workflow says while servers do not answer one route."""
    own = gym.config.sections.ckptctl.model_copy(update={"control_timeout_s": patience_s})
    gym.config = replace(gym.config, sections=gym.config.sections.model_copy(update={"ckptctl": own}))
    async with gym.world() as (world, wire):
        stopped = asyncio.Event()
        wire.before = lambda sent: stopped.wait() if (sent.server in servers and sent.route == route) else None
        try:
            return await work(world, gym.config)
        except CkptctlError as error:
            return error


def told(directory, work, **options):
    """The same in a cluster of its own, with what was noticed."""

    async def main():
        async with simulated(directory) as gym:
            return await hang(gym, work, **options), gym.notices

    return asyncio.run(main())


WORKS = {
    "snapshot": lambda world, config: take_snapshot(world, config, SnapshotRequest()),
    "sessions": lambda world, config: take_snapshot(world, config, SESSIONS),
    "restore": lambda world, config: restore(world, config, RestoreRequest()),
}


@pytest.mark.parametrize("name", WORKS)
def test_who_does_not_answer_is_named(tmp_path, name) -> None:
    """Both that were asked at the same time, although the first failure ends the command."""
    error, _ = told(tmp_path, WORKS[name], servers=("counter", "simple_agent"))

    assert 30 == error.exit_code
    assert COUNTER in error.message
    assert AGENT in error.message


def test_a_bound_from_outside_ends_the_wait_for_a_named_server(tmp_path) -> None:
    """`--deadline` is shorter than our patience with one answer."""

    def work(world, config):
        request = SnapshotRequest().within(PATIENCE_S, time.time())
        return take_snapshot(world, config, request)

    error, _ = told(tmp_path, work, patience_s=30.0)

    assert error.message.startswith(f"the deadline of 200 ms passed while waiting for {COUNTER}: ")
    assert "`--deadline`" in error.hint
    assert "policy_model" not in error.message


def test_a_server_that_hangs_in_the_middle(tmp_path) -> None:
    """The attempt is aborted; its cause names the server."""

    def work(world, config):
        return take_snapshot(world, config, SnapshotRequest().within(1.0, time.time()))

    error, _ = told(tmp_path, work, route="resources-checkpoint/prepare", patience_s=2.0)

    assert 22 == error.exit_code
    assert "waiting for `counter` (resources-checkpoint/prepare at https://counter)" in error.cause.message


def test_publish_tells_whom_it_could_not_ask(tmp_path) -> None:
    """Nothing is unfinished here; whether a coordinator without a journal holds the silent server stays open, and is said."""
    result, notices = told(tmp_path, lambda world, config: finish_publish(world, config, PublishRequest()))

    assert "nothing_to_do" == result.outcome
    assert any("`counter` (https://counter) did not answer capabilities" in text for text in result.warnings)
    assert list(result.warnings) == notices


def test_looking_names_every_silent_server_once(tmp_path) -> None:
    """Each has its own entry; none sends its reader to the command that he is reading."""
    result, _ = told(tmp_path, inspect_live, servers=("counter", "simple_agent"))

    assert ["counter", "simple_agent"] == [item.about for item in result.problems]
    assert all(f"`{item.about}` (https://{item.about}) did not answer" in item.message for item in result.problems)
    assert all("inspect --live" not in item.hint for item in result.problems)


def test_what_gives_more_time_is_named(tmp_path) -> None:
    """The key of the configuration that bounds what was waited for, before an attempt and in one; or the option."""
    for setting, options in (
        ("`ckptctl.control_timeout_s`", {"route": "capabilities"}),
        ("`rollout_checkpointing.gym.prepare_timeout_s`", {"route": "agent-checkpoint/prepare"}),
        ("`--last-within`", {"route": "agent-checkpoint/prepare", "within_s": 0.5}),
    ):
        error = asyncio.run(_late(tmp_path / setting.strip("`-"), **options))
        assert f"give more time with {setting}" in error.hint, (setting, error.hint)


async def _late(directory, *, route, within_s=None):
    async with simulated(directory) as gym:
        gym_section = gym.config.sections.rollout_checkpointing.gym.model_copy(update={"prepare_timeout_s": 1.0})
        section = gym.config.sections.rollout_checkpointing.model_copy(update={"gym": gym_section})
        gym.config = replace(
            gym.config, sections=gym.config.sections.model_copy(update={"rollout_checkpointing": section})
        )

        def work(world, config):
            asked = SnapshotRequest()
            if within_s is not None:
                asked = asked.within(within_s, time.time(), "--last-within")
            return take_snapshot(world, config, asked)

        server = "simple_agent" if route != "capabilities" else "counter"
        return await hang(gym, work, route=route, servers=(server,), patience_s=0.3)
