"""The story of one rollout: what each part says of it, side by side, and what a restore does with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckptctl.domain.controller import Acknowledgement
from ckptctl.domain.evidence import Part, TreeEntry
from ckptctl.domain.finding import Finding
from ckptctl.planning.restored_facts import plan_from, siblings_of_ledger
from ckptctl.planning.rollout_rows import attempt_of
from ckptctl.planning.rollout_story import known_rollouts, names_it, tell_story
from tests.builders import DROP, a_bootstrap_world, an_evidence
from tests.world import STAGING, a_completion, a_record, a_session

ROWS = f"controller_state value partitions {STAGING}"


def story(rollout: str, changes=None, verdict="valid", **facts):
    return tell_story(an_evidence(changes, **facts), rollout, verdict)


def attempts(found):
    return {item.attempt_index: item for item in found.attempts}


def test_a_rollout_in_flight() -> None:
    """Ledger, boundary, session, model calls and staged rows of each attempt, and the restore planner's answer."""
    found = story("g7_g0")
    first, current = attempts(found).values()

    assert ("g7", "generating", 0, 2) == (
        found.group.group_id,
        found.group.status,
        found.group.generation_index,
        found.group.expected_generations,
    )
    assert {"g7_g0": "attempt 1 dispatched", "g7_g1": "attempt 0 sealed"} == found.group.siblings
    assert ("abandoned", False, None, ()) == (first.status, first.is_current, first.boundary, first.calls)
    assert ["g7_g0/call-5"] == [row.key for row in first.rows]
    assert ("boundary of attempt 1",) == first.rows[0].needed_by
    assert ("dispatched", True, "g7_g0-a1") == (current.status, current.is_current, current.capture_key)
    assert ("turn_complete", "call-9", {"tools": 4}) == (
        current.boundary.kind,
        current.boundary.last_call,
        current.boundary.revisions,
    )
    assert [("tools", 4, 4, 4)] == [
        (item.server_name, item.revision, item.wanted_revision, item.recorded_answers) for item in current.sessions
    ]
    assert [("call-8", False, None), ("call-9", True, None), ("call-10", False, "failed: timeout")] == [
        (call.model_call_id, call.is_boundary, call.problem) for call in current.calls
    ]
    assert [("stored", 24), ("stored", 24)] == [(row.state, row.fields) for row in current.rows]
    assert "g7_g0-a1" in current.rows[0].tags["rollout_id"]
    assert ("continue", 1, 2, "boundary restored") == (
        found.fate.decision,
        found.fate.source_attempt,
        found.fate.replacement_attempt,
        found.fate.reason,
    )


@pytest.mark.parametrize("rollout", ["g7_g0", "g7_g1", "g8_g0", "g8_g1"])
def test_the_fate_is_the_planner_s(rollout) -> None:
    """What is told is what `restore --plan` says of the same snapshot."""
    evidence = an_evidence()
    plan = plan_from(evidence, siblings_of_ledger(evidence))
    planned = {item.rollout_id: (item.mode, item.reason) for item in plan.redispatch}
    planned |= {item.rollout_id: ("reuse", "the attempt is sealed") for item in plan.reused}
    fate = tell_story(evidence, rollout, "valid").fate

    assert planned[rollout] == (fate.decision, fate.reason)


def test_sealed_finished_and_over() -> None:
    """A sealed result, a finished group with its route plan, and an attempt that a policy model was told to be over."""
    [sealed] = story("g7_g1").attempts
    routed, plain = story("g6_g0"), story("g5_g1")
    [over] = story("g8_g1").attempts

    assert ("sealed", 1.0, "result-g7_g1") == (sealed.status, sealed.reward, sealed.result)
    assert {("receipt of attempt 0",)} == {row.needed_by for row in sealed.rows}
    assert ("finished", "finished", 1, None) == (
        routed.fate.decision,
        plain.fate.decision,
        routed.finished.route_plan_rows,
        plain.finished.route_plan_rows,
    )
    assert ("stored", 7, ("finished group g6",)) == (
        routed.finished.row.state,
        routed.finished.row.fields,
        routed.finished.row.needed_by,
    )
    assert [("route plan of g6_g0",)] == [row.needed_by for row in routed.attempts[0].rows]
    assert () == plain.attempts
    assert (True, [()]) == (over.is_tombstone, [row.needed_by for row in over.rows])


