"""Agents' and resources servers' folders (participant-protocol sections 11.1 and 11.3), and all participants' manifests.

Decides the shape of manifests, boundary records and session files, fills what older writers leave out, and builds a participant's
whole folder: names, order, bytes and the commit reply. The lineage half of the model's folder is `formats.lineage`.

Left to rules: digests, counts and sizes against the files, identity with the file's name, and how fields of a record depend on
each other (a pending response exactly for `pending_model`, capture key and call id together).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec

from ckptctl.domain import ids
from ckptctl.domain.canonical import pretty2, record2, row
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.document import Document
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.participant import AgentCommitReply, ModelCommitReply, ResourcesCommitReply
from ckptctl.domain.participant_files import (
    AgentManifest,
    BoundaryRecord,
    ModelManifest,
    ResourcesManifest,
    SessionRecord,
)
from ckptctl.domain.rows import AgentIndexRow, ContinuationRow
from ckptctl.domain.safe_text import shown
from ckptctl.formats.canonical_json import decode_document, decode_value, load_object
from ckptctl.formats.tar_archive import BuiltArchive, build_archives

AGENT_MANIFEST_SCHEMA, MODEL_MANIFEST_SCHEMA, RESOURCES_MANIFEST_SCHEMA = 2, 3, 2
MANIFEST_FILE = "manifest.json"
AGENT_INDEX_FILE, CONTINUATIONS_FILE, AGENT_ARCHIVE_PREFIX = "agent-index.jsonl", "continuations.jsonl", "agent-part"

D = TypeVar("D", bound=Document)
Reply = TypeVar("Reply", AgentCommitReply, ModelCommitReply, ResourcesCommitReply)
ManifestKind = Literal["supported", "older", "foreign"]


@dataclass(frozen=True, slots=True)
class BuiltArtifacts(Generic[Reply]):
    """A participant's folder, relative to the snapshot: its files in the order in which they are written, manifest last."""

    folder: str
    files: tuple[tuple[str, bytes], ...]
    reply: Reply


# --- manifests ---


def agent_manifest_kind(raw: Mapping[str, Any]) -> ManifestKind:
    """`older` for the layout with a `files` map, which is manifest schema 1."""
    return "older" if "files" in raw and "archives" not in raw else "supported"


def model_manifest_kind(raw: Mapping[str, Any]) -> ManifestKind:
    """`older` for the layout with a `rollouts` map (schemas 1 and 2); `foreign` for a capture backend that a framework owns."""
    if "archives" in raw:
        return "supported"
    return "older" if "rollouts" in raw else "foreign"


def decode_agent_manifest(data: bytes, limits: Limits = DEFAULT_LIMITS) -> AgentManifest:
    """An agent's `manifest.json`.

    Raises:
        DefectError: `is_unsupported` for another layout or schema number, which is not damage.
    """
    return _decode_manifest(data, AgentManifest, limits, agent_manifest_kind, AGENT_MANIFEST_SCHEMA)


def decode_model_manifest(data: bytes, limits: Limits = DEFAULT_LIMITS) -> ModelManifest:
    """A policy model's `manifest.json`.

    Raises:
        DefectError: `is_unsupported` for another layout, schema number or a framework's own format, which is not damage.
    """
    return _decode_manifest(data, ModelManifest, limits, model_manifest_kind, MODEL_MANIFEST_SCHEMA)


def decode_resources_manifest(data: bytes, limits: Limits = DEFAULT_LIMITS) -> ResourcesManifest:
    """A resources server's `manifest.json`.

    Raises:
        DefectError: `is_unsupported` for another schema number.
    """
    return _decode_manifest(data, ResourcesManifest, limits, lambda _: "supported", RESOURCES_MANIFEST_SCHEMA)


def _decode_manifest(
    data: bytes, model: type[D], limits: Limits, kind_of: Callable[[Mapping[str, Any]], ManifestKind], schema: int
) -> D:
    raw = load_object(data, limits)
    kind = kind_of(raw)
    found = raw.get("schema_version")
    if kind == "foreign":
        text = (
            "has neither `archives` nor `rollouts`: a framework's own format, of which only references can be checked"
        )
        raise DefectError(Defect(text, "", f"manifest schema {schema}", "a foreign format"), is_unsupported=True)
    if kind == "older":
        text = f"has manifest schema {shown(found)} with one file per record; ckptctl reads schema {schema}"
        raise DefectError(Defect(text, "schema_version", str(schema), shown(found)), is_unsupported=True)
    try:
        return decode_value(raw, model)
    except DefectError as error:
        if type(found) is int and found != schema:
            text = f"has manifest schema {found}; ckptctl reads schema {schema}"
            defect = Defect(text, "schema_version", str(schema), str(found))
            raise DefectError(defect, *error.defects, is_unsupported=True) from None
        raise


# --- records ---


def decode_boundary(data: bytes, limits: Limits = DEFAULT_LIMITS) -> BoundaryRecord:
    """An agent's boundary record. What older agents leave out is filled in: the turn, and the capture key of the last call."""
    raw = load_object(data, limits, max_bytes=limits.record_bytes)
    return decode_value(_with_derived_fields(raw), BoundaryRecord)


def encode_boundary(record: BoundaryRecord) -> bytes:
    """The bytes of a boundary record (form record2)."""
    return record2(record.model_dump(mode="json"))


def decode_session(data: bytes, limits: Limits = DEFAULT_LIMITS) -> SessionRecord:
    """A resources session file."""
    return decode_document(data, SessionRecord, limits, max_bytes=limits.record_bytes)


