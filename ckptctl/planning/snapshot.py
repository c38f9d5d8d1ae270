"""The snapshot transaction as a plan: numbered steps, what each needs and what undoes it (design section 5).

The order is the contract: prepare policy -> agents -> resources, commit agents -> policy -> resources, resume
resources -> policy -> agents, then admission. Asserted after every step that is planned:

1. whatever was closed or prepared has a step that releases it, in the plan or as its undo;
2. nothing becomes visible before it was saved, described, validated and synced;
3. admission is opened only by the last step, after every participant was resumed.

Step 1 (lock, discovery, anchor, id) is what gives the facts for this plan. How a step is done is `workflows`' business.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptctl.domain.plan import Plan, PlanKind, Step
from ckptctl.domain.topology import Topology

CLOSE = "close-admission"
DRAIN = "drain-acknowledgements"
PAUSE_MODELS, PREPARE_AGENTS, PREPARE_RESOURCES = "pause-models", "prepare-agents", "prepare-resources"
DRAIN_MODELS, RETIRE_ORPHANS, CHECK_PREPARED = "drain-models", "retire-orphans", "check-prepared"
ALLOCATE = "allocate"
COMMIT_AGENTS, COMMIT_MODELS, COMMIT_RESOURCES = "commit-agents", "commit-models", "commit-resources"
CHECK_COMMITTED = "check-committed"
SAVE, WRITE_MANIFEST = "save", "write-manifest"
VALIDATE = "validate"
WRITE_CHECKSUMS, SYNC, PUBLISH, RETAIN = "write-checksums", "sync", "publish", "retain"
RESUME_RESOURCES, RESUME_MODELS, RESUME_AGENTS, OPEN = (
    "resume-resources",
    "resume-models",
    "resume-agents",
    "open-admission",
)
REMOVE_STAGED = "remove-staged"

NOTHING = "nothing was changed"
INVISIBLE = "what it wrote is invisible until it is published; it goes with the staged directory"
RETIRED = "what was retired belonged to no attempt; it stays retired"
FINAL = "a published snapshot is never taken back; its release is repeated until it succeeds"

PREPARED_BY = {
    PAUSE_MODELS: RESUME_MODELS,
    PREPARE_AGENTS: RESUME_AGENTS,
    PREPARE_RESOURCES: RESUME_RESOURCES,
    CLOSE: OPEN,
}
"""What closes something, and what releases it."""


def plan_snapshot(checkpoint_id: str, topology: Topology, staged: str, final: str) -> Plan:
    """Steps 2 to 9 for one topology; stages without a participant are left out."""
    models = tuple(item.server_name for item in topology.models)
    agents = tuple(item.server_name for item in topology.agents)
    resources = tuple(item.server_name for item in topology.resources)
    steps = [
        Step(number="2", name=CLOSE, targets=("controller",), undo=OPEN),
        Step(
            number="3",
            name=DRAIN,
            targets=("controller", *agents),
            requires=(CLOSE,),
            undo="an acknowledgement may be repeated",
        ),
        Step(number="4.1", name=PAUSE_MODELS, targets=models, requires=(CLOSE, DRAIN), undo=RESUME_MODELS),
        Step(number="4.2", name=PREPARE_AGENTS, targets=agents, requires=(PAUSE_MODELS,), undo=RESUME_AGENTS),
        Step(
            number="4.3", name=PREPARE_RESOURCES, targets=resources, requires=(PREPARE_AGENTS,), undo=RESUME_RESOURCES
        ),
        Step(number="4.4", name=DRAIN_MODELS, targets=models, requires=(PAUSE_MODELS,), undo=NOTHING),
        Step(
            number="4.5",
            name=RETIRE_ORPHANS,
            targets=resources,
            requires=(PREPARE_AGENTS, PREPARE_RESOURCES),
            undo=RETIRED,
        ),
        Step(
            number="4.6",
            name=CHECK_PREPARED,
            requires=(PREPARE_AGENTS, PREPARE_RESOURCES, DRAIN_MODELS, RETIRE_ORPHANS),
            undo=NOTHING,
        ),
        Step(number="5.1", name=ALLOCATE, targets=(staged,), requires=(CHECK_PREPARED,), undo=REMOVE_STAGED),
        Step(number="5.2", name=COMMIT_AGENTS, targets=agents, requires=(CHECK_PREPARED, ALLOCATE), undo=INVISIBLE),
        Step(
            number="5.3", name=COMMIT_MODELS, targets=models, requires=(CHECK_PREPARED, COMMIT_AGENTS), undo=INVISIBLE
        ),
        Step(
            number="5.4",
            name=COMMIT_RESOURCES,
            targets=resources,
            requires=(CHECK_PREPARED, COMMIT_MODELS),
            undo=INVISIBLE,
        ),
        Step(
            number="5.5", name=CHECK_COMMITTED, requires=(COMMIT_AGENTS, COMMIT_MODELS, COMMIT_RESOURCES), undo=NOTHING
        ),
        Step(number="6.1", name=SAVE, targets=("controller",), requires=(CHECK_COMMITTED,), undo=INVISIBLE),
        Step(number="6.2", name=WRITE_MANIFEST, targets=(staged,), requires=(SAVE,), undo=INVISIBLE),
        *publish_steps(staged, final),
        *release_steps(models, agents, resources, requires=(PUBLISH,)),
    ]
    return _plan("snapshot", checkpoint_id, steps)


def until_retired(plan: Plan) -> Plan:
    """The part of a snapshot's plan after which leaked sessions are retired; an abort undoes the rest of it."""
    wanted = (CLOSE, DRAIN, PAUSE_MODELS, PREPARE_AGENTS, PREPARE_RESOURCES, RETIRE_ORPHANS)
    return plan.model_copy(update={"steps": tuple(step for step in plan.steps if step.name in wanted)})


