"""What garbage collection keeps and deletes, over arbitrary checkpoint directories."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptctl.domain.retention import (
    GcFacts,
    GcItem,
    GcPolicy,
    LeftoverFacts,
    SnapshotFacts,
    TrashedFacts,
    parse_trash_entry,
    snapshot_path,
    trash_entry,
    trashed_snapshot,
)
from ckptctl.planning.gc import is_superseded, plan_gc, proofs_wanted

ANCHORS = ("bootstrap", "step_2", "step_10")
DAY_S, HOUR_S = 86_400.0, 3_600.0


def a_snapshot(number: int, anchor: str = "step_2", **facts) -> SnapshotFacts:
    return SnapshotFacts(anchor=anchor, name=f"snapshot_{number:06d}", number=number, **facts)


@st.composite
def snapshots(draw) -> tuple[SnapshotFacts, ...]:
    found = []
    for anchor in ANCHORS:
        for number in draw(st.sets(st.integers(1, 9), max_size=5)):
            is_valid = draw(st.sampled_from((True, False, None)))
            doubt = draw(st.sampled_from((None, "incomplete: cannot be read"))) if is_valid is None else None
            found.append(
                a_snapshot(
                    number,
                    anchor,
                    is_valid=is_valid,
                    doubt=doubt,
                    pin_reason=draw(st.sampled_from((None, None, None, "a reason"))),
                    used_by=draw(st.sampled_from((None, None, None, "the unfinished snapshot `ck`"))),
                )
            )
    return tuple(draw(st.permutations(found)))


ages = st.sampled_from((None, 0.0, 50.0, 99.0, 100.0, 5_000.0))
leftovers = st.lists(
    st.builds(
        lambda anchor, kind, number, age_s, used_by: LeftoverFacts(
            anchor=anchor, name=f"{kind}_snapshot_{number:06d}", kind=kind, age_s=age_s, used_by=used_by
        ),
        st.sampled_from(ANCHORS),
        st.sampled_from(("tmp", "trash")),
        st.integers(1, 3),
        ages,
        st.sampled_from((None, None, "the unfinished snapshot `ck`")),
    ),
    max_size=4,
    unique_by=lambda item: (item.anchor, item.name),
)
trashed = st.lists(
    st.builds(
        lambda at, number, age_s, state, is_valid: TrashedFacts(
            entry=f"{'going.' if state == 'going' else ''}{at}.step_2.snapshot_{number:06d}",
            anchor="step_2",
            name=f"snapshot_{number:06d}",
            age_s=age_s,
            state=state,
            is_valid=is_valid,
        ),
        st.integers(1, 5),
        st.integers(1, 2),
        ages,
        st.sampled_from(("whole", "whole", "going", "foreign")),
        st.sampled_from((True, False, None)),
    ),
    max_size=3,
    unique_by=lambda item: item.entry,
)
facts = st.builds(
    lambda found, beside, gone, steps, there: GcFacts(
        snapshots=found,
        leftovers=tuple(beside),
        trashed=tuple(gone),
        durable_steps=tuple(sorted(steps)),
        anchors=there,
    ),
    snapshots(),
    leftovers,
    trashed,
    st.sets(st.sampled_from(("step_2", "step_10"))),
    st.sampled_from((ANCHORS, ANCHORS, ("bootstrap",))),
)
policies = st.builds(
    GcPolicy,
    keep_latest_k=st.integers(1, 3),
    min_valid_copies=st.integers(1, 3),
    grace_period_s=st.just(100.0),
)


def going(items) -> set[str]:
    return {item.path for item in items if item.action != "keep"}


def applied(known: GcFacts, items: tuple[GcItem, ...]) -> GcFacts:
    """The directory after these items of a plan were executed."""
    gone = going(items)
    moved = [
        TrashedFacts(entry=f"9.{item.anchor}.{item.name}", anchor=item.anchor, name=item.name, age_s=0.0)
        for item in known.snapshots
        if snapshot_path(item.anchor, item.name) in gone
    ]
    kept = [item for item in known.trashed if f".ckptctl/trash/{item.entry}" not in gone]
    return known.model_copy(
        update={
            "snapshots": tuple(item for item in known.snapshots if snapshot_path(item.anchor, item.name) not in gone),
            "leftovers": tuple(item for item in known.leftovers if snapshot_path(item.anchor, item.name) not in gone),
            "trashed": (*kept, *moved),
        }
    )


def of_anchor(known: GcFacts, anchor: str) -> list[SnapshotFacts]:
    """Newest first."""
    return sorted((item for item in known.snapshots if item.anchor == anchor), key=lambda item: -item.number)


@settings(max_examples=150, deadline=None)
@given(facts, policies)
def test_what_must_stay_stays(known, policy) -> None:
    """Newest k, newest valid copies, whatever may be valid among them, pinned ones and those in use; bootstrap may be superseded."""
    gone = going(plan_gc(known, policy).items)
    must: set[str] = set()
    for anchor in ANCHORS:
        mine = of_anchor(known, anchor)
        must.update(snapshot_path(anchor, item.name) for item in mine if item.pin_reason or item.used_by)
        if anchor == "bootstrap" and is_superseded(known):
            continue
        must.update(snapshot_path(anchor, item.name) for item in mine[: policy.keep_latest_k])
        valid = [item for item in mine if item.is_valid][: policy.min_valid_copies]
        must.update(snapshot_path(anchor, item.name) for item in valid)
        oldest = valid[-1].number if len(valid) == policy.min_valid_copies else 0
        must.update(snapshot_path(anchor, item.name) for item in mine if item.doubt and item.number > oldest)

    assert set() == must & gone


@settings(max_examples=150, deadline=None)
@given(facts, policies)
def test_valid_copies_in_the_trash_count_until_they_are_gone(known, policy) -> None:
    """A plan takes no valid copy from an anchor that is there while it has too few, wherever they lie; else nothing old stays."""
    gone = going(plan_gc(known, policy).items)
    whole = [item for item in known.trashed if item.state == "whole"]
    old = [item for item in whole if item.age_s is not None and item.age_s >= policy.grace_period_s]
    visible = sum(item.is_valid is True for item in of_anchor(known, "step_2"))
    valid = [item for item in whole if item.is_valid is True]
    kept = [item for item in valid if f".ckptctl/trash/{item.entry}" not in gone]
    if "step_2" in known.anchors:
        assert visible + len(kept) >= min(policy.min_valid_copies, visible + len(valid))
    if "step_2" not in known.anchors or visible >= policy.min_valid_copies:
        assert {f".ckptctl/trash/{item.entry}" for item in old} <= gone


@settings(max_examples=100, deadline=None)
@given(facts, policies)
def test_every_item_once_and_with_reasons(known, policy) -> None:
    """Whatever was found is in the plan, kept or not, and says why."""
    items = plan_gc(known, policy).items
    found = {snapshot_path(item.anchor, item.name) for item in (*known.snapshots, *known.leftovers)}
    found |= {f".ckptctl/trash/{item.entry}" for item in known.trashed}

    assert found == {item.path for item in items}
    assert len(found) == len(items)
    assert all(item.reasons and all(item.reasons) for item in items)


@settings(max_examples=100, deadline=None)
@given(facts, policies)
def test_unknown_ages_and_strangers_are_left_alone(known, policy) -> None:
    """Where the clock cannot be believed nothing is deleted because of its age, and nothing that we did not put there at all."""
    gone = going(plan_gc(known, policy).items)
    young = {
        snapshot_path(item.anchor, item.name)
        for item in known.leftovers
        if item.age_s is None or item.age_s < (max(policy.grace_period_s, HOUR_S) if item.kind == "tmp" else HOUR_S)
    }
    whole = {
        f".ckptctl/trash/{item.entry}"
        for item in known.trashed
        if item.state == "foreign"
        or (item.state == "whole" and (item.age_s is None or item.age_s < policy.grace_period_s))
    }

    assert set() == (young | whole) & gone


@settings(max_examples=100, deadline=None)
@given(facts, policies)
def test_planning_at_the_goal_is_empty(known, policy) -> None:
    """When everything was done there is nothing left to do."""
    after = applied(known, plan_gc(known, policy).items)

    assert set() == going(plan_gc(after, policy).items)


@settings(max_examples=100, deadline=None)
@given(facts, policies, st.integers(0, 12))
def test_an_interrupted_plan_is_a_normal_beginning(known, policy, done) -> None:
    """After any first part of a plan the next plan is the rest of it."""
    items = plan_gc(known, policy).items
    after = applied(known, items[:done])

    assert going(items[done:]) == going(plan_gc(after, policy).items)


def test_reasons_of_an_anchor_with_damaged_snapshots() -> None:
    """Each kept and each deleted one says everything that counts for it."""
    known = GcFacts(
        snapshots=(
            a_snapshot(5, is_valid=False),
            a_snapshot(4, is_valid=None, doubt="incomplete: not readable"),
            a_snapshot(3, is_valid=True),
            a_snapshot(2, pin_reason="audit"),
            a_snapshot(1),
        )
    )
    told = {
        item.path.rpartition("_")[2]: (item.action, item.reasons)
        for item in plan_gc(known, GcPolicy(keep_latest_k=1)).items
    }

    assert {
        "000005": ("keep", ("the newest of `step_2`",)),
        "000004": (
            "keep",
            ("it may be valid, and there are not enough newer ones that are: incomplete: not readable",),
        ),
        "000003": ("keep", ("newest valid snapshot of `step_2`",)),
        "000002": ("keep", ("pinned: audit",)),
        "000001": ("trash", ("older than the newest of `step_2`", "`snapshot_000003` is valid and stays")),
    } == told


def test_an_invalid_one_says_so() -> None:
    """When nothing is valid the newest k stay, and the others say that they are not."""
    known = GcFacts(snapshots=tuple(a_snapshot(number, is_valid=False) for number in (1, 2, 3)))
    [item] = plan_gc(known, GcPolicy(keep_latest_k=2)).of("trash")

    assert ("step_2/rollout_snapshots/snapshot_000001", ("older than the newest 2 of `step_2`", "it is not valid")) == (
        item.path,
        item.reasons,
    )


@pytest.mark.parametrize(
    ("is_valid", "durable", "goes"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_bootstrap_goes_once_a_durable_step_has_a_valid_snapshot(is_valid, durable, goes) -> None:
    """A step that is not durable, or has nothing valid, changes nothing for bootstrap."""
    known = GcFacts(
        snapshots=(a_snapshot(1, "bootstrap", is_valid=True), a_snapshot(1, is_valid=is_valid)),
        durable_steps=("step_2",) if durable else (),
    )
    bootstrap, _ = plan_gc(known, GcPolicy(keep_latest_k=2)).items

    assert ("trash" if goes else "keep") == bootstrap.action


def test_anchors_stand_in_their_order() -> None:
    """Bootstrap, then steps by number, each with its newest snapshot first."""
    known = GcFacts(
        snapshots=tuple(a_snapshot(number, anchor) for anchor in reversed(ANCHORS) for number in (1, 10, 9))
    )
    paths = [item.path.split("/")[0::2] for item in plan_gc(known, GcPolicy(keep_latest_k=9)).items]

    assert [[anchor, f"snapshot_{number:06d}"] for anchor in ANCHORS for number in (10, 9, 1)] == paths


def test_proofs_are_asked_only_where_something_might_go() -> None:
    """Crowded anchors need all their valid copies, a durable step one while bootstrap has something, others none."""
    known = GcFacts(
        snapshots=(
            *(a_snapshot(number, "step_10") for number in (1, 2, 3)),
            a_snapshot(1, "step_2"),
            a_snapshot(1, "step_1"),
            a_snapshot(1, "bootstrap"),
        ),
        durable_steps=("step_2",),
    )

    assert (("step_10", 2), ("step_2", 1)) == proofs_wanted(known, GcPolicy(keep_latest_k=2, min_valid_copies=2))
    without_bootstrap = known.model_copy(update={"snapshots": known.snapshots[:-1]})
    assert (("step_10", 1),) == proofs_wanted(without_bootstrap, GcPolicy(keep_latest_k=2))
    assert () == proofs_wanted(without_bootstrap, GcPolicy(keep_latest_k=3))


def test_proofs_are_asked_where_the_trash_is_to_be_emptied() -> None:
    """Of an anchor that is there, with all its valid copies; of bootstrap a durable step's one comes first."""

    def old(anchor, age_s=DAY_S, state="whole"):
        return TrashedFacts(
            entry=f"1.{anchor}.snapshot_000001", anchor=anchor, name="snapshot_000001", age_s=age_s, state=state
        )

    def wanted(*trashed):
        known = GcFacts(
            snapshots=(a_snapshot(2),), trashed=trashed, anchors=("bootstrap", "step_2"), durable_steps=("step_2",)
        )
        return proofs_wanted(known, GcPolicy(min_valid_copies=2))

    assert (("step_2", 2),) == wanted(old("step_2"))
    assert (("step_2", 1), ("bootstrap", 2)) == wanted(old("bootstrap"))
    assert () == wanted(
        old("step_9"), old("step_2", age_s=5.0), old("step_2", age_s=None), old("step_2", state="going")
    )


