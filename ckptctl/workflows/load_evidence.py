"""Puts the evidence of one target together: listing, manifest, sidecars, data plane, Gym artifacts, anchor.

What a level does not ask for is `not_read`. Every file is read once; what was looked at is counted beside the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ckptctl.domain.dataplane import StorageUnit
from ckptctl.domain.evidence import (
    AnchorEvidence,
    Cut,
    Evidence,
    LiveFacts,
    ManifestReading,
    Part,
    RunFacts,
    TargetKind,
    TreeEntry,
)
from ckptctl.domain.finding import Coverage, DefectError, Level
from ckptctl.domain.ids import CHECKSUMS_FILE
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.domain.memory_room import MemoryRoom
from ckptctl.domain.participant import DiscoveredParticipant
from ckptctl.domain.schemas import READ_SCHEMAS, is_schema_number
from ckptctl.domain.share import Share
from ckptctl.domain.source import ByteSource
from ckptctl.errors import StorageError
from ckptctl.formats.config_file import decode_yaml
from ckptctl.formats.dataloader_file import decode_dataloader, inspect_reserve
from ckptctl.formats.ledger_file import decode_ledger
from ckptctl.formats.pickle_machine import read_pickle
from ckptctl.formats.replay_file import decode_replay
from ckptctl.formats.torch_zip import read_torch_zip
from ckptctl.ports import SnapshotReader
from ckptctl.workflows.checksum_pass import with_checksums
from ckptctl.workflows.load_anchor import CONFIG_FILE, MANIFEST_FILE, TRAINING_INFO_FILE, AnchorLoader
from ckptctl.workflows.load_data_plane import DataPlaneParts, load_data_plane, missing
from ckptctl.workflows.load_full import with_tensor_bytes
from ckptctl.workflows.load_gym import load_agents, load_models, load_resources
from ckptctl.workflows.load_publications import Identity
from ckptctl.workflows.read_parts import OTHER_SCHEMA, PartReader, is_of_the_system
from ckptctl.workflows.targets import Target

DATALOADER_FILE, RESERVE_FILE = "train_dataloader.pt", "replacement_reserve.pt"
REPLAY_FILE, LEDGER_FILE = "replay_buffer_metadata.pt", "rollout_recovery.pt"
ZIP_BYTES = 4 << 30
_NAME_BYTES = 1000
"""What the account of one file may take, besides its name."""
GYM_FOLDERS = frozenset({"agent", "model-ledger", "resources"})
RESERVE_REASON = (
    "only the archive's own checksums were compared: the content is never decoded, and nothing binds it to the cut"
)
WEIGHTS_REASON = (
    "trainer state is the trainer's business: only names directly in the anchor and its data plane are listed"
)
_LEDGER_GLOBALS = frozenset({("_codecs", "encode"), ("nemo_rl.data_plane.interfaces", "KVBatchMeta")})


@dataclass(frozen=True, slots=True)
class Known:
    """What is known besides the files: topology, run, live replies, the name that a staged snapshot will have.

    And, where the byte work is divided, which part of it is to be done.
    """

    capabilities: tuple[DiscoveredParticipant, ...] | None = None
    run: RunFacts = field(default_factory=RunFacts)
    live: LiveFacts = field(default_factory=LiveFacts)
    under_final_name: bool = False
    share: Share | None = None
    writes_checksums: bool = False
    """Every file is digested, for the checksum file that is about to be written."""
    jobs: int = 1
    """How many threads hash staged rows."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One target's evidence and how much of it was looked at."""

    evidence: Evidence
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class _Sidecars:
    config: Part[Mapping[str, Any]]
    dataloader: Part[Mapping[str, Any]]
    reserve: Part[int]
    replay: Part[Any]
    ledger: Part[Any]


