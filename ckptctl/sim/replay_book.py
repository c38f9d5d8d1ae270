"""Finished groups that wait for training: who owns which canonical rows (snapshot-layout section 7).

It decides the order in which groups are trained (target step, then age). The rows themselves lie in the data plane.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptctl.domain.canonical import compact_sorted, replay_digest
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.replay import ReplayGroup, ReplayMetadata, RoutePlan
from ckptctl.formats.canonical_json import decode_document

ROUTE_PLAN_TAG = "route_assembly_plan"


class ReplayBook:
    """The finished groups, oldest first."""

    def __init__(self, *, partition_id: str, capacity: int) -> None:
        self.partition_id = partition_id
        self.capacity = capacity
        self._groups: list[ReplayGroup] = []

    def groups(self) -> tuple[ReplayGroup, ...]:
        """All finished groups."""
        return tuple(self._groups)

    def group_ids(self) -> frozenset[str]:
        """Their ids."""
        return frozenset(group.group_id for group in self._groups)

    def sample_ids(self) -> frozenset[str]:
        """The canonical keys that exist because of them."""
        return frozenset(sample for group in self._groups for sample in group.meta.sample_ids)

    def staging_keys(self) -> set[str]:
        """Staging keys that deferred routes still need."""
        return {key for group in self._groups for key in cleanup_keys(group)}

    def add(self, group: ReplayGroup) -> None:
        """Take a finished group in."""
        assert group.group_id not in self.group_ids(), "a group is finished twice"
        self._groups.append(group)

    def next_batch(self, count: int) -> tuple[ReplayGroup, ...]:
        """The groups that a train step would take: lowest target step first, then oldest. Fewer where there are not enough."""
        order = sorted(range(len(self._groups)), key=lambda at: (self._groups[at].target_step or 0, at))
        return tuple(self._groups[at] for at in order[:count])

    def remove(self, group_ids: Iterable[str]) -> None:
        """These groups were trained on."""
        gone = frozenset(group_ids)
        self._groups = [group for group in self._groups if group.group_id not in gone]

    def load(self, metadata: ReplayMetadata) -> None:
        """Take over saved metadata."""
        self._groups = list(metadata.groups)

    def metadata(self) -> ReplayMetadata:
        """The document to save."""
        return ReplayMetadata(
            schema_version=1,
            storage="tq_checkpoint",
            partition_id=self.partition_id,
            saved_capacity=self.capacity,
            manifest_digest=replay_digest(self._groups),
            groups=list(self._groups),
        )


def cleanup_keys(group: ReplayGroup) -> list[str]:
    """The staging keys that a group's route plans name. Raises DefectError for a plan that cannot be read."""
    keys: list[str] = []
    for tags in group.meta.tags or ():
        plan = tags.get(ROUTE_PLAN_TAG)
        if plan is not None:
            keys += decode_document(compact_sorted(plan), RoutePlan, DEFAULT_LIMITS).cleanup_staging_keys
    return keys
