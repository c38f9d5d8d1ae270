"""Which snapshots and leftovers may go. Nothing here looks at a clock or a disk: ages and validity are facts.

Rules:
1. The newest `keep_latest_k` of every anchor stay, damaged ones counted as upstream counts them.
2. The newest `min_valid_copies` valid ones of every anchor stay, whatever their number; and with them every one that is newer
   than the last of these and may be valid too, because it could not be checked.
3. Pinned ones stay, in the trash too, and whatever an unfinished transaction or a running restore refers to.
4. Bootstrap snapshots go once a durable step has a valid snapshot of its own; before that rules 1 to 3 hold for them too.
5. Deletion is two steps: a snapshot is moved to our trash, and leaves it when the grace period is over and its anchor, if that
   is still there, has the valid copies of rule 2 without it: what was valid when it was moved may be damaged since.
6. A `tmp_` directory goes when no transaction owns it and nothing in it was written for the grace period, a `trash_` one is a
   deletion that was interrupted. Neither goes while something in it changed of late: a writer that does not know our lock may
   be alive. What is in our trash under a name that is not ours stays.
7. Where the clock cannot be believed (an age is unknown), nothing is deleted because of its age.
8. Where a snapshot of an anchor was renamed, its numbers do not tell which is newer: all of them stay (but for rule 4).
"""

from __future__ import annotations

from datetime import UTC, datetime

from ckptctl.domain.ids import BOOTSTRAP_FOLDER, snapshot_number, step_number
from ckptctl.domain.retention import (
    TRASH_FOLDER,
    WRITER_SILENCE_S,
    Action,
    GcFacts,
    GcItem,
    GcPlan,
    GcPolicy,
    LeftoverFacts,
    SnapshotFacts,
    TrashedFacts,
    parse_trash_entry,
    snapshot_path,
)


def plan_gc(facts: GcFacts, policy: GcPolicy) -> GcPlan:
    """Decide every item. Raises AssertionError if the plan would break rules 2 or 3 (a bug here)."""
    items: list[GcItem] = []
    for anchor in sorted({snapshot.anchor for snapshot in facts.snapshots}, key=_anchor_order):
        mine = sorted(
            (item for item in facts.snapshots if item.anchor == anchor),
            key=lambda item: (item.number, item.name),
            reverse=True,
        )
        items += _plan_anchor(mine, policy, is_superseded=_is_superseded(anchor, facts))
    items += [_plan_leftover(item, policy) for item in facts.leftovers]
    needed = {item.entry for anchor in facts.anchors for item in _needed_trash(anchor, facts, policy)}
    items += [_plan_trashed(item, policy, is_needed=item.entry in needed) for item in facts.trashed]
    plan = GcPlan(items=tuple(items))
    _assert_plan(plan, facts, policy)
    return plan


def proofs_wanted(facts: GcFacts, policy: GcPolicy) -> tuple[tuple[str, int], ...]:
    """The anchors where something might go, and how many valid snapshots of each must be known, newest first, those in the
    trash last.

    Steps come before `bootstrap`: one valid snapshot of a durable step decides about all of bootstrap's (rule 4), so a step where
    nothing might go is asked for one only while something of bootstrap might.
    """
    counts = dict.fromkeys((item.anchor for item in facts.snapshots), 0)
    for snapshot in facts.snapshots:
        counts[snapshot.anchor] += 1
    ending = {anchor for anchor in facts.anchors if may_leave_trash(anchor, facts, policy)}
    has_bootstrap = BOOTSTRAP_FOLDER in {*counts, *ending}
    wanted: list[tuple[str, int]] = []
    for anchor in sorted({*counts, *ending}, key=_anchor_order, reverse=True):
        if counts.get(anchor, 0) > policy.keep_latest_k or anchor in ending:
            wanted.append((anchor, policy.min_valid_copies))
        elif has_bootstrap and anchor in facts.durable_steps:
            wanted.append((anchor, 1))
    return tuple(wanted)


def may_leave_trash(anchor: str, facts: GcFacts, policy: GcPolicy) -> bool:
    """Whether the grace period of something of this anchor in our trash is over."""
    return any(
        item.anchor == anchor and item.state == "whole" and _is_over(item, policy.grace_period_s)
        for item in facts.trashed
    )


def in_trash(anchor: str, facts: GcFacts) -> list[TrashedFacts]:
    """What could be brought back to an anchor, newest first; of one name the one that was moved last comes first."""
    mine = [item for item in facts.trashed if item.anchor == anchor and item.state == "whole"]
    return sorted(mine, key=lambda item: (snapshot_number(item.name) or 0, item.entry), reverse=True)


