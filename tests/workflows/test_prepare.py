"""Preparing: when a policy model is drained, how an agent is asked until it is ready, and replies that contradict themselves."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from ckptctl.domain.participant import AgentStatus, ModelStatus, PauseReply, ResourcesPrepareReply
from ckptctl.domain.plan import Step
from ckptctl.errors import (
    MalformedReplyError,
    NotQuiescentError,
    PrepareIncompleteError,
    ServerRefusedError,
    TimedOutError,
)
from ckptctl.planning import snapshot as steps
from ckptctl.workflows.attempt import Attempt
from ckptctl.workflows.commit import commit_actions
from ckptctl.workflows.prepare import prepare_actions, still_draining
from tests.fakes.fixed_clock import START_S, FixedClock
from tests.fakes.small_world import a_world
from tests.unit.planning.test_publish import MODEL, model_reply

PAUSED = {"state": "paused", "inflight_total": 0}
ALL_THERE = {"acknowledged": 2, "expected": 2}


@pytest.mark.parametrize(
    ("facts", "waits_for"),
    [
        (PAUSED, None),
        ({**PAUSED, "per_worker": {"0": {"state": "paused", "inflight": 0}}}, None),
        ({**PAUSED, "workers": ALL_THERE, "missing_workers": [], "per_worker": {"a": {"connected": True}}}, None),
        ({**PAUSED, "generation_pending_total": 0}, None),
        ({"state": "draining", "inflight_total": 3}, "it is draining with 3 calls in flight"),
        ({"state": "paused", "inflight_total": 1}, "1 call in flight"),
        ({**PAUSED, "generation_pending_total": 2}, "2 generations are pending"),
        ({**PAUSED, "missing_workers": ["b"]}, "workers are missing"),
        ({**PAUSED, "workers": {"acknowledged": 1, "expected": 2}}, "1 of 2 workers acknowledged"),
        ({**PAUSED, "per_worker": {"a": {"connected": False}}}, "a worker is not connected"),
    ],
)
def test_when_a_policy_model_is_drained(facts, waits_for) -> None:
    """Paused, nothing in flight, nothing pending, every worker there: both status shapes are understood."""
    assert waits_for == still_draining(ModelStatus.model_validate(facts), None)


def test_the_pause_reply_says_how_many_workers_there_should_be() -> None:
    """A status that does not count workers is compared with what pausing expected."""
    pause = PauseReply.model_validate(
        {"state": "draining", "workers": {"acknowledged": 1, "expected": 2}, "inflight_total": 0}
    )
    one = ModelStatus.model_validate({**PAUSED, "per_worker": {"0": {}}})
    two = ModelStatus.model_validate({**PAUSED, "per_worker": {"0": {}, "1": {}}})

    assert "1 of 2 workers reported" == still_draining(one, pause)
    assert still_draining(two, pause) is None


class Outbox:
    """Delivers what it is told to have, once."""

    delivered = 0

    def __init__(self, *waiting: int) -> None:
        self.waiting = list(waiting)
        self.flushed = 0

    async def flush(self, deadline_ts):
        self.flushed += 1
        return self.waiting.pop(0) if self.waiting else 0


class Server:
    """Gives its answers one after the other; the last one again and again."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.calls = 0

    def __getattr__(self, method):
        async def call(*args, **kwargs):
            self.calls += 1
            found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(found, Exception):
                raise found
            return found

        return call


def run(name: str, server: Server, *, outbox=None, seconds: float = 30.0, actions=prepare_actions):
    """Run one step against one server: (attempt, clock)."""
    clock = FixedClock()
    begun = SimpleNamespace(
        checkpoint_id="ck-1", staged_path="/x", topology=SimpleNamespace(agents=(), models=(), resources=())
    )
    attempt = Attempt(a_world(participants=server, clock=clock), begun, deadline_ts=START_S + seconds, within_s=seconds)
    made = actions(attempt, outbox or Outbox()) if actions is prepare_actions else actions(attempt)
    asyncio.run(made[name](Step(number="4", name=name, targets=("s",), undo="nothing")))
    return attempt, clock


