"""The receipt of a finished execution: asked for as long as the agent may hold the result."""

import asyncio

import pytest

from ckptctl.domain.canonical import compact_digest
from ckptctl.domain.participant import CompletionReceipt
from ckptctl.sim.agent_client import FORGOTTEN, AgentClientError
from ckptctl.sim.ownership import ResultOwner

PAIR = ("group_g0", 0)
RESULT = {"id": "r1", "reward": 0.5}


def a_receipt(**changes) -> CompletionReceipt:
    facts = {"rollout_id": PAIR[0], "attempt_index": PAIR[1], "execution_generation": 1, "result_identity": "r1"}
    return CompletionReceipt.model_validate({**facts, "result_digest": compact_digest(RESULT), **changes})


class Agent:
    """Gives these answers, one after the other."""

    name = "simple_agent"

    def __init__(self, *answers) -> None:
        self.answers = list(answers)

    async def completion_receipt(self, *pair):
        assert pair == PAIR
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def receipt_of(agent):
    return asyncio.run(ResultOwner(state=None, results=None)._receipt(agent, PAIR, RESULT))


def test_an_agent_that_does_not_answer_is_asked_again() -> None:
    """It may still hold the result."""
    silent = AgentClientError("simple_agent completion-receipt: ConnectError")

    assert a_receipt() == receipt_of(Agent(silent, AgentClientError("503", code="busy"), silent, a_receipt()))


def test_a_receipt_of_something_else_is_not_owned() -> None:
    """It could never be acknowledged, and its agent would block every later snapshot."""
    others = a_receipt(attempt_index=1), a_receipt(rollout_id="group_g1"), a_receipt(result_digest="0" * 64)

    assert a_receipt() == receipt_of(Agent(*others, a_receipt()))


def test_a_result_that_died_with_its_agent_is_not_waited_for() -> None:
    """Another process answers: the attempt is spent, and its sibling plays another one (seed 28227)."""
    agent = Agent(AgentClientError("ConnectError"), AgentClientError("409", code=FORGOTTEN), "never asked for")
    with pytest.raises(AgentClientError, match="409"):
        receipt_of(agent)

    assert ["never asked for"] == agent.answers
