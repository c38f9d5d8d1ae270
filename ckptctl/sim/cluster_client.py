"""Talking to a running cluster as its operator: run, train, fault, status. Not how a coordinator talks to it.

Every failure becomes a CkptctlError that names the server; a process that died is reported with the end of its log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from shlex import quote
from types import TracebackType
from typing import Any, Self

import httpx2

from ckptctl.domain.amounts import set_time
from ckptctl.domain.controller import PREFIX
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.safe_text import safe
from ckptctl.errors import CkptctlError, DeadlineError, ServerRefusedError, TimedOutError, UnreachableError, UsageError
from ckptctl.formats.canonical_json import load_json
from ckptctl.sim.answers import ClusterAnswer, ProcessStatus
from ckptctl.sim.cluster_options import ClusterRecord, ProcessRecord
from ckptctl.sim.processes import is_alive, log_tail

READY_ROUTES = {
    "controller": f"{PREFIX}/status",
    "policy_worker": "/sim/v1/worker/status",
    "policy_model": "/ng-control/v1/capabilities",
    "agent": "/ng-control/v1/capabilities",
    "resources": "/ng-control/v1/capabilities",
    "transferqueue": "/sim/v1/queue",
}
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
CALL_TIMEOUT_S = 30
BEGIN_PATIENCE_S = 2.0


class ClusterClient:
    """One cluster's servers; an async context manager."""

    def __init__(self, record: ClusterRecord) -> None:
        self.record = record
        headers = {"authorization": f"Bearer {record.token()}"}
        self._http = httpx2.AsyncClient(headers=headers, timeout=CALL_TIMEOUT_S, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def call(self, server: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One request. Raises UnreachableError, ServerRefusedError, UsageError."""
        url = self.record.url_of(server)
        try:
            response = await self._http.request(method, url + path, json=None if body is None else dict(body))
        except httpx2.TransportError as error:
            raise self._unreachable(server, path, error) from error
        if response.status_code != 200:
            raise _refused(server, path, response)
        value = load_json(response.content, DEFAULT_LIMITS)
        return value if isinstance(value, dict) else {}

    async def start_run(self, until_groups: int) -> dict[str, Any]:
        """Have prompts drawn until so many groups exist."""
        return await self.call("controller", "POST", "/sim/v1/run/start", {"until_groups": until_groups})

    async def begin_run(self, until_groups: int) -> dict[str, Any]:
        """As `start_run`, with the status as it is once the first of them are on their way, or cannot be."""
        status = await self.start_run(until_groups)
        deadline = time.monotonic() + BEGIN_PATIENCE_S
        while status["is_admission_open"] and not status["in_flight"] and status["finished_groups"] < until_groups:
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(FIRST_PAUSE_S)
            status = await self.run_status()
        return status

    async def run_status(self) -> dict[str, Any]:
        """How far the run is."""
        return await self.call("controller", "GET", "/sim/v1/run/status")

    async def train(self) -> dict[str, Any]:
        """Train on the next finished groups."""
        return await self.call("controller", "POST", "/sim/v1/trainer/step", {})

    async def fault(self, server: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """Order a fault."""
        return await self.call(server, "POST", "/sim/v1/fault", order)

    async def fault_menu(self, server: str) -> dict[str, Any]:
        """The operations and kinds of faults that a server knows."""
        return await self.call(server, "GET", "/sim/v1/fault/menu")

    async def order_fault(self, server: str, order: Mapping[str, Any]) -> dict[str, Any]:
        """As `fault`, of something that the server can meet. Raises UsageError."""
        menu = await self.fault_menu(server)
        operation, kind = str(order.get("operation", "*")), str(order["kind"])
        if kind not in menu["kinds"]:
            raise UsageError(
                f"`{server}` has no faults of kind `{kind}`", hint=f"its kinds: {', '.join(menu['kinds'])}"
            )
        if not any(fnmatchcase(name, operation) for name in menu["operations"]):
            raise UsageError(
                f"`{server}` has no operation `{operation}`", hint=f"its operations: {', '.join(menu['operations'])}"
            )
        return await self.fault(server, order)

    async def clear_faults(self, server: str) -> dict[str, Any]:
        """Forget all faults that were ordered."""
        return await self.call(server, "POST", "/sim/v1/fault/clear", {})

    async def wait_finished(self, groups: int, timeout_s: float) -> dict[str, Any]:
        """Wait until so many groups are finished and nothing is owed to the agents.

        Raises:
            DeadlineError: with what the controller calls its problems.
        """
        deadline, pause_s = time.monotonic() + timeout_s, FIRST_PAUSE_S
        while True:
            status = await self.run_status()
            if status["finished_groups"] >= groups and status["outbox"] == 0:
                return status
            if time.monotonic() > deadline:
                facts = f"{status['finished_groups']} of {groups} groups are finished; problems: {status['problems'] or 'none'}"
                raise DeadlineError(server="controller", operation="the run", last=facts, within=set_time(timeout_s))
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 1.5)

    async def wait_ready(self, timeout_s: float) -> None:
        """Wait until every process answers.

        Raises:
            UnreachableError: one of them died (with the end of its log), or did not answer in time.
        """
        async with asyncio.TaskGroup() as tasks:
            for process in self.record.processes:
                tasks.create_task(self._wait_ready(process, time.monotonic() + timeout_s))

    async def _wait_ready(self, process: ProcessRecord, deadline: float) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                response = await self._http.get(process.url + READY_ROUTES[process.role])
                if response.status_code == 200:
                    return
            except httpx2.TransportError as error:
                if not is_alive(process.identity):
                    raise self._unreachable(process.name, "start", error) from error
            if time.monotonic() > deadline:
                detail = f"it did not answer in time; its log ends: {log_tail(process.log)}"
                raise TimedOutError(server=process.name, operation="start", detail=detail)
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 1.5)

    def _unreachable(self, server: str, operation: str, error: Exception) -> UnreachableError:
        process = next(process for process in self.record.processes if process.name == server)
        if is_alive(process.identity):
            return UnreachableError(
                server=server, operation=operation, detail=str(error) or type(error).__name__, cause=error
            )
        return UnreachableError(
            server=server,
            operation=operation,
            detail=f"its process {process.pid} has ended; its log ends: {log_tail(process.log)}",
            hint=f"start the cluster again: `ckptctl sim restart --dir {quote(safe(self.record.run_dir))}`",
            cause=error,
        )


def _refused(server: str, path: str, response: httpx2.Response) -> ServerRefusedError:
    code, detail = "", f"HTTP {response.status_code}"
    try:
        error = load_json(response.content, DEFAULT_LIMITS).get("error", {})
        code, detail = str(error.get("code", "")), str(error.get("detail", detail))
    except (DefectError, AttributeError):
        pass
    return ServerRefusedError(
        server=server, operation=path, status=response.status_code, server_code=code, detail=detail, hint=None
    )


async def observe(record: ClusterRecord) -> ClusterAnswer:
    """What every process of a cluster is doing; never raises for one that does not answer."""
    async with ClusterClient(record) as client:
        processes = [await _observe(client, process) for process in record.processes]
        run: dict[str, Any] | None = None
        with suppress(CkptctlError):
            run = await client.run_status()
    return ClusterAnswer(
        run_dir=record.run_dir,
        config=record.config_path,
        checkpoint_dir=record.checkpoint_dir,
        incarnation=record.incarnation,
        restore_expected=record.restore_expected if run is None else run["restore_expected"],
        processes=processes,
        run=run,
    )


async def _observe(client: ClusterClient, process: ProcessRecord) -> ProcessStatus:
    phase: str | None = None
    if is_alive(process.identity):
        with suppress(CkptctlError):
            phase = (await client.call(process.name, "GET", READY_ROUTES[process.role])).get("phase")
    return ProcessStatus(
        name=process.name,
        role=process.role,
        pid=process.pid,
        is_alive=is_alive(process.identity),
        url=process.url,
        phase=phase,
    )
