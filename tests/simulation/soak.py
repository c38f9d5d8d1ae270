"""Many seeds: in several processes, summed up. A worker takes the next stretch of seeds when it is done with one."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation import sandbox
from tests.simulation.coverage import Tally
from tests.simulation.stories import KINDS, Report, play

STRETCH = 25
"""Seeds that a worker plays before it says how they went."""


COLLECT_EVERY = 5
"""Seeds between collections of garbage: everything of a seed is one big cycle, and looking for it all the time costs more."""


@dataclass(slots=True)
class Sum:
    """What many seeds came to."""

    seeds: int = 0
    cpu_s: float = 0.0
    tally: Tally = field(default_factory=Tally)
    kinds: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    failed: list[Report] = field(default_factory=list)

    def add(self, other: Sum) -> None:
        """Sum up."""
        self.seeds += other.seeds
        self.cpu_s += other.cpu_s
        self.tally.add(other.tally)
        self.failed += other.failed
        for kind, count in other.kinds.items():
            self.kinds[kind] += count

    def text(self) -> str:
        """For people."""
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.kinds.items())
        cost_ms = self.cpu_s / max(1, self.seeds) * 1000
        lines = [
            *(report.text() for report in self.failed),
            f"{self.seeds} seeds ({kinds}), {len(self.failed)} failed, {cost_ms:.0f} ms of CPU each",
            *self.tally.lines(),
        ]
        return "\n".join(lines)


def play_some(first: int, count: int) -> Sum:
    """Play seeds one after the other, in this process."""
    total = Sum()
    with sandbox.installed():
        gc.collect()
        gc.freeze()
        gc.disable()
        begun = time.process_time()
        for seed in range(first, first + count):
            report = play(seed)
            if seed % COLLECT_EVERY == 0:
                gc.collect()
            total.seeds += 1
            total.kinds[report.kind] += 1
            total.tally.add(report.tally)
            if report.breaches:
                total.failed.append(report)
        total.cpu_s = time.process_time() - begun
        gc.enable()
        gc.unfreeze()
    return total


def play_many(first: int, count: int, workers: int | None = None) -> Iterator[Sum]:
    """Play seeds in several processes; yields what each stretch came to, in any order."""
    firsts = range(first, first + count, STRETCH)
    stretches = [(start, min(STRETCH, first + count - start)) for start in firsts]
    with multiprocessing.get_context("spawn").Pool(workers or os.cpu_count() or 1) as pool:
        yield from pool.imap_unordered(_play_stretch, stretches)


def _play_stretch(stretch: tuple[int, int]) -> Sum:
    return play_some(*stretch)