def is_superseded(facts: GcFacts) -> bool:
    """Rule 4: whether everything under `bootstrap` may go."""
    return _is_superseded(BOOTSTRAP_FOLDER, facts)


def _anchor_order(name: str) -> tuple[int, str]:
    """`bootstrap`, then the steps by number."""
    number = step_number(name)
    return -1 if number is None else number, name


def _is_superseded(anchor: str, facts: GcFacts) -> bool:
    """Rule 4: a bootstrap anchor whose run has a durable step with a valid snapshot."""
    steps = set(facts.durable_steps)
    return anchor == BOOTSTRAP_FOLDER and any(item.anchor in steps and item.is_valid for item in facts.snapshots)


def _plan_anchor(newest_first: list[SnapshotFacts], policy: GcPolicy, *, is_superseded: bool) -> list[GcItem]:
    valid, perhaps = _valid_copies(newest_first, policy)
    items = []
    for place, snapshot in enumerate(newest_first):
        reasons = _keep_reasons(snapshot, place, (valid, perhaps), policy, is_superseded=is_superseded)
        if not reasons:
            reasons = _go_reasons(snapshot, valid, policy, is_superseded=is_superseded)
            action: Action = "trash"
        else:
            action = "keep"
        path = snapshot_path(snapshot.anchor, snapshot.name)
        items.append(GcItem(path=path, kind="snapshot", action=action, reasons=tuple(reasons)))
    return items


def _needed_trash(anchor: str, facts: GcFacts, policy: GcPolicy) -> list[TrashedFacts]:
    """Rule 5: what in the trash is, or may be, one of the valid copies that an anchor must not lose."""
    if _is_superseded(anchor, facts):
        return []
    needed = []
    missing = policy.min_valid_copies - sum(item.anchor == anchor and item.is_valid is True for item in facts.snapshots)
    for item in in_trash(anchor, facts):
        if missing <= 0:
            break
        if item.is_valid is not False:
            needed.append(item)
        missing -= item.is_valid is True
    return needed


def _is_over(item: TrashedFacts | LeftoverFacts, period_s: float) -> bool:
    return item.age_s is not None and item.age_s >= period_s


def _go_reasons(snapshot: SnapshotFacts, valid: list[str], policy: GcPolicy, *, is_superseded: bool) -> list[str]:
    if is_superseded:
        return ["a durable step has a valid snapshot of its own"]
    reasons = [f"older than {_newest(policy, 'the')} of `{snapshot.anchor}`"]
    if snapshot.is_valid is False and snapshot.doubt is None:
        reasons.append("it is not valid")
    if valid:
        reasons.append(f"`{valid[0]}` is valid and stays")
    return reasons


def _valid_copies(newest_first: list[SnapshotFacts], policy: GcPolicy) -> tuple[list[str], list[str]]:
    """Rule 2: the names of the valid ones that stay, and of those that may be valid and are not older than all of them."""
    valid: list[str] = []
    perhaps: list[str] = []
    for item in newest_first:
        if len(valid) == policy.min_valid_copies:
            break
        if item.is_valid:
            valid.append(item.name)
        elif item.doubt is not None:
            perhaps.append(item.name)
    return valid, perhaps


def _keep_reasons(
    snapshot: SnapshotFacts,
    place: int,
    copies: tuple[list[str], list[str]],
    policy: GcPolicy,
    *,
    is_superseded: bool,
) -> list[str]:
    valid, perhaps = copies
    reasons = []
    if not is_superseded:
        if snapshot.disorder is not None:
            reasons.append(f"numbers of `{snapshot.anchor}` do not tell which is newer: {snapshot.disorder}")
        if place < policy.keep_latest_k:
            reasons.append(f"{_newest(policy, 'one of the')} of `{snapshot.anchor}`")
        if snapshot.name in valid:
            reasons.append(
                f"newest valid snapshot of `{snapshot.anchor}`"
                if snapshot.name == valid[0]
                else f"one of the {policy.min_valid_copies} valid copies that must stay"
            )
        if snapshot.name in perhaps:
            reasons.append(f"it may be valid, and there are not enough newer ones that are: {snapshot.doubt}")
    if snapshot.pin_reason is not None:
        reasons.append(f"pinned: {snapshot.pin_reason}")
    if snapshot.used_by is not None:
        reasons.append(f"in use by {snapshot.used_by}")
    return reasons


