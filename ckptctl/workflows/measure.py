"""How old and how large things in a checkpoint directory are, and whether the clock that says so can be believed.

A clock is obviously wrong when it disagrees with the file system's by more than hosts may differ, or when something lies
in its future: then an age is None, and nobody may decide by it. Where host and file system went back together (a local disk)
only what was written before tells.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckptctl.domain.evidence import TreeEntry
from ckptctl.domain.ids import CONTROL_FOLDER
from ckptctl.domain.retention import (
    CLOCK_TOLERANCE_S,
    GOING_PREFIX,
    TrashedFacts,
    parse_trash_entry,
    trashed_snapshot,
)
from ckptctl.errors import JournalDamagedError, StorageError
from ckptctl.ports import SnapshotReader
from ckptctl.workflows.world import World


@dataclass(frozen=True, slots=True)
class Trace:
    """A time that something bears, and what that is, for people."""

    at_s: float
    bearer: str


@dataclass(frozen=True, slots=True)
class Now:
    """The time here, the file system's where it was asked, and the latest that was written before."""

    host_s: float
    file_system_s: float | None = None
    journal: Trace | None = None
    """The last line of the newest transaction."""
    snapshot: Trace | None = None
    """The published snapshot with the latest time."""

    @property
    def is_believed(self) -> bool:
        """Whether host and file system agree and nothing lies in their future, as far as is known."""
        return self._wrong() is None

    @property
    def earliest_s(self) -> float:
        """It is certainly not earlier than this: what is dated by it gets no shorter grace period from a clock that was set back.

        Times of files are not asked, since anybody can give a file any.
        """
        return max(self.host_s, self.file_system_s or 0.0, self.journal.at_s if self.journal is not None else 0.0)

    def age_s(self, then_s: float) -> float | None:
        """None for what lies in the future, and for everything where the clock is obviously wrong."""
        age_s = self.host_s - then_s
        return max(0.0, age_s) if self.is_believed and age_s >= -CLOCK_TOLERANCE_S else None

    def doubt(self) -> str:
        """Why this clock is not believed."""
        wrong = self._wrong()
        assert wrong is not None, "asked by the caller"
        ahead_s = self.host_s - wrong.at_s
        way = "ahead of" if ahead_s > 0 else "behind"
        return f"the clock of this host is {abs(ahead_s):.0f} s {way} {wrong.bearer}: nothing is deleted because of its age"

    def _wrong(self) -> Trace | None:
        if self.file_system_s is not None and abs(self.host_s - self.file_system_s) > CLOCK_TOLERANCE_S:
            return Trace(self.file_system_s, "the file system's")
        for trace in (self.journal, self.snapshot):
            if trace is not None and trace.at_s - self.host_s > CLOCK_TOLERANCE_S:
                return trace
        return None


def newest_record(world: World) -> Trace | None:
    """When somebody last wrote into the journal, by that host's clock; None where that cannot be told."""
    try:
        names = world.journal.transactions()
        records = world.journal.read(names[-1]) if names else ()
    except (JournalDamagedError, StorageError, FileNotFoundError):
        return None
    if not records:
        return None
    return Trace(float(records[-1].record["at"]), f"the last line of journal `{names[-1]}`")


def ask_file_system(world: World, checkpoint_dir: str) -> float | None:
    """The file system's time; None where nothing can be written (somebody who may only read asks for a dry run).

    On a full disk whoever holds the lock knows it from that: it bears the time of its last renewal, seconds ago.
    """
    control = f"{checkpoint_dir}/{CONTROL_FOLDER}"
    folder = control if world.store.kind_of(control) == "directory" else checkpoint_dir
    try:
        return world.store.file_system_now_s(folder)
    except StorageError:
        holder = world.lock.holder() if world.lock.is_owner() else None
        return None if holder is None else holder.renewed_s


def untouched_s(reader: SnapshotReader, path: str, entry: TreeEntry, now: Now) -> float | None:
    """How long nothing in a directory was written. One that cannot be looked into counts as just written."""
    try:
        inner = reader.list_tree(path) if entry.kind == "directory" else ()
    except StorageError:
        return 0.0
    except FileNotFoundError:
        inner = ()
    return now.age_s(max((entry.modified_s, *(item.modified_s for item in inner))))


def tree_bytes(reader: SnapshotReader, path: str) -> int | None:
    """What a directory weighs; None where it cannot be looked into."""
    try:
        return sum(entry.size_bytes for entry in reader.list_tree(path))
    except (FileNotFoundError, StorageError):
        return None


def trashed_facts(entry: str, now: Now) -> TrashedFacts:
    """What an entry of our trash is, by its name."""
    whole = trashed_snapshot(entry)
    if whole is not None:
        return TrashedFacts(entry=entry, anchor=whole[1], name=whole[2], age_s=now.age_s(whole[0]))
    going = parse_trash_entry(entry.removeprefix(GOING_PREFIX)) if entry.startswith(GOING_PREFIX) else None
    if going is not None:
        return TrashedFacts(entry=entry, anchor=going[1], name=going[2], age_s=None, state="going")
    return TrashedFacts(entry=entry, anchor="", name="", age_s=None, state="foreign")


def entries_of(reader: SnapshotReader, folder: str) -> tuple[TreeEntry, ...]:
    """The names in a folder; none where there is no such directory."""
    if reader.kind_of(folder) != "directory":
        return ()
    try:
        return reader.list_tree(folder, max_depth=1)
    except FileNotFoundError:
        return ()
