"""What is kept and what is deleted, as values: every item has its reasons.

Made by `planning.gc`, printed by `--dry-run`, executed as it stands.

Source: design section 4 (`gc`), snapshot-layout section 15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from ckptctl.domain.document import Count, Document, NonEmpty
from ckptctl.domain.ids import BOOTSTRAP_FOLDER, SNAPSHOTS_FOLDER, snapshot_number, step_number

Action = Literal["keep", "trash", "delete"]
ProofLevel = Literal["standard", "full"]
"""Names and manifests alone prove nothing that would let another snapshot go."""
TRASH_FOLDER = ".ckptctl/trash"
"""Ours, below the checkpoint directory: upstream empties `trash_snapshot_*` at every allocation, so that name gives no grace."""
PINS_FOLDER = ".ckptctl/pins"
GOING_PREFIX = "going."
"""Before an entry of our trash is deleted it gets this prefix: from then on it may be half gone, and nobody brings it back."""
DEFAULT_KEEP = 2
DEFAULT_GRACE_S = 86_400.0
CLOCK_TOLERANCE_S = 300.0
"""Two hosts may differ by this much; beyond it a clock is obviously wrong."""
WRITER_SILENCE_S = 3600.0
"""Whoever writes or deletes a directory without our lock is gone when nothing in it changed for so long. No wish shortens it."""


class SnapshotFacts(Document):
    """One published snapshot. `is_valid` is None when nothing depended on knowing it."""

    anchor: str
    name: str
    number: Count
    is_valid: bool | None = None
    doubt: str | None = None
    """Why it could not be proved either way, where that was tried: it may be valid."""
    pin_reason: str | None = None
    used_by: str | None = None
    """The unfinished transaction or running restore that refers to it."""
    disorder: str | None = None
    """Why the numbers of its anchor's snapshots do not say which is newer."""


class LeftoverFacts(Document):
    """A `tmp_` or `trash_` directory, beside snapshots. `age_s`, since anything in it changed, is None when the clock cannot be
    believed.
    """

    anchor: str
    name: str
    kind: Literal["tmp", "trash"]
    age_s: float | None
    used_by: str | None = None


class TrashedFacts(Document):
    """What lies in our trash, `<unix seconds>.<anchor>.<name>`. `going`: its deletion had begun. `foreign`: no name of ours.

    `is_valid`, `doubt` and `pin_reason` as of a snapshot.
    """

    entry: str
    anchor: str
    name: str
    age_s: float | None
    state: Literal["whole", "going", "foreign"] = "whole"
    is_valid: bool | None = None
    doubt: str | None = None
    pin_reason: str | None = None


class GcFacts(Document):
    """What was found. `durable_steps`: trainer anchors that are complete, by name; `anchors`: all that are there."""

    snapshots: tuple[SnapshotFacts, ...]
    leftovers: tuple[LeftoverFacts, ...] = ()
    trashed: tuple[TrashedFacts, ...] = ()
    durable_steps: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()


class GcPolicy(Document):
    """What is wanted."""

    keep_latest_k: int = Field(
        default=DEFAULT_KEEP, ge=1, description="the newest of each anchor, damaged ones counted"
    )
    min_valid_copies: int = Field(
        default=1, ge=1, description="valid ones of each anchor that stay whatever their number"
    )
    grace_period_s: float = Field(default=DEFAULT_GRACE_S, ge=0)
    level: ProofLevel = Field(default="standard", description="how deep is looked before a snapshot counts as valid")


class GcItem(Document):
    """One thing, what becomes of it, and every reason. `path` is relative to the checkpoint directory."""

    path: str
    kind: Literal["snapshot", "tmp", "trash", "trashed"]
    action: Action
    reasons: tuple[str, ...]


class GcPlan(Document):
    """Everything that was found, kept or not."""

    items: tuple[GcItem, ...]

    def of(self, action: Action) -> tuple[GcItem, ...]:
        """The items with one action."""
        return tuple(item for item in self.items if item.action == action)


