"""What a restart makes of each attempt: are sealed ones whole, and what becomes of the others? Invariants 50 and 58.

The receipt is opaque here but for its `rollout_id` and the staging keys of its rows; whether those rows exist is INV004, whether
their digests fit belongs to level full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptctl.domain.amounts import plural
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.ids import capture_key
from ckptctl.domain.ledger import Attempt
from ckptctl.rules._model import Rule
from ckptctl.rules._views import continuation_rows, required_ledger

Fault = tuple[str, str, str]
_SEALED_ONLY = ("receipt", "completion_receipt", "reward", "mask_sample")


def check_attempts(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 50."""
    for group in required_ledger(evidence).groups:
        for sibling in group.siblings:
            rollout = group.rollout_of(sibling)
            for attempt in sibling.attempts:
                faults = _sealed_faults(rollout, attempt) if attempt.status == "sealed" else _unsealed_faults(attempt)
                for what, expected, actual in faults:
                    message = f"`{rollout}` attempt {attempt.attempt_index} {what}"
                    location = f"{group.group_id} {rollout} attempt {attempt.attempt_index}"
                    yield Violation(message, evidence.ledger.path, location, expected, actual)


def _sealed_faults(rollout: str, attempt: Attempt) -> Iterator[Fault]:
    for name in ("reward", "mask_sample"):
        if getattr(attempt, name) is None:
            yield f"is sealed but has no {name}", "a value", "null"
    if attempt.receipt is not None:
        yield from _receipt_faults(rollout, attempt, attempt.receipt)
    elif attempt.staging_keys:
        yield "is sealed without a receipt but has staging keys", "none", plural(len(attempt.staging_keys), "key")
    done = attempt.completion_receipt
    if done is not None and (done.rollout_id, done.attempt_index) != (rollout, attempt.attempt_index):
        found = f"`{done.rollout_id}` attempt {done.attempt_index}"
        yield f"is sealed but its completion receipt names {found}", f"{rollout} attempt {attempt.attempt_index}", found


def _receipt_faults(rollout: str, attempt: Attempt, receipt: dict[str, object]) -> Iterator[Fault]:
    wanted = capture_key(rollout, attempt.attempt_index)
    if receipt.get("rollout_id") != wanted:
        yield "is sealed but its receipt is of another attempt", wanted, str(receipt.get("rollout_id"))
    rows = receipt.get("manifest")
    keys = (
        [row.get("staging_key") if isinstance(row, dict) else None for row in rows] if isinstance(rows, list) else None
    )
    if keys is None or not all(isinstance(key, str) for key in keys):
        yield (
            "is sealed but its receipt has no list of rows with staging keys",
            "rows with a staging_key each",
            "others",
        )
    elif keys != attempt.staging_keys:
        yield (
            f"is sealed but its staging keys are not its receipt's: {_difference(keys, attempt.staging_keys)}",
            *_counts(keys, attempt.staging_keys),
        )


def _difference(wanted: list[object], found: list[str]) -> str:
    known, asked = set(found), set(wanted)
    left_out = [str(key) for key in wanted if key not in known]
    added = [key for key in found if key not in asked]
    if left_out or added:
        return "; ".join(f"{word} `{keys[0]}`" for word, keys in (("left out", left_out), ("added", added)) if keys)
    return "repeated" if len(wanted) != len(found) else "in another order"


def _counts(wanted: list[object], found: list[str]) -> tuple[str, str]:
    return f"the receipt's {len(wanted)} keys in order", plural(len(found), "key")


def _unsealed_faults(attempt: Attempt) -> Iterator[Fault]:
    for name in _SEALED_ONLY:
        if getattr(attempt, name) is not None:
            yield f"is {attempt.status}: only sealed attempts may hold `{name}`", "null", "a value"
    if attempt.staging_keys:
        yield (
            f"is {attempt.status}: only sealed attempts may hold `staging_keys`",
            "none",
            plural(len(attempt.staging_keys), "key"),
        )


def check_summary(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 58. The agents' indexes tell who has a continuation: nothing is counted where they cannot be used."""
    ledger = required_ledger(evidence)
    waiting = {(row.rollout_id, row.attempt_index) for _, _, row in continuation_rows(evidence)}
    for granularity in ("sibling", "prompt_group"):
        groups = [group for group in ledger.groups if group.recovery_granularity == granularity]
        if not groups:
            continue
        abandoned = [group for group in groups if granularity == "prompt_group" and group.status == "generating"]
        counted: Counter[str] = Counter()
        for group in groups:
            for sibling in group.siblings:
                current = sibling.current
                if current.status == "sealed" and not (granularity == "prompt_group" and group.status == "generating"):
                    counted["kept (sealed)"] += 1
                elif current.status == "reserved":
                    counted["dispatched for the first time"] += 1
                elif (group.rollout_of(sibling), current.attempt_index) in waiting:
                    counted["dispatched again with a continuation"] += 1
                else:
                    counted["restarted from the task"] += 1
        parts = ", ".join(f"{counted[name]} {name}" for name in sorted(counted)) or "no siblings"
        tail = f"; {plural(len(abandoned), 'whole group')} given up and begun again" if abandoned else ""
        yield Violation(
            f"granularity {granularity}: {plural(len(groups), 'group')}, siblings: {parts}{tail}", evidence.ledger.path
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="LED003",
        invariant=50,
        name="inconsistent-sealed-attempt",
        summary="A sealed attempt has reward, mask and exactly its receipt's staging keys; others have none of these.",
        why="A sealed sibling is reused as it is: with a wrong receipt the finalizer uses other tokens, or crashes.",
        hint="Use an older snapshot; this ledger was written by a faulty build or changed afterwards.",
        severity="error",
        level="standard",
        check=check_attempts,
        requires=("LED001",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="LED011",
        invariant=58,
        name="ledger-summary",
        summary="What a restart makes of the unfinished groups is counted.",
        why="An operator wants to know how much work a restore keeps.",
        hint="Nothing to do.",
        severity="information",
        level="standard",
        check=check_summary,
        requires=("LED001", "MAN005", "PAR002", "PAR006"),
        targets=("snapshot", "anchor"),
    ),
)
