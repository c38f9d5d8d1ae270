"""What several rules derive from the evidence: the data plane as a whole, needed staging rows, continuations, boundary rows.

Everything here is linear in what it reads. Judging is left to the rules; the only thing decided here is which parts an
anchor or a data plane alone may lack without anybody being to blame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from ckptctl.domain.dataplane import DataPlane, Partition
from ckptctl.domain.evidence import AgentEvidence, Evidence, ModelEvidence, Part, ResourcesEvidence
from ckptctl.domain.ledger import Ledger
from ckptctl.domain.participant_files import AgentManifest, BoundaryRecord, ModelManifest, ResourcesManifest
from ckptctl.domain.replay import ReplayMetadata
from ckptctl.domain.rows import ContinuationRow, LineageRow
from ckptctl.rules._model import CannotRunError, NotAskedError
from ckptctl.rules._parts import value_of

DEFAULT_STAGING_PARTITION = "rollout_staging"
OUTER_MANIFEST = "manifest.json"
PARTICIPANT_REQUIRES = ("MAN005", "PAR002")
"""What must have passed before anything that a participant wrote is judged."""
ROUTE_PLAN_TAG = "route_assembly_plan"
INVENTORY_REQUIRES = ("BND001", "LED001", "PAR006")
"""What must have passed before the inventory is judged."""
UNIT_INVENTORY = "INV015"
"""The rule that reports missing and contradictory files of the data plane."""

T = TypeVar("T")
Pair = tuple[str, int]
"""One execution: rollout id and attempt index."""


class StagingNeed(NamedTuple):
    """A staging key and what needs it. `kind`: `receipt`, `route plan` or `continuation`; `attempt` is set for receipts only."""

    key: str
    kind: str
    owner: str
    attempt: int | None = None

    @property
    def text(self) -> str:
        """The need in words."""
        return (
            f"{self.kind} of `{self.owner}` attempt {self.attempt}"
            if self.attempt is not None
            else f"{self.kind} `{self.owner}`"
        )


def first(names: Iterable[str], shown: int = 10) -> str:
    """The first few names in order, and how many more there are."""
    ordered = sorted(names)
    tail = f" and {len(ordered) - shown} more" if len(ordered) > shown else ""
    return ", ".join(f"`{name}`" for name in ordered[:shown]) + tail


def data_plane_folder(evidence: Evidence) -> str:
    """The folder of the data plane relative to the target, with a final slash; empty for a data plane alone."""
    return evidence.controller_state.path.removesuffix("controller_state.pkl")


def unit_path(evidence: Evidence, position: int) -> str:
    """The path of the storage unit at a position, or of the folder when the info file does not name it."""
    folder = f"{data_plane_folder(evidence)}simple_storage"
    for info in evidence.unit_info.value or ():
        if info.position == position:
            return f"{folder}/su_{info.position}_{info.storage_unit_id}.pkl"
    return folder


def data_plane_of(evidence: Evidence) -> DataPlane:
    """Controller and units together; a unit that cannot be read is None.

    Raises:
        CannotRunError: without the controller's state or a usable list of units.
    """
    controller = value_of(evidence.controller_state, UNIT_INVENTORY)
    listed = value_of(evidence.unit_info, UNIT_INVENTORY)
    infos = sorted(listed, key=lambda info: info.position)
    if [info.position for info in infos] != list(range(len(infos))):
        raise CannotRunError("the positions of the storage units are not 0, 1, 2 ...", because=(UNIT_INVENTORY,))
    parts = [evidence.units.get(f"su_{info.position}_{info.storage_unit_id}.pkl") for info in infos]
    units = tuple(part.value if part is not None and part.state == "decoded" else None for part in parts)
    blob_sizes: dict[tuple[str, str], int] = {}
    if any(unit is not None and unit.has_ssd for unit in units):
        folder = f"{data_plane_folder(evidence)}simple_storage/"
        for entry in evidence.tree:
            unit_file, blobs, blob = entry.path.removeprefix(folder).partition(".blobs/")
            if blobs and entry.path.startswith(folder) and entry.kind == "file":
                blob_sizes[unit_file, blob] = entry.size_bytes
    return DataPlane(controller=controller, units=units, blob_sizes=blob_sizes)


def unreadable_units(evidence: Evidence, plane: DataPlane) -> CannotRunError | None:
    """What to raise at the end when some unit could not be looked into; None when all could."""
    positions = [position for position, unit in enumerate(plane.units) if unit is None]
    if not positions:
        return None
    names = first(unit_path(evidence, position) for position in positions)
    return CannotRunError(f"not readable: {names}", because=("MAN002", "MAN010", UNIT_INVENTORY))


def optional_replay(evidence: Evidence) -> ReplayMetadata | None:
    """The replay metadata; None where an anchor or a data plane alone has none."""
    if evidence.replay.state == "missing" and evidence.kind != "snapshot":
        return None
    return value_of(evidence.replay, "BND007")


def optional_ledger(evidence: Evidence) -> Ledger | None:
    """The ledger; None where an anchor or a data plane alone has none."""
    if evidence.ledger.state == "missing" and evidence.kind != "snapshot":
        return None
    return value_of(evidence.ledger, "LED001")


def required_ledger(evidence: Evidence) -> Ledger:
    """The ledger.

    Raises:
        NotAskedError: an anchor has none.
        CannotRunError: it cannot be read.
    """
    found = optional_ledger(evidence)
    if found is None:
        raise NotAskedError("there is no ledger here")
    return found


def staging_partition(evidence: Evidence) -> str:
    """The staging partition's name: the run's, else the saved configuration's, else a route plan's, else NeMo-RL's default."""
    if evidence.run.staging_partition is not None:
        return evidence.run.staging_partition
    capture = (evidence.config.value or {}).get("token_capture")
    named = capture.get("staging_partition") if isinstance(capture, dict) else None
    if isinstance(named, str) and named:
        return named
    for _, plan in route_plans(evidence):
        planned = plan.get("staging_partition") if isinstance(plan, dict) else None
        if isinstance(planned, str) and planned:
            return planned
    return DEFAULT_STAGING_PARTITION


