"""The policy model: its front end admits calls, has a worker generate them, and captures every call's tokens.

Order of checks of a call (participant-protocol section 6.1): identity headers and path agree; tombstone
(`stale_attempt`); admission (`checkpoint_parked`). An accepted call finishes whatever happens to admission
meanwhile. A call id that already succeeded gets its first answer again: the agent may have lost it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx2
from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.document import Count, LenientDocument, NonEmpty
from ckptctl.domain.ids import MODEL, is_id
from ckptctl.domain.participant import FEATURE_STORAGE_INDEX
from ckptctl.errors import StorageError
from ckptctl.sim.faults import GENERATE
from ckptctl.sim.identity import CALL, PARENT_CALL, PARENT_CAPTURE, Pair, read_pair
from ckptctl.sim.policy_capture import (
    CapturedCall,
    CaptureError,
    CaptureStore,
    context_facts,
    put_body,
    response_id,
    stage,
)
from ckptctl.sim.policy_checkpoint import ModelCheckpoint, install_routes
from ckptctl.sim.policy_worker import GenerateBody
from ckptctl.sim.policy_workers import NoWorkerError, WorkerPool
from ckptctl.sim.routes import refusal_response
from ckptctl.sim.server import SimulatedServer, new_client
from ckptctl.sim.settings import PolicyModelSettings

CALL_PATH = "/ng-rollout/{capture_key}/training-token-capture/v1/responses"
RETRY_AFTER = {"retry-after": "1"}


class ModelCallBody(LenientDocument):
    """One call. The items are the whole history."""

    input: list[dict[str, Any]]
    turn_index: Count
    environment: NonEmpty
    parameters: dict[str, Any] = Field(default_factory=dict)


class UpstreamError(Exception):
    """The controller's data plane did not take a row."""


