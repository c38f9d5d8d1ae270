"""What an interrupted transaction left, and what finishes it (design section 5, Journal). Journal records and disk
facts in, a decision out.

A transaction is unfinished until its journal has a `finish` record. What the disk shows wins over what the journal
says, because a crash may lie between an effect and the record of its outcome:

1. renamed: the snapshot is published, whatever followed; release
2. staged, and the manifest was written: `publish` may publish it, if it validates
3. anything else: abort, under the same checkpoint id
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from ckptctl.domain.restore import RestoreFacts
from ckptctl.domain.transaction import SnapshotFacts
from ckptctl.planning.snapshot import PUBLISH, WRITE_MANIFEST, Stages

F = TypeVar("F", SnapshotFacts, RestoreFacts)
Decision = Literal["release", "publish", "abort"]


@dataclass(frozen=True, slots=True)
class Transaction:
    """One journal, read."""

    name: str
    kind: str
    first: Mapping[str, Any]
    intents: tuple[str, ...]
    outcomes: Mapping[str, Mapping[str, Any]]
    finish: str | None
    """The outcome that closed it (`published`, `released`, `aborted`); None while it is unfinished."""
    is_recovered: bool = False
    """Whether another process than the one that began it has worked on it."""

    def facts(self) -> SnapshotFacts | None:
        """The facts of a snapshot transaction; None for another kind, or when they cannot be read."""
        return self._read(SnapshotFacts) if self.kind == "snapshot" else None

    def restore_facts(self) -> RestoreFacts | None:
        """The facts of a restore; None for another kind, or when they cannot be read."""
        return self._read(RestoreFacts) if self.kind == "restore" else None

    def _read(self, facts: type[F]) -> F | None:
        try:
            return facts.model_validate_json(json.dumps(dict(self.first)))
        except ValidationError:
            return None

    @property
    def is_published(self) -> bool:
        """Whether the journal says that the snapshot is visible.

        Whose process died between the rename and its record was only released by the next one, because it was renamed.
        """
        return PUBLISH in self.outcomes or (self.kind == "snapshot" and self.finish in {"published", "released"})


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """What lies where a transaction wrote. `final_manifest_sha256` is None when there is no such snapshot."""

    staged_exists: bool
    final_manifest_sha256: str | None


def read_transaction(name: str, records: Iterable[Mapping[str, Any]]) -> Transaction:
    """Sum up one journal, from lines that `formats.journal_line` let through."""
    first: Mapping[str, Any] = {}
    intents: dict[str, None] = {}
    outcomes: dict[str, Mapping[str, Any]] = {}
    finish, is_recovered = None, False
    for record in records:
        event, step = record.get("event"), str(record.get("step", ""))
        if event == "begin":
            first = record
        elif event == "intent":
            intents[step] = None
        elif event == "outcome":
            outcomes[step] = record
        elif event == "finish":
            finish = str(record.get("outcome", ""))
        elif event == "recovery":
            is_recovered = True
    return Transaction(name, str(first.get("kind", "")), first, tuple(intents), outcomes, finish, is_recovered)


def stages_of(facts: SnapshotFacts) -> Stages:
    """Who may be held by the transaction."""
    return facts.models, facts.agents, facts.resources


def decide(transaction: Transaction, disk: DiskFacts, *, may_publish: bool) -> Decision:
    """What finishes an unfinished snapshot transaction."""
    written = transaction.outcomes.get(WRITE_MANIFEST)
    manifest = None if written is None else written.get("manifest_sha256")
    is_renamed = not disk.staged_exists and manifest is not None and disk.final_manifest_sha256 == manifest
    if transaction.is_published or is_renamed:
        return "release"  # 1
    if may_publish and disk.staged_exists and manifest is not None:
        return "publish"  # 2
    return "abort"  # 3
