"""The fence: evaluation order, replay, coalescing, serialisation, retirement (participant-protocol section 4)."""

import asyncio
from dataclasses import replace

import pytest

from ckptctl.controller.fence import Fence, Operation
from ckptctl.controller.refusal import RefusalError

PREPARE = Operation("prepare", frozenset({"idle"}), during="preparing", after="prepared", is_waiting=True)
COMMIT = Operation("commit", frozenset({"prepared"}), during="committing", after="committed_paused")
RESTORE = Operation(
    "restore",
    frozenset({"idle", "restore_failed_paused"}),
    during="restoring",
    after="restored_paused",
    failed="restore_failed_paused",
)
RESUME = Operation(
    "resume", frozenset({"idle", "preparing", "prepared", "committed_paused", "restored_paused"}), retires=True
)
RETIRE = Operation("retire", frozenset({"idle", "preparing", "prepared"}), is_recorded=False)


class Work:
    """Counts its runs, can be held back, can fail."""

    def __init__(self, result="done", error=None, held=False):
        self.result, self.error, self.runs = result, error, 0
        self.started, self.go = asyncio.Event(), asyncio.Event()
        if not held:
            self.go.set()

    async def __call__(self):
        self.runs += 1
        self.started.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return self.result


def refused(code):
    return pytest.raises(RefusalError, match=f"^{code}:")


def test_a_transaction_passes_through_its_phases():
    """Prepare, commit and resume lead from idle to idle, and the id is active only between."""

    async def main():
        fence = Fence()
        seen = [fence.phase]
        for operation in (PREPARE, COMMIT, RESUME):
            await fence.run("a", operation, Work(), deadline_ts=9.0)
            seen.append((fence.phase, fence.active_checkpoint_id, fence.deadline_ts))
        return seen

    assert asyncio.run(main()) == ["idle", ("prepared", "a", 9.0), ("committed_paused", "a", 9.0), ("idle", None, None)]


def test_a_success_is_replayed_and_not_run_again():
    """The second call of the same pair gets the first result."""

    async def main():
        fence, first, second = Fence(), Work("one"), Work("two")
        return await fence.run("a", PREPARE, first), await fence.run("a", PREPARE, second), second.runs

    assert asyncio.run(main()) == ("one", "one", 0)


def test_a_concurrent_duplicate_shares_the_outcome_even_a_failure():
    """Both callers get the refusal of the one run; a later retry runs again."""

    async def main():
        fence, work = Fence(), Work(error=RefusalError("agent_prepare_incomplete", "x"), held=True)
        first = asyncio.ensure_future(fence.run("a", PREPARE, work))
        await work.started.wait()
        second = asyncio.ensure_future(fence.run("a", PREPARE, work))
        await asyncio.sleep(0)
        work.go.set()
        outcomes = await asyncio.gather(first, second, return_exceptions=True)
        again = await fence.run("a", PREPARE, Work("again"))
        return [outcome.code for outcome in outcomes], work.runs, again

    assert asyncio.run(main()) == (["agent_prepare_incomplete"] * 2, 1, "again")


def test_a_failure_from_idle_clears_the_id():
    """After a failed prepare another id may begin."""

    async def main():
        fence = Fence()
        with refused("agent_prepare_incomplete"):
            await fence.run("a", PREPARE, Work(error=RefusalError("agent_prepare_incomplete", "x")))
        state = (fence.phase, fence.active_checkpoint_id)
        await fence.run("b", PREPARE, Work())
        return state, fence.active_checkpoint_id

    assert asyncio.run(main()) == (("idle", None), "b")


def test_a_failure_later_keeps_id_and_phase():
    """A failed commit leaves the server prepared under the same id."""

    async def main():
        fence = Fence()
        await fence.run("a", PREPARE, Work())
        with refused("agent_checkpoint_error"):
            await fence.run("a", COMMIT, Work(error=RefusalError("agent_checkpoint_error", "x")))
        return fence.phase, fence.active_checkpoint_id

    assert asyncio.run(main()) == ("prepared", "a")


def test_a_failed_model_restore_has_its_own_phase_and_can_be_repeated():
    """`restore_failed_paused` keeps the id; restore again succeeds."""

    async def main():
        fence = Fence()
        with refused("ledger_mismatch"):
            await fence.run("a", RESTORE, Work(error=RefusalError("ledger_mismatch", "x")))
        failed = (fence.phase, fence.active_checkpoint_id)
        await fence.run("a", RESTORE, Work())
        return failed, fence.phase

    assert asyncio.run(main()) == (("restore_failed_paused", "a"), "restored_paused")


def test_a_harmless_refusal_returns_to_the_entry_phase():
    """A refusal before anything changed does not end in the failure phase."""

    async def main():
        fence = Fence()
        with refused("not_fresh"):
            await fence.run("a", RESTORE, Work(error=RefusalError("not_fresh", "x", harmless=True)))
        return fence.phase, fence.active_checkpoint_id

    assert asyncio.run(main()) == ("idle", None)


def test_another_id_conflicts_before_the_phase_is_looked_at():
    """`checkpoint_conflict` names the holder."""

    async def main():
        fence = Fence()
        await fence.run("a", PREPARE, Work())
        with refused("checkpoint_conflict") as caught:
            await fence.run("b", COMMIT, Work())
        return caught.value.detail

    assert "id a is active" in asyncio.run(main())


def test_a_wrong_phase_is_refused():
    """Commit needs prepared."""

    async def main():
        with refused("invalid_phase"):
            await Fence().run("a", COMMIT, Work())

    asyncio.run(main())


