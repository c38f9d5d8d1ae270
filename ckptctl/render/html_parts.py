"""The sections that pages are made of: findings, the consistency matrix, the line of time, sizes, rollouts."""

from __future__ import annotations

from collections.abc import Iterable

from ckptctl.domain.agreement import PARTS, Cell, CellState
from ckptctl.domain.amounts import duration, plural, short_time, size
from ckptctl.domain.finding import Finding
from ckptctl.domain.inspection import PartSize
from ckptctl.domain.rollout_story import RolloutInspection, RolloutStory
from ckptctl.domain.timings import Spread, StepInTime, TimingsInspection
from ckptctl.planning.snapshot import CLOSE
from ckptctl.render.html_frame import bar, facts, prose, scroll, section, t, table, verdict
from ckptctl.render.html_lineage import lineage_picture
from ckptctl.render.report_words import group_findings, place_of
from ckptctl.render.rollout_text import DECISIONS

FINDINGS_SHOWN = 100
SEVERITIES = ("error", "warning", "information")
CELL_SIGNS: dict[CellState, tuple[str, str, str]] = {
    "agrees": ("✓", "agrees", "good"),
    "differs": ("✗", "differs", "bad"),
    "doubtful": ("!", "warning", "warn"),
    "unknown": ("?", "could not be told", "warn"),
    "not_checked": ("·", "not checked", "quiet"),
}
LEGEND = (
    '<p class="quiet"><span class="key"></span>servers are asked <span class="key solid"></span>ckptctl works by itself; '
    "a step that failed or has no end says so</p>"
)


def findings_section(findings: tuple[Finding, ...], unread: tuple[str, ...]) -> str:
    """What is wrong, what of it there is more, and what to do."""
    if not findings and not unread:
        return section("Findings", '<p><span class="good"><span class="sign">✓</span> none</span></p>')
    groups = sorted(group_findings(findings), key=lambda group: SEVERITIES.index(group.first.severity))
    pieces = [
        f'<div class="finding {t(group.first.severity)}"><p><strong>{t(group.first.severity)} {t(group.first.rule)}</strong>'
        f'{t(_more(group.count))} <span class="mono">{t(place_of(group.first))}</span></p><p>{prose(group.first.message)}</p>'
        f'<p class="quiet">{prose(group.first.hint)}</p></div>'
        for group in groups[:FINDINGS_SHOWN]
    ]
    if len(groups) > FINDINGS_SHOWN:
        pieces.append(
            f"<p>and {t(plural(len(groups) - FINDINGS_SHOWN, 'kind'))} more: see <code>ckptctl validate</code></p>"
        )
    pieces += [
        f'<p class="warn"><span class="sign">?</span> not shown on this page: {prose(text)}</p>' for text in unread
    ]
    return section("Findings", *pieces)


def _more(count: int) -> str:
    return f" (and {count - 1:,} more like this)" if count > 1 else ""


def matrix_section(cells: tuple[Cell, ...]) -> str:
    """Which part agrees with which: the lower half of a square, a part by itself on the diagonal."""
    known = {(cell.first, cell.second): cell for cell in cells}
    heads = "".join(f'<th scope="col">{t(part)}</th>' for part in PARTS)
    rows = []
    for place, part in enumerate(PARTS):
        inner = "".join(_cell(known.get((other, part)), other, part) for other in PARTS[: place + 1])
        rows.append(f'<tr><th scope="row">{t(part)}</th>{inner}</tr>')
    told = ", ".join(f"{sign} {words}" for sign, words, _ in CELL_SIGNS.values())
    inner = f'<table class="matrix"><thead><tr><td></td>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    legend = (
        f'<p class="quiet">{t(told)}; empty: no rule is about both. A part with itself: whether it is sound. '
        "Letters: families of the rules that were run, or the rules that found something.</p>"
    )
    return section("Which part agrees with which", legend, scroll(inner, "consistency matrix"))


def _cell(cell: Cell | None, one: str, other: str) -> str:
    if cell is None:
        return '<td class="none"></td>'
    sign, words, style = CELL_SIGNS[cell.state]
    what = one if one == other else f"{one} and {other}"
    told = f"{what}: {words}, {plural(cell.passed, 'rule')} passed"
    if cell.troubled:
        told += f"; {', '.join(cell.troubled)}"
    below = " ".join(cell.troubled or cell.families)
    return (
        f'<td class="{cell.state}" title="{t(told)}"><span class="{style} sign" role="img" aria-label="{t(words)}">{sign}</span>'
        f"<small>{t(below)}</small></td>"
    )


def timings_section(found: TimingsInspection | None) -> str:
    """The newest snapshot on a line of time, and the spreads of all that were published."""
    if found is None:
        return section(
            "How long it took", '<p class="quiet">no journal tells: it was not taken here, or its journal is gone</p>'
        )
    whole_s = max((step.began_s + (step.seconds or 0.0) for step in found.last_steps), default=0.0) or 1.0
    closed = found.last.admission_closed_s
    told = (
        "admission is not known to be open again"
        if closed is None
        else f"admission was closed for {short_time(closed)}"
    )
    closing = next((step.began_s for step in found.last_steps if step.name == CLOSE), None)
    rows = [] if closed is None or closing is None else [_window(closing, closed, whole_s)]
    rows += [_step(step, whole_s) for step in found.last_steps]
    heads = (("step", "name"), ("when", "bar"), ("took", "num"), ("requests", "num"), ("bytes", "num"))
    pieces = [
        f"<p>{t(found.last.transaction)}: {t(found.last.outcome)}; {t(told)}</p>",
        LEGEND,
        table(f"steps of {found.last.transaction}, over {short_time(whole_s)}", heads, rows, is_full=True),
    ]
    if found.admission_closed_s is not None:
        pieces.append(_spreads(found))
    return section("How long it took", *pieces)


