"""How each rollout, its boundary and its sessions moved between two snapshots: rules 3 to 5 of `planning.snapshot_diff`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ckptctl.domain.ledger import Attempt, Group, Sibling
from ckptctl.domain.participant_files import BoundaryRecord
from ckptctl.domain.snapshot_diff import Change
from ckptctl.planning.diff_facts import Side, change

_OVER = frozenset({"failed", "abandoned"})


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a step backwards is called: a loss after a restore that went back, else something that nothing explains."""

    is_so: bool

    @property
    def kind(self) -> str:
        """Kind of a change that goes backwards."""
        return "lost" if self.is_so else "unexpected"

    @property
    def why(self) -> str:
        """What explains it, as the end of a sentence."""
        return ", as a restore between the two went back further" if self.is_so else ""


def rollout_changes(before: Side, after: Side, back: Rewound) -> Iterator[Change]:
    """3: every sibling that both ledgers have."""
    for rollout, (group, old) in before.siblings.items():
        pair = after.siblings.get(rollout)
        if pair is not None:
            yield from _attempts(rollout, group, old, pair[1], back)


def _attempts(rollout: str, group: Group, old: Sibling, new: Sibling, back: Rewound) -> Iterator[Change]:
    was, now = old.current, new.current
    values = (f"attempt {was.attempt_index} {was.status}", f"attempt {now.attempt_index} {now.status}")
    if now.attempt_index < was.attempt_index:
        yield change(back.kind, "rollout", rollout, f"is back at an earlier attempt{back.why}", *values)
    elif now.attempt_index == was.attempt_index:
        yield from _same_attempt(rollout, was, now, values, back)
    else:
        yield _later_attempt(rollout, group, was, values, back)
        if now.status == "sealed":
            yield change("progressed", "rollout", rollout, "is sealed", *values)


def _same_attempt(rollout: str, was: Attempt, now: Attempt, values: tuple[str, str], back: Rewound) -> Iterator[Change]:
    if was.status == now.status:
        if was.status == "sealed" and _digest(was) != _digest(now):
            yield change("unexpected", "rollout", rollout, "the result of a sealed attempt is another one")
    elif was.status == "sealed":
        yield change(back.kind, "rollout", rollout, f"a finished result is gone{back.why}", *values)
    elif was.status in _OVER and now.status not in _OVER:
        yield change(back.kind, "rollout", rollout, f"an attempt that was over goes on{back.why}", *values)
    elif now.status == "reserved":
        yield change(back.kind, "rollout", rollout, f"was dispatched and is only reserved{back.why}", *values)
    elif now.status in _OVER:
        yield change("lost", "rollout", rollout, f"its attempt {now.status}", *values)
    else:
        yield change("progressed", "rollout", rollout, f"is {now.status}", *values)


def _later_attempt(rollout: str, group: Group, was: Attempt, values: tuple[str, str], back: Rewound) -> Change:
    if was.status != "sealed":
        return change("changed", "rollout", rollout, "a later attempt took over", *values)
    if group.recovery_granularity == "sibling" or all(one.current.status == "sealed" for one in group.siblings):
        return change(back.kind, "rollout", rollout, f"a finished result is generated again{back.why}", *values)
    return change("lost", "rollout", rollout, "a finished result is generated again with its group", *values)


def _digest(attempt: Attempt) -> str | None:
    return None if attempt.completion_receipt is None else attempt.completion_receipt.result_digest


def boundary_changes(before: Side, after: Side, back: Rewound) -> Iterator[Change]:
    """4."""
    if before.boundaries is None or after.boundaries is None:
        return
    for rollout, old in before.boundaries.items():
        new = after.boundaries.get(rollout)
        found = _boundary_gone(rollout, old, after, back) if new is None else _boundary(rollout, old, new, back)
        if found is not None:
            yield found
    for rollout, new in after.boundaries.items():
        if rollout not in before.boundaries:
            yield change("progressed", "boundary", rollout, "is new", None, _place(new))


def _boundary(rollout: str, old: BoundaryRecord, new: BoundaryRecord, back: Rewound) -> Change | None:
    values = (_place(old), _place(new))
    if new.attempt_index < old.attempt_index:
        return change(back.kind, "boundary", rollout, f"the boundary is an earlier attempt's{back.why}", *values)
    if new.boundary_index < old.boundary_index:
        if new.attempt_index > old.attempt_index:
            return change("lost", "boundary", rollout, "a later attempt is behind: turns are generated again", *values)
        return change(back.kind, "boundary", rollout, f"the boundary went backwards{back.why}", *values)
    if new.boundary_index > old.boundary_index or new.attempt_index > old.attempt_index:
        return change("progressed", "boundary", rollout, "went on", *values)
    if new.last_committed_model_call_id != old.last_committed_model_call_id or new.turn_index != old.turn_index:
        return change("unexpected", "boundary", rollout, "the same boundary stands after another call", *values)
    return None


def _boundary_gone(rollout: str, old: BoundaryRecord, after: Side, back: Rewound) -> Change | None:
    """Sealed and finished rollouts have none any more, and what became of groups that are gone is told with the group."""
    pair = after.siblings.get(rollout)
    if pair is None or pair[1].current.status != "dispatched":
        return None
    if pair[1].current.attempt_index > old.attempt_index:
        text = "a later attempt has no boundary yet: its turns are generated again"
        return change("lost", "boundary", rollout, text, _place(old))
    return change(
        back.kind, "boundary", rollout, f"the boundary is gone while the attempt goes on{back.why}", _place(old)
    )


def _place(record: BoundaryRecord) -> str:
    return f"attempt {record.attempt_index}, boundary {record.boundary_index}, turn {record.turn_index}"


def session_changes(before: Side, after: Side, back: Rewound) -> Iterator[Change]:
    """5."""
    if before.sessions is None or after.sessions is None:
        return
    for (server, rollout), old in before.sessions.items():
        new = after.sessions.get((server, rollout))
        if new is None:
            boundary = None if after.boundaries is None else after.boundaries.get(rollout)
            if boundary is not None and server in boundary.resource_state_revisions:
                text = f"the session on {server} is gone, and its boundary needs it"
                yield change("unexpected", "session", rollout, text)
            continue
        values = (f"revision {old.state_revision}", f"revision {new.state_revision}")
        if new.attempt_index < old.attempt_index:
            yield change(back.kind, "session", rollout, f"on {server} belongs to an earlier attempt{back.why}", *values)
        elif new.state_revision < old.state_revision:
            is_later = new.attempt_index > old.attempt_index
            kind, why = ("lost", ": a later attempt began again") if is_later else (back.kind, back.why)
            yield change(kind, "session", rollout, f"on {server} has a smaller revision{why}", *values)
        elif new.state_revision > old.state_revision:
            yield change("progressed", "session", rollout, f"on {server} went on", *values)
