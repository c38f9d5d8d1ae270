"""What `inspect --rollout` found, for people: snapshot by snapshot, newest first; what a restore would do comes first.

A rollout that says the same in an older snapshot is still told in full: how it moved is what one looks for. JSON has all tags.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from ckptctl.domain.amounts import duration, plural
from ckptctl.domain.rollout_story import (
    RolloutInspection,
    RolloutStory,
    StoryAttempt,
    StoryBoundary,
    StoryCall,
    StoryFate,
    StoryRow,
    StorySession,
)
from ckptctl.domain.safe_text import safe
from ckptctl.render.console import draw_table, open_table, render, say
from ckptctl.render.report_words import SEVERITY_STYLE, VERDICT_STYLE, group_findings

DECISIONS = {
    "continue": "continues it",
    "restart": "starts it again from its task",
    "reuse": "keeps its result",
    "finished": "keeps its finished group",
    "nothing": "does nothing with it",
    "refused": "is refused",
}
FATE_STYLE = {"continue": "green", "reuse": "green", "finished": "green", "refused": "red"}
ROW_STATES = {
    "stored": "stored",
    "not_produced": "! not produced",
    "dangling": "! not stored",
    "missing": "! missing",
    "not_known": "? cannot be read",
}
NO_GROUP = "neither the ledger nor a finished group names it"
LEDGERS = ("rollout_recovery.pt", "replay_buffer_metadata.pt")
ROWS_SHOWN = 20
FINDINGS_SHOWN = 5


def rollout_text(
    result: RolloutInspection, *, verbose: int = 0, to_terminal: bool | None = None, width: int | None = None
) -> str:
    """The whole answer."""

    def draw(console: Console) -> None:
        every = len(result.stories) + len(result.absent_from)
        where = "" if every == 1 else f": named by {len(result.stories):,} of {plural(every, 'snapshot')}, newest first"
        say(console, f"rollout {safe(result.rollout_id)} in {safe(result.path)}{where}", 0, style="bold")
        for story in result.stories:
            console.print()
            _draw_story(console, story, verbose)
        if result.absent_from:
            console.print()
            say(console, f"not named by {', '.join(safe(name) for name in result.absent_from)}", 0, style="dim")

    return render(draw, to_terminal=to_terminal, width=width)


def _draw_story(console: Console, story: RolloutStory, verbose: int) -> None:
    head = Text(safe(story.snapshot), style="bold")
    age = "" if story.age_s is None else f", written {duration(story.age_s)} ago"
    head.append(f"{age}: ", style="not bold")
    head.append(story.verdict, style=VERDICT_STYLE[story.verdict])
    say(console, head, 0)
    _draw_fate(console, story.fate)
    _draw_place(console, story)
    groups = group_findings(story.findings)
    for group in groups[:FINDINGS_SHOWN]:
        line = Text(f"{group.first.severity}[{group.first.rule}]", style=SEVERITY_STYLE[group.first.severity])
        more = f" (and {group.count - 1:,} more like this)" if group.count > 1 else ""
        say(console, line.append(f" {safe(group.first.message)}{more}", style="default"))
    if len(groups) > FINDINGS_SHOWN:
        say(console, f"and {plural(len(groups) - FINDINGS_SHOWN, 'kind')} more of findings that name it")
    for problem in story.unread[:FINDINGS_SHOWN]:
        say(console, f"not shown: {safe(problem)}", style="yellow")
    if story.reserve:
        say(
            console,
            "not shown: replacement_reserve.pt (prompts not yet dispatched), which is never decoded",
            style="dim",
        )
    for attempt in story.attempts:
        _draw_attempt(console, attempt, unlisted(story), verbose)


def unlisted(story: RolloutStory) -> str:
    """What to call the state of an attempt of which no ledger tells."""
    if story.finished is not None:
        return "of the finished group"
    return "state not known" if _is_unread(story) else "not in the ledger"


def _is_unread(story: RolloutStory) -> bool:
    return any(text.startswith(LEDGERS) for text in story.unread)


def _draw_fate(console: Console, fate: StoryFate) -> None:
    numbers = ""
    if fate.replacement_attempt is not None:
        again = fate.replacement_attempt == fate.source_attempt
        numbers = (
            f", still as attempt {fate.replacement_attempt}"
            if again
            else f": attempt {fate.source_attempt} becomes {fate.replacement_attempt}"
        )
    line = Text("restore ")
    line.append(DECISIONS[fate.decision], style=FATE_STYLE.get(fate.decision, "yellow"))
    say(console, line.append(f"{numbers} ({safe(fate.reason)})"))
    if fate.drops_boundary:
        say(console, "its boundary is discarded on every agent", 4)
    if fate.cleared_rows:
        say(console, f"clears {plural(len(fate.cleared_rows), 'staged row')}: {_names(fate.cleared_rows)}", 4)
    if fate.kept_rows:
        say(console, f"keeps {plural(len(fate.kept_rows), 'staged row')} that others need: {_names(fate.kept_rows)}", 4)
    if fate.unclaimed_sessions:
        say(console, f"! nobody claims its session on {_names(fate.unclaimed_sessions)}", 4, style="yellow")


def _draw_place(console: Console, story: RolloutStory) -> None:
    group, done = story.group, story.finished
    if group is not None:
        agent = "" if group.agent is None else f", agent {safe(group.agent)}"
        step = "" if group.target_step is None else f", for step {group.target_step}"
        told = f"group {safe(group.group_id)}: {safe(group.status)}, {safe(group.granularity)}, {safe(group.phase)}"
        say(console, f"{told}{agent}{step}, begun with weights {group.start_weight_version}")
        number = f"number {group.generation_index} of {group.expected_generations}"
        prompt = f"prompt {safe(group.prompt_id)}, sample {safe(group.sample_id)}"
        say(console, f"{number}, {prompt}", 4)
        others = [f"{_short(name, group.group_id)} {safe(state)}" for name, state in group.siblings.items()]
        say(console, f"siblings: {'; '.join(others)}", 4)
    if done is not None:
        step = "" if done.target_step is None else f", for step {done.target_step}"
        route = (
            "" if done.route_plan_rows is None else f", route plan over {plural(done.route_plan_rows, 'staged row')}"
        )
        say(
            console,
            f"finished group {safe(done.group_id)}: weights {done.start_weight} to {done.end_weight}{step}{route}",
        )
        say(console, f"canonical row {safe(done.row.key)}: {_row_state(done.row)}", 4)
    if group is None and done is None:
        told = "nothing that can be read names its group" if _is_unread(story) else NO_GROUP
        say(console, told, style="yellow")


def _short(name: str, group_id: str) -> str:
    """A sibling is called by what follows its group's id."""
    return safe(name.removeprefix(group_id)) if name.startswith(f"{group_id}_") else safe(name)