def _newest(policy: GcPolicy, before: str) -> str:
    return "the newest" if policy.keep_latest_k == 1 else f"{before} newest {policy.keep_latest_k}"


def _plan_leftover(item: LeftoverFacts, policy: GcPolicy) -> GcItem:
    path = snapshot_path(item.anchor, item.name)
    if item.used_by is not None:
        return GcItem(path=path, kind=item.kind, action="keep", reasons=(f"in use by {item.used_by}",))
    is_tmp = item.kind == "tmp"
    if item.age_s is None:
        return GcItem(
            path=path, kind=item.kind, action="keep", reasons=("the clock cannot be believed, so its age is unknown",)
        )
    if not _is_over(item, max(policy.grace_period_s, WRITER_SILENCE_S) if is_tmp else WRITER_SILENCE_S):
        alive = (
            "no transaction of ours owns it, and its writer may be alive"
            if is_tmp
            else "something in it changed of late: somebody may be deleting it"
        )
        return GcItem(path=path, kind=item.kind, action="keep", reasons=(alive,))
    gone = "never published, and its writer is gone" if is_tmp else "its deletion was interrupted"
    return GcItem(path=path, kind=item.kind, action="delete", reasons=(gone,))


def _plan_trashed(item: TrashedFacts, policy: GcPolicy, *, is_needed: bool) -> GcItem:
    path = f"{TRASH_FOLDER}/{item.entry}"
    if item.state == "going":
        return GcItem(path=path, kind="trashed", action="delete", reasons=("its deletion was interrupted",))
    if item.state == "foreign":
        return GcItem(path=path, kind="trashed", action="keep", reasons=("ckptctl did not put it here",))
    if item.pin_reason is not None:
        return GcItem(path=path, kind="trashed", action="keep", reasons=(f"pinned: {item.pin_reason}",))
    if item.age_s is None:
        return GcItem(
            path=path, kind="trashed", action="keep", reasons=("the clock cannot be believed, so its age is unknown",)
        )
    if not _is_over(item, policy.grace_period_s):
        until = f"its grace period ends {_ends(item, policy)}; `--undelete` brings it back"
        return GcItem(path=path, kind="trashed", action="keep", reasons=(until,))
    if is_needed:
        return GcItem(path=path, kind="trashed", action="keep", reasons=_needed_reasons(item, policy))
    return GcItem(path=path, kind="trashed", action="delete", reasons=("its grace period is over",))


def _needed_reasons(item: TrashedFacts, policy: GcPolicy) -> tuple[str, ...]:
    few = "no valid snapshot" if policy.min_valid_copies == 1 else f"fewer than {policy.min_valid_copies} valid ones"
    reason = f"its grace period is over, but `{item.anchor}` has {few} without it; `--undelete` brings it back"
    return (reason,) if item.doubt is None else (reason, f"it may be valid: {item.doubt}")


def _ends(item: TrashedFacts, policy: GcPolicy) -> str:
    """A date, not a number of seconds left: a plan that is made again a moment later must read the same."""
    found = parse_trash_entry(item.entry)
    try:
        ends = datetime.fromtimestamp((0 if found is None else found[0]) + policy.grace_period_s, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return "far in the future"
    return f"on {ends:%Y-%m-%d at %H:%M:%S} UTC"


def _assert_plan(plan: GcPlan, facts: GcFacts, policy: GcPolicy) -> None:
    going = {item.path for item in plan.items if item.action != "keep"}
    for anchor in {*facts.anchors, *(snapshot.anchor for snapshot in facts.snapshots)}:
        valid = [
            snapshot_path(anchor, item.name) for item in facts.snapshots if item.anchor == anchor and item.is_valid
        ]
        if anchor in facts.anchors:
            valid += [f"{TRASH_FOLDER}/{item.entry}" for item in in_trash(anchor, facts) if item.is_valid]
        enough = len(set(valid) - going) >= min(policy.min_valid_copies, len(valid))
        assert enough or _is_superseded(anchor, facts), f"`{anchor}` would lose its last valid snapshots"
    protected = {
        snapshot_path(item.anchor, item.name)
        for item in facts.snapshots
        if item.pin_reason is not None or item.used_by is not None
    }
    protected |= {f"{TRASH_FOLDER}/{item.entry}" for item in facts.trashed if item.pin_reason and item.state == "whole"}
    assert not protected & going, "a pinned snapshot, or one in use, would go"
