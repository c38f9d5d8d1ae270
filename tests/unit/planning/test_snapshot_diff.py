"""What two snapshots say of each other: every way in which something moved, once as a run does it and once as nothing explains it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from ckptctl.domain.controller import Acknowledgement
from ckptctl.domain.evidence import Part
from ckptctl.domain.participant import Execution
from ckptctl.planning.snapshot_diff import compare_snapshots
from tests.builders import DROP, a_bootstrap_world, an_evidence
from tests.world import STAGING, a_completion, a_replay_group, an_attempt

G7 = "ledger value groups 0"
G7_0, G7_1, G8_1 = f"{G7} siblings 0 attempts", f"{G7} siblings 1 attempts", "ledger value groups 1 siblings 1 attempts"
BOUNDARY = "agents 0 records *"
SESSION = "resources 0 sessions g7_g0.a1.json"
STEP = {"manifest manifest base_train_step": 4}
NEW_ID = {"manifest manifest gym_checkpoint checkpoint_id": "another"}
TOMBSTONE = {
    "models 0 manifest value tombstones": lambda known: [*known, Execution(rollout_id="g7_g0", attempt_index=1)]
}
MISSING = Part("x", "damaged")
OWED = Acknowledgement(receipt=a_completion("g7_g1"), agent_name="policy_agent")


def compared(newer=None, older=None, *, rewound=False):
    """(kind, area, subject, message) of every change from the default world, or an edit of it, to another edit of it."""
    before, after = an_evidence(older or {}), an_evidence({**NEW_ID, **(newer or {})})
    changes, _ = compare_snapshots(before, after, rewound=rewound)
    return [(item.kind, item.area, item.subject, item.message) for item in changes]


def test_nothing_happened() -> None:
    """Two snapshots of the same moment differ in nothing that rollouts did."""
    assert [] == compared()


def test_the_numbers_of_both() -> None:
    """Every number of both sides; unknown where a part cannot be read."""
    parts = {"ledger": MISSING, "replay": MISSING, "controller_state": MISSING, f"{BOUNDARY}": MISSING}
    broken = an_evidence({**parts, SESSION: MISSING, "manifest manifest": None})
    _, known = compare_snapshots(an_evidence(), an_evidence())
    _, unknown = compare_snapshots(an_evidence(), broken)
    found = {item.name: item.before for item in known}

    assert found == {item.name: item.after for item in known}
    assert (3, 2, 1, 2, 2, 4, 1, 4, 13) == tuple(
        found[name]
        for name in (
            "train step", "unfinished groups", "sealed results", "finished groups", "boundaries", "turns in them",
            "sessions", "their revisions", "rows",
        )
    )  # fmt: skip
    assert {None} == {item.after for item in unknown if item.name != "bytes"}


@pytest.mark.parametrize("name", ["ledger", "replay", "controller_state", BOUNDARY, SESSION, "manifest manifest"])
def test_what_cannot_be_read_is_not_lost(name) -> None:
    """A damaged part is no loss and no progress: nothing is said of it, on either side."""
    damaged = {name: None if name == "manifest manifest" else MISSING}

    assert [] == compared(damaged)
    assert [] == compared({}, damaged)


PROGRESS = [
    (STEP, {}, "run", "train step", "went on"),
    ({"ledger value groups": lambda groups: groups}, {"ledger value groups": lambda groups: groups[1:]}, "group", "g7", "is new"),
    ({"ledger value groups": lambda groups: groups[1:], "replay value groups": lambda groups: [*groups, a_replay_group("g7", [{}, {}])]}, {}, "group", "g7", "is finished"),
    ({**STEP, "replay value groups": lambda groups: groups[1:]}, {}, "group", "g5", "left the finished groups while the step went on"),
    ({}, {f"{G7_1} 0 status": "dispatched"}, "rollout", "g7_g1", "is sealed"),
    ({}, {f"{G8_1} 0 status": "reserved"}, "rollout", "g8_g1", "is dispatched"),
    ({f"{BOUNDARY} value boundary_index": 4}, {}, "boundary", "g7_g0", "went on"),
    ({}, {"agents 0 records": lambda records: dict(list(records.items())[1:])}, "boundary", "g7_g0", "is new"),
    ({f"{SESSION} value state_revision": 5}, {}, "session", "g7_g0", "on tools went on"),
    ({"ledger value pending_completed_execution_acknowledgements": [OWED]}, {}, "result", "g7_g1", "attempt 0 is complete"),
    ({}, {"ledger value pending_completed_execution_acknowledgements": [OWED]}, "result", "g7_g1", "no acknowledgement is owed"),
]  # fmt: skip


@pytest.mark.parametrize(("newer", "older", "area", "subject", "message"), PROGRESS)
def test_progress(newer, older, area, subject, message) -> None:
    """What a run does between two snapshots is progress, and nothing in it is unexpected."""
    found = compared(newer, older)

    assert [("progressed", area, subject)] == [item[:3] for item in found if message in item[3]]
    assert {"progressed", "changed"} >= {item[0] for item in found}


BACKWARDS = [
    ({"manifest manifest trainer_version": 2}, {}, "run", "trainer version", "went backwards"),
    ({"ledger value groups": lambda groups: groups[1:]}, {}, "group", "g7", "vanished, 2 rollouts"),
    ({"replay value groups": lambda groups: groups[1:]}, {}, "group", "g5", "finished work vanished"),
    ({"ledger value groups 0 group_id": "g5", "replay value groups": lambda groups: groups[1:]}, {"ledger value groups": lambda groups: groups[1:]}, "group", "g5", "was finished and is unfinished again"),
    ({f"{G7_0}": lambda attempts: attempts[:1]}, {}, "rollout", "g7_g0", "is back at an earlier attempt"),
    ({f"{G7_1} 0 status": "dispatched"}, {}, "rollout", "g7_g1", "a finished result is gone"),
    ({}, {f"{G8_1} 0 status": "failed"}, "rollout", "g8_g1", "an attempt that was over goes on"),
    ({f"{G8_1} 0 status": "reserved"}, {}, "rollout", "g8_g1", "was dispatched and is only reserved"),
    ({f"{G7_1}": lambda attempts: [*attempts, an_attempt(1)]}, {}, "rollout", "g7_g1", "a finished result is generated again"),
    ({f"{BOUNDARY} value boundary_index": 2}, {}, "boundary", "g7_g0", "the boundary went backwards"),
    ({f"{BOUNDARY} value attempt_index": 0}, {}, "boundary", "g7_g0", "the boundary is an earlier attempt's"),
    ({"agents 0 records": lambda records: dict(list(records.items())[1:])}, {}, "boundary", "g7_g0", "the boundary is gone while the attempt goes on"),
    ({f"{SESSION} value state_revision": 3}, {}, "session", "g7_g0", "on tools has a smaller revision"),
    ({f"{SESSION} value attempt_index": 0}, {}, "session", "g7_g0", "on tools belongs to an earlier attempt"),
]  # fmt: skip


@pytest.mark.parametrize(("newer", "older", "area", "subject", "message"), BACKWARDS)
def test_a_step_backwards(newer, older, area, subject, message) -> None:
    """Nothing explains it, unless a restore between the two went back further: then it is a loss, and says why."""
    found, explained = compared(newer, older), compared(newer, older, rewound=True)

    assert [("unexpected", area, subject)] == [item[:3] for item in found if message in item[3]]
    assert [("lost", area, subject, True)] == [
        (*item[:3], "as a restore between the two went back further" in item[3])
        for item in explained
        if message in item[3]
    ]


LATER = {f"{G7_0}": lambda attempts: [*attempts, an_attempt(2)]}
LOSSES = [
    ({"ledger value groups": lambda groups: groups[1:], **TOMBSTONE}, {}, "group", "g7", "was given up, 2 rollouts: the policy model was told so"),
    ({"ledger value groups": lambda groups: groups[1:], "ledger value batch_shortfall": {4: 2}}, {}, "group", "g7", "the batch shortfall grew"),
    ({f"{G8_1} 0 status": "failed"}, {}, "rollout", "g8_g1", "its attempt failed"),
    ({f"{G7_1}": lambda attempts: [*attempts, an_attempt(1)], f"{G7} recovery_granularity": "prompt_group"}, {f"{G7} recovery_granularity": "prompt_group"}, "rollout", "g7_g1", "with its group"),
    ({**LATER, "agents 0 records": lambda records: dict(list(records.items())[1:])}, {}, "boundary", "g7_g0", "a later attempt has no boundary yet"),
    ({**LATER, f"{BOUNDARY} value attempt_index": 2, f"{BOUNDARY} value boundary_index": 1}, {}, "boundary", "g7_g0", "a later attempt is behind"),
    ({f"{SESSION} value attempt_index": 2, f"{SESSION} value state_revision": 1}, {}, "session", "g7_g0", "on tools has a smaller revision: a later attempt began again"),
]  # fmt: skip


@pytest.mark.parametrize(("newer", "older", "area", "subject", "message"), LOSSES)
def test_losses(newer, older, area, subject, message) -> None:
    """Work that is done again or given up, for a reason that the snapshots themselves tell."""
    assert [("lost", area, subject)] == [item[:3] for item in compared(newer, older) if message in item[3]]


ALWAYS = [
    ({f"{G7} start_weight_version": 2}, "group", "g7", "the weights that it began with changed"),
    ({f"{G7_1} 0 completion_receipt": a_completion("g7_g1", result_digest="cd" * 32)}, "rollout", "g7_g1", "the result of a sealed attempt is another one"),
    ({f"{BOUNDARY} value last_committed_model_call_id": "call-8"}, "boundary", "g7_g0", "the same boundary stands after another call"),
    ({"resources 0 sessions": {}}, "session", "g7_g0", "the session on tools is gone, and its boundary needs it"),
    ({f"controller_state value partitions {STAGING} keys g7_g0/call-5": DROP}, "row", "g7_g0/call-5", "the row is missing, and attempt 1 of g7_g0 needs it"),
    ({f"controller_state value partitions {STAGING} keys g7_g1/call-1": DROP}, "row", "g7_g1/call-1", "the row is missing, and the result of g7_g1 needs it"),
    ({"replay value groups 0 meta sample_ids": ["g5_g0"]}, "group", "g5", "finished rows are missing: g5_g1"),
    ({"replay value groups 0 end_weight": 2}, "group", "g5", "the weights of a finished group changed"),
    ({"models 0 lineage *": MISSING}, "row", "g7_g0", "did not move, but needs other rows"),
]  # fmt: skip


@pytest.mark.parametrize(("newer", "area", "subject", "message"), ALWAYS)
def test_what_no_restore_explains(newer, area, subject, message) -> None:
    """It is unexpected with a restore between the two as without."""
    for rewound in (False, True):
        found = compared(newer, rewound=rewound)
        assert [("unexpected", area, subject)] == [item[:3] for item in found if message in item[3]]


def test_older_weights() -> None:
    """The newest call of an attempt was generated with older weights than before."""
    place, part = next(iter(an_evidence().models[0].lineage.items()))
    assert "g7_g0-a1" in str(place)
    rows = part.value
    stale = tuple(
        msgspec.structs.replace(row, weight_version=None if row.weight_version is None else 1) for row in rows
    )
    newer = an_evidence(NEW_ID)
    model = replace(newer.models[0], lineage={**newer.models[0].lineage, place: replace(part, value=stale)})
    changes, _ = compare_snapshots(an_evidence(), replace(newer, models=(model,)))

    assert [("unexpected", "g7_g0-a1", "3", "1")] == [
        (item.kind, item.subject, item.before, item.after) for item in changes
    ]


def test_other_runs() -> None:
    """Fingerprints, participants and Gym state tell that two snapshots are of runs that are set up differently."""
    other = {"manifest manifest gym_topology_fingerprint": "ab" * 32}
    unknown = {"manifest manifest gym_topology_fingerprint": None}
    fewer = {"manifest manifest gym_checkpoint participants": lambda entries: entries[1:]}
    no_gym, _ = compare_snapshots(an_evidence(world=a_bootstrap_world()), an_evidence())
    changes, _ = compare_snapshots(an_evidence(), an_evidence({**NEW_ID, **other, **fewer}))

    assert ["topology", "is gone from the snapshot"] == [
        item.subject if item.area == "run" else item.message for item in changes if item.incompatible
    ]
    assert ("run", "Gym state", "none", "5 participants") in [
        (item.area, item.subject, item.before, item.after) for item in no_gym if item.incompatible
    ]
    assert [] == compared(unknown)
    assert () == compare_snapshots(*[an_evidence(world=a_bootstrap_world())] * 2)[0]
    assert "was not in the older snapshot" in str(compared({}, fewer))


def test_one_checkpoint_id_twice() -> None:
    """Two snapshots never share one."""
    changes, _ = compare_snapshots(an_evidence(), an_evidence())

    assert ["both snapshots have the same checkpoint id"] == [item.message for item in changes]


def test_what_left_while_the_step_went_on() -> None:
    """An unfinished group may have been trained or given up: the snapshots do not say, so neither does the answer."""
    found = compared({**STEP, "ledger value groups": lambda groups: groups[1:]})

    assert ("changed", "group", "g7", "left the ledger while the step went on: trained or given up") in found


def test_a_later_attempt() -> None:
    """It takes over, and may be sealed already; what became of the boundary is told by itself."""
    sealed = {f"{G8_1}": lambda attempts: [*attempts, an_attempt(1, "sealed")]}

    assert ["a later attempt took over", "is sealed"] == [item[3] for item in compared(sealed)]
    assert [("changed", "rollout", "g7_g0")] == [item[:3] for item in compared(LATER) if "took over" in item[3]]


def test_boundaries_that_are_needed_no_more() -> None:
    """A sealed rollout has none; one whose group is gone is told with the group."""
    gone = {"agents 0 records": lambda records: dict(list(records.items())[1:])}
    sealed = {
        f"{G7_0} 1 status": "sealed",
        **gone,
        "agents 0 continuations value": lambda rows: rows[1:],
        "resources 0 sessions": {},
    }

    assert [("progressed", "rollout", "g7_g0", "is sealed")] == compared(sealed)


def test_order_of_the_answer() -> None:
    """What nobody expects stands first."""
    newer = {**STEP, f"{G8_1} 0 status": "failed", f"{BOUNDARY} value boundary_index": 2}

    assert ["unexpected", "lost", "progressed"] == [item[0] for item in compared(newer)]
