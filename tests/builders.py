"""A valid world by default, change one thing: as evidence for rules, and as the files of a snapshot for everything above them.

`an_evidence()` needs no files on disk and no loader: parts hold the world's values, digests and sizes are those of the bytes that a
correct writer would write (`tests.artifacts`). What the world is: `tests.world`. How one thing is changed: `tests.edits`.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ckptctl.domain.binding import DataPlaneMetadata
from ckptctl.domain.checksums import ChecksumsFile, FileChecksum, FileDigest, Publication, PublicationFacts
from ckptctl.domain.digest import blake3_hex, sha256_hex
from ckptctl.domain.evidence import (
    AgentEvidence,
    AnchorEvidence,
    ArchiveMember,
    Cut,
    Evidence,
    ManifestReading,
    ModelEvidence,
    PackFacts,
    Part,
    ResourcesEvidence,
    SiblingSnapshot,
    TreeEntry,
)
from ckptctl.domain.ids import AGENT, CHECKSUMS_FILE, MODEL, record_file_name, snapshot_number, step_number
from ckptctl.domain.staged_columns import big_endian
from ckptctl.domain.staged_facts import Ancestry, StagedFacts, examine
from ckptctl.formats.participant_files import encode_boundary
from ckptctl.rules._views import unit_path
from ckptctl.rules.staged_plan import find_plan
from ckptctl.workflows.load_pack import pack_evidence
from tests.artifacts import (
    Saved,
    a_binding,
    a_bootstrap,
    a_data_plane,
    a_gym,
    a_manifest,
    a_training_info,
    anchor_files,
    control_files,
    data_plane_names,
    snapshot_files,
)
from tests.edits import APPEND, DROP, edited
from tests.world import World, a_bootstrap_world, a_ledger, a_replay, a_world

__all__ = [
    "APPEND",
    "DROP",
    "World",
    "a_binding",
    "a_bootstrap_world",
    "a_data_plane",
    "a_gym",
    "a_ledger",
    "a_manifest",
    "a_published_evidence",
    "a_replay",
    "a_run_files",
    "a_snapshot_files",
    "a_world",
    "an_anchor_evidence",
    "an_evidence",
    "data_plane_evidence",
    "edited",
    "evidence_of",
    "with_staged_facts",
    "write_tree",
]


# --- files ---


def a_snapshot_files(world: World | None = None, **changes: Any) -> dict[str, bytes]:
    """Every file of a valid snapshot, relative to it; `changes` are fields of the world."""
    return dict(snapshot_files(replace(world or a_world(), **changes)))


def a_run_files(*worlds: World) -> dict[str, bytes]:
    """A checkpoint directory: every world's anchor and snapshot."""
    files: dict[str, bytes] = {}
    for world in worlds or (a_world(),):
        files.update({f"{world.anchor}/{name}": data for name, data in anchor_files(world).items()})
        folder = f"{world.anchor}/rollout_snapshots/{world.name}"
        files.update({f"{folder}/{name}": data for name, data in snapshot_files(world).items()})
    return files


def write_tree(root: Path, files: Mapping[str, bytes]) -> Path:
    """Write files under `root` and return it."""
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


# --- evidence ---


def an_evidence(changes: Mapping[str, Any] | None = None, *, world: World | None = None, **facts: Any) -> Evidence:
    """A valid snapshot as evidence; `changes` are edits (`tests.edits`), `facts` whole fields of the evidence."""
    world = world or a_world()
    return edited(_at_level(replace(evidence_of(world), **facts), world), changes or {})


def evidence_of(world: World) -> Evidence:
    """What a loader would know of the world's snapshot."""
    files = control_files(world)
    manifest = a_manifest(world)
    part = lambda name, value: _part(name, value, files[name])  # noqa: E731 - a short name for what is said twenty times
    saved = a_gym(world)
    return Evidence(
        path=f"/runs/{world.anchor}/rollout_snapshots/{world.name}",
        kind="snapshot",
        name=world.name,
        level="standard",
        tree=_tree({**files, **_stand_ins(world, "data_plane/")}),
        manifest=_reading(manifest, files["manifest.json"]),
        anchor=_anchor(world),
        cut=Cut(world.step, world.step, world.epoch, world.sampler_dispatch_index, "manifest.json"),
        config=part("config.yaml", dict(world.config)),
        dataloader=part("train_dataloader.pt", {}),
        reserve=Part("replacement_reserve.pt", "missing"),
        replay=part("replay_buffer_metadata.pt", world.replay),
        ledger=part("rollout_recovery.pt", world.ledger),
        **_data_plane_parts(world, "data_plane/"),
        agents=tuple(_agent(world, one) for one in saved if one.entry.participant.component == AGENT),
        models=tuple(_model(world, one) for one in saved if one.entry.participant.component == MODEL),
        resources=tuple(
            _resources(world, one) for one in saved if one.entry.participant.component not in {AGENT, MODEL}
        ),
    )