def test_a_dropped_boundary() -> None:
    """Restarted, because its server saved no state: boundary and rows go, what others need stays, its session is nobody's."""
    lost = {"agents 0 records * value resource_state_revisions": {"judge": 1}}
    lost["agents 0 continuations value 0 resource_state_revisions"] = {"judge": 1}
    fate = story("g7_g0", lost).fate

    assert ("restart", True) == (fate.decision, fate.drops_boundary)
    assert "judge" in fate.reason
    assert ("g7_g0-a1/call-8", "g7_g0-a1/call-9", "g7_g0/call-5") == fate.cleared_rows
    assert ("tools",) == fate.unclaimed_sessions


def test_only_a_valid_snapshot_has_a_plan() -> None:
    """Of others it is said that a restore does not take them, whatever the planner would make of them."""
    twice = {"ledger value groups": lambda groups: [*groups, groups[0]]}
    found = story("g7_g0", twice, "invalid")

    assert ("refused", "the snapshot is invalid: a restore does not take it") == (
        found.fate.decision,
        found.fate.reason,
    )
    assert 2 == len(found.attempts)


def test_what_only_participants_name() -> None:
    """A session and a receipt that is owed, without an entry of the ledger: nothing is dispatched for them."""
    owed = Acknowledgement(receipt=a_completion("stray_g0", 2), agent_name="policy_agent")
    session = Part("resources/tools/stray_g0.a3.json", "decoded", a_session("stray_g0", 3))
    changes = {
        "ledger value pending_completed_execution_acknowledgements": [owed],
        "resources 0 sessions stray": session,
    }
    found = story("stray_g0", changes)

    assert ("nothing", None, None) == (found.fate.decision, found.group, found.finished)
    assert {2: "policy_agent", 3: None} == {index: item.owed_to for index, item in attempts(found).items()}
    assert [None] == [item.wanted_revision for item in attempts(found)[3].sessions]
    assert ("tools",) == found.fate.unclaimed_sessions
    assert "stray_g0" in known_rollouts(an_evidence(changes))


def test_nobody_names_it() -> None:
    """Then there is no story, in an empty snapshot too."""
    assert story("g9_g0") is None
    assert tell_story(an_evidence(world=a_bootstrap_world()), "g7_g0", "valid") is None
    assert frozenset() == known_rollouts(
        an_evidence({"ledger": Part("l", "missing"), "replay": Part("r", "damaged")}, world=a_bootstrap_world())
    )


def test_parts_that_cannot_be_read() -> None:
    """What the others say is still told: boundaries and sessions without a ledger, rows without a data plane."""
    gone = Part("x", "damaged")
    found = story("g7_g0", {"ledger": gone, "replay": gone, "models 0 manifest": gone}, "invalid")
    current = attempts(found)[1]
    blind = story("g7_g1", {"controller_state": gone})
    unlisted = story("g7_g1", {"unit_info": gone})
    unordered = story("g7_g1", {"unit_info value 0 position": 7})

    assert (None, None, False) == (found.group, current.status, current.is_current)
    assert ("turn_complete", 1) == (current.boundary.kind, len(current.sessions))
    assert {("not_known", None)} == {(row.state, row.partition_id) for row in blind.attempts[0].rows}
    assert {"not_known"} == {row.state for row in (*unlisted.attempts[0].rows, *unordered.attempts[0].rows)}


def test_a_boundary_without_a_model_call_and_without_dependencies() -> None:
    """It stands before the first call; a record without an index row says by itself what it needs, an old row nothing."""
    first = {
        "agents 0 records * value last_committed_model_call_id": None,
        "agents 0 records * value last_committed_model_capture_key": None,
        "agents 0 continuations value": lambda rows: rows[1:],
    }
    old = {"agents 0 continuations value 0 resource_state_revisions": None}

    boundary = attempts(story("g7_g0", first))[1].boundary
    assert (None, {"tools": 4}) == (boundary.last_call, boundary.revisions)
    assert attempts(story("g7_g0", old))[1].boundary.revisions is None


