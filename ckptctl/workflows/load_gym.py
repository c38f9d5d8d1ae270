"""Loads what the Gym participants wrote: manifests, indexes, archives with their records and lineage, session files.

Folders are computed from the participants' names; a path that a manifest names is used only to look a name up in the
listing. Texts that no rule reads (transcripts, environment states, recorded answers) are dropped as soon as they were
checked, so that memory does not grow with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.evidence import AgentEvidence, ArchiveMember, ModelEvidence, Part, ResourcesEvidence
from ckptctl.domain.finding import DefectError
from ckptctl.domain.ids import AGENT, MODEL, RESOURCES, participant_folder
from ckptctl.domain.limits import Limits
from ckptctl.domain.manifest import AgentPayload, ArtifactReference, GymCheckpoint, ModelPayload, ParticipantEntry
from ckptctl.domain.participant_files import ArchiveEntry, BoundaryRecord, SessionRecord
from ckptctl.domain.rows import AgentIndexRow, ContinuationRow, LineageIndexRow, StorageReferenceRow
from ckptctl.domain.source import ByteSource
from ckptctl.formats.canonical_json import load_object
from ckptctl.formats.lineage import LINEAGE_INDEX_FILE, STORAGE_REFERENCES_FILE, decode_lineage
from ckptctl.formats.participant_files import (
    AGENT_INDEX_FILE,
    CONTINUATIONS_FILE,
    MANIFEST_FILE,
    decode_agent_manifest,
    decode_boundary,
    decode_model_manifest,
    decode_resources_manifest,
    decode_session,
    model_manifest_kind,
)
from ckptctl.formats.row_pieces import read_rows
from ckptctl.formats.tar_archive import read_archive
from ckptctl.workflows.read_parts import PartReader

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)
Members = Mapping[tuple[str, str], Part[T]]


def load_agents(parts: PartReader, gym: GymCheckpoint) -> tuple[AgentEvidence, ...]:
    """Every agent's folder."""
    return tuple(_load_agent(parts, entry) for entry in gym.of(AGENT))


def load_models(parts: PartReader, gym: GymCheckpoint) -> tuple[ModelEvidence, ...]:
    """Every policy model's folder."""
    return tuple(_load_model(parts, entry) for entry in gym.of(MODEL))


def load_resources(parts: PartReader, gym: GymCheckpoint) -> tuple[ResourcesEvidence, ...]:
    """Every resources server's folder."""
    return tuple(_load_resources(parts, entry) for entry in gym.of(RESOURCES))


def _folder(entry: ParticipantEntry) -> str:
    return participant_folder(entry.participant.component, entry.participant.participant_name)


def _load_agent(parts: PartReader, entry: ParticipantEntry) -> AgentEvidence:
    folder, limits = _folder(entry), parts.limits
    manifest = parts.read_document(
        f"{folder}/{MANIFEST_FILE}", lambda data: decode_agent_manifest(data, limits), limits.json_document_bytes
    )
    listed = manifest.value
    payload = entry.payload if isinstance(entry.payload, AgentPayload) else None
    archives, records = _load_archives(
        parts,
        folder,
        listed.archives if listed is not None else (),
        lambda data: _slim_record(decode_boundary(data, limits)),
    )
    return AgentEvidence(
        entry=entry,
        folder=folder,
        manifest=manifest,
        record_index=_load_index(
            parts, folder, AGENT_INDEX_FILE, AgentIndexRow, listed.record_index if listed else None
        ),
        continuations=_load_index(
            parts,
            folder,
            CONTINUATIONS_FILE,
            ContinuationRow,
            listed.continuation_index if listed else None,
            payload.continuation_index if payload else None,
        ),
        archives=archives,
        records=records,
    )


def _load_model(parts: PartReader, entry: ParticipantEntry) -> ModelEvidence:
    folder, limits = _folder(entry), parts.limits
    is_foreign = False

    def decode(data: bytes) -> Any:
        nonlocal is_foreign
        is_foreign = model_manifest_kind(load_object(data, limits)) == "foreign"
        return decode_model_manifest(data, limits)

    manifest = parts.read_document(f"{folder}/{MANIFEST_FILE}", decode, limits.json_document_bytes)
    listed = manifest.value
    payload = entry.payload if isinstance(entry.payload, ModelPayload) else None
    archives, lineage = _load_archives(
        parts, folder, listed.archives if listed is not None else (), lambda data: decode_lineage(data, limits)
    )
    return ModelEvidence(
        entry=entry,
        folder=folder,
        manifest=manifest,
        lineage_index=_load_index(
            parts, folder, LINEAGE_INDEX_FILE, LineageIndexRow, listed.lineage_index if listed else None
        ),
        storage_references=_load_index(
            parts,
            folder,
            STORAGE_REFERENCES_FILE,
            StorageReferenceRow,
            listed.storage_reference_index if listed else None,
            payload.storage_reference_index if payload else None,
        ),
        archives=archives,
        lineage=lineage,
        is_foreign=is_foreign,
    )


