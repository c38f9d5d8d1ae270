"""Step 9 and its mirror, the abort: resume resources -> policy -> agents, then let the controller open admission.

All stages are tried in order whatever becomes of the one before; within a stage servers are called side by side. A
failing call, refusals included, is repeated at least twice; one to a server that is still preparing until it has
ended or the deadline passed. Only a well-formed reply to that very request counts as released, with one exception,
for a transaction that an earlier process left: a server that refuses to resume and shows itself idle, under no id, is
another process than the one that was paused. One that has no such route at all is another server, and tells nothing of it.

Admission is opened only after everybody was released. What could not be released is returned, never raised: what that
means differs between an abort and a published snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from ckptctl.domain.controller import OpenReply, Outcome, Redispatch
from ckptctl.domain.participant import ResumeReply
from ckptctl.domain.plan import Plan, Step
from ckptctl.errors import CkptctlError, RouteMissingError, ServerRefusedError, TimedOutError, UsageError
from ckptctl.planning import snapshot as steps
from ckptctl.workflows.transaction import Recorder
from ckptctl.workflows.waiting import Pauses
from ckptctl.workflows.world import World

TRIES = 3
FIRST_PAUSE_S = 0.1
LEAST_CALL_S = 1.0
"""What each call gets even when the deadline has passed: a lost reply to one server must not keep another one held."""


class _NotReleasedError(Exception):
    """Raised inside a release step so that its failure is recorded; never leaves this module."""


@dataclass(slots=True)
class Release:
    """One release. `failures`: server -> why it is not known to be released."""

    world: World
    checkpoint_id: str
    outcome: Outcome
    deadline_ts: float
    servers: frozenset[str]
    """Servers of the present configuration; others cannot be reached."""
    left_by_instance: str | None = None
    """Set for a transaction that an earlier process left: the controller process that it closed."""
    staged_path: str | None = None
    redispatch: tuple[Redispatch, ...] = ()
    """After a restore: what the controller dispatches when it opens."""
    failures: dict[str, CkptctlError] = field(default_factory=dict)
    opened: OpenReply | None = None

    async def run(self, plan: Plan, recorder: Recorder) -> None:
        """Run a release or abort plan to its end."""
        for step in plan.steps:
            if step.name == steps.OPEN and self.failures:
                continue
            try:
                await recorder.run(step, self._act)
            except _NotReleasedError:
                continue

    def told(self) -> str:
        """What could not be released, and why, in one line; most errors name the server themselves."""
        return "; ".join(_told(server, error) for server, error in sorted(self.failures.items()))

    async def _act(self, step: Step) -> Mapping[str, Any]:
        if step.name == steps.REMOVE_STAGED:
            return await self._remove_staged()
        calls = {server: partial(self._release, step.name, server) for server in step.targets}
        errors = await asyncio.gather(*(call() for call in calls.values()))
        failed = {server: error for server, error in zip(calls, errors, strict=True) if error is not None}
        self.failures.update(failed)
        if failed:
            raise _NotReleasedError("; ".join(f"{server}: {error.message}" for server, error in failed.items()))
        return {}

    async def _release(self, step: str, server: str) -> CkptctlError | None:
        """Release one server; the error when it is not known to be released."""
        if step != steps.OPEN and server not in self.servers:
            return UsageError(f"`{server}` is not in the configuration any more", hint=None)
        if step == steps.OPEN and await self._is_not_ours():
            return None
        call = self._call(step, server)
        pauses = Pauses(self.world, first_s=FIRST_PAUSE_S)
        tries = 0
        while True:
            tries += 1
            try:
                await call()
            except CkptctlError as error:
                last = error
            else:
                return None
            standing = await self._standing(step, server, last)
            if standing == "gone":
                self.world.notice(
                    f"`{server}` is another process than the one that was paused: nothing to release there"
                )
                return None
            if tries >= TRIES and standing != "busy":
                return last
            if not await pauses.wait(self.deadline_ts):
                if tries >= TRIES:
                    return last
                await self.world.clock.sleep(FIRST_PAUSE_S)

    async def _standing(self, step: str, server: str, error: CkptctlError) -> Literal["busy", "gone", "held"]:
        """What stands behind a failed call: a prepare or a request that may still end, another process, or neither."""
        if isinstance(error, TimedOutError):
            return "busy"
        if step == steps.OPEN or not isinstance(error, ServerRefusedError) or isinstance(error, RouteMissingError):
            return "held"
        phase = await self._phase(server)
        if phase == ("idle", None) and self.left_by_instance is not None:
            return "gone"
        return "busy" if phase == ("preparing", self.checkpoint_id) else "held"

    def _call(self, step: str, server: str) -> Callable[[], Awaitable[ResumeReply | OpenReply]]:
        gym = self.world.participants
        if step == steps.OPEN:
            return self._open
        resume = {
            steps.RESUME_RESOURCES: gym.resources_resume,
            steps.RESUME_MODELS: gym.model_resume,
            steps.RESUME_AGENTS: gym.agent_resume,
        }[step]
        return lambda: resume(server, self.checkpoint_id, self._call_deadline_ts())

    async def _open(self) -> OpenReply:
        self.opened = await self.world.controller.open_admission(
            self.checkpoint_id, self._call_deadline_ts(), self.outcome, self.redispatch
        )
        return self.opened

    def _call_deadline_ts(self) -> float:
        return max(self.deadline_ts, self.world.clock.now_s() + LEAST_CALL_S)

    async def _phase(self, server: str) -> tuple[str, str | None] | None:
        try:
            facts = await self.world.participants.capabilities(server)
        except CkptctlError:
            return None
        return facts.phase, facts.active_checkpoint_id

    async def _is_not_ours(self) -> bool:
        """Whether the controller is another process than the one whose admission was closed: there is nothing to open."""
        if self.left_by_instance is None:
            return False
        try:
            status = await self.world.controller.status()
        except CkptctlError:
            return False  # opening will say what is wrong
        if status.instance_id == self.left_by_instance:
            return False
        self.world.notice(
            "the controller is another process than the one whose admission was closed: nothing to open there"
        )
        return True

    async def _remove_staged(self) -> Mapping[str, Any]:
        """Delete what was staged, unless somebody may still write into it or the directory is not ours any more."""
        assert self.staged_path is not None, "planned only with a staged directory"
        try:
            if self.failures or not self.world.lock.is_owner():
                return {"kept": True}
            await asyncio.to_thread(self.world.store.remove_tree, self.staged_path)
        except CkptctlError as error:
            self.world.notice(f"the staged directory was not removed: {error.message}; the next snapshot removes it")
            return {"kept": True}
        return {}


def _told(server: str, error: CkptctlError) -> str:
    text = error.message if f"`{server}`" in error.message else f"`{server}`: {error.message}"
    # What a server without the route seems to be is no advice for later, but what is to be mended.
    return f"{text} ({error.hint})" if isinstance(error, RouteMissingError) and error.hint else text