def test_rows_that_are_not_whole() -> None:
    """Gone, not produced, claimed and not stored, in a unit that cannot be read, in a blob that is not there."""
    evidence = an_evidence()
    partition = evidence.controller_state.value.partitions[STAGING]
    place = partition.keys["g7_g1/call-1"]
    unit = f"su_{place % 2}"
    name = next(name for name in evidence.units if name.startswith(unit))
    field = next(iter(partition.columns))

    def state(changes):
        [row] = [row for row in story("g7_g1", changes).attempts[0].rows if row.key == "g7_g1/call-1"]
        return row.state, row.fields

    assert ("stored", 24) == state({})
    assert ("missing", 0) == state({f"{ROWS} keys g7_g1/call-1": DROP})
    assert ("not_produced", 0) == state({f"{ROWS} production": bytes(len(partition.production))})
    assert ("dangling", 23) == state({f"units {name} value rows {field} {place}": DROP})
    assert ("not_known", 0) == state({f"units {name}": Part(name, "damaged")})
    blob = lambda value: value._replace(blob_name="0.bin", byte_count=5)  # noqa: E731 - an edit
    in_blob = {f"units {name} value rows {field} {place}": blob}
    assert ("dangling", 23) == state(in_blob)
    entries = (*evidence.tree, TreeEntry(f"data_plane/simple_storage/{name}.blobs/0.bin", "file", 5))
    assert ("stored", 24) == state({**in_blob, "tree": entries})


def test_route_plans_that_are_none() -> None:
    """A plan without a list of keys, or with other things in it, names what it can."""
    plans = "replay value groups 1 meta tags 0 route_assembly_plan"
    broken = story("g6_g0", {plans: {"cleanup_staging_keys": 7}}, "invalid")
    mixed = story("g6_g0", {plans: {"cleanup_staging_keys": ["g6_g0/call-1", 7]}}, "invalid")
    none = story("g6_g0", {"replay value groups 1 meta tags": None})

    assert (None, 1, None) == (
        broken.finished.route_plan_rows,
        mixed.finished.route_plan_rows,
        none.finished.route_plan_rows,
    )


@pytest.mark.parametrize(
    ("capture", "rollout", "others", "expected"),
    [
        ("x", "x", (), 0),
        ("x-a12", "x", (), 12),
        ("x-a12", "x", ("x-a12",), None),
        ("x-a0", "x", (), None),
        ("x-b", "x", (), None),
        ("y", "x", (), None),
    ],
)
def test_capture_keys(capture, rollout, others, expected) -> None:
    """A key is an attempt's of a rollout unless there is a rollout of that very name."""
    assert expected == attempt_of(capture, rollout, frozenset(others))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`g7_g0` is lost", True),
        ("line 2, g7_g0.a1.json", True),
        ("row g7_g0-a1/call-8", True),
        ("`g7_g01`", False),
        ("`xg7_g0`", False),
        ("`g7_g0_x`", False),
        ("", False),
    ],
)
def test_findings_that_name_it(text, expected) -> None:
    """By itself, as an attempt or as a file; not where it is only part of another name."""
    finding = Finding(
        rule="LED001",
        name="x",
        severity="error",
        artifact="",
        location="",
        message=text,
        expected="",
        actual="",
        hint="",
    )

    assert expected is names_it(finding, "g7_g0")


def test_a_second_agent() -> None:
    """A boundary is looked for on every agent."""
    evidence = an_evidence()
    spare = replace(evidence.agents[1], records={("a", "b"): Part("r", "decoded", a_record("g9_g0", 0))})
    found = tell_story(replace(evidence, agents=(evidence.agents[0], spare)), "g9_g0", "incomplete")

    assert ("refused", "spare_agent") == (found.fate.decision, found.attempts[0].boundary.agent)
