"""What `inspect --diff` found, for people: what nobody expects first, then losses, then the rest. Signs, not only colours.

Long lists are cut, which is said; JSON has them whole.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from ckptctl.domain.amounts import plural, size
from ckptctl.domain.safe_text import safe
from ckptctl.domain.snapshot_diff import KIND_ORDER, Change, ChangeKind, ComparedSnapshot, Measure, SnapshotDiff
from ckptctl.render.console import draw_table, open_table, render, say
from ckptctl.render.report_words import VERDICT_STYLE

TITLES: dict[ChangeKind, str] = {
    "unexpected": "unexpected: nothing that a run does explains it",
    "lost": "lost: done again, or given up",
    "changed": "changed",
    "progressed": "progressed",
}
SIGNS: dict[ChangeKind, str] = {"unexpected": "!", "lost": "-", "changed": "~", "progressed": "+"}
STYLES: dict[ChangeKind, str] = {"unexpected": "bold red", "lost": "yellow", "changed": "", "progressed": "green"}
SHOWN = 20
UNREAD_SHOWN = 5


def diff_text(
    result: SnapshotDiff, *, verbose: int = 0, to_terminal: bool | None = None, width: int | None = None
) -> str:
    """The whole answer."""

    def draw(console: Console) -> None:
        say(console, _summary(result), 0)
        for name, side in (("older", result.older), ("newer", result.newer)):
            _draw_side(console, name, side)
        if result.is_swapped:
            say(console, "given the other way round; their names tell the order", style="dim")
        if result.rewound_to is not None:
            say(console, f"between the two a restore went back to {safe(result.rewound_to)}", style="yellow")
        for kind in KIND_ORDER:
            _draw_changes(console, kind, [item for item in result.changes if item.kind == kind], verbose)
        _draw_measures(console, result.measures)

    return render(draw, to_terminal=to_terminal, width=width)


def _summary(result: SnapshotDiff) -> Text:
    unexpected = result.counts["unexpected"]
    head = Text("diff: ", style="bold")
    words = f"{plural(unexpected, 'unexpected change')}" if unexpected else "nothing unexpected"
    head.append(words, style="bold red" if unexpected else "bold green")
    rest = ", ".join(f"{result.counts[kind]:,} {kind}" for kind in KIND_ORDER[1:] if result.counts[kind])
    if not rest and not unexpected:
        rest = "no difference in what rollouts did"
    return head.append(f"; {rest}" if rest else "", style="not bold")


def _draw_side(console: Console, name: str, side: ComparedSnapshot) -> None:
    line = Text(f"{name}: {safe(side.path)}, ")
    line.append(side.verdict, style=VERDICT_STYLE[side.verdict])
    line.append("" if side.written_at is None else f", written {_moment(side.written_at)}")
    say(console, line)
    for problem in side.unread[:UNREAD_SHOWN]:
        say(console, f"not compared: {safe(problem)}", 4, style="yellow")
    if len(side.unread) > UNREAD_SHOWN:
        say(console, f"and {plural(len(side.unread) - UNREAD_SHOWN, 'part')} more", 4, style="yellow")


def _draw_changes(console: Console, kind: ChangeKind, found: list[Change], verbose: int) -> None:
    if not found:
        return
    console.print()
    say(console, f"{TITLES[kind]} ({len(found):,})", 0, style="bold")
    shown = found if verbose or kind == "unexpected" else found[:SHOWN]
    for item in shown:
        values = (
            "" if item.before is None and item.after is None else f": {_value(item.before)} -> {_value(item.after)}"
        )
        line = Text(f"{SIGNS[kind]} ", style=STYLES[kind])
        area = "" if item.area == "run" else f"{item.area} "  # the subject says it: `train step`
        line.append(f"{area}{safe(item.subject)}", style=STYLES[kind] or "default")
        say(console, line.append(f" {safe(item.message)}{values}", style="default not bold"))
    if len(found) > len(shown):
        say(console, f"and {len(found) - len(shown):,} more (`-v`, or `--format json`)")


def _draw_measures(console: Console, measures: tuple[Measure, ...]) -> None:
    console.print()
    table = open_table(
        "  in numbers", "older", "newer", "difference", right=frozenset({"older", "newer", "difference"})
    )
    for item in measures:
        told = size if item.name == "bytes" else "{:,}".format
        known = item.before is not None and item.after is not None
        moved = (item.after or 0) - (item.before or 0)
        table.add_row(
            Text(f"  {safe(item.name)}"),
            "?" if item.before is None else told(item.before),
            "?" if item.after is None else told(item.after),
            _moved(moved, is_bytes=item.name == "bytes") if known else "?",
        )
    draw_table(console, table)


def _moved(value: int, *, is_bytes: bool) -> str:
    if not value:
        return "="
    sign = "+" if value > 0 else "-"
    return f"{sign}{size(abs(value)) if is_bytes else f'{abs(value):,}'}"


def _value(value: str | None) -> str:
    return "none" if value is None else safe(value)


def _moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "at a time that no calendar has"
