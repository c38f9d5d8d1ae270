"""Rows of the data plane that belong to one rollout or that it needs: where each is, whether it is whole, and who needs it.

Pure. A staged row belongs to the attempt whose capture key its own key begins with (data-plane section 8); what is needed comes
from receipts, from boundaries (`planning.restored_facts`) and from route plans.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ckptctl.domain.dataplane import DataPlane, Partition
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.rollout_story import RowState, StoryRow
from ckptctl.domain.safe_text import shown
from ckptctl.planning.restored_facts import continuations_of

_TAIL = re.compile(r"-a([1-9][0-9]{0,8})\Z")
_SCALARS = (str, int, float, bool, type(None))


def attempt_of(capture: str, rollout: str, others: frozenset[str]) -> int | None:
    """Which attempt of `rollout` a capture key is; None when it is another rollout's, as far as the other names tell."""
    if capture == rollout:
        return 0
    tail = _TAIL.fullmatch(capture.removeprefix(rollout)) if capture.startswith(rollout) else None
    return None if tail is None or capture in others else int(tail.group(1))


class RowBook:
    """The rows of one rollout, by the attempt that made them."""

    def __init__(self, evidence: Evidence, rollout: str, others: frozenset[str]) -> None:
        self.others = others
        self.route_plans = dict(_route_plans(evidence))
        self._rollout = rollout
        self._partitions: Mapping[str, Partition] = (
            {} if evidence.controller_state.value is None else evidence.controller_state.value.partitions
        )
        self._plane = _plane_of(evidence)
        self._needs: dict[str, list[str]] = {}
        self._find_needs(evidence)
        self._keys = self._find_keys()

    def attempts(self) -> Iterator[int]:
        """Every attempt of which there is a row."""
        yield from {index for index, _, _ in self._keys}

    def rows_of(self, index: int) -> tuple[StoryRow, ...]:
        """The rows of one attempt, by key."""
        return tuple(
            self.row(partition, key, tuple(self._needs.get(key, ())))
            for found, partition, key in self._keys
            if found == index
        )

    def row(self, partition_id: str | None, key: str, needed_by: tuple[str, ...]) -> StoryRow:
        """One row as it is stored."""
        partition = self._partitions.get(partition_id or "")
        place = None if partition is None else partition.keys.get(key)
        if partition is None or place is None:
            state: RowState = "missing" if self._partitions else "not_known"
            return StoryRow(key=key, partition_id=partition_id, state=state, fields=0, needed_by=needed_by, tags={})
        state, fields = self._look(partition, place)
        tags = {
            name: shown(value) for name, value in partition.tags.get(place, {}).items() if isinstance(value, _SCALARS)
        }
        return StoryRow(key=key, partition_id=partition_id, state=state, fields=fields, needed_by=needed_by, tags=tags)

    def _look(self, partition: Partition, place: int) -> tuple[RowState, int]:
        produced = [name for name in partition.columns if partition.is_produced(name, place)]
        if self._plane is None:
            return "not_known", 0
        verdicts = [self._plane.resolve_index(partition, place, name).verdict for name in produced]
        stored = verdicts.count("holds")
        if not produced:
            return "not_produced", 0
        state: RowState = "dangling" if "dangling" in verdicts else "not_known" if "unchecked" in verdicts else "stored"
        return state, stored

    def _find_keys(self) -> list[tuple[int, str | None, str]]:
        """(attempt, partition, key) of every row of ours that is there or needed, sorted by key."""
        found: dict[str, tuple[int, str | None, str]] = {}
        for name, partition in self._partitions.items():
            for key in partition.keys:
                index = self._attempt_of_key(key)
                if index is not None:
                    found[key] = (index, name, key)
        for key in self._needs:
            index = self._attempt_of_key(key)
            if index is not None and key not in found:
                found[key] = (index, None, key)
        return [found[key] for key in sorted(found)]

    def _attempt_of_key(self, key: str) -> int | None:
        capture, slash, _ = key.partition("/")
        return attempt_of(capture, self._rollout, self.others) if slash else None

    def _find_needs(self, evidence: Evidence) -> None:
        for continuation in continuations_of(evidence):
            who = self._told(continuation.rollout_id)
            for key in continuation.staging_keys:
                self._needs.setdefault(key, []).append(f"boundary of {who}attempt {continuation.attempt_index}")
        ledger = evidence.ledger.value
        for group in [] if ledger is None else ledger.groups:
            for sibling in group.siblings:
                current, who = sibling.current, self._told(group.rollout_of(sibling))
                for key in current.staging_keys if current.status == "sealed" else ():
                    self._needs.setdefault(key, []).append(f"receipt of {who}attempt {current.attempt_index}")
        for name, keys in self.route_plans.items():
            for key in keys:
                self._needs.setdefault(key, []).append(f"route plan of {name}")

    def _told(self, rollout: str) -> str:
        return "" if rollout == self._rollout else f"{rollout} "


def _route_plans(evidence: Evidence) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Canonical row -> staged rows that its route plan names."""
    replay = evidence.replay.value
    for group in [] if replay is None else replay.groups:
        for name, tags in zip(group.meta.sample_ids, group.meta.tags or (), strict=False):
            plan = tags.get("route_assembly_plan")
            keys = plan.get("cleanup_staging_keys") if isinstance(plan, dict) else None
            if isinstance(keys, list | tuple):
                yield name, tuple(key for key in keys if isinstance(key, str))


def _plane_of(evidence: Evidence) -> DataPlane | None:
    """The data plane; None where nobody can tell in which unit a row lies."""
    controller, listed = evidence.controller_state.value, evidence.unit_info.value
    if controller is None or not listed:
        return None
    infos = sorted(listed, key=lambda info: info.position)
    parts = [evidence.units.get(f"su_{info.position}_{info.storage_unit_id}.pkl") for info in infos]
    if [info.position for info in infos] != list(range(len(infos))):
        return None
    blobs: dict[tuple[str, str], int] = {}
    for entry in evidence.tree:
        unit_file, is_blob, blob = entry.path.rpartition("simple_storage/")[2].partition(".blobs/")
        if is_blob and entry.kind == "file":
            blobs[unit_file, blob] = entry.size_bytes
    return DataPlane(controller, tuple(None if part is None else part.value for part in parts), blobs)