def test_a_pin_keeps_in_the_trash_too() -> None:
    """For as long as it is there, and only what it names."""
    old = [
        TrashedFacts(entry=f"1.step_9.{name}", anchor="step_9", name=name, age_s=DAY_S, pin_reason=reason)
        for name, reason in (("snapshot_000001", "audit"), ("snapshot_000002", None))
    ]
    pinned, other = plan_gc(GcFacts(snapshots=(), trashed=tuple(old)), GcPolicy()).items

    assert ("keep", ("pinned: audit",), "delete") == (pinned.action, pinned.reasons, other.action)


def test_where_one_was_renamed_all_of_the_anchor_stay() -> None:
    """Its numbers do not tell which is newer."""
    known = GcFacts(snapshots=tuple(a_snapshot(number, is_valid=True, disorder="`x` was `y`") for number in (1, 2)))

    assert () == plan_gc(known, GcPolicy(keep_latest_k=1)).of("trash")


def test_why_something_stays_in_the_trash() -> None:
    """What is missing without it, and what is not known of it."""
    known = GcFacts(
        snapshots=(a_snapshot(3, is_valid=True),),
        trashed=(
            TrashedFacts(
                entry="1.step_2.snapshot_000002",
                anchor="step_2",
                name="snapshot_000002",
                age_s=DAY_S,
                doubt="incomplete: cannot be read",
            ),
        ),
        anchors=("step_2",),
    )
    [item] = plan_gc(known, GcPolicy(min_valid_copies=2)).items[1:]

    assert (
        "its grace period is over, but `step_2` has fewer than 2 valid ones without it; `--undelete` brings it back",
        "it may be valid: incomplete: cannot be read",
    ) == item.reasons


