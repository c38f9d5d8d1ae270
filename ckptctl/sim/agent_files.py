"""An agent's folder in a snapshot: written at commit, read with every check of participant-protocol section 12."""

from __future__ import annotations

from dataclasses import dataclass

from ckptctl.domain.amounts import plural
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.ids import agent_folder
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.participant import AgentCommitReply
from ckptctl.domain.participant_files import AgentManifest, BoundaryRecord
from ckptctl.domain.rows import AgentIndexRow, ContinuationRow
from ckptctl.formats.canonical_json import decode_rows
from ckptctl.formats.participant_files import (
    MANIFEST_FILE,
    build_agent_artifacts,
    continuation_rows,
    decode_agent_manifest,
    decode_boundary,
)
from ckptctl.sim.artifacts import (
    ArtifactError,
    has_manifest,
    read_file,
    read_members,
    read_reference,
    require_records,
    require_unique,
    told_as_artifact_error,
    write_folder,
)


@dataclass(frozen=True, slots=True)
class AgentFolder:
    """What an agent's folder holds."""

    manifest: AgentManifest
    manifest_digest: str
    records: list[BoundaryRecord]


def commit_records(
    checkpoint_dir: str, checkpoint_id: str, name: str, records: list[BoundaryRecord]
) -> AgentCommitReply:
    """Write the selected boundaries.

    A folder that is there already, with the same id, name and intact artifacts, gives its old result; live records are
    not compared. Raises ArtifactError.
    """
    folder = agent_folder(name)
    if not has_manifest(f"{checkpoint_dir}/{folder}"):
        built = build_agent_artifacts(checkpoint_id, name, records)
        write_folder(checkpoint_dir, built)
        return built.reply
    there = read_agent_folder(checkpoint_dir, folder)
    if (there.manifest.checkpoint_id, there.manifest.instance_name) != (checkpoint_id, name):
        raise ArtifactError(f"`{folder}` was committed under {there.manifest.checkpoint_id}")
    return AgentCommitReply(
        records=there.manifest.records,
        manifest_digest=there.manifest_digest,
        continuation_index=there.manifest.continuation_index,
    )


def read_agent_folder(checkpoint_dir: str, folder: str) -> AgentFolder:
    """Read and prove one agent's folder. Raises ArtifactError."""
    path = f"{checkpoint_dir}/{folder}"
    data = read_file(f"{path}/{MANIFEST_FILE}")
    with told_as_artifact_error():
        manifest = decode_agent_manifest(data)
        rows = decode_rows(read_reference(checkpoint_dir, manifest.record_index), AgentIndexRow, DEFAULT_LIMITS)
        continuations = decode_rows(
            read_reference(checkpoint_dir, manifest.continuation_index), ContinuationRow, DEFAULT_LIMITS
        )
    require_records(manifest.record_index, rows)
    require_records(manifest.continuation_index, continuations)
    require_unique("attempts of the record index", ((row.rollout_id, row.attempt_index) for row in rows))
    require_unique("members of the record index", ((row.archive, row.member) for row in rows))
    if manifest.records != len(rows):
        raise ArtifactError(f"the manifest counts {plural(manifest.records, 'record')}, the index {len(rows)}")
    records = []
    for row, payload in zip(rows, read_members(path, manifest.archives, rows, ordered=True), strict=True):
        with told_as_artifact_error():
            record = decode_boundary(payload)
        if (record.rollout_id, record.attempt_index) != (row.rollout_id, row.attempt_index):
            raise ArtifactError(f"`{row.member}` is the record of another attempt")
        records.append(record)
    _check_continuations(records, continuations)
    return AgentFolder(manifest, sha256_hex(data), records)


def _check_continuations(records: list[BoundaryRecord], rows: tuple[ContinuationRow, ...]) -> None:
    wanted = {_key(row): row for row in continuation_rows(records)}
    found = {_key(row): row for row in rows}
    if len(found) != len(rows) or wanted.keys() != found.keys():
        raise ArtifactError("the continuation index does not list exactly the records with a model call")
    for key, row in found.items():
        if row.resource_state_revisions not in (None, wanted[key].resource_state_revisions):
            raise ArtifactError(f"the continuation of {row.rollout_id} has other revisions than its record")


def _key(row: ContinuationRow) -> tuple[str, int, str, str]:
    return row.rollout_id, row.attempt_index, row.capture_key, row.last_committed_model_call_id
