"""The policy model's workers as its front end sees them: who is there, who acknowledged, whose turn it is.

Calls go round robin to the workers that answer; generation has no effect, so a call whose worker died is simply
given to the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import httpx2
from pydantic import ValidationError

from ckptctl.sim.policy_worker import WORKER_PREFIX, AdmissionBody, GenerateBody, GenerateReply, WorkerStatus

PATIENCE_S = 2.0
"""How long a worker may take for anything but a generation."""


class NoWorkerError(Exception):
    """No worker could serve a call."""


@dataclass(slots=True)
class WorkerView:
    """What is known of one worker."""

    acked_seq: int = 0
    inflight: int = 0
    is_connected: bool = True


class WorkerPool:
    """All workers of one policy model."""

    def __init__(self, urls: Mapping[str, str], client: httpx2.AsyncClient, token: str | None) -> None:
        self._urls = {name: url.rstrip("/") + WORKER_PREFIX for name, url in urls.items()}
        self._client = client
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._next = 0
        self.number = 0
        """The last admission change."""
        self.is_open = True
        self.views = {name: WorkerView() for name in urls}

    @property
    def acknowledged(self) -> int:
        """Workers that acknowledged the last admission change and answer."""
        return sum(view.is_connected and view.acked_seq >= self.number for view in self.views.values())

    @property
    def missing(self) -> list[str]:
        """Workers that do not answer."""
        return [name for name, view in self.views.items() if not view.is_connected]

    async def change(self, *, is_open: bool) -> None:
        """Tell every worker; one that does not answer is missing."""
        self.number, self.is_open = self.number + 1, is_open
        await asyncio.gather(*(self._tell(name) for name in self._urls))

    async def refresh(self) -> None:
        """Ask every worker where it stands, and tell it again what it missed (it may have been restarted)."""
        await asyncio.gather(*(self._look(name) for name in self._urls))

    async def generate(self, body: GenerateBody) -> GenerateReply:
        """One call's tokens. Raises NoWorkerError."""
        names = list(self._urls)
        first, self._next = self._next, self._next + 1
        problems = []
        for step in range(len(names)):
            name = names[(first + step) % len(names)]
            try:
                reply = await self._client.post(
                    f"{self._urls[name]}/generate", json=body.model_dump(mode="json"), headers=self._headers
                )
                if reply.status_code == 200:
                    return GenerateReply.model_validate_json(reply.content)
                problems.append(f"{name}: {reply.status_code}")
            except (httpx2.TransportError, ValidationError) as error:
                self.views[name].is_connected = False
                problems.append(f"{name}: {type(error).__name__}")
        raise NoWorkerError("; ".join(problems))

    async def _tell(self, name: str) -> None:
        body = AdmissionBody(number=self.number, is_open=self.is_open)
        await self._ask(name, "POST", "/admission", json=body.model_dump())

    async def _look(self, name: str) -> None:
        await self._ask(name, "GET", "/status")
        if self.views[name].is_connected and self.views[name].acked_seq < self.number:
            await self._tell(name)

    async def _ask(self, name: str, method: str, path: str, **arguments: object) -> None:
        view = self.views[name]
        try:
            reply = await self._client.request(
                method,
                self._urls[name] + path,
                headers=self._headers,
                timeout=PATIENCE_S,
                **arguments,  # type: ignore[arg-type]  # only `json`, whose type is Any
            )
            status = WorkerStatus.model_validate_json(reply.content)
        except (httpx2.TransportError, ValidationError):
            view.is_connected = False
            return
        view.is_connected, view.acked_seq, view.inflight = True, status.acked_seq, status.inflight
