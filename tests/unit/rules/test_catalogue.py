"""The catalogue as a whole: numbers, texts, levels, targets, samples."""

import re

import pytest

from ckptctl.rules import ALL_RULES
from ckptctl.rules._registry import FAMILY_ORDER, evaluation_order
from ckptctl.rules.run import run_rules
from tests.rules import FAMILIES
from tests.rules.samples import BAD, GOOD

RULES = {rule.id: rule for rule in ALL_RULES}
QUICK = {*range(1, 7), *range(8, 18), *range(90, 93)}
assert FAMILIES, "the sample modules register when they are imported"


def test_every_invariant_has_a_rule():
    """97 invariants, none forgotten; one that is an error live and a note offline has two rules, so has that of containers: for
    those in a snapshot, and for the pack around one."""
    assert set(range(1, 98)) == {rule.invariant for rule in ALL_RULES if rule.invariant is not None}
    assert 99 == sum(rule.invariant is not None for rule in ALL_RULES)


def test_the_rules_about_our_own_file_stand_alone():
    """No invariant of the reference list is about the checksum file: these rules have no number there, and nobody else has none."""
    own = [rule.id for rule in ALL_RULES if rule.invariant is None]

    assert [f"SUM{number:03d}" for number in range(1, 10)] == own


def test_numbers_follow_the_invariants_within_a_family():
    """The first rules of a family stand in the order of the reference list, without gaps."""
    for family in ("MAN", "ANC", "FPR", "BND", "INV", "LED", "PAR", "DUR"):
        members = [rule for rule in ALL_RULES if rule.id.startswith(family)]
        invariants = [rule.invariant for rule in members]

        assert [f"{family}{number:03d}" for number in range(1, len(members) + 1)] == [rule.id for rule in members]
        first = [number for number in invariants if number not in {81, 97}]
        assert sorted(first) == first


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)
def test_texts(rule):
    """What a person at three in the morning reads: whole sentences, a name that names the defect."""
    assert rule.summary.endswith(".")
    assert rule.why.endswith(".")
    assert rule.hint.endswith(".")
    assert not rule.name.startswith("no-")
    assert rule.since == "0.1.0"


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)
def test_levels_are_those_of_the_reference(rule):
    """Quick looks at names, manifests and the anchor's small files; full needs tensor bytes."""
    is_quick = rule.invariant in QUICK or rule.id == "MAN011"  # of a pack that cannot be read nothing else can be said
    wanted = "full" if rule.invariant in range(38, 43) else "quick" if is_quick else "standard"
    assert wanted == rule.level


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_every_rule_has_a_good_and_a_bad_sample(rule_id):
    """Both are executed and quoted."""
    assert GOOD.get(rule_id)
    assert BAD.get(rule_id)


def test_nothing_waits_for_itself():
    """Neither by what it requires nor by what it blames: over every first bad sample, each family by itself says whom it waits for."""
    order = {rule.id: place for place, rule in enumerate(evaluation_order(ALL_RULES))}
    evidence = [group[0].build() for group in BAD.values()]
    reasons = {
        outcome.reason
        for found in evidence
        for family in FAMILY_ORDER
        for outcome in run_rules(found, select=(family,)).outcomes
    }

    assert [] == [rule.id for rule in ALL_RULES for need in rule.requires if order[need] >= order[rule.id]]
    assert [] == [text for text in reasons if re.search(r"(needs|because of) *(,|$)", text)]
    assert any(text.startswith("needs ") for text in reasons)
