"""The restore transaction as a plan: numbered steps, what each needs, and why nothing undoes them (design section 6).

The order is the contract: the controller first, then policy -> agents -> resources, all paused; then attempts are planned, what
must restart is discarded, and only then everybody is resumed, resources -> policy -> agents, and admission opens. Steps 1 and 2
(selection and validation) give the facts for this plan and change nothing.

There is no way back once the controller was restored: a failed restore leaves everything paused, and the same restore is
continued under the same id, or the servers are restarted.
"""

from __future__ import annotations

from collections.abc import Iterable

from ckptctl.domain.plan import Plan, Step
from ckptctl.planning.snapshot import OPEN, RESUME_AGENTS, RESUME_MODELS, RESUME_RESOURCES, Stages, release_steps

RESTORE_CONTROLLER = "restore-controller"
RESTORE_MODELS, RESTORE_AGENTS, RESTORE_RESOURCES = "restore-models", "restore-agents", "restore-resources"
CHECK_RESTORED = "check-restored"
PLAN_ATTEMPTS = "plan-attempts"
DISCARD, CLEAR_STAGING = "discard-continuations", "clear-staging"

PAUSED = "everything stays paused; the restore is continued under the same id, or the servers are restarted"
NOTHING = "nothing was changed"
RESTORED_BY = {RESTORE_MODELS: 0, RESTORE_AGENTS: 1, RESTORE_RESOURCES: 2}
"""Step -> which of the stages (models, agents, resources) it restores."""
RESUMED_BY = {RESUME_MODELS: 0, RESUME_AGENTS: 1, RESUME_RESOURCES: 2}
"""Step -> which of the stages it lets go."""
RESTART = "restart the controller and all Gym servers, told to expect a restore, then run `ckptctl restore` again"
RESUMING = frozenset({*RESUMED_BY, OPEN})


def plan_restore(checkpoint_id: str, stages: Stages) -> Plan:
    """Steps 3 to 7; stages without a participant are left out."""
    models, agents, resources = stages
    steps = [
        Step(number="3", name=RESTORE_CONTROLLER, targets=("controller",), undo=PAUSED),
        Step(number="4.1", name=RESTORE_MODELS, targets=models, requires=(RESTORE_CONTROLLER,), undo=PAUSED),
        Step(number="4.2", name=RESTORE_AGENTS, targets=agents, requires=(RESTORE_MODELS,), undo=PAUSED),
        Step(number="4.3", name=RESTORE_RESOURCES, targets=resources, requires=(RESTORE_AGENTS,), undo=PAUSED),
        Step(number="4.4", name=CHECK_RESTORED, requires=(RESTORE_CONTROLLER, *RESTORED_BY), undo=NOTHING),
        Step(number="5", name=PLAN_ATTEMPTS, targets=("controller",), requires=(CHECK_RESTORED,), undo=NOTHING),
        Step(number="6.1", name=DISCARD, targets=agents, requires=(PLAN_ATTEMPTS,), undo=PAUSED),
        Step(number="6.2", name=CLEAR_STAGING, targets=("controller",), requires=(PLAN_ATTEMPTS, DISCARD), undo=PAUSED),
        *plan_resume(checkpoint_id, stages).steps,
    ]
    always = {CHECK_RESTORED}
    kept = [step for step in steps if step.targets or step.name in always]
    names = {step.name for step in kept}
    kept = [
        step.model_copy(update={"requires": tuple(name for name in step.requires if name in names)}) for step in kept
    ]
    _check(kept)
    return Plan(kind="restore", checkpoint_id=checkpoint_id, steps=tuple(kept))


def plan_resume(checkpoint_id: str, stages: Stages) -> Plan:
    """Step 7 alone: for a restore that was interrupted while it resumed."""
    steps = tuple(
        step.model_copy(update={"number": f"7.{step.number.partition('.')[2]}", "undo": "a resume may be repeated"})
        for step in release_steps(*stages, requires=())
    )
    return Plan(kind="restore", checkpoint_id=checkpoint_id, steps=steps)


def paused_after(stages: Stages, begun: Iterable[str], done: Iterable[str] = ()) -> tuple[str, ...]:
    """Servers that may be paused, or hold restored state, after the steps of these names were begun, and these done."""
    started, finished = set(begun), set(done)
    if RESTORE_CONTROLLER not in started or OPEN in finished:
        return ()
    let_go = {place for step, place in RESUMED_BY.items() if step in finished}
    held = [place for step, place in RESTORED_BY.items() if step in started and place not in let_go]
    return ("controller", *(server for place in held for server in stages[place]))


def lost_servers(stages: Stages, begun: Iterable[str], done: Iterable[str], idle: Iterable[str]) -> tuple[str, ...]:
    """Servers that were restored and not yet told to go on, but are idle: they are other processes, without that state."""
    started, finished, fresh = set(begun), set(done), set(idle)
    let_go = {place for step, place in RESUMED_BY.items() if step in started}
    held = {place for step, place in RESTORED_BY.items() if step in finished} - let_go
    return tuple(sorted(fresh.intersection(server for place in held for server in stages[place])))


def way_on(stages: Stages, done: Iterable[str], server: str) -> str:
    """What an operator does about a server that does not answer, after these steps were done. A process that has ended took
    with it what was restored into it; one that nothing was restored into yet can be replaced alone.
    """
    finished = set(done)
    holds_state = any(server in stages[place] for step, place in RESTORED_BY.items() if step in finished)
    again = f"if `{server}` still runs, run `ckptctl restore` again once it answers: it goes on under the same id; "
    if server == "controller" or holds_state:
        return f"{again}if its process has ended, what was restored into it is gone: {RESTART}"
    return (
        f"{again}if its process has ended, start `{server}` alone again, as a fresh (empty) one that is told to expect a "
        "restore, then run `ckptctl restore`: it goes on"
    )


def _check(steps: list[Step]) -> None:
    """Assert that every step comes after what it needs and that admission opens last."""
    done: set[str] = set()
    for step in steps:
        if not set(step.requires) <= done:
            raise RuntimeError(f"restore plan: {step.name} is planned before what it requires")
        done.add(step.name)
    if steps[-1].name != OPEN:
        raise RuntimeError("restore plan: admission must open last")
