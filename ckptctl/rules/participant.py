"""Are these the manifests that the participants of this snapshot wrote? Invariants 60 to 63 and 90; the family's list.

`participant_files` judges the indexes, archives and session files that the manifests name, `participant_links` what agents and
model ledgers say of each other, `participant_ledger` what they say of the recovery ledger, `participant_sessions` boundaries
against resources sessions, `participant_live` everything that needs live servers or a discovered topology.
"""

from __future__ import annotations

from collections.abc import Iterator

from ckptctl.domain.evidence import AgentEvidence, Evidence, ModelEvidence, ResourcesEvidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.ids import AGENT, is_id, participant_folder
from ckptctl.domain.manifest import AgentPayload, ModelPayload, ResourcesPayload
from ckptctl.rules import (
    participant_archives,
    participant_files,
    participant_ledger,
    participant_links,
    participant_live,
    participant_sessions,
    participant_storage,
)
from ckptctl.rules._model import CannotRunError, NotAskedError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules._views import (
    OUTER_MANIFEST,
    PARTICIPANT_REQUIRES,
    any_manifest,
    participant_manifest,
    participants_of,
    require_documented,
)

Saved = AgentEvidence | ModelEvidence | ResourcesEvidence
MAX_AGENT_NAME_BYTES = 512


