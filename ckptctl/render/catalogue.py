"""The rule catalogue: for `--explain`, `--list-rules` and the README. Everything comes from the rules' own fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field
from rich.text import Text

from ckptctl.domain.document import Document
from ckptctl.domain.finding import Level, Severity
from ckptctl.errors import EXIT_MEANINGS, UsageError
from ckptctl.render.console import draw_table, flow, open_table, render
from ckptctl.render.machine import to_json
from ckptctl.render.report_words import SEVERITY_STYLE
from ckptctl.rules import ALL_RULES
from ckptctl.rules._model import Rule
from ckptctl.rules.run import means

FAMILIES = {
    "MAN": "layout and manifest",
    "ANC": "anchor and selection",
    "FPR": "fingerprints and configuration",
    "BND": "binding of the parts to one cut",
    "INV": "data-plane inventory",
    "LED": "recovery ledger",
    "PAR": "Gym participants",
    "DUR": "durability and safety",
    "SUM": "checksum file",
}


class RuleFacts(Document):
    """One rule: what must hold, why, and what to do when it does not."""

    id: str
    name: str
    invariant: int | None
    severity: Severity
    level: Level
    summary: str
    why: str
    hint: str
    requires: tuple[str, ...] = Field(
        description="rules that are judged first; when one of them fails, this one is skipped"
    )
    needs: tuple[str, ...] = Field(description="what must be known beside the snapshot; skipped otherwise")
    targets: tuple[str, ...] = Field(description="kinds of target that it judges")
    since: str


class RuleList(Document):
    """The answer of `ckptctl validate --list-rules` and `--explain RULE`."""

    schema_version: Literal[1] = 1
    rules: tuple[RuleFacts, ...]


def rule_facts(rule: Rule) -> RuleFacts:
    """A rule as a document."""
    return RuleFacts(
        id=rule.id,
        name=rule.name,
        invariant=rule.invariant,
        severity=rule.severity,
        level=rule.level,
        summary=rule.summary,
        why=rule.why,
        hint=rule.hint,
        requires=rule.requires,
        needs=rule.needs,
        targets=rule.targets,
        since=rule.since,
    )


def find_rules(wanted: str) -> tuple[Rule, ...]:
    """The rules that an id, a name or a family prefix means. Raises UsageError for an unknown one."""
    found = tuple(rule for rule in ALL_RULES if means(wanted, rule))
    if not found:
        raise UsageError(f"there is no rule `{wanted}`", hint="`ckptctl validate --list-rules` lists them all")
    return found


def explain_rule(wanted: str, *, as_json: bool) -> str:
    """All that is known of one rule (or one family)."""
    rules = find_rules(wanted)
    if as_json:
        return _rules_json(rules)
    return flow("\n".join(_explanation(rule) for rule in rules))


def list_rules(*, as_json: bool) -> str:
    """One line a rule."""
    if as_json:
        return _rules_json(ALL_RULES)
    table = open_table("rule", "severity", "level", "name")
    for rule in ALL_RULES:
        table.add_row(rule.id, Text(rule.severity, style=SEVERITY_STYLE[rule.severity]), rule.level, rule.name)
    return render(lambda console: draw_table(console, table))


def _rules_json(rules: Iterable[Rule]) -> str:
    return to_json(RuleList(rules=tuple(rule_facts(rule) for rule in rules)))


def _explanation(rule: Rule) -> str:
    lines = [
        f"{rule.id} {rule.name} ({rule.severity}, level {rule.level}, {_origin(rule)}, since {rule.since})",
        f"  {rule.summary}",
        f"  why: {rule.why}",
        f"  hint: {rule.hint}",
    ]
    if rule.requires:
        lines.append(f"  judged only after: {', '.join(rule.requires)}")
    if rule.needs:
        lines.append(
            f"  needs: {', '.join(rule.needs)} (skipped otherwise, which is said and not held against the verdict)"
        )
    return "\n".join(lines) + "\n"


def _origin(rule: Rule) -> str:
    return f"invariant {rule.invariant}" if rule.invariant is not None else "of ckptctl's own file"


def catalogue_markdown() -> str:
    """The README's table."""
    blocks = []
    for family, title in FAMILIES.items():
        rows = [rule for rule in ALL_RULES if rule.id.startswith(family)]
        blocks.append(
            f"**{family}**: {title}\n\n| rule | name | severity | level | what must hold |\n| --- | --- | --- | --- | --- |\n"
            + "".join(
                f"| {rule.id} | {rule.name} | {rule.severity} | {rule.level} | {_cell(rule.summary)} |\n"
                for rule in rows
            )
        )
    return "\n".join(blocks)


def exit_codes_markdown() -> str:
    """The README's exit status table."""
    return "| status | meaning |\n| --- | --- |\n" + "".join(
        f"| {int(code)} | {_cell(meaning)} |\n" for code, meaning in EXIT_MEANINGS.items()
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
