"""The files of a world, written through the formats' own encoders: what a correct writer would save.

Where a world overrides what follows from its content (its continuations, its storage references), the files are those of a writer
that computed every digest and count correctly over the wrong content: so are the damaged snapshots that this project must find.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from ckptctl.domain import ids
from ckptctl.domain.binding import BootstrapManifest, TrainingInfo, UnitInfo
from ckptctl.domain.canonical import EMPTY_LIST_DIGEST, pretty1, pretty2, roots_digest
from ckptctl.domain.dataplane import ControllerState, FieldMeta, Partition, StorageUnit, StoredValue, TensorValue
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.document import Document
from ckptctl.domain.fingerprint import bootstrap_fingerprint, bootstrap_identity, topology_fingerprint
from ckptctl.domain.lineage import STAGING_KIND, boundary_rows, staging_keys
from ckptctl.domain.manifest import (
    AgentPayload,
    GymCheckpoint,
    ModelPayload,
    ParticipantEntry,
    ParticipantIdentity,
    ParticipantManifestReference,
    Payload,
    ResourcesPayload,
    SnapshotManifest,
)
from ckptctl.domain.participant_files import AgentManifest, ModelManifest, ResourcesManifest
from ckptctl.domain.rows import AgentIndexRow, ContinuationRow, LineageIndexRow, StorageReferenceRow
from ckptctl.formats.anchor_files import encode_bootstrap, encode_training_info
from ckptctl.formats.config_file import encode_yaml
from ckptctl.formats.dataloader_file import encode_dataloader
from ckptctl.formats.ledger_file import encode_ledger
from ckptctl.formats.lineage import encode_lineage_line
from ckptctl.formats.participant_files import (
    continuation_rows,
    encode_boundary,
    encode_rows,
    encode_session,
    reference_to,
)
from ckptctl.formats.replay_file import encode_replay
from ckptctl.formats.snapshot_manifest import encode_manifest
from ckptctl.formats.staged_row import encode_staged_row, row_tags
from ckptctl.formats.tar_archive import build_archives
from ckptctl.formats.tq_writer import encode_controller_state, encode_metadata, encode_storage_unit, encode_unit_info
from tests.world import CANONICAL, STAGING, AgentContent, ModelContent, World

derived = lru_cache(maxsize=16)
"""Remembered for the last few worlds; nobody changes the answer."""
UNIT_IDS = ("TQ_STORAGE_UNIT_00000000", "TQ_STORAGE_UNIT_11111111", "TQ_STORAGE_UNIT_22222222")
FREE_INDEXES = (0, 1)
"""Left by the placeholder rows of the registered partitions."""


# --- continuations and references ---


def continuations_of(content: AgentContent) -> tuple[ContinuationRow, ...]:
    """An agent's continuation rows."""
    return content.continuations if content.continuations is not None else continuation_rows(content.records)


def roots_of(world: World) -> tuple[ContinuationRow, ...]:
    """All agents' continuation rows, sorted."""
    rows = [row for content in world.agents.values() for row in continuations_of(content)]
    return tuple(sorted(rows, key=lambda row: (row.capture_key, row.last_committed_model_call_id)))


def references_of(world: World, model: ModelContent) -> tuple[StorageReferenceRow, ...]:
    """A policy model's storage references: chain and own key of every boundary row, shared keys once."""
    if model.storage is not None:
        return model.storage
    found: dict[str, StorageReferenceRow] = {}
    for root in roots_of(world):
        for line in boundary_rows(root, model.custody.get(root.capture_key, ())):
            for key in staging_keys(line):
                found.setdefault(key, a_reference(key, root))
    return tuple(found[key] for key in sorted(found))


def a_reference(key: str, root: ContinuationRow) -> StorageReferenceRow:
    """One row of a storage index."""
    return StorageReferenceRow(1, root.capture_key, root.last_committed_model_call_id, STAGING_KIND, key)


# --- participants ---


@dataclass(frozen=True)
class Saved:
    """One participant's folder and its entry in the outer manifest. `manifest` and `rows` are what the files hold."""

    entry: ParticipantEntry
    folder: str
    files: Mapping[str, bytes]
    """By name inside the folder."""
    manifest: Document
    rows: Mapping[str, tuple[Any, ...]]


