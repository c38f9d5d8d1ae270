"""The restore as a plan: order, who is paused after which prefix, who has lost what was restored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptctl.domain.plan import Step
from ckptctl.planning import restore as plans
from ckptctl.planning.snapshot import OPEN, RESUME_AGENTS, RESUME_MODELS, RESUME_RESOURCES

STAGES = (("model-a", "model-b"), ("agent",), ("counter", "desk"))
EVERYBODY = ("controller", "model-a", "model-b", "agent", "counter", "desk")


def test_the_order_is_the_contract():
    """Controller, policy, agents, resources; then what is discarded and cleared; then resources, policy, agents, admission."""
    plan = plans.plan_restore("restore-1", STAGES)

    assert (
        "restore-controller",
        "restore-models",
        "restore-agents",
        "restore-resources",
        "check-restored",
        "plan-attempts",
        "discard-continuations",
        "clear-staging",
        "resume-resources",
        "resume-models",
        "resume-agents",
        "open-admission",
    ) == plan.names()
    assert [step.number for step in plan.steps] == sorted(step.number for step in plan.steps)
    assert ("restore", "restore-1") == (plan.kind, plan.checkpoint_id)


def test_stages_without_a_participant_are_left_out():
    """Without participants only the controller takes part; nothing is required that is not planned."""
    plan = plans.plan_restore("restore-1", ((), (), ()))

    assert ("restore-controller", "check-restored", "plan-attempts", "clear-staging", "open-admission") == plan.names()
    assert {name for step in plan.steps for name in step.requires} <= set(plan.names())


def test_a_plan_that_is_out_of_order_is_a_bug():
    """It is never handed out."""
    first = Step(number="1", name="a", requires=("b",), undo="-")

    with pytest.raises(RuntimeError, match="a is planned before what it requires"):
        plans._check([first])
    with pytest.raises(RuntimeError, match="admission must open last"):
        plans._check([Step(number="1", name="a", undo="-")])


def test_who_is_paused_after_each_step():
    """Nobody before the controller was asked; then one stage after the other; while resuming fewer and fewer."""
    names = plans.plan_restore("restore-1", STAGES).names()
    after = [plans.paused_after(STAGES, names[:count], names[: count - 1]) for count in range(len(names) + 1)]

    assert () == after[0]
    assert ("controller",) == after[1]
    assert ("controller", "model-a", "model-b", "agent") == after[3]
    assert [EVERYBODY] * 6 == after[4:10]
    assert [("controller", "model-a", "model-b", "agent"), ("controller", "agent"), ("controller",)] == after[10:]
    assert () == plans.paused_after(STAGES, names, names)


def test_a_server_is_lost_when_it_is_idle_where_it_must_be_paused():
    """Restored, and not told to go on."""
    restored = ("restore-controller", "restore-models", "restore-agents", "restore-resources")
    idle = ("counter", "agent")
    lost = lambda begun, done: plans.lost_servers(STAGES, begun, done, idle)  # noqa: E731 - a short name for what is said four times

    assert ("agent", "counter") == lost(restored, restored)
    assert ("agent",) == lost(restored, restored[:3])
    assert ("agent",) == lost((*restored, RESUME_RESOURCES), restored)
    assert () == lost((*restored, RESUME_RESOURCES, RESUME_MODELS, RESUME_AGENTS, OPEN), restored)


@given(st.integers(0, 12), st.integers(0, 12), st.sets(st.sampled_from(EVERYBODY[1:])))
def test_whoever_is_lost_was_said_to_be_paused(begun, done, idle):
    """Whatever prefix of the plan was begun and done."""
    names = plans.plan_restore("restore-1", STAGES).names()
    started, finished = names[: max(begun, done)], names[: min(begun, done)]

    assert set(plans.lost_servers(STAGES, started, finished, idle)) <= set(
        plans.paused_after(STAGES, started, finished) or idle
    )
