"""`snapshot --every`: one round after another, for as long as the command runs.

1. Rounds begin at fixed distances. What a round outlasts is left out rather than caught up with, so that the run has its time
   between two of them; each is put off by a random part of the jitter, and the distances stay where they are.
2. A failed attempt that was undone, or that was refused before anything changed, is told and tried again in the next round; too
   many in a row end the command, and so does everything that a repetition cannot heal.
3. A wish (a signal) is granted between two rounds: one at once, the configuration anew, or a last one and then the end. One at
   once is besides the others: the next regular one comes when it was announced, unless this one is still at work then. The round
   that is under way when the end is asked for is the last one, and has as long as a new one would have; a second wish for the
   end gives it up.

Which signals are which wishes, and where a new configuration comes from, is the command line's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from ckptctl.domain.amounts import set_time
from ckptctl.domain.config import RunConfig
from ckptctl.domain.rounds import JITTER_SHARE, EveryRequest, Round, RoundPlan
from ckptctl.domain.traffic import Asked
from ckptctl.domain.transaction import SnapshotRequest, TransactionResult
from ckptctl.errors import AnchorRefusedError, CkptctlError, ConfigError, RefusedError, StoppedError, UsageError
from ckptctl.workflows.load_config import require_checkpoint_dir, require_sound
from ckptctl.workflows.snapshot import take_snapshot
from ckptctl.workflows.world import World

Wish = Literal["now", "reload", "last", "end"]
LAST_WITHIN = "--last-within"
AT_LEAST_S = 0.001
"""Shortest interval: with less a clock may stand still between two rounds."""


@dataclass(slots=True)
class Wishes:
    """What was asked of the loop since it last looked."""

    asked: set[Wish] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self, wish: Wish) -> None:
        """Ask for something; a second wish for the last round asks for the end."""
        self.asked.add("end" if wish == "last" and self.is_ending else wish)
        self.changed.set()

    @property
    def is_ending(self) -> bool:
        """Whether no round is to be begun after the next, or the one under way."""
        return "last" in self.asked or "end" in self.asked

    def take(self, wish: Wish) -> bool:
        """Whether it was asked for; it is granted now."""
        was_asked = wish in self.asked
        self.asked.discard(wish)
        return was_asked


@dataclass(frozen=True, slots=True)
class Setting:
    """Where rounds are taken: a new configuration makes a new one."""

    world: World
    config: RunConfig


@dataclass(slots=True)
class Listener:
    """Who hears of rounds, and of configurations that were read anew (None) or could not be (the reason)."""

    round: Callable[[Round, RoundPlan], None]
    reloaded: Callable[[CkptctlError | None], None]


async def take_snapshots(
    setting: Setting,
    request: SnapshotRequest,
    every: EveryRequest,
    *,
    wishes: Wishes,
    reload: Callable[[], Awaitable[Setting]],
    listener: Listener,
) -> None:
    """Keep taking snapshots until the end is asked for, or the deadline leaves no time for another.

    Raises:
        CkptctlError: the failure that ended it: too many in a row, one that waiting does not heal, or that of the last round.
    """
    await _Rounds(setting, request, every, wishes, reload, listener).run()


def plan_rounds(config: RunConfig, every: EveryRequest) -> RoundPlan:
    """What a configuration and the options come to. Raises ConfigError, UsageError."""
    section = config.sections.rollout_checkpointing
    every_s = section.snapshot_attempt_interval_s if every.every_s is None else every.every_s
    if every_s is None:
        raise ConfigError(
            path=config.path,
            location="rollout_checkpointing.snapshot_attempt_interval_s",
            problem="is not set, so `--every config` has no interval",
            hint="set it, or give a duration: `--every 120s`",
        )
    if every_s < AT_LEAST_S:
        raise UsageError("`--every` needs an interval above zero", hint="for example `--every 120s`")
    jitter_s = every_s * JITTER_SHARE if every.jitter_s is None else every.jitter_s
    if jitter_s >= every_s:
        raise UsageError("`--jitter` is not shorter than the interval", hint="a tenth of the interval is the default")
    most = section.max_consecutive_failures if every.most_failures is None else every.most_failures
    return RoundPlan(every_s, jitter_s, max(1, most))


class _Rounds:
    """The loop and what it remembers from round to round. Times are those of the monotonic clock."""

    def __init__(
        self,
        setting: Setting,
        request: SnapshotRequest,
        every: EveryRequest,
        wishes: Wishes,
        reload: Callable[[], Awaitable[Setting]],
        listener: Listener,
    ) -> None:
        self._setting = setting
        self._request = request
        self._every = every
        self._wishes = wishes
        self._reload = reload
        self._listener = listener
        self._plan = plan_rounds(setting.config, every)
        self._due_s = self._begins_s = setting.world.clock.monotonic_s()
        self._is_besides = False
        self._failures = 0
        self._number = 0

    async def run(self) -> None:
        """One round after another."""
        while True:
            self._number += 1
            clock = self._setting.world.clock
            began_at_s, began_s = clock.now_s(), clock.monotonic_s()
            outcome = await self._outcome()
            is_failure = isinstance(outcome, CkptctlError)
            self._failures = self._failures + 1 if is_failure else 0
            seconds, left_out = clock.monotonic_s() - began_s, self._advance()
            is_over = self._is_over(outcome)
            next_in_s = 0.0 if "now" in self._wishes.asked else max(0.0, self._begins_s - clock.monotonic_s())
            next_at_s = None if is_over else clock.now_s() + next_in_s
            told = Round(self._number, outcome, began_at_s, seconds, self._failures, next_at_s, left_out)
            self._listener.round(told, self._plan)
            if is_over:
                if isinstance(outcome, CkptctlError):
                    raise outcome
                return
            self._is_besides = await self._wait()
            if "end" in self._wishes.asked or (self._wishes.is_ending and self._every.last_within_s <= 0):
                return

    def _advance(self) -> int:
        """Move on to the first distance that is not over yet; how many rounds were passed over."""
        now_s, passed = self._setting.world.clock.monotonic_s(), 0
        if self._is_besides:
            if self._begins_s >= now_s:
                return 0  # it comes as announced
            passed = 1
        self._due_s += self._plan.every_s
        while self._due_s < now_s:
            self._due_s += self._plan.every_s
            passed += 1
        self._put_off()
        return passed

    def _put_off(self) -> None:
        self._begins_s = self._due_s + self._setting.world.share() * self._plan.jitter_s

    def _is_over(self, outcome: TransactionResult | CkptctlError) -> bool:
        if isinstance(outcome, CkptctlError) and (self._failures >= self._plan.most_failures or not _may_heal(outcome)):
            return True
        deadline_ts = self._request.deadline_ts
        left_s = None if deadline_ts is None else deadline_ts - self._setting.world.clock.now_s()
        return self._wishes.is_ending or (left_s is not None and left_s <= self._plan.every_s)

    async def _wait(self) -> bool:
        """Until the next round begins, or the end is asked for; a new configuration is read meanwhile.

        Returns whether one at once was asked for, which is besides the regular ones.
        """
        while True:
            self._wishes.changed.clear()
            if self._wishes.take("reload"):
                await self._read_again()
            if self._wishes.take("now"):
                return True
            clock = self._setting.world.clock
            if self._wishes.is_ending or (left_s := self._begins_s - clock.monotonic_s()) <= 0:
                return False
            await _first(clock.sleep(left_s), self._wishes.changed.wait())

    async def _read_again(self) -> None:
        """Read the configuration again; one that cannot be used is told of, and the old one stays."""
        try:
            setting = await self._reload()
            require_sound(setting.config, "snapshot")
            plan = plan_rounds(setting.config, self._every)
            await asyncio.to_thread(require_checkpoint_dir, setting.world.store, setting.config)
        except CkptctlError as error:
            self._listener.reloaded(error)
            return
        self._due_s += plan.every_s - self._plan.every_s
        is_moved, self._setting, self._plan = plan != self._plan, setting, plan
        if is_moved:
            self._put_off()
        self._listener.reloaded(None)

    async def _outcome(self) -> TransactionResult | CkptctlError:
        """One attempt. Whoever asks for the end meanwhile bounds it, and whoever asks again gives it up."""
        request, clock = self._request, self._setting.world.clock
        is_bounded = self._wishes.is_ending
        if is_bounded:
            request = request.within(self._every.last_within_s, clock.now_s(), LAST_WITHIN)
        task = asyncio.ensure_future(take_snapshot(self._setting.world, self._setting.config, request))
        bound: asyncio.Future[None] | None = None
        silent: tuple[Asked, ...] = ()
        try:
            while not task.done():
                self._wishes.changed.clear()
                if "end" in self._wishes.asked or (bound is not None and bound.done()):
                    silent = self._setting.world.under_way()  # asked before: afterwards nobody is waited for any more
                    task.cancel()
                    break
                if self._wishes.is_ending and bound is None and not is_bounded:
                    bound = asyncio.ensure_future(clock.sleep(self._every.last_within_s))
                waited = asyncio.ensure_future(self._wishes.changed.wait())
                await asyncio.wait({task, waited, *(() if bound is None else (bound,))}, return_when="FIRST_COMPLETED")
                waited.cancel()
            return await task
        except StoppedError as error:
            return self._given_up(error, silent)
        except CkptctlError as error:
            return error
        except asyncio.CancelledError:
            if not task.cancelled():
                task.cancel()  # the loop itself was cancelled
                raise
            return self._given_up(StoppedError("stopped before anything was changed", hint=None), silent)
        finally:
            if bound is not None:
                bound.cancel()

    def _given_up(self, error: StoppedError, silent: tuple[Asked, ...]) -> StoppedError:
        """The same, with what ended the last round, whom it was waiting for, and what would give it more time."""
        if not self._wishes.is_ending:
            return error
        is_asked = "end" in self._wishes.asked
        within = set_time(self._every.last_within_s)
        why = "it was asked for twice" if is_asked else f"the last round was not done within {within} (`{LAST_WITHIN}`)"
        waited_for = f", waiting for {', '.join(item.told() for item in silent)}" if silent else ""
        more = "" if is_asked else f"give the last round more time with `{LAST_WITHIN}`, or "
        way = f"{more}see with `ckptctl inspect --live` who does not answer"
        hint = error.hint or (way if silent or not is_asked else None)
        return StoppedError(f"{error.message}; {why}{waited_for}", hint=hint)


async def _first(*works: Awaitable[object]) -> None:
    """Wait for whichever ends first, and let the others go."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
    finally:
        for task in tasks:
            task.cancel()


def _may_heal(error: CkptctlError) -> bool:
    """Whether another attempt may succeed by itself: the error says so, or the trainer is merely between steps."""
    return not isinstance(error, StoppedError) and (
        error.retryable or type(error) in (RefusedError, AnchorRefusedError)
    )