def a_published_evidence(
    changes: Mapping[str, Any] | None = None, *, world: World | None = None, **facts: Any
) -> Evidence:
    """A valid snapshot as ckptctl publishes it: with a checksum file, every file digested, and a journal that knows it."""
    world = world or a_world()
    bare = _at_level(
        replace(evidence_of(world), **{name: facts.pop(name) for name in ("level",) if name in facts}), world
    )
    files = [entry for entry in bare.tree if entry.kind == "file"]
    digests = {entry.path: FileDigest(entry.path, entry.size_bytes, blake3_hex(entry.path.encode())) for entry in files}
    checksums = ChecksumsFile(
        schema_version=1,
        tool_version="0.1.0",
        checkpoint_id=world.checkpoint_id if world.with_gym else None,
        created_at="2026-11-30T06:57:12Z",
        files={path: FileChecksum(blake3=found.blake3, bytes=found.size_bytes) for path, found in digests.items()},
        blake3=blake3_hex(b"checksums"),
    )
    own = FileDigest(CHECKSUMS_FILE, 400, blake3_hex(b"checksum file"))
    name = f"{world.anchor}/rollout_snapshots/{world.name}"
    publication = Publication("000007-snapshot", checksums.checkpoint_id, str(own.blake3), name)
    published = replace(
        bare,
        tree=tuple(sorted((*bare.tree, TreeEntry(CHECKSUMS_FILE, "file", 400)), key=lambda entry: entry.path)),
        checksums=Part(CHECKSUMS_FILE, "decoded", checksums, (), 400, sha256_hex(b"checksum file")),
        digests={**digests, CHECKSUMS_FILE: own},
        publication=PublicationFacts(own=publication, of_name=publication),
    )
    return edited(replace(published, **facts), changes or {})


def with_staged_facts(evidence: Evidence, world: World) -> Evidence:
    """The evidence as level full would have it: facts of every needed staged row of the world, and of their ancestors."""
    plan = find_plan(evidence)
    if plan is None:
        return replace(evidence, level="full")
    rows = {row.key: row for row in world.staged}
    found: dict[str, Part[StagedFacts]] = {}
    prefixes: dict[str, tuple[bytes, ...] | None] = {}

    def read(key: str) -> StagedFacts:
        row, ids = rows[key], big_endian(rows[key].token_ids)
        parent_key = plan.parent_of(key, row.parent_call_id) if row.parent_call_id is not None else None
        parent = read(parent_key) if parent_key is not None and parent_key in rows else None
        prefix = prefixes[parent_key] if parent_key is not None and parent is not None else None
        is_sound = parent is not None and parent.is_sound_as(str(parent_key))
        ancestry = Ancestry(parent_key, parent if is_sound else None, prefix if is_sound else None)
        routes = "read" if row.routed_experts is not None else "none"
        facts = examine(row, ancestry, ids=ids, routes=routes, is_needed=key in plan.needed)
        prefixes[key] = (*(prefix or ()), ids) if facts.cumulative_found is not None else None
        index = plan.partition.keys[key]
        found[key] = Part(unit_path(evidence, index % len(plan.plane.units)), "decoded", facts)
        return facts

    for key in plan.needed:
        if key in rows:
            read(key)
    return replace(evidence, level="full", staged=found)


