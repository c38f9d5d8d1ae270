"""What a restore did or would do, for people: the snapshot, why others were not used, and every rollout with its reason.

The JSON answer holds all of it. Here long lists of what only concerns the next snapshot are cut unless more is asked for.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from ckptctl.domain.amounts import plural
from ckptctl.domain.restore import RestoreResult
from ckptctl.domain.safe_text import safe
from ckptctl.render.console import draw_table, open_table, render, say
from ckptctl.render.transaction_text import draw_steps

SHOWN = 10
"""How many sessions are listed without `--verbose`."""
HEADS = {
    "restored": ("restored: ", "everybody is resumed, admission is open"),
    "planned": ("planned: ", "nothing was changed"),
    "selected": ("selected: ", "nothing was changed"),
    "trainer_checkpoint": ("nothing to restore: ", ""),
}


def restore_text(
    result: RestoreResult, *, verbose: int = 0, to_terminal: bool | None = None, width: int | None = None
) -> str:
    """The whole answer."""

    def draw(console: Console) -> None:
        _draw_head(console, result)
        if result.outcome != "trainer_checkpoint":
            _draw_plan(console, result)
            _draw_rollouts(console, result)
            _draw_rest(console, result, verbose)
        for warning in result.warnings:
            say(console, f"warning: {safe(warning)}", style="yellow")
        if verbose and result.steps:
            draw_steps(console, result.steps)

    return render(draw, to_terminal=to_terminal, width=width)


def _draw_head(console: Console, result: RestoreResult) -> None:
    title, meaning = HEADS[result.outcome]
    head = Text(title, style="bold green" if result.outcome == "restored" else "bold")
    head.append(meaning or safe(result.reason), style="not bold default")
    say(console, head, 0)
    facts = (
        ("snapshot", result.snapshot),
        ("saved under checkpoint id", result.saved_checkpoint_id),
        ("restored under id", result.checkpoint_id),
    )
    for name, value in facts:
        if value:
            say(console, f"{name}: {safe(value)}")
    for item in result.rejected:
        say(console, f"not used: {safe(item.snapshot)}: {safe(item.reason)}", style="yellow")


def _draw_plan(console: Console, result: RestoreResult) -> None:
    if not result.plan:
        return
    say(console, "steps:")
    for step in result.plan:
        targets = f": {', '.join(safe(name) for name in step.targets)}" if step.targets else ""
        say(console, f"{step.number:<4} {step.name}{targets}", 4)


def _draw_rollouts(console: Console, result: RestoreResult) -> None:
    is_done = result.outcome == "restored"
    continued = sum(item.mode == "continue" for item in result.rollouts)
    counts = (
        f"{continued:,} {'continued' if is_done else 'to continue'}",
        f"{len(result.rollouts) - continued:,} {'restarted' if is_done else 'to restart'}",
        f"{len(result.reused):,} finished and reused",
        *([f"{result.dispatched:,} handed to the dispatcher"] if is_done else []),
    )
    say(console, f"rollouts: {', '.join(counts)}")
    if not result.rollouts:
        return
    table = open_table("  rollout", "attempt", "mode", "why", fold=frozenset({"why"}))
    for item in result.rollouts:
        table.add_row(
            f"  {safe(item.rollout_id)}",
            f"{item.source_attempt} -> {item.replacement_attempt}",
            Text(item.mode, style="green" if item.mode == "continue" else "yellow"),
            safe(item.reason),
        )
    draw_table(console, table)


def _draw_rest(console: Console, result: RestoreResult, verbose: int) -> None:
    is_done = result.outcome == "restored"
    if result.discards:
        verb = "discarded" if is_done else "to be discarded"
        say(console, f"{plural(len(result.discards), 'restored continuation')} {verb} on every agent")
    if result.cleared_staging_keys:
        verb = "cleared" if is_done else "to be cleared"
        say(console, f"{plural(len(result.cleared_staging_keys), 'staged row')} {verb}")
    if result.kept_shared_keys:
        noun = plural(len(result.kept_shared_keys), "staged row")
        say(console, f"{noun} kept, because something else needs what a discarded continuation needed")
    sessions = result.unclaimed_sessions
    if not sessions:
        return
    noun = plural(
        len(sessions), "restored session that no continuation claims", "restored sessions that no continuation claims"
    )
    say(console, f"{noun}, remembered for the next snapshot:", style="yellow")
    shown = sessions if verbose else sessions[:SHOWN]
    for session in shown:
        say(console, f"{safe(session.server_name)}: {safe(session.rollout_id)} attempt {session.attempt_index}", 4)
    if len(shown) < len(sessions):
        say(console, f"and {len(sessions) - len(shown):,} more (`--verbose` lists them all)", 4)
