"""Environment `counter`: only the right count, with every ticket exactly once, earns the reward.

Each increment carries a ticket. A mutation that is replayed shows as a ticket seen twice, a lost one as a ticket missing; both
give reward 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckptctl.sim.outcome import Call, Outcome, RouteKind
from ckptctl.sim.policy_text import Item, PolicyTurn, function_call, message

MOST_CALLS_PER_TURN = 2


class CounterEnvironment:
    """Counts. Session state: `asked`, `count`, `tickets` in the order of arrival."""

    routes: Mapping[str, RouteKind] = {
        "seed_session": "start",
        "increment": "mutation",
        "count": "read",
        "verify": "terminal",
    }

    def call(self, call: Call) -> Outcome:
        """Seed, increment, read or verify."""
        state = call.state
        if call.route == "seed_session":
            return self._seed(call.body)
        if state is None:
            return Outcome({"error": "the session was not seeded"}, status=404)
        if call.route == "increment":
            return self._increment(state, call.body)
        if call.route == "count":
            return Outcome({"count": state["count"]}, state)
        tickets = list(range(state["asked"]))
        reward = 1.0 if state["count"] == state["asked"] and sorted(state["tickets"]) == tickets else 0.0
        return Outcome({"reward": reward, "state": state}, state)

    def forget(self, rollout_id: str, state: dict[str, Any] | None) -> None:
        """Nothing outlives the session."""

    def _seed(self, body: Mapping[str, Any]) -> Outcome:
        asked = body.get("parameters", {}).get("increments")
        if not isinstance(asked, int) or asked < 0:
            return Outcome({"error": "parameters.increments must be a number >= 0"}, status=422)
        return Outcome({"count": 0}, {"asked": asked, "count": 0, "tickets": []})

    def _increment(self, state: dict[str, Any], body: Mapping[str, Any]) -> Outcome:
        by, ticket = body.get("by"), body.get("ticket")
        if not isinstance(by, int) or not isinstance(ticket, int):
            return Outcome({"error": "by and ticket must be numbers"}, status=422)
        count = state["count"] + by
        return Outcome({"count": count}, {**state, "count": count, "tickets": [*state["tickets"], ticket]})


def respond(turn: PolicyTurn) -> list[Item]:
    """Ask for one or two more increments per turn; when all were asked for, say so and end."""
    asked = int(turn.parameters["increments"])
    done = sum(item.get("type") == "function_call" for item in turn.items)
    if done >= asked:
        return [message("assistant", f"counted to {asked}: {turn.words('end', 4)}")]
    calls = min(asked - done, 1 + turn.draw("calls", MOST_CALLS_PER_TURN))
    thought = message("assistant", f"{done} of {asked}: {turn.words('thought', 3)}")
    steps = range(done, done + calls)
    return [thought, *(function_call(turn, at - done, "increment", {"by": 1, "ticket": at}) for at in steps)]
