"""The records that participants write at commit: manifests, boundary records, sessions.

Shapes only: how they become bytes is `formats.participant_files`, how they fit together are the PAR rules.
Source: participant-protocol section 11.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from ckptctl.domain.document import (
    PLAIN_INT,
    CheckpointId,
    Count,
    Digest,
    Document,
    FileName,
    Id,
    NonEmpty,
)
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.participant import Execution


def _demand_base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64") from None
    return text


Base64 = Annotated[str, AfterValidator(_demand_base64)]

OneOrTwo = Annotated[Literal[1, 2], PLAIN_INT]


class ArchiveEntry(Document):
    """One tar shard in a participant manifest."""

    name: FileName
    sha256: Digest
    members: Annotated[int, Field(ge=1)]
    bytes: Count


class AgentManifest(Document):
    """`agent/instance-<digest>/manifest.json`, schema 2, pretty2."""

    schema_version: int
    checkpoint_id: CheckpointId
    instance_name: str | None
    archives: list[ArchiveEntry]
    record_index: ArtifactReference
    records: Count
    continuation_index: ArtifactReference


class ModelManifest(Document):
    """`model-ledger/<name>/manifest.json`, schema 3, pretty1."""

    schema_version: int
    checkpoint_id: CheckpointId
    server_name: NonEmpty
    archives: list[ArchiveEntry]
    lineage_index: ArtifactReference
    rollout_count: Count
    row_count: Count
    continuation_roots: Count
    continuation_roots_sha256: Digest
    generation_cuts_sha256: Digest
    generation_cut_records: Count
    excluded_inactive: Count
    storage_reference_index: ArtifactReference
    tombstones: list[Execution]
    source_attempts: list[Execution]


class ResourcesManifest(Document):
    """`resources/<name>/manifest.json`, schema 2, pretty2: file name -> digest."""

    schema_version: int
    checkpoint_id: CheckpointId
    server_name: NonEmpty
    files: dict[FileName, Digest]


class PendingModel(Document):
    """A model response that was committed but whose actions are not all done."""

    model_call_id: NonEmpty
    response: dict[str, Any]
    model_server_cookies: dict[str, str]
    usage: dict[str, Any] | None
    pending_action_cursor: Count
    resource_request_id: str | None


class BoundaryRecord(Document):
    """An agent's durable point in a rollout. Field order is the written order (record2)."""

    schema_version: OneOrTwo
    rollout_id: Id
    attempt_index: Count
    boundary_index: Count
    turn_index: Count
    boundary_kind: Literal["pending_model", "turn_complete"]
    pending_model: PendingModel | None
    output_items: list[dict[str, Any]]
    usage: dict[str, Any] | None
    last_committed_model_capture_key: Id | None
    last_committed_model_call_id: NonEmpty | None
    resource_state_revisions: dict[str, Count]
    agent_state: dict[str, Any]
    created_at: float | int


class MutationReceipt(Document):
    """A recorded answer of a resources server, replayed for the same request id."""

    request_id: Annotated[str, Field(min_length=1, max_length=512)]
    expected_revision: Count | None
    input_digest: Digest
    status: Annotated[int, Field(ge=100, le=599)]
    headers: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    body_base64: Base64
    resulting_revision: Count | None


class SessionRecord(Document):
    """A resources session file (record2)."""

    schema_version: OneOrTwo
    rollout_id: Id
    attempt_index: Count
    state_revision: Count
    state: dict[str, Any]
    mutation_receipts: list[MutationReceipt]
    created_at: float | int
