"""The Gym part of a snapshot's manifest, and what must not be in a schema 4 snapshot anywhere. Invariants 5 to 7.

The reader has refused unknown fields and malformed ids; this module says so, and compares what it does not: identities, digests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ckptctl.domain.canonical import EMPTY_LIST_DIGEST
from ckptctl.domain.evidence import Evidence, ModelEvidence
from ckptctl.domain.finding import Defect, Violation
from ckptctl.domain.manifest import GymCheckpoint, ModelPayload, SnapshotManifest
from ckptctl.rules._model import CannotRunError
from ckptctl.rules._parts import value_of

MANIFEST_FILE = "manifest.json"
STAGING_KIND = "token_capture_staging"
CUT_EVENT = "generation_cut"
_REFERENCE = re.compile(r"gym_checkpoint\.participants\.([0-9]{1,6})\.payload\.([a-z_]+_index)\.")


def manifest_of(evidence: Evidence) -> SnapshotManifest:
    """The decoded manifest.

    Raises:
        CannotRunError: there is none; the rules that say why are named.
    """
    if evidence.manifest.manifest is None:
        raise CannotRunError(f"`{MANIFEST_FILE}` cannot be used", because=("MAN002", "MAN003", "MAN004"))
    return evidence.manifest.manifest


def gym_of(evidence: Evidence) -> GymCheckpoint:
    """The Gym part of the manifest.

    Raises:
        CannotRunError: it is absent or damaged.
    """
    gym = manifest_of(evidence).gym_checkpoint
    if gym is None:
        raise CannotRunError("`gym_checkpoint` cannot be used", because=("MAN005",))
    return gym


def manifest_defect(defect: Defect) -> Violation:
    """What a reader of the manifest found."""
    message = f"`{MANIFEST_FILE}`: {defect.message}"
    return Violation(message, MANIFEST_FILE, defect.location, defect.expected, defect.actual)


def check_gym_shape(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 5."""
    for defect in evidence.manifest.gym_defects:
        yield manifest_defect(defect)
        yield from _blame_of_participant(evidence, defect)
    gym = evidence.manifest.manifest.gym_checkpoint if evidence.manifest.manifest is not None else None
    seen: set[tuple[str, str, str]] = set()
    for index, entry in enumerate(gym.participants if gym is not None else ()):
        participant = entry.participant
        name, place = participant.participant_name, f"gym_checkpoint.participants[{index}]"
        if entry.manifest.participant != participant:
            yield _of_participant(
                name,
                "the entry and its manifest reference name different participants",
                f"{place}.manifest.participant",
            )
        if entry.payload.manifest_digest != entry.manifest.manifest_digest:
            yield _of_participant(
                name,
                "the commit reply and the manifest reference have different manifest digests",
                f"{place}.payload.manifest_digest",
                entry.manifest.manifest_digest,
                entry.payload.manifest_digest,
            )
        identity = (participant.server_name, participant.component, name)
        if identity in seen:
            yield _of_participant(name, "the participant is listed twice", f"{place}.participant")
        seen.add(identity)


def _blame_of_participant(evidence: Evidence, defect: Defect) -> Iterator[Violation]:
    """A bad reference in a commit reply comes from the participant, whose own manifest must be looked at as well."""
    found = _REFERENCE.match(defect.location)
    if found is None or evidence.manifest.raw is None:
        return
    entry = evidence.manifest.raw["gym_checkpoint"]["participants"][int(found.group(1))]
    reference = entry.get("manifest")
    path = reference.get("relative_path") if isinstance(reference, Mapping) else None
    if any(item.path == path for item in evidence.tree):
        what = f"`{found.group(2)}` as reported by the participant at commit: {defect.message}"
        yield Violation(what, str(path), found.group(2), defect.expected, defect.actual)


def _of_participant(name: str, difference: str, location: str, expected: str = "", actual: str = "") -> Violation:
    return Violation(f"participant `{name}`: {difference}", MANIFEST_FILE, location, expected, actual)


def check_topology_presence(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 6; a fingerprint without Gym state is only a warning."""
    manifest = manifest_of(evidence)
    field = "gym_topology_fingerprint"
    if evidence.has_gym and manifest.gym_topology_fingerprint is None:
        yield Violation(f"the manifest holds Gym state but no `{field}`", MANIFEST_FILE, field, "a digest", "null")
    if not evidence.has_gym and manifest.gym_topology_fingerprint is not None:
        yield Violation(
            f"the manifest has a `{field}` but no Gym state", MANIFEST_FILE, field, "null", "a digest", warning=True
        )


def check_generation_cuts(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 7; cut proofs in the manifest itself are invariant 4's."""
    for index, entry in enumerate(gym_of(evidence).participants):
        if isinstance(entry.payload, ModelPayload) and entry.payload.generation_cut_records:
            yield _cuts(
                MANIFEST_FILE,
                f"gym_checkpoint.participants[{index}].payload.generation_cut_records",
                entry.payload.generation_cut_records,
            )
    for model in evidence.models:
        yield from _cuts_of_model(model)
    for model in evidence.models:
        value_of(model.storage_references, "PAR006")
        if not model.is_foreign:
            value_of(model.manifest, "PAR002", "PAR004")
            for part in model.lineage.values():
                value_of(part, "PAR012")


def _cuts_of_model(model: ModelEvidence) -> Iterator[Violation]:
    manifest = model.manifest.value
    if manifest is not None and manifest.generation_cut_records:
        yield _cuts(model.manifest.path, "generation_cut_records", manifest.generation_cut_records)
    elif manifest is not None and manifest.generation_cuts_sha256 != EMPTY_LIST_DIGEST:
        yield _cuts(model.manifest.path, "generation_cuts_sha256", manifest.generation_cuts_sha256, EMPTY_LIST_DIGEST)
    for line, row in enumerate(model.storage_references.value or (), start=1):
        if row.kind != STAGING_KIND:
            yield _cuts(model.storage_references.path, f"line {line}", row.kind, STAGING_KIND)
    for (archive, member), part in model.lineage.items():
        for line, lineage in enumerate(part.value or (), start=1):
            if lineage.event == CUT_EVENT:
                yield _cuts(f"{model.folder}/{archive}", f"{member} line {line}", CUT_EVENT, "no event")


def _cuts(path: str, location: str, actual: object, expected: str = "0") -> Violation:
    return Violation(
        f"`{path}` records generation cuts, which schema 4 cannot restore; it belongs to a schema 6 build",
        path,
        location,
        expected,
        str(actual),
    )
