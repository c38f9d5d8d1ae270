"""The catalogue as a promise: sorted, unique, readable in one line each, every rule with executed samples.

Numbers, levels and sentences are looked at in `tests/unit/rules/test_catalogue.py`.
"""

from ckptctl.rules import ALL_RULES
from tests.rules import FAMILIES
from tests.rules.samples import BAD, GOOD

assert FAMILIES, "the sample modules register when they are imported"
LIVE_ONLY = {13, 19, 59, 80, 83, 86, 87, 88, 89, 94, 95, 96}
"""Invariants that only live servers, a discovered topology or the run's own configuration can show."""


def test_rules_are_sorted_and_unique():
    """Ids and names are promises: each exists once, and the list is in order."""
    ids = [rule.id for rule in ALL_RULES]

    assert sorted(set(ids)) == ids
    assert len({rule.name for rule in ALL_RULES}) == len(ids)


def test_texts_fit_a_table():
    """One line each, without blanks around it, the summary short enough for the README; the hint ends in a full stop."""
    texts = [(rule, text) for rule in ALL_RULES for text in (rule.summary, rule.why, rule.hint)]

    assert [] == [rule.id for rule, text in texts if text != text.strip() or "\n" in text or not text.endswith(".")]
    assert [] == [rule.id for rule in ALL_RULES if len(rule.summary) > 130]


def test_live_rules_say_so():
    """What only live servers can show is skipped offline instead of could not run."""
    assert [] == [
        rule.id
        for rule in ALL_RULES
        if rule.invariant in LIVE_ONLY and not {"live", "capabilities", "run"} & set(rule.needs) and rule.id != "PAR033"
    ]


def test_every_rule_has_both_samples_and_every_sample_a_rule():
    """At least one good and one bad sample, which `tests/rules/test_samples.py` runs."""
    assert {rule.id for rule in ALL_RULES} == GOOD.keys() == BAD.keys()
