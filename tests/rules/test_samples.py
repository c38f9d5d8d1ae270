"""Every sample of every rule is run: good ones pass, bad ones break exactly their rule."""

import pytest

from ckptctl.rules import ALL_RULES
from ckptctl.rules.run import run_rules
from tests.rules import FAMILIES
from tests.rules.samples import BAD, GOOD

RULES = {rule.id: rule for rule in ALL_RULES}
assert FAMILIES, "the sample modules register when they are imported"


def named(samples):
    return [
        pytest.param(sample, id=f"{sample.rule}-{sample.title}".replace(" ", "-"))
        for group in samples.values()
        for sample in group
    ]


@pytest.mark.parametrize("sample", named(GOOD))
def test_good_sample_passes(sample):
    """The rule runs on the sample and finds nothing."""
    judgement = run_rules(sample.build())

    outcome = {outcome.rule: outcome for outcome in judgement.outcomes}[sample.rule]
    assert ("passed", "") == (outcome.outcome, outcome.reason)
    assert [] == [finding.message for finding in judgement.findings if finding.rule == sample.rule]


@pytest.mark.parametrize("sample", named(BAD))
def test_bad_sample_breaks_exactly_its_rule(sample):
    """No other rule fails or could not run; the finding names what a reader must know and the file to blame."""
    rule = RULES[sample.rule]
    judgement = run_rules(sample.build())

    found = [finding for finding in (*judgement.findings, *judgement.notes) if finding.rule == sample.rule]
    expected = set() if rule.severity == "information" else {sample.rule, *sample.also}
    assert expected == {finding.rule for finding in judgement.findings}
    assert [] == [outcome for outcome in judgement.outcomes if outcome.outcome == "could_not_run"]
    assert any(sample.word in finding.message for finding in found), [finding.message for finding in found]
    if sample.artifact is not None:
        assert {sample.artifact} == {finding.artifact for finding in found}
    severity = "warning" if sample.is_warning else rule.severity
    assert {severity} == {finding.severity for finding in found}
    wanted = {"error": "incompatible" if sample.is_incompatible else "invalid"}.get(severity, "valid")
    assert wanted == judgement.verdict