def agent_artifacts(world: World, name: str, content: AgentContent) -> Saved:
    """An agent's folder."""
    folder = ids.agent_folder(name)
    records = sorted(content.records, key=lambda record: (record.rollout_id, record.attempt_index))
    payloads = {
        ids.record_file_name(record.rollout_id, record.attempt_index): encode_boundary(record) for record in records
    }
    archives = build_archives("agent-part", payloads.items())
    places = [(archive.name, member) for archive in archives for member in archive.members]
    index = tuple(
        AgentIndexRow(
            record.rollout_id,
            record.attempt_index,
            archive,
            member,
            sha256_hex(payloads[member]),
            len(payloads[member]),
        )
        for record, (archive, member) in zip(records, places, strict=True)
    )
    rows = continuations_of(content)
    continuation_index = reference_to(folder, "continuations.jsonl", encode_rows(rows), len(rows))
    manifest = AgentManifest(
        schema_version=2,
        checkpoint_id=world.checkpoint_id,
        instance_name=name,
        archives=[archive.entry for archive in archives],
        record_index=reference_to(folder, "agent-index.jsonl", encode_rows(index), len(index)),
        records=len(records),
        continuation_index=continuation_index,
    )
    data = pretty2(manifest.model_dump(mode="json"))
    files = {
        **{archive.name: archive.data for archive in archives},
        "agent-index.jsonl": encode_rows(index),
        "continuations.jsonl": encode_rows(rows),
        "manifest.json": data,
    }
    payload = AgentPayload(
        records=len(records), manifest_digest=sha256_hex(data), continuation_index=continuation_index
    )
    return Saved(_entry(ids.AGENT, name, payload), folder, files, manifest, {"index": index, "continuations": rows})


def model_artifacts(world: World, name: str, content: ModelContent) -> Saved:
    """A policy model's folder."""
    folder = ids.model_folder(name)
    custody = {key: b"".join(map(_custody_line, lines)) for key, lines in sorted(content.custody.items())}
    payloads = {ids.lineage_file_name(key): data for key, data in custody.items()}
    archives = build_archives("lineage-part", payloads.items())
    places = [(archive.name, member) for archive in archives for member in archive.members]
    index = tuple(
        LineageIndexRow(key, archive, member, sha256_hex(data), len(content.custody[key]), len(data))
        for (key, data), (archive, member) in zip(custody.items(), places, strict=True)
    )
    roots = content.roots if content.roots is not None else roots_of(world)
    references = references_of(world, content)
    storage_index = reference_to(folder, "storage-references.jsonl", encode_rows(references), len(references))
    row_count = sum(row.rows for row in index)
    manifest = ModelManifest(
        schema_version=3,
        checkpoint_id=world.checkpoint_id,
        server_name=name,
        archives=[archive.entry for archive in archives],
        lineage_index=reference_to(folder, "lineage-index.jsonl", encode_rows(index), len(index)),
        rollout_count=len(index),
        row_count=row_count,
        continuation_roots=len(roots),
        continuation_roots_sha256=roots_digest(roots),
        generation_cuts_sha256=EMPTY_LIST_DIGEST,
        generation_cut_records=0,
        excluded_inactive=content.excluded_inactive,
        storage_reference_index=storage_index,
        tombstones=list(content.tombstones),
        source_attempts=list(content.source_attempts),
    )
    data = pretty1(manifest.model_dump(mode="json"))
    files = {
        **{archive.name: archive.data for archive in archives},
        "lineage-index.jsonl": encode_rows(index),
        "storage-references.jsonl": encode_rows(references),
        "manifest.json": data,
    }
    payload = ModelPayload(
        rollouts=len(index),
        rows=row_count,
        excluded_tombstoned=len(content.tombstones),
        excluded_inactive=content.excluded_inactive,
        manifest_digest=sha256_hex(data),
        storage_reference_index=storage_index,
    )
    return Saved(_entry(ids.MODEL, name, payload), folder, files, manifest, {"index": index, "storage": references})


def _custody_line(row: msgspec.Struct) -> bytes:
    columns = {name: value for name, value in msgspec.to_builtins(row).items() if value is not None}
    return encode_lineage_line(columns)


def resources_artifacts(world: World, name: str, sessions: Iterable[Any]) -> Saved:
    """A resources server's folder."""
    folder = ids.resources_folder(name)
    payloads = {ids.record_file_name(one.rollout_id, one.attempt_index): encode_session(one) for one in sessions}
    manifest = ResourcesManifest(
        schema_version=2,
        checkpoint_id=world.checkpoint_id,
        server_name=name,
        files={file_name: sha256_hex(data) for file_name, data in payloads.items()},
    )
    data = pretty2(manifest.model_dump(mode="json"))
    payload = ResourcesPayload(sessions=len(payloads), manifest_digest=sha256_hex(data))
    return Saved(_entry(ids.RESOURCES, name, payload), folder, {**payloads, "manifest.json": data}, manifest, {})


