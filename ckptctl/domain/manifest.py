"""A snapshot's outer manifest and what it holds of Gym (snapshot-layout section 3).

Shapes only; which schema number is supported and how bytes become these values is `formats.snapshot_manifest`'s business.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ckptctl.domain.document import CheckpointId, Count, Digest, Document, Id, NonEmpty, One, RelativePath

Component = Literal["responses_api_models", "responses_api_agents", "resources_servers"]


class ArtifactReference(Document):
    """A file that a participant wrote, as it reported it: path relative to the snapshot, digest, records, bytes."""

    schema_version: One
    relative_path: RelativePath
    sha256: Digest
    records: Count
    bytes: Count


class ParticipantIdentity(Document):
    """Who a participant is: the controller's routing name, its component and the server's own name."""

    server_name: Id
    component: Component
    participant_name: NonEmpty


class ParticipantManifestReference(Document):
    """Where a participant's own manifest lies and what its bytes hash to."""

    participant: ParticipantIdentity
    relative_path: RelativePath
    manifest_digest: Digest


class AgentPayload(Document):
    """An agent's commit reply."""

    records: Count
    manifest_digest: Digest
    continuation_index: ArtifactReference


class ModelPayload(Document):
    """A policy model's commit reply; `generation_cut_records` other than absent or 0 belongs to schema 6."""

    rollouts: Count
    rows: Count
    excluded_tombstoned: Count
    excluded_inactive: Count = 0
    manifest_digest: Digest
    storage_reference_index: ArtifactReference
    generation_cut_records: Count | None = Field(default=None, exclude_if=lambda value: value is None)


class ResourcesPayload(Document):
    """A resources server's commit reply."""

    sessions: Count
    manifest_digest: Digest


Payload = AgentPayload | ModelPayload | ResourcesPayload


class ParticipantEntry(Document):
    """One participant of a snapshot. The payload's shape follows the component (checked by the decoder)."""

    participant: ParticipantIdentity
    payload: Payload
    manifest: ParticipantManifestReference


class GymCheckpoint(Document):
    """The Gym part of a snapshot."""

    checkpoint_id: CheckpointId
    participants: tuple[ParticipantEntry, ...]

    def of(self, component: str) -> tuple[ParticipantEntry, ...]:
        """The entries of one component, in file order."""
        return tuple(entry for entry in self.participants if entry.participant.component == component)


class SnapshotManifest(Document):
    """`manifest.json` of a snapshot, schema 3 (without the last two fields) or 4. Unknown keys are kept in `unknown_keys`."""

    schema_version: int
    base_train_step: Count
    trainer_version: Count
    current_epoch: Count
    sampler_dispatch_index: Annotated[int, Field(ge=-1)]
    mutation_version: Count
    rolled_back_train_group_count: Count
    bootstrap_fingerprint: Digest | None
    gym_topology_fingerprint: Digest | None = None
    gym_checkpoint: GymCheckpoint | None = None
