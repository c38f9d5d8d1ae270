"""Which staged rows level full reads, and which row is the parent of which (data-plane sections 8 and 9.3).

Required are the rows that sealed receipts, route plans and continuations need; of a data plane alone, all that are complete.
A row names its parent by call id only: the row of that call lies under the same capture key, or under that of an older attempt
which was continued. Where receipts or lineage say which, they are believed as long as the call id fits. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ckptctl.domain.dataplane import STAGED_FIELDS, DataPlane, Partition
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.ids import staging_key
from ckptctl.domain.ledger import Attempt
from ckptctl.domain.lineage import staging_keys
from ckptctl.rules._model import CannotRunError
from ckptctl.rules._views import data_plane_of, needed_staging_keys, optional_ledger, staging_rows

_MOST_ATTEMPTS = 100
"""How far back an ancestor is looked for without a list that names it."""


@dataclass(frozen=True, slots=True)
class StagedPlan:
    """What to read. `needed` in the order of their rows; `links`: parents that are not where they usually are."""

    plane: DataPlane
    partition: Partition
    needed: tuple[str, ...]
    links: Mapping[str, str]

    def parent_of(self, key: str, parent_call_id: str) -> str | None:
        """The key of a row's parent, or None when the partition has none that could be it."""
        linked = self.links.get(key)
        if linked is not None and linked in self.partition.keys and split_key(linked)[1] == parent_call_id:
            return linked
        return next(
            (found for found in _candidates(split_key(key)[0], parent_call_id) if found in self.partition.keys), None
        )


def split_key(key: str) -> tuple[str, str]:
    """Capture key and call id of a staging key; capture keys have no slash."""
    capture, _, call = key.partition("/")
    return capture, call


def plan_staged(evidence: Evidence) -> StagedPlan | None:
    """The plan; None when there is no staging partition.

    Raises:
        CannotRunError: the data plane, or a file that names needed rows, cannot be read.
    """
    plane = data_plane_of(evidence)
    partition = staging_rows(evidence, plane)
    if partition is None:
        return None
    if evidence.kind == "data_plane":
        needed: Iterable[str] = _complete(partition)
    else:
        needed = needed_staging_keys(evidence) & partition.keys.keys()
    ordered = tuple(sorted(needed, key=lambda key: (partition.keys[key], key)))
    return StagedPlan(plane, partition, ordered, dict(_links(evidence)))


def find_plan(evidence: Evidence) -> StagedPlan | None:
    """As `plan_staged`; None as well where that cannot be told, which the rules that need it say."""
    try:
        return plan_staged(evidence)
    except CannotRunError:
        return None


def find_data_plane(evidence: Evidence) -> DataPlane | None:
    """The data plane, or None where it cannot be read, which the rules that need it say."""
    try:
        return data_plane_of(evidence)
    except CannotRunError:
        return None


def receipt_rows(attempt: Attempt) -> Iterator[Mapping[str, object]]:
    """The rows of a sealed attempt's receipt that name a staged row."""
    rows = (attempt.receipt or {}).get("manifest") if attempt.status == "sealed" else None
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("staging_key"), str):
            yield row


def _complete(partition: Partition) -> Iterator[str]:
    if not partition.columns.keys() >= STAGED_FIELDS.keys():
        return
    for key, index in partition.keys.items():
        if all(partition.is_produced(name, index) for name in STAGED_FIELDS):
            yield key


def _links(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """(child, parent) wherever a list of keys shows a parent that lies under another capture key than its child."""
    ledger = optional_ledger(evidence)
    for group in ledger.groups if ledger is not None else ():
        for sibling in group.siblings:
            calls: dict[str, str] = {}
            for row in receipt_rows(sibling.current):
                key, call, parent_call = str(row["staging_key"]), row.get("model_call_id"), row.get("parent_call_id")
                if isinstance(parent_call, str) and parent_call in calls:
                    yield from _foreign(calls[parent_call], key)
                if isinstance(call, str):
                    calls[call] = key
    for model in evidence.models:
        # A lineage file that cannot be read is PAR012's business; parents are mostly where they usually are.
        for part in model.lineage.values():
            for line in part.value or ():
                for parent, key in pairwise(staging_keys(line)):
                    yield from _foreign(parent, key)


def _foreign(parent: str, key: str) -> Iterator[tuple[str, str]]:
    if split_key(parent)[0] != split_key(key)[0]:
        yield key, parent


def _candidates(capture: str, call: str) -> Iterator[str]:
    """Where the call may lie: the attempt itself, then the older attempts of its rollout, newest first."""
    yield staging_key(capture, call)
    base, _, attempt = capture.rpartition("-a")
    if base and attempt.isascii() and attempt.isdigit() and len(attempt) < 10:
        newest = int(attempt) - 1
        for number in range(newest, max(0, newest - _MOST_ATTEMPTS), -1):
            yield staging_key(f"{base}-a{number}", call)
        yield staging_key(base, call)
