"""One report from the reports of all shards of one validation: equal to the report of a run that was not divided.

What every shard judged (everything but bytes) is the same in all of them and stands once. Of what was divided, the findings
are put together, and an outcome is the worst that any shard had. Whether the reports belong together is decided in
`check_shards`; nothing is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ckptctl.domain.finding import (
    Coverage,
    Finding,
    Report,
    RuleOutcome,
    TargetReport,
    Unchecked,
    VerdictName,
    worst,
)
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.share import OTHER_SHARD
from ckptctl.rules.run import more_of_this_kind

_SEVERITIES = ("error", "warning", "information")
_OUTCOMES = ("passed", "skipped", "could_not_run", "failed")
"""From best to worst. A rule that one shard skipped because another rule failed there counts as skipped."""
MISSING_TOLD = 10


class ShardsDoNotFitError(Exception):
    """Reports that are not all shards of one validation. `is_incomplete`: only some are missing, the others fit."""

    def __init__(self, message: str, *, is_incomplete: bool = False) -> None:
        super().__init__(message)
        self.is_incomplete = is_incomplete


def check_shards(named: Sequence[tuple[str, Report]]) -> None:
    """Demand that the reports (name, report) are all shards of one validation, each once.

    Raises:
        ShardsDoNotFitError: one is no shard, belongs to another validation, is there twice, or is missing.
    """
    seen: dict[int, str] = {}
    first_name, first = named[0]
    for name, report in named:
        share = report.share
        if share is None or share.kind != "shard":
            raise ShardsDoNotFitError(f"`{name}` is no report of a shard (`validate --shard`)")
        _demand_same(name, report, first_name, first)
        if share.index in seen:
            raise ShardsDoNotFitError(f"shard {share.index} is there twice: `{seen[share.index]}` and `{name}`")
        seen[share.index] = name
    count = first.share.count if first.share is not None else 0
    missing = [str(index) for index in range(1, count + 1) if index not in seen]
    if missing:
        raise ShardsDoNotFitError(f"{_numbered(missing)} of {count} did not report", is_incomplete=True)


def _numbered(missing: Sequence[str]) -> str:
    """`shard 3`, `shards 2 and 4`: numbers of shards that nobody can take for a count of them."""
    shown = [*missing[:MISSING_TOLD]]
    if len(missing) > MISSING_TOLD:
        shown.append(f"{len(missing) - MISSING_TOLD} more")
    if len(shown) == 1:
        return f"shard {shown[0]}"
    return f"shards {', '.join(shown[:-1])} and {shown[-1]}"


def _demand_same(name: str, report: Report, first_name: str, first: Report) -> None:
    """Say what differs, the plainest first."""
    ours, theirs = report.share, first.share
    assert ours is not None
    if theirs is None:
        return  # said of the first report itself
    pairs = (
        ("the number of shards", str(ours.count), str(theirs.count)),
        ("the version of ckptctl", report.tool_version, first.tool_version),
        ("the targets", _paths(report), _paths(first)),
        ("the level", _levels(report), _levels(first)),
    )
    for what, mine, expected in pairs:
        if mine != expected:
            raise ShardsDoNotFitError(
                f"`{name}` is of another validation than `{first_name}`: {what} is {mine}, not {expected}"
            )
    if ours.subject != theirs.subject:
        raise ShardsDoNotFitError(
            f"`{name}` is of another validation than `{first_name}`: other rules, another configuration, or the files "
            "changed in between"
        )


def _paths(report: Report) -> str:
    return ", ".join(target.path for target in report.targets)


def _levels(report: Report) -> str:
    return ", ".join(sorted({target.level for target in report.targets}))


def merge_shards(reports: Sequence[Report]) -> Report:
    """The report of the whole, of reports that `check_shards` accepts."""
    targets = tuple(_merge_target(parts) for parts in zip(*(report.targets for report in reports), strict=True))
    return Report(
        tool_version=reports[0].tool_version, verdict=worst([target.verdict for target in targets]), targets=targets
    )


def _merge_target(parts: tuple[TargetReport, ...]) -> TargetReport:
    outcomes = tuple(_merge_outcome(found) for found in zip(*(part.outcomes for part in parts), strict=True))
    order = [outcome.rule for outcome in outcomes]
    findings = _merge_findings([part.findings for part in parts], order)
    return parts[0].model_copy(
        update={
            "verdict": _verdict(findings, parts),
            "findings": findings,
            "notes": _merge_findings([part.notes for part in parts], order),
            "outcomes": outcomes,
            "coverage": _merge_coverage([part.coverage for part in parts]),
        }
    )


def _verdict(findings: Iterable[Finding], parts: tuple[TargetReport, ...]) -> VerdictName:
    """An error that is no incompatibility outweighs everything; what one shard could not check, nobody has."""
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        return "incompatible" if all(finding.incompatible for finding in errors) else "invalid"
    return worst([part.verdict for part in parts])


def _merge_outcome(found: tuple[RuleOutcome, ...]) -> RuleOutcome:
    return max(found, key=lambda outcome: _OUTCOMES.index(outcome.outcome))


def _merge_findings(lists: Sequence[tuple[Finding, ...]], order: Sequence[str]) -> tuple[Finding, ...]:
    merged: list[Finding] = []
    gaps: list[Finding] = []
    for rule in order:
        of_rule = [tuple(finding for finding in findings if finding.rule == rule) for findings in lists]
        chosen = of_rule[0] if all(found == of_rule[0] for found in of_rule) else _united(of_rule)
        merged.extend(finding for finding in chosen if finding.kind != "gap")
        gaps.extend(finding for finding in chosen if finding.kind == "gap")
    return (*merged, *gaps)


def _united(lists: Sequence[tuple[Finding, ...]]) -> tuple[Finding, ...]:
    """Findings of one rule, each once, cut at the limit of one report; the last counts what was cut."""
    told = tuple(dict.fromkeys(finding for found in lists for finding in found if finding.kind != "more"))
    kept, rest = told[: DEFAULT_LIMITS.findings_shown], told[DEFAULT_LIMITS.findings_shown :]
    uncounted = [*rest, *(finding for found in lists for finding in found if finding.kind == "more")]
    if not uncounted:
        return kept
    cut = sum(finding.count for finding in uncounted)
    severity = min((finding.severity for finding in uncounted), key=_SEVERITIES.index)
    more = uncounted[0].model_copy(
        update={
            "severity": severity,
            "incompatible": all(finding.incompatible for finding in uncounted if finding.severity == "error")
            and severity == "error",
            **dict.fromkeys(("artifact", "location", "expected", "actual"), ""),
            "message": more_of_this_kind(cut, len(kept) + cut),
            "count": cut,
            "kind": "more",
        }
    )
    return (*kept, more)


def _merge_coverage(parts: Sequence[Coverage]) -> Coverage:
    """What no shard looked at. What one left to another is covered, because every shard is here."""
    unchecked = tuple(dict.fromkeys(item for part in parts for item in part.unchecked if item.reason != OTHER_SHARD))
    left: dict[str, Unchecked] = {}
    for item in unchecked:
        known = left.get(item.path)
        left[item.path] = item if known is None or item.bytes < known.bytes else known
    whole = [
        {item.path for item in part.unchecked if item.is_whole_file and item.reason != OTHER_SHARD} for part in parts
    ]
    total = parts[0].bytes_total
    return parts[0].model_copy(
        update={
            "files_checked": parts[0].files_total - len(set.intersection(*whole)),
            "bytes_checked": total - sum(item.bytes for item in left.values()),
            "unchecked": tuple(left.values()),
        }
    )
