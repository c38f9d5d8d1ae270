"""One seed's machine: the cluster on it, the commands that are run, and what strikes them. What the commands are, `stories` says."""

from __future__ import annotations

import asyncio
import contextvars
import random
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from ckptctl.adapters.locks import LEASE_S
from ckptctl.domain.restore import RestoreRequest
from ckptctl.domain.retention import GcRequest
from ckptctl.domain.transaction import PublishRequest, SnapshotRequest
from ckptctl.errors import CkptctlError
from ckptctl.workflows.gc import remaining_error, run_gc
from ckptctl.workflows.publish import finish_publish
from ckptctl.workflows.restore import restore
from ckptctl.workflows.snapshot import take_snapshot
from tests.fakes.mortal import DeadError
from tests.simulation import sandbox
from tests.simulation.cluster import PARTICIPANTS, RUN_DIR, WORKER, Cluster, Machine, Run
from tests.simulation.disk import Disk, Loss
from tests.simulation.faults import begin_of
from tests.simulation.invariants import DIED, Invariants, Outcome
from tests.simulation.kernel import ACTING, COORDINATOR, Kernel, Process
from tests.simulation.network import Network
from tests.simulation.stretches import Stepper
from tests.simulation.virtual_loop import DeadlockError, VirtualLoop
from tests.simulation.weather import Weather

OWED_S = 120.0
"""How long acknowledgements may be owed at the end of a run before the next snapshot of the periodic loop settles them."""
SUPERVISED = (WORKER, *PARTICIPANTS)
LONGEST_RUN_S = 3000.0
RESTARTED_AFTER_S = 20.0
"""When a supervisor has started a dead participant again: before the rollouts that need it have failed so often that they are given up."""


