"""Environment `workplace`: tables of mails, tasks and calendar events; one sentinel event must be there exactly once.

Every row that the policy adds carries a reference number. The reward is 1 when the sentinel event stands in the calendar
once, every other row once, and what was there at the start is as it was: a repeated or lost mutation gives 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ckptctl.domain.amounts import plural
from ckptctl.sim.directory import LOOKUP
from ckptctl.sim.outcome import Call, Outcome, RouteKind
from ckptctl.sim.policy_text import Item, PolicyTurn, function_call, message

MOST_CALLS_PER_TURN = 2
CREATE_EVENT, SEND_MAIL, ADD_TASK, SEARCH = "create_event", "send_mail", "add_task", "search_events"
TABLE_OF = {CREATE_EVENT: "calendar", SEND_MAIL: "mails", ADD_TASK: "tasks"}
COLUMNS = {
    CREATE_EVENT: ("ref", "title", "at"),
    SEND_MAIL: ("ref", "to", "subject"),
    ADD_TASK: ("ref", "title"),
}
STANDING = ({"id": 1, "ref": None, "title": "weekly review", "at": "mon 10:00"},)
"""What every calendar holds before anybody did anything."""


def sentinel_title(rollout_id: str) -> str:
    """The title of the one event that a rollout must create; no other rollout's is called so."""
    return f"sentinel {rollout_id}"


def plan_of(steps: int) -> tuple[str, ...]:
    """The action of each step: a lookup, work that changes tables, the sentinel event half-way, a search at the end."""
    half = steps // 2
    work = [SEND_MAIL if step % 2 else ADD_TASK for step in range(steps)]
    if steps > 1:
        work[0] = LOOKUP
    if steps > 3:
        work[-1] = SEARCH
    work[half] = CREATE_EVENT
    return tuple(work)


class WorkplaceEnvironment:
    """Tables. Session state: `steps`, `calendar`, `mails`, `tasks`."""

    routes: Mapping[str, RouteKind] = {
        "seed_session": "start",
        CREATE_EVENT: "mutation",
        SEND_MAIL: "mutation",
        ADD_TASK: "mutation",
        SEARCH: "read",
        "verify": "terminal",
    }

    def call(self, call: Call) -> Outcome:
        """Seed, add a row, search or verify."""
        route, state = call.route, call.state
        if route == "seed_session":
            steps = call.body.get("parameters", {}).get("steps")
            if not isinstance(steps, int) or steps < 1:
                return Outcome({"error": "parameters.steps must be a number >= 1"}, status=422)
            tables = {"calendar": [dict(row) for row in STANDING], "mails": [], "tasks": []}
            return Outcome({"tables": sorted(tables)}, {"steps": steps, **tables})
        if state is None:
            return Outcome({"error": "the session was not seeded"}, status=404)
        if route in TABLE_OF:
            return _insert(route, state, call.body)
        if route == SEARCH:
            wanted = str(call.body.get("title", ""))
            found = [row for row in state["calendar"] if wanted in row["title"]]
            return Outcome({"events": found}, state)
        problems = list(table_problems(state, call.rollout_id))
        return Outcome({"reward": 0.0 if problems else 1.0, "problems": problems, "state": state}, state)

    def forget(self, rollout_id: str, state: dict[str, Any] | None) -> None:
        """Nothing outlives the session."""


def _insert(route: str, state: dict[str, Any], body: Mapping[str, Any]) -> Outcome:
    missing = [name for name in COLUMNS[route] if name not in body]
    if missing:
        return Outcome({"error": f"{', '.join(missing)} must be given"}, status=422)
    table = TABLE_OF[route]
    rows = state[table]
    row = {"id": len(rows) + 1, **{name: body[name] for name in COLUMNS[route]}}
    return Outcome({"id": row["id"]}, {**state, table: [*rows, row]})


def table_problems(state: Mapping[str, Any], rollout_id: str) -> Iterable[str]:
    """What is wrong with the tables of a finished rollout, in words."""
    calendar = list(state["calendar"])
    if calendar[: len(STANDING)] != list(STANDING):
        yield "the standing events were changed"
    sentinels = [row for row in calendar if row["title"] == sentinel_title(rollout_id)]
    if len(sentinels) != 1:
        yield f"the sentinel event is there {plural(len(sentinels), 'time')}"
    for route, table in TABLE_OF.items():
        wanted = [step for step, action in enumerate(plan_of(state["steps"])) if action == route]
        found = sorted(row["ref"] for row in state[table] if row["ref"] is not None)
        if found != wanted:
            yield f"{table}: the rows are {found}, not each of {wanted} once"


def respond(turn: PolicyTurn) -> list[Item]:
    """One or two more steps of the plan per turn; when all are done, say so and end."""
    actions = plan_of(int(turn.parameters["steps"]))
    done = sum(item.get("type") == "function_call" for item in turn.items)
    if done >= len(actions):
        return [message("assistant", f"all {len(actions)} steps are done: {turn.words('end', 4)}")]
    calls = min(len(actions) - done, 1 + turn.draw("calls", MOST_CALLS_PER_TURN))
    thought = message("assistant", f"step {done} of {len(actions)}: {turn.words('thought', 3)}")
    steps = range(done, done + calls)
    return [
        thought,
        *(function_call(turn, step - done, actions[step], _arguments(turn, step, actions[step])) for step in steps),
    ]


def _arguments(turn: PolicyTurn, step: int, action: str) -> dict[str, Any]:
    title = sentinel_title(turn.rollout_id)
    words = turn.words(f"step {step}", 2)
    arguments: dict[str, dict[str, Any]] = {
        LOOKUP: {"name": words.split(" ")[0]},
        CREATE_EVENT: {"ref": step, "title": title, "at": "fri 14:00"},
        SEND_MAIL: {"ref": step, "to": f"{words.split(' ')[0]}@example.org", "subject": words},
        ADD_TASK: {"ref": step, "title": words},
        SEARCH: {"title": title},
    }
    return arguments[action]