def staging_rows(evidence: Evidence, plane: DataPlane) -> Partition | None:
    """The staging partition, or None when the controller has none of that name."""
    return plane.controller.partitions.get(staging_partition(evidence))


def route_plans(evidence: Evidence) -> Iterator[tuple[str, object]]:
    """Every route plan in the replay tags, as it lies there, with the sample that it belongs to."""
    replay = evidence.replay.value
    for group in replay.groups if replay is not None else ():
        for sample, tag in zip(group.meta.sample_ids, group.meta.tags or (), strict=False):
            if ROUTE_PLAN_TAG in tag:
                yield sample, tag[ROUTE_PLAN_TAG]


def staging_needs(evidence: Evidence) -> Iterator[StagingNeed]:
    """Every staging key that a restore needs, once per need: sealed receipts, route plans, continuations (data-plane section 8).

    Raises:
        CannotRunError: a file that names needed keys cannot be read.
    """
    ledger = optional_ledger(evidence)
    for group in ledger.groups if ledger is not None else ():
        for sibling in group.siblings:
            if sibling.current.status == "sealed":
                rollout, attempt = group.rollout_of(sibling), sibling.current.attempt_index
                for key in sibling.current.staging_keys:
                    yield StagingNeed(key, "receipt", rollout, attempt)
    optional_replay(evidence)
    for sample, plan in route_plans(evidence):
        keys = plan.get("cleanup_staging_keys") if isinstance(plan, dict) else None
        for key in keys if isinstance(keys, list) else ():
            if isinstance(key, str):
                yield StagingNeed(key, "route plan", sample)
    for model in evidence.models:
        for row in value_of(model.storage_references, "PAR006"):
            yield StagingNeed(row.key, "continuation", row.capture_key)


