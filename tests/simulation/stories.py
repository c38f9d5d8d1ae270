"""One seed: which cluster, which commands, which faults and when; then recovery in fair weather, and everything is looked at.

Four kinds. A `snapshot` of a running cluster, now and then of one that has earlier ones; a `publish` after a coordinator that died on
its way; a `restore` of a run that died; a `gc` of a directory without servers. After the commands that suffer, the same command runs
once more in fair weather, with what the status asked to be restarted restarted, and must reach the goal. Then the run goes on to its
end, sometimes by way of one more restore, and its history is compared with that of a run which nothing ever disturbed.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import cache

from ckptctl.sim.run_history import RunHistory, read_history
from tests.runs import run_files
from tests.simulation.cluster import RUN_DIR, Run
from tests.simulation.coverage import Tally
from tests.simulation.disk import Disk
from tests.simulation.faults import EventFault, draw_plan
from tests.simulation.invariants import Outcome
from tests.simulation.kernel import COORDINATOR
from tests.simulation.schedule import Schedule

RUNS = (
    Run(),
    Run(prompts=1, generations=2, turns=4),
    Run(prompts=2, generations=1, turns=3, granularity="prompt_group", keep_latest_k=1),
)
TEMPLATES = 6
RESTART = "restart the controller"
SNAPSHOT_OPERATIONS = (
    ("controller", "status"), ("controller", "admission/close"), ("controller", "acknowledgements"), ("controller", "save"),
    ("controller", "admission/open"), ("policy_model", "capabilities"), ("policy_model", "model-admission/pause"),
    ("policy_model", "model-admission/status"), ("policy_model", "model-checkpoint/commit"),
    ("policy_model", "model-admission/resume"), ("simple_agent", "capabilities"),
    ("simple_agent", "agent-checkpoint/prepare"), ("simple_agent", "agent-checkpoint/acknowledge-completed"),
    ("simple_agent", "agent-checkpoint/commit"), ("simple_agent", "agent-checkpoint/resume"),
    ("controller", "acknowledgements/confirm"), ("counter", "capabilities"), ("counter", "resources-checkpoint/prepare"),
    ("counter", "resources-checkpoint/commit"), ("counter", "resources-checkpoint/resume"),
    ("simple_agent", "agent-checkpoint/acknowledge-completed"), ("controller", "acknowledgements/confirm"),
)  # fmt: skip
"""(server, operation) of its messages; those that are only sometimes sent stand there twice."""
RESTORE_OPERATIONS = (
    ("controller", "status"), ("controller", "restore"), ("controller", "ledger"), ("controller", "staging/clear"),
    ("controller", "admission/open"), ("policy_model", "capabilities"), ("policy_model", "model-checkpoint/restore"),
    ("policy_model", "model-admission/resume"), ("simple_agent", "agent-checkpoint/restore"),
    ("simple_agent", "agent-checkpoint/resume"), ("simple_agent", "capabilities"), ("counter", "capabilities"),
    ("counter", "resources-checkpoint/restore"), ("counter", "resources-checkpoint/resume"),
)  # fmt: skip
EVENTS = {"snapshot": 1100, "publish": 400, "restore": 900, "gc": 500}
"""About how many events a command has in fair weather."""
POWER_AFTER = 0.1
"""How often the power fails when a command that suffered has ended."""
TWO_HOURS_S = 7_200
KINDS, WEIGHTS = ("snapshot", "publish", "restore", "gc"), (56, 12, 20, 12)


@dataclass(slots=True)
class Report:
    """What one seed came to."""

    seed: int
    kind: str
    breaches: list[str]
    struck: list[str]
    outcomes: list[str]
    digest: str
    tally: Tally
    trace: list[str] = field(default_factory=list)

    def text(self) -> str:
        """For people."""
        lines = [f"seed {self.seed}: {self.kind}", *(f"  struck: {item}" for item in self.struck)]
        lines += [f"  {item}" for item in self.outcomes]
        lines += [f"  BREACH {item}" for item in self.breaches] or ["  all invariants hold"]
        return "\n".join(lines)


def play(seed: int, *, keeps_trace: bool = False) -> Report:
    """Play one seed; only inside `sandbox.installed`."""
    kind, number = kind_of(seed)
    run = RUNS[number % len(RUNS)]
    disk = saved_run(number).copy() if kind == "restore" else collectable(number).copy() if kind == "gc" else None
    reference = None if kind == "gc" else undisturbed(number % len(RUNS))
    schedule = Schedule(seed, run=run, disk=disk)
    story = Story(schedule, reference, seed)
    schedule.run_story(getattr(story, kind))
    return Report(
        seed, kind, schedule.invariants.breaches, schedule.weather.struck, schedule.outcomes,
        schedule.weather.digest(), schedule.weather.tally, schedule.weather.trace if keeps_trace else [],
    )  # fmt: skip


def kind_of(seed: int) -> tuple[str, int]:
    """Which kind of story a seed tells, and in which surroundings."""
    drawn = random.Random(f"kind:{seed}")
    return drawn.choices(KINDS, WEIGHTS)[0], drawn.randrange(TEMPLATES)


class Story:
    """The four kinds."""

    def __init__(self, schedule: Schedule, reference: RunHistory | None, seed: int) -> None:
        self._number = seed
        self._schedule, self._rng, self._reference = schedule, schedule.rng, reference
        self._incarnation = 1

    # --- snapshot ------------------------------------------------------------------------------------------------------------

    async def snapshot(self) -> None:
        """A snapshot of a running cluster."""
        await self._begin()
        await self._suffer("snapshot")
        if self._rng.random() < 0.3:
            await self._suffer(self._rng.choice(("snapshot", "publish")))
        await self._recover("snapshot")
        await self._end()

    async def publish(self) -> None:
        """A coordinator died on its way; `publish` finishes what it left."""
        await self._begin()
        schedule = self._schedule
        schedule.weather.plan = [EventFault("crash", COORDINATOR, self._rng.randint(1, EVENTS["snapshot"]))]
        await schedule.command("snapshot", suffers=True, force=True)
        await self._suffer("publish")
        await self._recover("publish")
        await self._end()

    async def _begin(self) -> None:
        cluster = await self._schedule.start_cluster()
        await asyncio.sleep(self._rng.random() * self._rng.choice((0.3, 2.0, 6.0)))
        if self._rng.random() < 0.25:
            outcome = await self._schedule.command("snapshot", force=True)
            if outcome.status != 0:
                self._breach(f"a snapshot in fair weather: {outcome}")
            await asyncio.sleep(self._rng.random() * 2.0)
        assert cluster.is_up("controller")

    async def _suffer(self, command: str) -> Outcome | None:
        schedule = self._schedule
        if schedule.cluster is not None and not schedule.cluster.is_up("controller"):
            return None  # the training process is gone, and with it the job
        operations = RESTORE_OPERATIONS if command == "restore" else SNAPSHOT_OPERATIONS
        is_live = command != "gc"
        schedule.weather.plan = draw_plan(
            self._rng, command, operations, servers=is_live, events=EVENTS[command], number=self._next_number()
        )
        wishes = {"force": True} if command == "snapshot" else {}
        return await schedule.command(command, suffers=True, host=self._host(), **wishes)

    def _next_number(self) -> int:
        """What the next plan aims by."""
        self._number += 1_000_003
        return self._number

    def _host(self) -> str:
        """Where an operator types: a lock that somebody dead left on the other host looks alive from here."""
        return self._rng.choice(("login-1", "login-1", "login-2"))

    async def _recover(self, command: str) -> None:
        """One more run in fair weather reaches the goal."""
        schedule, cluster = self._schedule, self._schedule.cluster
        assert cluster is not None
        if self._rng.random() < POWER_AFTER:
            schedule.power()
        schedule.mend()
        if not cluster.is_up("controller"):
            await self._begin_anew()
            return
        outcome = await schedule.command_at_last(command, host=self._host())
        if (
            outcome.status == 22 and schedule.deaths
        ):  # who lost his memory makes rollouts fail; when they have, all is well
            await asyncio.sleep(60.0)
            outcome = await schedule.command(command)
        if outcome.status != 0:
            self._breach(f"in fair weather: {outcome}")
        if cluster.held():
            self._breach(f"after {outcome} in fair weather {cluster.held()} are held")
        if command == "publish" and outcome.status == 0:
            outcome = await schedule.command("publish")
            if (outcome.status, outcome.told) != (0, "nothing_to_do"):
                self._breach(f"twice in fair weather: {outcome}")

    async def _begin_anew(self) -> None:
        """The job is started again: from the newest snapshot, where there is one."""
        schedule = self._schedule
        self._incarnation += 1
        has_snapshot = bool(schedule.invariants.visible())
        await schedule.start_cluster(incarnation=self._incarnation, restore_expected=has_snapshot)
        outcome = await schedule.command_at_last("restore" if has_snapshot else "snapshot")
        if outcome.status != 0 and RESTART in outcome.hint:
            self._breach(f"everything was restarted, and yet: {outcome}; hint: {outcome.hint}")
        elif outcome.status != 0:
            self._breach(f"in fair weather, all servers new: {outcome}")

    async def _end(self) -> None:
        """The run goes on, sometimes by way of a restore, to its end."""
        schedule = self._schedule
        if self._rng.random() < 0.3 and schedule.invariants.visible():
            await self._begin_anew()
        await schedule.finish_run()
        schedule.invariants.check_acknowledgements()
        schedule.invariants.check_snapshots()
        assert self._reference is not None
        schedule.invariants.check_history(self._reference)

    # --- restore -------------------------------------------------------------------------------------------------------------

    async def restore(self) -> None:
        """A run that died is brought back."""
        schedule = self._schedule
        schedule.invariants.look(most_new=9)
        self._incarnation = 2
        await schedule.start_cluster(incarnation=2, restore_expected=True)
        outcome = await self._suffer("restore")
        is_done = outcome is not None and outcome.status == 0
        if not is_done and self._rng.random() < 0.3:
            outcome = await self._suffer("restore")
            is_done = outcome is not None and outcome.status == 0
        if self._rng.random() < POWER_AFTER:
            schedule.power()
        schedule.mend()
        if not is_done:
            await self._restore_again()
        elif schedule.deaths:
            await self._begin_anew()
        await self._end()

    async def _restore_again(self) -> None:
        schedule, cluster = self._schedule, self._schedule.cluster
        assert cluster is not None
        if schedule.deaths:
            await self._begin_anew()
            return
        outcome = await schedule.command_at_last("restore", host=self._host())
        if outcome.status == 24 and RESTART in outcome.hint:
            await self._begin_anew()
            return
        is_finished = outcome.status == 20 and schedule.invariants.unfinished() is None and not cluster.held()
        if outcome.status != 0 and not is_finished:
            self._breach(f"in fair weather: {outcome}; hint: {outcome.hint}")
            await self._begin_anew()

    # --- gc ------------------------------------------------------------------------------------------------------------------

    async def gc(self) -> None:
        """A directory without servers is collected."""
        schedule = self._schedule
        schedule.invariants.look(most_new=9)
        keep = self._rng.choice((1, 2))
        schedule.invariants.kept = keep
        for _ in range(self._rng.choice((1, 1, 2))):
            schedule.weather.plan = draw_plan(
                self._rng, "gc", (), servers=False, events=EVENTS["gc"], number=self._next_number()
            )
            await schedule.command("gc", suffers=True, keep=keep, grace_s=0.0)
        if self._rng.random() < 0.2:
            schedule.power()
        schedule.mend()
        for expected in ("collected", "nothing_to_do"):
            outcome = await schedule.command_at_last("gc", keep=keep, grace_s=0.0)
            if outcome.status != 0:
                self._breach(f"in fair weather: {outcome}, not {expected}")
        schedule.invariants.check_snapshots()

    def _breach(self, text: str) -> None:
        self._schedule.invariants.breach(text)


# --- what seeds begin with, made once per process ----------------------------------------------------------------------------------


@cache
def undisturbed(number: int) -> RunHistory:
    """The history of a run that nothing disturbs."""
    schedule = Schedule(f"undisturbed:{number}", run=RUNS[number])
    histories = []

    async def story() -> None:
        await schedule.start_cluster()
        await schedule.finish_run()
        histories.append(read_history(RUN_DIR))

    schedule.run_story(story)
    assert not schedule.invariants.breaches, schedule.invariants.breaches
    return histories[0]


@cache
def saved_run(number: int) -> Disk:
    """A run that died after a snapshot (or two), at different points of its life."""
    schedule = Schedule(f"saved:{number}", run=RUNS[number % len(RUNS)])

    async def story() -> None:
        await schedule.start_cluster()
        await asyncio.sleep(0.2 + 0.6 * number)
        for _ in range(1 + number % 2):
            outcome = await schedule.command("snapshot", force=True)
            assert outcome.status == 0, outcome
            await asyncio.sleep(0.3)

    schedule.run_story(story)
    assert not schedule.invariants.breaches, schedule.invariants.breaches
    return schedule.kernel.disk.copy()


@cache
def collectable(number: int) -> Disk:
    """A directory with several snapshots and leftovers."""
    schedule = Schedule(f"collectable:{number}", run=RUNS[number % len(RUNS)])
    files = run_files(step_3=3 + number % 2, bootstrap=number % 2)

    async def story() -> None:
        disk, now_s, root = schedule.kernel.disk, schedule.kernel.server_now_s(), schedule.machine.checkpoint_dir
        leftovers = {"step_3/rollout_snapshots/tmp_snapshot_000009/config.yaml": b"a: 1\n"} if number % 3 == 0 else {}
        for path, data in {**files, **leftovers}.items():
            then_s = (
                now_s - TWO_HOURS_S if path in leftovers else now_s
            )  # what is younger stays: its writer may be alive
            folder = ""
            for part in f"{root}/{path}".split("/")[1:-1]:
                folder += f"/{part}"
                if disk.find(folder) is None:
                    disk.create(folder, then_s, is_directory=True, mode=0o755)
            node = disk.create(f"{root}/{path}", then_s, is_directory=False, mode=0o644)
            disk.write(node, 0, data, then_s)

    schedule.run_story(story)
    return schedule.kernel.disk.copy()