def load_target(
    reader: SnapshotReader,
    target: Target,
    level: Level,
    known: Known,
    anchors: AnchorLoader,
    limits: Limits = DEFAULT_LIMITS,
) -> Loaded:
    """Load one target. Never raises for what is in it."""
    if target.kind == "anchor":
        return _load_anchor(target, level, known, anchors)
    entries, problem, is_storage = _listing(reader, target.path, anchors.room)
    parts = PartReader(
        reader, target.path, limits, entries, problem, room=anchors.room, share=known.share, jobs=known.jobs
    )
    parts.storage_problems += [problem] if is_storage else []
    if target.kind == "data_plane":
        return _load_data_plane_alone(target, parts, level, known)
    parts.with_blake3 = known.writes_checksums or parts.is_file(CHECKSUMS_FILE)
    root_kind = reader.kind_of(target.path)
    reading = anchors.manifest_of(target.path, parts)
    reads_all = level != "quick" and _is_readable(reading)
    if level != "quick" and not reads_all:
        parts.why_passed_over = OTHER_SCHEMA
    sidecars = load_sidecars(parts, is_quick=not reads_all)
    plane = load_data_plane(parts, "data_plane/", is_quick=not reads_all)
    evidence = _assemble("snapshot", target, parts, reading, sidecars, plane, level)
    evidence = replace(
        evidence,
        name=_final_name(target, known),
        anchor=_seen_from_below(anchors.load(target.anchor)) if target.anchor is not None else None,
        cut=_cut_of(reading),
        root_kind="symlink" if root_kind == "symlink" else "directory",
        **_facts(known),
    )
    evidence = _with_gym(evidence, parts, is_quick=not reads_all)
    if level == "full" and reads_all:
        evidence = with_tensor_bytes(evidence, parts, "data_plane/")
    # Of another schema than ours, too: a manifest in which just that number changed is damaged, not incompatible.
    is_asked = level != "quick" and (reads_all or parts.is_file(CHECKSUMS_FILE))
    evidence = with_checksums(evidence, parts, is_asked=is_asked, writes=known.writes_checksums)
    if level != "quick":
        evidence = _with_publication(evidence, target, known, anchors)
    above = [] if target.anchor is None else anchors.parts_of(target.anchor).storage_problems
    return Loaded(replace(evidence, storage_problems=(*parts.storage_problems, *above)), parts.coverage())


def _seen_from_below(anchor: AnchorEvidence) -> AnchorEvidence:
    """The anchor with its files' paths relative to one of its snapshots."""
    return replace(
        anchor,
        training_info=replace(anchor.training_info, path=f"../../{anchor.training_info.path}"),
        bootstrap=replace(anchor.bootstrap, path=f"../../{anchor.bootstrap.path}"),
        config=replace(anchor.config, path=f"../../{anchor.config.path}"),
    )


def _facts(known: Known) -> dict[str, Any]:
    return {"capabilities": known.capabilities, "run": known.run, "live": known.live}


def _listing(reader: SnapshotReader, path: str, room: MemoryRoom) -> tuple[dict[str, TreeEntry], str, bool]:
    """The tree by path, why there is none, and whether the file system is why. Behind a link there is nothing to list."""
    if reader.kind_of(path) != "directory":
        return {}, "", False
    try:
        entries = {entry.path: entry for entry in reader.list_tree(path)}
        room.demand(len(entries) * _NAME_BYTES)
    except DefectError as error:
        return {}, f"`{path}` {error.defects[0].message}: it holds too many names", False
    except StorageError as error:
        return {}, str(error), is_of_the_system(error)
    except FileNotFoundError:
        return {}, f"`{path}` was deleted while it was being read", False
    return entries, "", False


def _final_name(target: Target, known: Known) -> str:
    name = target.path.rpartition("/")[2]
    return name.removeprefix("tmp_") if known.under_final_name else name


def _with_publication(evidence: Evidence, target: Target, known: Known, anchors: AnchorLoader) -> Evidence:
    """With what a journal says of it; of a snapshot that is still to be published nothing can be said."""
    if target.anchor is None or known.under_final_name:
        return evidence
    manifest, digest = evidence.manifest.manifest, evidence.digests.get(CHECKSUMS_FILE)
    gym = manifest.gym_checkpoint if manifest is not None else None
    found = Identity(
        is_known=manifest is not None and not (gym is None and evidence.has_gym),
        checkpoint_id=gym.checkpoint_id if gym is not None else None,
        checksums_blake3=digest.blake3 if digest is not None else None,
    )
    return replace(evidence, publication=anchors.publication_of(target.path, found))


def _cut_of(reading: ManifestReading) -> Cut | None:
    manifest = reading.manifest
    if manifest is None:
        return None
    return Cut(
        manifest.base_train_step,
        manifest.trainer_version,
        manifest.current_epoch,
        manifest.sampler_dispatch_index,
        MANIFEST_FILE,
    )


def _assemble(
    kind: TargetKind,
    target: Target,
    parts: PartReader,
    reading: ManifestReading,
    sidecars: _Sidecars,
    plane: DataPlaneParts,
    level: Level,
) -> Evidence:
    units: Mapping[str, Part[StorageUnit]] = plane.units
    return Evidence(
        path=target.path,
        kind=kind,
        name=target.path.rpartition("/")[2],
        level=level,
        tree=tuple(parts.entries.values()),
        manifest=reading,
        anchor=None,
        cut=None,
        config=sidecars.config,
        dataloader=sidecars.dataloader,
        reserve=sidecars.reserve,
        replay=sidecars.replay,
        ledger=sidecars.ledger,
        metadata=plane.metadata,
        unit_info=plane.unit_info,
        controller_state=plane.controller_state,
        units=units,
        tree_problem=parts.problem,
    )


