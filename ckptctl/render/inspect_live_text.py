"""The live servers, for people: whether a snapshot would be taken, why not, and who is in which phase."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console
from rich.text import Text

from ckptctl.domain.amounts import duration, plural
from ckptctl.domain.inspection import ControllerView, LiveInspection, ServerView
from ckptctl.domain.safe_text import safe
from ckptctl.render.console import draw_table, open_table, render, say
from ckptctl.render.inspect_snapshot_text import COMPONENTS
from ckptctl.render.inspect_text import draw_control
from ckptctl.render.next_command import with_config

SESSIONS_SHOWN = 20


def live_text(result: LiveInspection, *, to_terminal: bool | None = None, width: int | None = None) -> str:
    """The whole answer."""

    def draw(console: Console) -> None:
        head = Text("live: ", style="bold")
        if result.would_snapshot:
            head.append("ready for a snapshot", style="bold green")
        else:
            head.append("not ready for a snapshot", style="bold red")
            head.append(f" ({plural(len(result.problems), 'reason')})", style="not bold")
        say(console, head, 0)
        say(console, f"configuration {safe(result.config_path)}")
        say(console, f"checkpoint directory {safe(result.checkpoint_dir)}")
        draw_control(console, result, safe(result.config_path))
        for warning in result.warnings:
            say(console, f"warning: {safe(warning)}", style="yellow")
        _draw_problems(console, result)
        _draw_controller(console, result.controller)
        _draw_servers(console, result)
        _draw_unclaimed(console, result)

    return render(draw, to_terminal=to_terminal, width=width)


def _draw_problems(console: Console, result: LiveInspection) -> None:
    for hint, problems in groupby(result.problems, key=lambda problem: problem.hint):
        console.print()
        for problem in problems:
            line = Text(f"error[{problem.code}]:", style="red")
            about = "" if problem.about in problem.message else f"{safe(problem.about)}: "
            line.append(f" {about}{safe(problem.message)}", style="default")
            say(console, line, 0)
        if hint:
            say(console, f"hint: {with_config(safe(hint), safe(result.config_path))}")


def _draw_controller(console: Console, found: ControllerView | None) -> None:
    console.print()
    if found is None:
        say(console, "controller: no answer", 0, style="bold red")
        return
    head = Text("controller: ", style="bold")
    head.append(f"{safe(found.phase)}, admission {safe(found.admission)}", style="not bold")
    if found.active_checkpoint_id:
        head.append(f", held by {safe(found.active_checkpoint_id)}", style="yellow not bold")
    say(console, head, 0)
    say(
        console,
        f"step {found.train_step}, trainer version {found.trainer_version}, epoch {found.epoch}, "
        f"anchor {safe(found.anchor or 'none yet')}, mutation {found.mutation_version}",
    )
    say(
        console,
        f"{plural(found.unfinished_rollouts, 'unfinished rollout')}, "
        f"{plural(found.acknowledgements_pending, 'acknowledgement')} pending, "
        f"data plane {safe(found.data_plane)} in {plural(found.storage_units, 'storage unit')}",
    )
    facts = {
        "waits for a restore": found.restore_expected,
        "publishes a trainer step": found.trainer_busy,
        "takes its own snapshots": found.takes_own_snapshots,
    }
    if any(facts.values()):
        say(console, ", ".join(name for name, holds in facts.items() if holds), style="yellow")


def _draw_servers(console: Console, result: LiveInspection) -> None:
    if not result.servers:
        return
    console.print()
    table = open_table(
        "server",
        "component",
        "mode",
        "phase",
        "workers",
        "work",
        right=frozenset({"workers"}),
        fold=frozenset({"work"}),
    )
    for item in result.servers:
        if not item.is_answering:
            table.add_row(Text(safe(item.server_name)), Text("no answer", style="red"))
            continue
        phase = Text(safe(item.phase or "?"), style="" if item.phase == "idle" else "yellow")
        table.add_row(
            Text(safe(item.server_name)),
            Text(_component(item)),
            Text(safe(item.checkpoint_mode or "?")),
            phase,
            "?" if item.workers is None else str(item.workers),
            Text(_work(item)),
        )
    draw_table(console, table)
    held: dict[str, list[str]] = {}
    for item in result.servers:
        if item.active_checkpoint_id:
            until = "" if item.deadline_ts is None else f" ({_deadline(item.deadline_ts - result.observed_at)})"
            held.setdefault(item.active_checkpoint_id, []).append(f"{safe(item.server_name)}{until}")
    for checkpoint_id, names in held.items():
        say(console, f"held under {safe(checkpoint_id)}:", 0, style="yellow")
        say(console, ", ".join(names), style="yellow")
    if result.topology_fingerprint:
        say(console, f"topology  {result.topology_fingerprint}", 0, style="dim")


def _deadline(left_s: float) -> str:
    return f"deadline in {duration(left_s)}" if left_s >= 0 else f"deadline passed {duration(-left_s)} ago"


def _component(item: ServerView) -> str:
    name = COMPONENTS.get(item.component or "", safe(item.component or "?"))
    if item.component == "responses_api_models":
        return f"{safe(item.instance_role or 'unknown')} model"
    return name


def _work(item: ServerView) -> str:
    told = []
    if item.calls_in_flight is not None:
        told.append(f"{safe(item.admission or '')}, {plural(item.calls_in_flight, 'call')} in flight")
    if item.running is not None:
        told.append(f"{item.running} running, {item.parked or 0} parked")
    if item.sessions is not None:
        told.append(plural(item.sessions, "session"))
    if item.uncertain_sessions:
        told.append(f"! {item.uncertain_sessions} uncertain: only a restart of this server helps")
    return "; ".join(told)


def _draw_unclaimed(console: Console, result: LiveInspection) -> None:
    found = result.unclaimed_sessions
    if not found:
        return
    console.print()
    told = "as the servers say" if found[0].told_by == "servers" else "as the last restore left them, says its journal"
    say(console, f"sessions that no rollout claims ({told})", 0, style="bold")
    right = frozenset({"attempt", "revision", "age"})
    table = open_table("  server", "rollout", "attempt", "revision", "age", right=right)
    for item in found[:SESSIONS_SHOWN]:
        table.add_row(
            Text(f"  {safe(item.server_name)}"),
            Text(safe(item.rollout_id)),
            str(item.attempt_index),
            "-" if item.revision is None else str(item.revision),
            "?" if item.age_s is None else duration(item.age_s),
        )
    draw_table(console, table)
    if len(found) > SESSIONS_SHOWN:
        say(console, f"and {len(found) - SESSIONS_SHOWN:,} more (`--format json`)")
    told = with_config("the next snapshot retires them, and so does `ckptctl gc --sessions`", safe(result.config_path))
    say(console, told, style="dim")
