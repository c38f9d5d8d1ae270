"""Environment `genrm`: the siblings of a group are judged against each other, when all of them have registered their answers.

The judge's memory of a group is in its process and nowhere else (restart_only): after a restart every sibling that had
registered begins again from its task, for the others nothing is lost. An answer is kept by rollout, so a sibling that registers
again, as another attempt, replaces its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ckptctl.domain.ids import is_id
from ckptctl.sim.directory import LOOKUP
from ckptctl.sim.outcome import Call, Outcome, RouteKind
from ckptctl.sim.policy_text import Item, PolicyTurn, function_call, message

REGISTER, VERDICT = "register", "verdict"
NOT_YET = 409


class Judge:
    """Session state: `answer`. What it knows of groups is its own."""

    routes: Mapping[str, RouteKind] = {REGISTER: "start", VERDICT: "read", "verify": "terminal"}

    def __init__(self) -> None:
        self._answers: dict[str, dict[str, str]] = {}
        """Group -> rollout -> answer."""
        self._siblings: dict[str, int] = {}

    def call(self, call: Call) -> Outcome:
        """Take an answer, say whether the group is complete, or give the reward."""
        state, group = call.state, group_of(call.rollout_id)
        if call.route == REGISTER:
            return self._register(group, call.rollout_id, call.body)
        answers = self._answers.get(group, {})
        is_ready = state is not None and len(answers) == self._siblings.get(group)
        if call.route == VERDICT:
            return Outcome({"ready": is_ready, "registered": len(answers)}, state)
        if not is_ready:
            return Outcome({"error": f"{len(answers)} siblings have registered, not all"}, state, status=NOT_YET)
        reward = rewards_of(answers)[call.rollout_id]
        return Outcome({"reward": reward, "state": {"rollout": call.rollout_id, "answers": dict(answers)}}, state)

    def forget(self, rollout_id: str, state: dict[str, Any] | None) -> None:
        """A judge's sessions are never retired: it has no such route."""

    def _register(self, group: str, rollout_id: str, body: Mapping[str, Any]) -> Outcome:
        answer, siblings = body.get("answer"), body.get("siblings")
        if not isinstance(answer, str) or not isinstance(siblings, int) or siblings < 1 or not is_id(rollout_id):
            return Outcome({"error": "answer, siblings and a rollout must be given"}, status=422)
        self._siblings[group] = siblings
        self._answers.setdefault(group, {})[rollout_id] = answer
        # Not how many there are: that depends on who came first, and a transcript must not.
        return Outcome({"registered": True}, {"answer": answer})


def group_of(rollout_id: str) -> str:
    """The group that a rollout belongs to."""
    return rollout_id.rpartition("_g")[0] or rollout_id


def rewards_of(answers: Mapping[str, str]) -> dict[str, float]:
    """Each answer is compared with each other one; the reward is the share of comparisons that it wins. A lone one gets 1."""
    strength = {rollout: _strength(rollout, answer) for rollout, answer in answers.items()}
    others = len(answers) - 1
    return {
        rollout: 1.0 if not others else sum(mine > other for other in strength.values()) / others
        for rollout, mine in strength.items()
    }


def _strength(rollout: str, answer: str) -> bytes:
    return hashlib.sha256(f"{answer}\x00{rollout}".encode()).digest()


def respond(turn: PolicyTurn) -> list[Item]:
    """Look something up in every turn but the last, which registers the answer."""
    steps = int(turn.parameters["steps"])
    step = turn.turn_index
    thought = message("assistant", f"thought {step}: {turn.words('thought', 3)}")
    if step < steps - 1:
        return [thought, function_call(turn, 0, LOOKUP, {"name": turn.words("name", 1)})]
    answer = {"answer": turn.words("answer", 6), "siblings": int(turn.parameters["siblings"])}
    return [thought, function_call(turn, 0, REGISTER, answer)]