def _load_resources(parts: PartReader, entry: ParticipantEntry) -> ResourcesEvidence:
    folder, limits = _folder(entry), parts.limits
    manifest = parts.read_document(
        f"{folder}/{MANIFEST_FILE}", lambda data: decode_resources_manifest(data, limits), limits.json_document_bytes
    )
    names = {name for name in parts.names_in(folder) if name.endswith(".json") and name != MANIFEST_FILE}
    if manifest.value is not None:
        names.update(manifest.value.files)
    sessions = {
        name: parts.read_document(
            f"{folder}/{name}", lambda data: _slim_session(decode_session(data, limits)), limits.record_bytes
        )
        for name in sorted(names)
    }
    return ResourcesEvidence(entry=entry, folder=folder, manifest=manifest, sessions=sessions)


def _load_index(
    parts: PartReader, folder: str, usual_name: str, row_type: type[R], *references: ArtifactReference | None
) -> Part[tuple[R, ...]]:
    """The index that a participant reported; the usual name where what it reported is not in its folder (a rule says so)."""
    reported = [
        reference.relative_path
        for reference in references
        if reference is not None
        and reference.relative_path.startswith(f"{folder}/")
        and parts.is_file(reference.relative_path)
    ]
    path = reported[0] if reported else f"{folder}/{usual_name}"
    limits = parts.limits
    return parts.read_container(path, lambda source: read_rows(source, row_type, limits), limits.index_bytes)


def _load_archives(
    parts: PartReader, folder: str, listed: Iterable[ArchiveEntry], decode: Callable[[bytes], T]
) -> tuple[Mapping[str, Part[tuple[ArchiveMember, ...]]], Members[T]]:
    archives: dict[str, Part[tuple[ArchiveMember, ...]]] = {}
    members: dict[tuple[str, str], Part[T]] = {}

    def reader_of(name: str) -> Callable[[ByteSource], tuple[ArchiveMember, ...]]:
        return lambda source: _read_members(source, parts.limits, f"{folder}/{name}", members, decode)

    for entry in listed:
        if entry.name not in archives:
            path = f"{folder}/{entry.name}"
            archives[entry.name] = parts.read_container(path, reader_of(entry.name), parts.limits.archive_bytes)
    return archives, members


def _read_members(
    source: ByteSource, limits: Limits, path: str, members: dict[tuple[str, str], Part[T]], decode: Callable[[bytes], T]
) -> tuple[ArchiveMember, ...]:
    found: list[ArchiveMember] = []
    archive = path.rpartition("/")[2]
    for member, payload in read_archive(source, limits):
        found.append(member)
        if payload is not None and (archive, member.name) not in members:
            members[archive, member.name] = _member_part(path, member, payload, decode)
    return tuple(found)


def _member_part(path: str, member: ArchiveMember, payload: bytes, decode: Callable[[bytes], T]) -> Part[T]:
    digest = member.sha256 or sha256_hex(payload)
    try:
        return Part(path, "decoded", decode(payload), (), len(payload), digest)
    except DefectError as error:
        return Part(
            path, "unsupported" if error.is_unsupported else "damaged", None, error.defects, len(payload), digest
        )


def _slim_record(record: BoundaryRecord) -> BoundaryRecord:
    """A record without its transcript."""
    pending = record.pending_model
    if pending is not None:
        pending = pending.model_copy(update={"response": {}, "model_server_cookies": {}, "usage": None})
    return record.model_copy(update={"pending_model": pending, "output_items": [], "usage": None, "agent_state": {}})


def _slim_session(session: SessionRecord) -> SessionRecord:
    """A session without its state and its recorded answers."""
    receipts = [receipt.model_copy(update={"headers": [], "body_base64": ""}) for receipt in session.mutation_receipts]
    return session.model_copy(update={"state": {}, "mutation_receipts": receipts})
