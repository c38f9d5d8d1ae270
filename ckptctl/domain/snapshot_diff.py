"""What `inspect --diff` answers: what progressed between two snapshots, what was lost, and what changed as nothing explains.

The comparison itself is `planning.snapshot_diff`'s business.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ckptctl.domain.document import Count, Document
from ckptctl.domain.finding import Level, SafeText, VerdictName
from ckptctl.domain.inspection import Counts

ChangeKind = Literal["progressed", "changed", "lost", "unexpected"]
Area = Literal["run", "group", "rollout", "boundary", "session", "result", "row", "participant"]
KIND_ORDER: tuple[ChangeKind, ...] = ("unexpected", "lost", "changed", "progressed")
"""As one wants to read them."""


class Change(Document):
    """One difference."""

    kind: ChangeKind = Field(
        description="`lost`: work that is done again, explained by a restore or a failure; `unexpected`: nothing explains it; "
        "`changed`: neither better nor worse"
    )
    area: Area
    subject: SafeText = Field(description="rollout, group, server, staged row or counter")
    message: SafeText
    before: SafeText | None = None
    after: SafeText | None = None
    incompatible: bool = Field(default=False, description="the two belong to runs that are set up differently")


class Measure(Document):
    """One number of both snapshots; null where a part cannot be read."""

    name: SafeText
    before: int | None
    after: int | None


class ComparedSnapshot(Document):
    """One side."""

    snapshot: SafeText
    path: SafeText
    checkpoint_id: SafeText | None
    written_at: float | None
    verdict: VerdictName
    unread: tuple[SafeText, ...]


class SnapshotDiff(Document):
    """The answer of `ckptctl inspect --diff`."""

    schema_version: Literal[1] = 1
    kind: Literal["diff"] = "diff"
    older: ComparedSnapshot
    newer: ComparedSnapshot
    is_swapped: bool = Field(description="they were given the other way round: their names tell the order")
    rewound_to: SafeText | None = Field(
        description="the snapshot, older than both, that a restore between the two went back to; it explains losses"
    )
    level: Level
    exit_code: Count = Field(description="13: something is unexpected, or one of the two is invalid")
    counts: Counts = Field(description="how many changes of each kind")
    measures: tuple[Measure, ...]
    changes: tuple[Change, ...]
