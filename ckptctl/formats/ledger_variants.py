"""Which ledger a `rollout_recovery.pt` holds: numbers were used again, so the fields count as much (snapshot-layout section 6.6).

Decides: whether the strict decoder may judge it. A ledger of another line is *unsupported*, not damaged; one that merely lacks a
field, or has one too many, is for the decoder to blame. Leaves to others: every value (`ledger_file`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.ledger import Attempt, Group, Ledger
from ckptctl.domain.safe_text import shown

READ_VERSIONS = (3, 4)
_TOP = frozenset(Ledger.model_fields)
_GROUP = frozenset(Group.model_fields) - {"restore_level"}
_ATTEMPT = frozenset(Attempt.model_fields)
_UUID = "attempt_uuid"


def refuse_other_ledgers(raw: dict[Any, Any]) -> None:
    """Return for a ledger that the strict decoder may judge.

    Raises:
        DefectError: unsupported for a ledger of another line; a plain defect when it has no number.
    """
    number = raw.get("schema_version")
    if type(number) is not int:
        message = "the ledger has no integer `schema_version`"
        raise DefectError(Defect(message, "schema_version", "an integer", shown(number)))
    groups = _mappings(raw.get("groups"))
    siblings = [sibling for group in groups for sibling in _mappings(group.get("siblings"))]
    attempts = [attempt for sibling in siblings for attempt in _mappings(sibling.get("attempts"))]
    reason = _other_line(number, raw, groups, attempts)
    if reason:
        raise DefectError(Defect(reason, "schema_version", "3 or 4", shown(number)), is_unsupported=True)


def _other_line(number: int, raw: dict[Any, Any], groups: list[dict[Any, Any]], attempts: list[dict[Any, Any]]) -> str:
    """What is to be said of a ledger of another line; empty for ours."""
    has_uuids = any(_UUID in attempt for attempt in attempts)
    if number == 2 and (has_uuids or "open_train_step" in raw):
        return "ledger 2 with attempt UUIDs, the withdrawn line: nothing can migrate its attempts"
    if number == 2:
        return "ledger 2 of the rollout-only main branch: its shape is not documented"
    if number == 3 and has_uuids and any("attempt_index" in attempt for attempt in attempts):
        return "transitional ledger 3, which has both attempt numbers and attempt UUIDs"
    if number not in READ_VERSIONS:
        return f"ledger schema {number} is unknown to this ckptctl"
    if number == 3 and _is_before_acknowledgements(raw, groups, attempts):
        return "ledger 3 without acknowledgements, written before results were acknowledged"
    if number == 3 and _is_foreign(raw, groups, attempts):
        return "another ledger 3, whose fields are not those of the recovery ledger"
    return ""


def _is_before_acknowledgements(
    raw: dict[Any, Any], groups: list[dict[Any, Any]], attempts: list[dict[Any, Any]]
) -> bool:
    return (
        raw.keys() == _TOP - {"pending_completed_execution_acknowledgements"}
        and all(group.keys() == _GROUP - {"resolved_agent_name"} for group in groups)
        and all(attempt.keys() == _ATTEMPT - {"completion_receipt"} for attempt in attempts)
    )


def _is_foreign(raw: dict[Any, Any], groups: list[dict[Any, Any]], attempts: list[dict[Any, Any]]) -> bool:
    """Whether whole levels are of another shape: damage or a slip does not add *and* drop fields at two of the three levels."""
    levels = (([raw], _TOP), (groups, _GROUP), (attempts, _ATTEMPT))
    return (
        sum(all(found.keys() - known and known - found.keys() for found in level) for level, known in levels if level)
        >= 2
    )


def _mappings(values: Any) -> list[dict[Any, Any]]:
    found: Iterable[Any] = values if type(values) is list else ()
    return [value for value in found if type(value) is dict]
