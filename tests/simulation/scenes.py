"""Scenes that every run must contain, whatever the seeds draw: a coordinator that sleeps past its lease, at each step of its command."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation import sandbox
from tests.simulation.cluster import Run
from tests.simulation.faults import EventFault
from tests.simulation.kernel import COORDINATOR
from tests.simulation.schedule import Schedule

ASLEEP_S = 500.0


@dataclass(frozen=True, slots=True)
class Slept:
    """How a command ended that slept while somebody took its lock."""

    step: str
    sleeper: int
    """Exit status."""
    told: str
    successors: list[tuple[int, str]]
    """Exit status and outcome of those who came meanwhile."""
    snapshots: list[str]
    breaches: list[str]


def sleep_at(steps: tuple[str, ...]) -> list[Slept]:
    """Take a snapshot that falls asleep at its first call in each of these steps, each in a cluster of its own."""
    with sandbox.installed():
        return [_slept(step) for step in steps]


def _slept(step: str) -> Slept:
    schedule = Schedule(f"asleep:{step}", run=Run(prompts=1))
    found: list[Slept] = []

    async def story() -> None:
        await schedule.start_cluster()
        schedule.weather.plan = [EventFault("freeze", COORDINATOR, 1, ASLEEP_S, step)]
        outcome = await schedule.command("snapshot", suffers=True, force=True)
        rivals = [(rival.status, rival.told.partition(":")[0]) for rival in schedule.rivals]
        schedule.mend()
        await schedule.command_at_last("snapshot")
        schedule.invariants.check_snapshots()
        paths = list(schedule.invariants.visible())
        found.append(Slept(step, outcome.status, outcome.told.partition(":")[0], rivals, paths, []))

    schedule.run_story(story)
    [slept] = found
    slept.breaches.extend(schedule.invariants.breaches)
    return slept