def incomplete() -> PrepareIncompleteError:
    return PrepareIncompleteError(
        server="s", operation="prepare", status=409, server_code="agent_prepare_incomplete", detail="not yet"
    )


READY = AgentStatus(state="preparing", ready_to_commit=True)


def test_an_agent_is_asked_until_it_is_ready() -> None:
    """Pauses grow from 20 ms; acknowledgements are flushed between the tries, and when some were delivered the pauses begin anew."""
    outbox = Outbox(0, 0, 2)
    _, clock = run(steps.PREPARE_AGENTS, Server(*[incomplete() for _ in range(4)], READY), outbox=outbox)

    assert [0.02, 0.04, 0.02, 0.04] == clock.slept
    assert 4 == outbox.flushed


def test_pauses_stay_below_two_seconds_and_end_with_the_deadline() -> None:
    """An agent that never gets ready costs a few dozen requests, not thousands, and then the attempt is over."""
    server = Server(incomplete())
    with pytest.raises(
        TimedOutError,
        match=r"deadline of 60 s passed while waiting for `s` \(agent-checkpoint/prepare\): it last answered .*: not yet",
    ):
        run(steps.PREPARE_AGENTS, server, seconds=60.0)

    assert 30 < server.calls < 45


def test_a_policy_model_without_long_polls_is_asked_with_growing_pauses() -> None:
    """A status that answers at once although it should wait is not asked in a tight loop."""
    draining = ModelStatus.model_validate({"state": "draining", "inflight_total": 1})
    _, clock = run(steps.DRAIN_MODELS, Server(draining, draining, draining, ModelStatus.model_validate(PAUSED)))
    with pytest.raises(TimedOutError, match="it is draining with 1 call in flight"):
        run(steps.DRAIN_MODELS, Server(draining), seconds=5.0)

    assert [0.02, 0.04, 0.08] == clock.slept


@pytest.mark.parametrize(
    ("step", "answer", "kind", "text"),
    [
        (
            steps.PREPARE_AGENTS,
            AgentStatus(state="preparing", ready_to_commit=False),
            MalformedReplyError,
            "not ready to commit",
        ),
        (
            steps.PREPARE_RESOURCES,
            ResourcesPrepareReply(sessions=1, state="prepared", inventory=[]),
            MalformedReplyError,
            "counts 1 session and lists 0",
        ),
        (
            steps.DRAIN_MODELS,
            ModelStatus.model_validate({**PAUSED, "generation_pending_total": 1}),
            ServerRefusedError,
            "a prefix cut stands in for a running call",
        ),
    ],
)
def test_replies_that_cannot_be_used(step, answer, kind, text) -> None:
    """A reply that contradicts itself, and a state that schema 4 cannot hold, end the attempt."""
    with pytest.raises(kind, match=text):
        run(step, Server(answer))


def test_a_model_that_is_not_quiescent_is_asked_for_its_status_and_then_again() -> None:
    """Calls in flight after all: wait, look, commit again, until the deadline."""
    busy = NotQuiescentError(
        server="s", operation="commit", status=409, server_code="ledger_not_quiescent", detail="1 call"
    )
    topology = SimpleNamespace(agents=(), models=(MODEL,), resources=())
    server = Server(busy, "status", busy, "status", model_reply())
    begun = SimpleNamespace(checkpoint_id="ck-1", staged_path="/x", topology=topology)
    attempt = Attempt(a_world(participants=server, clock=FixedClock()), begun, deadline_ts=START_S + 30, within_s=30)
    asyncio.run(commit_actions(attempt)[steps.COMMIT_MODELS](Step(number="5", name="x", undo="nothing")))

    assert (5, {MODEL: model_reply()}) == (server.calls, attempt.committed)
    attempt.world.participants.answers = [busy, "status"] * 100
    with pytest.raises(TimedOutError, match="deadline of 30 s passed while waiting for `policy` .*: 1 call"):
        asyncio.run(commit_actions(attempt)[steps.COMMIT_MODELS](Step(number="5", name="x", undo="nothing")))