def check_manifests(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 60."""
    seen: set[str] = set()
    unread: list[str] = []
    for saved in participants_of(evidence):
        participant, reference = saved.entry.participant, saved.entry.manifest
        name, path = participant.participant_name, reference.relative_path
        problem = _name_problem(participant.component, name)
        if problem is not None:
            yield Violation(
                f"participant `{name}`: {problem}, so it has no folder", OUTER_MANIFEST, name, "a legal name", name
            )
            continue
        wanted = f"{participant_folder(participant.component, name)}/manifest.json"
        if path != wanted:
            yield Violation(
                f"participant `{name}`: its manifest is said to lie at `{path}`", OUTER_MANIFEST, name, wanted, path
            )
            continue
        if path in seen:
            yield Violation(f"`{path}` is the manifest of two participants", OUTER_MANIFEST, name, "one", "two")
            continue
        seen.add(path)
        yield from _manifest_faults(saved, name, reference.manifest_digest)
        if saved.manifest.state in {"unreadable", "not_read"}:
            unread.append(saved.manifest.reason)
    if unread:
        raise CannotRunError("; ".join(unread[:5]), because=("MAN009",))


def _name_problem(component: str, name: str) -> str | None:
    if component == AGENT:
        is_legal = 1 <= len(name.encode()) <= MAX_AGENT_NAME_BYTES and name.isprintable()
        return None if is_legal else f"its name is not 1 to {MAX_AGENT_NAME_BYTES} bytes without control characters"
    return None if is_id(name) else "its name does not have the form of an id"


def _manifest_faults(saved: Saved, name: str, digest: str) -> Iterator[Violation]:
    part = saved.manifest
    if part.state == "missing":
        yield Violation(
            f"`{part.path}` of participant `{name}` is missing", part.path, expected="a file", actual="missing"
        )
    elif part.sha256 is not None and part.sha256 != digest:
        message = f"`{part.path}` of participant `{name}`: digest differs from the outer manifest"
        yield Violation(message, part.path, "", digest, part.sha256)
    elif part.state == "damaged":
        for defect in part.defects:
            message = f"`{part.path}` of participant `{name}`: {defect.message}"
            yield Violation(message, part.path, defect.location, defect.expected, defect.actual)


def check_checkpoint_id(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 61."""
    wanted = _checkpoint_id(evidence)
    for saved in participants_of(evidence):
        if isinstance(saved, ModelEvidence) and saved.is_foreign:
            continue  # what such a manifest holds is not documented
        found = any_manifest(saved).checkpoint_id
        if found != wanted:
            path = saved.manifest.path
            message = f"`{path}`: checkpoint_id is `{found}`, but this snapshot is `{wanted}`"
            yield Violation(message, path, "checkpoint_id", wanted, found)


def _checkpoint_id(evidence: Evidence) -> str:
    manifest = evidence.manifest.manifest
    if manifest is None or manifest.gym_checkpoint is None:
        raise CannotRunError("the Gym part of the manifest cannot be read", because=("MAN003", "MAN004", "MAN005"))
    return manifest.gym_checkpoint.checkpoint_id


def check_owner(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 62; an older manifest schema is incompatible, not damaged."""
    foreign: list[ModelEvidence] = []
    for saved in participants_of(evidence):
        path, wanted = saved.manifest.path, saved.entry.participant.participant_name
        if isinstance(saved, ModelEvidence) and saved.is_foreign:
            foreign.append(saved)
            continue
        if saved.manifest.state == "unsupported":
            defect = saved.manifest.defects[0] if saved.manifest.defects else None
            expected, actual = (defect.expected, defect.actual) if defect is not None else ("", "")
            message = f"`{path}`: {saved.manifest.reason}"
            yield Violation(message, path, "schema_version", expected, actual, incompatible=True)
            continue
        manifest = any_manifest(saved)
        schema = 3 if isinstance(saved, ModelEvidence) else 2
        if manifest.schema_version != schema:
            message = f"`{path}`: manifest schema {manifest.schema_version}, ckptctl reads {schema}"
            yield Violation(
                message, path, "schema_version", str(schema), str(manifest.schema_version), incompatible=True
            )
        field = "instance_name" if isinstance(saved, AgentEvidence) else "server_name"
        found = getattr(manifest, field)
        if found != wanted:
            message = f"`{path}` was written by `{found}`, not `{wanted}` ({field})"
            yield Violation(message, path, field, wanted, str(found))
    for model in foreign:
        require_documented(model)


def check_counts(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 63; lines of single lineage members are 70's."""
    for saved in participants_of(evidence):
        if isinstance(saved, ModelEvidence) and saved.is_foreign:
            continue
        for field, reply, own, actual in _counts(saved):
            yield from _count_faults(saved, field, (reply, own, actual))
    for model in evidence.models:
        require_documented(model)


def _counts(saved: Saved) -> Iterator[tuple[str, int, int, int | None]]:
    """(field, commit reply, participant manifest, what is really there or None where nothing shows it)."""
    payload = saved.entry.payload
    if isinstance(saved, AgentEvidence) and isinstance(payload, AgentPayload):
        agent = participant_manifest(saved.manifest)
        yield "records", payload.records, agent.records, len(value_of(saved.record_index, "PAR006"))
    elif isinstance(saved, ModelEvidence) and isinstance(payload, ModelPayload):
        model = participant_manifest(saved.manifest)
        index = value_of(saved.lineage_index, "PAR006")
        yield "rollouts", payload.rollouts, model.rollout_count, len(index)
        yield "rows", payload.rows, model.row_count, sum(row.rows for row in index)
        yield "excluded_tombstoned", payload.excluded_tombstoned, len(model.tombstones), None
        yield "excluded_inactive", payload.excluded_inactive, model.excluded_inactive, None
    elif isinstance(saved, ResourcesEvidence) and isinstance(payload, ResourcesPayload):
        resources = participant_manifest(saved.manifest)
        yield "sessions", payload.sessions, len(resources.files), None


def _count_faults(saved: Saved, field: str, counts: tuple[int, int, int | None]) -> Iterator[Violation]:
    reply, own, actual = counts
    name = saved.entry.participant.participant_name
    if actual is not None and own != actual:
        message = f"`{name}`: its manifest counts {own} {field}, its index {actual}"
        yield Violation(message, saved.manifest.path, field, str(actual), str(own))
    if reply not in {own, actual}:
        message = f"`{name}`: the commit reply counts {reply} {field}, the participant's manifest {own}"
        yield Violation(message, OUTER_MANIFEST, f"{name} {field}", str(own), str(reply))


def check_reused_id(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 90."""
    if evidence.anchor is None:
        raise NotAskedError("the snapshot lies in no checkpoint directory")
    wanted = _checkpoint_id(evidence)
    for other in (*evidence.anchor.snapshots, *evidence.anchor.other_snapshots):
        if other.checkpoint_id == wanted and (other.anchor, other.name) != (evidence.anchor.name, evidence.name):
            place = f"{other.anchor}/{other.name}"
            message = f"checkpoint_id `{wanted}` is also used by `{place}`"
            yield Violation(message, OUTER_MANIFEST, "gym_checkpoint.checkpoint_id", "an id of its own", place)


_OWN: tuple[Rule, ...] = (
    Rule(
        id="PAR002",
        invariant=60,
        name="misplaced-participant-manifest",
        summary="Each participant's manifest lies at the place computed from its name and has the recorded digest.",
        why="Everything that the participant saved hangs on this file; another one belongs to another commit.",
        hint="Use an older snapshot; artifacts of this one were exchanged, changed or lost after the commit.",
        severity="error",
        level="standard",
        check=check_manifests,
        requires=("MAN005",),
        needs=("gym",),
    ),
    Rule(
        id="PAR003",
        invariant=61,
        name="foreign-checkpoint-id",
        summary="Every participant manifest carries the checkpoint id of the snapshot.",
        why="Agents and resources servers do not compare it at restore: parts of two checkpoints would be mixed silently.",
        hint="Use an older snapshot; one participant's folder comes from another checkpoint.",
        severity="error",
        level="standard",
        check=check_checkpoint_id,
        requires=PARTICIPANT_REQUIRES,
        needs=("gym",),
    ),
    Rule(
        id="PAR004",
        invariant=62,
        name="foreign-participant-manifest",
        summary="Every participant manifest names its participant and has the manifest schema that is read.",
        why="Resources servers do not compare the name: they would take over another server's sessions.",
        hint="Restore with the build that wrote an older schema; for another name, use an older snapshot.",
        severity="error",
        level="standard",
        check=check_owner,
        requires=PARTICIPANT_REQUIRES,
        needs=("gym",),
    ),
    Rule(
        id="PAR005",
        invariant=63,
        name="participant-count-mismatch",
        summary="Commit reply, participant manifest and files agree on every count.",
        why="A count that differs means that something was committed and lost, or added later.",
        hint="Use an older snapshot; this commit was not what the participant reported.",
        severity="error",
        level="standard",
        check=check_counts,
        requires=("MAN005", "PAR002", "PAR006"),
        needs=("gym",),
    ),
    Rule(
        id="PAR032",
        invariant=90,
        name="reused-checkpoint-id",
        summary="No other snapshot of the checkpoint directory has the same checkpoint id.",
        why="A Gym process retires an id for ever: the second snapshot with it was a copy, or its commit was a replay.",
        hint="Find out which of the two is a copy, and move it away.",
        severity="warning",
        level="quick",
        check=check_reused_id,
        requires=("MAN005",),
        needs=("gym",),
    ),
)
RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *_OWN,
            *participant_archives.RULES,
            *participant_files.RULES,
            *participant_ledger.RULES,
            *participant_links.RULES,
            *participant_live.RULES,
            *participant_sessions.RULES,
            *participant_storage.RULES,
        ),
        key=lambda rule: rule.id,
    )
)
"""The family. PAR033 is the half of invariant 81 that needs no topology."""