def _entry(component: Any, name: str, payload: Payload) -> ParticipantEntry:
    identity = ParticipantIdentity(server_name=name, component=component, participant_name=name)
    path = f"{ids.participant_folder(component, name)}/manifest.json"
    reference = ParticipantManifestReference(
        participant=identity, relative_path=path, manifest_digest=payload.manifest_digest
    )
    return ParticipantEntry(participant=identity, payload=payload, manifest=reference)


@derived
def a_gym(world: World) -> tuple[Saved, ...]:
    """Every participant's folder: agents, models, resources servers."""
    if not world.with_gym:
        return ()
    return (
        *(agent_artifacts(world, name, content) for name, content in world.agents.items()),
        *(model_artifacts(world, name, content) for name, content in world.models.items()),
        *(resources_artifacts(world, name, sessions) for name, sessions in world.resources.items()),
    )


# --- data plane ---


@dataclass(frozen=True)
class Plane:
    """A data plane as values and as what is written of it: `rows[position][field][index]`."""

    controller: ControllerState
    units: tuple[UnitInfo, ...]
    rows: tuple[Mapping[str, Mapping[int, TensorValue]], ...]

    def unit(self, position: int) -> StorageUnit:
        """One unit as a reader sees it."""
        rows = {
            name: {index: stored(value) for index, value in values.items()}
            for name, values in self.rows[position].items()
        }
        unit_id = self.units[position].storage_unit_id
        return StorageUnit(f"su_{position}_{unit_id}.pkl", unit_id, self.active(position), rows)

    def active(self, position: int) -> frozenset[int]:
        """The rows that a unit holds."""
        return frozenset(index for values in self.rows[position].values() for index in values)


def stored(value: TensorValue) -> StoredValue:
    """A tensor as a reader sees it that does not read its bytes."""
    stride = tuple(1 for _ in value.shape)
    count = 1
    for size in value.shape:
        count *= size
    return StoredValue("tensor", value.dtype, value.shape, stride, 0, count, 0, None, len(value.data))


@derived
def a_data_plane(world: World) -> Plane:
    """Canonical and staging partition over the world's storage units; two indexes are free for reuse."""
    canonical = {sample: (dict(values), {"weight_version": 3}) for sample, values in world.samples.items()}
    staging = {row.key: (encode_staged_row(row), row_tags(row)) for row in world.staged}
    next_index = len(FREE_INDEXES)
    partitions, indexes = {}, {}
    rows: tuple[dict[str, dict[int, TensorValue]], ...] = tuple({} for _ in range(world.storage_units))
    size = next_index + len(canonical) + len(staging) + 2
    for name, content in ((CANONICAL, canonical), (STAGING, staging)):
        keys = {key: next_index + at for at, key in enumerate(content)}
        reserved = next_index + len(content)
        next_index = reserved + 1
        partitions[name] = _partition(name, keys, content, reserved, size)
        indexes[name] = frozenset({*keys.values(), reserved})
        for key, (values, _) in content.items():
            for field_name, value in values.items():
                rows[keys[key] % world.storage_units].setdefault(field_name, {})[keys[key]] = value
    controller = ControllerState("TQ_CONTROLLER_00000000", partitions, indexes, FREE_INDEXES, next_index)
    units = tuple(UnitInfo(position=at, storage_unit_id=UNIT_IDS[at]) for at in range(world.storage_units))
    return Plane(controller, units, rows)


def _partition(name: str, keys: Mapping[str, int], content: Mapping[str, Any], reserved: int, size: int) -> Partition:
    fields = list(dict.fromkeys(field_name for values, _ in content.values() for field_name in values))
    bits = bytearray(size * len(fields))
    metas = {}
    for column, field_name in enumerate(fields):
        held = {keys[key]: values[field_name] for key, (values, _) in content.items() if field_name in values}
        for index in held:
            bits[index * len(fields) + column] = 1
        first_value = next(iter(held.values()))
        metas[field_name] = FieldMeta(frozenset(held), first_value.dtype, first_value.shape or (1,))
    return Partition(
        partition_id=name,
        keys=dict(keys),
        reverse_keys={index: key for key, index in keys.items()},
        columns={field_name: column for column, field_name in enumerate(fields)},
        global_indexes=frozenset(keys.values()),
        pre_allocated=frozenset({reserved}),
        field_metas=metas,
        tags={keys[key]: tags for key, (_, tags) in content.items()},
        production_rows=size,
        production_columns=len(fields),
        production=bytes(bits),
    )


# --- the snapshot's own files ---


