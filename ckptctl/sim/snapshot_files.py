"""Names of the controller's files in a snapshot directory, and reading from one: regular files inside it, links not followed.

What the files must say is the business of who saves and who restores.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from ckptctl.adapters import durable
from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.rows import StorageReferenceRow
from ckptctl.formats.canonical_json import decode_rows

DATA_PLANE = "data_plane"
REPLAY, LEDGER, DATALOADER, RESERVE, CONFIG = (
    "replay_buffer_metadata.pt",
    "rollout_recovery.pt",
    "train_dataloader.pt",
    "replacement_reserve.pt",
    "config.yaml",
)
SIDECARS = (REPLAY, LEDGER, DATALOADER, RESERVE, CONFIG)
MANIFEST = "manifest.json"


def inner_path(root: str, relative: str) -> str:
    """The absolute path of a name inside `root`. Raises DefectError for a name that is not inside."""
    parts = relative.split("/")
    if not relative or any(part in {"", ".", ".."} for part in parts) or "\x00" in relative:
        raise DefectError(Defect("a path is not inside the snapshot", relative[:200]))
    return "/".join((root, *parts))


def read_inside(root: str, relative: str) -> bytes:
    """A whole file of the snapshot.

    Raises:
        DefectError: it is missing, or no regular file.
        StorageError: it cannot be read.
    """
    path = inner_path(root, relative)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise DefectError(Defect("the file is missing", relative)) from error
    except OSError as error:
        raise durable.storage_error("read", path, error) from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DefectError(Defect("not a regular file", relative))
        try:
            return file.read()
        except OSError as error:
            raise durable.storage_error("read", path, error) from error


def exists_inside(root: str, relative: str) -> bool:
    """Whether there is anything under this name."""
    return os.path.lexists(inner_path(root, relative))


def referenced_staging_keys(root: str, references: Iterable[ArtifactReference]) -> frozenset[str]:
    """The staging keys that Gym's continuations need, from the storage indexes as committed.

    Raises:
        DefectError: an index is missing, or is not the one that was committed.
        StorageError: it cannot be read.
    """
    return frozenset(row.key for reference in references for row in _index_rows(root, reference))


def _index_rows(root: str, reference: ArtifactReference) -> Iterator[StorageReferenceRow]:
    data = read_inside(root, reference.relative_path)
    if (len(data), sha256_hex(data)) != (reference.bytes, reference.sha256):
        raise DefectError(
            Defect("the storage index is not the one that was committed", reference.relative_path, reference.sha256)
        )
    yield from decode_rows(data, StorageReferenceRow, DEFAULT_LIMITS)


def shown_keys(keys: Iterable[str]) -> str:
    """The first ten of many keys, and how many there are."""
    ordered = sorted(keys)
    return f"{len(ordered)}: {', '.join(ordered[:10])}"


def refuse_missing(required: Iterable[str], present: frozenset[str], code: str = "staging_rows_missing") -> None:
    """Raise RefusalError where a required staging row is absent."""
    missing = set(required) - present
    if missing:
        raise RefusalError(code, f"staging rows are missing, {shown_keys(missing)}")


def refuse_difference(expected: frozenset[str], found: frozenset[str], code: str = "canonical_rows_differ") -> None:
    """Raise RefusalError where the canonical partition is not exactly what the replay metadata says."""
    if expected != found:
        detail = f"missing {shown_keys(expected - found)}; unexpected {shown_keys(found - expected)}"
        raise RefusalError(code, f"canonical rows and replay metadata differ: {detail}")
