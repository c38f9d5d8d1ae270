"""Rows of the JSON Lines indexes (form `row`), as msgspec structs: a million of them must be cheap.

Field order is the written order. Source: participant-protocol section 11.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

# A pattern ends in `\Z`, since `$` also matches before a last newline.
Count = Annotated[int, msgspec.Meta(ge=0)]
# Patterns are a note here and applied by `formats.row_patterns`: msgspec's own check of one takes as long as the rest of a row.
Id = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z"})]
Digest = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": r"\A[0-9a-f]{64}\Z"})]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class AgentIndexRow(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`agent-index.jsonl`: where one boundary record lies. `bytes` and `sha256` are of the member payload."""

    rollout_id: Id
    attempt_index: Count
    archive: NonEmpty
    member: NonEmpty
    sha256: Digest
    bytes: Count


class ContinuationRow(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`continuations.jsonl`: one record with a committed model call. Revisions are null only in older files."""

    schema_version: Literal[1]
    rollout_id: Id
    attempt_index: Count
    capture_key: Id
    last_committed_model_call_id: NonEmpty
    resource_state_revisions: dict[str, Count] | None


class LineageIndexRow(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`lineage-index.jsonl`: where one capture key's custody file lies."""

    capture_key: Id
    archive: NonEmpty
    member: NonEmpty
    sha256: Digest
    rows: Count
    bytes: Count


class StorageReferenceRow(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """`storage-references.jsonl`: one staging key that a continuation needs."""

    schema_version: Literal[1]
    capture_key: Id
    boundary_model_call_id: NonEmpty
    kind: NonEmpty
    key: NonEmpty


class LineageRow(msgspec.Struct, frozen=True, gc=False):
    """The columns of a custody file's line that checkpoints use; a failure row has only some. Other columns are not looked at."""

    model_call_id: str
    staging_key: str | None = None
    staging_chain: tuple[str, ...] | None = None
    staging_digest: str | None = None
    failure_reason: str | None = None
    event: str | None = None
    parent_call_id: str | None = None
    weight_version: Count | None = None
    prev_len: Count | None = None
    delta_len: Count | None = None
    cum_len: Count | None = None
    extras_digest: str | None = None
    chain_hash: str | None = None
    cumulative_hash: str | None = None
    mode: str | None = None
