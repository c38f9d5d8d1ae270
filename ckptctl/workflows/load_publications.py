"""What the journals of a checkpoint directory say of published snapshots: who looks for a checksum file must know of it.

Read newest first and only as far as needed. A last line without its end was torn by a crash and never happened. A journal
that cannot be read, or whose lines do not tell what was published, is kept in mind: of a snapshot that it may speak of, nobody
knows what was published there. Which snapshot it speaks of is told by its first line. No link is followed on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ckptctl.domain.checksums import Publication, PublicationFacts
from ckptctl.domain.evidence import TreeEntry
from ckptctl.domain.finding import DefectError
from ckptctl.domain.ids import CONTROL_FOLDER, JOURNAL_FOLDER, JOURNAL_NAME
from ckptctl.domain.limits import Limits
from ckptctl.domain.memory_room import DOCUMENT_FACTOR, UNBOUNDED, MemoryRoom
from ckptctl.errors import StorageError
from ckptctl.formats.canonical_json import load_object
from ckptctl.formats.journal_line import as_record
from ckptctl.planning.recovery import read_transaction
from ckptctl.planning.snapshot import PUBLISH, WRITE_CHECKSUMS
from ckptctl.ports import SnapshotReader
from ckptctl.rules.layout import KIND_WORDS

CHECKSUMS_KEY, CHECKPOINT_KEY = "checksums_blake3", "checkpoint_id"
"""Fields of the outcome of the step that writes the checksum file; the first stands in that of the publication, too."""
_KINDS = frozenset({"snapshot", "publish"})
_NO_RECORD = "holds a line that is no journal record"


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells which checkpoint lies under a name now. `is_known`: whether its manifest does, if only that it has no id."""

    is_known: bool
    checkpoint_id: str | None
    checksums_blake3: str | None
    """Of the checksum file that lies there."""

    def is_of(self, found: Publication) -> bool:
        """Whether a publication, under whatever name, was of this checkpoint."""
        if self.is_known and self.checkpoint_id is not None:
            return found.checkpoint_id == self.checkpoint_id
        return self.has_file_of(found)

    def has_file_of(self, found: Publication) -> bool:
        """Whether the checksum file is the one that was published."""
        return found.checksums_blake3 == self.checksums_blake3

    def may_be_of(self, checkpoint_id: str | None) -> bool:
        """Whether this may be the checkpoint of a journal that knows its id, or (None) does not."""
        return checkpoint_id is None or not self.is_known or self.checkpoint_id == checkpoint_id


@dataclass(frozen=True, slots=True)
class _Unread:
    """A journal that does not tell what it published. `snapshot`: the only name that it may speak of, where that can be read."""

    why: str
    snapshot: str | None = None
    checkpoint_id: str | None = None