def an_anchor_evidence(
    changes: Mapping[str, Any] | None = None, *, world: World | None = None, **facts: Any
) -> Evidence:
    """The world's anchor as target, with a data plane and sidecars of its own."""
    world = world or a_world()
    inner = evidence_of(replace(world, with_gym=False))
    sidecars = ("replay_buffer_metadata.pt", "rollout_recovery.pt", "train_dataloader.pt")
    files = {
        **anchor_files(world),
        **_stand_ins(world, "data_plane/"),
        **{name: control_files(world)[name] for name in sidecars},
    }
    missing = ManifestReading(Part("manifest.json", "missing"))
    base = replace(
        inner,
        path=f"/runs/{world.anchor}",
        kind="anchor",
        name=world.anchor,
        tree=_tree(files),
        manifest=missing,
        config=Part("config.yaml", "decoded", dict(world.anchor_config))
        if "config.yaml" in files
        else Part("config.yaml", "missing"),
    )
    return edited(_at_level(replace(base, **facts), world), changes or {})


def data_plane_evidence(
    changes: Mapping[str, Any] | None = None, *, world: World | None = None, **facts: Any
) -> Evidence:
    """The world's data plane alone."""
    world = world or a_world()
    lacking: dict[str, Any] = {
        name: Part(path, "missing")
        for name, path in (
            ("config", "config.yaml"),
            ("dataloader", "train_dataloader.pt"),
            ("reserve", "replacement_reserve.pt"),
            ("replay", "replay_buffer_metadata.pt"),
            ("ledger", "rollout_recovery.pt"),
        )
    }
    base = Evidence(
        path="/planes/data_plane",
        kind="data_plane",
        name="data_plane",
        level="standard",
        tree=_tree(_stand_ins(world, "")),
        manifest=ManifestReading(Part("manifest.json", "missing")),
        anchor=None,
        cut=None,
        **lacking,
        **_data_plane_parts(world, ""),
    )
    return edited(_at_level(replace(base, **facts), world), changes or {})


def a_pack_evidence(changes: Mapping[str, Any] | None = None, *, world: World | None = None, **facts: Any) -> Evidence:
    """A pack as a container, read to its end; what is in it is no part of that evidence."""
    facts_found = PackFacts(30, 2, 1_058_816, 400_000, is_seekable=True, is_bundle=False)
    part = Part("step_3.snapshot_000002.tar.zst", "decoded", facts_found, (), 400_000)
    base = pack_evidence("/packs/step_3.snapshot_000002.tar.zst", part, "standard")
    return edited(replace(base, **facts), changes or {})


def _at_level(evidence: Evidence, world: World) -> Evidence:
    return with_staged_facts(evidence, world) if evidence.level == "full" else evidence


def _part(path: str, value: Any, data: bytes) -> Part[Any]:
    return Part(path, "decoded", value, (), len(data), sha256_hex(data))


def _tree(files: Mapping[str, bytes]) -> tuple[TreeEntry, ...]:
    folders = {"/".join(name.split("/")[:depth]) for name in files for depth in range(1, name.count("/") + 1)}
    entries = [TreeEntry(name, "file", len(data), 0o644) for name, data in files.items()]
    return tuple(
        sorted((*entries, *(TreeEntry(name, "directory", 0, 0o755) for name in folders)), key=lambda entry: entry.path)
    )


def _reading(manifest: Any, data: bytes) -> ManifestReading:
    raw = manifest.model_dump(mode="json")
    return ManifestReading(
        part=Part("manifest.json", "decoded", raw, (), len(data), sha256_hex(data)),
        raw=raw,
        schema_found=manifest.schema_version,
        has_gym=manifest.gym_checkpoint is not None,
        manifest=manifest,
    )


def _anchor(world: World) -> AnchorEvidence:
    is_bootstrap = world.anchor == "bootstrap"
    missing = lambda name: Part(name, "missing")  # noqa: E731 - as above
    files = anchor_files(world)
    manifest = a_manifest(world)
    sibling = SiblingSnapshot(
        anchor=world.anchor,
        name=world.name,
        number=snapshot_number(world.name) or 0,
        has_manifest=True,
        checkpoint_id=world.checkpoint_id if world.with_gym else None,
        schema_found=world.schema_version,
        base_train_step=world.step,
        trainer_version=world.step,
        bootstrap_fingerprint=manifest.bootstrap_fingerprint,
        has_gym=world.with_gym,
        is_valid=True,
    )
    part = lambda name, value: _part(f"../../{name}", value, files[name])  # noqa: E731 - as above
    return AnchorEvidence(
        name=world.anchor,
        kind="bootstrap" if is_bootstrap else "step",
        number=step_number(world.anchor) or 0,
        training_info=missing("training_info.json")
        if is_bootstrap
        else part("training_info.json", a_training_info(world)),
        bootstrap=part("manifest.json", a_bootstrap(world)) if is_bootstrap else missing("manifest.json"),
        config=missing("config.yaml") if is_bootstrap else part("config.yaml", dict(world.anchor_config)),
        has_policy=not is_bootstrap,
        snapshots=(sibling,),
    )


