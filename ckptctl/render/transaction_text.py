"""What `snapshot` and `publish` did, for people.

Outcome first, then what the snapshot holds and how long admission was closed.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from ckptctl.domain.amounts import plural, short_time
from ckptctl.domain.safe_text import safe
from ckptctl.domain.transaction import StepTime, TransactionCounts, TransactionResult
from ckptctl.render.console import draw_table, open_table, render, say

MEANING = {
    "published": "snapshot published, everybody released",
    "released": "the snapshot that an earlier run had published; everybody is released now",
    "restored": "the restore that an earlier run had begun; everybody is resumed, admission is open",
    "aborted": "the unfinished attempt was aborted, everybody is released; the previous snapshot is authoritative",
    "skipped": "no snapshot taken",
    "set_aside": "the damaged journal is out of the way; no server was asked to do anything",
    "retired": "leaked sessions are gone, everybody goes on; no snapshot was asked for",
    "nothing_to_do": "what was asked for is done already",
}
RELEASED_FOREIGN = "everybody who was held under this id is let go; no snapshot was published or removed"
"""Of what no journal here knew: whether there is a snapshot is not known either."""
STYLE = {
    "published": "bold green",
    "released": "bold green",
    "restored": "bold green",
    "aborted": "bold yellow",
    "skipped": "bold",
    "set_aside": "bold yellow",
    "retired": "bold green",
    "nothing_to_do": "bold",
}


SHOWN = 5
"""How many retired sessions are listed without `--verbose`."""


def transaction_text(
    result: TransactionResult, *, verbose: int = 0, to_terminal: bool | None = None, width: int | None = None
) -> str:
    """The whole answer."""

    def draw(console: Console) -> None:
        head = Text(f"{result.outcome.replace('_', ' ')}: ", style=STYLE[result.outcome])
        head.append(_meaning(result), style="default not bold")
        say(console, head, 0)
        if result.reason and result.outcome != "nothing_to_do":
            again = "; `--force` takes one all the same" if result.outcome == "skipped" else ""
            say(console, f"why: {safe(result.reason)}{again}")
        if result.snapshot:
            say(console, f"snapshot: {safe(result.snapshot)}")
        if result.checkpoint_id:
            say(console, f"checkpoint id: {safe(result.checkpoint_id)}")
        if result.counts is not None:
            say(console, f"holds: {counts_line(result.counts)}")
        if result.admission_closed_s is not None:
            say(console, f"admission was closed for {short_time(result.admission_closed_s)}")
        _draw_retired(console, result, verbose=verbose)
        for name in result.removed:
            say(console, f"moved to the trash by retention: {safe(name)}")
        for warning in result.warnings:
            say(console, f"warning: {safe(warning)}", style="yellow")
        if verbose and result.steps:
            draw_steps(console, result.steps)

    return render(draw, to_terminal=to_terminal, width=width)


def _meaning(result: TransactionResult) -> str:
    if result.outcome == "released" and result.snapshot is None:
        return RELEASED_FOREIGN
    if result.outcome == "nothing_to_do" and result.reason:
        return safe(result.reason)
    return MEANING[result.outcome]


def counts_line(counts: TransactionCounts) -> str:
    """What a snapshot holds, in one line."""
    return ", ".join(
        (
            plural(counts.continuations, "continuation"),
            plural(counts.sessions, "resource session"),
            plural(counts.groups, "unfinished group"),
            f"{plural(counts.canonical_rows, 'canonical row')} and {counts.staging_rows:,} staged",
            f"{plural(counts.acknowledgements, 'acknowledgement')} delivered",
        )
    )


def _draw_retired(console: Console, result: TransactionResult, *, verbose: int) -> None:
    """Leaked sessions that are gone, and whose they were."""
    sessions = result.retired_sessions
    if not sessions:
        return
    say(console, f"retired {plural(len(sessions), 'leaked session')}, which no attempt was using:")
    shown = sessions if verbose else sessions[:SHOWN]
    for session in shown:
        whose = f"{safe(session.rollout_id)} attempt {session.attempt_index}"
        say(console, f"{safe(session.server_name)}: {whose}", 4)
    if len(shown) < len(sessions):
        say(console, f"and {len(sessions) - len(shown):,} more (`--verbose` lists them all)", 4)


def draw_steps(console: Console, steps: Iterable[StepTime]) -> None:
    """The steps of a transaction and how long each took."""
    table = open_table("  step", "", "took", right=frozenset({"took"}))
    for step in steps:
        table.add_row(f"  {step.number}", step.name, short_time(step.seconds))
    draw_table(console, table)
