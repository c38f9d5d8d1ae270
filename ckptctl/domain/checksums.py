"""What `ckptctl-checksums.json` says of a snapshot, and what came out when its files were digested.

How the file is written and read: `formats.checksums_file`. Which files are digested: `planning.checksum_pass`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from ckptctl.domain.document import CheckpointId, Count, Digest, Document, NonEmpty, One, RelativePath

CHECKSUMS_SCHEMA: Literal[1] = 1


class FileChecksum(Document):
    """One file as it was published."""

    blake3: Digest = Field(description="BLAKE3 of its bytes")
    bytes: Count


class Checksums(Document):
    """Every file of a snapshot but this one."""

    schema_version: One
    tool_version: NonEmpty
    checkpoint_id: CheckpointId | None = Field(
        description="that of the snapshot's manifest; null when it holds no Gym state"
    )
    created_at: Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")] = Field(
        description="UTC"
    )
    files: dict[RelativePath, FileChecksum] = Field(description="by path relative to the snapshot")


class ChecksumsFile(Checksums):
    """`ckptctl-checksums.json`: the checksums, and a digest of their own."""

    blake3: Digest = Field(
        description="BLAKE3 of this file without the line of this field: `sed 2d ckptctl-checksums.json | b3sum`"
    )


@dataclass(frozen=True, slots=True)
class FileWork:
    """One file to be digested whole, with the size that the listing showed."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileDigest:
    """What became of one file. Exactly one of `blake3`, `changed` and `problem` says something.

    `changed`: how it changed while it was read. `problem`: why it could not be read.
    """

    path: str
    size_bytes: int
    blake3: str | None = None
    changed: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Publication:
    """What one transaction in the journal of a checkpoint directory says of the publication of a snapshot."""

    transaction: str
    checkpoint_id: str | None
    checksums_blake3: str
    snapshot: str = ""
    """Under which name: its path in the checkpoint directory."""


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """What the journal knows of one published snapshot: of the name, and of the checkpoint that lies there now.

    Each is the last publication of its sort. `own`: of this checkpoint under this name. `of_name`: of whatever checkpoint
    under this name. `elsewhere`: of this checkpoint under another name; only looked for where there is no `own`.
    `unread`: why a journal that might speak of the snapshot says nothing; only where there is no `own`.
    """

    own: Publication | None = None
    of_name: Publication | None = None
    elsewhere: Publication | None = None
    unread: str = ""