class PublicationBook:
    """The publications of one checkpoint directory."""

    def __init__(
        self, reader: SnapshotReader, checkpoint_dir: str, limits: Limits, room: MemoryRoom = UNBOUNDED
    ) -> None:
        self._reader, self._limits, self._room = reader, limits, room
        self._control = f"{checkpoint_dir}/{CONTROL_FOLDER}"
        self._known: list[Publication] = []
        self._unread: list[_Unread] = []
        self._rest = self._publications()

    def find(self, snapshot: str, found: Identity) -> PublicationFacts:
        """What is known of a snapshot, which is given by its path in the checkpoint directory, and of what lies there."""
        of_name: Publication | None = None
        elsewhere: Publication | None = None
        for item in self._newest_first():
            if item.snapshot == snapshot:
                of_name = of_name or item
                if found.is_of(item) or found.has_file_of(item):
                    return PublicationFacts(own=item, of_name=of_name)
            elif elsewhere is None and found.is_of(item):
                elsewhere = item
        if of_name is not None and elsewhere is None and found.may_be_of(of_name.checkpoint_id):
            return PublicationFacts(own=of_name, of_name=of_name)
        unread = [
            item.why
            for item in self._unread
            if item.snapshot is None or (item.snapshot == snapshot and found.may_be_of(item.checkpoint_id))
        ]
        more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
        return PublicationFacts(None, of_name, elsewhere, f"{unread[0]}{more}" if unread else "")

    def _newest_first(self) -> Iterator[Publication]:
        yield from self._known
        for item in self._rest:
            self._known.append(item)
            yield item

    def _publications(self) -> Iterator[Publication]:
        for entry in self._journals():
            name = entry.path
            path = f"{JOURNAL_FOLDER}/{name}"
            try:
                self._room.demand(entry.size_bytes * DOCUMENT_FACTOR)
                data = self._reader.read_bytes(f"{self._control}/{path}", self._limits.json_document_bytes)
            except FileNotFoundError:
                continue
            except StorageError as error:
                self._pass_over(path, f"cannot be read: {error.message}")
                continue
            except DefectError as error:
                self._pass_over(path, error.defects[0].message)
                continue
            found = self._publication(name, data)
            if isinstance(found, Publication):
                yield found
            elif found is not None:
                self._unread.append(found)

    def _publication(self, name: str, data: bytes) -> Publication | _Unread | None:
        """What one journal tells; None when it published nothing, or without a checksum file."""
        where = f"`{CONTROL_FOLDER}/{JOURNAL_FOLDER}/{name}`"
        records = [self._record(line) for line in data.split(b"\n")[:-1]]
        transaction = read_transaction(name.removesuffix(".jsonl"), (record for record in records if record))
        final, begun_id = transaction.first.get("final"), transaction.first.get(CHECKPOINT_KEY)
        if not isinstance(final, str):
            return _Unread(f"{where} does not tell which snapshot it speaks of")
        if transaction.finish in ("aborted", "refused") and PUBLISH not in transaction.outcomes:
            return None
        told = [transaction.outcomes.get(step, {}) for step in (WRITE_CHECKSUMS, PUBLISH)]
        digests = {digest for outcome in told if isinstance(digest := outcome.get(CHECKSUMS_KEY), str)}
        known_id = told[0].get(CHECKPOINT_KEY, begun_id)
        if len(digests) == 1:
            return Publication(transaction.name, known_id, digests.pop(), final)
        if digests:
            lacking = "names two checksum files"
        elif None in records:
            lacking = _NO_RECORD
        elif transaction.finish is None:
            lacking = "ends before it tells what was published"
        elif WRITE_CHECKSUMS in transaction.intents or WRITE_CHECKSUMS in transaction.outcomes:
            lacking = "tells of a checksum file and does not name it"
        else:
            return None
        return _Unread(f"{where} {lacking}", final, begun_id)

    def _journals(self) -> list[TreeEntry]:
        """The journals that may speak of a publication, newest first."""
        folder = f"{self._control}/{JOURNAL_FOLDER}"
        for path in (self._control, folder):
            try:
                kind = self._reader.kind_of(path)
            except StorageError as error:
                self._pass_over("", f"cannot be read: {error.message}")
                return []
            if kind is None:
                return []
            if kind != "directory":
                self._pass_over("" if path == self._control else JOURNAL_FOLDER, f"is {KIND_WORDS[kind]}")
                return []
        try:
            entries = self._reader.list_tree(folder, max_depth=1)
        except FileNotFoundError:
            return []
        except StorageError as error:
            self._pass_over(JOURNAL_FOLDER, f"cannot be listed: {error.message}")
            return []
        found = [(entry, JOURNAL_NAME.match(entry.path)) for entry in entries]
        named = sorted(
            ((int(name[1]), entry) for entry, name in found if name and name[2] in _KINDS),
            key=lambda item: (item[0], item[1].path),
        )
        for _, entry in named:
            if entry.kind != "file":
                self._pass_over(f"{JOURNAL_FOLDER}/{entry.path}", f"is {KIND_WORDS[entry.kind]}")
        return [entry for _, entry in reversed(named) if entry.kind == "file"]

    def _pass_over(self, path: str, why: str) -> None:
        """Of nothing that lies there is it known which snapshot it speaks of."""
        self._unread.append(_Unread(f"`{CONTROL_FOLDER}/{path}` {why}" if path else f"`{CONTROL_FOLDER}` {why}"))

    def _record(self, line: bytes) -> Mapping[str, Any] | None:
        try:
            return as_record(load_object(line, self._limits))
        except DefectError:
            return None
