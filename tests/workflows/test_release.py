"""Releasing: order, repetition, and what counts as released."""

from __future__ import annotations

import asyncio

import pytest

from ckptctl.domain.controller import OpenReply
from ckptctl.domain.participant import ResumeReply
from ckptctl.errors import (
    InvalidPhaseError,
    ResourcesCheckpointError,
    RouteMissingError,
    TimedOutError,
    UnreachableError,
)
from ckptctl.planning import snapshot as steps
from ckptctl.workflows.release import Release
from ckptctl.workflows.transaction import Recorder
from tests.fakes.fixed_clock import START_S, FixedClock
from tests.fakes.small_world import MemoryWriter, a_world
from tests.unit.planning.test_discovery import resources

STAGES = (("model",), ("agent",), ("tools",))


def refusal(kind, server="tools"):
    return kind(server=server, operation="resume", status=409, server_code="code", detail="why")


class Servers:
    """Servers that answer as told: a list of errors per server, then success."""

    def __init__(self, **trouble) -> None:
        self.trouble = {name: list(errors) for name, errors in trouble.items()}
        self.phase = ("idle", None)
        self.calls: list[str] = []
        self.instance = "i-1"

    def _answer(self, server: str):
        self.calls.append(server)
        waiting = self.trouble.get(server)
        if waiting:
            raise waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return ResumeReply(state="accepting")

    async def resources_resume(self, server, checkpoint_id, deadline_ts):
        return self._answer(server)

    model_resume = agent_resume = resources_resume

    async def capabilities(self, server):
        phase, held = self.phase
        return resources(server, phase=phase, active_checkpoint_id=held).capabilities

    async def status(self):
        class Status:
            instance_id = self.instance

        return Status()

    async def open_admission(self, checkpoint_id, deadline_ts, outcome, redispatch=()):
        self._answer("controller")
        return OpenReply(phase="idle", admission="open", dispatched=0)


def release(servers: Servers, *, seconds: float = 30.0, **facts):
    """Run a release: (failures, journal, clock)."""
    writer, clock = MemoryWriter(), facts.pop("clock", FixedClock())

    async def main():
        world = a_world(participants=servers, controller=servers, clock=clock)
        work = Release(
            world=world,
            checkpoint_id="ck-1",
            outcome="released",
            deadline_ts=START_S + seconds,
            servers=facts.pop("known", frozenset({"model", "agent", "tools"})),
            **facts,
        )
        await work.run(steps.plan_release("ck-1", STAGES), Recorder(world, writer))
        return work

    return asyncio.run(main()), writer.records, clock


def test_everybody_in_order_then_admission() -> None:
    """Resources, policy, agents, controller; intent and outcome of each in the journal."""
    servers = Servers()
    work, records, _ = release(servers)

    assert (["tools", "model", "agent", "controller"], {}) == (servers.calls, work.failures)
    assert ["intent", "outcome"] * 4 == [record["event"] for record in records]


@pytest.mark.parametrize(
    "error", [refusal(ResourcesCheckpointError), UnreachableError(server="tools", operation="resume", detail="down")]
)
def test_a_failure_is_repeated_twice_and_does_not_stop_the_others(error) -> None:
    """Refusals included; the other stages are tried all the same, only admission stays closed."""
    servers = Servers(tools=[error])
    work, records, _ = release(servers)

    assert ["tools"] * 3 + ["model", "agent"] == servers.calls
    assert {"tools": error} == work.failures
    assert "failure" == records[1]["event"]
    assert 1 == work.told().count("`tools`")


def test_a_second_answer_counts() -> None:
    """A failure that heals is none."""
    servers = Servers(tools=[refusal(ResourcesCheckpointError), refusal(ResourcesCheckpointError)], agent=[])
    servers.trouble["tools"].append(None)

    def answer(server, real=servers._answer):
        servers.calls.append(server)
        waiting = servers.trouble.get(server)
        error = waiting.pop(0) if waiting else None
        if error is not None:
            raise error
        return ResumeReply(state="accepting")

    servers._answer = answer
    work, _, _ = release(servers)

    assert {} == work.failures
    assert "controller" == servers.calls[-1]


def test_a_server_that_still_prepares_is_waited_for() -> None:
    """It refuses until its own prepare has ended: as long as it says so, asking goes on until the deadline."""
    servers = Servers(tools=[refusal(InvalidPhaseError)])
    servers.phase = ("preparing", "ck-1")
    work, _, clock = release(servers, seconds=20.0)

    assert ["tools"] == list(work.failures)
    assert servers.calls.count("tools") > 5
    assert clock.now_s() - START_S == pytest.approx(20.0, abs=2.0)


def test_no_answer_is_asked_again_until_the_deadline() -> None:
    """A timeout says nothing about the server: only the same id may be used, and it is."""
    servers = Servers(agent=[TimedOutError(server="agent", operation="resume", detail="no answer")])
    work, _, _ = release(servers, seconds=0.0)

    assert ["agent"] == list(work.failures)
    assert 3 == servers.calls.count("agent")


def test_calls_after_the_deadline_still_have_time() -> None:
    """One server used the deadline up; the others are released all the same, even those that refuse a passed deadline."""

    class Late(Servers):
        clock: FixedClock
        budgets: dict[str, float]

        async def resources_resume(self, server, checkpoint_id, deadline_ts):
            self.clock.value_s = START_S + 40.0
            return self._answer(server)

        async def model_resume(self, server, checkpoint_id, deadline_ts):
            self.budgets[server] = deadline_ts - self.clock.now_s()
            return self._answer(server)

        agent_resume = model_resume

        async def open_admission(self, checkpoint_id, deadline_ts, outcome, redispatch=()):
            self.budgets["controller"] = deadline_ts - self.clock.now_s()
            return await super().open_admission(checkpoint_id, deadline_ts, outcome, redispatch)

    servers = Late()
    servers.clock, servers.budgets = FixedClock(), {}
    work, _, _ = release(servers, clock=servers.clock)

    assert {} == work.failures
    assert {"model": 1.0, "agent": 1.0, "controller": 1.0} == servers.budgets


def test_an_idle_server_that_refuses_counts_only_when_somebody_else_paused_it() -> None:
    """In recovery it is another process than the one that was paused; in a run of our own it is not released."""
    servers = Servers(tools=[refusal(ResourcesCheckpointError)])
    own, _, _ = release(servers)
    recovered, _, _ = release(Servers(tools=[refusal(ResourcesCheckpointError)]), left_by_instance="i-1")

    assert ["tools"] == list(own.failures)
    assert {} == recovered.failures


def test_an_idle_server_without_the_route_is_not_the_one_that_was_paused() -> None:
    """The url of another server: nobody knows what became of the paused one, so nobody is said to be released."""
    error = RouteMissingError(
        server="tools", operation="resume", status=404, server_code="404", detail="none", hint="that server is an agent"
    )
    work, _, _ = release(Servers(tools=[error]), left_by_instance="i-1")

    assert {"tools": error} == work.failures
    assert work.told().endswith("none (that server is an agent)")


def test_a_controller_that_is_another_process_is_not_opened() -> None:
    """Its admission was not closed by the transaction; a restore that it may wait for is not ours to end."""
    servers = Servers()
    servers.instance = "i-2"
    work, _, _ = release(servers, left_by_instance="i-1")

    assert ({}, ["tools", "model", "agent"]) == (work.failures, servers.calls)


def test_a_server_that_left_the_configuration_is_told() -> None:
    """It cannot be reached, so it is not known to be released."""
    work, _, _ = release(Servers(), known=frozenset({"model", "agent"}))

    assert "`tools` is not in the configuration any more" in work.told()