def test_the_end_of_a_grace_period_is_a_date() -> None:
    """A plan that is made again a second later reads the same; a date beyond all calendars is told as that."""
    entry = trash_entry(1_790_000_000, "step_2", "snapshot_000001")
    young = TrashedFacts(entry=entry, anchor="step_2", name="snapshot_000001", age_s=3.0)
    [item] = plan_gc(GcFacts(snapshots=(), trashed=(young,)), GcPolicy()).items
    [far] = plan_gc(GcFacts(snapshots=(), trashed=(young,)), GcPolicy(grace_period_s=1e15)).items

    assert ("its grace period ends on 2026-09-22 at 14:13:20 UTC; `--undelete` brings it back",) == item.reasons
    assert ("its grace period ends far in the future; `--undelete` brings it back",) == far.reasons


@pytest.mark.parametrize(
    "entry",
    [
        "5.step_1",
        "x.step_1.snapshot_000001",
        "5.step_x.snapshot_000001",
        "5.step_1.tmp_snapshot_000001",
        "5....",
        "٥.step_1.snapshot_000001",
        f"{'9' * 16}.step_1.snapshot_000001",
    ],
)
def test_names_that_are_no_entries(entry) -> None:
    """Only an entry that names a place is ever brought back to one."""
    assert trashed_snapshot(entry) is None


def test_an_entry_says_when_and_whence() -> None:
    """The name of an entry is read as it was written; a `tmp_` that is going has one too, but no place."""
    assert (7, "bootstrap", "snapshot_12") == trashed_snapshot(trash_entry(7, "bootstrap", "snapshot_12"))
    assert (7, "step_1", "tmp_snapshot_000001") == parse_trash_entry(trash_entry(7, "step_1", "tmp_snapshot_000001"))