class Schedule:
    """One seed's machine and story."""

    def __init__(self, seed: int | str, *, run: Run, disk: Disk | None = None) -> None:
        self.rng = random.Random(f"schedule:{seed}")
        self.loop = VirtualLoop(lambda: self.rng.random() * 0.004)
        self.kernel = Kernel(self.loop, disk or Disk(safe=(RUN_DIR,)), 0)
        self.kernel.ids = random.Random(f"ids:{seed}")
        self.loop.set_task_factory(self.kernel.make_task)
        self.loop.set_exception_handler(lambda *_: None)
        self.weather = Weather(self.rng, self.loop.time)
        self.kernel.weather = self.weather
        self.weather.spared = RUN_DIR
        self.network = Network(self.rng, self.weather.judge)
        self.kernel.on_death = self.network.break_all
        self.network.kill = self.weather.kill = self._kill
        self.weather.power, self.weather.signal = self.power, self._signal
        self.weather.freeze, self.weather.jump_files = self._freeze, self._jump_files
        self.weather.processes = self._processes
        self.machine = Machine(self.kernel, self.network, self.weather, run)
        self.invariants = Invariants(self.machine)
        self.outcomes: list[str] = []
        self.cluster: Cluster | None = None
        self.deaths: list[str] = []
        """Servers that died since the cluster was last started as a whole."""
        self._name = ""
        """The command that is running."""
        self._loss: Loss = self.rng.choice(("all", "some", "none"))
        self._commands: dict[asyncio.Task[Any], Process] = {}
        self.rivals: list[Outcome] = []
        """How those ended that were at work beside the last command."""
        self._others: list[asyncio.Task[None]] = []
        """Coordinators beside the command that is running."""
        self._steps = random.Random(f"steps:{seed}")
        self._pace = {
            "generation_s": self.rng.choice((0.05, 0.3, 1.0)), "action_s": self.rng.choice((0.0, 0.1)),
            "acknowledge_s": self.rng.choice((0.02, 2.0, 30.0)), "finalize_s": self.rng.choice((0.0, 0.3)),
        }  # fmt: skip

    # --- what strikes --------------------------------------------------------------------------------------------------------

    def _kill(self, process: Process) -> None:
        if process.party != COORDINATOR:
            self.deaths.append(process.name)
        self.kernel.kill(process)
        if process.name in SUPERVISED:
            context = contextvars.copy_context()
            context.run(ACTING.set, None)
            self.loop.call_later(RESTARTED_AFTER_S, self._start_again, self.cluster, process.name, context=context)

    def _start_again(self, cluster: Cluster | None, name: str) -> None:
        if cluster is not None and cluster is self.cluster and cluster.is_up("controller") and not cluster.is_up(name):
            cluster.start_participant(name)

    def power(self) -> None:
        """The power fails: everything dies and the disk loses what it may."""
        for process in list(self.kernel.processes.values()):
            if not process.is_dead:
                self._kill(process)
        self.kernel.disk.crash(self._loss, self.rng)
        self.kernel.boots += 1

    def _signal(self) -> None:
        for task in list(self._commands):
            task.cancel()

    def _freeze(self, process: Process, for_s: float) -> None:
        """A coordinator stands still; when its lease has ended somebody may come who takes its lock."""
        if for_s > LEASE_S:
            self.invariants.slept.add(process.name)
            after_s = LEASE_S * 1.1 + self.rng.random() * (for_s - LEASE_S)
            name = self.rng.choice(("snapshot", "publish", self._name))
            self._send_for(name, after_s, break_lock=True)
        assert process.stepper is not None
        process.stepper.freeze(for_s)

    def _jump_files(self, by_s: float) -> None:
        self.kernel.server_offset_s += by_s

    def _processes(self, party: str) -> list[Process]:
        if party == COORDINATOR:
            return list(self._commands.values())
        return [self.cluster.process(party)] if self.cluster is not None and self.cluster.is_up(party) else []

    # --- what runs -----------------------------------------------------------------------------------------------------------

    def run_story(self, story: Callable[[], Awaitable[None]]) -> None:
        """Run a story to its end; a deadlock or an exception of the harness is a breach too."""
        with sandbox.on(self.kernel):
            try:
                self.loop.run_until_complete(self._whole(story))
            except DeadlockError as error:
                self.invariants.breach(f"nothing goes on any more: {error}")
            finally:
                self._close()

    async def _whole(self, story: Callable[[], Awaitable[None]]) -> None:
        self.machine.install_files()
        await story()
        if self.cluster is not None:
            await self.cluster.end()
        await self.network.close()

    def _close(self) -> None:
        for process in self.kernel.processes.values():
            self.kernel.kill(process)
        for process in self.kernel.processes.values():
            if process.stepper is not None:
                process.stepper.end()
        self.loop.close()

    async def start_cluster(self, *, incarnation: int = 1, restore_expected: bool = False) -> Cluster:
        """All servers, as new processes."""
        goal = 0
        if self.cluster is not None:
            goal = self.cluster.goal
            await self.cluster.end()
        self.cluster = Cluster(
            self.machine, incarnation=incarnation, restore_expected=restore_expected, pace=self._pace
        )
        await self.cluster.start()
        self.invariants.watch(self.cluster)
        self.cluster.set_goal(goal or self.machine.run.prompts)
        self.deaths.clear()
        return self.cluster

    async def command(self, name: str, *, suffers: bool = False, host: str = "login-1", **wishes: Any) -> Outcome:
        """Run one command in a process of its own; in bad weather when it `suffers`."""
        was_unfinished = self.invariants.unfinished() is not None
        struck = len(self.weather.struck)
        self.weather.is_armed, self._name = suffers, name
        self.rivals.clear()
        self._others.clear()
        has_rival = suffers and self.rng.random() < 0.2
        is_stopped = has_rival or any(getattr(fault, "kind", "") == "freeze" for fault in self.weather.plan)
        if has_rival:
            delay_s = self.rng.random() * self.rng.choice((0.003, 0.05, 0.2, 0.6))
            rival = self.rng.choice(("snapshot", "publish", "gc"))
            self._send_for(rival, delay_s)
        process, task = self._begin(name, host, wishes, is_stopped=is_stopped)
        outcome = await self._ended(name, task, process)
        while self._others:
            await self._others.pop()
        self.weather.is_armed, self.weather.step = False, ""
        self.weather.plan.clear()
        self.outcomes.append(str(outcome))
        self.weather.note(f"== {outcome}")
        has_disk_fault = any(
            " at " in item and item[:4] in ("ENOS", "EIO ", "EROF", "EACC", "torn")
            for item in self.weather.struck[struck:]
        )
        self.invariants.check(
            outcome,
            was_unfinished=was_unfinished,
            had_disk_fault=has_disk_fault,
            rivals=self.rivals,
        )
        return outcome

    def _begin(
        self, name: str, host: str, wishes: dict[str, Any], *, is_stopped: bool
    ) -> tuple[Process, asyncio.Task[Any]]:
        process = self.machine.new_coordinator(host)
        process.step = begin_of(name)
        if is_stopped:
            process.stepper = Stepper(self.loop, self._steps)
        task = self.machine.run_as(process, lambda: COMMANDS[name](self.machine, **wishes))
        self._commands[task] = process
        return process, task

    async def _ended(self, name: str, task: asyncio.Task[Any], process: Process) -> Outcome:
        await asyncio.wait([task])
        self._commands.pop(task, None)
        self.kernel.kill(process)  # a command is over when its process is
        if task.cancelled():
            return Outcome(name, 143, "stopped before anything was changed")
        error = task.exception()
        if error is None:
            result = task.result()
            published = result.snapshot if getattr(result, "outcome", "") in ("published", "released") else None
            return Outcome(name, 0, str(result.outcome), published=published, result=result)
        if isinstance(error, DeadError):
            return Outcome(name, DIED)
        if isinstance(error, CkptctlError):
            cause = f" <- {error.cause}" if error.cause is not None else ""
            return Outcome(name, int(error.exit_code), f"{error.code}: {error.message}{cause}", hint=error.hint or "")
        places = (
            f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
            for frame in traceback.extract_tb(error.__traceback__)[-3:]
        )
        return Outcome(name, 1, f"{error!r} at {', '.join(places)}")

    def _send_for(self, name: str, after_s: float, **wishes: Any) -> None:
        """Another coordinator will come: nobody's child, whoever's call it was that brought it about."""
        context = contextvars.copy_context()
        context.run(ACTING.set, None)
        rival = self._rival(name, after_s, **wishes)
        self._others.append(asyncio.get_running_loop().create_task(rival, context=context))

    async def _rival(self, name: str, after_s: float, **wishes: Any) -> None:
        """Another coordinator, on another host, in the midst of it; they take turns at every system call."""
        await asyncio.sleep(after_s)
        self.weather.tally.faults["successor" if "break_lock" in wishes else "two-coordinators"] += 1
        if self.cluster is None:
            name = "gc"
        if name == "gc":
            wishes["keep"] = self.invariants.kept  # two operators, one policy
        process, task = self._begin(name, "login-2", wishes, is_stopped=True)
        outcome = await self._ended(f"rival {name}", task, process)
        self.outcomes.append(str(outcome))
        self.rivals.append(outcome)
        if outcome.status == 1:
            self.invariants.breach(f"a bug: {outcome}")

    async def command_at_last(self, name: str, **wishes: Any) -> Outcome:
        """A command in fair weather, by an operator who does what it says about a lock that somebody dead left."""
        for waited in range(3):  # the second time the lease of one whose clock was ahead may just have begun
            outcome = await self.command(name, **wishes)
            if "lock-held" not in outcome.told:
                return outcome
            if waited < 2:
                await asyncio.sleep(2 * LEASE_S)
        return await self.command(name, break_lock=True, **wishes)

    def mend(self) -> None:
        """Fair weather: clocks are right, the disk works, participants that died are started again by their supervisor."""
        for process in self.kernel.processes.values():
            process.clock_offset_s = 0.0
        self.kernel.server_offset_s = 0.0
        if self.cluster is not None and self.cluster.is_up("controller"):
            for name in SUPERVISED:
                if not self.cluster.is_up(name):
                    self.cluster.start_participant(name)

    async def finish_run(self) -> None:
        """The run goes on to its end."""
        assert self.cluster is not None
        state = self.cluster.controller.controller.state
        goal, waited_s, owed_s = self.cluster.goal, 0.0, 0.0
        while state.finished_count() < goal or state.ledger.outbox():
            await asyncio.sleep(1.0)
            waited_s += 1.0
            owed_s = owed_s + 1.0 if state.finished_count() >= goal else 0.0
            if owed_s == OWED_S:  # to an agent that was started again and refuses receipts: a coordinator settles that
                await self.command("snapshot", force=True)
            if waited_s > LONGEST_RUN_S:
                problems = self.cluster.controller.controller.problems()
                self.invariants.breach(f"the run does not end: {self.cluster.held()}, {problems}")
                return
        problems = self.cluster.controller.controller.problems()
        if problems:
            self.invariants.breach(f"the run has problems: {problems}")


async def _snapshot(machine: Machine, **wishes: Any) -> Any:
    config = machine.load_config()
    async with machine.world(config) as world:
        return await take_snapshot(world, config, SnapshotRequest(**wishes))


async def _publish(machine: Machine, **wishes: Any) -> Any:
    config = machine.load_config()
    async with machine.world(config) as world:
        return await finish_publish(world, config, PublishRequest(**wishes))


async def _restore(machine: Machine, **wishes: Any) -> Any:
    config = machine.load_config()
    async with machine.world(config) as world:
        return await restore(world, config, RestoreRequest(**wishes))


async def _gc(machine: Machine, **wishes: Any) -> Any:
    config = machine.load_config()
    async with machine.world(config) as world:
        result = run_gc(world, machine.checkpoint_dir, GcRequest(**wishes), config)
        if result.remaining():
            raise remaining_error(result)
        return result


COMMANDS: dict[str, Callable[..., Awaitable[Any]]] = {
    "snapshot": _snapshot,
    "publish": _publish,
    "restore": _restore,
    "gc": _gc,
}