@derived
def a_manifest(world: World) -> SnapshotManifest:
    """`manifest.json` of the snapshot."""
    gym = GymCheckpoint(checkpoint_id=world.checkpoint_id, participants=tuple(saved.entry for saved in a_gym(world)))
    return SnapshotManifest(
        schema_version=world.schema_version,
        base_train_step=world.step,
        trainer_version=world.step,
        current_epoch=world.epoch,
        sampler_dispatch_index=world.sampler_dispatch_index,
        mutation_version=41,
        rolled_back_train_group_count=0,
        bootstrap_fingerprint=a_bootstrap(world).bootstrap_fingerprint if world.anchor == "bootstrap" else None,
        gym_topology_fingerprint=topology_fingerprint(world.topology) if world.with_gym else None,
        gym_checkpoint=gym if world.with_gym else None,
    )


@derived
def a_bootstrap(world: World) -> BootstrapManifest:
    """`manifest.json` of the bootstrap anchor."""
    identity = bootstrap_identity(world.anchor_config if world.anchor != "bootstrap" else world.config)
    return BootstrapManifest(
        schema_version=4,
        base_train_step=0,
        trainer_version=0,
        bootstrap_fingerprint=bootstrap_fingerprint(identity),
        bootstrap_identity=identity,
    )


def a_training_info(world: World) -> TrainingInfo:
    """`training_info.json` of a step."""
    return TrainingInfo(
        current_step=world.step,
        total_steps=100,
        trainer_version=world.step,
        sampler_name="windowed",
        sampler_dispatch_index=4,
    )


@derived
def a_binding(world: World) -> dict[str, Any]:
    """NeMo-RL's record in the data plane's metadata."""
    return {
        "data_plane_checkpoint_schema_version": 2,
        "single_controller_train_steps": world.step,
        "single_controller_trainer_version": world.step,
        "single_controller_epoch": world.epoch,
        "partition_id": CANONICAL,
        "sampler_name": "windowed",
        "mode": "authoritative",
        "replay_metadata_schema_version": 1,
        "replay_manifest_digest": world.replay.manifest_digest,
        "replay_group_count": len(world.replay.groups),
        "rollout_recovery_schema_version": world.ledger.schema_version,
        "rollout_recovery_payload_sha256": sha256_hex(encode_ledger(world.ledger)),
        "rollout_recovery_group_count": len(world.ledger.groups),
    }


def data_plane_names(world: World) -> tuple[str, ...]:
    """The names in `data_plane/`."""
    units = (f"simple_storage/su_{at}_{UNIT_IDS[at]}.pkl" for at in range(world.storage_units))
    return ("metadata.json", "controller_state.pkl", "simple_storage/storage_unit_info.json", *units)


@derived
def data_plane_files(world: World) -> dict[str, bytes]:
    """`data_plane/`, relative to it."""
    plane = a_data_plane(world)
    units = {
        f"simple_storage/{plane.unit(at).file_name}": encode_storage_unit(
            plane.units[at].storage_unit_id, 100, plane.rows[at], plane.active(at)
        )
        for at in range(world.storage_units)
    }
    return {
        "metadata.json": encode_metadata(a_binding(world)),
        "controller_state.pkl": encode_controller_state(plane.controller),
        "simple_storage/storage_unit_info.json": encode_unit_info(plane.units),
        **units,
    }


@derived
def snapshot_files(world: World) -> dict[str, bytes]:
    """Every file of the snapshot, relative to it."""
    return {**control_files(world), **{f"data_plane/{name}": data for name, data in data_plane_files(world).items()}}


@derived
def control_files(world: World) -> dict[str, bytes]:
    """Every file of the snapshot outside `data_plane/`."""
    files = {
        "config.yaml": encode_yaml(world.config),
        "train_dataloader.pt": encode_dataloader({"_num_yielded": 12, "_iterator_finished": False}),
        "replay_buffer_metadata.pt": encode_replay(world.replay),
        "rollout_recovery.pt": encode_ledger(world.ledger),
    }
    for saved in a_gym(world):
        files.update({f"{saved.folder}/{name}": data for name, data in saved.files.items()})
    return {**files, "manifest.json": encode_manifest(a_manifest(world))}


@derived
def anchor_files(world: World) -> dict[str, bytes]:
    """The anchor's own files, relative to it."""
    if world.anchor == "bootstrap":
        return {"manifest.json": encode_bootstrap(a_bootstrap(world))}
    return {
        "training_info.json": encode_training_info(a_training_info(world)),
        "config.yaml": encode_yaml(world.anchor_config),
        "policy/weights/stand-in.bin": b"\0" * 32,
    }
