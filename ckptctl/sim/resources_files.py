"""A resources server's folder in a snapshot: written at commit, read and reconciled with the agents' at restore."""

from __future__ import annotations

import os

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.ids import resources_folder
from ckptctl.domain.participant import ResourcesCommitReply
from ckptctl.domain.participant_files import ResourcesManifest, SessionRecord
from ckptctl.formats.participant_files import (
    MANIFEST_FILE,
    build_resources_artifacts,
    decode_resources_manifest,
    decode_session,
)
from ckptctl.sim.agent_files import read_agent_folder
from ckptctl.sim.artifacts import ArtifactError, has_manifest, read_file, told_as_artifact_error, write_folder
from ckptctl.sim.identity import Pair
from ckptctl.sim.sessions import MAX_RECEIPTS


def commit_sessions(
    checkpoint_dir: str, checkpoint_id: str, server: str, sessions: list[SessionRecord]
) -> ResourcesCommitReply:
    """Write the prepared sessions. A folder that is there already must be this very commit. Raises ArtifactError."""
    folder = f"{checkpoint_dir}/{resources_folder(server)}"
    if has_manifest(folder):
        return _committed(folder, checkpoint_id, server)
    built = build_resources_artifacts(checkpoint_id, server, sessions)
    write_folder(checkpoint_dir, built)
    return built.reply


def _committed(folder: str, checkpoint_id: str, server: str) -> ResourcesCommitReply:
    data = read_file(f"{folder}/{MANIFEST_FILE}")
    manifest, _ = _read_listed(folder, data)
    if (manifest.checkpoint_id, manifest.server_name) != (checkpoint_id, server):
        raise ArtifactError(f"`{folder}` was committed under {manifest.checkpoint_id} by {manifest.server_name}")
    return ResourcesCommitReply(sessions=len(manifest.files), manifest_digest=sha256_hex(data))


def _read_listed(folder: str, manifest_data: bytes) -> tuple[ResourcesManifest, list[bytes]]:
    with told_as_artifact_error():
        manifest = decode_resources_manifest(manifest_data)
    contents = []
    for name, digest in sorted(manifest.files.items()):
        data = read_file(f"{folder}/{name}")
        if sha256_hex(data) != digest:
            raise ArtifactError(f"`{name}` differs from the manifest's digest")
        contents.append(data)
    return manifest, contents


def read_sessions(checkpoint_dir: str, server: str) -> tuple[str, list[SessionRecord]]:
    """The saved checkpoint id and the sessions of a snapshot, reconciled with its agents.

    Raises:
        ArtifactError: something is absent or differs from its digest.
        RefusalError: `resource_revision_mismatch`, agents and sessions do not fit each other.
    """
    folder = f"{checkpoint_dir}/{resources_folder(server)}"
    manifest, contents = _read_listed(folder, read_file(f"{folder}/{MANIFEST_FILE}"))
    with told_as_artifact_error():
        sessions = [decode_session(data) for data in contents]
    for session in sessions:
        ids = [receipt.request_id for receipt in session.mutation_receipts]
        if len(set(ids)) != len(ids) or len(ids) > MAX_RECEIPTS:
            raise ArtifactError(
                f"receipts of {session.rollout_id} attempt {session.attempt_index} are not unique or too many"
            )
    _reconcile(checkpoint_dir, server, sessions)
    return manifest.checkpoint_id, sessions


def _reconcile(checkpoint_dir: str, server: str, sessions: list[SessionRecord]) -> None:
    root = f"{checkpoint_dir}/agent"
    if not os.path.isdir(root):  # noqa: PTH112 - str paths throughout
        return
    needed: dict[Pair, int] = {}
    for name in sorted(os.listdir(root)):  # noqa: PTH208 - str paths throughout
        for record in read_agent_folder(checkpoint_dir, f"agent/{name}").records:
            if server in record.resource_state_revisions:
                needed[Pair(record.rollout_id, record.attempt_index)] = record.resource_state_revisions[server]
    held = {Pair(item.rollout_id, item.attempt_index): item.state_revision for item in sessions}
    if needed.keys() != held.keys():
        pair = min(needed.keys() ^ held.keys())
        what = "has no agent boundary" if pair in held else "was not exported"
        raise RefusalError(
            "resource_revision_mismatch", f"the session of {pair.rollout_id} attempt {pair.attempt_index} {what}"
        )
    for pair, revision in sorted(needed.items()):
        if held[pair] != revision:
            raise RefusalError(
                "resource_revision_mismatch",
                f"{pair.rollout_id} attempt {pair.attempt_index}: boundary at revision {revision}, session at {held[pair]}",
            )
