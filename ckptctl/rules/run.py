"""Judges one target: which rules run, in which order, what each says, and the verdict.

A rule is *skipped* when it does not apply here and now (level, missing live facts, ignored on request) or when a rule that it
requires did not pass; it *could not run* when something it must read is not there to be read. Only the latter keeps a target from
being valid. Where the facts come from is `workflows`' business; what they mean is the rules'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ckptctl.domain.evidence import Evidence, LiveFacts, RunFacts
from ckptctl.domain.finding import LEVEL_ORDER, Finding, Level, RuleOutcome, Severity, VerdictName, Violation
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.rules import ALL_RULES
from ckptctl.rules._model import STORAGE_HINT, CannotRunError, Need, NotAskedError, Rule
from ckptctl.rules._registry import evaluation_order

NEED_WORDS: Mapping[Need, str] = {
    "anchor": "the snapshot lies in no anchor",
    "step_anchor": "only for snapshots of a trainer step",
    "bootstrap_anchor": "only for snapshots of the bootstrap anchor",
    "cut": "there are no counters to compare with",
    "gym": "the snapshot holds no Gym state",
    "data_plane": "there is no data plane here",
    "capabilities": "needs a discovered topology: live servers or `--capabilities FILE`",
    "run": "needs the run's own configuration (`--config`)",
    "live": "needs live servers",
}


GAP_HINT = (
    "Nothing is known to be wrong with it, but nobody has checked it; use a snapshot that can be checked completely."
)
IGNORED, NOT_SELECTED = "ignored on request", "not selected"
LEFT_OUT = frozenset({IGNORED, NOT_SELECTED})
"""Reasons of outcomes of rules that somebody did not want to be judged by."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules say of one target; `notes` are findings of severity information."""

    verdict: VerdictName
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    outcomes: tuple[RuleOutcome, ...]


