"""Generation: draw prompts, dispatch siblings, seal results, have groups finalized; stand still while admission is closed.

Rules that hold here:

1. nothing begins while admission is closed: no prompt is drawn, no sibling dispatched, no group finalized;
2. `close` returns when every dispatch that had begun is known to its agent (or was answered), and no finalization runs;
3. a dispatch that never reached an execution keeps its attempt number, any other failure takes the next one.

What a coordinator may do when, the controller application decides; whether a redispatch mapping is right, the ledger
book.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ckptctl.domain.amounts import plural
from ckptctl.domain.ids import rollout_id
from ckptctl.domain.ledger import Group, PromptReference, Sibling
from ckptctl.sim.agent_client import AgentClient, AgentClientError
from ckptctl.sim.finishing import Finisher
from ckptctl.sim.ledger_book import new_attempt
from ckptctl.sim.ownership import ResultOwner
from ckptctl.sim.prompt_source import Prompt, admission_id, group_id
from ckptctl.sim.rollout_state import RolloutState
from ckptctl.sim.run_files import RunLog
from ckptctl.sim.tasks import agent_of, environment_of, granularity_of, run_body, task_source

MAX_ATTEMPTS = 20
"""A sibling that failed so often is given up: the run says so and stands."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 1.0


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One attempt on its way to an agent, and why it is sent: `new`, `continue`, `restart`, `reserved`, `retry`."""

    group_id: str
    generation_index: int
    attempt_index: int
    reason: str
    turned_away: int = 0

    @property
    def pair(self) -> tuple[str, int]:
        """The execution."""
        return rollout_id(self.group_id, self.generation_index), self.attempt_index


class RolloutLoop:
    """Runs as tasks of one event loop; `run` is the feeder, every dispatch has a task of its own."""

    def __init__(
        self,
        state: RolloutState,
        agents: Mapping[str, AgentClient],
        owner: ResultOwner,
        finisher: Finisher,
        dispatches: RunLog,
    ) -> None:
        self._state, self._owner, self._finisher = state, owner, finisher
        self._agents = agents
        self._dispatches = dispatches
        self._queue: deque[Dispatch] = deque()
        self._running: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._unreached: dict[tuple[str, int], AgentClient] = {}
        self._finishing: dict[str, asyncio.Task[None]] = {}
        self._training: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.is_open = False
        self.goal_groups = 0
        self.problems: list[str] = []

    # --- what the controller asks --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Feed for ever; the owner cancels it."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._feed()

    def set_goal(self, groups: int) -> None:
        """Draw prompts until so many groups exist, counted from the beginning of the run. A goal only grows."""
        self.goal_groups = max(self.goal_groups, groups)
        self._wake.set()

    def in_flight(self) -> int:
        """Dispatches that wait for their result."""
        return len(self._running)

    def open(self, dispatches: Iterable[Dispatch] = ()) -> int:
        """Go on, first with `dispatches`. Returns how many of them there were."""
        waiting = list(dispatches)
        self._queue.extend(waiting)
        self._state.closed_at = None
        self.is_open = True
        for group in self._state.ledger.groups():
            if group.status == "ready_to_finalize":
                self._finish(group.group_id)
        self._wake.set()
        return len(waiting)

    async def close(self, checkpoint_id: str) -> None:
        """Begin nothing more and wait for what had begun (rule 2). Cancelled or failing: go on as before."""
        was_open, self.is_open = self.is_open, False
        try:
            await self._wait_reached(checkpoint_id)
            while self._finishing:
                await asyncio.wait(set(self._finishing.values()))
            trainer = self._state.trainer
            self._state.closed_at = (trainer.train_step, trainer.trainer_version)
        except BaseException:
            if was_open:
                self.open()
            raise

    def stop(self) -> None:
        """Cancel every task of the loop."""
        for task in (*self._running.values(), *self._finishing.values(), self._training):
            if task is not None:
                task.cancel()

    # --- drawing and dispatching ---------------------------------------------------------------------------------------------

    async def _feed(self) -> None:
        while self._may_begin() and (self._queue or await self._draw()):
            if not self._may_begin():
                return  # admission was closed while the prompts were drawn
            item = self._queue.popleft()
            self._unreached[item.pair] = self._agent_of(self._state.ledger.group(item.group_id))
            task = asyncio.create_task(self._drive(item))
            self._running[item.pair] = task
            task.add_done_callback(partial(self._ended, item.pair))

    def _may_begin(self) -> bool:
        return self.is_open and len(self._running) < self._state.settings.max_in_flight

    async def _draw(self) -> bool:
        """Reserve the next admission, where the goal and the capacity allow it. Returns whether there is one."""
        state = self._state
        if not self._may_draw():
            return (
                False  # asked before as well: a mutation that changes nothing would make every snapshot look outdated
            )
        async with state.plane.mutation():
            if not self._may_draw():
                return False
            state.sampler_dispatch_index += 1
            groups = [self._new_group(prompt) for prompt in state.prompts.next_batch()]
            state.ledger.add(groups)
        self._queue.extend(
            Dispatch(group.group_id, sibling.generation_index, 0, "new")
            for group in groups
            for sibling in group.siblings
        )
        return True

    def _may_draw(self) -> bool:
        state = self._state
        held = len(state.ledger.groups()) + len(state.replay.groups())
        has_room = held + state.settings.groups_per_step <= state.settings.capacity
        return self.is_open and state.prompts.drawn < self.goal_groups and has_room

    def _new_group(self, prompt: Prompt) -> Group:
        state, settings = self._state, self._state.settings
        number, environment = state.sampler_dispatch_index, environment_of(settings, prompt.row)
        return Group(
            group_id=group_id(settings.seed, prompt),
            admission_id=admission_id(settings.seed, number),
            prompt_id=str(prompt.row),
            prompt_ref=PromptReference(sample_id=str(prompt.row), task_name=environment),
            task_source=task_source(environment),
            resolved_agent_name=None,
            recovery_granularity=granularity_of(settings, environment),
            expected_generations=settings.generations,
            target_step=number,
            start_weight_version=state.trainer.trainer_version,
            status="generating",
            phase="reserved",
            siblings=[
                Sibling(generation_index=index, attempts=[new_attempt(0)]) for index in range(settings.generations)
            ],
        )

    async def _drive(self, item: Dispatch) -> None:
        state = self._state
        async with state.plane.mutation():
            group = state.ledger.group(item.group_id)
            state.ledger.dispatched(item.group_id, item.generation_index)
            state.ledger.admit(group.admission_id)
        self._log_dispatch(item, "dispatched", item.reason)
        agent = self._agent_of(group)
        reply = await agent.run(run_body(state.settings, group, item.generation_index, item.attempt_index))
        self._unreached.pop(item.pair, None)
        if reply.outcome == "result":
            await self._seal(item, agent, reply.result or {})
        elif reply.outcome == "turned_away":
            await self._turned_away(item, reply.reason)
        else:
            await self._failed(item, reply.reason)

    def _ended(self, pair: tuple[str, int], task: asyncio.Task[None]) -> None:
        self._running.pop(pair)
        self._unreached.pop(pair, None)
        self._note_problem(task, f"{pair[0]} attempt {pair[1]}")
        self._wake.set()

    async def _turned_away(self, item: Dispatch, reason: str) -> None:
        """Rule 3: no execution began, so the same attempt is sent again, later."""
        async with self._state.plane.mutation():
            self._state.ledger.not_dispatched(item.group_id, item.generation_index)
        self._log_dispatch(item, "turned_away", reason)
        again = Dispatch(item.group_id, item.generation_index, item.attempt_index, item.reason, item.turned_away + 1)
        self._later(again)

    async def _failed(self, item: Dispatch, reason: str) -> None:
        """Rule 3: whatever the execution did, its pair is spent."""
        async with self._state.plane.mutation():
            attempt = self._state.ledger.failed(item.group_id, item.generation_index)
        self._log_dispatch(item, "failed", reason)
        if attempt >= MAX_ATTEMPTS:
            self.problems.append(f"{item.pair[0]} failed {plural(attempt, 'time')}, last: {reason}")
            return
        self._later(Dispatch(item.group_id, item.generation_index, attempt, "retry", item.turned_away + 1))

    def _later(self, item: Dispatch) -> None:
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(item.turned_away, 10))
        asyncio.get_running_loop().call_later(pause_s, self._again, item)

    def _again(self, item: Dispatch) -> None:
        self._queue.appendleft(item)
        self._wake.set()

    async def _wait_reached(self, checkpoint_id: str) -> None:
        """Rule 2, first half: ask the agents which executions they know until none of ours is missing."""
        pause_s = FIRST_PAUSE_S
        while self._unreached:
            for agent in set(self._unreached.values()):
                with suppress(AgentClientError):  # an agent that does not answer is asked again until the deadline
                    for pair in await agent.executions(checkpoint_id):
                        self._unreached.pop(pair, None)
            if self._unreached:
                await asyncio.sleep(pause_s)
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    # --- results ---------------------------------------------------------------------------------------------------------

    async def _seal(self, item: Dispatch, agent: AgentClient, result: Mapping[str, Any]) -> None:
        try:
            is_ready = await self._owner.own(item.group_id, item.generation_index, item.pair, agent, result)
        except AgentClientError as problem:
            await self._failed(item, str(problem))
            return
        if is_ready and self.is_open:
            self._finish(item.group_id)

    def _finish(self, name: str) -> None:
        if name in self._finishing:
            return
        task = asyncio.create_task(self._finisher.finalize(name))
        self._finishing[name] = task
        task.add_done_callback(lambda _: self._finished(name))

    def _finished(self, name: str) -> None:
        task = self._finishing.pop(name)
        self._note_problem(task, f"group {name}")
        if self.is_open and self._training is None:
            self._training = asyncio.create_task(self._finisher.train_if_due())
            self._training.add_done_callback(self._trained)
        self._wake.set()

    def _trained(self, task: asyncio.Task[None]) -> None:
        self._training = None
        self._note_problem(task, "training")
        self._wake.set()

    def _note_problem(self, task: asyncio.Task[None], what: str) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.problems.append(f"{what}: {type(error).__name__}: {error}")

    def _agent_of(self, group: Group) -> AgentClient:
        return self._agents[agent_of(self._state.settings, int(group.prompt_id), sorted(self._agents))]

    # --- logs ----------------------------------------------------------------------------------------------------------------

    def _log_dispatch(self, item: Dispatch, event: str, reason: str) -> None:
        rollout, attempt_index = item.pair
        self._dispatches.append(
            {
                "incarnation": self._state.settings.incarnation,
                "rollout_id": rollout,
                "attempt_index": attempt_index,
                "event": event,
                "reason": reason,
            }
        )
