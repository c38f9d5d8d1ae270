"""Replay metadata (`replay_buffer_metadata.pt`): which finished groups the canonical partition holds.

Source: snapshot-layout section 7.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ckptctl.domain.document import PLAIN_INT, Count, Digest, Document, NonEmpty, One


class RowMeta(Document):
    """NeMo-RL's KVBatchMeta. `extra_info["rollout_metrics"]` may be anything and is kept as an opaque text."""

    partition_id: str
    task_name: str | None
    sample_ids: list[str]
    fields: list[str] | None
    sequence_lengths: list[Count] | None
    extra_info: dict[str, Any]
    tags: list[dict[str, Any]] | None


class ReplayGroup(Document):
    """One finished group."""

    meta: RowMeta
    start_weight: Count
    end_weight: Count
    target_step: Count | None
    group_id: NonEmpty


class ReplayMetadata(Document):
    """The whole file."""

    schema_version: One
    storage: Literal["tq_checkpoint"]
    partition_id: str
    saved_capacity: Count
    manifest_digest: Digest
    groups: list[ReplayGroup]


DEFAULT_REQUIRED_FIELDS = ("input_ids", "input_lengths", "generation_logprobs", "token_mask", "sample_mask")
"""What a canonical row must have when `meta.fields` is null (unspecified upstream)."""


class RouteSpan(Document):
    """One span of a deferred route."""

    staging_key: NonEmpty
    carry_len: Count
    generation_len: Count
    staged_route_len: Count
    extras_digest_version: One
    extras_digest: Digest


class RoutePlan(Document):
    """`route_assembly_plan` in a canonical row's tags (data-plane section 8)."""

    schema_version: Annotated[Literal[2], PLAIN_INT]
    staging_partition: NonEmpty
    spans: list[RouteSpan] = Field(default_factory=list)
    cleanup_staging_keys: list[NonEmpty]
    expected_token_length: Count
