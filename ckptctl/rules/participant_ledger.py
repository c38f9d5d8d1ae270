"""Do Gym's continuations and the recovery ledger agree on who is unfinished? Invariants 76 to 78.

Upstream does not compare them. A replacement is dispatched as N+1 of the ledger's current attempt, and Gym hands its state to
exactly N+1 of the saved one: a difference gets no error anywhere, the rollout starts from scratch and its state is stranded.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptctl.domain.amounts import plural
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.ledger import Group, Sibling
from ckptctl.rules._model import Rule
from ckptctl.rules._views import boundary_records, continuation_rows, first, has_model_call, required_ledger

Siblings = dict[str, tuple[Group, Sibling]]


def check_continuations(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 76."""
    siblings = required_ledger(evidence).siblings()
    for _, _, row in continuation_rows(evidence):
        fault = _fault(siblings, row.rollout_id, row.attempt_index)
        if fault is not None:
            what, expected, actual = fault
            message = f"continuation `{row.rollout_id}` attempt {row.attempt_index}: the ledger {what}"
            yield Violation(
                f"{message}; the restored state would be stranded",
                evidence.ledger.path,
                row.rollout_id,
                expected,
                actual,
            )


def check_boundaries(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 77."""
    siblings = required_ledger(evidence).siblings()
    for agent, archive, record in boundary_records(evidence):
        fault = None if has_model_call(record) else _fault(siblings, record.rollout_id, record.attempt_index)
        if fault is not None:
            what, expected, actual = fault
            message = f"boundary `{record.rollout_id}` attempt {record.attempt_index}: the ledger {what}"
            path = f"{agent.folder}/{archive}"
            yield Violation(
                f"{message}; the restored state would be stranded", path, record.rollout_id, expected, actual
            )


def _fault(siblings: Siblings, rollout: str, attempt: int) -> tuple[str, str, str] | None:
    """What the ledger says against a saved attempt, what would be right, and what is there."""
    _, sibling = siblings.get(rollout, (None, None))
    if sibling is None:
        return "has no such sibling", "a sibling", "none"
    current = sibling.current
    if current.attempt_index != attempt:
        return f"is at attempt {current.attempt_index}", f"attempt {attempt}", f"attempt {current.attempt_index}"
    if current.status == "sealed":
        return "has sealed it", "dispatched", "sealed"
    if current.status != "dispatched":
        return f"calls it {current.status}", "dispatched", current.status
    return None


def check_restarted(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 78."""
    waiting = {(row.rollout_id, row.attempt_index) for _, _, row in continuation_rows(evidence)}
    restarted = [
        rollout
        for rollout, (_, sibling) in required_ledger(evidence).siblings().items()
        if sibling.current.status == "dispatched" and (rollout, sibling.current.attempt_index) not in waiting
    ]
    if restarted:
        noun = plural(len(restarted), "unfinished rollout restarts", "unfinished rollouts restart")
        yield Violation(f"{noun} from the task: {first(restarted)}", evidence.ledger.path)


RULES: tuple[Rule, ...] = (
    Rule(
        id="PAR018",
        invariant=76,
        name="stranded-continuation",
        summary="Each continuation is the dispatched current attempt of a sibling in the ledger.",
        why="NeMo-RL dispatches the ledger's attempt plus one, Gym waits for the saved one plus one: nobody notices.",
        hint="Use an older snapshot; ledger and agents were saved at different moments.",
        severity="error",
        level="standard",
        check=check_continuations,
        requires=("LED002", "MAN005", "PAR002", "PAR006"),
        needs=("gym",),
    ),
    Rule(
        id="PAR019",
        invariant=77,
        name="stranded-boundary",
        summary="Each boundary record without a model call is the dispatched current attempt of a sibling, too.",
        why="The agent would restore state that no dispatch ever claims; it stays in memory until the process ends.",
        hint="Nothing is lost but memory; use an older snapshot if it matters.",
        severity="warning",
        level="standard",
        check=check_boundaries,
        requires=("LED002", "MAN005", "PAR002", "PAR006", "PAR007"),
        needs=("gym",),
    ),
    Rule(
        id="PAR020",
        invariant=78,
        name="rollouts-without-continuation",
        summary="Unfinished rollouts that restart from the task are counted.",
        why="They are legal (no boundary was reached before the cut), but their work is done again.",
        hint="Nothing to do.",
        severity="information",
        level="standard",
        check=check_restarted,
        requires=("LED002", "MAN005", "PAR002", "PAR006"),
        needs=("gym",),
    ),
)
