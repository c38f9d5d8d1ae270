"""Delivering what the controller still owes to agents."""

from __future__ import annotations

import asyncio

import pytest

from ckptctl.domain.controller import Acknowledgement, AcknowledgementsReply, ConfirmReply, SettleReply
from ckptctl.domain.participant import AcknowledgeReply, AgentStatus, CompletionReceipt
from ckptctl.domain.topology import topology_of
from ckptctl.errors import (
    AcknowledgementRefusedError,
    CkptctlError,
    MalformedReplyError,
    TimedOutError,
    UnreachableError,
)
from ckptctl.workflows.acknowledgements import Outbox
from tests.fakes.fixed_clock import START_S
from tests.fakes.small_world import a_world
from tests.unit.planning.test_discovery import agent, model

TOPOLOGY = topology_of([model(), agent("a"), agent("b", name="agent_b")])
DEADLINE = START_S + 60


def receipt(rollout: str) -> CompletionReceipt:
    facts = {
        "rollout_id": rollout,
        "attempt_index": 0,
        "execution_generation": 1,
        "result_identity": "r",
        "result_digest": "0" * 64,
    }
    return CompletionReceipt.model_validate(facts)


class Servers:
    """A controller's outbox and the agents' memory of completed results."""

    def __init__(
        self, owed: dict[str, list[str]], *, forgotten: set[str] = frozenset(), owned: set[str] = frozenset()
    ) -> None:
        self.owed = [
            Acknowledgement(agent_name=name, receipt=receipt(item)) for name, items in owed.items() for item in items
        ]
        self.forgotten = forgotten
        self.owned = owned
        self.requests: list[tuple[str, int]] = []
        self.acknowledged: dict[str, int] = {}
        """By agent, how many its process remembers."""
        self.status: dict[str, object] | None = {}
        """What an agent's status says besides; None where it has none."""
        self.lost = 0
        self.echo = lambda receipts: receipts
        self.why = lambda receipts: "unknown"

    async def acknowledgements(self, *, limit=1000, after=None):
        begin = int(after or 0)
        page = self.owed[begin : begin + limit]
        more = begin + limit < len(self.owed)
        return AcknowledgementsReply(pending=page, total=len(self.owed), next=str(begin + limit) if more else None)

    async def agent_acknowledge(self, server, receipts):
        self.requests.append((server, len(receipts)))
        if self.lost:
            self.lost -= 1
            raise UnreachableError(server=server, operation="acknowledge-completed", detail="reset")
        if any(item.rollout_id in self.forgotten for item in receipts):
            raise AcknowledgementRefusedError(
                server=server, operation="acknowledge-completed", status=409, server_code="x", detail=self.why(receipts)
            )
        self.acknowledged[server] = self.acknowledged.get(server, 0) + len(receipts)
        return AcknowledgeReply(acknowledged=self.echo(list(receipts)))

    async def agent_status(self, server, checkpoint_id):
        assert "ck-1" == checkpoint_id
        self.requests.append((server, 0))
        if self.status is None:
            raise UnreachableError(server=server, operation="agent-checkpoint/status", detail="reset")
        held = [item.receipt.model_dump(include={"rollout_id", "attempt_index"}) for item in self.owed]
        held = [item for item in held if item["rollout_id"] not in self.forgotten]
        facts = {"completed_unacknowledged": len(held), "completed_unacknowledged_attempts": held}
        facts |= {"acknowledged_completed": self.acknowledged.get(server, 0), "state": "accepting"}
        return AgentStatus.model_validate({**facts, "ready_to_commit": False, **self.status})

    async def confirm(self, receipts):
        before, gone = len(self.owed), {item.rollout_id for item in receipts}
        self.owed = [item for item in self.owed if item.receipt.rollout_id not in gone]
        return ConfirmReply(removed=before - len(self.owed), unknown=[], remaining=len(self.owed))

    async def settle(self, receipts):
        settled = [item for item in receipts if item.rollout_id in self.owned]
        self.owed = [item for item in self.owed if item.receipt not in settled]
        return SettleReply(settled=settled, unowned=[item for item in receipts if item not in settled])


