"""A validation report as JUnit XML: a test suite for each target, a test case for each rule.

It fits Ant's schema (which demands times, a host and both streams, and knows one outcome a case) and that of Jenkins' xUnit
plugin. What a rule took is not measured, so every time is 0. A warning is no failure unless `--strict` makes it one: CI must not
be red where the exit status is 0; it is told in the suite's output. Nothing that XML cannot hold gets into the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ckptctl.domain.amounts import size
from ckptctl.domain.finding import Finding, Report, RuleOutcome, TargetReport
from ckptctl.domain.ids import SNAPSHOTS_FOLDER
from ckptctl.render.report_words import heading, part_words, place_of, proved, rules_left_out, told_in_full
from ckptctl.rules import ALL_RULES

_SEVERITY = {rule.id: rule.severity for rule in ALL_RULES}
_NOT_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COMMAND = re.compile(r"^([ \t]*):(?=:)", re.MULTILINE)
"""Text may have lines, and in the log of a CI system none of them may begin like a command."""
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\t": "&#9;", "\n": "&#10;", "\r": "&#13;"}
_IN_ATTRIBUTE = str.maketrans(_ENTITIES)
_IN_TEXT = str.maketrans({name: _ENTITIES[name] for name in "&<>\r"})


def report_junit(report: Report, *, strict: bool, at: str, host: str) -> str:
    """The whole report. `at`: when it was made, `2026-01-31T23:59:59` without zone, as Ant's schema has it; `host`: where."""
    suites = [
        line
        for index, target in enumerate(report.targets)
        for line in _suite(index, target, report, strict=strict, at=at, host=host)
    ]
    text = "\n".join(('<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", *suites, "</testsuites>")) + "\n"
    return _COMMAND.sub(r"\1&#58;", text.replace("##", "#&#35;"))


def _suite(index: int, target: TargetReport, report: Report, *, strict: bool, at: str, host: str) -> Iterable[str]:
    found: dict[str, list[Finding]] = {}
    for finding in target.findings:
        found.setdefault(finding.rule, []).append(finding)
    cases = [(outcome, _result(outcome, found.get(outcome.rule, []), strict=strict)) for outcome in target.outcomes]
    kinds = [result[0] for _, result in cases]
    facts = {
        "package": "ckptctl",
        "id": str(index),
        "name": f"{target.kind.replace('_', ' ')} {target.path}{f' ({part_words(report)})' if report.share else ''}",
        "timestamp": at,
        "hostname": host or "localhost",
        "tests": str(len(cases)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
        "time": "0",
    }
    yield f" <testsuite{_attributes(facts)}>"
    yield from _properties(target, report)
    for outcome, (kind, message, type_, text) in cases:
        name = {"classname": _class_name(target), "name": f"{outcome.rule} {outcome.name}", "time": "0"}
        if not kind:
            yield f"  <testcase{_attributes(name)}/>"
            continue
        details = {"message": message} if kind == "skipped" else {"message": message, "type": type_}
        yield f"  <testcase{_attributes(name)}><{kind}{_attributes(details)}>{_text(text)}</{kind}></testcase>"
    beside = [*(item for item in target.findings if item.severity != "error"), *target.notes]
    said = "\n".join(f"{heading(item)[0]}[{item.rule}] {_told(item)}" for item in beside)
    yield f"  <system-out>{_text(said)}</system-out>"
    yield "  <system-err/>"
    yield " </testsuite>"


def _properties(target: TargetReport, report: Report) -> Iterable[str]:
    coverage, left_out = target.coverage, rules_left_out([target])
    facts = {
        "verdict": target.verdict,
        "level": target.level,
        "meaning": proved(target, report),
        **({"part of the data": part_words(report)} if report.share else {}),
        **({"rules left out on request": str(left_out)} if left_out else {}),
        "files looked at": f"{coverage.files_checked} of {coverage.files_total}",
        "bytes looked at": f"{size(coverage.bytes_checked)} of {size(coverage.bytes_total)}",
        "ckptctl": report.tool_version,
    }
    yield "  <properties>"
    for name, value in facts.items():
        yield f"   <property{_attributes({'name': name, 'value': value})}/>"
    yield "  </properties>"


def _result(outcome: RuleOutcome, findings: list[Finding], *, strict: bool) -> tuple[str, str, str, str]:
    """Element (empty: passed), message, type and text of a test case."""
    if outcome.outcome == "could_not_run":
        kind = "error" if _SEVERITY[outcome.rule] == "error" else "skipped"
        return kind, f"could not be checked: {outcome.reason}", "could-not-run", ""
    if outcome.outcome == "skipped":
        return "skipped", outcome.reason, "", ""
    counted = [item for item in findings if strict or item.severity == "error"]
    if not counted:
        return "", "", "", ""
    first = counted[0]
    more = sum(item.count for item in counted) - 1
    message = f"{_told(first)} (and {more} more)" if more else _told(first)
    type_ = "incompatible" if all(item.incompatible for item in counted) else first.severity
    text = "\n\n".join("\n".join((f"{item.severity}: {place_of(item)}", *told_in_full(item))) for item in counted)
    return "failure", message, type_, text


def _told(finding: Finding) -> str:
    place = place_of(finding)
    return f"{place}: {finding.message}" if place else finding.message


def _class_name(target: TargetReport) -> str:
    """The target by its last names, which keeps equal rules of several targets apart."""
    names = target.path.split("/")
    return ".".join(names[-3:] if SNAPSHOTS_FOLDER in names[-3:] else names[-1:])


def _attributes(values: Mapping[str, str]) -> str:
    return "".join(f' {name}="{_possible(value).translate(_IN_ATTRIBUTE)}"' for name, value in values.items())


def _text(text: str) -> str:
    return _possible(text).translate(_IN_TEXT)


def _possible(text: str) -> str:
    """The text with every character that no XML document may hold as an escape."""
    return _NOT_XML.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
