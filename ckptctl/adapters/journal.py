"""The journal on disk: `<checkpoint_dir>/.ckptctl/journal/NNNNNN-<kind>.jsonl`, one append-only file per transaction,
mode 0600.

Decides names, form and durability, and what damage means: a last line without its end was torn by a crash and never
happened; any other line that is no record counts for nothing once the transaction is known to have ended, and is an
error before; a link, a pipe or a folder in the place of the file is one always. What the records mean is
`planning.recovery`'s business; that only one writer is at work is the lock's.
The first line is written with the file, so a transaction that exists says what it is. Nothing here ever holds a credential.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ckptctl.adapters import durable
from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.finding import DefectError
from ckptctl.domain.ids import CONTROL_FOLDER, JOURNAL_FOLDER, JOURNAL_NAME
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.errors import JournalDamagedError, StorageError
from ckptctl.formats.canonical_json import load_object
from ckptctl.formats.journal_line import as_record, decode_line
from ckptctl.ports import Clock, JournalRecord, JournalWriter

_MODE = 0o600
_MAX_BYTES = 256 << 20
FINISH = "finish"
"""The event that ends a transaction."""


class FileJournalWriter:
    """Implements `ports.JournalWriter` on one file. Opened anew for each line: whoever runs next may be on another host."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def append(self, record: Mapping[str, Any], *, sync: bool) -> None:
        """Append one record with a timestamp.

        A file that somebody removed is not made anew: without its first line nobody could tell whose the rest is.

        Raises:
            StorageError: the line cannot be written, or the file is gone.
        """
        descriptor = durable.open_append(self._path, create=False)
        try:
            durable.append_line(descriptor, _line(record, self._clock, self._path), path=self._path, sync=sync)
        finally:
            os.close(descriptor)


class FileJournal:
    """Implements `ports.Journal`."""

    def __init__(self, checkpoint_dir: str, clock: Clock) -> None:
        self._folder = f"{checkpoint_dir}/{CONTROL_FOLDER}/{JOURNAL_FOLDER}"
        self._clock = clock
        self._store = LocalStore(checkpoint_dir)  # so no link on the way is followed

    def begin(self, kind: str, facts: Mapping[str, Any]) -> JournalWriter:
        """Start a transaction; its first record is durable when this returns."""
        durable.make_directory(self._folder)
        number = 1 + max((int(name.split("-")[0]) for name in self.transactions()), default=0)
        path = self.path_of(f"{number:06d}-{kind}")
        begun = {"event": "begin", "kind": kind, "transaction": f"{number:06d}-{kind}", **facts}
        first = _line(begun, self._clock, path)
        if not durable.create_file(path, first + b"\n", mode=_MODE):
            raise StorageError(
                operation="create", path=path, detail="it exists: is another ckptctl at work without the lock?"
            )
        return FileJournalWriter(path, self._clock)

    def resume(self, transaction: str) -> JournalWriter:
        """Go on writing an unfinished one. What is there becomes durable: its writer may have died before it was.

        A disk that cannot do that keeps nobody from being released.
        """
        with suppress(StorageError):
            durable.sync_file(self.path_of(transaction))
            durable.make_directory(self._folder)
            durable.sync_directory(self._folder)
        return FileJournalWriter(self.path_of(transaction), self._clock)

    def transactions(self) -> tuple[str, ...]:
        """Names of all transactions, oldest first. Raises StorageError: the folder cannot be listed, or is a link."""
        if self._store.kind_of(self._folder) == "symlink":
            detail = "it is a symbolic link, and none is followed there"
            raise StorageError(operation="list", path=self._folder, detail=detail)
        try:
            entries = self._store.list_tree(self._folder, max_depth=1)
        except FileNotFoundError:
            return ()
        found = [JOURNAL_NAME.match(entry.path) for entry in entries]  # what is no file, too: `read` says that of it
        ordered = sorted((int(name[1]), name[2], name[0]) for name in found if name)
        return tuple(name.removesuffix(".jsonl") for _, _, name in ordered)

    def read(self, transaction: str) -> tuple[JournalRecord, ...]:
        """All records of one transaction.

        Raises:
            JournalDamagedError: a whole line is none of ours and no `finish` says that the transaction has ended; or what
                lies there is no regular file, so nothing at all says it.
            StorageError: the file cannot be read.
        """
        path = self.path_of(transaction)
        kind = self._store.kind_of(path)
        if kind not in {"file", None}:
            problem = f"it is a {kind}, not a regular file"
            raise JournalDamagedError(path=path, transaction=transaction, problem=problem)
        lines = self._store.read_bytes(path, _MAX_BYTES).split(b"\n")[:-1]
        decoded = [decode_line(line) for line in lines]
        records = [record for record in decoded if record is not None]
        damaged = [number for number, record in enumerate(decoded, 1) if record is None]
        if damaged and not any(record["event"] == FINISH for record in records):
            more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
            problem = f"line {damaged[0]}{more} is no journal record"
            raise JournalDamagedError(path=path, transaction=transaction, problem=problem)
        return tuple(JournalRecord(transaction, record) for record in records)

    def set_aside(self, transaction: str) -> str:
        """Give the file a name that is no transaction's, so that nobody reads it any more; it is kept. Returns the new path."""
        number = 1
        while self._store.kind_of(target := f"{self.path_of(transaction)}.set-aside-{number}") is not None:
            number += 1
        durable.rename(self.path_of(transaction), target)
        return target

    def path_of(self, transaction: str) -> str:
        """Where its file lies."""
        return f"{self._folder}/{transaction}.jsonl"


def _line(record: Mapping[str, Any], clock: Clock, path: str) -> bytes:
    """One record as it is written. Raises StorageError for one that no reader would take back: it would condemn all others."""
    stamped = {"at": round(clock.now_s(), 6), **record}
    line = json.dumps(stamped, separators=(",", ":"), allow_nan=False).encode()
    try:
        is_record, why = as_record(load_object(line, DEFAULT_LIMITS)) is not None, "it is none of ours"
    except DefectError as error:
        is_record, why = False, error.defects[0].message
    if is_record:
        return line
    raise StorageError(
        operation="write to",
        path=path,
        detail=f"this `{record.get('event')}` could not be read back: {why}",
        hint="look at the number or name that it speaks of: a server reports it, or a directory bears it",
    )
