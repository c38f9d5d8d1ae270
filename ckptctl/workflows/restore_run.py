"""Steps 3 to 7 of one restore, begun now or continued; what a failure in them leaves behind, and in which words.

From the first of these steps on there is no way back: whatever fails leaves admission closed (AdmissionClosedError), with the
servers named that may be paused and the id that they are paused under.
"""

from __future__ import annotations

import asyncio

from ckptctl.domain.amounts import plural
from ckptctl.domain.config import OwnSection, RunConfig
from ckptctl.domain.restore import RestoreResult
from ckptctl.domain.transaction import TransactionResult
from ckptctl.errors import AdmissionClosedError, CkptctlError, StoppedError, UnreachableError
from ckptctl.planning import restore as steps
from ckptctl.planning.recovery import Transaction
from ckptctl.planning.snapshot import Stages
from ckptctl.workflows.load_config import require_own
from ckptctl.workflows.ownership import begin_transaction
from ckptctl.workflows.release import Release
from ckptctl.workflows.restore_attempt import RestoreAttempt, restore_actions
from ckptctl.workflows.restore_recovery import RESTART, Continued, read_unfinished_restore
from ckptctl.workflows.transaction import Recorder, execute
from ckptctl.workflows.world import World

SYNCED = (steps.PLAN_ATTEMPTS,)
"""The mapping must survive a crash of the machine: after the first resume it cannot be made again."""
AGAIN = "run `ckptctl restore` again: it goes on under the same id; if a server was restarted since, restart all of them first"


class RestoreRun:
    """One restore from its step 3 on."""

    def __init__(
        self,
        world: World,
        config: RunConfig,
        own: OwnSection,
        attempt: RestoreAttempt,
        continued: Continued | None = None,
    ) -> None:
        self._world = world
        self._config = config
        self._own = own
        self._attempt = attempt
        facts = attempt.facts
        self._stages: Stages = (facts.models, facts.agents, facts.resources)
        self._earlier = None if continued is None else continued.intents
        self._done_earlier = () if continued is None else continued.done
        self._is_resuming = continued is not None and continued.is_resuming
        writer = (
            begin_transaction(world, "restore", facts, config.checkpoint_dir)
            if continued is None
            else world.journal.resume(continued.transaction)
        )
        self._recorder = Recorder(world, writer, synced=SYNCED)

    async def run(self) -> RestoreResult:
        """Run the plan to its end.

        Raises:
            AdmissionClosedError: a step failed, or not everybody was resumed.
            StoppedError: a signal came; as above, the restore can be continued.
        """
        attempt = self._attempt
        attempt.deadline_ts = self._world.clock.now_s() + self._config.prepare_timeout_s
        try:
            if self._earlier is not None:
                self._recorder.note("recovery")
            if not self._is_resuming:
                plan = steps.plan_restore(attempt.facts.checkpoint_id, self._stages)
                until_resumed = tuple(step for step in plan.steps if not step.number.startswith("7"))
                await execute(
                    plan.model_copy(update={"steps": until_resumed}), restore_actions(attempt), self._recorder
                )
            await self._resume()
        except asyncio.CancelledError:
            raise StoppedError(f"stopped; {self._standing()}", hint=AGAIN) from None
        except AdmissionClosedError:
            raise
        except CkptctlError as error:
            silent = error.server if isinstance(error, UnreachableError) else None
            raise AdmissionClosedError(
                f"the restore failed: {error.message}; {self._standing(silent)}",
                hint=self._what_next(error),
                cause=error,
            ) from error
        unclaimed = [item.model_dump(mode="json") for item in attempt.planned.unclaimed_sessions]
        self._recorder.finish("restored", unclaimed_sessions=unclaimed)
        return attempt.result(self._recorder.times)

    async def _resume(self) -> None:
        """Step 7: everybody goes on, then the controller gets the mapping and opens admission."""
        attempt = self._attempt
        release = Release(
            world=self._world,
            checkpoint_id=attempt.facts.checkpoint_id,
            outcome="restored",
            deadline_ts=self._world.clock.now_s() + self._config.prepare_timeout_s,
            servers=frozenset(self._own.urls()),
            redispatch=attempt.planned.redispatch,
        )
        self._recorder.is_lenient = True
        await release.run(steps.plan_resume(attempt.facts.checkpoint_id, self._stages), self._recorder)
        if release.failures:
            raise AdmissionClosedError(
                f"snapshot `{attempt.snapshot_path}` is restored, but not everybody was resumed under "
                f"`{attempt.facts.checkpoint_id}`; admission stays closed: {release.told()}",
                hint=self._what_next_of(release),
                cause=next(iter(release.failures.values())),
            )
        attempt.dispatched = 0 if release.opened is None else release.opened.dispatched

    def _what_next(self, error: CkptctlError) -> str:
        if isinstance(error, UnreachableError):
            return steps.way_on(self._stages, (*self._done_earlier, *self._done()), error.server)
        # What may heal is tried again; a refusal or a wrong reply would only be replayed by the same processes.
        what_next = AGAIN if error.retryable else RESTART
        return f"{error.hint}; then {what_next}" if error.hint else what_next

    def _what_next_of(self, release: Release) -> str:
        silent = [server for server, error in release.failures.items() if isinstance(error, UnreachableError)]
        if not silent:
            return f"mend what is named, then {AGAIN}"
        return steps.way_on(self._stages, steps.RESTORED_BY, min(silent))

    def _done(self) -> set[str]:
        return {step.name for step in self._recorder.times}

    def _standing(self, silent: str | None = None) -> str:
        """Who is paused; of a server that does not answer nobody knows."""
        begun = steps.paused_after(self._stages, (*self._recorder.intents, *(self._earlier or ())), self._done())
        paused = [name for name in begun if name != silent]
        if not paused:
            return "nothing was restored yet"
        names = ", ".join(f"`{name}`" for name in paused)
        return f"paused under `{self._attempt.facts.checkpoint_id}`, admission closed: {names}"


async def finish_restore(world: World, config: RunConfig, transaction: Transaction) -> TransactionResult | None:
    """Go on with an interrupted restore for a command that wants something else; None when nothing was left of it.

    Raises:
        AdmissionClosedError: it cannot go on, or failed again.
    """
    own = require_own(config)
    continued = await read_unfinished_restore(world, config, own, transaction)
    if continued is None:
        return None
    result = await RestoreRun(world, config, own, continued.attempt, continued).run()
    return TransactionResult(
        outcome="restored",
        checkpoint_id=result.checkpoint_id,
        snapshot=result.snapshot,
        anchor=result.anchor,
        reason=f"an interrupted restore had left it: {plural(result.dispatched, 'rollout')} handed to the dispatcher now",
        steps=result.steps,
    )
