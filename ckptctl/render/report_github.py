"""A validation report as workflow commands of GitHub Actions: one annotation for each cause, one for the whole.

Only commands are written, and whatever comes from a file is escaped in them, so no line can begin one of its own. The whole comes
first and notes are left out, because only a few annotations of a step are shown. A file below the working directory is named
relative to it, which is how annotations find their place; others are named in the message.
"""

from __future__ import annotations

from ckptctl.domain.finding import Report, TargetReport
from ckptctl.render.report_closing import closing_of, title_of
from ckptctl.render.report_words import (
    FindingGroup,
    as_far_as,
    group_findings,
    heading,
    line_of,
    newest_valid,
    packs_of,
    path_of,
    place_of,
    proved,
    told_in_full,
)

PLACES_SHOWN = 5
"""Further places of one cause that are named in its annotation."""
_VERDICT_COMMANDS = {"valid": "notice", "incomplete": "warning", "incompatible": "error", "invalid": "error"}
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def report_github(report: Report, folder: str) -> str:
    """The whole report. `folder`: the absolute path that annotated files are relative to."""
    lines = [_whole(report)]
    packs = packs_of(report)
    for target in report.targets:
        lines += [_annotation(target, group, folder, packs) for group in group_findings(target.findings)]
    return "\n".join(lines) + "\n"


def _annotation(target: TargetReport, group: FindingGroup, folder: str, packs: frozenset[str]) -> str:
    first = group.first
    count = "" if group.count == 1 else f" ({group.count:,} times)"
    head, name = heading(first)
    title = (
        f"{head}: {first.rule} {name}" if first.kind == "gap" else f"{first.rule} {name}"
    )  # else the command says it
    properties = {"title": f"{title}{count}"}
    path = path_of(target, first, packs)
    message = told_in_full(first)
    if path.startswith(f"{folder.rstrip('/')}/"):
        line = line_of(first)
        place = {} if line is None or path in packs else {"line": str(line)}
        properties = {"file": path.removeprefix(f"{folder.rstrip('/')}/"), **place, **properties}
    else:
        message = [f"{path}: {message[0]}", *message[1:]]
    also = [place_of(finding) for finding in group.members[1 : PLACES_SHOWN + 1] if place_of(finding)]
    if also:
        rest = group.count - 1 - len(also)
        message.append(f"also: {'; '.join(also)}{f'; and {rest:,} more' if rest else ''}")
    return _command(first.severity, properties, "\n".join(message))


def _whole(report: Report) -> str:
    told = [
        f"{target.kind.replace('_', ' ')} {target.path}: {target.verdict} at level {target.level} ({proved(target, report)})"
        for target in report.targets
    ]
    newest = newest_valid(report)
    if report.share is not None or as_far_as(report):
        told += closing_of(report).lines
    elif newest is not None:
        told.append(f"newest valid snapshot at level {newest.level}: {newest.path}")
    title = f"ckptctl: {title_of(report)}"
    return _command(_VERDICT_COMMANDS[report.verdict], {"title": title}, "\n".join(told))


def _command(name: str, properties: dict[str, str], message: str) -> str:
    said = ",".join(f"{key}={value.translate(_PROPERTY)}" for key, value in properties.items())
    return f"::{name} {said}::{message.translate(_DATA)}"
