"""Loading a snapshot into a fresh controller: everything is read and proved first, then taken over in one mutation.

Order (design section 6, step 3): manifest digest, identity with the trainer, binding, ledger, replay, data plane,
dataloader; then rows that nothing needs are dropped and the ledger goes through a restart (snapshot-layout section
6.4). Admission is not its business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.binding import BINDING_SCHEMA_VERSION, Binding
from ckptctl.domain.canonical import compact_sorted, replay_digest
from ckptctl.domain.controller import RestoreBody, RestoreReply
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import DefectError
from ckptctl.domain.ids import MODEL, RESOURCES
from ckptctl.domain.ledger import Ledger
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.manifest import ModelPayload, SnapshotManifest
from ckptctl.domain.participant_files import SessionRecord
from ckptctl.domain.replay import ReplayMetadata
from ckptctl.domain.source import BytesSource
from ckptctl.errors import CkptctlError, StorageError
from ckptctl.formats.canonical_json import decode_document
from ckptctl.formats.dataloader_file import decode_dataloader
from ckptctl.formats.ledger_file import decode_ledger
from ckptctl.formats.participant_files import decode_session
from ckptctl.formats.replay_file import decode_replay
from ckptctl.formats.snapshot_manifest import read_manifest
from ckptctl.sim.plane_files import decode_plane
from ckptctl.sim.plane_image import PlaneImage
from ckptctl.sim.prompt_source import PromptSource
from ckptctl.sim.rollout_state import SAMPLER_NAME, RolloutState
from ckptctl.sim.snapshot_files import (
    DATA_PLANE,
    DATALOADER,
    LEDGER,
    MANIFEST,
    REPLAY,
    RESERVE,
    exists_inside,
    read_inside,
    referenced_staging_keys,
    refuse_difference,
    refuse_missing,
)


@dataclass(frozen=True, slots=True)
class RestoredSnapshot:
    """A snapshot as read and proved, before it replaces anything."""

    manifest: SnapshotManifest
    image: PlaneImage
    ledger: Ledger
    replay: ReplayMetadata
    dataloader: dict[str, Any]
    needed_by_continuations: frozenset[str]
    sessions: tuple[dict[str, Any], ...]
    """Resource sessions that the snapshot holds: server, rollout, attempt, revision."""


async def restore(state: RolloutState, request: RestoreBody) -> tuple[RestoreReply, dict[str, Any]]:
    """Replace the state by a snapshot's. Returns the reply and the record for `restores.jsonl`.

    Raises:
        RefusalError: `manifest_mismatch` (harmless), `restore_failed` with the part, `storage_error`.
    """
    manifest = _read_manifest(state, request)
    snapshot = _read_parts(state, request.checkpoint_dir, manifest)
    staging = state.settings.staging_partition
    async with state.plane.mutation():
        await _take_over(state, snapshot, request.checkpoint_dir)
        state.replay.load(snapshot.replay)
        state.ledger.load(snapshot.ledger, owned_by_replay=state.replay.group_ids())
        required = state.ledger.staging_keys() | state.replay.staging_keys() | snapshot.needed_by_continuations
        state.plane.clear(staging, sorted(state.plane.keys(staging) - required))
        state.prompts.load(snapshot.dataloader, manifest.current_epoch)
        state.sampler_dispatch_index = manifest.sampler_dispatch_index
        state.lost_groups = 0
    reply = RestoreReply(
        train_step=state.trainer.train_step,
        trainer_version=state.trainer.trainer_version,
        epoch=state.prompts.epoch,
        ledger_groups=len(state.ledger.groups()),
        replay_groups=len(state.replay.groups()),
        canonical_rows=len(state.plane.keys(state.settings.canonical_partition)),
        staging_rows=len(state.plane.keys(staging)),
        outbox=len(state.ledger.outbox()),
    )
    return reply, _record(state, request, snapshot)


async def _take_over(state: RolloutState, snapshot: RestoredSnapshot, root: str) -> None:
    try:
        await state.plane.take_over(snapshot.image, root)
    except CkptctlError as problem:
        raise RefusalError("restore_failed", f"data plane: {problem.message}") from problem


def _read_manifest(state: RolloutState, request: RestoreBody) -> SnapshotManifest:
    data = _part("manifest", lambda: read_inside(request.checkpoint_dir, MANIFEST))
    if sha256_hex(data) != request.manifest_sha256:
        raise RefusalError("manifest_mismatch", "`manifest.json` is not the one that was validated", harmless=True)
    manifest = read_manifest(MANIFEST, data, DEFAULT_LIMITS).manifest
    if manifest is None:
        raise RefusalError("restore_failed", "manifest: not a snapshot manifest of schema 3 or 4")
    trainer = state.trainer
    mine = (trainer.train_step, trainer.trainer_version, trainer.bootstrap_fingerprint)
    found = (manifest.base_train_step, manifest.trainer_version, manifest.bootstrap_fingerprint)
    if mine != found:
        raise RefusalError(
            "restore_failed", f"manifest: it belongs to (step, version, bootstrap) {found}, this process is at {mine}"
        )
    return manifest


def _read_parts(state: RolloutState, root: str, manifest: SnapshotManifest) -> RestoredSnapshot:
    settings = state.settings
    recovery = _part("ledger", lambda: read_inside(root, LEDGER))
    ledger = _part("ledger", lambda: decode_ledger(BytesSource(recovery), DEFAULT_LIMITS))
    replay = _part("replay", lambda: decode_replay(BytesSource(read_inside(root, REPLAY)), DEFAULT_LIMITS))
    image, metadata = _part(
        "data plane",
        lambda: decode_plane(lambda name: read_inside(root, f"{DATA_PLANE}/{name}"), units=state.plane.storage_units),
    )
    binding = _part("binding", lambda: decode_document(compact_sorted(metadata), Binding, DEFAULT_LIMITS))
    _demand_binding(state, manifest, binding, _facts(recovery, ledger, replay))
    if exists_inside(root, RESERVE):
        raise RefusalError("restore_failed", "replacement reserve: this controller cannot take one over")
    gym = manifest.gym_checkpoint
    payloads = [entry.payload for entry in gym.of(MODEL)] if gym else []
    references = [payload.storage_reference_index for payload in payloads if isinstance(payload, ModelPayload)]
    needed = _part("storage references", lambda: referenced_staging_keys(root, references))
    dataloader = _part(
        "dataloader", lambda: decode_dataloader(BytesSource(read_inside(root, DATALOADER)), DEFAULT_LIMITS)
    )
    trial = PromptSource(seed=settings.seed, rows=settings.prompts, batch_size=settings.groups_per_step)
    _part("dataloader", lambda: trial.load(dataloader, manifest.current_epoch))
    sealed = {key for group in ledger.groups for sibling in group.siblings for key in sibling.current.staging_keys}
    refuse_missing(sealed | needed, _keys(image, settings.staging_partition), "restore_failed")
    samples = frozenset(sample for group in replay.groups for sample in group.meta.sample_ids)
    refuse_difference(samples, _keys(image, settings.canonical_partition), "restore_failed")
    return RestoredSnapshot(manifest, image, ledger, replay, dict(dataloader), needed, _sessions(root, manifest))


def _facts(recovery: bytes, ledger: Ledger, replay: ReplayMetadata) -> dict[str, Any]:
    return {
        "replay_metadata_schema_version": replay.schema_version,
        "replay_manifest_digest": replay_digest(replay.groups),
        "replay_group_count": len(replay.groups),
        "rollout_recovery_schema_version": ledger.schema_version,
        "rollout_recovery_payload_sha256": sha256_hex(recovery),
        "rollout_recovery_group_count": len(ledger.groups),
    }


def _demand_binding(state: RolloutState, manifest: SnapshotManifest, binding: Binding, facts: dict[str, Any]) -> None:
    wanted = {
        "data_plane_checkpoint_schema_version": BINDING_SCHEMA_VERSION,
        "single_controller_train_steps": manifest.base_train_step,
        "single_controller_trainer_version": manifest.trainer_version,
        "single_controller_epoch": manifest.current_epoch,
        "partition_id": state.settings.canonical_partition,
        "sampler_name": SAMPLER_NAME,
        "mode": "authoritative",
        **facts,
    }
    for field, value in wanted.items():
        found = getattr(binding, field)
        if found != value:
            raise RefusalError("restore_failed", f"binding: {field} is {found!r}, expected {value!r}")


def _sessions(root: str, manifest: SnapshotManifest) -> tuple[dict[str, Any], ...]:
    """For the log only: the resources servers read and prove their own files."""
    found = []
    for entry in manifest.gym_checkpoint.of(RESOURCES) if manifest.gym_checkpoint else ():
        folder = str(PurePosixPath(entry.manifest.relative_path).parent)
        names = sorted(path.name for path in Path(root, folder).glob("*.json") if path.name != MANIFEST)
        for name in names:
            session = _part("resources", partial(_session, root, f"{folder}/{name}"))
            found.append(
                {
                    "server": entry.participant.participant_name,
                    "rollout_id": session.rollout_id,
                    "attempt_index": session.attempt_index,
                    "revision": session.state_revision,
                }
            )
    return tuple(found)


def _session(root: str, relative: str) -> SessionRecord:
    return decode_session(read_inside(root, relative))


def _record(state: RolloutState, request: RestoreBody, snapshot: RestoredSnapshot) -> dict[str, Any]:
    gym = snapshot.manifest.gym_checkpoint
    return {
        "incarnation": state.settings.incarnation,
        "snapshot": request.checkpoint_dir,
        "checkpoint_id": gym.checkpoint_id if gym else None,
        "train_step": state.trainer.train_step,
        "finished_groups": sorted(state.trained_groups() | state.replay.group_ids()),
        "siblings": [
            {
                "group_id": group.group_id,
                "rollout_id": group.rollout_of(sibling),
                "attempt_index": sibling.current.attempt_index,
                "status": sibling.current.status,
            }
            for group in state.ledger.groups()
            for sibling in group.siblings
        ],
        "sessions": list(snapshot.sessions),
    }


def _keys(image: PlaneImage, partition_id: str) -> frozenset[str]:
    partition = image.partitions.get(partition_id)
    return frozenset() if partition is None else frozenset(partition.keys)


def _part(name: str, read: Callable[[], Any]) -> Any:
    """Read one part; what is wrong with it becomes a refusal that names it."""
    try:
        return read()
    except DefectError as problem:
        place = problem.defects[0].location if problem.defects else ""
        raise RefusalError("restore_failed", f"{name}: {problem}" + (f" ({place})" if place else "")) from problem
    except StorageError as problem:
        raise RefusalError("storage_error", f"{name}: {problem.message}") from problem
