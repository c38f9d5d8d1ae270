"""A validation report as SARIF 2.1.0: every rule with its help, a result for each finding, a notification for each gap.

Files are relative to their target, whose place is a base of its own; a file of the anchor that a snapshot's finding blames is
relative to the anchor. What could not be checked is a result of kind `open` and a notification, and the run is then no success.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import Finding, Report, RuleOutcome, TargetReport
from ckptctl.domain.safe_text import inert_json
from ckptctl.errors import EXIT_MEANINGS, ExitCode
from ckptctl.render.report_closing import closing_of
from ckptctl.render.report_words import (
    as_far_as,
    line_of,
    newest_valid,
    packs_of,
    path_of,
    place_of,
    proved,
    told_in_full,
)
from ckptctl.rules import ALL_RULES
from ckptctl.rules._model import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "information": "note"}
_INDEX = {rule.id: place for place, rule in enumerate(ALL_RULES)}
_SEVERITY = {rule.id: rule.severity for rule in ALL_RULES}


def report_sarif(report: Report, code: ExitCode) -> str:
    """The whole report; `code` is what the command ends with. One JSON object, ASCII only."""
    places = _Places(packs_of(report))
    results = [
        _result(target, finding, places) for target in report.targets for finding in (*target.findings, *target.notes)
    ]
    gaps = [gap for target in report.targets for gap in _gaps(target)]
    run = {
        "tool": {
            "driver": {
                "name": "ckptctl",
                "version": report.tool_version,
                "semanticVersion": report.tool_version,
                "rules": [_descriptor(rule) for rule in ALL_RULES],
            }
        },
        "invocations": [
            {
                "executionSuccessful": not any(gap["level"] == "error" for gap in gaps),
                "exitCode": int(code),
                "exitCodeDescription": EXIT_MEANINGS[code],
                "toolExecutionNotifications": gaps,
            }
        ],
        "originalUriBaseIds": {
            name: {"uri": _uri(f"{path}/", is_absolute=True)} for path, name in places.bases.items()
        },
        **_run_name(report),
        "columnKind": "unicodeCodePoints",
        "results": results,
        "properties": _properties(report),
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return inert_json(json.dumps(document, ensure_ascii=True, indent=1)) + "\n"


def _descriptor(rule: Rule) -> dict[str, Any]:
    help_text = f"{rule.summary}\n\nWhy: {rule.why}\n\nHint: {rule.hint}"
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.why},
        "help": {"text": help_text, "markdown": f"{rule.summary}\n\n**Why:** {rule.why}\n\n**Hint:** {rule.hint}"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [rule.id[:3], rule.level], "precision": "very-high"},
    }


def _result(target: TargetReport, finding: Finding, places: _Places) -> dict[str, Any]:
    is_open = finding.kind == "gap"
    place = place_of(finding)
    lines = told_in_full(finding)
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": _INDEX[finding.rule],
        "kind": "open" if is_open else "fail",
        "level": "none" if is_open else _LEVELS[finding.severity],
        "message": {"text": "\n".join((f"{place}: {lines[0]}" if place else lines[0], *lines[1:]))},
        "locations": [places.location(target, finding)],
        "partialFingerprints": {"ckptctlFinding/v1": _fingerprint(finding)},
        "properties": {"target": target.path, "incompatible": finding.incompatible},
    }
    if finding.count > 1:
        result["occurrenceCount"] = finding.count
    return result


@dataclass(slots=True)
class _Places:
    """Where findings are, and the bases that this needs: path of a directory -> its name."""

    packs: frozenset[str]
    bases: dict[str, str] = field(default_factory=dict)

    def location(self, target: TargetReport, finding: Finding) -> dict[str, Any]:
        """A file relative to its base, or a target or pack as a whole; line and place in it where they are known."""
        path = path_of(target, finding, self.packs)
        physical: dict[str, Any] = {"artifactLocation": self._artifact(target, path)}
        line = line_of(finding)
        if line is not None and path not in self.packs:
            physical["region"] = {"startLine": line}
        location: dict[str, Any] = {"physicalLocation": physical}
        if finding.location:
            location["logicalLocations"] = [{"fullyQualifiedName": finding.location}]
        return location

    def _artifact(self, target: TargetReport, path: str) -> dict[str, Any]:
        if path in self.packs:
            return {"uri": _uri(path, is_absolute=True)}
        base = target.path
        while path != base and not path.startswith(f"{base.rstrip('/')}/"):
            base = base.rpartition("/")[0] or "/"
        if path == base:
            return {"uri": _uri(f"{path.rstrip('/')}/", is_absolute=True)}
        name = self.bases.setdefault(base, f"TARGET{len(self.bases)}")
        return {"uri": _uri(path[len(base.rstrip("/")) + 1 :], is_absolute=False), "uriBaseId": name}


def _uri(path: str, *, is_absolute: bool) -> str:
    """A path as a reference: everything but unreserved characters and slashes in percent-encoded UTF-8."""
    return ("file://" if is_absolute else "") + quote(path, safe="/", errors="backslashreplace")


def _fingerprint(finding: Finding) -> str:
    """The same for the same breach of the next run, wherever the snapshot lies."""
    said = (finding.rule, finding.artifact, finding.location, finding.message)
    return sha256_hex(json.dumps(said).encode())


def _gaps(target: TargetReport) -> Iterator[dict[str, Any]]:
    for outcome in target.outcomes:
        if outcome.outcome == "could_not_run":
            yield _notification(target, outcome)


def _notification(target: TargetReport, outcome: RuleOutcome) -> dict[str, Any]:
    location = {"physicalLocation": {"artifactLocation": {"uri": _uri(f"{target.path}/", is_absolute=True)}}}
    return {
        "level": "error" if _SEVERITY[outcome.rule] == "error" else "warning",
        "message": {"text": f"{outcome.rule} {outcome.name} could not be checked: {outcome.reason}"},
        "associatedRule": {"id": outcome.rule, "index": _INDEX[outcome.rule]},
        "locations": [location],
    }


def _run_name(report: Report) -> dict[str, Any]:
    """A part of the data is a run of its own: without a name, one shard's upload would take the place of another's."""
    if report.share is None:
        return {}
    name = f"ckptctl/{report.share.kind}-{report.share.index}-of-{report.share.count}/"
    return {"automationDetails": {"id": name, "description": {"text": "\n".join(closing_of(report).lines)}}}


def _properties(report: Report) -> dict[str, Any]:
    """What was said of targets. No snapshot is named as valid where only a part or by chosen rules was judged."""
    newest, reservation = newest_valid(report), as_far_as(report)
    targets = [
        {
            "path": target.path,
            "kind": target.kind,
            "verdict": target.verdict,
            "level": target.level,
            "meaning": proved(target, report),
        }
        for target in report.targets
    ]
    return {
        "verdict": report.verdict,
        "targets": targets,
        "newestValidSnapshot": None if newest is None or reservation else newest.path,
        "reservation": reservation or None,
    }