def _window(began_s: float, seconds: float, whole_s: float) -> tuple[str, ...]:
    part = ("window", began_s / whole_s, seconds / whole_s)
    label = f"from {short_time(began_s)} for {short_time(seconds)}"
    return "<strong>admission closed</strong>", bar(part, label=label), t(short_time(seconds)), "", ""


def _step(step: StepInTime, whole_s: float) -> tuple[str, ...]:
    seconds, waiting = step.seconds or 0.0, min(step.waiting_s or 0.0, step.seconds or 0.0)
    begin, long, asked = step.began_s / whole_s, seconds / whole_s, waiting / whole_s
    parts = [("asked", begin, asked)] if asked else []
    parts += [("own", begin + asked, long - asked)] if long > asked or not asked else []
    words = {"done": "", "failed": " ✗ failed", "unknown": " ? no end"}[step.state]
    if step.state != "done":
        parts = [("failed", begin, long)]
    traffic = None if step.sent_bytes is None or step.received_bytes is None else step.sent_bytes + step.received_bytes
    label = f"begins at {short_time(step.began_s)}, servers are asked for {short_time(waiting)} of {short_time(seconds)}{words}"
    return (
        f'<span class="mono">{t(step.number)}</span> {t(step.name)}<span class="bad">{t(words)}</span>',
        bar(*parts, label=label),
        "-" if step.seconds is None else t(short_time(step.seconds)),
        "-" if step.requests is None else f"{step.requests:,}",
        "-" if traffic is None else t(size(traffic)),
    )


def _spreads(found: TimingsInspection) -> str:
    def row(name: str, spread: Spread | None, *, is_time: bool = True, is_size: bool = False) -> tuple[str, ...]:
        if spread is None:
            return (t(name), "-", "-", "-")
        told = short_time if is_time else (lambda value: size(int(value))) if is_size else "{:,.0f}".format
        return (t(name), *(t(told(value)) for value in (spread.p50, spread.p95, spread.max)))

    rows = [
        row("admission closed", found.admission_closed_s),
        row("of it between requests", found.own_s),
        row("requests", found.requests, is_time=False),
        row("bytes both ways", found.bytes, is_time=False, is_size=True),
    ]
    count = 0 if found.admission_closed_s is None else found.admission_closed_s.count
    heads = (("", "name"), ("p50", "num"), ("p95", "num"), ("max", "num"))
    return table(f"published snapshots ({count:,})", heads, rows)


def sizes_section(parts: tuple[PartSize, ...]) -> str:
    """What each part weighs, with bars by the largest."""
    most = max((part.bytes for part in parts), default=0) or 1
    whole = sum(part.bytes for part in parts)
    rows = [
        (
            f'<span class="mono">{t(part.name)}</span>',
            bar(("own", 0.0, part.bytes / most), label=f"{part.bytes / (whole or 1):.0%} of all"),
            t(size(part.bytes)),
            f"{part.files:,}",
        )
        for part in parts
    ]
    heads = (("part", "name"), ("", "bar"), ("size", "num"), ("files", "num"))
    return section("Sizes", table(f"{size(whole)} in all", heads, rows, is_full=True))


def rollouts_section(rollouts: Iterable[RolloutInspection]) -> str:
    """The rollouts that are drawn, newest snapshot first."""
    pieces = [piece for item in rollouts for story in item.stories for piece in _story(item.rollout_id, story)]
    return section("Rollouts", *pieces) if pieces else ""


def _story(rollout: str, story: RolloutStory) -> list[str]:
    fate = story.fate
    becomes = "" if fate.replacement_attempt is None else f" as attempt {fate.replacement_attempt}"
    group = None if story.group is None else f"{story.group.group_id}, {story.group.status}, {story.group.granularity}"
    done = None if story.finished is None else f"{story.finished.group_id}, canonical row {story.finished.row.state}"
    age = "" if story.age_s is None else f", written {duration(story.age_s)} before this page"
    rows = [(row, attempt.attempt_index) for attempt in story.attempts for row in attempt.rows]
    lost = [row.key for row, _ in rows if row.state in {"missing", "dangling", "not_produced"}]
    return [
        f'<h3 class="mono">{t(rollout)}</h3>',
        f'<p class="quiet">in {t(story.snapshot)}{t(age)}: {verdict(story.verdict)}</p>',
        facts(
            ("a restore", f"{DECISIONS[fate.decision]}{becomes}: {fate.reason}"),
            ("group", group),
            ("finished group", done),
            ("findings", ", ".join(sorted({item.rule for item in story.findings})) or None),
            ("rows that are not whole", ", ".join(lost) or None),
            ("rows it clears", ", ".join(fate.cleared_rows) or None),
            ("sessions nobody claims", ", ".join(fate.unclaimed_sessions) or None),
        ),
        lineage_picture(story),
    ]
