"""The whole promise on one machine: run A uninterrupted; run B snapshotted, killed, restored and finished; both compared.

ckptctl itself is called as an operator calls it, as a process with the cluster's configuration. The demo decides when to take the
snapshot (something finished, something in flight) and when to kill (work that no snapshot holds was done since).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckptctl.domain.amounts import plural
from ckptctl.errors import TimedOutError
from ckptctl.sim.answers import DemoAnswer
from ckptctl.sim.cluster import down, restart, up
from ckptctl.sim.cluster_client import ClusterClient
from ckptctl.sim.cluster_options import ClusterOptions, ClusterRecord
from ckptctl.sim.equivalence import compare
from ckptctl.sim.processes import OWNER_ENV, identity_of, python_path
from ckptctl.sim.run_config import POLICY_MODEL
from ckptctl.sim.run_files import RESULTS, read_log

COMMAND_TIMEOUT_S = 120
RUN_TIMEOUT_S = 120
INVALID = 13
HOLD = {"operation": "generate", "kind": "refuse", "code": "checkpoint_parked", "times": 0}
"""Rollouts wait in front of their next model call: however slowly this machine starts a command, some are in flight when
the snapshot is taken."""
OUTPUT_TAIL_BYTES = 2000


class _FailedStepError(Exception):
    """A command did not end as it must."""

    def __init__(self, step: str, exit_code: int) -> None:
        super().__init__(step)
        self.exit_code = exit_code


async def demo(run_dir: str, options: ClusterOptions, say: Callable[[str], None]) -> DemoAnswer:
    """Run it; `say` hears each step as it begins. No process is left behind, whatever happens.

    Raises:
        CkptctlError: a cluster cannot be started, or does not answer.
    """
    before = os.environ.get(OWNER_ENV)
    os.environ[OWNER_ENV] = str(identity_of(os.getpid()))
    show = _Demonstration(run_dir, options, say)
    try:
        await show.uninterrupted()
        await show.interrupted()
    except _FailedStepError as failure:
        return show.answer(failure.exit_code, str(failure))
    finally:
        show.end()
        os.environ.pop(OWNER_ENV)
        if before is not None:
            os.environ[OWNER_ENV] = before
    found = compare(show.first_dir, show.second_dir, ", ".join(options.environments))
    if found.equal:
        show.proved.append("the restored run is equal to the uninterrupted one")
    return show.answer(0 if found.equal else INVALID, None).model_copy(update={"comparison": found})


class _Demonstration:
    """Both runs, step by step."""

    def __init__(self, run_dir: str, options: ClusterOptions, say: Callable[[str], None]) -> None:
        self.first_dir, self.second_dir = f"{run_dir}/uninterrupted", f"{run_dir}/interrupted"
        self.proved: list[str] = []
        self._run_dir, self._options, self._say = run_dir, options, say
        self._snapshot: str | None = None

    async def uninterrupted(self) -> None:
        """Run A."""
        self._say("run A: all groups without interruption")
        record = await up(self.first_dir, self._options)
        async with ClusterClient(record) as client:
            await client.start_run(self._options.prompts)
            status = await client.wait_finished(self._options.prompts, RUN_TIMEOUT_S)
        down(self.first_dir, kill=False)
        self.proved.append(f"run A finished {plural(status['finished_groups'], 'group')} without interruption")

    async def interrupted(self) -> None:
        """Run B: snapshot in the middle, more work, SIGKILL, restore, the rest."""
        options = self._options
        self._say("run B: start, and wait until some groups are finished and rollouts are in flight")
        record = await up(self.second_dir, options)
        async with ClusterClient(record) as client:
            await client.start_run(options.prompts)
            await self._until(client, lambda run: run["finished_groups"] >= 1 and run["in_flight"] > 0)
            await client.fault(POLICY_MODEL, HOLD)
            self._say("ckptctl snapshot")
            await self._ckptctl("snapshot", record)
            self._snapshot = self._newest_snapshot(record)
            sealed = len(read_log(f"{self.second_dir}/{RESULTS}"))
            await client.clear_faults(POLICY_MODEL)
            await self._until(client, lambda _: len(read_log(f"{self.second_dir}/{RESULTS}")) > sealed)
        self.proved.append(f"ckptctl snapshot published `{self._snapshot}` of a running cluster, which went on")
        self._say("SIGKILL to every process of the cluster")
        down(self.second_dir, kill=True)
        self._say("ckptctl validate")
        await self._ckptctl("validate", record, record.checkpoint_dir)
        self.proved.append("ckptctl validate calls the checkpoint directory valid after the crash")
        self._say("fresh processes, then ckptctl restore")
        record = await restart(self.second_dir, restore_expected=True)
        await self._ckptctl("restore", record)
        async with ClusterClient(record) as client:
            await client.start_run(options.prompts)
            await client.wait_finished(options.prompts, RUN_TIMEOUT_S)
        self.proved.append(
            "all processes were killed; ckptctl restore brought fresh ones to the snapshot, and the run finished"
        )

    def end(self) -> None:
        """No process is left behind."""
        for folder in (self.first_dir, self.second_dir):
            if Path(folder, "cluster.json").exists():
                down(folder, kill=True)

    def answer(self, exit_code: int, failure: str | None) -> DemoAnswer:
        """What was shown so far."""
        return DemoAnswer(
            run_dir=self._run_dir, exit_code=exit_code, snapshot=self._snapshot, proved=self.proved, failure=failure
        )

    async def _until(self, client: ClusterClient, is_met: Callable[[dict[str, Any]], bool]) -> None:
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while not is_met(await client.run_status()):
            if time.monotonic() > deadline:
                raise TimedOutError(
                    server="controller", operation="the run", detail="it does not come to the point of the demo"
                )
            await asyncio.sleep(0.01)

    async def _ckptctl(self, command: str, record: ClusterRecord, *arguments: str) -> None:
        words = [sys.executable, "-m", "ckptctl", command, *arguments]
        if command != "validate":
            words += ["--config", record.config_path]
        process = await asyncio.create_subprocess_exec(
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": python_path()},
        )
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                output, _ = await process.communicate()
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            await process.wait()
            raise TimedOutError(
                server="ckptctl", operation=command, detail=f"not done in {COMMAND_TIMEOUT_S} s"
            ) from None
        status = process.returncode or 0
        if status:
            text = output.decode("utf-8", "replace")[-OUTPUT_TAIL_BYTES:].strip()
            raise _FailedStepError(f"`{' '.join(words[1:])}` ended with {status}:\n{text}", abs(status))

    def _newest_snapshot(self, record: ClusterRecord) -> str:
        found = sorted(Path(record.checkpoint_dir).glob("*/rollout_snapshots/snapshot_*"))
        if not found:
            raise _FailedStepError("`ckptctl snapshot` ended with 0 and published nothing", INVALID)
        return str(found[-1].relative_to(record.checkpoint_dir))
