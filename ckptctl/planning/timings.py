"""How long the steps of a snapshot took, from the records of its journal. Records in, times out; nothing is believed blindly.

1. A step's length, its traffic and, within one process, its place in time are what that process' monotonic clock measured.
2. Where that is missing (an older journal, a step that nobody ended, another process that went on) the records' wall clock
   stands in, and never runs backwards.
3. The window lies between the intent to close admission and the outcome of opening it.
4. A transaction's own time is what is left of the window after its requests and its steps 6 to 8, which are told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, isfinite
from typing import Any

from ckptctl.domain.timings import Spread, StepInTime, StepState, StepTimes, TransactionTimes
from ckptctl.planning.snapshot import CLOSE, OPEN

UNFINISHED = "unfinished"
_NUMBER = re.compile(r"[1-9](?:\.[0-9])?")
_APART = ("6", "7", "8")
"""Save, validation, publication: their own work is not the coordinator's time between requests."""


@dataclass(slots=True)
class _Step:
    number: str
    name: str
    intent_at_s: float
    process: int
    """Which of the processes that wrote the journal."""
    state: StepState = "unknown"
    ended_at_s: float | None = None
    seconds: float | None = None
    elapsed_s: float | None = None
    waiting_s: float | None = None
    requests: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None

    @property
    def traffic_bytes(self) -> int | None:
        if self.sent_bytes is None or self.received_bytes is None:
            return None
        return self.sent_bytes + self.received_bytes

    @property
    def own_s(self) -> float | None:
        if self.seconds is None or self.waiting_s is None:
            return None
        return round(max(0.0, self.seconds - self.waiting_s), 6)

    @property
    def wall_end_s(self) -> float:
        return self.intent_at_s if self.ended_at_s is None else max(self.intent_at_s, self.ended_at_s)


@dataclass(slots=True)
class Timed:
    """One journal, read for its times."""

    times: TransactionTimes
    steps: tuple[StepInTime, ...]
    _own_s: dict[str, float] = field(default_factory=dict)

    def own_s(self, name: str) -> float | None:
        """Time of a step in which no request was under way."""
        return self._own_s.get(name)


def read_times(name: str, records: Iterable[Mapping[str, Any]]) -> Timed | None:
    """The times of one snapshot transaction; None when it never closed admission."""
    first: Mapping[str, Any] = {}
    steps: list[_Step] = []
    finish, process = UNFINISHED, 0
    for record in records:
        event = record.get("event")
        if event == "begin":
            first = record
        elif event == "intent":
            _begin(steps, record, process)
        elif event in ("outcome", "failure"):
            _end(steps, record, "done" if event == "outcome" else "failed")
        elif event == "recovery":
            process += 1
        elif event == "finish":
            finish = str(record.get("outcome", ""))
    closing = next((step for step in steps if step.name == CLOSE), None)
    if closing is None:
        return None
    opening = next((step for step in reversed(steps) if step.name == OPEN and step.state == "done"), None)
    times = TransactionTimes(
        transaction=name,
        checkpoint_id=str(first.get("checkpoint_id", "")),
        snapshot=str(first.get("final", "")),
        began_at=_number(first.get("at")) or 0.0,
        outcome=finish,
        is_recovered=process > 0,
        admission_closed_s=_between(closing, opening),
        own_s=_own(closing, opening, steps),
        requests=_sum(step.requests for step in steps),
        bytes=_sum(step.traffic_bytes for step in steps),
    )
    own = {step.name: step.own_s for step in steps if step.own_s is not None}
    return Timed(times, tuple(_in_time(step, steps[0]) for step in steps), own)


