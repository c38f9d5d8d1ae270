"""The coordinator's own processor time until it releases everybody: what a busy machine cannot blur.

`python -m tests.bench.own AGENTS ROLLOUTS` takes snapshots of the embedded cluster in one process, with every rollout parked, and prints per
step what the journal calls own time (between requests), on a clock that counts the processor time of this process alone. The servers'
part lies between request and answer and does not count. When agents are resumed the rollouts work in the same process, so the last two
steps are left out, and so are records of the journal between steps.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from ckptctl.adapters.clock import SystemClock

GENERATIONS = 8
SNAPSHOTS = 5
TURNS = 8
"""Each rollout has more boundaries than there are snapshots: it waits at one for each."""
APART = ("6", "7", "8", "9.3", "9.4")
"""Save, validation, publication, and what rollouts blur."""
LOOK_S = 1.0


async def measure(folder: Path, agents: int, rollouts: int) -> list:
    """The times of each snapshot."""
    from ckptctl.domain.transaction import SnapshotRequest
    from ckptctl.planning.timings import read_times
    from ckptctl.workflows.snapshot import take_snapshot
    from tests.fakes.simulated_gym import simulated

    groups = rollouts // GENERATIONS
    options = {
        "agents": agents, "prompts": groups, "generations": GENERATIONS, "turns": TURNS, "max_in_flight": rollouts,
        "acknowledge_interval_s": 3600.0, "prepare_timeout_s": 3000.0,
    }  # fmt: skip
    found = []
    async with simulated(folder, **options) as gym:
        gym.cluster.hold_at(0)
        gym.controller.loop.set_goal(groups)
        for boundary in range(SNAPSHOTS):
            while len(gym.cluster.parked()) < rollouts:
                await asyncio.sleep(LOOK_S)
            gym.cluster.hold_at(boundary + 1)
            async with gym.world() as (world, _):
                await take_snapshot(world, gym.config, SnapshotRequest(force=True))
                name = world.journal.transactions()[-1]
                found.append(read_times(name, [item.record for item in world.journal.read(name)]))
    return found


def main() -> None:
    """Measure and print."""
    agents, rollouts = map(int, sys.argv[1:])
    SystemClock.monotonic_s = lambda self: time.process_time()
    with tempfile.TemporaryDirectory(prefix="ckptctl-bench-") as name:
        found = asyncio.run(measure(Path(name), agents, rollouts))
    own = sorted(
        sum((item.own_s(step.name) or 0.0) * 1000 for step in item.steps if not step.number.startswith(APART))
        for item in found
    )
    print(f"{agents} agents, {rollouts} rollouts, {len(own)} snapshots: own processor time between requests")
    print(f"  median {median(own):.1f} ms, largest {own[-1]:.1f} ms (goal 50 ms)")
    for step in found[0].steps:
        times = [(item.own_s(step.name) or 0.0) * 1000 for item in found]
        print(f"    {step.number} {step.name:<22} median {median(times):6.1f} ms   largest {max(times):6.1f} ms")


if __name__ == "__main__":
    main()
