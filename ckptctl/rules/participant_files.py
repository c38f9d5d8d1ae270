"""Are the indexes and session files that participants list there and whole? Invariants 64 and 84.

Archives are `participant_archives`; what the rows mean for each other is left to the other participant modules. A session file
that lies beside the listed ones is MAN009's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ckptctl.domain.evidence import AgentEvidence, Evidence, ModelEvidence, Part, ResourcesEvidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.ids import path_problem, record_file_name
from ckptctl.domain.manifest import AgentPayload, ArtifactReference, ModelPayload
from ckptctl.domain.participant_files import SessionRecord
from ckptctl.rules._model import CannotRunError, Rule
from ckptctl.rules._views import (
    OUTER_MANIFEST,
    participant_manifest,
)

MAX_RECEIPTS = 1024


# --- 64 ---


def check_indexes(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 64."""
    unread: list[str] = []
    for agent in evidence.agents:
        manifest = participant_manifest(agent.manifest)
        if isinstance(agent.entry.payload, AgentPayload):
            yield from _reference_faults(agent, agent.entry.payload.continuation_index, manifest.continuation_index)
        yield from _index_faults(agent, manifest.record_index, agent.record_index, unread)
        yield from _index_faults(agent, manifest.continuation_index, agent.continuations, unread)
    for model in evidence.models:
        reply = model.entry.payload.storage_reference_index if isinstance(model.entry.payload, ModelPayload) else None
        if model.is_foreign:
            if reply is not None:
                yield from _index_faults(model, reply, model.storage_references, unread)
            continue
        own = participant_manifest(model.manifest)
        if reply is not None:
            yield from _reference_faults(model, reply, own.storage_reference_index)
        yield from _index_faults(model, own.lineage_index, model.lineage_index, unread)
        yield from _index_faults(model, own.storage_reference_index, model.storage_references, unread)
    if unread:
        raise CannotRunError("; ".join(unread[:5]), because=("MAN009",))


def _reference_faults(
    saved: AgentEvidence | ModelEvidence, reply: ArtifactReference, own: ArtifactReference
) -> Iterator[Violation]:
    name = saved.entry.participant.participant_name
    for field in ("relative_path", "sha256", "records", "bytes"):
        expected, actual = getattr(own, field), getattr(reply, field)
        if expected != actual:
            message = f"`{name}`: commit reply and participant manifest differ in {field} of `{own.relative_path}`"
            yield Violation(message, OUTER_MANIFEST, f"{name} {field}", str(expected), str(actual))


def _index_faults(
    saved: AgentEvidence | ModelEvidence, reference: ArtifactReference, part: Part[Any], unread: list[str]
) -> Iterator[Violation]:
    path = reference.relative_path
    problem = path_problem(path)
    if problem is None and path.rpartition("/")[0] != saved.folder:
        problem = "lies outside the participant's folder"
    if problem is not None:
        message = f"path of an index, `{path}`, {problem}"
        yield Violation(message, saved.manifest.path, "relative_path", f"{saved.folder}/...", path)
        return
    if part.state == "missing" or part.path != path:
        yield Violation(f"`{path}` is missing", path, expected="a file", actual="missing")
        return
    differences = [
        (what, expected, actual)
        for what, expected, actual in (
            ("digest", reference.sha256, part.sha256),
            ("size", reference.bytes, part.size_bytes),
        )
        if part.sha256 is not None and expected != actual
    ]
    for what, expected, actual in differences[:1]:
        yield Violation(f"`{path}`: {what} differs from its reference", path, "", str(expected), str(actual))
    if differences:
        return
    if part.state == "damaged":
        for defect in part.defects:
            where = f" {defect.location}" if defect.location else ""
            message = f"`{path}`{where}: {defect.message}"
            yield Violation(message, path, defect.location, defect.expected, defect.actual)
    elif part.value is None:
        unread.append(f"`{path}`: {part.reason}")
    elif len(part.value) != reference.records:
        message = f"`{path}`: record count differs: {reference.records} in its reference, {len(part.value)} in the file"
        yield Violation(message, path, "records", str(reference.records), str(len(part.value)))


# --- 84 ---


def check_sessions(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 84."""
    unread: list[str] = []
    for server in evidence.resources:
        for file_name, digest in participant_manifest(server.manifest).files.items():
            part = server.sessions.get(file_name)
            path = f"{server.folder}/{file_name}"
            if part is None or part.state == "missing":
                yield Violation(f"`{file_name}` is listed but missing", path, expected="a file", actual="missing")
            elif part.sha256 is not None and part.sha256 != digest:
                yield Violation(f"`{file_name}`: digest differs from the manifest", path, "", digest, part.sha256)
            elif part.state == "damaged":
                for defect in part.defects:
                    message = f"`{file_name}`: {defect.message}"
                    yield Violation(message, path, defect.location, defect.expected, defect.actual)
            elif part.value is None:
                unread.append(f"`{path}`: {part.reason}")
            else:
                yield from _session_faults(server, file_name, part.value)
    if unread:
        raise CannotRunError("; ".join(unread[:5]), because=("MAN009",))


def _session_faults(server: ResourcesEvidence, file_name: str, session: SessionRecord) -> Iterator[Violation]:
    path = f"{server.folder}/{file_name}"
    wanted = record_file_name(session.rollout_id, session.attempt_index)
    if file_name != wanted:
        message = f"`{file_name}`: holds the session of `{session.rollout_id}` attempt {session.attempt_index}"
        yield Violation(message, path, "", file_name, wanted)
    if len(session.mutation_receipts) > MAX_RECEIPTS:
        count = len(session.mutation_receipts)
        message = f"`{file_name}`: {count} receipts are more than a server keeps"
        yield Violation(message, path, "mutation_receipts", f"at most {MAX_RECEIPTS}", str(count))
    seen: set[str] = set()
    for at, receipt in enumerate(session.mutation_receipts):
        place = f"mutation_receipts.{at}"
        if receipt.request_id in seen:
            message = f"`{file_name}`: two receipts of request `{receipt.request_id}`"
            yield Violation(message, path, place, "one", "two")
        seen.add(receipt.request_id)
        if not (receipt.request_id.isascii() and receipt.request_id.isprintable()):
            message = f"`{file_name}`: a request id is not printable ASCII"
            yield Violation(message, path, place, "printable ASCII", receipt.request_id)


RULES: tuple[Rule, ...] = (
    Rule(
        id="PAR006",
        invariant=64,
        name="index-mismatch",
        summary="Each index is the file that commit reply and manifest describe, in its folder, and every row parses.",
        why="The indexes say where each continuation and each staged row is; a wrong one loses or mixes rollouts.",
        hint="Use an older snapshot; an index was changed or cut off after the commit.",
        severity="error",
        level="standard",
        check=check_indexes,
        requires=("MAN005", "PAR002"),
        needs=("gym",),
    ),
    Rule(
        id="PAR026",
        invariant=84,
        name="session-file-mismatch",
        summary="Each listed session file is there with its digest, is named after its content and has sound receipts.",
        why="A session under another attempt's name, or without its receipts, repeats or loses a mutation.",
        hint="Use an older snapshot; a session file was changed, exchanged or lost after the commit.",
        severity="error",
        level="standard",
        check=check_sessions,
        requires=("MAN005", "PAR002"),
        needs=("gym",),
    ),
)
