"""A snapshot's drain on virtual time: what a coordinator sends while slow policy calls end, and to empty an outbox.

The embedded cluster's real applications and ckptctl's real workflows share one event loop whose clock jumps to the next timer, so that
a drain of a minute takes no minute and counts are the same on every machine. Beside ckptctl stand two coordinators that differ from it
in one thing each, and only here: one asks ten times a second instead of waiting at the server, one sends receipts one by one.

A program of its own (`python -m tests.bench.drain`), because the clock must be in place before anything is imported. Prints JSON.
"""

import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tests.simulation.virtual_loop import VirtualLoop

LOOP = VirtualLoop()
EPOCH_S = 1_800_000_000.0
POLL_S = 0.1
CALL_S = 80.0
"""Length of a policy call; the drains below end before it."""
LENGTHS_S = (1.0, 4.0, 16.0, 64.0)
NEVER_S = 1e6
GENERATIONS = 8


class SteadyClock:
    """The clock of a coordinator that knows one pause."""

    def __init__(self, clock):
        self._clock = clock

    def __getattr__(self, name):
        return getattr(self._clock, name)

    async def sleep(self, seconds):
        await self._clock.sleep(POLL_S)


@dataclass
class Asking:
    """Participants that are asked how it stands, and not to wait."""

    inner: object
    clock: object

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def agent_prepare(self, server, checkpoint_id, deadline_ts):
        return await self.inner.agent_prepare(server, checkpoint_id, min(deadline_ts, self.clock.now_s() + 0.001))

    async def model_status(self, server, checkpoint_id, deadline_ts, *, wait_paused_s):
        return await self.inner.model_status(server, checkpoint_id, deadline_ts, wait_paused_s=None)


@dataclass
class OneByOne:
    """Participants that get each receipt in a request of its own."""

    inner: object

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def agent_acknowledge(self, server, receipts):
        replies = [await self.inner.agent_acknowledge(server, (receipt,)) for receipt in receipts]
        return replies[0].model_copy(
            update={"acknowledged": [item for reply in replies for item in reply.acknowledged]}
        )


def ckptctl(world):
    return world


def polling(world):
    return replace(world, participants=Asking(world.participants, world.clock), clock=SteadyClock(world.clock))


def one_by_one(world):
    return replace(world, participants=OneByOne(world.participants))


async def snapshot(gym, coordinator):
    """Take one, and say what its steps 2 to 4 asked for."""
    from ckptctl.domain.transaction import SnapshotRequest
    from ckptctl.planning.timings import read_times
    from ckptctl.workflows.snapshot import take_snapshot

    async with gym.world() as (world, wire):
        await take_snapshot(coordinator(world), gym.config, SnapshotRequest(force=True))
        name = world.journal.transactions()[-1]
        timed = read_times(name, (item.record for item in world.journal.read(name)))
    drain = [step for step in timed.steps if step.number < "5"]
    sent = [item.route for item in wire.sent]
    sent = sent[sent.index("admission/close") : sent.index("agent-checkpoint/commit")]
    assert len(sent) == sum(step.requests for step in drain), "the journal counts what was sent"
    return {
        "coordinator": coordinator.__name__,
        "requests": len(sent),
        "bytes": sum(step.sent_bytes + step.received_bytes for step in drain),
        "drain_s": sum(step.seconds for step in drain),
        "closed_s": timed.times.admission_closed_s,
        "acknowledge": sent.count("agent-checkpoint/acknowledge-completed"),
        "confirm": sent.count("acknowledgements/confirm"),
        "pages": sent.count("acknowledgements"),
    }


async def drains(folder, agents, rollouts):
    """Everybody is in a policy call of which so much is left; one turn after the other."""
    from tests.fakes.simulated_gym import simulated

    kinds = [(length_s, kind) for length_s in LENGTHS_S for kind in (ckptctl, polling)]
    options = cluster(agents, rollouts, turns=2 * len(kinds) + 2)  # a turn may count two
    found = []
    async with simulated(folder, delays={"generation": CALL_S}, **options) as gym:
        model = gym.cluster.policy.service.checkpoint
        gym.controller.loop.set_goal(options["prompts"])
        for length_s, kind in kinds:
            begun_s = LOOP.time()  # released a moment ago: everybody begins a call
            while model.inflight < rollouts:
                await asyncio.sleep(POLL_S)
            await asyncio.sleep(begun_s + CALL_S - length_s - LOOP.time())
            found.append({"length_s": length_s, **await snapshot(gym, kind)})
    return found


async def outbox(folder, agents, rollouts, kind):
    """Every result is owned, and no agent knows."""
    from tests.fakes.simulated_gym import simulated

    options = cluster(agents, rollouts, turns=1)
    async with simulated(folder, **options) as gym:
        gym.controller.loop.set_goal(options["prompts"])
        while gym.controller.state.finished_count() < options["prompts"]:
            await asyncio.sleep(POLL_S)
        return {"receipts": len(gym.controller.state.ledger.outbox()), **await snapshot(gym, kind)}


def cluster(agents, rollouts, *, turns):
    return {
        "agents": agents, "prompts": rollouts // GENERATIONS, "generations": GENERATIONS, "turns": turns,
        "max_in_flight": rollouts, "acknowledge_interval_s": NEVER_S, "prepare_timeout_s": 300.0,
    }  # fmt: skip


async def main(agents, rollouts):
    with tempfile.TemporaryDirectory(prefix="ckptctl-bench-") as name:
        folder = Path(name)
        found = {"drains": await drains(folder / "drains", agents, rollouts)}
        found["outboxes"] = [
            await outbox(folder / kind.__name__, agents, rollouts, kind) for kind in (ckptctl, one_by_one)
        ]
    print(json.dumps(found))


if __name__ == "__main__":
    time.time = lambda: EPOCH_S + LOOP.time()
    time.monotonic = LOOP.time
    asyncio.set_event_loop(LOOP)
    LOOP.run_until_complete(main(int(sys.argv[1]), int(sys.argv[2])))
