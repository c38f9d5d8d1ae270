"""What each environment promises of a finished rollout: its reward, its final state, and what the audit log says was done.

Compared with nothing but itself; whether another run came to the same is `equivalence`'s question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ckptctl.sim import genrm, workplace
from ckptctl.sim.run_history import Line, Mutation

Promise = Callable[[Line, Sequence[Mutation]], Iterator[str]]


def _counter(result: Line, _: Sequence[Mutation]) -> Iterator[str]:
    state: dict[str, Any] = result["final_state"] or {}
    asked = state.get("asked")
    if state.get("count") != asked:
        yield f"counted to {state.get('count')} of {asked}"
    if not isinstance(asked, int) or sorted(state.get("tickets", ())) != list(range(asked)):
        yield f"the tickets are {state.get('tickets')}, not each of {asked} once"
    if result["reward"] != 1.0:
        yield f"the reward is {result['reward']}"


def _workplace(result: Line, played: Sequence[Mutation]) -> Iterator[str]:
    yield from workplace.table_problems(result["final_state"], result["rollout_id"])
    created = sum(mutation.route == workplace.CREATE_EVENT for mutation in played)
    if created != 1:
        yield f"the audit log has {created} created events, not one"
    if result["reward"] != 1.0:
        yield f"the reward is {result['reward']}"


def _genrm(result: Line, played: Sequence[Mutation]) -> Iterator[str]:
    answers: dict[str, str] = result["final_state"]["answers"]
    group = {rollout for rollout in answers if genrm.group_of(rollout) == result["group_id"]}
    if group != answers.keys() or result["rollout_id"] not in group:
        yield f"it was judged among {sorted(answers)}"
    elif result["reward"] != genrm.rewards_of(answers)[result["rollout_id"]]:
        yield f"the reward is {result['reward']}, not what its answer is worth among its siblings'"
    registered = sum(mutation.route == genrm.REGISTER for mutation in played)
    if registered != 1:
        yield f"the audit log has {registered} registrations, not one"


PROMISES: dict[str, Promise] = {"counter": _counter, "genrm": _genrm, "workplace": _workplace}
