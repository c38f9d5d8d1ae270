"""What is written, checked and given up around publication: the manifest, the controller's save reply, the number,
retention.

Pure: replies and names in, values and plain-word problems out. Source: snapshot-layout sections 2.1, 3, 13 and 15,
controller-interface "save".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ckptctl.domain import ids
from ckptctl.domain.controller import ControllerStatus, SaveReply
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
from ckptctl.domain.participant import AgentCommitReply, ModelCommitReply, ResourcesCommitReply
from ckptctl.errors import RefusedError

CommitReply = AgentCommitReply | ModelCommitReply | ResourcesCommitReply
MANIFEST_FILE = "manifest.json"
MANIFEST_SCHEMA = 4
SAVED_FILES = (
    "config.yaml",
    "data_plane/metadata.json",
    "replay_buffer_metadata.pt",
    "rollout_recovery.pt",
    "train_dataloader.pt",
)
"""What a save must have written."""
_ORDER = (ids.AGENT, ids.MODEL, ids.RESOURCES)


def new_checkpoint_id(train_step: int, number: int, nonce: str) -> str:
    """A checkpoint id as NeMo-RL builds it; the nonce is needed because servers retire an id for ever."""
    return f"rollout-step-{train_step}-snapshot-{number}-{nonce}"


def next_number(names: Iterable[str]) -> int:
    """The number of the next snapshot of an anchor: the highest published one + 1; unpublished names do not count.

    Raises:
        RefusedError: there is no higher one.
    """
    highest, name = max(
        ((number, name) for name in names if (number := ids.snapshot_number(name)) is not None), default=(0, "")
    )
    if highest >= ids.MAX_SNAPSHOT_NUMBER:
        raise RefusedError(
            f"`{name}` has the highest number that a snapshot can have: no other can follow it; nothing was changed",
            hint=f"move `{name}` out of `{ids.SNAPSHOTS_FOLDER}/` of its anchor, or give it a lower number; "
            "then run the same command again",
        )
    return 1 + highest


def compose_manifest(
    saved: SaveReply,
    checkpoint_id: str,
    topology_fingerprint: str,
    committed: Mapping[ParticipantIdentity, CommitReply],
) -> SnapshotManifest:
    """The outer manifest: the controller's counters, and what every participant committed."""
    ordered = sorted(committed, key=lambda item: (_ORDER.index(item.component), item.server_name))
    entries = tuple(_entry(participant, committed[participant]) for participant in ordered)
    return SnapshotManifest(
        schema_version=MANIFEST_SCHEMA,
        **saved.counters.model_dump(),
        bootstrap_fingerprint=saved.bootstrap_fingerprint,
        gym_topology_fingerprint=topology_fingerprint,
        gym_checkpoint=GymCheckpoint(checkpoint_id=checkpoint_id, participants=entries),
    )


def _entry(participant: ParticipantIdentity, reply: CommitReply) -> ParticipantEntry:
    return ParticipantEntry(
        participant=participant,
        payload=_payload(reply),
        manifest=ParticipantManifestReference(
            participant=participant,
            relative_path=manifest_path(participant),
            manifest_digest=reply.manifest_digest,
        ),
    )


def _payload(reply: CommitReply) -> Payload:
    if isinstance(reply, AgentCommitReply):
        return AgentPayload(**dict(reply))
    if isinstance(reply, ModelCommitReply):
        # 0 cuts is what schema 4 means by saying nothing of them; any other number was refused before.
        return ModelPayload(**{**dict(reply), "generation_cut_records": None})
    return ResourcesPayload(**dict(reply))


def manifest_path(participant: ParticipantIdentity) -> str:
    """Where a participant's own manifest must lie, relative to the snapshot."""
    return f"{ids.participant_folder(participant.component, participant.participant_name)}/{MANIFEST_FILE}"


def commit_problems(
    expected: Iterable[ParticipantIdentity], committed: Mapping[ParticipantIdentity, CommitReply]
) -> Iterator[str]:
    """What makes commit replies unusable: invariants 59 and 64, and what schema 4 cannot hold. Digests are compared elsewhere."""
    missing = sorted(item.server_name for item in set(expected) - set(committed))
    if missing:
        yield f"participants: missing {', '.join(missing)}"
    for participant, reply in committed.items():
        folder = f"{ids.participant_folder(participant.component, participant.participant_name)}/"
        name = participant.server_name
        if isinstance(reply, ModelCommitReply) and reply.generation_cut_records:
            yield f"`{name}` saved {reply.generation_cut_records} generation cuts, which a schema 4 snapshot cannot hold"
        reference = (
            reply.continuation_index
            if isinstance(reply, AgentCommitReply)
            else reply.storage_reference_index
            if isinstance(reply, ModelCommitReply)
            else None
        )
        if reference is not None and not reference.relative_path.startswith(folder):
            yield f"`{name}` reports an index outside its folder: `{reference.relative_path}`"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of the staged directory as it lies on disk."""

    size_bytes: int
    sha256: str


def saved_problems(saved: SaveReply, found: Mapping[str, FoundFile]) -> Iterator[str]:
    """Where the controller's save reply and the disk disagree. `found` holds the listed files that are there."""
    listed = [item.relative_path for item in saved.files]
    for path in sorted({path for path in listed if listed.count(path) > 1}):
        yield f"the controller lists `{path}` twice"
    for path in SAVED_FILES:
        if path not in listed:
            yield f"the controller did not save `{path}`"
    for item in saved.files:
        on_disk = found.get(item.relative_path)
        if on_disk is None:
            yield f"the controller says that it saved `{item.relative_path}`, which does not exist here: is the directory shared?"
        elif on_disk.size_bytes != item.bytes:
            yield f"`{item.relative_path}` has {on_disk.size_bytes} bytes here, {item.bytes} at the controller"
        elif on_disk.sha256 != item.sha256:
            yield f"`{item.relative_path}` has another digest here than at the controller"


def moved_trainer(before: ControllerStatus, saved: SaveReply) -> str | None:
    """How the trainer moved between the beginning and the cut, or None."""
    for name, was, now in (
        ("train step", before.train_step, saved.counters.base_train_step),
        ("trainer version", before.trainer_version, saved.counters.trainer_version),
    ):
        if was != now:
            return f"{name} was {was} at the beginning and is {now} at the cut"
    return None
