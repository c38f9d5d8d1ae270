"""What `inspect --timings` found, for people: spreads of the published snapshots, and the newest one drawn on a line of time.

Made for 80 columns or more and without colour; a terminal that leaves no room for bars gets the numbers alone. Where the locale
is UTF-8 bars are drawn of blocks, elsewhere of ASCII: `=` while servers were asked, `#` while ckptctl worked by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from ckptctl.domain.amounts import plural, short_time, size
from ckptctl.domain.safe_text import safe
from ckptctl.domain.timings import Spread, StepInTime, StepTimes, TimingsInspection
from ckptctl.planning.snapshot import CLOSE
from ckptctl.render.console import draw_table, has_blocks, open_table, render, say
from ckptctl.render.lines import HANG
from ckptctl.render.timeline import ASCII, BLOCKS, Marks, Scale

BAR = 35
"""Columns of a bar in a pipe: with name and length of a step a line fits 80."""
LEAST_BAR = 10
"""A shorter one tells nothing."""
NAME = 28
BESIDE = NAME + 13
"""What name, length and frame of a bar need, and one column that stays free."""
HISTORY = 12
PUBLISHED = "published"
STATE_WORDS = {"failed": "failed", "unknown": "not ended"}
STATE_STYLE = {"done": "cyan", "failed": "red", "unknown": "yellow"}


def timings_text(
    result: TimingsInspection, *, to_terminal: bool | None = None, width: int | None = None, blocks: bool | None = None
) -> str:
    """The whole answer. `blocks`: whether they may be drawn; without it the locale decides."""
    marks = BLOCKS if (has_blocks() if blocks is None else blocks) else ASCII

    def draw(console: Console) -> None:
        told = ", ".join(f"{count:,} {safe(name)}" for name, count in result.outcomes.items())
        say(console, f"timings of {safe(result.path)}: {told}", 0)
        for warning in result.warnings:
            say(console, f"warning: {safe(warning)}", style="yellow")
        if result.left_out:
            say(console, f"{plural(result.left_out, 'older journal')} left out")
        _draw_window(console, result)
        _draw_steps(console, result.steps)
        _draw_history(console, result, marks)
        _draw_line_of_time(console, result, marks)

    return render(draw, to_terminal=to_terminal, width=width)


def _draw_window(console: Console, result: TimingsInspection) -> None:
    if result.admission_closed_s is None:
        return
    _title(console, f"published snapshots ({result.admission_closed_s.count:,})")
    right = frozenset({"p50", "p95", "max"})
    table = open_table("", "p50", "p95", "max", right=right)
    table.add_row("  admission closed", *_times(result.admission_closed_s))
    table.add_row("  of it between requests", *_times(result.own_s))
    table.add_row("  requests", *_values(result.requests, lambda value: f"{value:,.0f}"))
    table.add_row("  bytes both ways", *_values(result.bytes, lambda value: size(int(value))))
    draw_table(console, table)
    say(console, "between requests: neither asking servers nor save, validation and publication", style="dim")


def _draw_steps(console: Console, steps: tuple[StepTimes, ...]) -> None:
    if not steps:
        return
    console.print()
    titles = ("  step", "p50", "p95", "max", "own p95", "req.", "bytes")
    table = open_table(*titles, right=frozenset(titles[1:]))
    for step in steps:
        requests, data = step.requests, step.bytes
        table.add_row(
            Text(_name(step.number, step.name)),
            *_times(step.seconds),
            "-" if step.own_s is None else short_time(step.own_s.p95),
            "-" if requests is None else f"{requests.p50:.0f}",
            "-" if data is None else size(int(data.p50)),
        )
    draw_table(console, table)


def _draw_line_of_time(console: Console, result: TimingsInspection, marks: Marks) -> None:
    last = result.last
    closed = last.admission_closed_s
    told = "admission is not known to be open again" if closed is None else f"admission closed for {short_time(closed)}"
    recovered = ", finished by another process" if last.is_recovered else ""
    _title(console, f"newest: {safe(last.transaction)}, {safe(last.outcome)}{recovered}, {told}")
    whole_s = max((step.began_s + (step.seconds or 0.0) for step in result.last_steps), default=0.0)
    scale = Scale(whole_s, _columns(console) or 1)
    closing = next((step for step in result.last_steps if step.name == CLOSE), None)
    if closed is not None and closing is not None:
        span = scale.span(closing.began_s, closed, marks)
        _draw_bar(console, "  admission closed", span, short_time(closed))
    for step in result.last_steps:
        length = "-" if step.seconds is None else short_time(step.seconds)
        bar = Text(_bar(step, scale, marks), style=STATE_STYLE[step.state])
        told = length if step.state == "done" or scale.columns > 1 else f"{length}, {STATE_WORDS[step.state]}"
        _draw_bar(console, _name(step.number, step.name), bar, told)
    if scale.columns > 1:
        console.print(Text(f"{'':<{NAME}}  {scale.axis()}".rstrip(), style="dim"))
        fits = not console.is_terminal or len(marks.legend) + HANG <= console.width
        for line in [marks.legend] if fits else marks.legend.split(Marks.BETWEEN):
            say(console, line, style="dim")


def _bar(step: StepInTime, scale: Scale, marks: Marks) -> str:
    seconds = step.seconds or 0.0
    share = (step.waiting_s or 0.0) / seconds if seconds else 0.0
    return scale.bar(step.began_s, seconds, share, step.state, marks)


def _columns(console: Console) -> int:
    """Columns of a bar: what name and length leave of a terminal's line, 0 for too few of them; in a pipe `BAR`."""
    if not console.is_terminal:
        return BAR
    left = console.width - BESIDE
    return left if left >= LEAST_BAR else 0


def _draw_bar(console: Console, name: str, bar: Text | str, length: str) -> None:
    """A bar between its name and its length."""
    if _columns(console):
        console.print(Text.assemble(f"{name:<{NAME}} |", bar, f"| {length:>8}"))
    else:
        say(console, f"{name.strip()}: {length}")


def _draw_history(console: Console, result: TimingsInspection, marks: Marks) -> None:
    """How long admission was closed in each of the last transactions, the newest last."""
    shown = [item for item in result.transactions if item.admission_closed_s is not None][-HISTORY:]
    if len(shown) < 2:
        return
    _title(console, f"admission closed, the last {len(shown)} that closed it")
    scale = Scale(max(item.admission_closed_s or 0.0 for item in shown), _columns(console) or 1)
    for item in shown:
        closed_s = item.admission_closed_s or 0.0
        mark = marks.own if item.outcome == PUBLISHED else marks.failed
        bar = (mark * max(1, round(scale.place(closed_s)))).ljust(scale.columns)
        name = f"  {safe(item.transaction)} {safe(item.outcome)}"
        _draw_bar(console, name[:NAME] if scale.columns > 1 else name, bar, short_time(closed_s))


def _name(number: str, name: str) -> str:
    return f"  {safe(number):<3} {safe(name)}"[:NAME].rstrip()


def _times(found: Spread | None) -> tuple[str, str, str]:
    return _values(found, short_time)


def _values(found: Spread | None, told: Callable[[float], str]) -> tuple[str, str, str]:
    return ("-", "-", "-") if found is None else (told(found.p50), told(found.p95), told(found.max))


def _title(console: Console, text: str) -> None:
    console.print()
    say(console, text, 0, style="bold")
