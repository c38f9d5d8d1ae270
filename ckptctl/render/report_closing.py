"""The last lines of a report: the verdict on everything, with whatever keeps it from being said of everything.

Of a shard there is no verdict on the whole yet, whatever it found; of a choice of rules or of data there is one, and it says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckptctl.domain.amounts import plural
from ckptctl.domain.finding import Report
from ckptctl.render.report_words import as_far_as, counted_snapshots, newest_valid, part_words, rules_left_out


@dataclass(frozen=True, slots=True)
class Closing:
    """The verdict line in three pieces, of which `verdict` may have a style, and the lines after it."""

    before: str
    verdict: str
    after: str
    further: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it without a style."""
        return f"{self.before}{self.verdict}{self.after}", *self.further


def closing_of(report: Report) -> Closing:
    """The last lines of any report."""
    levels = {target.level for target in report.targets}
    level = f" at level {levels.pop()}" if len(levels) == 1 else ""
    before = f"{part_words(report)}: " if _is_shard(report) else "verdict: "
    further = (_what_decides(report),) if _is_shard(report) else _newest(report)
    return Closing(before, _found(report), f"{level}{_limits(report)} ({'; '.join(_told(report))})", further)


def title_of(report: Report) -> str:
    """The verdict in one line of a list of checks: what was judged in part is never plainly `valid`."""
    before = f"{part_words(report)}: " if _is_shard(report) else ""
    return f"{before}{_found(report)}{_limits(report)} ({plural(len(report.targets), 'target')})"


def _is_shard(report: Report) -> bool:
    return report.share is not None and report.share.kind == "shard"


def _found(report: Report) -> str:
    return "nothing wrong in this part" if _is_shard(report) and report.verdict == "valid" else report.verdict


def _limits(report: Report) -> str:
    """How far a verdict reaches that more rules or data could make worse than it is."""
    limits = as_far_as(report, names_part=not _is_shard(report))
    return f", {limits}" if limits and report.verdict in {"valid", "incomplete"} else ""


def _told(report: Report) -> list[str]:
    """How many targets and sound snapshots, and how many rules were left out."""
    told = plural(len(report.targets), "target")
    snapshots = [target for target in report.targets if target.kind == "snapshot"]
    if snapshots:
        told = f"{told}, {counted_snapshots(snapshots, report)}"
    told += _others_at_fault(report)
    left_out = rules_left_out(report.targets)
    return [told, f"{plural(left_out, 'rule')} left out on request"] if left_out else [told]


def _others_at_fault(report: Report) -> str:
    """What the verdict is about besides snapshots, which are counted: beside sound ones it would seem to be about nothing."""
    if report.verdict == "valid" or len(report.targets) == 1:
        return ""
    bearing = [target for target in report.targets if target.kind != "snapshot" and target.verdict == report.verdict]
    if not bearing:
        return ""
    first, *others = bearing
    more = f" and {len(others):,} more" if others else ""
    return f", {report.verdict}: {first.kind.replace('_', ' ')} {first.path.rpartition('/')[2]}{more}"


def _what_decides(report: Report) -> str:
    """Whose verdict that of the whole is; what is wrong in one part is wrong in the whole."""
    count = report.share.count if report.share is not None else 1
    reports = "this report" if count == 1 else f"all {count:,} reports"
    rest = "" if report.verdict == "valid" else ", and no better than this"
    return f"the verdict on the whole is that of `ckptctl validate --merge` over {reports}{rest}"


def _newest(report: Report) -> tuple[str, ...]:
    """Where there are several snapshots, the newest of them with which nothing was found wrong."""
    newest = newest_valid(report)
    if newest is None or sum(target.kind == "snapshot" for target in report.targets) < 2:
        return ()
    if as_far_as(report):
        return (f"newest snapshot without an error in what was judged: {newest.path}",)
    what = "newest valid snapshot" if newest.level != "quick" else "newest snapshot that looks whole"
    return (f"{what}: {newest.path}",)
