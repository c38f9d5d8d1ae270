"""One policy worker: a process that turns a history into tokens, and acknowledges admission changes of its front end.

It has no protocol of its own towards the coordinator (upstream's workers have none either); the front end speaks for
it. Which call was accepted before a change is decided by the admission number that each call carries: a worker
closed at n refuses calls accepted at n or later and lets the earlier ones finish.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from pydantic import Field

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.document import Count, Document, Id, NonEmpty
from ckptctl.sim.environments import require_kind
from ckptctl.sim.policy_text import PolicyTurn, generate
from ckptctl.sim.routes import add_route
from ckptctl.sim.server import SimulatedServer
from ckptctl.sim.settings import PolicyWorkerSettings

WORKER_PREFIX = "/sim/v1/worker"


class GenerateBody(Document):
    """One call."""

    admission: Count
    rollout_id: Id
    turn_index: Count
    environment: NonEmpty
    parameters: dict[str, Any] = Field(default_factory=dict)
    items: list[dict[str, Any]]


class GenerateReply(Document):
    """Its tokens."""

    output: list[dict[str, Any]]
    token_ids: list[int]
    logprobs: list[float]


class AdmissionBody(Document):
    """An admission change."""

    number: Count
    is_open: bool


class WorkerStatus(Document):
    """What the front end must know of a worker."""

    acked_seq: Count
    is_open: bool
    inflight: Count
    process: Count


class PolicyWorker:
    """One worker."""

    def __init__(self, settings: PolicyWorkerSettings) -> None:
        self._settings = settings
        self._number = 0
        self._is_open = True
        self._inflight = 0

    async def generate(self, body: GenerateBody) -> GenerateReply:
        """Generate one call's tokens."""
        if not self._is_open and body.admission >= self._number:
            raise RefusalError("checkpoint_parked", "the worker was paused before this call was accepted")
        self._inflight += 1
        try:
            if self._settings.generation_delay_s:
                await asyncio.sleep(self._settings.generation_delay_s)
            turn = PolicyTurn(self._settings.seed, body.rollout_id, body.turn_index, body.items, body.parameters)
            made = generate(turn, require_kind(body.environment).script)
        finally:
            self._inflight -= 1
        return GenerateReply(output=made.output, token_ids=made.token_ids, logprobs=made.logprobs)

    async def admission(self, body: AdmissionBody) -> WorkerStatus:
        """Acknowledge an admission change; an older one than the last is only answered."""
        if body.number >= self._number:
            self._number, self._is_open = body.number, body.is_open
        return await self.status()

    async def status(self) -> WorkerStatus:
        """The last change acknowledged, and what is in flight."""
        return WorkerStatus(acked_seq=self._number, is_open=self._is_open, inflight=self._inflight, process=os.getpid())


def create_worker_app(settings: PolicyWorkerSettings, token: str | None, **options: Any) -> SimulatedServer:
    """The ASGI application of a worker."""
    server = SimulatedServer(settings, token, **options)
    worker = server.service = PolicyWorker(settings)
    for method, path, handler, body in (
        ("POST", "/generate", worker.generate, GenerateBody),
        ("POST", "/admission", worker.admission, AdmissionBody),
        ("GET", "/status", worker.status, None),
    ):
        add_route(server.app, method, WORKER_PREFIX + path, handler, token=token, body=body)
    return server
