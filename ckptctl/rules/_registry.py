"""The list of all rules, checked when it is imported, and the order in which they are judged.

A mistake here is a bug of ours, so it stops the import: duplicate or misplaced ids, a requirement that nobody is, a circle of
requirements, a text that was forgotten.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ckptctl.rules._model import Rule

FAMILY_ORDER = ("MAN", "ANC", "FPR", "BND", "LED", "PAR", "INV", "DUR", "SUM")
"""Order of evaluation of rules that do not wait for each other."""
_ID = re.compile(r"[A-Z]{3}[0-9]{3}\Z")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")


def assemble(*families: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """All rules in order of their ids.

    Raises:
        RuntimeError: the catalogue contradicts itself.
    """
    for family in families:
        _demand(
            [rule.id for rule in family] == sorted({rule.id for rule in family}),
            f"{family[:1]}: ids are not sorted and unique",
        )
    rules = tuple(sorted((rule for family in families for rule in family), key=lambda rule: rule.id))
    _demand(len({rule.id for rule in rules}) == len(rules), "two rules have the same id")
    _demand(len({rule.name for rule in rules}) == len(rules), "two rules have the same name")
    known = {rule.id for rule in rules}
    for rule in rules:
        _demand(_ID.match(rule.id) is not None and rule.id[:3] in FAMILY_ORDER, f"{rule.id} is no rule id")
        _demand(
            _NAME.match(rule.name) is not None and not rule.name.startswith("no-"), f"{rule.id}: name `{rule.name}`"
        )
        _demand(all(text.endswith(".") for text in (rule.why, rule.hint)), f"{rule.id}: a text lacks its full stop")
        _demand(set(rule.requires) <= known, f"{rule.id} requires {set(rule.requires) - known}, which nobody is")
        _demand(list(rule.requires) == sorted(set(rule.requires)), f"{rule.id}: requires is not sorted and unique")
        _demand(bool(rule.targets), f"{rule.id} applies to nothing")
    evaluation_order(rules)
    return rules


@lru_cache(maxsize=8)
def evaluation_order(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules so that each comes after all that it requires; otherwise by family, then by number.

    Raises:
        RuntimeError: requirements form a circle.
    """
    waiting = sorted(rules, key=lambda rule: (FAMILY_ORDER.index(rule.id[:3]), rule.id))
    present = {rule.id for rule in waiting}
    done: dict[str, Rule] = {}
    while waiting:
        ready = next(
            (rule for rule in waiting if all(need in done or need not in present for need in rule.requires)), None
        )
        if ready is None:
            raise RuntimeError(f"requirements form a circle among {[rule.id for rule in waiting]}")
        waiting.remove(ready)
        done[ready.id] = ready
    return tuple(done.values())


def _demand(is_so: bool, message: str) -> None:
    if not is_so:
        raise RuntimeError(f"rule catalogue: {message}")
