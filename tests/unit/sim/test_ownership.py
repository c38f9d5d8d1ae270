"""The receipt of a finished execution: asked for as long as the agent may hold the result."""

import asyncio

import pytest

from ckptctl.sim.agent_client import FORGOTTEN, AgentClientError
from ckptctl.sim.ownership import ResultOwner

PAIR = ("group_g0", 0)


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
    return asyncio.run(ResultOwner(state=None, results=None)._receipt(agent, PAIR))


def test_an_agent_that_does_not_answer_is_asked_again() -> None:
    """It may still hold the result."""
    silent = AgentClientError("simple_agent completion-receipt: ConnectError")

    assert "receipt" == receipt_of(Agent(silent, AgentClientError("503", code="busy"), silent, "receipt"))


def test_a_result_that_died_with_its_agent_is_not_waited_for() -> None:
    """Another process answers: the attempt is spent, and its sibling plays another one (seed 28227)."""
    agent = Agent(AgentClientError("ConnectError"), AgentClientError("409", code=FORGOTTEN), "never asked for")
    with pytest.raises(AgentClientError, match="409"):
        receipt_of(agent)

    assert ["never asked for"] == agent.answers
