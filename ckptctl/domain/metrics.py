"""What a run of a command tells a monitoring system: how it ended, and how the checkpoint directory stands afterwards.

Facts only, by whose names nothing is drawn yet: `render.metrics_text` writes them down for Prometheus, `planning.alert` makes
one line and a status for Nagios of them. Points in time are Unix seconds; an age is None where the clock cannot be believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ckptctl.domain.finding import Level, VerdictName
from ckptctl.domain.inspection import SnapshotView


@dataclass(frozen=True, slots=True)
class SeenSnapshot:
    """One published snapshot, and what is known of it. `level`: how deep it was looked at."""

    path: str
    """Relative to the checkpoint directory."""
    anchor: str
    verdict: VerdictName
    level: Level
    written_at_s: float | None
    age_s: float | None
    size_bytes: int

    @classmethod
    def of(cls, view: SnapshotView, verdict: VerdictName, level: Level) -> SeenSnapshot:
        """The snapshot of an overview."""
        anchor = view.path.partition("/")[0]
        return cls(view.path, anchor, verdict, level, view.written_at, view.age_s, view.size_bytes)


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """How a checkpoint directory stands. `obstacle`: what could not be looked at, and why; None: that is not known."""

    checkpoint_dir: str
    obstacle: str | None = None
    snapshots: tuple[SeenSnapshot, ...] | None = None
    anchors: tuple[str, ...] = ()
    """The newest one first."""
    sizes_bytes: Mapping[str, int] = field(default_factory=dict)
    """`snapshots`, `leftovers` and `trash`, as far as they could be looked into."""
    unfinished: str | None = None
    """Name of a transaction that was interrupted, and which nobody is finishing."""
    is_release_pending: bool | None = None
    """Its snapshot is published, but not everybody was released."""
    may_be_closed: bool | None = None
    """Admission was asked to close, or a restore had begun, and nothing says that it is open again."""
    finished_by: str = ""
    """The command that finishes it."""
    is_locked: bool | None = None
    """By a coordinator that may be alive."""
    admission_closed_s: float | None = None
    """How long the newest transaction that ended kept it closed."""
    warnings: tuple[str, ...] = ()

    def newest(self, verdict: VerdictName | None = None) -> SeenSnapshot | None:
        """The snapshot that was written last, of all or of those with one verdict."""
        found = [item for item in self.snapshots or () if verdict is None or item.verdict == verdict]
        return max(found, key=lambda item: (item.written_at_s or 0.0, item.path), default=None)


@dataclass(frozen=True, slots=True)
class RoundFacts:
    """How `snapshot --every` is doing: rounds by how they ended, and the budget of failures in a row."""

    ended: Mapping[str, int]
    failures_in_a_row: int
    most_failures: int
    every_s: float


@dataclass(frozen=True, slots=True)
class CollectedFacts:
    """What `gc` did: items by their outcome, and what it freed."""

    items: Mapping[str, int]
    bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """How a command ended, or a round of one that goes on. Empty texts: nothing of the kind was reached."""

    command: str
    version: str
    exit_status: int
    ended_at_s: float
    seconds: float
    outcome: str = ""
    error_code: str = ""
    cause_code: str = ""
    verdict: VerdictName | None = None
    is_going_on: bool = False
    rounds: RoundFacts | None = None
    collected: CollectedFacts | None = None
    directories: tuple[DirectoryFacts, ...] = ()