def spread_steps(timed: Sequence[Timed]) -> tuple[StepTimes, ...]:
    """Every step of these transactions, in the order of their numbers, over all of them."""
    found: dict[tuple[str, str], list[tuple[StepInTime, float | None]]] = {}
    for item in timed:
        for step in item.steps:
            if step.state == "done" and step.seconds is not None:
                found.setdefault((step.number, step.name), []).append((step, item.own_s(step.name)))
    return tuple(
        StepTimes(
            number=number,
            name=name,
            seconds=_spread([step.seconds for step, _ in steps]),
            own_s=spread(own for _, own in steps),
            requests=spread(step.requests for step, _ in steps),
            bytes=spread(
                None
                if step.sent_bytes is None or step.received_bytes is None
                else step.sent_bytes + step.received_bytes
                for step, _ in steps
            ),
        )
        for (number, name), steps in sorted(found.items())
    )


def spread(values: Iterable[float | None]) -> Spread | None:
    """Median, 95th percentile and maximum of the values that are known, by nearest rank; None without any."""
    known = sorted(float(value) for value in values if value is not None)
    return _spread(known) if known else None


def _spread(values: Iterable[float | None]) -> Spread:
    known = sorted(float(value) for value in values if value is not None)
    p50, p95 = (known[max(0, ceil(share * len(known)) - 1)] for share in (0.5, 0.95))
    return Spread(count=len(known), p50=p50, p95=p95, max=known[-1])


def _begin(steps: list[_Step], record: Mapping[str, Any], process: int) -> None:
    number, name, at_s = str(record.get("number", "")), str(record.get("step", "")), _number(record.get("at"))
    if name and at_s is not None and _NUMBER.fullmatch(number):
        steps.append(_Step(number, name, at_s, process))


def _end(steps: list[_Step], record: Mapping[str, Any], state: StepState) -> None:
    """A step that was begun twice (by another process, too) ends where it was begun last."""
    step = next((item for item in reversed(steps) if item.name == record.get("step")), None)
    if step is None:
        return
    step.state, step.ended_at_s = state, _number(record.get("at"))
    step.seconds, step.elapsed_s = _number(record.get("seconds")), _number(record.get("elapsed_s"))
    step.waiting_s = _number(record.get("waiting_s"))
    step.requests = _whole(record.get("requests"))
    step.sent_bytes, step.received_bytes = _whole(record.get("sent_bytes")), _whole(record.get("received_bytes"))
    if step.seconds is None and step.ended_at_s is not None:
        step.seconds = step.wall_end_s - step.intent_at_s  # 2


def _between(first: _Step, last: _Step | None) -> float | None:
    """From the beginning of one step to the end of another."""
    if last is None:
        return None
    if first.process == last.process and None not in (first.elapsed_s, first.seconds, last.elapsed_s):  # 1
        return round(max(0.0, (last.elapsed_s or 0.0) - (first.elapsed_s or 0.0) + (first.seconds or 0.0)), 6)
    return round(max(0.0, last.wall_end_s - first.intent_at_s), 6)  # 2


def _own(closing: _Step, opening: _Step | None, steps: Sequence[_Step]) -> float | None:
    window_s = _between(closing, opening)
    if window_s is None or any(step.process != closing.process for step in steps):
        return None
    apart = [step.seconds if step.number.startswith(_APART) else step.waiting_s for step in steps]
    if None in apart:
        return None
    return round(max(0.0, window_s - sum(seconds or 0.0 for seconds in apart)), 6)  # 4


def _in_time(step: _Step, first: _Step) -> StepInTime:
    began_s = step.intent_at_s - first.intent_at_s  # 2
    if step.process == first.process and None not in (step.elapsed_s, step.seconds, first.elapsed_s, first.seconds):
        origin_s = (first.elapsed_s or 0.0) - (first.seconds or 0.0)
        began_s = (step.elapsed_s or 0.0) - (step.seconds or 0.0) - origin_s  # 1
    return StepInTime(
        number=step.number,
        name=step.name,
        state=step.state,
        began_s=round(max(0.0, began_s), 6),
        seconds=step.seconds,
        waiting_s=step.waiting_s,
        requests=step.requests,
        sent_bytes=step.sent_bytes,
        received_bytes=step.received_bytes,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _number(value: object) -> float | None:
    """A length or a point in time that can be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if isfinite(found) and 0 <= found < 1e12 else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None