def load_sidecars(parts: PartReader, *, is_quick: bool, config: Part[Mapping[str, Any]] | None = None) -> _Sidecars:
    """The five files beside the data plane; `config` when it has been read already."""
    if is_quick:
        unread = (parts.pass_over(path) for path in (DATALOADER_FILE, RESERVE_FILE, REPLAY_FILE, LEDGER_FILE))
        return _Sidecars(config or parts.pass_over(CONFIG_FILE), *unread)
    limits = parts.limits
    reserve = parts.read_container(RESERVE_FILE, lambda source: inspect_reserve(source, limits), ZIP_BYTES)
    if reserve.state == "decoded":
        parts.reasons[RESERVE_FILE] = RESERVE_REASON
    return _Sidecars(
        config=config or parts.read_document(CONFIG_FILE, lambda data: decode_yaml(data, limits), limits.yaml_bytes),
        dataloader=parts.read_container(DATALOADER_FILE, lambda source: decode_dataloader(source, limits), ZIP_BYTES),
        reserve=reserve,
        replay=parts.read_container(
            REPLAY_FILE,
            lambda source: decode_replay(source, limits),
            ZIP_BYTES,
            lambda source: _probe_replay(source, limits),
        ),
        ledger=parts.read_container(
            LEDGER_FILE,
            lambda source: decode_ledger(source, limits),
            ZIP_BYTES,
            lambda source: _probe_ledger(source, limits),
        ),
    )


def _probe_ledger(source: ByteSource, limits: Limits) -> None:
    read_pickle(read_torch_zip(source, limits).pickle_source, allowed=_LEDGER_GLOBALS, limits=limits)


def _probe_replay(source: ByteSource, limits: Limits) -> None:
    pickle = read_torch_zip(source, limits).pickle_source
    read_pickle(pickle, allowed=frozenset(), limits=limits, allow_persistent=True, opaque_globals=True)


def _with_gym(evidence: Evidence, parts: PartReader, *, is_quick: bool) -> Evidence:
    manifest = evidence.manifest.manifest
    gym = manifest.gym_checkpoint if manifest is not None else None
    if is_quick or gym is None:
        why = parts.why_passed_over if is_quick else "the list of participants cannot be used"
        for path in parts.entries:
            if path.split("/", 1)[0] in GYM_FOLDERS and parts.is_file(path):
                parts.reasons[path] = why
        return evidence
    return replace(
        evidence,
        agents=load_agents(parts, gym),
        models=load_models(parts, gym),
        resources=load_resources(parts, gym),
    )


def _is_readable(reading: ManifestReading) -> bool:
    """Whether the rest of the snapshot is worth reading: its schema is one of ours, or cannot be told."""
    return not is_schema_number(reading.schema_found) or reading.schema_found in READ_SCHEMAS


def _no_manifest() -> ManifestReading:
    return ManifestReading(part=missing(MANIFEST_FILE))


def _load_data_plane_alone(target: Target, parts: PartReader, level: Level, known: Known) -> Loaded:
    sidecars = _Sidecars(
        *(missing(path) for path in (CONFIG_FILE, DATALOADER_FILE, RESERVE_FILE, REPLAY_FILE, LEDGER_FILE))
    )
    plane = load_data_plane(parts, "", is_quick=level == "quick")
    evidence = replace(_assemble("data_plane", target, parts, _no_manifest(), sidecars, plane, level), **_facts(known))
    if level == "full":
        evidence = with_tensor_bytes(evidence, parts, "")
    return Loaded(replace(evidence, storage_problems=tuple(parts.storage_problems)), parts.coverage())


def _load_anchor(target: Target, level: Level, known: Known, anchors: AnchorLoader) -> Loaded:
    """An anchor's own files. Its data plane and sidecars, where it has any, are bound to its training info."""
    anchor = anchors.load(target.path)
    parts = anchors.parts_of(target.path)
    parts.share, parts.jobs = known.share, known.jobs
    sidecars = load_sidecars(parts, is_quick=level == "quick", config=anchor.config)
    plane = load_data_plane(parts, "data_plane/", is_quick=level == "quick")
    evidence = _assemble("anchor", target, parts, _no_manifest(), sidecars, plane, level)
    info = anchor.training_info.value
    cut = None
    if info is not None:
        version = info.current_step if info.trainer_version is None else info.trainer_version
        cut = Cut(info.current_step, version, info.current_epoch, info.sampler_dispatch_index, TRAINING_INFO_FILE)
    evidence = replace(evidence, anchor=anchor, cut=cut, root_kind=anchor.root_kind, **_facts(known))
    if level == "full":
        evidence = with_tensor_bytes(evidence, parts, "data_plane/")
    return Loaded(replace(evidence, storage_problems=tuple(parts.storage_problems)), parts.coverage(WEIGHTS_REASON))
