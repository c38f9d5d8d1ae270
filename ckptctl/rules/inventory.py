"""Does the data plane hold what the other parts say it holds? Invariants 33 to 37, 43 to 47; here 33, 35, 36 and 45.

Upstream looks at key presence only; fields, rows, tables and tags have modules of their own, and so have identity, digests and
chains of staged rows (38 to 42, ids INV006 to INV010), which need tensor bytes and belong to level full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptctl.domain.amounts import plural
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.ids import rollout_id
from ckptctl.domain.replay import ReplayGroup
from ckptctl.rules import inventory_rows, inventory_tables, inventory_tags
from ckptctl.rules._model import NotAskedError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules._views import (
    INVENTORY_REQUIRES,
    first,
    needed_key_lists,
    needed_staging_keys,
    optional_replay,
    staging_needs,
    staging_partition,
)


def check_canonical_keys(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 33."""
    replay = optional_replay(evidence)
    if replay is None:
        raise NotAskedError("there is no replay metadata to compare with")
    partition = value_of(evidence.controller_state, "INV015").partitions.get(replay.partition_id)
    keys = partition.keys if partition is not None else {}
    wanted = {sample for group in replay.groups for sample in group.meta.sample_ids}
    missing, unexpected = wanted - keys.keys(), keys.keys() - wanted
    if missing:
        yield Violation(
            f"canonical partition `{replay.partition_id}` lacks {plural(len(missing), 'sample')} "
            f"that the replay metadata names: {first(missing)}",
            artifact=evidence.controller_state.path,
            location=replay.partition_id,
            expected=plural(len(wanted), "key"),
            actual=f"{len(wanted) - len(missing)} of them",
        )
    if unexpected:
        yield Violation(
            f"canonical partition `{replay.partition_id}` has {plural(len(unexpected), 'sample')} "
            f"that the replay metadata does not name: {first(unexpected)}",
            artifact=evidence.replay.path,
            location=replay.partition_id,
            expected=plural(len(wanted), "key"),
            actual=plural(len(keys), "key"),
        )