def until_published(plan: Plan) -> Plan:
    """The part of a snapshot's plan that ends before anybody is released."""
    return plan.model_copy(update={"steps": tuple(step for step in plan.steps if step.number < "9")})


def plan_publish(checkpoint_id: str | None, staged: str, final: str, stages: Stages | None = None) -> Plan:
    """Publish a directory whose save and manifest were completed before; with `stages`, release those participants then."""
    release = release_steps(*stages, requires=(PUBLISH,)) if stages is not None else ()
    return _plan("publish", checkpoint_id, [*publish_steps(staged, final), *release], done_before=(WRITE_MANIFEST,))


Stages = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Server names of models, agents and resources servers that may be held."""


def plan_release(checkpoint_id: str, stages: Stages) -> Plan:
    """Resume everybody and open admission, for a snapshot that is published."""
    return Plan(kind="release", checkpoint_id=checkpoint_id, steps=release_steps(*stages, requires=()))


def plan_abort(checkpoint_id: str, attempted: Iterable[str], stages: Stages, staged: str | None) -> Plan:
    """Undo an attempt: resume whatever was attempted, then open admission if it was closed, then delete what was staged.

    `attempted` are the names of steps whose intent was recorded, done or not.
    """
    tried = set(attempted)
    models, agents, resources = stages
    steps = release_steps(
        models if PAUSE_MODELS in tried else (),
        agents if PREPARE_AGENTS in tried else (),
        resources if PREPARE_RESOURCES in tried else (),
        requires=(),
    )
    if CLOSE not in tried:
        steps = tuple(step for step in steps if step.name != OPEN)
    if staged is not None and ALLOCATE in tried:
        steps += (Step(number="9.5", name=REMOVE_STAGED, targets=(staged,), undo="it was never visible"),)
    return Plan(kind="abort", checkpoint_id=checkpoint_id, steps=steps)


def publish_steps(staged: str, final: str) -> tuple[Step, ...]:
    """Steps 7 and 8."""
    return (
        Step(number="7", name=VALIDATE, targets=(staged,), requires=(WRITE_MANIFEST,), undo=NOTHING),
        Step(number="8.1", name=WRITE_CHECKSUMS, targets=(staged,), requires=(VALIDATE,), undo=INVISIBLE),
        Step(number="8.2", name=SYNC, targets=(staged,), requires=(WRITE_CHECKSUMS,), undo=NOTHING),
        Step(number="8.3", name=PUBLISH, targets=(staged, final), requires=(VALIDATE, SYNC), undo=FINAL),
        Step(number="8.4", name=RETAIN, requires=(PUBLISH,), undo="what was moved to the trash can be moved back"),
    )


def release_steps(
    models: tuple[str, ...], agents: tuple[str, ...], resources: tuple[str, ...], *, requires: tuple[str, ...]
) -> tuple[Step, ...]:
    """Step 9: all stages are tried in order whatever becomes of the one before; admission opens only when all succeeded."""
    stages = ((RESUME_RESOURCES, resources), (RESUME_MODELS, models), (RESUME_AGENTS, agents))
    resumes = [
        Step(number=f"9.{place}", name=name, targets=targets, requires=requires, undo=FINAL)
        for place, (name, targets) in enumerate(stages, 1)
        if targets
    ]
    names = tuple(step.name for step in resumes)
    return (*resumes, Step(number="9.4", name=OPEN, targets=("controller",), requires=(*requires, *names), undo=FINAL))


def _plan(kind: PlanKind, checkpoint_id: str | None, steps: list[Step], *, done_before: tuple[str, ...] = ()) -> Plan:
    """Leave stages without a participant out, and prove the rest."""
    kept = [step for step in steps if step.targets or step.name in (CHECK_PREPARED, CHECK_COMMITTED, RETAIN)]
    names = {step.name for step in kept}
    kept = [
        step.model_copy(update={"requires": tuple(name for name in step.requires if name in names)}) for step in kept
    ]
    for count in range(1, len(kept) + 1):
        check_prefix(tuple(kept), count, done_before=done_before)
    return Plan(kind=kind, checkpoint_id=checkpoint_id, steps=tuple(kept))


def check_prefix(steps: tuple[Step, ...], count: int, *, done_before: tuple[str, ...] = ()) -> None:
    """Assert that the plan is sound when it is interrupted after its first `count` steps.

    Raises:
        RuntimeError: a bug of ours.
    """
    done = {*done_before, *(step.name for step in steps[:count])}
    step = steps[count - 1]
    _demand(set(step.requires) <= done, f"{step.name} is planned before what it requires")
    later = {item.name for item in steps[count:]}
    for closing, releasing in PREPARED_BY.items():
        if closing in done and releasing not in done:
            undo = next(item.undo for item in steps if item.name == closing)
            _demand(undo == releasing and releasing in later, f"nothing releases what {closing} closed")  # 1
    if PUBLISH in done:
        _demand(
            {WRITE_MANIFEST, VALIDATE, WRITE_CHECKSUMS, SYNC} <= done, "something half-written would become visible"
        )  # 2
    if OPEN in done:
        resumes = {PREPARED_BY[name] for name in done & PREPARED_BY.keys()}
        _demand(count == len(steps) and resumes <= done, "admission would open before everybody was resumed")  # 3


def _demand(is_so: bool, message: str) -> None:
    if not is_so:
        raise RuntimeError(f"snapshot plan: {message}")