def needed_key_lists(evidence: Evidence) -> Iterator[Sequence[str]]:
    """The keys of all `staging_needs`, some at a time: for a million of them much cheaper than the needs. Raises as that."""
    ledger = optional_ledger(evidence)
    for group in ledger.groups if ledger is not None else ():
        for sibling in group.siblings:
            if sibling.current.status == "sealed":
                yield sibling.current.staging_keys
    optional_replay(evidence)
    for _, plan in route_plans(evidence):
        keys = plan.get("cleanup_staging_keys") if isinstance(plan, dict) else None
        yield [key for key in (keys if isinstance(keys, list) else ()) if isinstance(key, str)]
    for model in evidence.models:
        yield [row.key for row in value_of(model.storage_references, "PAR006")]


def needed_staging_keys(evidence: Evidence) -> frozenset[str]:
    """The keys of all `staging_needs`, each once. Raises as that."""
    return frozenset().union(*needed_key_lists(evidence))


def participants_of(evidence: Evidence) -> tuple[AgentEvidence | ModelEvidence | ResourcesEvidence, ...]:
    """Every saved participant: agents, models, resources."""
    return (*evidence.agents, *evidence.models, *evidence.resources)


def continuation_rows(evidence: Evidence) -> Iterator[tuple[AgentEvidence, int, ContinuationRow]]:
    """Every agent's continuation rows with their line numbers.

    Raises:
        CannotRunError: an index cannot be read.
    """
    for agent in evidence.agents:
        rows = value_of(agent.continuations, "PAR006")
        for line, row in enumerate(rows, start=1):
            yield agent, line, row


def continuation_roots(evidence: Evidence) -> dict[str, ContinuationRow]:
    """The continuation of each capture key, over all agents (PAR011 sees to it that there is only one)."""
    return {row.capture_key: row for agent in evidence.agents for row in value_of(agent.continuations, "PAR006")}


def boundary_records(evidence: Evidence) -> Iterator[tuple[AgentEvidence, str, BoundaryRecord]]:
    """Every agent's boundary records with the archive that holds them.

    Raises:
        CannotRunError: an archive or a record cannot be read.
    """
    for agent in evidence.agents:
        for (archive, _), part in agent.records.items():
            yield agent, archive, value_of(part, "PAR007")


def has_model_call(record: BoundaryRecord) -> bool:
    """Whether a boundary has a committed model call, and so a continuation row."""
    return record.last_committed_model_call_id is not None


def lineage_members(model: ModelEvidence) -> Iterator[tuple[str, str, tuple[LineageRow, ...]]]:
    """(capture key, archive, rows) for each lineage member that the index names.

    Raises:
        CannotRunError: the folder is of a framework's own format, or a member cannot be read.
    """
    require_documented(model)
    for row in value_of(model.lineage_index, "PAR006"):
        part = model.lineage.get((row.archive, row.member))
        if part is None:
            raise CannotRunError(
                f"`{model.folder}/{row.archive}` has no member `{row.member}`", because=("PAR012", "MAN010")
            )
        yield row.capture_key, row.archive, value_of(part, "PAR012")


def participant_manifest(part: Part[T]) -> T:
    """A participant's manifest; of a schema that is not read, PAR004 speaks.

    Raises:
        CannotRunError: there is none to judge.
    """
    if part.state == "unsupported":
        raise CannotRunError(f"`{part.path}`: {part.reason}", because=("PAR004",))
    return value_of(part, "PAR002")


def any_manifest(
    saved: AgentEvidence | ModelEvidence | ResourcesEvidence,
) -> AgentManifest | ModelManifest | ResourcesManifest:
    """As participant_manifest, for a participant of any kind."""
    part: Part[Any] = saved.manifest
    found: AgentManifest | ModelManifest | ResourcesManifest = participant_manifest(part)
    return found


def require_documented(model: ModelEvidence) -> None:
    """Refuse to judge the inside of a model folder in a framework-owned format (participant-protocol section 11.2).

    Raises:
        CannotRunError: it is one.
    """
    if model.is_foreign:
        raise CannotRunError(
            f"`{model.folder}` is in a format that a framework owns: only its references can be checked"
        )