def test_resume_is_legal_from_idle_with_a_new_id_and_retires_it_for_ever():
    """Rollback of a prepare that never arrived; afterwards only that resume is replayed."""

    async def main():
        fence = Fence()
        first = await fence.run("a", RESUME, Work("accepting"))
        again = await fence.run("a", RESUME, Work("not this"))
        with refused("stale_checkpoint"):
            await fence.run("a", PREPARE, Work())
        with refused("stale_checkpoint"):
            fence.require("a")
        return first, again, fence.is_retired("a")

    assert asyncio.run(main()) == ("accepting", "accepting", True)


def test_retirement_is_tested_before_the_conflict():
    """A retired id is stale even while another one is active."""

    async def main():
        fence = Fence()
        await fence.run("a", RESUME, Work())
        await fence.run("b", PREPARE, Work())
        with refused("stale_checkpoint"):
            await fence.run("a", PREPARE, Work())
        return await fence.run("a", RESUME, Work("no"))

    assert asyncio.run(main()) == "done"


def test_a_resume_during_commit_waits_and_then_resumes():
    """The commit ends first, the resume follows."""

    async def main():
        fence, commit, order = Fence(), Work(held=True), []
        await fence.run("a", PREPARE, Work())
        first = asyncio.ensure_future(fence.run("a", COMMIT, commit))
        first.add_done_callback(lambda _: order.append("commit"))
        await commit.started.wait()
        resume = Work()
        second = asyncio.ensure_future(fence.run("a", RESUME, resume))
        await asyncio.sleep(0)
        waiting = resume.runs
        commit.go.set()
        await second
        return waiting, order, fence.phase

    assert asyncio.run(main()) == (0, ["commit"], "idle")


def test_a_commit_during_resume_waits_and_is_stale():
    """It never runs."""

    async def main():
        fence, resume, commit = Fence(), Work(held=True), Work()
        await fence.run("a", PREPARE, Work())
        first = asyncio.ensure_future(fence.run("a", RESUME, resume))
        await resume.started.wait()
        second = asyncio.ensure_future(fence.run("a", COMMIT, commit))
        await asyncio.sleep(0)
        resume.go.set()
        await first
        with refused("stale_checkpoint"):
            await second
        return commit.runs

    assert asyncio.run(main()) == 0


def test_a_resume_overtakes_a_waiting_prepare_whose_outcome_is_then_stale():
    """The prepare of the released id neither succeeds nor disturbs the next id."""

    async def main():
        fence, prepare = Fence(), Work(held=True)
        first = asyncio.ensure_future(fence.run("a", PREPARE, prepare))
        await prepare.started.wait()
        await fence.run("a", RESUME, Work())
        await fence.run("b", PREPARE, Work())
        prepare.go.set()
        with refused("stale_checkpoint"):
            await first
        return fence.phase, fence.active_checkpoint_id

    assert asyncio.run(main()) == ("prepared", "b")


def test_a_server_that_forbids_resume_while_preparing_refuses_it():
    """The resources rule: not legal from preparing, and no waiting."""

    async def main():
        fence, prepare = Fence(), Work(held=True)
        resume = replace(RESUME, phases=RESUME.phases - {"preparing"})
        first = asyncio.ensure_future(fence.run("a", PREPARE, prepare))
        await prepare.started.wait()
        with refused("invalid_phase"):
            await fence.run("a", resume, Work())
        prepare.go.set()
        await first
        return fence.phase

    assert asyncio.run(main()) == "prepared"


def test_an_unrecorded_operation_runs_every_time_and_keeps_the_phase():
    """Retire in idle leaves no active id behind, and during a prepare does not disturb it."""

    async def main():
        fence, work, prepare = Fence(), Work(), Work(held=True)
        await fence.run("a", RETIRE, work)
        await fence.run("a", RETIRE, work)
        idle = (fence.phase, fence.active_checkpoint_id)
        first = asyncio.ensure_future(fence.run("a", PREPARE, prepare))
        await prepare.started.wait()
        slow = Work(error=RefusalError("resources_checkpoint_error", "x"), held=True)
        retire = asyncio.ensure_future(fence.run("a", RETIRE, slow))
        await slow.started.wait()
        prepare.go.set()
        await first
        slow.go.set()
        with refused("resources_checkpoint_error"):
            await retire
        return work.runs, idle, fence.phase

    assert asyncio.run(main()) == (2, ("idle", None), "prepared")


def test_a_caller_that_hangs_up_does_not_stop_the_work():
    """The retry joins the work that goes on."""

    async def main():
        fence, work = Fence(), Work("late", held=True)
        caller = asyncio.ensure_future(fence.run("a", PREPARE, work))
        await work.started.wait()
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        retry = asyncio.ensure_future(fence.run("a", PREPARE, work))
        await asyncio.sleep(0)
        work.go.set()
        return await retry, work.runs

    assert asyncio.run(main()) == ("late", 1)


def test_advance_moves_only_the_active_id_in_the_given_phase():
    """A model's status moves preparing to prepared, once."""

    async def main():
        fence = Fence()
        await fence.run("a", replace(PREPARE, after="preparing"), Work())
        fence.advance("b", "preparing", "prepared")
        before = fence.phase
        fence.advance("a", "preparing", "prepared")
        fence.require("a", frozenset({"prepared"}))
        with refused("invalid_phase"):
            fence.require("a", frozenset({"idle"}))
        with refused("checkpoint_conflict"):
            fence.require("b")
        return before, fence.phase

    assert asyncio.run(main()) == ("preparing", "prepared")