def drain(servers: Servers, notices: list | None = None) -> Outbox:
    async def main():
        world = a_world(
            participants=servers, controller=servers, notice=(notices if notices is not None else []).append
        )
        outbox = Outbox(world, TOPOLOGY, "ck-1")
        await outbox.drain(DEADLINE)
        return outbox

    return asyncio.run(main())


def test_one_request_per_agent_and_thousand_receipts() -> None:
    """Pages are collected first, so that a page's end never splits an agent's batch; both names of an agent are known."""
    servers = Servers({"a": [f"x{index}" for index in range(900)], "agent_b": [f"y{index}" for index in range(1500)]})
    outbox = drain(servers)

    assert ([], 2400) == (servers.owed, outbox.delivered)
    assert [("a", 900), ("b", 500), ("b", 1000)] == sorted(servers.requests)


def test_nothing_owed_asks_no_agent() -> None:
    """An empty outbox costs one question."""
    servers = Servers({})
    drain(servers)

    assert [] == servers.requests


def test_a_lost_reply_is_harmless() -> None:
    """Acknowledging again is idempotent."""
    servers = Servers({"a": ["x"]})
    servers.lost = 2
    drain(servers)

    assert ([], 3) == (servers.owed, len(servers.requests))


def test_a_restarted_agent_gets_what_it_knows_and_the_rest_is_settled() -> None:
    """Batches are all or nothing, so it is asked what it holds; owned results that it does not are settled, and that is said."""
    servers = Servers({"a": ["x1", "x2", "x3", "x4"]}, forgotten={"x3"}, owned={"x3"})
    notices: list[str] = []
    drain(servers, notices)

    assert [] == servers.owed
    assert [("a", 4), ("a", 0), ("a", 3)] == servers.requests
    assert ["settled 1 acknowledgement that `a` no longer knows: the results are kept"] == notices


def test_a_restarted_agent_costs_two_requests_a_thousand_receipts() -> None:
    """It forgot everything: it refuses, says so, and all are settled; another one that forgot nothing costs what it always does."""
    gone = [f"x{index}" for index in range(1500)]
    servers = Servers({"a": gone, "agent_b": ["y"]}, forgotten=set(gone), owned=set(gone))
    outbox = drain(servers)

    assert ([], 1501) == (servers.owed, outbox.delivered)
    assert [("a", 0), ("a", 0), ("a", 500), ("a", 1000), ("b", 1)] == sorted(servers.requests)


def test_what_an_agent_remembers_as_acknowledged_is_delivered_again() -> None:
    """The confirmation was lost: of what it does not hold, some it acknowledged and some it never knew."""
    servers = Servers({"a": ["x1", "x2", "x3", "x4"]}, forgotten={"x4"}, owned={"x4"})
    held = [receipt("x1").model_dump(include={"rollout_id", "attempt_index"})]
    servers.status = {
        "completed_unacknowledged": 1, "completed_unacknowledged_attempts": held, "acknowledged_completed": 2,
    }  # fmt: skip
    drain(servers)

    assert [] == servers.owed
    assert [4, 0, 1, 3, 1, 2, 1, 1] == [count for _, count in servers.requests]


@pytest.mark.parametrize(
    "status",
    [{"completed_unacknowledged": 9}, {"completed_unacknowledged_attempts": [], "completed_unacknowledged": 4}, None],
    ids=["a count without a list", "a list that is not counted", "no status"],
)
def test_an_agent_that_does_not_say_what_it_holds(status) -> None:
    """The batch is halved until the unknown ones stand alone. They are not settled: it may hold their results after all."""
    servers = Servers({"a": ["x1", "x2", "x3", "x4"]}, forgotten={"x3"}, owned={"x3"})
    servers.status = status
    with pytest.raises(CkptctlError, match="does not tell which results it holds|cannot be reached"):
        drain(servers)

    assert [4, 2, 2, 1, 1] == [count for _, count in servers.requests if count]
    assert "x3" in {item.receipt.rollout_id for item in servers.owed}


