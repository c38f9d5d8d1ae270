"""How participants write their folders into a snapshot and read them back (participant-protocol sections 11 and 12).

Writing: every file whole and synced under its name, the directory synced, `manifest.json` last, the directory synced
again. Reading: whatever does not agree is an ArtifactError, whose text the server puts into its refusal. What the
files mean is the servers' business.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ckptctl.adapters import durable
from ckptctl.domain.amounts import plural
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.participant_files import ArchiveEntry
from ckptctl.domain.rows import AgentIndexRow, LineageIndexRow
from ckptctl.domain.source import BytesSource
from ckptctl.errors import StorageError
from ckptctl.formats.participant_files import MANIFEST_FILE, BuiltArtifacts
from ckptctl.formats.tar_archive import read_archive


class ArtifactError(Exception):
    """A folder that cannot be written or does not agree with itself."""


@contextmanager
def told_as_artifact_error() -> Iterator[None]:
    """Turn storage errors and defects into ArtifactError."""
    try:
        yield
    except StorageError as error:
        raise ArtifactError(error.message) from error
    except DefectError as error:
        raise ArtifactError(str(error)) from error


def write_folder(checkpoint_dir: str, built: BuiltArtifacts[Any]) -> None:
    """Write a participant's folder, manifest last. Raises ArtifactError."""
    folder = f"{checkpoint_dir}/{built.folder}"
    with told_as_artifact_error():
        durable.make_directory(folder)
        *files, (manifest_name, manifest) = built.files
        for name, data in files:
            durable.write_file(f"{folder}/{name}", data, sync_parent=False)
        durable.sync_directory(folder)
        durable.write_file(f"{folder}/{manifest_name}", manifest)


def read_file(path: str, *, max_bytes: int = DEFAULT_LIMITS.archive_bytes) -> bytes:
    """A whole regular file. Raises ArtifactError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > max_bytes:
                raise ArtifactError(f"`{path}` is no regular file of at most {max_bytes} bytes")
            return file.read(max_bytes + 1)
    except OSError as error:
        raise ArtifactError(f"`{path}` cannot be read: {error.strerror}") from error


def has_manifest(folder: str) -> bool:
    """Whether a folder was committed."""
    return os.path.lexists(f"{folder}/{MANIFEST_FILE}")


def read_reference(checkpoint_dir: str, reference: ArtifactReference) -> bytes:
    """The bytes of an index, which must be what the reference says. Raises ArtifactError."""
    data = read_file(f"{checkpoint_dir}/{reference.relative_path}")
    if len(data) != reference.bytes or sha256_hex(data) != reference.sha256:
        raise ArtifactError(f"`{reference.relative_path}` differs from its reference (size or digest)")
    return data


def require_records(reference: ArtifactReference, rows: Sequence[object]) -> None:
    """Demand as many rows as the reference says. Raises ArtifactError."""
    if len(rows) != reference.records:
        raise ArtifactError(
            f"`{reference.relative_path}` has {plural(len(rows), 'row')}, its reference says {reference.records}"
        )


def read_members(
    folder: str,
    archives: Sequence[ArchiveEntry],
    rows: Sequence[AgentIndexRow] | Sequence[LineageIndexRow],
    *,
    ordered: bool,
) -> Iterator[bytes]:
    """The payloads that the index lists, in index order, each checked. Raises ArtifactError.

    With `ordered` the members of an archive stand in index order (agents); else any order is right (lineage).
    """
    listed: dict[str, list[AgentIndexRow | LineageIndexRow]] = {}
    for row in rows:
        listed.setdefault(row.archive, []).append(row)
    if (
        len({archive.name for archive in archives}) != len(archives)
        or {item.name for item in archives} != listed.keys()
    ):
        raise ArtifactError("the archives of manifest and index are not the same")
    found: dict[tuple[str, str], bytes] = {}
    for archive in archives:
        members = _archive_members(folder, archive)
        names = [row.member for row in listed[archive.name]]
        same = list(members) == names if ordered else sorted(members) == sorted(names)
        if not same or len(names) != archive.members:
            raise ArtifactError(f"`{archive.name}` does not hold the members of the index")
        found.update({(archive.name, name): payload for name, payload in members.items()})
    for row in rows:
        payload = found[row.archive, row.member]
        if len(payload) != row.bytes or sha256_hex(payload) != row.sha256:
            raise ArtifactError(f"`{row.archive}`/`{row.member}` differs from the index (size or digest)")
        yield payload


def _archive_members(folder: str, archive: ArchiveEntry) -> Mapping[str, bytes]:
    data = read_file(f"{folder}/{archive.name}")
    if len(data) != archive.bytes or sha256_hex(data) != archive.sha256:
        raise ArtifactError(f"`{archive.name}` differs from the manifest (size or digest)")
    members: dict[str, bytes] = {}
    with told_as_artifact_error():
        for member, payload in read_archive(BytesSource(data), DEFAULT_LIMITS):
            if payload is None or member.name in members:
                raise ArtifactError(f"`{archive.name}`/`{member.name}` is no regular file, or stands there twice")
            members[member.name] = payload
    return members


def require_unique(what: str, values: Iterable[object]) -> None:
    """Demand that nothing stands there twice. Raises ArtifactError."""
    listed = list(values)
    if len(set(listed)) != len(listed):
        raise ArtifactError(f"{what} are not unique")
