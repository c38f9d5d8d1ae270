"""Who continues, who restarts, what is cleared: the decisions of a restore without any server."""

from hypothesis import given
from hypothesis import strategies as st

from ckptctl.domain.redispatch import ContinuationFacts, SessionFacts, SiblingFacts
from ckptctl.planning.redispatch import plan_attempts


def a_sibling(rollout_id="g_g0", **changes) -> SiblingFacts:
    facts = {
        "group_id": "g",
        "granularity": "sibling",
        "is_ready": False,
        "generation_index": 0,
        "rollout_id": rollout_id,
        "current_attempt": 0,
        "status": "dispatched",
    }
    return SiblingFacts(**{**facts, **changes})


def a_continuation(
    rollout_id="g_g0", attempt_index=0, revisions=None, keys=("g_g0/call-0",), **changes
) -> ContinuationFacts:
    return ContinuationFacts(
        rollout_id=rollout_id, attempt_index=attempt_index, revisions=revisions, staging_keys=keys, **changes
    )


def plan(siblings, continuations=(), sessions=(), restart_only=(), required=()):
    return plan_attempts(
        siblings, continuations, sessions, restart_only=frozenset(restart_only), required_keys=frozenset(required)
    )


def test_a_boundary_over_export_restore_resources_continues_at_the_next_attempt():
    """Attempt N with a usable boundary goes on as N+1."""
    made = plan([a_sibling(current_attempt=2)], [a_continuation(attempt_index=2, revisions={"counter": 3})])

    assert [("continue", 2, 3)] == [
        (item.mode, item.source_attempt, item.replacement_attempt) for item in made.redispatch
    ]
    assert ((), ()) == (made.discards, made.clear_keys)


def test_a_boundary_of_another_attempt_is_no_boundary():
    """N+2 would start from scratch without an error, so only exactly N counts."""
    made = plan([a_sibling(current_attempt=1)], [a_continuation(attempt_index=0, revisions={})])

    assert ["restart"] == [item.mode for item in made.redispatch]


def test_restart_only_dependants_are_discarded_and_their_rows_cleared():
    """A boundary that names a restart_only server restarts; its rows go."""
    made = plan([a_sibling()], [a_continuation(revisions={"genrm": 0, "counter": 1})], restart_only=["genrm"])

    assert ["depends on restart_only genrm"] == [item.reason for item in made.redispatch]
    assert [("g_g0", 0, 1)] == [
        (item.rollout_id, item.source_attempt, item.replacement_attempt) for item in made.discards
    ]
    assert ("g_g0/call-0",) == made.clear_keys


def test_unknown_dependencies_restart():
    """Null revisions say nothing of what the boundary needs."""
    made = plan([a_sibling()], [a_continuation(revisions=None)])

    assert [("restart", "dependencies unknown")] == [(item.mode, item.reason) for item in made.redispatch]


def test_rows_that_something_else_needs_are_kept():
    """A shared row of a discarded continuation stays when a kept one, a receipt or a route plan needs it."""
    siblings = [
        a_sibling("g_g0"),
        a_sibling("g_g1", generation_index=1),
        a_sibling("g_g2", generation_index=2, status="sealed", staging_keys=("sealed/call-0",)),
    ]
    continuations = [
        a_continuation("g_g0", revisions=None, keys=("shared", "own", "sealed/call-0", "route")),
        a_continuation("g_g1", revisions={}, keys=("shared",)),
    ]

    made = plan(siblings, continuations, required=["route"])

    assert ("own",) == made.clear_keys
    assert ("route", "sealed/call-0", "shared") == made.kept_shared_keys


def test_a_reserved_sibling_keeps_its_number():
    """It was never dispatched, so nothing can be run twice."""
    made = plan([a_sibling(status="reserved", current_attempt=4)])

    assert [("restart", 4, 4)] == [
        (item.mode, item.source_attempt, item.replacement_attempt) for item in made.redispatch
    ]


def test_prompt_group_reuses_no_sibling():
    """The sealed sibling of an unfinished prompt group is dispatched again, the one with a boundary continues."""
    siblings = [
        a_sibling("g_g0", granularity="prompt_group", status="sealed", staging_keys=("a",)),
        a_sibling("g_g1", granularity="prompt_group", generation_index=1),
    ]

    made = plan(siblings, [a_continuation("g_g1", revisions={})])

    assert [("g_g0", "restart"), ("g_g1", "continue")] == [(item.rollout_id, item.mode) for item in made.redispatch]
    assert () == made.reused


def test_ready_groups_are_left_alone():
    """All siblings sealed: nothing to dispatch, whatever the granularity."""
    made = plan([a_sibling(status="sealed", granularity="prompt_group", is_ready=True)])

    assert ((), 1) == (made.redispatch, len(made.reused))


def test_sessions_that_nobody_claims_are_named():
    """A session counts as claimed only by a continuing rollout that names its server."""
    sessions = [SessionFacts(server_name=name, rollout_id="g_g0", attempt_index=0) for name in ("counter", "workplace")]
    made = plan([a_sibling()], [a_continuation(revisions={"counter": 1})], sessions)

    assert ["workplace"] == [session.server_name for session in made.unclaimed_sessions]


_status = st.sampled_from(["reserved", "dispatched", "sealed", "failed", "abandoned"])


@st.composite
def worlds(draw):
    siblings, continuations = [], []
    for index in range(draw(st.integers(0, 6))):
        name = f"g_g{index}"
        attempt = draw(st.integers(0, 3))
        siblings.append(
            a_sibling(
                name,
                generation_index=index,
                current_attempt=attempt,
                status=draw(_status),
                granularity=draw(st.sampled_from(["sibling", "prompt_group"])),
                staging_keys=tuple(draw(st.lists(st.sampled_from("abcd"), max_size=2))),
            )
        )
        if draw(st.booleans()):
            revisions = draw(st.none() | st.dictionaries(st.sampled_from(["counter", "genrm"]), st.integers(0, 3)))
            continuations.append(
                a_continuation(
                    name, draw(st.integers(0, 3)), revisions, tuple(draw(st.lists(st.sampled_from("abcd"), max_size=3)))
                )
            )
    return siblings, continuations


@given(worlds())
def test_every_unsealed_sibling_is_dispatched_exactly_once_and_never_as_itself(world):
    """Whatever the ledger and the boundaries: one replacement each, N+1 unless it never ran, no needed row cleared."""
    siblings, continuations = world
    made = plan(siblings, continuations, restart_only=["genrm"])
    expected = {s.rollout_id for s in siblings if s.status != "sealed" or s.granularity == "prompt_group"}

    assert expected == {item.rollout_id for item in made.redispatch}
    assert all(
        item.replacement_attempt == item.source_attempt + (0 if item.reason.startswith("reserved") else 1)
        for item in made.redispatch
    )