def encode_session(record: SessionRecord) -> bytes:
    """The bytes of a session file (form record2)."""
    return record2(record.model_dump(mode="json"))


def _with_derived_fields(raw: dict[str, Any]) -> dict[str, Any]:
    filled = dict(raw)
    if "turn_index" not in raw and "boundary_index" in raw:
        filled["turn_index"] = raw["boundary_index"]
    if "last_committed_model_capture_key" not in raw:
        call = filled.setdefault("last_committed_model_call_id", None)
        rollout, attempt = raw.get("rollout_id"), raw.get("attempt_index")
        is_known = call is not None and isinstance(rollout, str) and type(attempt) is int
        filled["last_committed_model_capture_key"] = (
            ids.capture_key(str(rollout), int(str(attempt))) if is_known else None
        )
    return filled


# --- whole folders ---


def build_agent_artifacts(
    checkpoint_id: str, instance_name: str, records: Iterable[BoundaryRecord]
) -> BuiltArtifacts[AgentCommitReply]:
    """Everything an agent writes at commit, and its reply."""
    folder = ids.agent_folder(instance_name)
    ordered = sorted(records, key=lambda item: (item.rollout_id, item.attempt_index))
    payloads = {ids.record_file_name(item.rollout_id, item.attempt_index): encode_boundary(item) for item in ordered}
    if len(payloads) != len(ordered):
        raise ValueError("two boundary records of one attempt")
    archives = build_archives(AGENT_ARCHIVE_PREFIX, payloads.items())
    index = b"".join(
        row(AgentIndexRow(record.rollout_id, record.attempt_index, archive, member, sha256_hex(payload), len(payload)))
        for record, (archive, member, payload) in zip(ordered, located(archives, payloads), strict=True)
    )
    rows = continuation_rows(ordered)
    continuations = b"".join(map(row, rows))
    record_index = reference_to(folder, AGENT_INDEX_FILE, index, len(ordered))
    continuation_index = reference_to(folder, CONTINUATIONS_FILE, continuations, len(rows))
    manifest = AgentManifest(
        schema_version=AGENT_MANIFEST_SCHEMA,
        checkpoint_id=checkpoint_id,
        instance_name=instance_name,
        archives=[archive.entry for archive in archives],
        record_index=record_index,
        records=len(ordered),
        continuation_index=continuation_index,
    )
    data = pretty2(manifest.model_dump(mode="json"))
    files = (
        *((archive.name, archive.data) for archive in archives),
        (AGENT_INDEX_FILE, index),
        (CONTINUATIONS_FILE, continuations),
        (MANIFEST_FILE, data),
    )
    reply = AgentCommitReply(
        records=len(ordered), manifest_digest=sha256_hex(data), continuation_index=continuation_index
    )
    return BuiltArtifacts(folder, files, reply)


def build_resources_artifacts(
    checkpoint_id: str, server_name: str, sessions: Iterable[SessionRecord]
) -> BuiltArtifacts[ResourcesCommitReply]:
    """Everything a resources server writes at commit, and its reply."""
    ordered = sorted(sessions, key=lambda item: (item.rollout_id, item.attempt_index))
    payloads = {ids.record_file_name(item.rollout_id, item.attempt_index): encode_session(item) for item in ordered}
    if len(payloads) != len(ordered):
        raise ValueError("two sessions of one attempt")
    manifest = ResourcesManifest(
        schema_version=RESOURCES_MANIFEST_SCHEMA,
        checkpoint_id=checkpoint_id,
        server_name=server_name,
        files={name: sha256_hex(payload) for name, payload in payloads.items()},
    )
    data = pretty2(manifest.model_dump(mode="json"))
    reply = ResourcesCommitReply(sessions=len(ordered), manifest_digest=sha256_hex(data))
    return BuiltArtifacts(ids.resources_folder(server_name), (*payloads.items(), (MANIFEST_FILE, data)), reply)


def continuation_rows(records: Iterable[BoundaryRecord]) -> tuple[ContinuationRow, ...]:
    """The rows of `continuations.jsonl`: one for each record with a committed model call."""
    rows = [
        ContinuationRow(
            schema_version=1,
            rollout_id=record.rollout_id,
            attempt_index=record.attempt_index,
            capture_key=record.last_committed_model_capture_key,
            last_committed_model_call_id=record.last_committed_model_call_id,
            resource_state_revisions=dict(record.resource_state_revisions),
        )
        for record in records
        if record.last_committed_model_call_id is not None and record.last_committed_model_capture_key is not None
    ]
    return tuple(sorted(rows, key=lambda item: (item.capture_key, item.last_committed_model_call_id)))


def located(archives: Iterable[BuiltArchive], payloads: Mapping[str, bytes]) -> list[tuple[str, str, bytes]]:
    """(archive, member, payload) in archive order."""
    return [(archive.name, member, payloads[member]) for archive in archives for member in archive.members]


def reference_to(folder: str, file_name: str, data: bytes, records: int) -> ArtifactReference:
    """The reference to an index as it is put into manifests and replies."""
    return ArtifactReference(
        schema_version=1,
        relative_path=f"{folder}/{file_name}",
        sha256=sha256_hex(data),
        records=records,
        bytes=len(data),
    )


def encode_rows(rows: Iterable[msgspec.Struct]) -> bytes:
    """The bytes of a JSON Lines index."""
    return b"".join(map(row, rows))