def test_a_result_that_its_agent_holds_is_not_settled() -> None:
    """It refuses the receipt and lists the result: settled, it would block every later prepare (seed 11403)."""
    servers = Servers({"a": ["x1", "x2"]}, forgotten={"x2"}, owned={"x2"})
    held = [receipt("x2").model_dump(include={"rollout_id", "attempt_index"})]
    servers.status = {"completed_unacknowledged": 1, "completed_unacknowledged_attempts": held}
    with pytest.raises(
        AcknowledgementRefusedError, match="refuses the receipt of x2 attempt 0 .* and holds that result"
    ):
        drain(servers)

    assert "x2" in {item.receipt.rollout_id for item in servers.owed}


def test_each_refused_receipt_keeps_its_own_reason() -> None:
    """Two are contested: the first is named, with what the agent said of the first."""
    servers = Servers({"a": ["x1", "x2"]}, forgotten={"x1", "x2"}, owned={"x1", "x2"})
    held = [receipt(name).model_dump(include={"rollout_id", "attempt_index"}) for name in ("x1", "x2")]
    servers.status = {"completed_unacknowledged": 2, "completed_unacknowledged_attempts": held}
    servers.why = lambda receipts: f"{receipts[0].rollout_id} has another receipt"
    with pytest.raises(AcknowledgementRefusedError, match="receipt of x1 attempt 0 .x1 has another receipt. and holds"):
        drain(servers)


def test_what_is_owed_again_is_not_delivered_for_ever() -> None:
    """A controller that keeps what it said was confirmed, or settled, is told at once, and which result it is."""
    for forgotten in (set(), {"x"}):
        servers = Servers({"a": ["x"]}, forgotten=forgotten, owned=forgotten)
        kept = list(servers.owed)
        take = servers.acknowledgements

        async def keep(*, servers=servers, kept=kept, take=take, **page):
            servers.owed = list(kept)
            return await take(**page)

        servers.acknowledgements = keep
        with pytest.raises(MalformedReplyError, match="1 completed result came back .* x attempt 0"):
            drain(servers)


def test_what_nobody_owns_cannot_be_resolved() -> None:
    """A result that neither the agent nor the ledger has is lost: the snapshot stops."""
    for owed in ({"a": ["x"]}, {"gone_agent": ["x"]}):
        with pytest.raises(AcknowledgementRefusedError, match="1 completed result known neither to it nor to ledger"):
            drain(Servers(owed, forgotten={"x"}))


def test_another_echo_is_not_confirmed() -> None:
    """Invariant 87: what comes back must be what was sent, as a set of whole receipts."""
    servers = Servers({"a": ["x1", "x2"]})
    servers.echo = lambda receipts: [*receipts[:1], receipt("other")]
    with pytest.raises(MalformedReplyError, match="acknowledged something else than was sent"):
        drain(servers)

    assert 2 == len(servers.owed)
    reordered = Servers({"a": ["x1", "x2"]})
    reordered.echo = lambda receipts: receipts[::-1]
    drain(reordered)
    assert [] == reordered.owed


def test_an_outbox_that_never_empties_runs_into_the_deadline() -> None:
    """A run whose rollouts keep ending does not make ckptctl wait for ever, nor busily."""
    servers = Servers({"a": ["x0"]})

    async def another(receipts):
        number = len(servers.requests)
        servers.owed = [Acknowledgement(agent_name="a", receipt=receipt(f"x{number}"))]
        return ConfirmReply(removed=1, unknown=[], remaining=1)

    servers.confirm = another
    with pytest.raises(TimedOutError, match="completed results keep coming"):
        drain(servers)

    assert len(servers.requests) < 50
