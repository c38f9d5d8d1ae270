"""The plan of a transaction: order, requirements, and what holds when it is interrupted anywhere."""

from __future__ import annotations

import pytest

from ckptctl.domain.plan import Plan, Step
from ckptctl.domain.topology import topology_of
from ckptctl.planning import snapshot as steps
from tests.unit.planning.test_discovery import agent, model, resources

TOPOLOGY = topology_of([model(), agent("a"), agent("b"), resources()])
PLAN = steps.plan_snapshot(
    "ck-1", TOPOLOGY, "step_1/rollout_snapshots/tmp_snapshot_000001", "step_1/rollout_snapshots/snapshot_000001"
)
STAGES = (("policy_model",), ("a", "b"), ("counter",))


def test_the_numbered_steps() -> None:
    """Steps 2 to 9 with their parts, in the order of the contract."""
    assert [
        ("2", "close-admission"),
        ("3", "drain-acknowledgements"),
        ("4.1", "pause-models"),
        ("4.2", "prepare-agents"),
        ("4.3", "prepare-resources"),
        ("4.4", "drain-models"),
        ("4.5", "retire-orphans"),
        ("4.6", "check-prepared"),
        ("5.1", "allocate"),
        ("5.2", "commit-agents"),
        ("5.3", "commit-models"),
        ("5.4", "commit-resources"),
        ("5.5", "check-committed"),
        ("6.1", "save"),
        ("6.2", "write-manifest"),
        ("7", "validate"),
        ("8.1", "write-checksums"),
        ("8.2", "sync"),
        ("8.3", "publish"),
        ("8.4", "retain"),
        ("9.1", "resume-resources"),
        ("9.2", "resume-models"),
        ("9.3", "resume-agents"),
        ("9.4", "open-admission"),
    ] == [(step.number, step.name) for step in PLAN.steps]


def test_a_plan_is_json_able() -> None:
    """What `--dry-run` prints and the journal keeps is the plan itself."""
    assert PLAN == Plan.model_validate_json(PLAN.model_dump_json())


def test_stages_without_participants_are_left_out() -> None:
    """No exporting resources server: nobody is prepared, committed or resumed there, and nothing waits for it."""
    plan = steps.plan_snapshot("ck-1", topology_of([model(), agent()]), "s", "f")

    assert not [name for name in plan.names() if "resources" in name]
    assert not [step for step in plan.steps if any("resources" in name for name in step.requires)]


def test_every_prefix_has_its_release() -> None:
    """Interrupted after any step, whatever was closed or prepared is released by the abort of what was attempted."""
    for count in range(len(PLAN.steps) + 1):
        attempted = PLAN.names()[:count]
        undo = steps.plan_abort("ck-1", attempted, STAGES, "tmp")
        for closing, releasing in steps.PREPARED_BY.items():
            assert (closing in attempted) == (releasing in undo.names()), (count, closing)
        assert (steps.ALLOCATE in attempted) == (steps.REMOVE_STAGED in undo.names())


def test_the_order_of_an_abort() -> None:
    """Resources, policy, agents, then admission, and only then what was staged."""
    undo = steps.plan_abort("ck-1", PLAN.names(), STAGES, "tmp")

    assert ("resume-resources", "resume-models", "resume-agents", "open-admission", "remove-staged") == undo.names()
    assert {"resume-resources", "resume-models", "resume-agents"} == set(undo.steps[3].requires)
    assert ("open-admission",) == steps.plan_abort("ck-1", ("close-admission",), STAGES, "tmp").names()


def test_publishing_what_was_staged() -> None:
    """Validate, checksum file, sync, rename, retention, and the release where somebody is held."""
    assert ("validate", "write-checksums", "sync", "publish", "retain") == steps.plan_publish("ck-1", "s", "f").names()[
        :5
    ]
    assert ("resume-resources", "resume-models", "resume-agents", "open-admission") == steps.plan_publish(
        "ck-1", "s", "f", STAGES
    ).names()[5:]


def changed(name: str, **values) -> tuple[Step, ...]:
    return tuple(step.model_copy(update=values) if step.name == name else step for step in PLAN.steps)


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (
            tuple(step for step in PLAN.steps if step.name != "resume-agents"),
            "nothing releases what prepare-agents closed",
        ),
        (tuple(step for step in PLAN.steps if step.name != "sync"), "planned before what it requires"),
        (
            tuple(step for step in changed("publish", requires=()) if step.name != "sync"),
            "half-written would become visible",
        ),
        (changed("close-admission", requires=("save",)), "planned before what it requires"),
        ((*PLAN.steps, PLAN.steps[-2]), "admission would open before everybody was resumed"),
    ],
)
def test_an_unsound_plan_is_a_bug(broken, text) -> None:
    """The planner asserts its invariants after each step."""

    def check_all() -> None:
        for count in range(1, len(broken) + 1):
            steps.check_prefix(broken, count)

    with pytest.raises(RuntimeError, match=text):
        check_all()
