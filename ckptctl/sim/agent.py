"""An agent server: `/run` plays rollouts (`agent_loop`); what it knows of them is `agent_store`, control `agent_checkpoint`.

A failed run fences its attempt. A caller that hangs up fences it too, unless the execution is parked at a boundary: that one
can still be committed, and the next resume ends it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.ids import AGENT
from ckptctl.domain.participant import (
    FEATURE_ACKNOWLEDGEMENT,
    FEATURE_CONTINUATION_INDEX,
    FEATURE_DEPENDENCY_INDEX,
    FEATURE_DISCARD,
)
from ckptctl.sim.agent_checkpoint import AgentCheckpoint, install_routes
from ckptctl.sim.agent_loop import Rollout, RunFailedError
from ckptctl.sim.agent_store import AgentStore, Execution
from ckptctl.sim.environments import KINDS
from ckptctl.sim.routes import refusal_response
from ckptctl.sim.run_wire import RunBody
from ckptctl.sim.server import SimulatedServer, new_client, refuse_cookies
from ckptctl.sim.settings import AgentSettings

CALLER_GONE = 499


class Agent:
    """The data plane of one agent; `checkpoint` is its control side."""

    def __init__(self, settings: AgentSettings, server: SimulatedServer, client: httpx2.AsyncClient) -> None:
        self.settings = settings
        self.store = AgentStore(server.now)
        self.checkpoint = AgentCheckpoint(server, self.store)
        self._client = client

    async def run(self, request: Request) -> Response:
        """`POST /run`."""
        try:
            body = RunBody.model_validate_json(await request.body())
        except ValidationError as error:
            detail = [{"loc": list(item["loc"]), "msg": item["msg"]} for item in error.errors()]
            return JSONResponse({"detail": detail}, 422)
        if body.environment not in KINDS:
            return JSONResponse({"detail": f"no environment {body.environment}"}, 422)
        try:
            execution, is_new = self.store.begin(body)
        except RefusalError as error:
            return refusal_response(error)
        if not is_new:
            return JSONResponse(execution.result)
        rollout = Rollout(execution, self.store, self.settings, self._client)
        execution.task = asyncio.ensure_future(self._play(execution, rollout))
        return await self._follow(execution, execution.task, request)

    async def _play(self, execution: Execution, rollout: Rollout) -> None:
        try:
            result = await rollout.run()
        except BaseException:
            if execution.is_active:
                self.store.end(execution.pair)
            raise
        self.store.complete(execution, result)

    async def _follow(self, execution: Execution, task: asyncio.Task[None], request: Request) -> Response:
        """Answer when the execution ends; act on a caller that is gone."""
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if not task.done():
            if execution.state == "parked" and execution.boundary is not None:
                execution.is_connection_lost = True
            else:
                self.store.end(execution.pair)
            await asyncio.wait([task])
        if task.cancelled():
            return refusal_response(RefusalError("stale_attempt", "the attempt was ended here"))
        error = task.exception()
        if isinstance(error, RunFailedError):
            return JSONResponse({"error": {"code": "agent_run_failed", "detail": str(error)}}, 500)
        if error is not None:
            raise error
        return JSONResponse(execution.result, 200)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def create_agent_app(
    settings: AgentSettings, token: str | None, *, client: httpx2.AsyncClient | None = None, **options: Any
) -> SimulatedServer:
    """The ASGI application of an agent; `client` reaches its peers."""
    inner = client or new_client()
    refuse_cookies(inner)

    async def close() -> None:
        for execution in list(service.store.executions.values()):
            if execution.task is not None:
                execution.task.cancel()
        if client is None:
            await inner.aclose()

    server = SimulatedServer(settings, token, close=close, **options)
    service = server.service = Agent(settings, server, inner)
    server.capabilities(
        service.checkpoint.fence,
        component=AGENT,
        admission_states=["accepting", "draining", "paused"] if token else ["accepting"],
        checkpoint_mode="export_restore" if token else "stateless",
        concurrency_contract="serialized_per_session",
        multi_process={"mode": "single_worker", "num_workers": 1},
        instance_role=None,
        features=[FEATURE_ACKNOWLEDGEMENT, FEATURE_CONTINUATION_INDEX, FEATURE_DISCARD, FEATURE_DEPENDENCY_INDEX]
        if token
        else [],
    )
    install_routes(server, service.checkpoint)
    server.app.router.add_route("/run", service.run, methods=["POST"])
    return server