class PolicyModel:
    """The data plane of the policy model; `checkpoint` is its control side."""

    def __init__(self, settings: PolicyModelSettings, server: SimulatedServer, client: httpx2.AsyncClient) -> None:
        self.settings = settings
        self.pool = WorkerPool(settings.workers, client, server.token)
        self.capture = CaptureStore(settings.capture_dir)
        self.checkpoint = ModelCheckpoint(server, self.pool, self.capture)
        self._client = client
        self._server = server
        self._controller = settings.controller_url.rstrip("/") + "/sim/v1"
        self._headers = {"authorization": f"Bearer {server.token}"} if server.token else {}
        self._answers: dict[tuple[str, str], dict[str, Any]] = {}
        self._running: dict[tuple[str, str], asyncio.Future[dict[str, Any]]] = {}
        """Calls at work, by capture key and call id: a repeated call joins."""
        self._now = server.now

    async def call(self, request: Request) -> Response:
        """One model call."""
        try:
            return await self._call(request)
        except RefusalError as error:
            return refusal_response(error, headers=RETRY_AFTER)

    async def _call(self, request: Request) -> Response:
        capture = request.path_params["capture_key"]
        pair, call_id = _identity(request.headers, capture)
        if pair in self.checkpoint.tombstones:
            raise RefusalError("stale_attempt", f"{pair.rollout_id} attempt {pair.attempt_index} is over")
        if not self.checkpoint.is_open:
            raise RefusalError("checkpoint_parked", "admission is closed for a checkpoint; ask again")
        if (capture, call_id) in self._answers:
            return JSONResponse(self._answers[capture, call_id])
        admission = self.pool.number
        with self.checkpoint.accepted(pair) as cancelled:
            try:
                body = ModelCallBody.model_validate_json(await request.body())
            except ValidationError as error:
                return JSONResponse({"detail": [str(item["loc"]) for item in error.errors()]}, 422)
            work = self._running.get((capture, call_id))
            if work is None:
                work = asyncio.ensure_future(self._answer(pair, call_id, request.headers, body, admission))
                self._running[capture, call_id] = work
                work.add_done_callback(lambda _: self._running.pop((capture, call_id), None))
            waited: list[asyncio.Future[Any]] = [work, cancelled]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
                await asyncio.wait([work])
            if cancelled.done() or work.cancelled():
                raise RefusalError("stale_attempt", f"{pair.rollout_id} attempt {pair.attempt_index} was aborted")
            try:
                answer = work.result()
            except (CaptureError, NoWorkerError, UpstreamError, StorageError) as error:
                return JSONResponse({"detail": f"the call failed: {error}"}, 500)
        return JSONResponse(answer)

    async def _answer(
        self, pair: Pair, call_id: str, headers: Mapping[str, str], body: ModelCallBody, admission: int
    ) -> dict[str, Any]:
        """One call from admission to lineage; also its failure stands in the lineage."""
        try:
            answer = await self._generate(pair, call_id, headers, body, admission)
        except (CaptureError, NoWorkerError, UpstreamError, StorageError):
            self.capture.add_failure(pair.capture_key, call_id)
            raise
        self._answers[pair.capture_key, call_id] = answer
        return answer

    async def _generate(
        self, pair: Pair, call_id: str, headers: Mapping[str, str], body: ModelCallBody, admission: int
    ) -> dict[str, Any]:
        admitted_at = self._now()
        await self._server.delay_inside(GENERATE)
        weights = await self._ask("GET", "/weights")
        parent = self._parent(headers)
        made = await self.pool.generate(
            GenerateBody(
                admission=admission,
                rollout_id=pair.rollout_id,
                turn_index=body.turn_index,
                environment=body.environment,
                parameters=body.parameters,
                items=body.input,
            )
        )
        row = stage(
            capture=pair.capture_key,
            call_id=call_id,
            items=body.input,
            generated_ids=made.token_ids,
            logprobs=made.logprobs,
            weight_version=int(weights["weight_version"]),
            parent=parent,
        )
        await self._ask("POST", "/data-plane/put", json=put_body(self.settings.staging_partition, row))
        self.capture.add_call(row, parent, context_facts(body.input, admitted_at))
        return {
            "id": response_id(row.digest),
            "object": "response",
            "status": "completed",
            "model": self.settings.name,
            "output": made.output,
            "usage": {
                "input_tokens": row.cum_len - len(made.token_ids),
                "output_tokens": len(made.token_ids),
                "total_tokens": row.cum_len,
            },
        }

    def _parent(self, headers: Mapping[str, str]) -> CapturedCall | None:
        capture, call_id = headers.get(PARENT_CAPTURE), headers.get(PARENT_CALL)
        if capture is None or call_id is None:
            return None
        found = self.capture.find(capture, call_id)
        if found is None:
            raise CaptureError(f"the parent call {call_id} of {capture} is not known here")
        return found

    async def _ask(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        try:
            reply = await self._client.request(method, self._controller + path, headers=self._headers, **arguments)
        except httpx2.TransportError as error:
            raise UpstreamError(f"controller {path}: {type(error).__name__}") from error
        if reply.status_code != 200:
            raise UpstreamError(f"controller {path}: {reply.status_code}")
        value = reply.json()
        assert isinstance(value, dict)
        return value


def _identity(headers: Mapping[str, str], capture: str) -> tuple[Pair, str]:
    pair, call_id = read_pair(headers), headers.get(CALL)
    if pair is None or call_id is None or not is_id(call_id) or pair.capture_key != capture:
        raise RefusalError("execution_identity_mismatch", "identity headers and path do not name one attempt")
    return pair, call_id


def create_policy_app(
    settings: PolicyModelSettings, token: str | None, *, client: httpx2.AsyncClient | None = None, **options: Any
) -> SimulatedServer:
    """The ASGI application of the policy model's front end; `client` reaches workers and controller."""
    inner = client or new_client()

    async def close() -> None:
        if client is None:
            await inner.aclose()

    server = SimulatedServer(settings, token, close=close, **options)
    server.delays_inside = frozenset({GENERATE})
    service = server.service = PolicyModel(settings, server, inner)
    server.capabilities(
        service.checkpoint.fence,
        component=MODEL,
        admission_states=["accepting", "draining", "paused"] if token else ["accepting"],
        checkpoint_mode="export_restore" if token else "stateless",
        concurrency_contract="transactional_parallel",
        multi_process={"mode": "coordinator", "num_workers": len(settings.workers)},
        instance_role="policy",
        features=[FEATURE_STORAGE_INDEX] if token else [],
    )
    install_routes(server, service.checkpoint)
    server.app.router.add_route(CALL_PATH, service.call, methods=["POST"])
    return server