@dataclass(slots=True)
class _State:
    """What became of one rule so far. `waits_for`: rules that did not pass, or (after CannotRunError) that may explain it."""

    outcome: str
    reason: str = ""
    waits_for: tuple[str, ...] = ()
    is_lacking: bool = False
    artifact: str = ""
    """The file that is lacking, where one is."""
    hint: str = ""
    """What makes it readable, where that is known."""
    findings: tuple[Finding, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether rules that require this one must not run."""
        if self.outcome == "failed":
            return any(finding.severity == "error" for finding in self.findings)
        return self.is_lacking or bool(self.waits_for)


@dataclass(frozen=True, slots=True)
class _Choice:
    """What the user selects and ignores: ids, names or family prefixes."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]

    def refusal(self, rule: Rule) -> str | None:
        """Why the rule is not wanted, or None."""
        if any(means(word, rule) for word in self.ignore):
            return IGNORED
        if self.select and not any(means(word, rule) for word in self.select):
            return NOT_SELECTED
        return None


def means(word: str, rule: Rule) -> bool:
    """Whether a word of a user means this rule: its id, its name or its family, in capitals or not."""
    return word.upper() in {rule.id, rule.id[:3]} or word.lower() == rule.name


def unknown_words(words: Iterable[str], rules: Iterable[Rule] = ALL_RULES) -> tuple[str, ...]:
    """The words that mean no rule."""
    known = tuple(rules)
    return tuple(word for word in words if not any(means(word, rule) for rule in known))


def leaves_rules(select: tuple[str, ...], ignore: tuple[str, ...]) -> bool:
    """Whether a choice leaves any rule to run: a verdict of none would say nothing."""
    choice = _Choice(select, ignore)
    return any(choice.refusal(rule) is None for rule in ALL_RULES)


def too_deep_words(select: Iterable[str], level: Level) -> dict[str, Level]:
    """The chosen words of which no rule runs at `level`, each with the level that it takes.

    Raises:
        ValueError: a word means no rule.
    """
    takes: dict[str, Level] = {}
    for word in select:
        first = min((rule.level for rule in ALL_RULES if means(word, rule)), key=LEVEL_ORDER.index)
        if LEVEL_ORDER.index(first) > LEVEL_ORDER.index(level):
            takes[word] = first
    return takes


def run_rules(
    evidence: Evidence,
    *,
    level: Level | None = None,
    select: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    rules: tuple[Rule, ...] = ALL_RULES,
    limits: Limits = DEFAULT_LIMITS,
) -> Judgement:
    """Judge one target at `level` (by default the one it was loaded for)."""
    choice = _Choice(select, ignore)
    applicable = [rule for rule in evaluation_order(rules) if evidence.kind in rule.targets]
    needed = _needed(applicable, choice)
    states: dict[str, _State] = {}
    for rule in applicable:
        if rule.id in needed:
            states[rule.id] = _judge(rule, evidence, level or evidence.level, states, limits)
    for rule in applicable:
        refusal = choice.refusal(rule)
        if refusal is not None and rule.id not in states:
            states[rule.id] = _State("skipped", refusal)
    _settle(states, {rule.id for rule in applicable if choice.refusal(rule) is None})
    return _judgement(sorted(applicable, key=lambda rule: rule.id), states, choice)


def _needed(applicable: list[Rule], choice: _Choice) -> set[str]:
    """The wanted rules and all that they require."""
    by_id = {rule.id: rule for rule in applicable}
    waiting = [rule.id for rule in applicable if choice.refusal(rule) is None]
    needed: set[str] = set()
    while waiting:
        rule_id = waiting.pop()
        if rule_id not in needed and rule_id in by_id:
            needed.add(rule_id)
            waiting.extend(by_id[rule_id].requires)
    return needed


def _judge(rule: Rule, evidence: Evidence, level: Level, states: Mapping[str, _State], limits: Limits) -> _State:
    if LEVEL_ORDER.index(rule.level) > LEVEL_ORDER.index(level):
        return _State("skipped", f"belongs to level {rule.level}")
    blockers = tuple(need for need in rule.requires if need in states and states[need].blocks)
    if blockers:
        return _State("skipped", waits_for=blockers)
    lacking = next((need for need in rule.needs if not _has(evidence, need)), None)
    if lacking is not None:
        return _State("skipped", NEED_WORDS[lacking])
    collected = _Collected(rule, limits.findings_shown)
    try:
        for violation in rule.check(evidence):
            collected.add(violation)
    except CannotRunError as error:
        outcome = "failed" if collected.has_error else "could_not_run"
        is_storage = any(problem in str(error) for problem in evidence.storage_problems)
        hint = error.hint or (STORAGE_HINT if is_storage else "")
        return _State(outcome, str(error), error.because, True, error.artifact, hint, collected.findings())
    except NotAskedError as error:
        return _State("failed" if collected.total else "skipped", str(error), findings=collected.findings())
    has_failed = collected.total > 0 and rule.severity != "information"
    return _State("failed" if has_failed else "passed", findings=collected.findings())


def _has(evidence: Evidence, need: Need) -> bool:
    anchor = evidence.anchor
    match need:
        case "anchor":
            return anchor is not None
        case "step_anchor":
            return anchor is not None and anchor.kind == "step"
        case "bootstrap_anchor":
            return anchor is not None and anchor.kind == "bootstrap"
        case "cut":
            return evidence.cut is not None
        case "gym":
            return evidence.has_gym
        case "data_plane":
            return (
                evidence.kind != "anchor"
                or evidence.metadata.state != "missing"
                or evidence.controller_state.state != "missing"
            )
        case "capabilities":
            return evidence.capabilities is not None
        case "run":
            return evidence.run != RunFacts()
        case "live":
            return evidence.live != LiveFacts()


@dataclass(slots=True)
class _Collected:
    """Findings of one rule: the first `shown` in full, the rest counted."""

    rule: Rule
    shown: int
    total: int = 0
    has_error: bool = False
    first: list[Finding] = field(default_factory=list)
    cut_severities: set[Severity] = field(default_factory=set)
    cut_is_incompatible: bool = True

    def add(self, violation: Violation) -> None:
        """Take one more."""
        self.total += 1
        severity: Severity = "warning" if violation.warning and self.rule.severity == "error" else self.rule.severity
        self.has_error = self.has_error or severity == "error"
        if len(self.first) < self.shown:
            self.first.append(_finding(self.rule, severity, violation))
            return
        self.cut_severities.add(severity)
        if severity == "error" and not violation.incompatible:
            self.cut_is_incompatible = False

    def findings(self) -> tuple[Finding, ...]:
        """The list, with a last one that counts what was cut."""
        cut = self.total - len(self.first)
        if not cut:
            return tuple(self.first)
        severity = next(name for name in ("error", "warning", "information") if name in self.cut_severities)
        rest = Violation(more_of_this_kind(cut, self.total), incompatible=self.cut_is_incompatible)
        return (*self.first, _finding(self.rule, severity, rest, cut, "more"))


def more_of_this_kind(cut: int, total: int) -> str:
    """The message of a finding that stands for those that are not listed."""
    return f"and {cut} more of this kind ({total} in all)"


def _finding(
    rule: Rule, severity: Severity, violation: Violation, count: int = 1, kind: Literal["breach", "more"] = "breach"
) -> Finding:
    return Finding(
        rule=rule.id,
        name=rule.name,
        severity=severity,
        incompatible=severity == "error" and violation.incompatible,
        artifact=violation.artifact,
        location=violation.location,
        message=violation.message,
        expected=violation.expected,
        actual=violation.actual,
        hint=violation.hint or rule.hint,
        count=count,
        kind=kind,
    )


def _gap(rule: Rule, artifact: str, reason: str, hint: str) -> Finding:
    """What keeps a target from being valid although nothing is known to be wrong: once per file and reason."""
    return Finding(
        rule=rule.id,
        name=rule.name,
        severity="warning",
        artifact=artifact,
        location="",
        message=f"could not be checked: {reason}",
        expected="",
        actual="",
        hint=hint or GAP_HINT,
        kind="gap",
    )


def _settle(states: dict[str, _State], wanted: set[str]) -> None:
    """Say for each rule that waits which root rules it waits for, and whether that explains it."""
    for rule_id, state in states.items():
        if state.outcome == "failed" or not (state.waits_for or state.is_lacking):
            continue
        roots = sorted(_roots(state, states))
        if not roots and not state.is_lacking:
            roots = sorted(item for item in state.waits_for if _blocks(states, item))
        told = [root for root in roots if root in wanted]
        if told:
            state.outcome, state.reason = "skipped", f"because of {', '.join(told)}"
        elif state.is_lacking:
            state.outcome = "could_not_run"
        elif rule_id in wanted:
            state.outcome, state.reason = (
                "could_not_run",
                f"needs {', '.join(roots)}, which did not pass and was not selected",
            )


def _roots(state: _State, states: Mapping[str, _State]) -> set[str]:
    """The rules at the bottom of what a state waits for: failed ones, and those that themselves could not run.

    None where those that it waits for only blame one another, or itself.
    """
    roots: set[str] = set()
    seen: set[str] = set()
    waiting = list(state.waits_for)
    while waiting:
        rule_id = waiting.pop()
        found = states.get(rule_id)
        if rule_id in seen or found is None or found is state or not found.blocks:
            continue
        seen.add(rule_id)
        deeper = [] if found.outcome == "failed" else [item for item in found.waits_for if _blocks(states, item)]
        if deeper:
            waiting.extend(deeper)
        else:
            roots.add(rule_id)
    return roots


def _blocks(states: Mapping[str, _State], rule_id: str) -> bool:
    return rule_id in states and states[rule_id].blocks


def _judgement(rules: list[Rule], states: Mapping[str, _State], choice: _Choice) -> Judgement:
    outcomes: list[RuleOutcome] = []
    findings: list[Finding] = []
    gaps: dict[tuple[str, str], Finding] = {}
    for rule in rules:
        state = states[rule.id]
        refusal = choice.refusal(rule)
        outcome, reason = (state.outcome, state.reason) if refusal is None else ("skipped", refusal)
        outcomes.append(
            RuleOutcome.model_validate({"rule": rule.id, "name": rule.name, "outcome": outcome, "reason": reason})
        )
        if refusal is None:
            findings.extend(state.findings)
            if outcome == "could_not_run" and rule.severity == "error":
                gaps[state.artifact, reason] = _gap(rule, state.artifact, reason, state.hint)
    errors = [finding for finding in findings if finding.severity == "error"]
    verdict: VerdictName = "incomplete" if gaps else "valid"
    if errors:
        verdict = "incompatible" if all(finding.incompatible for finding in errors) else "invalid"
    return Judgement(
        verdict,
        (*(finding for finding in findings if finding.severity != "information"), *gaps.values()),
        tuple(finding for finding in findings if finding.severity == "information"),
        tuple(outcomes),
    )
