"""The counter run with its rows in a real TransferQueue: killed three times, restored into a fresh queue each time, equal in the end.

Every death is a SIGKILL of all processes, Ray and the queue's actors included, at a drawn moment after a publication. The run that nobody
interrupted has its rows in the controller's memory: where they are decides nothing.
"""

import asyncio
import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from ckptctl.sim.cluster_client import ClusterClient
from ckptctl.sim.cluster_options import read_record
from ckptctl.sim.processes import ProcessIdentity, start_ticks
from ckptctl.sim.queue_host import scratch_folder
from ckptctl.sim.run_history import read_history
from tests.e2e.lives import owning
from tests.experiments.equivalence import GENERATE, TURNS, Played, redone, run_twice

KILLS, SEED = 3, 20261130
PROMPTS, SIBLINGS = 4, 2
PATIENCE_S = 400


class Run(Played):
    """A counter run of eight rollouts, on a queue or not."""

    groups = PROMPTS

    def __init__(self, folder: Path, data_plane: str) -> None:
        super(Played, self).__init__(folder)
        self.name = "counter"
        size = ("--prompts", str(PROMPTS), "--turns", str(TURNS), "--turn-delay", "0.02")
        self.sim("up", *size, "--data-plane", data_plane)

    def status(self) -> dict:
        """What the controller says of itself."""
        return asyncio.run(self._call("controller", "/ckpt-control/v1/status"))

    def wait_held(self) -> None:
        """Until the calls that were let through are answered: then somebody waits at the gate."""
        deadline = time.monotonic() + PATIENCE_S
        while any(item["kind"] == "late" for item in asyncio.run(self._call(GENERATE[0], "/sim/v1/fault"))["faults"]):
            assert time.monotonic() < deadline, "the run does not get on"
            time.sleep(0.05)

    def queue(self) -> ProcessIdentity:
        """The owner of the queue."""
        processes = read_record(str(self.folder)).processes
        [owner] = [process.identity for process in processes if process.role == "transferqueue"]
        return owner

    async def _call(self, server: str, path: str) -> dict:
        async with ClusterClient(read_record(str(self.folder))) as client:
            return await client.call(server, "GET", path)


@pytest.fixture(scope="module")
def extra():
    """The extra that this group is about."""
    for name in ("ray", "transfer_queue", "fastapi", "uvicorn"):
        pytest.importorskip(name, reason="needs the environment of tests/integration/run.sh")


@pytest.fixture(scope="module")
def whole(extra, tmp_path_factory):
    """The run that nobody interrupted."""
    with owning():
        run = Run(tmp_path_factory.mktemp("whole") / "run", "embedded")
        try:
            run.finish()
        finally:
            run.sim("down")
        yield run


@pytest.mark.timeout(1800)  # four starts of Ray, each some twenty seconds, or minutes where others use the machine
def test_killed_three_times_on_a_live_queue(whole, tmp_path, capsys):
    """No mutation twice and none missing, no finished work redone, every snapshot valid to the last byte, nothing left running."""
    drawn, began, told, path = random.Random(SEED), time.monotonic(), [], ""
    run = Run(tmp_path / "run", "transferqueue")
    try:
        live = run.status()
        for number in range(KILLS):
            allowed = drawn.randrange(2, 9)
            run.hold(*GENERATE, allowed)
            if number:
                answer = run.ckptctl("restore")
                assert ("restored", path) == (answer["outcome"], answer["snapshot"])
            run.sim("run", "--until-groups", str(PROMPTS))
            run.wait_held()
            path = run.ckptctl("snapshot", "--force")["snapshot"]
            verdict = run.ckptctl("validate", path, "--level", "full")["verdict"]
            run.sim("fault", "--server", GENERATE[0], "--clear")
            more = run.mutations() + drawn.randrange(PROMPTS * SIBLINGS)
            run.wait(lambda more=more: run.mutations() >= more)
            queue = run.queue()
            run.sim("down", "--kill")
            told.append((allowed, verdict))
            assert [] == left_of(queue)
            run.sim("restart", "--restore-expected")
        run.ckptctl("restore")
        run.finish()
        found = run.compared_with(whole)
    finally:
        queue = run.queue()
        run.sim("down")
    history = read_history(str(run.folder))
    with capsys.disabled():
        print(f"\nlive TransferQueue, {time.monotonic() - began:.0f} s, kills {told}\n{found.text()}", end="")

    assert ("transferqueue", 2) == (live["data_plane"], live["storage_units"])
    assert [] == found.differences
    assert (True, KILLS, PROMPTS * SIBLINGS) == (found.equal, found.restores, found.rollouts)
    assert (0, 0) == (run_twice(history), redone(history))
    assert ["valid"] * KILLS == [verdict for _, verdict in told]
    assert [] == left_of(queue)


def left_of(queue: ProcessIdentity) -> list[str]:
    """What is left of a queue whose owner was ended: processes of its session, and its folder."""
    found = [folder for folder in (scratch_folder(queue),) if Path(folder).exists()]
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                if os.getsid(int(process.name)) == queue.pid and start_ticks(int(process.name)) is not None:
                    found.append(f"{process.name} {(process / 'cmdline').read_bytes()[:200]!r}")
    return found
