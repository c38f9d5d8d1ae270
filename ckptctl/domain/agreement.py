"""Which parts of a snapshot agree with which, as the rules found it, and what pages (`inspect --html`) show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ckptctl.domain.inspection import DirectoryInspection, SnapshotInspection
from ckptctl.domain.rollout_story import RolloutInspection
from ckptctl.domain.timings import TimingsInspection

CellState = Literal["differs", "doubtful", "unknown", "agrees", "not_checked"]
"""`doubtful`: a rule warns; `unknown`: a rule could not run; `not_checked`: every rule was skipped, or none is about it."""
CELL_ORDER: tuple[CellState, ...] = ("not_checked", "agrees", "unknown", "doubtful", "differs")
"""From harmless to bad; one rule decides for its cell."""
PARTS = (
    "manifest",
    "anchor",
    "configuration",
    "ledger",
    "replay metadata",
    "data plane",
    "agents",
    "policy models",
    "resources servers",
    "files",
    "checksum file",
)


@dataclass(frozen=True, slots=True)
class Cell:
    """Two parts, or one part in itself: what the rules say that are about both. `families`: those of the rules that ran."""

    first: str
    second: str
    state: CellState
    families: tuple[str, ...]
    passed: int
    troubled: tuple[str, ...]
    """Ids of rules that failed, warned or could not run."""


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Everything that the page of one snapshot shows."""

    inspection: SnapshotInspection
    cells: tuple[Cell, ...]
    rollouts: tuple[RolloutInspection, ...]
    timings: TimingsInspection | None
    made_at: float
    tool_version: str


@dataclass(frozen=True, slots=True)
class DirectoryPage:
    """Everything that the page of a checkpoint directory, or of one anchor, shows."""

    inspection: DirectoryInspection
    rollouts: tuple[RolloutInspection, ...]
    timings: TimingsInspection | None
    made_at: float
    tool_version: str
