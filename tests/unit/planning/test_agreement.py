"""The consistency matrix: every rule has its place, and the worst outcome decides for a cell."""

from ckptctl.domain.agreement import PARTS
from ckptctl.domain.finding import Finding, RuleOutcome
from ckptctl.planning.agreement import CELLS, NOT_COMPARED, agreement
from ckptctl.rules import ALL_RULES


def outcome(rule: str, state: str) -> RuleOutcome:
    return RuleOutcome(rule=rule, name="x", outcome=state)


def finding(rule: str, severity: str = "error") -> Finding:
    return Finding(
        rule=rule, name="x", severity=severity, artifact="", location="", message="m", expected="", actual="", hint=""
    )


def cell(one: str, other: str, outcomes=(), findings=()):
    [found] = [item for item in agreement(outcomes, findings) if (item.first, item.second) == (one, other)]
    return found


def test_every_rule_has_its_place() -> None:
    """In a cell, or among those that compare nothing in a snapshot; never in both. Every part has a cell of its own."""
    placed = {rule for rules in CELLS.values() for rule in rules}

    assert {rule.id for rule in ALL_RULES} == placed | NOT_COMPARED
    assert set() == placed & NOT_COMPARED
    assert set(PARTS) == {one for one, other in CELLS if one == other}


def test_cells_in_the_order_of_the_parts() -> None:
    """The first part of a pair stands before the second, and cells follow one another as parts do."""
    places = [(PARTS.index(item.first), PARTS.index(item.second)) for item in agreement((), ())]

    assert sorted(places) == places
    assert all(one <= other for one, other in places)


def test_the_worst_decides() -> None:
    """Failed before warned before unknown before passed; skipped rules say nothing."""
    pair = ("ledger", "data plane")
    states = ["passed", "skipped"]

    assert ("not_checked", (), 0) == (cell(*pair).state, cell(*pair).families, cell(*pair).passed)
    assert "not_checked" == cell(*pair, [outcome("BND004", "skipped")]).state
    agrees = cell(*pair, [outcome("BND004", "passed"), outcome("INV004", "passed"), outcome("INV009", "skipped")])
    assert ("agrees", ("BND", "INV"), 2, ()) == (agrees.state, agrees.families, agrees.passed, agrees.troubled)
    unknown = cell(*pair, [*(outcome("BND004", state) for state in states), outcome("INV004", "could_not_run")])
    assert ("unknown", ("INV004",)) == (unknown.state, unknown.troubled)
    warned = cell(*pair, [outcome("INV004", "failed")], [finding("INV004", "warning")])
    assert "doubtful" == warned.state
    differs = cell(*pair, [outcome("INV004", "failed"), outcome("BND005", "could_not_run")], [finding("INV004")])
    assert ("differs", ("BND005", "INV004")) == (differs.state, tuple(sorted(differs.troubled)))
