"""What happened between two snapshots of one run: progress, losses that something explains, and what nothing explains.

Pure. What a running system does between two snapshots:
1. Step, trainer version, epoch and sampler never go back; the mutation count is a process' own and is not compared.
2. A group leaves the ledger when it is finished (then replay metadata has it), trained (the step went on) or given up (a
   tombstone, or a larger batch shortfall). Finished groups leave replay metadata when the step goes on.
3. A sealed result stays sealed. An attempt is replaced by a later one only; a sealed one only where siblings are not kept singly.
4. A boundary of one attempt moves forward; a later attempt that is behind its predecessor does work again: a loss.
5. A session's revision grows within an attempt, and is there as long as a boundary needs it.
6. A boundary that did not move needs the rows that it needed; a row that is needed is there.
7. The weights with which an attempt was generated do not grow older.
A restore between the two that went back to before both (`rewound`) explains steps backwards: then they are losses.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from ckptctl.domain.amounts import plural
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.manifest import SnapshotManifest
from ckptctl.domain.snapshot_diff import KIND_ORDER, Change, Measure
from ckptctl.planning.diff_facts import Side, change, measures, side_of
from ckptctl.planning.diff_rollouts import Rewound, boundary_changes, rollout_changes, session_changes

COUNTERS = (
    ("base_train_step", "train step"),
    ("trainer_version", "trainer version"),
    ("current_epoch", "epoch"),
    ("sampler_dispatch_index", "sampler"),
)
FINGERPRINTS = (("bootstrap_fingerprint", "bootstrap"), ("gym_topology_fingerprint", "topology"))


def compare_snapshots(
    older: Evidence, newer: Evidence, *, rewound: bool = False
) -> tuple[tuple[Change, ...], tuple[Measure, ...]]:
    """Every difference, what nobody expects first, and the numbers of both sides."""
    before, after, back = side_of(older), side_of(newer), Rewound(rewound)
    found = chain(
        _run_changes(before, after, back),
        _group_changes(before, after, back),
        _finished_changes(before, after, back),
        rollout_changes(before, after, back),
        boundary_changes(before, after, back),
        session_changes(before, after, back),
        _result_changes(before, after),
        _row_changes(before, after),
        _weight_changes(before, after, back),
    )
    ordered = sorted(found, key=lambda item: KIND_ORDER.index(item.kind))
    return tuple(ordered), measures(before, after)


def _run_changes(before: Side, after: Side, back: Rewound) -> Iterator[Change]:
    """1, and whether both are of one run at all."""
    old, new = before.manifest, after.manifest
    if old is None or new is None:
        return
    for name, words in FINGERPRINTS:
        was, now = getattr(old, name), getattr(new, name)
        if was is not None and now is not None and was != now:
            text = f"the {words} fingerprint is another one: the run is set up differently"
            yield change("unexpected", "run", words, text, _short(was), _short(now), incompatible=True)
    yield from _gym_changes(before, after, old, new)
    for name, words in COUNTERS:
        was, now = getattr(old, name), getattr(new, name)
        if now > was:
            yield change("progressed", "run", words, "went on", was, now)
        elif now < was:
            yield change(back.kind, "run", words, f"went backwards{back.why}", was, now)


def _gym_changes(before: Side, after: Side, old: SnapshotManifest, new: SnapshotManifest) -> Iterator[Change]:
    was, now = old.gym_checkpoint, new.gym_checkpoint
    if was is None or now is None:
        if was is not now:
            values = ("none" if gym is None else plural(len(gym.participants), "participant") for gym in (was, now))
            yield change("unexpected", "run", "Gym state", "only one of the two holds any", *values, incompatible=True)
        return
    if was.checkpoint_id == now.checkpoint_id:
        yield change("unexpected", "run", "checkpoint id", "both snapshots have the same checkpoint id")
    for who in sorted(before.participants ^ after.participants):
        text = "is gone from the snapshot" if who in before.participants else "was not in the older snapshot"
        yield change("unexpected", "participant", who[1], text, incompatible=True)


def _has_trained(before: Side, after: Side) -> bool:
    old, new = before.manifest, after.manifest
    return old is not None and new is not None and new.base_train_step > old.base_train_step


def _group_changes(before: Side, after: Side, back: Rewound) -> Iterator[Change]:
    """2, for unfinished groups."""
    if before.groups is None or after.groups is None:
        return
    for name, group in before.groups.items():
        if name not in after.groups and name not in (after.finished or {}):
            yield _group_gone(name, len(group.siblings), before, after, back)
    for name, group in after.groups.items():
        if name in before.groups:
            if group.start_weight_version != before.groups[name].start_weight_version:
                text = "the weights that it began with changed"
                was, now = before.groups[name].start_weight_version, group.start_weight_version
                yield change("unexpected", "group", name, text, was, now)
        elif name in (before.finished or {}):
            yield change(back.kind, "group", name, f"was finished and is unfinished again{back.why}")
        else:
            yield change("progressed", "group", name, f"is new, {plural(len(group.siblings), 'rollout')}")


def _group_gone(name: str, rollouts: int, before: Side, after: Side, back: Rewound) -> Change:
    assert before.groups is not None, "only called with a ledger"
    own = {before.groups[name].rollout_of(sibling) for sibling in before.groups[name].siblings}
    if any(rollout in own for rollout, _ in after.tombstones - before.tombstones):
        return change(
            "lost", "group", name, f"was given up, {plural(rollouts, 'rollout')}: the policy model was told so"
        )
    if after.shortfall > before.shortfall:
        text = f"was given up, {plural(rollouts, 'rollout')}: the batch shortfall grew"
        return change("lost", "group", name, text, before.shortfall, after.shortfall)
    if _has_trained(before, after):
        return change("changed", "group", name, "left the ledger while the step went on: trained or given up")
    text = f"vanished, {plural(rollouts, 'rollout')}: neither finished, nor trained, nor given up{back.why}"
    return change(back.kind, "group", name, text)


def _finished_changes(before: Side, after: Side, back: Rewound) -> Iterator[Change]:
    """2, for finished groups."""
    if before.finished is None or after.finished is None:
        return
    for name, group in before.finished.items():
        new = after.finished.get(name)
        if new is None and name not in (after.groups or {}):
            if _has_trained(before, after):
                yield change("progressed", "group", name, "left the finished groups while the step went on: trained")
            else:
                text = f"finished work vanished: it was not trained, for the step is the same{back.why}"
                yield change(back.kind, "group", name, text)
        elif new is not None:
            missing = sorted(set(group.meta.sample_ids) - set(new.meta.sample_ids))
            if missing:
                yield change("unexpected", "group", name, f"finished rows are missing: {', '.join(missing)}")
            if (group.start_weight, group.end_weight) != (new.start_weight, new.end_weight):
                was, now = (f"{one.start_weight} to {one.end_weight}" for one in (group, new))
                yield change("unexpected", "group", name, "the weights of a finished group changed", was, now)
    for name in after.finished:
        if name not in before.finished:
            yield change("progressed", "group", name, "is finished")


def _result_changes(before: Side, after: Side) -> Iterator[Change]:
    """Results whose agents waited to be told."""
    if before.owed is None or after.owed is None:
        return
    for rollout, attempt in sorted(before.owed.keys() - after.owed.keys()):
        yield change("progressed", "result", rollout, f"no acknowledgement is owed for attempt {attempt} any more")
    for rollout, attempt in sorted(after.owed.keys() - before.owed.keys()):
        agent = after.owed[rollout, attempt]
        yield change(
            "progressed", "result", rollout, f"attempt {attempt} is complete; its agent {agent} is not told yet"
        )


def _row_changes(before: Side, after: Side) -> Iterator[Change]:
    """6."""
    there = after.all_keys
    for pair, keys in after.needs.items():
        old, new = (side.boundaries and side.boundaries.get(pair[0]) for side in (before, after))
        is_same = old and new and (old.attempt_index, old.boundary_index) == (new.attempt_index, new.boundary_index)
        if is_same and set(before.needs.get(pair, ())) != set(keys):
            text = f"the boundary of attempt {pair[1]} did not move, but needs other rows"
            yield change("unexpected", "row", pair[0], text, len(before.needs.get(pair, ())), len(keys))
        for key in keys:
            if there is not None and key not in there:
                yield change(
                    "unexpected", "row", key, f"the row is missing, and attempt {pair[1]} of {pair[0]} needs it"
                )
    for rollout, (_, sibling) in after.siblings.items():
        for key in sibling.current.staging_keys if sibling.current.status == "sealed" else ():
            if there is not None and key not in there:
                yield change("unexpected", "row", key, f"the row is missing, and the result of {rollout} needs it")


def _weight_changes(before: Side, after: Side, back: Rewound) -> Iterator[Change]:
    """7."""
    for capture, was in before.weights.items():
        now = after.weights.get(capture)
        if now is not None and now < was:
            yield change(back.kind, "rollout", capture, f"its newest call has older weights{back.why}", was, now)


def _short(fingerprint: str) -> str:
    return f"{fingerprint[:12]}..."
