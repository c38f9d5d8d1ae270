"""One snapshot (or a data plane alone) in depth: everything that its control plane says, put side by side.

The content is read at level standard at least, whatever level judges it. What cannot be decoded is left out and named in
`unread`; whether something is *right* is said by the verdict alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ckptctl.domain.binding import Binding
from ckptctl.domain.evidence import AgentEvidence, Evidence, Part, TreeEntry
from ckptctl.domain.finding import Level, TargetReport
from ckptctl.domain.ids import participant_folder
from ckptctl.domain.inspection import (
    BindingView,
    DataPlaneInspection,
    DataPlaneView,
    GroupCount,
    ManifestCounters,
    ParticipantView,
    PartitionView,
    PartSize,
    ReplayGroupView,
    RolloutView,
    SnapshotInspection,
)
from ckptctl.domain.manifest import ModelPayload, ParticipantEntry, SnapshotManifest
from ckptctl.domain.participant_files import BoundaryRecord
from ckptctl.domain.redispatch import ContinuationFacts
from ckptctl.planning.restored_facts import continuations_of
from ckptctl.workflows.inspect_directory import checkpoint_id_of, written_at_s
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_evidence import Known, load_target
from ckptctl.workflows.measure import Now
from ckptctl.workflows.targets import Target
from ckptctl.workflows.validate import ValidateRequest, judge
from ckptctl.workflows.world import World

Execution = tuple[str, int]


def inspect_snapshot(world: World, target: Target, level: Level) -> SnapshotInspection:
    """Describe one snapshot."""
    return describe_snapshot(world, target, level, *look(world, target, level))


def describe_snapshot(
    world: World, target: Target, level: Level, evidence: Evidence, report: TargetReport
) -> SnapshotInspection:
    """Describe one snapshot that was loaded and judged at that level."""
    manifest = evidence.manifest.manifest
    gym = None if manifest is None else manifest.gym_checkpoint
    written_at = written_at_s(evidence)
    ledger = evidence.ledger.value
    return SnapshotInspection(
        path=evidence.path,
        anchor=None if target.anchor is None else target.anchor.rpartition("/")[2],
        verdict=report.verdict,
        level=level,
        findings=report.findings,
        unread=unread_of(evidence),
        coverage=report.coverage,
        schema_found=report.schema_found,
        checkpoint_id=checkpoint_id_of(evidence),
        written_at=written_at,
        age_s=None if written_at is None else Now(world.clock.now_s()).age_s(written_at),
        counters=None if manifest is None else _counters(manifest),
        participants=tuple(_participant(entry, evidence) for entry in (gym.participants if gym is not None else ())),
        groups=_groups(evidence),
        acknowledgements=None if ledger is None else len(ledger.pending_completed_execution_acknowledgements),
        rollouts=_rollouts(evidence),
        replay=_replay(evidence),
        data_plane=_data_plane(evidence),
        parts=_parts(evidence.tree),
    )


def inspect_data_plane(world: World, target: Target, level: Level) -> DataPlaneInspection:
    """Describe a data plane alone."""
    evidence, report = look(world, target, level)
    return DataPlaneInspection(
        path=evidence.path,
        verdict=report.verdict,
        level=level,
        findings=report.findings,
        unread=unread_of(evidence),
        coverage=report.coverage,
        data_plane=_data_plane(evidence),
        parts=_parts(evidence.tree),
    )


def look(world: World, target: Target, level: Level) -> tuple[Evidence, TargetReport]:
    """Load and judge one target; its content is read at level standard at least."""
    reads: Level = "standard" if level == "quick" else level
    loader = AnchorLoader(world.store, world.limits, world.room)
    loaded = load_target(world.store, target, reads, Known(), loader, world.limits)
    return loaded.evidence, judge(loaded, ValidateRequest(paths=(target.path,), level=level))


def unread_of(evidence: Evidence) -> tuple[str, ...]:
    """Parts that could not be decoded, and why."""
    parts: list[Part[Any]] = [
        evidence.manifest.part,
        evidence.config,
        evidence.dataloader,
        evidence.replay,
        evidence.ledger,
        evidence.metadata,
        evidence.unit_info,
        evidence.controller_state,
        *evidence.units.values(),
    ]
    for agent in evidence.agents:
        parts += [agent.manifest, agent.record_index, agent.continuations, *agent.archives.values()]
        parts += agent.records.values()
    for model in evidence.models:
        parts += [model.manifest, model.lineage_index, model.storage_references, *model.archives.values()]
        parts += model.lineage.values()
    for server in evidence.resources:
        parts += [server.manifest, *server.sessions.values()]
    is_wanted = {"damaged", "unreadable", "unsupported"}
    told = [f"{part.path} is {part.state}: {part.reason}" for part in parts if part.state in is_wanted]
    if evidence.tree_problem:
        told.append(evidence.tree_problem)
    return tuple(dict.fromkeys(told))


def _counters(manifest: SnapshotManifest) -> ManifestCounters:
    names = ManifestCounters.model_fields
    return ManifestCounters.model_validate({name: getattr(manifest, name) for name in names})


def _participant(entry: ParticipantEntry, evidence: Evidence) -> ParticipantView:
    who = entry.participant
    folder = participant_folder(who.component, who.participant_name)
    files = [item for item in evidence.tree if item.path.startswith(f"{folder}/") and item.kind != "directory"]
    counts = {
        name: value
        for name, value in entry.payload.model_dump().items()
        if isinstance(value, int) and (value or not name.startswith("excluded"))
    }
    if hasattr(entry.payload, "continuation_index"):
        counts["continuations"] = entry.payload.continuation_index.records
    if isinstance(entry.payload, ModelPayload):
        counts["storage_references"] = entry.payload.storage_reference_index.records
    return ParticipantView(
        server_name=who.server_name,
        component=who.component,
        participant_name=who.participant_name,
        folder=folder,
        counts=counts,
        size_bytes=sum(item.size_bytes for item in files),
        files=len(files),
    )


def _groups(evidence: Evidence) -> tuple[GroupCount, ...]:
    ledger = evidence.ledger.value
    groups: Counter[tuple[str, str]] = Counter()
    rollouts: Counter[tuple[str, str]] = Counter()
    for group in [] if ledger is None else ledger.groups:
        groups[group.status, group.recovery_granularity] += 1
        rollouts[group.status, group.recovery_granularity] += len(group.siblings)
    return tuple(
        GroupCount(status=key[0], granularity=key[1], groups=count, rollouts=rollouts[key])
        for key, count in sorted(groups.items())
    )


def _rollouts(evidence: Evidence) -> tuple[RolloutView, ...]:
    """Every sibling of the ledger in its order, then boundaries that no sibling claims."""
    records = {
        (record.rollout_id, record.attempt_index): (agent, record)
        for agent in evidence.agents
        for record in agent.boundaries()
    }
    needs = {(item.rollout_id, item.attempt_index): item for item in continuations_of(evidence)}
    views: list[RolloutView] = []
    ledger = evidence.ledger.value
    for group in [] if ledger is None else ledger.groups:
        for sibling in group.siblings:
            attempt = sibling.current
            key = (group.rollout_of(sibling), attempt.attempt_index)
            ours = {
                "group_id": group.group_id,
                "status": attempt.status,
                "granularity": group.recovery_granularity,
                "staged_rows": len(attempt.staging_keys) if attempt.status == "sealed" else None,
            }
            views.append(_rollout(key, records.pop(key, None), needs.get(key), ours))
    return (*views, *(_rollout(key, found, needs.get(key), {}) for key, found in sorted(records.items(), key=_by_key)))


def _by_key(item: tuple[Execution, object]) -> Execution:
    return item[0]


def _rollout(
    key: Execution,
    found: tuple[AgentEvidence, BoundaryRecord] | None,
    needs: ContinuationFacts | None,
    ledger: Mapping[str, Any],
) -> RolloutView:
    facts: dict[str, Any] = {
        "rollout_id": key[0],
        "attempt_index": key[1],
        **dict.fromkeys(("group_id", "status", "granularity", "agent", "boundary_kind", "boundary_index")),
        **dict.fromkeys(("turn_index", "revisions", "staged_rows")),
        **ledger,
    }
    if found is not None:
        agent, record = found
        facts |= {
            "agent": agent.entry.participant.participant_name,
            "boundary_kind": record.boundary_kind,
            "boundary_index": record.boundary_index,
            "turn_index": record.turn_index,
        }
    if needs is not None:
        facts["revisions"] = needs.revisions
        if facts["staged_rows"] is None:
            facts["staged_rows"] = len(needs.staging_keys)
    return RolloutView.model_validate(facts)


def _replay(evidence: Evidence) -> tuple[ReplayGroupView, ...]:
    replay = evidence.replay.value
    return tuple(
        ReplayGroupView(
            group_id=group.group_id,
            rows=len(group.meta.sample_ids),
            start_weight=group.start_weight,
            end_weight=group.end_weight,
            target_step=group.target_step,
        )
        for group in ([] if replay is None else replay.groups)
    )


def _data_plane(evidence: Evidence) -> DataPlaneView:
    controller, metadata = evidence.controller_state.value, evidence.metadata.value
    partitions = tuple(
        PartitionView(
            partition_id=name,
            keys=len(partition.keys),
            fields=len(partition.columns),
            produced_values=partition.production.count(1),
        )
        for name, partition in sorted((controller.partitions if controller is not None else {}).items())
    )
    units = evidence.unit_info.value
    return DataPlaneView(
        partitions=partitions,
        storage_units=None if units is None else len(units),
        binding=None if metadata is None else _binding(metadata.user_metadata),
    )


def _binding(user_metadata: dict[str, object] | None) -> BindingView | None:
    """The binding where there is a whole one: a data plane alone may carry anything in its place."""
    try:
        found = Binding.model_validate(user_metadata)
    except ValueError:
        return None
    return BindingView(
        train_step=found.single_controller_train_steps,
        trainer_version=found.single_controller_trainer_version,
        epoch=found.single_controller_epoch,
        partition_id=found.partition_id,
        sampler_name=found.sampler_name,
        mode=found.mode,
        replay_groups=found.replay_group_count,
        replay_manifest_digest=found.replay_manifest_digest,
        recovery_groups=found.rollout_recovery_group_count,
        recovery_sha256=found.rollout_recovery_payload_sha256,
    )


def _parts(tree: Iterable[TreeEntry]) -> tuple[PartSize, ...]:
    """What lies directly in the target, each with everything below it."""
    files: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for entry in tree:
        if entry.kind != "directory":
            name = entry.path.partition("/")[0]
            files[name] += 1
            sizes[name] += entry.size_bytes
    return tuple(PartSize(name=name, files=files[name], bytes=size) for name, size in sizes.most_common())