def _draw_attempt(console: Console, attempt: StoryAttempt, otherwise: str, verbose: int) -> None:
    console.print()
    head = Text(f"attempt {attempt.attempt_index}", style="bold")
    facts = [safe(attempt.status) if attempt.status else otherwise]
    facts += ["current"] if attempt.is_current else []
    facts += ["told to be over"] if attempt.is_tombstone else []
    say(console, head.append(f"  {', '.join(facts)}", style="not bold"))
    say(console, f"capture key {safe(attempt.capture_key)}", 4, style="dim")
    if attempt.result is not None:
        masked = ", masked" if attempt.mask_sample else ""
        reward = "" if attempt.reward is None else f", reward {attempt.reward:g}"
        say(console, f"result {safe(attempt.result)}{reward}{masked}", 4)
    if attempt.owed_to is not None:
        say(console, f"acknowledgement owed to {safe(attempt.owed_to)}", 4, style="yellow")
    if attempt.boundary is not None:
        say(console, _boundary(attempt.boundary), 4)
    for session in attempt.sessions:
        say(console, _session(session), 4)
    _draw_calls(console, attempt, verbose)
    _draw_rows(console, attempt, verbose)


def _boundary(found: StoryBoundary) -> str:
    after = "before the first model call" if found.last_call is None else f"after {safe(found.last_call)}"
    action = "" if found.pending_action is None else f", action {found.pending_action} of its answer is next"
    wants = "dependencies not recorded"
    if found.revisions is not None:
        named = ", ".join(f"{safe(server)} at revision {revision}" for server, revision in found.revisions.items())
        wants = f"needs {named}" if named else "needs no session"
    return (
        f"boundary {found.boundary_index} ({safe(found.kind)}, turn {found.turn_index}) {after}{action}; {wants}; "
        f"saved by {safe(found.agent)}"
    )


