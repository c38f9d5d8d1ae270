"""What a verdict means in words: what was really proved, never more; and findings of one cause put together.

`valid` in JSON is the absence of findings among what was judged. A person is told how deep that was, what was left out on
request, and of an anchor whether there is anything in it to restore from.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ckptctl.domain.amounts import plural, size
from ckptctl.domain.finding import Finding, Level, Report, TargetReport, VerdictName
from ckptctl.domain.ids import BOOTSTRAP_FOLDER, SNAPSHOTS_FOLDER, snapshot_number, step_number
from ckptctl.rules.run import LEFT_OUT

VERDICT_STYLE = {
    "valid": "bold green",
    "incomplete": "bold yellow",
    "incompatible": "bold magenta",
    "invalid": "bold red",
}
SEVERITY_STYLE = {"error": "red", "warning": "yellow", "information": "cyan"}
NOT_CHECKED = "not checked"
_NOT_VALID = {
    "incomplete": "nothing is known to be wrong, but not everything could be checked",
    "incompatible": "nothing is damaged, but it belongs to another schema, anchor, topology or configuration",
    "invalid": "must not be restored",
}
_PROVED: dict[tuple[str, Level], str] = {
    ("snapshot", "quick"): "names, manifest and anchor only; payload not read",
    ("snapshot", "standard"): "can be restored; values of tensors were not recomputed",
    ("snapshot", "full"): "can be restored",
    ("anchor", "quick"): "its own names and small files only",
    ("anchor", "standard"): "its own files",
    ("anchor", "full"): "its own files",
    ("data_plane", "quick"): "names only; nothing was read",
    ("data_plane", "standard"): "consistent in itself; nothing here says which snapshot it belongs to",
    ("data_plane", "full"): "consistent in itself, every value read; nothing here says which snapshot it belongs to",
    ("pack", "quick"): "the container can be read as far as it was asked for",
    ("pack", "standard"): "the container can be read as far as it was asked for",
    ("pack", "full"): "the container can be read to its end",
}
LOOKS_WHOLE, LOOK_WHOLE = "looks whole", "look whole"
"""What a quick look at a snapshot, or at several, finds: the payload may still be damaged."""


def verdict_words(verdict: VerdictName, level: Level) -> str:
    """A verdict in a table or head of an overview, where there is no room for what was proved."""
    return LOOKS_WHOLE if verdict == "valid" and level == "quick" else verdict


def meaning_of(verdict: VerdictName, level: Level, kind: str) -> str:
    """What a verdict on one target says."""
    return _PROVED[kind, level] if verdict == "valid" else _NOT_VALID[verdict]


def proved(target: TargetReport, report: Report) -> str:
    """What was proved of a target of a report, with what was left out and, for an anchor, what there is in it."""
    told = [meaning_of(target.verdict, target.level, target.kind)]
    if target.verdict != "valid":
        return told[0]
    left_out = rules_left_out([target])
    uncovered = target.coverage.bytes_total - target.coverage.bytes_checked
    if left_out:
        told.append(f"{plural(left_out, 'rule')} left out on request")
    if left_out or report.share is not None:
        told[0] = _tells("the chosen rules" if left_out else "", part_words(report))
    elif target.kind == "snapshot" and target.level == "full" and uncovered > 0:
        told.append(f"nothing covers {size(uncovered)} of it")
    if target.kind == "anchor":
        told.append(_snapshots_within(target, report))
    return "; ".join(told)


def rules_left_out(targets: Iterable[TargetReport]) -> int:
    """How many rules somebody did not want to be judged by."""
    return len({item.rule for target in targets for item in target.outcomes if item.reason in LEFT_OUT})


def part_words(report: Report) -> str:
    """Which part of the data a report is about: `shard 1/2`, `part 8/10 of the data`; empty for all of it."""
    if report.share is None:
        return ""
    words = f"{report.share.index}/{report.share.count}"
    return f"shard {words}" if report.share.kind == "shard" else f"part {words} of the data"


def as_far_as(report: Report, *, names_part: bool = True) -> str:
    """What keeps the verdict of a report from being said of everything; empty where nothing does."""
    return _tells(
        "the chosen rules" if rules_left_out(report.targets) else "", part_words(report) if names_part else ""
    )


def _tells(rules: str, part: str) -> str:
    named = [name for name in (rules, part) if name]
    return f"as far as {' and '.join(named)} {'tell' if rules else 'tells'}" if named else ""


def counted_snapshots(snapshots: Sequence[TargetReport], report: Report) -> str:
    """How many of some snapshots are valid, in words that claim no more than what was judged."""
    valid = sum(target.verdict == "valid" for target in snapshots)
    of_all = f"{valid or 'none'} of {plural(len(snapshots), 'snapshot')}"
    if as_far_as(report):
        return f"{of_all} without an error in what was judged"
    if snapshots[0].level == "quick":
        return f"{of_all} {LOOKS_WHOLE if valid < 2 else LOOK_WHOLE}"
    return f"{of_all} valid" if valid else f"no valid snapshot among {len(snapshots):,}"


def _snapshots_within(anchor: TargetReport, report: Report) -> str:
    folder = f"{anchor.path}/{SNAPSHOTS_FOLDER}/"
    inside = [target for target in report.targets if target.path.startswith(folder)]
    return counted_snapshots(inside, report) if inside else "there is no snapshot in it"


def newest_valid(report: Report) -> TargetReport | None:
    """The newest valid snapshot, where all snapshots of the report lie in anchors of one checkpoint directory."""
    placed = [(place, target) for target in report.targets if (place := _place(target)) is not None]
    if len({root for (root, _, _), _ in placed}) != 1:
        return None
    found = [(place, target) for place, target in placed if target.verdict == "valid"]
    return max(found, key=lambda item: item[0])[1] if found else None


def _place(target: TargetReport) -> tuple[str, int, int] | None:
    """Checkpoint directory, step (-1: bootstrap) and number of a snapshot that lies in an anchor."""
    root, *names = target.path.rsplit("/", 3)
    if target.kind != "snapshot" or len(names) != 3 or names[1] != SNAPSHOTS_FOLDER:
        return None
    step = -1 if names[0] == BOOTSTRAP_FOLDER else step_number(names[0])
    number = snapshot_number(names[2])
    return None if step is None or number is None else (root, step, number)


@dataclass(slots=True)
class FindingGroup:
    """Findings of one rule that say the same of different places."""

    members: list[Finding] = field(default_factory=list)
    unlisted: int = 0
    """Further ones, of which the report holds only the number."""

    @property
    def first(self) -> Finding:
        """The one that is told in full."""
        return self.members[0]

    @property
    def count(self) -> int:
        """How many there are in all."""
        return len(self.members) + self.unlisted


_PARTICULAR = re.compile(r"`[^`]*`|\"[^\"]*\"|[0-9a-f]{12,}|[0-9]+")


def group_findings(findings: Iterable[Finding]) -> tuple[FindingGroup, ...]:
    """Put together what has one cause: the same rule, severity and sentence, whatever names and numbers are in it."""
    groups: dict[tuple[str, str, bool, str], FindingGroup] = {}
    rest: list[Finding] = []
    for finding in findings:
        if finding.kind == "more":
            rest.append(finding)
            continue
        sentence = _PARTICULAR.sub("*", finding.message)
        key = (finding.rule, finding.severity, finding.incompatible, sentence)
        groups.setdefault(key, FindingGroup()).members.append(finding)
    for finding in rest:
        of_rule = [group for group in groups.values() if group.first.rule == finding.rule]
        if len(of_rule) == 1:
            of_rule[0].unlisted += finding.count
        else:
            groups[finding.rule, finding.severity, finding.incompatible, ""] = FindingGroup(
                [finding], finding.count - 1
            )
    return tuple(groups.values())


def heading(finding: Finding) -> tuple[str, str]:
    """What a finding is headed with, and the name beside its rule. Of a gap nothing is known to be wrong: neither a warning nor
    the rule's name, which is that of a breach, would be true of it.
    """
    if finding.kind == "gap":
        return NOT_CHECKED, f"(rule {finding.name})"
    return finding.severity, finding.name


def place_of(finding: Finding) -> str:
    """File and place in it; empty where the finding is about no file."""
    return ", ".join(part for part in (finding.artifact, finding.location) if part)


def told_at(finding: Finding) -> str:
    """Place and message, with a name that stands in both said once."""
    place, message, name = place_of(finding), finding.message, finding.artifact.rpartition("/")[2]
    if not place or (not finding.location and message.startswith(f"`{finding.artifact}` ")):
        return message
    return f"{place}: {message.removeprefix(f'`{name}`: ')}"


def line_of(finding: Finding) -> int | None:
    """The line in the file that a finding is about, where it names one."""
    found = re.match(r"line ([0-9]{1,9})\b", finding.location)
    return int(found.group(1)) if found and int(found.group(1)) > 0 else None


def path_of(target: TargetReport, finding: Finding, packs: Iterable[str] = ()) -> str:
    """The absolute path of what a finding is about: a file of the target, one beside it (`../..`), or the target itself.

    Of what lies in one of `packs` it is the pack.
    """
    path = posixpath.normpath(f"{target.path}/{finding.artifact}") if finding.artifact else target.path
    return next((pack for pack in packs if path == pack or path.startswith(f"{pack}/")), path)


def packs_of(report: Report) -> frozenset[str]:
    """The paths of packed snapshots in a report: files, whatever lies in them."""
    return frozenset(target.path for target in report.targets if target.kind == "pack")


def told_in_full(finding: Finding) -> list[str]:
    """A finding as lines: message, expected and actual value, hint."""
    lines = [finding.message]
    if finding.expected or finding.actual:
        lines += [f"expected: {finding.expected or '-'}", f"actual: {finding.actual or '-'}"]
    return [*lines, f"hint: {finding.hint}"] if finding.hint else lines
