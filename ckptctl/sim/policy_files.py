"""A policy model's ledger folder in a snapshot: written at commit, read with every check at restore.

The checks are those of participant-protocol sections 11.4 and 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.canonical import roots_digest
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import DefectError
from ckptctl.domain.ids import lineage_file_name, model_folder
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.participant import Execution, ModelCommitReply
from ckptctl.domain.participant_files import ModelManifest
from ckptctl.domain.rows import ContinuationRow, LineageIndexRow, StorageReferenceRow
from ckptctl.formats.canonical_json import decode_rows
from ckptctl.formats.lineage import build_model_artifacts, decode_lineage
from ckptctl.formats.participant_files import MANIFEST_FILE, decode_model_manifest
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
from ckptctl.sim.identity import Pair

MISMATCH = "ledger_mismatch"


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What a commit writes of the live model."""

    custody: Mapping[str, bytes]
    aborted: frozenset[Pair]
    """Attempts aborted during this checkpoint."""
    fenced: frozenset[Pair]
    """All tombstones."""
    served: frozenset[Pair]


@dataclass(frozen=True, slots=True)
class LedgerFolder:
    """What a ledger folder holds."""

    manifest: ModelManifest
    custody: dict[str, bytes]


def commit_ledger(
    checkpoint_dir: str, checkpoint_id: str, name: str, indexes: Iterable[ArtifactReference], state: LedgerState
) -> ModelCommitReply:
    """Write the lineage that the continuations need. Raises RefusalError (`ledger_mismatch`)."""
    try:
        roots = _read_roots(checkpoint_dir, indexes, state.fenced)
        needed = {root.capture_key for root in roots}
        built = build_model_artifacts(
            checkpoint_id,
            name,
            roots,
            state.custody,
            _executions(state.aborted),
            _executions(state.served),
            len({pair.capture_key for pair in state.served} - needed),
        )
        folder = f"{checkpoint_dir}/{model_folder(name)}"
        if has_manifest(folder):
            return _committed(folder, checkpoint_id, name, state, roots)
        write_folder(checkpoint_dir, built)
    except (ArtifactError, DefectError) as error:
        raise RefusalError(MISMATCH, str(error)) from error
    return built.reply


def _read_roots(
    checkpoint_dir: str, indexes: Iterable[ArtifactReference], fenced: frozenset[Pair]
) -> list[ContinuationRow]:
    roots: list[ContinuationRow] = []
    for reference in indexes:
        with told_as_artifact_error():
            rows = decode_rows(read_reference(checkpoint_dir, reference), ContinuationRow, DEFAULT_LIMITS)
        require_records(reference, rows)
        roots.extend(rows)
    require_unique("capture keys of the continuations", (root.capture_key for root in roots))
    for root in roots:
        if Pair(root.rollout_id, root.attempt_index) in fenced:
            raise ArtifactError(f"{root.rollout_id} attempt {root.attempt_index} is over but has a continuation")
    return roots


def _committed(
    folder: str, checkpoint_id: str, name: str, state: LedgerState, roots: list[ContinuationRow]
) -> ModelCommitReply:
    """The result of an earlier commit into this folder, which must have been the same one."""
    data = read_file(f"{folder}/{MANIFEST_FILE}")
    with told_as_artifact_error():
        manifest = decode_model_manifest(data)
    same = (
        (manifest.checkpoint_id, manifest.server_name) == (checkpoint_id, name)
        and manifest.tombstones == _executions(state.aborted)
        and manifest.source_attempts == _executions(state.served)
        and manifest.continuation_roots_sha256 == roots_digest(roots)
    )
    if not same:
        raise ArtifactError(f"`{folder}` holds another commit")
    return ModelCommitReply(
        rollouts=manifest.rollout_count,
        rows=manifest.row_count,
        excluded_tombstoned=len(manifest.tombstones),
        excluded_inactive=manifest.excluded_inactive,
        manifest_digest=sha256_hex(data),
        storage_reference_index=manifest.storage_reference_index,
    )


def _executions(pairs: Iterable[Pair]) -> list[Execution]:
    return [Execution(rollout_id=pair.rollout_id, attempt_index=pair.attempt_index) for pair in sorted(pairs)]


def read_ledger(checkpoint_dir: str, name: str) -> LedgerFolder:
    """Read and prove a ledger folder. Raises ArtifactError."""
    folder = f"{checkpoint_dir}/{model_folder(name)}"
    with told_as_artifact_error():
        manifest = decode_model_manifest(read_file(f"{folder}/{MANIFEST_FILE}"))
        if manifest.server_name != name:
            raise ArtifactError(f"`{folder}` was written by {manifest.server_name}")
        storage = decode_rows(
            read_reference(checkpoint_dir, manifest.storage_reference_index), StorageReferenceRow, DEFAULT_LIMITS
        )
        rows = decode_rows(read_reference(checkpoint_dir, manifest.lineage_index), LineageIndexRow, DEFAULT_LIMITS)
    require_records(manifest.storage_reference_index, storage)
    require_records(manifest.lineage_index, rows)
    require_unique("keys of the storage references", (row.key for row in storage))
    require_unique("capture keys of the lineage index", (row.capture_key for row in rows))
    custody: dict[str, bytes] = {}
    for row, payload in zip(rows, read_members(folder, manifest.archives, rows, ordered=False), strict=True):
        with told_as_artifact_error():
            lineage = decode_lineage(payload)
        if row.member != lineage_file_name(row.capture_key) or len(lineage) != row.rows:
            raise ArtifactError(f"`{row.member}` is not the lineage that the index says")
        custody[row.capture_key] = payload
    if (manifest.rollout_count, manifest.row_count) != (len(rows), sum(row.rows for row in rows)):
        raise ArtifactError("the manifest's counts are not those of the lineage index")
    return LedgerFolder(manifest, custody)
