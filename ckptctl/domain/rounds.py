"""The rounds of `snapshot --every`: how they are asked for, and how one went."""

from __future__ import annotations

from dataclasses import dataclass

from ckptctl.domain.transaction import TransactionResult
from ckptctl.errors import CkptctlError

JITTER_SHARE = 0.1
"""Of the interval, where no jitter is asked for: runs that began together do not all write at the same time."""
LAST_WITHIN_S = 25.0
"""Slurm sends SIGKILL 30 s (KillWait) after SIGTERM."""


@dataclass(frozen=True, slots=True)
class EveryRequest:
    """What was asked for besides the snapshots themselves. None: as configured, or by default."""

    every_s: float | None = None
    jitter_s: float | None = None
    most_failures: int | None = None
    last_within_s: float = LAST_WITHIN_S
    """After a signal to stop: the last snapshot must be published within this; 0: none is taken."""


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """What holds until the configuration is read again."""

    every_s: float
    jitter_s: float
    most_failures: int


@dataclass(frozen=True, slots=True)
class Round:
    """One round and what comes next."""

    number: int
    outcome: TransactionResult | CkptctlError
    began_at_s: float
    seconds: float
    failures_in_a_row: int
    next_at_s: float | None = None
    """When the next one begins; None: there is none."""
    left_out: int = 0
    """How many rounds would have begun while this one was still going on."""