def _session(found: StorySession) -> str:
    wanted = "! no boundary needs it"
    if found.wanted_revision == found.revision:
        wanted = "as the boundary needs it"
    elif found.wanted_revision is not None:
        wanted = f"! the boundary needs {found.wanted_revision}"
    answers = plural(found.recorded_answers, "recorded answer")
    return f"session on {safe(found.server_name)} at revision {found.revision} ({wanted}), {answers}"


def _draw_calls(console: Console, attempt: StoryAttempt, verbose: int) -> None:
    if not attempt.calls:
        return
    rows = {row.key: row for row in attempt.rows}
    right = frozenset({"new", "tokens", "weights"})
    table = open_table(
        "    model call", "after", "new", "tokens", "weights", "staged row", right=right, fold=frozenset({"staged row"})
    )
    shown = attempt.calls if verbose else attempt.calls[-ROWS_SHOWN:]
    if len(attempt.calls) > len(shown):
        say(
            console, f"{plural(len(attempt.calls) - len(shown), 'earlier model call')} not shown (`-v`)", 4, style="dim"
        )
    for call in shown:
        table.add_row(
            Text(f"    {safe(call.model_call_id)}"),
            Text(safe(call.parent_call_id or "-")),
            _number(call.new_tokens),
            _number(call.all_tokens),
            _number(call.weight_version),
            Text(_call_row(call, rows)),
        )
    draw_table(console, table)


def _call_row(call: StoryCall, rows: dict[str, StoryRow]) -> str:
    if call.problem is not None:
        return f"none: {safe(call.problem)}"
    row = rows.get(call.staging_key or "")
    told = "none" if call.staging_key is None else "of another attempt" if row is None else _row_state(row)
    return f"{told}  <- boundary" if call.is_boundary else told


def _draw_rows(console: Console, attempt: StoryAttempt, verbose: int) -> None:
    """Rows of which the table of calls does not say everything: no call names them, or others need them, or nobody does."""
    told = {call.staging_key for call in attempt.calls if call.problem is None}
    own = (f"boundary of attempt {attempt.attempt_index}",)
    rows = [row for row in attempt.rows if verbose or row.key not in told or row.needed_by != own]
    if not rows:
        return
    table = open_table("    staged row", "state", "needed by", fold=frozenset({"needed by"}))
    shown = rows if verbose else rows[:ROWS_SHOWN]
    for row in shown:
        needed = ", ".join(safe(text) for text in row.needed_by) or "nobody: a restore drops it"
        table.add_row(Text(f"    {safe(row.key)}"), Text(ROW_STATES[row.state]), Text(needed))
    draw_table(console, table)
    if len(rows) > len(shown):
        say(console, f"and {plural(len(rows) - len(shown), 'row')} more (`-v`, or `--format json`)", 4)


def _row_state(row: StoryRow) -> str:
    fields = f", {plural(row.fields, 'field')}" if row.state == "stored" else ""
    return f"{ROW_STATES[row.state]}{fields}"


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(safe(name) for name in names[:FINDINGS_SHOWN])
    return f"{shown} and {len(names) - FINDINGS_SHOWN:,} more" if len(names) > FINDINGS_SHOWN else shown


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
