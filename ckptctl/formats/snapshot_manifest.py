"""`manifest.json` of a snapshot, schemas 3 and 4 (snapshot-layout section 3): bytes to a staged reading, and back.

Reading goes in stages, so that each rule can speak of its own: is it a JSON object; which schema does it name; are counters and
fingerprints what they must be; is the Gym part well formed. Refused in the Gym part are unknown fields at every level, ids and
names of the wrong form, payloads that are not their component's, and paths that are not inside the snapshot.

Left to rules and other modules: which schemas are supported and what to say of the others (`domain.schemas`), whether
participants are unique, agree with themselves or lie at the computed place, and everything that needs another file. Unknown
top-level keys are collected, not refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ckptctl.domain import ids
from ckptctl.domain.canonical import pretty2_nl
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.document import Document
from ckptctl.domain.evidence import ManifestReading, Part
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
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
from ckptctl.domain.safe_text import shown
from ckptctl.formats.canonical_json import decode_value, load_object

D = TypeVar("D", bound=Document)

COUNTERS: Mapping[str, int] = {
    "base_train_step": 0,
    "trainer_version": 0,
    "current_epoch": 0,
    "sampler_dispatch_index": -1,
    "mutation_version": 0,
    "rolled_back_train_group_count": 0,
}
"""The counters beside `schema_version` and the least value of each."""

FIRST_FIELDS = ("schema_version", *COUNTERS, "bootstrap_fingerprint")
"""The eight keys of schema 3."""
GYM_FIELDS = ("gym_topology_fingerprint", "gym_checkpoint")
"""What schema 4 adds."""
CUT_PROOFS_FIELD = "gym_generation_cut_proofs"
"""A field of schema 5; absent or empty in schema 4, and never an unknown key, since a rule of its own speaks of it."""

MAX_AGENT_NAME_BYTES = 512
_PAYLOADS: Mapping[str, type[AgentPayload | ModelPayload | ResourcesPayload]] = {
    ids.AGENT: AgentPayload,
    ids.MODEL: ModelPayload,
    ids.RESOURCES: ResourcesPayload,
}


def read_manifest(path: str, data: bytes, limits: Limits) -> ManifestReading:
    """Read a manifest as far as it can be read; never raises for bad bytes. `path` is where it lies in the target."""
    digest = sha256_hex(data)
    try:
        raw = load_object(data, limits)
    except DefectError as error:
        part: Part[Mapping[str, Any]] = Part(path, "damaged", None, error.defects, len(data), digest)
        return ManifestReading(part, document_defects=error.defects)
    part = Part(path, "decoded", raw, (), len(data), digest)
    schema = raw.get("schema_version")
    known = {*FIRST_FIELDS, *GYM_FIELDS, CUT_PROOFS_FIELD}
    unknown = tuple(key for key in raw if key not in known)
    has_gym = raw.get("gym_checkpoint") is not None
    if type(schema) is not int or schema not in {3, 4}:
        return ManifestReading(part, raw, schema_found=schema, unknown_keys=unknown, has_gym=has_gym)
    counter_defects = _counter_defects(raw, schema)
    gym: GymCheckpoint | None = None
    gym_defects: tuple[Defect, ...] = ()
    if schema == 4 and has_gym:
        gym, gym_defects = _read_gym(raw["gym_checkpoint"])
    manifest = None if counter_defects else _manifest(raw, schema, gym)
    return ManifestReading(part, raw, (), schema, counter_defects, gym_defects, unknown, has_gym, manifest)


def encode_manifest(manifest: SnapshotManifest) -> bytes:
    """The bytes of a manifest: pretty2-nl, exactly the keys of its schema.

    A `generation_cut_records` of 0 is left out, since schema 4 has no such field; whoever builds a manifest refuses any other.
    """
    keys = FIRST_FIELDS if manifest.schema_version == 3 else FIRST_FIELDS + GYM_FIELDS
    document = {key: getattr(manifest, key) for key in keys}
    gym = manifest.gym_checkpoint
    if "gym_checkpoint" in document and gym is not None:
        participants = [_entry_document(entry) for entry in gym.participants]
        document["gym_checkpoint"] = {"checkpoint_id": gym.checkpoint_id, "participants": participants}
    return pretty2_nl(document)


def _entry_document(entry: ParticipantEntry) -> dict[str, Any]:
    document = entry.model_dump(mode="json")
    cuts = document["payload"].pop("generation_cut_records", None)
    if cuts:
        raise RuntimeError(
            "schema 4 cannot hold generation cuts; the caller must refuse them before it writes a manifest"
        )
    return document


def _manifest(raw: Mapping[str, Any], schema: int, gym: GymCheckpoint | None) -> SnapshotManifest:
    topology = raw.get("gym_topology_fingerprint") if schema == 4 else None
    fields = {key: raw[key] for key in FIRST_FIELDS}
    return SnapshotManifest(**fields, gym_topology_fingerprint=topology, gym_checkpoint=gym)


def _counter_defects(raw: Mapping[str, Any], schema: int) -> tuple[Defect, ...]:
    found: list[Defect] = []
    for key, least in COUNTERS.items():
        value = raw.get(key)
        if key not in raw:
            found.append(_missing(key))
        elif type(value) is not int or value < least:
            found.append(_wrong(key, f"an integer of at least {least}", value))
    fingerprints = ("bootstrap_fingerprint",) if schema == 3 else ("bootstrap_fingerprint", "gym_topology_fingerprint")
    for key in fingerprints:
        value = raw.get(key)
        if key not in raw:
            found.append(_missing(key))
        elif value is not None and not (isinstance(value, str) and ids.is_digest(value)):
            found.append(_wrong(key, "null or 64 lower-case hex digits", value))
    if schema == 4 and "gym_checkpoint" not in raw:
        found.append(_missing("gym_checkpoint"))
    return tuple(found)


def _missing(key: str) -> Defect:
    return Defect(f"`{key}` is missing", key, "present", "absent")


def _wrong(key: str, rule: str, value: object) -> Defect:
    return Defect(f"`{key}` must be {rule}, found {shown(value)}", key, rule, shown(value))


def _read_gym(raw: object) -> tuple[GymCheckpoint | None, tuple[Defect, ...]]:
    """The Gym part, or every reason why it is none."""
    if not isinstance(raw, Mapping):
        return None, (_wrong("gym_checkpoint", "null or an object", raw),)
    defects = list(_key_defects(raw, ("checkpoint_id", "participants"), "gym_checkpoint"))
    checkpoint_id = raw.get("checkpoint_id")
    if "checkpoint_id" in raw and not (isinstance(checkpoint_id, str) and ids.is_checkpoint_id(checkpoint_id)):
        rule = "1 to 128 characters [A-Za-z0-9][A-Za-z0-9._-]*"
        defects.append(_wrong("gym_checkpoint.checkpoint_id", rule, checkpoint_id))
    participants = raw.get("participants")
    entries: list[ParticipantEntry] = []
    if isinstance(participants, list):
        for index, item in enumerate(participants):
            entry, problems = _read_entry(item, f"gym_checkpoint.participants.{index}")
            defects.extend(problems)
            if entry is not None:
                entries.append(entry)
    elif "participants" in raw:
        defects.append(_wrong("gym_checkpoint.participants", "a list", participants))
    if defects:
        return None, tuple(defects)
    return GymCheckpoint(checkpoint_id=str(checkpoint_id), participants=tuple(entries)), ()


def _read_entry(raw: object, place: str) -> tuple[ParticipantEntry | None, tuple[Defect, ...]]:
    if not isinstance(raw, Mapping):
        return None, (_wrong(place, "an object", raw),)
    defects = list(_key_defects(raw, ("participant", "payload", "manifest"), place))
    identity = _read_part(raw, "participant", ParticipantIdentity, place, defects)
    reference = _read_part(raw, "manifest", ParticipantManifestReference, place, defects)
    payload: Payload | None = None
    if identity is not None:
        defects.extend(_name_defects(identity, f"{place}.participant.participant_name"))
        payload = _read_part(raw, "payload", _PAYLOADS[identity.component], place, defects)
    if defects or identity is None or reference is None or payload is None:
        return None, tuple(defects)
    return ParticipantEntry(participant=identity, payload=payload, manifest=reference), ()


def _read_part(raw: Mapping[str, Any], key: str, model: type[D], place: str, defects: list[Defect]) -> D | None:
    """One field of an entry; its defects are added to `defects`. An absent one has been noted before."""
    if key not in raw:
        return None
    try:
        return decode_value(raw[key], model, f"{place}.{key}")
    except DefectError as error:
        defects.extend(error.defects)
        return None


def _name_defects(identity: ParticipantIdentity, place: str) -> tuple[Defect, ...]:
    """Models' and resources servers' own names are names of folders; an agent's may be anything that can be printed."""
    name = identity.participant_name
    if identity.component != ids.AGENT:
        return () if ids.is_id(name) else (_wrong(place, "of the form [A-Za-z0-9][A-Za-z0-9._-]*", name),)
    if len(name.encode()) <= MAX_AGENT_NAME_BYTES and not any(
        ord(character) < 0x20 or ord(character) == 0x7F for character in name
    ):
        return ()
    return (_wrong(place, f"1 to {MAX_AGENT_NAME_BYTES} bytes without control characters", name),)


def _key_defects(raw: Mapping[str, Any], expected: tuple[str, ...], place: str) -> tuple[Defect, ...]:
    missing = [_missing(f"{place}.{key}") for key in expected if key not in raw]
    unknown = [
        Defect(f"`{place}.{shown(key)[1:-1]}` is not a field of this format", place, "no such field", shown(raw[key]))
        for key in raw
        if key not in expected
    ]
    return tuple(missing + unknown)