def check_replay_groups(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 35."""
    replay = optional_replay(evidence)
    if replay is None:
        raise NotAskedError("there is no replay metadata")
    groups: set[str] = set()
    samples: set[str] = set()
    sizes = Counter(len(group.meta.sample_ids) for group in replay.groups)
    size = max(sizes, key=sizes.__getitem__, default=0)
    for group in replay.groups:
        for what, expected, actual in _group_faults(group, size):
            yield Violation(
                f"replay group `{group.group_id}`: {what}",
                evidence.replay.path,
                group.group_id,
                expected=expected,
                actual=actual,
            )
        repeated = samples.intersection(group.meta.sample_ids)
        if group.group_id in groups:
            yield Violation(
                f"replay group `{group.group_id}` is listed twice",
                evidence.replay.path,
                group.group_id,
                expected="once",
                actual="twice",
            )
        elif repeated:
            yield Violation(
                f"replay group `{group.group_id}`: samples of another group: {first(repeated)}",
                evidence.replay.path,
                group.group_id,
            )
        groups.add(group.group_id)
        samples.update(group.meta.sample_ids)
    if len(replay.groups) > replay.saved_capacity:
        yield Violation(
            f"replay metadata holds {plural(len(replay.groups), 'group')}, its own saved_capacity is {replay.saved_capacity}",
            evidence.replay.path,
            "saved_capacity",
            expected=f"at most {replay.saved_capacity}",
            actual=str(len(replay.groups)),
        )


def _group_faults(group: ReplayGroup, size: int) -> Iterator[tuple[str, str, str]]:
    meta = group.meta
    ids = meta.sample_ids
    wanted = [rollout_id(group.group_id, index) for index in range(len(ids))]
    if not ids:
        yield "has no samples", "at least one", "none"
    elif ids != wanted:
        at = next(index for index, (a, b) in enumerate(zip(ids, wanted, strict=True)) if a != b)
        yield f"sample {at} is `{ids[at]}`", wanted[at], ids[at]
    if len(ids) != size:
        yield f"has {plural(len(ids), 'sample')}, most groups have {size}", str(size), str(len(ids))
    if meta.tags is not None and len(meta.tags) != len(ids):
        yield "tags and samples are not paired", f"{len(ids)} tags", str(len(meta.tags))
    if meta.sequence_lengths is not None and len(meta.sequence_lengths) != len(ids):
        yield "sequence lengths and samples are not paired", f"{len(ids)} lengths", str(len(meta.sequence_lengths))
    if group.start_weight > group.end_weight:
        yield "start_weight is newer than end_weight", f"at most {group.end_weight}", str(group.start_weight)


def check_staging_keys(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 36."""
    name = staging_partition(evidence)
    partition = value_of(evidence.controller_state, "INV015").partitions.get(name)
    keys = partition.keys if partition is not None else {}
    if all(all(map(keys.__contains__, needed)) for needed in needed_key_lists(evidence)):
        return  # as nearly always; who needs a key is asked only when one is missing
    for need in staging_needs(evidence):
        if need.key not in keys:
            yield Violation(
                f"staging row `{need.key}`, needed by {need.text}, is missing",
                artifact=evidence.controller_state.path,
                location=f"{name} {need.key}",
                expected=f"a key of partition `{name}`",
                actual="absent" if partition is not None else "there is no such partition",
            )


def check_unreferenced(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 45."""
    name = staging_partition(evidence)
    partition = value_of(evidence.controller_state, "INV015").partitions.get(name)
    if partition is None:
        return
    unneeded = partition.keys.keys() - needed_staging_keys(evidence)
    if unneeded:
        yield Violation(
            f"{plural(len(unneeded), 'staging row is', 'staging rows are')} unreferenced and will be deleted at restore: "
            f"{first(unneeded)}",
            artifact=evidence.controller_state.path,
            location=name,
            expected="",
            actual=f"{len(unneeded)} of {len(partition.keys)}",
        )


_OWN = (
    Rule(
        id="INV001",
        invariant=33,
        name="canonical-keys-differ",
        summary="The canonical partition holds exactly the samples that the replay metadata names.",
        why="NeMo-RL stops a restore at any difference, when it has already replaced the running TransferQueue.",
        hint="Data plane and replay metadata come from different moments; use an older snapshot.",
        severity="error",
        level="standard",
        check=check_canonical_keys,
        requires=INVENTORY_REQUIRES,
        needs=("data_plane",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="INV003",
        invariant=35,
        name="malformed-replay-group",
        summary="Replay groups are unique, equally large, fit the capacity and name their samples `<group>_g0`, `_g1` ...",
        why="A sample under another name, or a group of another size, is trained with the wrong prompt or not at all.",
        hint="The replay metadata was written by a faulty build or edited; use an older snapshot.",
        severity="error",
        level="standard",
        check=check_replay_groups,
        requires=INVENTORY_REQUIRES,
        needs=("data_plane",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="INV004",
        invariant=36,
        name="missing-staging-row",
        summary="Each staging key that a sealed receipt, route plan or continuation needs is in the staging partition.",
        why="The tokens of those calls are gone: the rollout cannot be finalized or continued, NeMo-RL refuses the restore.",
        hint="Use an older snapshot; the rows were cleared while something still needed them.",
        severity="error",
        level="standard",
        check=check_staging_keys,
        requires=INVENTORY_REQUIRES,
        needs=("data_plane",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="INV013",
        invariant=45,
        name="unreferenced-staging-rows",
        summary="Staging rows that nothing needs are counted.",
        why="They are legal (calls past the last boundary leave them) and NeMo-RL deletes them at restore.",
        hint="Nothing to do.",
        severity="information",
        level="standard",
        check=check_unreferenced,
        requires=INVENTORY_REQUIRES,
        needs=("data_plane",),
        targets=("snapshot", "anchor"),
    ),
)
RULES: tuple[Rule, ...] = tuple(
    sorted((*_OWN, *inventory_rows.RULES, *inventory_tables.RULES, *inventory_tags.RULES), key=lambda rule: rule.id)
)
"""The family without INV006 to INV010 (`staged_rows`, `staged_links`)."""