@dataclass(frozen=True, slots=True)
class GcRequest:
    """What `ckptctl gc` was asked for; at most one of `undelete`, `pin` and `unpin`. `keep` None: as configured."""

    keep: int | None = None
    min_valid: int = 1
    grace_s: float = DEFAULT_GRACE_S
    level: ProofLevel = "standard"
    dry_run: bool = False
    undelete: str | None = None
    pin: str | None = None
    unpin: str | None = None
    reason: str | None = None
    break_lock: bool = False

    def policy(self, configured_keep: int | None) -> GcPolicy:
        """What is kept: as asked for, else as the run is configured, else the default."""
        keep = self.keep if self.keep is not None else configured_keep
        return GcPolicy(
            keep_latest_k=DEFAULT_KEEP if keep is None else keep,
            min_valid_copies=self.min_valid,
            grace_period_s=self.grace_s,
            level=self.level,
        )


class Pin(Document):
    """A small file that keeps one snapshot, and says why."""

    schema_version: Literal[1] = 1
    snapshot: NonEmpty = Field(description="relative to the checkpoint directory")
    reason: NonEmpty
    pinned_at: float


class GcDone(Document):
    """One item of the plan and what became of it."""

    path: str = Field(description="relative to the checkpoint directory")
    kind: Literal["snapshot", "tmp", "trash", "trashed"]
    action: Action
    reasons: tuple[str, ...]
    outcome: Literal["kept", "planned", "moved", "deleted", "gone", "held_open", "failed"] = Field(
        description="gone: somebody else had deleted it; held_open: some of its files are still open somewhere (NFS)"
    )
    size_bytes: Count | None = Field(default=None, description="of what goes; null where it could not be measured")
    trash_entry: str | None = Field(default=None, description="what `--undelete` takes")
    pack: str | None = Field(default=None, description="where it was packed before, with `--archive`")
    problem: str = ""


class GcResult(Document):
    """The answer of `ckptctl gc`."""

    schema_version: Literal[1] = 1
    outcome: Literal["collected", "planned", "nothing_to_do", "undeleted", "pinned", "unpinned"]
    checkpoint_dir: str
    policy: GcPolicy | None = None
    archive: str | None = Field(default=None, description="where packs go, with `--archive`")
    items: tuple[GcDone, ...] = ()
    snapshot: str | None = Field(default=None, description="what was undeleted, pinned or unpinned")
    warnings: tuple[str, ...] = ()

    def remaining(self) -> tuple[GcDone, ...]:
        """What was to go, but could not be moved or deleted."""
        return tuple(item for item in self.items if item.outcome == "failed")


def snapshot_path(anchor: str, name: str) -> str:
    """Where a snapshot lies, relative to the checkpoint directory."""
    return f"{anchor}/{SNAPSHOTS_FOLDER}/{name}"


def is_anchor(name: str) -> bool:
    """Whether a directory of this name is a published anchor."""
    return name == BOOTSTRAP_FOLDER or step_number(name) is not None


def trash_entry(trashed_at_s: int, anchor: str, name: str) -> str:
    """The name of a snapshot in our trash."""
    return f"{trashed_at_s}.{anchor}.{name}"


def parse_trash_entry(entry: str) -> tuple[int, str, str] | None:
    """When, from which anchor and under which name; None for a name that is not ours."""
    parts = entry.split(".", 2)
    if len(parts) != 3 or not parts[0].isascii() or not parts[0].isdigit() or len(parts[0]) > 15:
        return None
    return int(parts[0]), parts[1], parts[2]


def trashed_snapshot(entry: str) -> tuple[int, str, str] | None:
    """As `parse_trash_entry`, for entries that name a place to which a snapshot can be brought back."""
    found = parse_trash_entry(entry)
    is_place = found is not None and is_anchor(found[1]) and snapshot_number(found[2]) is not None
    return found if is_place else None
