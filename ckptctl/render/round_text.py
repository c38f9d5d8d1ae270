"""A round of `snapshot --every` on one line: when, which, what came of it, how long it took, and what comes next."""

from __future__ import annotations

from datetime import UTC, datetime

from ckptctl.domain.amounts import plural, short_time
from ckptctl.domain.rounds import Round, RoundPlan
from ckptctl.domain.safe_text import inert, safe
from ckptctl.errors import CkptctlError


def round_line(told: Round, plan: RoundPlan) -> str:
    """The line; times are UTC, so that logs of several hosts agree."""
    outcome = told.outcome
    parts = [
        _failure(told, plan, outcome)
        if isinstance(outcome, CkptctlError)
        else f"{_what(told)} in {short_time(told.seconds)}"
    ]
    if not isinstance(outcome, CkptctlError) and outcome.admission_closed_s is not None:
        parts.append(f"admission closed {short_time(outcome.admission_closed_s)}")
    if told.left_out:
        parts.append(f"{plural(told.left_out, 'round')} left out: this one was still at work")
    parts.append("the last one" if told.next_at_s is None else f"next at {_at(told.next_at_s):%H:%M:%S}")
    return inert(f"{_at(told.began_at_s):%Y-%m-%dT%H:%M:%SZ} round {told.number}: {safe('; '.join(parts))}\n")


def _what(told: Round) -> str:
    assert not isinstance(told.outcome, CkptctlError), "failures are told in other words"
    outcome = told.outcome.outcome.replace("_", " ")
    if told.outcome.snapshot:
        return f"{outcome} {told.outcome.snapshot}"
    return f"{outcome} ({told.outcome.reason})" if told.outcome.reason else outcome


def _failure(told: Round, plan: RoundPlan, error: CkptctlError) -> str:
    cause = f", {error.cause_code}" if error.cause_code else ""
    count = f"failure {told.failures_in_a_row} of {plan.most_failures} in a row"
    return f"failed after {short_time(told.seconds)} ({error.code}{cause}); {count}"


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)
