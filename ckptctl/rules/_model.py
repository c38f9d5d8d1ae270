"""What a rule is. Texts are fields, not docstrings, because `python -OO` drops those."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from ckptctl.domain.evidence import Evidence, TargetKind
from ckptctl.domain.finding import Level, Severity, Violation

Need = Literal[
    "anchor",  # the snapshot lies in an anchor
    "step_anchor",
    "bootstrap_anchor",
    "cut",  # counters to compare with: a manifest, or an anchor's training info
    "gym",  # the snapshot holds Gym state
    "data_plane",  # there is a data plane (an anchor need not have one)
    "capabilities",  # discovery: live, or --capabilities
    "run",  # the run's own configuration
    "live",  # a transaction's replies: never offline
]

Check = Callable[[Evidence], Iterator[Violation]]


STORAGE_HINT = "It may be whole: mend its permissions or the file system, then run the same command again."
"""Where the system did not let us look."""


class CannotRunError(Exception):
    """Raised by a check that lacks what it must read: the rule *could not run*, which is never *passed*.

    `because`: the rules that already report why it is lacking. Only when one of them really failed does the engine say "skipped
    because of" them instead. Checks get their parts through `rules._parts.value_of`, which knows whom to name.
    `hint`: what makes it readable, where another file than the snapshot's is to blame.
    """

    def __init__(self, reason: str, *, because: tuple[str, ...] = (), artifact: str = "", hint: str = "") -> None:
        super().__init__(reason)
        self.because = because
        self.artifact = artifact
        self.hint = hint


class NotAskedError(Exception):
    """Raised by a check that finds nothing to judge here, such as a live stage that was not reached: skipped, not blamed."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One invariant. `name` names the defect and reads well after "allow"; `invariant` is its number in the reference list;
    None for rules about what ckptctl itself adds to a snapshot.

    `requires`: ids that must have passed first, else the rule is skipped because of them. `needs`: facts without which it is
    skipped (said, but not held against the verdict). `targets`: kinds it applies to.
    """

    id: str
    invariant: int | None
    name: str
    summary: str
    why: str
    hint: str
    severity: Severity
    level: Level
    check: Check
    requires: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    targets: tuple[TargetKind, ...] = ("snapshot",)
    since: str = "0.1.0"
