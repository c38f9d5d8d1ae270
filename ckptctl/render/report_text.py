"""A validation report for people: the verdict of each target, what is wrong, how sure we are, what to do.

One cause is one entry with its count and its first places; `--verbose` lists every place that the report holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from ckptctl.domain.amounts import plural, size
from ckptctl.domain.finding import Finding, Report, TargetReport, Unchecked
from ckptctl.render.console import render, say
from ckptctl.render.report_closing import closing_of
from ckptctl.render.report_words import (
    SEVERITY_STYLE,
    VERDICT_STYLE,
    FindingGroup,
    group_findings,
    heading,
    proved,
    told_at,
)

PLACES_SHOWN = 3
"""Places of one cause without `--verbose`."""


def report_text(report: Report, *, verbose: int = 0, to_terminal: bool | None = None, width: int | None = None) -> str:
    """The whole report."""

    def draw(console: Console) -> None:
        for target in report.targets:
            _draw_target(console, target, report, verbose)
        if len(report.targets) != 1 or report.share is not None:
            _draw_whole(console, report)
        failed = [item.rule for target in report.targets for item in target.findings if item.severity == "error"]
        if failed and report.verdict != "valid":
            say(console, f"about a rule: `ckptctl validate --explain {failed[0]}`", 0, style="dim")

    return render(draw, to_terminal=to_terminal, width=width)


def _draw_whole(console: Console, report: Report) -> None:
    """The verdict on everything, and where there are several snapshots the newest of them that is valid."""
    closing = closing_of(report)
    line = Text(closing.before)
    line.append(closing.verdict, style=VERDICT_STYLE[report.verdict])
    say(console, line.append(closing.after), 0)
    for further in closing.further:
        say(console, further, 0)


def _draw_target(console: Console, target: TargetReport, report: Report, verbose: int) -> None:
    head = Text(f"{target.kind.replace('_', ' ')} {target.path}: ")
    head.append(target.verdict, style=VERDICT_STYLE[target.verdict])
    head.append(f" at level {target.level} ({proved(target, report)})")
    say(console, head, 0)
    for group in group_findings(target.findings):
        _draw_group(console, group, verbose)
    told = frozenset(finding.rule for finding in target.findings)
    for reason, names in _rules_by_reason(target, "could_not_run", frozenset() if verbose else told):
        line = Text("could not check ")
        line.append(", ".join(names), style="yellow")
        say(console, line.append(f": {reason}"))
    for group in group_findings(target.notes):
        _draw_note(console, group, verbose)
    say(console, _coverage_line(target), style="dim")
    if verbose:
        _draw_details(console, target)
    elif target.level == "full" and target.coverage.unchecked:
        say(console, _not_covered_line(target.coverage.unchecked), style="dim")


def _draw_group(console: Console, group: FindingGroup, verbose: int) -> None:
    first = group.first
    head, name = heading(first)
    line = Text(f"{head}[{first.rule}]", style=SEVERITY_STYLE[first.severity])
    line.append(f" {name}{_count(group)}", style="default")
    say(console, line)
    shown = group.members if verbose or len(group.members) <= PLACES_SHOWN + 1 else group.members[:PLACES_SHOWN]
    for place, finding in enumerate(shown):
        say(console, told_at(finding), 4)
        if (place == 0 or verbose) and (finding.expected or finding.actual):
            say(console, f"expected: {finding.expected or '-'}", 6)
            say(console, f"actual: {finding.actual or '-'}", 6)
    _draw_rest(console, group, shown, verbose)
    if first.hint:
        say(console, f"hint: {first.hint}", 4)


def _draw_note(console: Console, group: FindingGroup, verbose: int) -> None:
    first = group.first
    say(console, f"note[{first.rule}]{_count(group)}: {first.message}", style="dim")
    shown = group.members if verbose or len(group.members) <= PLACES_SHOWN + 1 else group.members[:PLACES_SHOWN]
    for finding in shown[1:]:
        say(console, finding.message, 4, style="dim")
    _draw_rest(console, group, shown, verbose)


def _count(group: FindingGroup) -> str:
    return "" if group.count == 1 else f" ({group.count:,} times)"


def _draw_rest(console: Console, group: FindingGroup, shown: Iterable[Finding], verbose: int) -> None:
    """What is not listed, and whether more can be had: the report itself holds no more than a number of each rule."""
    hidden = group.count - len(list(shown))
    if not hidden:
        return
    how = "" if verbose else "; `--verbose` lists what the report holds"
    say(console, f"and {hidden:,} more{how}", 4)


def _coverage_line(target: TargetReport) -> str:
    """Counts. A rule that failed with warnings alone stands beside a verdict `valid`, so it is not called failed."""
    tally = {
        name: sum(item.outcome == name for item in target.outcomes)
        for name in ("passed", "failed", "skipped", "could_not_run")
    }
    with_errors = {finding.rule for finding in target.findings if finding.severity == "error"}
    warned = sum(item.outcome == "failed" and item.rule not in with_errors for item in target.outcomes)
    warnings = f"{warned} with warnings, " if warned else ""
    coverage = target.coverage
    return (
        f"{plural(tally['passed'], 'rule')} passed, {tally['failed'] - warned} failed, {warnings}{tally['skipped']} skipped, "
        f"{tally['could_not_run']} could not run; {coverage.files_checked:,} of {plural(coverage.files_total, 'file')}, "
        f"{size(coverage.bytes_checked)} of {size(coverage.bytes_total)} looked at"
    )


def _not_covered_line(unchecked: tuple[Unchecked, ...]) -> str:
    """What level full did not look at, in all, with the reason of the most of it."""
    bytes_by_reason: dict[str, int] = {}
    for item in unchecked:
        bytes_by_reason[item.reason] = bytes_by_reason.get(item.reason, 0) + item.bytes
    reason, most = max(bytes_by_reason.items(), key=lambda pair: pair[1])
    whole = sum(bytes_by_reason.values())
    part = f", {size(most)} of it" if len(bytes_by_reason) > 1 else ""
    files = plural(len({item.path for item in unchecked}), "file")
    return f"not covered: {size(whole)} in {files}{part}: {reason}; `-v` lists it"


def _draw_details(console: Console, target: TargetReport) -> None:
    """What was not looked at, once for each reason."""
    files: dict[str, list[str]] = {}
    for item in target.coverage.unchecked:
        files.setdefault(item.reason, []).append(f"{item.path} ({size(item.bytes)})")
    for reason, paths in files.items():
        say(console, f"not checked: {reason}:", style="dim")
        for path in paths:
            say(console, path, 4, style="dim")
    for reason, names in _rules_by_reason(target, "skipped"):
        say(console, f"skipped: {reason}:", style="dim")
        say(console, ", ".join(names), 4, style="dim")


def _rules_by_reason(
    target: TargetReport, outcome: str, without: frozenset[str] = frozenset()
) -> Iterable[tuple[str, list[str]]]:
    """Rules that ended so, put together by the reason that they share."""
    found: dict[str, list[str]] = {}
    for item in target.outcomes:
        if item.outcome == outcome and item.rule not in without:
            found.setdefault(item.reason, []).append(f"[{item.rule}] {item.name}")
    return found.items()