def _stand_ins(world: World, folder: str) -> dict[str, bytes]:
    """The data plane's names with a byte each: no rule compares digests of its files, and writing them takes longest."""
    return dict.fromkeys((f"{folder}{name}" for name in data_plane_names(world)), b"-")


def _data_plane_parts(world: World, folder: str) -> dict[str, Any]:
    plane, files = a_data_plane(world), _stand_ins(world, folder)
    part = lambda name, value: _part(f"{folder}{name}", value, files[f"{folder}{name}"])  # noqa: E731 - as above
    units = [plane.unit(at) for at in range(world.storage_units)]
    return {
        "metadata": part("metadata.json", DataPlaneMetadata(storage_saved=True, user_metadata=a_binding(world))),
        "unit_info": part("simple_storage/storage_unit_info.json", plane.units),
        "controller_state": part("controller_state.pkl", plane.controller),
        "units": {unit.file_name: part(f"simple_storage/{unit.file_name}", unit) for unit in units},
    }


def _archives(saved: Saved, payloads: Mapping[str, bytes]) -> dict[str, Part[Any]]:
    members: dict[str, list[ArchiveMember]] = {}
    for row in saved.rows["index"]:
        data = payloads[row.member]
        members.setdefault(row.archive, []).append(ArchiveMember(row.member, True, len(data), sha256_hex(data)))
    return {name: _part(f"{saved.folder}/{name}", tuple(found), saved.files[name]) for name, found in members.items()}


def _agent(world: World, saved: Saved) -> AgentEvidence:
    content = world.agents[saved.entry.participant.participant_name]
    records = {record_file_name(record.rollout_id, record.attempt_index): record for record in content.records}
    payloads = {name: encode_boundary(record) for name, record in records.items()}
    part = lambda name, value: _part(f"{saved.folder}/{name}", value, saved.files[name])  # noqa: E731 - as above
    return AgentEvidence(
        entry=saved.entry,
        folder=saved.folder,
        manifest=part("manifest.json", saved.manifest),
        record_index=part("agent-index.jsonl", saved.rows["index"]),
        continuations=part("continuations.jsonl", saved.rows["continuations"]),
        archives=_archives(saved, payloads),
        records={
            (row.archive, row.member): _part(f"{saved.folder}/{row.archive}", records[row.member], payloads[row.member])
            for row in saved.rows["index"]
        },
    )


def _model(world: World, saved: Saved) -> ModelEvidence:
    custody = world.models[saved.entry.participant.participant_name].custody
    rows = {f"{key}.lineage.jsonl": tuple(lines) for key, lines in custody.items()}
    part = lambda name, value: _part(f"{saved.folder}/{name}", value, saved.files[name])  # noqa: E731 - as above
    members = {(row.archive, row.member): row for row in saved.rows["index"]}
    archives: dict[str, list[ArchiveMember]] = {}
    for (archive, member), row in members.items():
        archives.setdefault(archive, []).append(ArchiveMember(member, True, row.bytes, row.sha256))
    return ModelEvidence(
        entry=saved.entry,
        folder=saved.folder,
        manifest=part("manifest.json", saved.manifest),
        lineage_index=part("lineage-index.jsonl", saved.rows["index"]),
        storage_references=part("storage-references.jsonl", saved.rows["storage"]),
        archives={name: part(name, tuple(found)) for name, found in archives.items()},
        lineage={
            key: Part(f"{saved.folder}/{key[0]}", "decoded", rows[key[1]], (), row.bytes, row.sha256)
            for key, row in members.items()
        },
    )


def _resources(world: World, saved: Saved) -> ResourcesEvidence:
    sessions = world.resources[saved.entry.participant.participant_name]
    part = lambda name, value: _part(f"{saved.folder}/{name}", value, saved.files[name])  # noqa: E731 - as above
    names = {record_file_name(one.rollout_id, one.attempt_index): one for one in sessions}
    return ResourcesEvidence(
        entry=saved.entry,
        folder=saved.folder,
        manifest=part("manifest.json", saved.manifest),
        sessions={name: part(name, one) for name, one in names.items()},
    )
