"""Which parts each rule compares, and from their outcomes which parts of a snapshot agree.

Pure. A rule that is about one part alone stands on the diagonal. Rules that compare nothing in a snapshot (they count, or are
about live servers or other snapshots) are named too, so that a new rule is put into one of the two lists (a test says so).
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptctl.domain.agreement import CELL_ORDER, PARTS, Cell, CellState
from ckptctl.domain.finding import Finding, RuleOutcome

_SHORT = {
    "man": "manifest",
    "anc": "anchor",
    "cfg": "configuration",
    "led": "ledger",
    "rep": "replay metadata",
    "dp": "data plane",
    "ag": "agents",
    "mod": "policy models",
    "res": "resources servers",
    "files": "files",
    "sum": "checksum file",
}
_BY_PARTS: dict[str, str] = {
    "man": "MAN001 MAN003 MAN004 MAN005 MAN006 FPR004 PAR001 PAR032",
    "anc": "ANC004 ANC005 ANC006 FPR001",
    "man-anc": "ANC001 ANC002 ANC003 FPR002",
    "cfg": "DUR003 FPR007",
    "cfg-man": "FPR003 FPR005",
    "cfg-anc": "FPR006",
    "led": "LED001 LED002 LED003 LED004 LED005 LED006 LED007 LED009",
    "led-rep": "LED008 LED010",
    "led-man": "BND010 INV014",
    "rep": "INV003",
    "rep-man": "BND010 INV014",
    "dp": "BND001 INV006 INV007 INV008 INV010 INV012 INV015",
    "dp-man": "BND002 INV014",
    "dp-anc": "BND003",
    "dp-led": "BND004 BND005 BND008 INV004 INV005 INV009",
    "dp-rep": "BND003 BND006 BND007 BND008 INV001 INV002 INV011",
    "dp-mod": "INV004 INV005 INV009",
    "ag": "PAR007 PAR008 PAR010 PAR011",
    "ag-man": "PAR002 PAR003 PAR004 PAR005 PAR006",
    "ag-led": "PAR018 PAR019",
    "mod": "PAR012 MAN007",
    "mod-man": "PAR002 PAR003 PAR004 PAR005 PAR006 INV014",
    "mod-ag": "PAR013 PAR014 PAR015 PAR016 PAR017",
    "res": "PAR026",
    "res-man": "PAR002 PAR003 PAR004 PAR005",
    "res-ag": "PAR021 PAR023 PAR027",
    "files": "MAN002 MAN008 MAN009 MAN010 MAN011 DUR001 SUM008",
    "sum": "SUM001 SUM007 SUM009",
    "sum-man": "SUM002",
    "sum-files": "SUM003 SUM004 SUM005 SUM006",
}
_NOT_COMPARED = (
    "BND009 DUR002 DUR004 DUR005 DUR006 INV013 LED011 "
    "PAR009 PAR020 PAR022 PAR024 PAR025 PAR028 PAR029 PAR030 PAR031 PAR033"
)
NOT_COMPARED = frozenset(_NOT_COMPARED.split())
"""They count, or are about live servers, a restore or other snapshots."""


def _cells() -> dict[tuple[str, str], tuple[str, ...]]:
    found = {}
    for name, rules in _BY_PARTS.items():
        parts = sorted((_SHORT[short] for short in name.split("-")), key=PARTS.index)
        found[parts[0], parts[-1]] = tuple(rules.split())
    return found


CELLS = _cells()
"""(Part, part) in the order of the parts -> rules."""


def agreement(outcomes: Iterable[RuleOutcome], findings: Iterable[Finding]) -> tuple[Cell, ...]:
    """One cell for each pair that some rule is about, in the order of the parts."""
    known = {item.rule: item for item in outcomes}
    errors = {item.rule for item in findings if item.severity == "error"}
    return tuple(
        _cell(parts, [known[rule] for rule in rules if rule in known], errors)
        for parts, rules in sorted(CELLS.items(), key=_order)
    )


def _order(item: tuple[tuple[str, str], object]) -> tuple[int, int]:
    one, other = item[0]
    return PARTS.index(one), PARTS.index(other)


def _cell(parts: tuple[str, str], outcomes: list[RuleOutcome], errors: set[str]) -> Cell:
    states = {item.rule: _state(item, errors) for item in outcomes}
    ran = [item for item in outcomes if item.outcome != "skipped"]
    return Cell(
        first=parts[0],
        second=parts[1],
        state=max(states.values(), key=CELL_ORDER.index, default="not_checked"),
        families=tuple(dict.fromkeys(item.rule[:3] for item in ran)),
        passed=sum(item.outcome == "passed" for item in outcomes),
        troubled=tuple(rule for rule, state in states.items() if state not in {"agrees", "not_checked"}),
    )


def _state(outcome: RuleOutcome, errors: set[str]) -> CellState:
    if outcome.outcome == "failed":
        return "differs" if outcome.rule in errors else "doubtful"
    if outcome.outcome == "could_not_run":
        return "unknown"
    return "agrees" if outcome.outcome == "passed" else "not_checked"
