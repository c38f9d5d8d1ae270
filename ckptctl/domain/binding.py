"""`data_plane/metadata.json` and the binding record in it; anchors' small files.

Source: snapshot-layout sections 4, 10 and 11.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ckptctl.domain.document import PLAIN_INT, Count, Digest, Document, LenientDocument

BINDING_SCHEMA_VERSION = 2


class Binding(LenientDocument):
    """NeMo-RL's `user_metadata`: what the data plane was saved together with. Digest and count come together or not at all."""

    data_plane_checkpoint_schema_version: int
    single_controller_train_steps: Count
    single_controller_trainer_version: Count
    single_controller_epoch: Count
    partition_id: str
    sampler_name: str
    mode: str
    replay_metadata_schema_version: int | None = None
    replay_manifest_digest: Digest | None = None
    replay_group_count: Count | None = None
    rollout_recovery_schema_version: int | None = None
    rollout_recovery_payload_sha256: Digest | None = None
    rollout_recovery_group_count: Count | None = None


class DataPlaneMetadata(LenientDocument):
    """`metadata.json`; `user_metadata` stays raw, since data planes alone carry anything there."""

    storage_saved: bool
    user_metadata: dict[str, Any] | None = None


class UnitInfo(Document):
    """One element of `storage_unit_info.json`."""

    position: Count
    storage_unit_id: str


class TrainingInfo(LenientDocument):
    """`training_info.json` of a step anchor; unknown fields (`train:<metric>`) are ignored."""

    consumed_samples: Count = 0
    current_step: Count
    current_epoch: Count = 0
    total_steps: Count = 0
    total_valid_tokens: Count = 0
    trainer_version: Count | None = None
    sampler_name: str | None = None
    sampler_dispatch_index: Annotated[int, Field(ge=-1)] | None = None
    """As in a manifest: -1 before anything was dispatched."""


class BootstrapIdentity(Document):
    """What the bootstrap fingerprint is computed over."""

    schema_version: Annotated[Literal[7], PLAIN_INT]
    excluded_paths: list[str]
    config: dict[str, Any]


class BootstrapManifest(Document):
    """`bootstrap/manifest.json`; schemas 1 and 2 lack `bootstrap_identity`."""

    schema_version: int
    base_train_step: Count
    trainer_version: Count
    bootstrap_fingerprint: Digest
    bootstrap_identity: BootstrapIdentity | None = Field(default=None)
