"""Whether somebody has to be called: how a checkpoint directory stands, as one of the four states that monitoring plugins have.

1. CRITICAL: there is no valid snapshot, or the newest is older than the critical age; admission may be closed.
2. UNKNOWN: something could not be looked at, or a clock cannot be believed.
3. WARNING: the newest valid one is older than the warning age; the newest published one is not valid; something is unfinished.

The worst of what is true counts, in that order, and all of it is told. What is valid is so at the level that was looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ckptctl.domain.amounts import duration
from ckptctl.domain.metrics import DirectoryFacts, SeenSnapshot


class AlertState(IntEnum):
    """The exit statuses of monitoring plugins; no statuses of ours."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


WORST_FIRST = (AlertState.CRITICAL, AlertState.UNKNOWN, AlertState.WARNING, AlertState.OK)


@dataclass(frozen=True, slots=True)
class AgeLimits:
    """From which age on the newest valid snapshot is too old; None: any age will do."""

    warn_s: float | None = None
    critical_s: float | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """The state, and every reason for it, the worst first."""

    state: AlertState
    reasons: tuple[str, ...]


def judge_alert(found: DirectoryFacts, limits: AgeLimits) -> Alert:
    """Judge one directory."""
    told = [*_of_admission(found), *_of_snapshots(found, limits)]
    if found.obstacle is not None:
        told.append((AlertState.UNKNOWN, found.obstacle))
    if not told:
        told = [(AlertState.OK, "the newest published snapshot is valid")]
    told.sort(key=lambda item: WORST_FIRST.index(item[0]))
    return Alert(told[0][0], tuple(reason for _, reason in told))


def _of_admission(found: DirectoryFacts) -> list[tuple[AlertState, str]]:
    if found.is_release_pending:
        return [(AlertState.CRITICAL, f"a snapshot is published, but not released: run `{found.finished_by}`")]
    if found.may_be_closed:
        what = f"transaction {found.unfinished} was interrupted and admission may be closed"
        return [(AlertState.CRITICAL, f"{what}: run `{found.finished_by}`")]
    if found.unfinished is not None:
        return [(AlertState.WARNING, f"transaction {found.unfinished} was interrupted: run `{found.finished_by}`")]
    return []


def _of_snapshots(found: DirectoryFacts, limits: AgeLimits) -> list[tuple[AlertState, str]]:
    if found.snapshots is None:
        return []
    newest, valid = found.newest(), found.newest("valid")
    if newest is None:
        return [(AlertState.CRITICAL, "there is no snapshot")]
    if valid is None:
        return [(AlertState.CRITICAL, f"no snapshot is valid; the newest, {newest.path}, is {newest.verdict}")]
    told = _of_age(valid, limits)
    if newest is not valid:
        told.append((AlertState.WARNING, f"the newest snapshot, {newest.path}, is {newest.verdict}"))
    return told


def _of_age(valid: SeenSnapshot, limits: AgeLimits) -> list[tuple[AlertState, str]]:
    if valid.age_s is None:
        return [(AlertState.UNKNOWN, f"the age of {valid.path} is unknown: a clock is wrong")]
    for state, most_s in ((AlertState.CRITICAL, limits.critical_s), (AlertState.WARNING, limits.warn_s)):
        if most_s is not None and valid.age_s >= most_s:
            return [(state, f"the newest valid snapshot is {duration(valid.age_s)} old, limit {duration(most_s)}")]
    return []
