"""What two snapshots are compared by: one side's rollouts, boundaries, sessions, groups and rows, each under its name.

Pure. What cannot be read is None, and then nothing is said of it: a damaged part must not look like lost work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ckptctl.domain.evidence import Evidence
from ckptctl.domain.ledger import Group, Sibling
from ckptctl.domain.manifest import SnapshotManifest
from ckptctl.domain.participant_files import BoundaryRecord, SessionRecord
from ckptctl.domain.replay import ReplayGroup
from ckptctl.domain.snapshot_diff import Change, Measure
from ckptctl.planning.restored_facts import continuations_of

Pair = tuple[str, int]
T = TypeVar("T", BoundaryRecord, SessionRecord)


@dataclass(frozen=True, slots=True)
class Side:
    """One snapshot, as far as it can be read."""

    manifest: SnapshotManifest | None
    groups: Mapping[str, Group] | None
    siblings: Mapping[str, tuple[Group, Sibling]]
    shortfall: int
    finished: Mapping[str, ReplayGroup] | None
    owed: Mapping[Pair, str] | None
    boundaries: Mapping[str, BoundaryRecord] | None
    """Rollout -> the boundary of its last attempt."""
    sessions: Mapping[tuple[str, str], SessionRecord] | None
    """(Server, rollout) -> the session of its last attempt."""
    needs: Mapping[Pair, tuple[str, ...]]
    """Staged rows that each boundary needs."""
    weights: Mapping[str, int]
    """Capture key -> the highest weight version of its calls."""
    tombstones: frozenset[Pair]
    keys: Mapping[str, frozenset[str]] | None
    """Partition -> keys."""
    participants: frozenset[tuple[str, str]]
    total_bytes: int

    @property
    def all_keys(self) -> frozenset[str] | None:
        """Every key of the data plane."""
        return None if self.keys is None else frozenset().union(*self.keys.values())


def side_of(evidence: Evidence) -> Side:
    """One snapshot's facts."""
    ledger, replay, controller = evidence.ledger.value, evidence.replay.value, evidence.controller_state.value
    owed = None
    if ledger is not None:
        pending = ledger.pending_completed_execution_acknowledgements
        owed = {(item.receipt.rollout_id, item.receipt.attempt_index): item.agent_name for item in pending}
    return Side(
        manifest=evidence.manifest.manifest,
        groups=None if ledger is None else {group.group_id: group for group in ledger.groups},
        siblings={} if ledger is None else ledger.siblings(),
        shortfall=0 if ledger is None else sum(ledger.batch_shortfall.values()),
        finished=None if replay is None else {group.group_id: group for group in replay.groups},
        owed=owed,
        boundaries=_boundaries(evidence),
        sessions=_sessions(evidence),
        needs={(item.rollout_id, item.attempt_index): item.staging_keys for item in continuations_of(evidence)},
        weights=dict(_weights(evidence)),
        tombstones=frozenset(_tombstones(evidence)),
        keys=None
        if controller is None
        else {name: frozenset(found.keys) for name, found in controller.partitions.items()},
        participants=frozenset(_participants(evidence)),
        total_bytes=sum(entry.size_bytes for entry in evidence.tree if entry.kind != "directory"),
    )


def _boundaries(evidence: Evidence) -> dict[str, BoundaryRecord] | None:
    if any(part.value is None for agent in evidence.agents for part in agent.records.values()):
        return None
    found: dict[str, BoundaryRecord] = {}
    for agent in evidence.agents:
        for record in agent.boundaries():
            found[record.rollout_id] = _later(found.get(record.rollout_id), record)
    return found


def _sessions(evidence: Evidence) -> dict[tuple[str, str], SessionRecord] | None:
    found: dict[tuple[str, str], SessionRecord] = {}
    for server in evidence.resources:
        for part in server.sessions.values():
            if part.value is None:
                return None
            key = (server.entry.participant.participant_name, part.value.rollout_id)
            found[key] = _later(found.get(key), part.value)
    return found


def _later(known: T | None, item: T) -> T:
    return item if known is None or known.attempt_index <= item.attempt_index else known


def _weights(evidence: Evidence) -> Iterator[tuple[str, int]]:
    for model in evidence.models:
        for place in model.lineage_index.value or ():
            part = model.lineage.get((place.archive, place.member))
            rows = () if part is None or part.value is None else part.value
            known = [row.weight_version for row in rows if row.weight_version is not None]
            if known:
                yield place.capture_key, max(known)


def _tombstones(evidence: Evidence) -> Iterator[Pair]:
    for model in evidence.models:
        for pair in () if model.manifest.value is None else model.manifest.value.tombstones:
            yield pair.rollout_id, pair.attempt_index


def _participants(evidence: Evidence) -> Iterator[tuple[str, str]]:
    manifest = evidence.manifest.manifest
    gym = None if manifest is None else manifest.gym_checkpoint
    for entry in () if gym is None else gym.participants:
        yield entry.participant.component, entry.participant.server_name


def measures(older: Side, newer: Side) -> tuple[Measure, ...]:
    """The numbers of both, in the order in which one reads them."""
    before, after = dict(_numbers(older)), dict(_numbers(newer))
    return tuple(Measure(name=name, before=before[name], after=after[name]) for name in before)


def _numbers(side: Side) -> Iterator[tuple[str, int | None]]:
    manifest = side.manifest
    yield "train step", None if manifest is None else manifest.base_train_step
    yield "trainer version", None if manifest is None else manifest.trainer_version
    yield "epoch", None if manifest is None else manifest.current_epoch
    yield "sampler", None if manifest is None else manifest.sampler_dispatch_index
    groups, finished = side.groups, side.finished
    yield "unfinished groups", None if groups is None else len(groups)
    sealed = sum(sibling.current.status == "sealed" for _, sibling in side.siblings.values())
    yield "sealed results", None if groups is None else sealed
    yield "finished groups", None if finished is None else len(finished)
    yield "acknowledgements owed", None if side.owed is None else len(side.owed)
    boundaries, sessions = side.boundaries, side.sessions
    yield "boundaries", None if boundaries is None else len(boundaries)
    yield "turns in them", None if boundaries is None else sum(item.turn_index for item in boundaries.values())
    yield "sessions", None if sessions is None else len(sessions)
    yield "their revisions", None if sessions is None else sum(item.state_revision for item in sessions.values())
    yield "rows", None if side.keys is None else sum(len(keys) for keys in side.keys.values())
    yield "bytes", side.total_bytes


def change(kind: str, area: str, subject: str, message: str, *values: object, incompatible: bool = False) -> Change:
    """One difference; `values` are before and after."""
    before, after = (*values, None, None)[:2]
    return Change.model_validate(
        {
            "kind": kind,
            "area": area,
            "subject": subject,
            "message": message,
            "before": None if before is None else str(before),
            "after": None if after is None else str(after),
            "incompatible": incompatible,
        }
    )
