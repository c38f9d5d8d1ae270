"""One rollout at the agent: turn by turn against a policy model and a resources server, a boundary after every effect.

    seed -> boundary 0 -> [ model call -> boundary pending_model -> action -> ... -> boundary turn_complete ]* -> verify -> result

1. A boundary states exactly what the servers hold: the last committed call, the session revision, the conversation.
2. Between two boundaries stands at most one effect. A refused call had none, so the rollout may park while it waits;
   a session's call whose answer was lost may have had one, so it is repeated under the same id and never parks
   before that is known.
3. A continuation starts from a restored boundary: it skips the seeding, links its first model call to the restored
   parent, and goes on inside a turn at the cursor, with the request id that the boundary names.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx2

from ckptctl.domain.canonical import compact_sorted
from ckptctl.domain.participant_files import BoundaryRecord, PendingModel
from ckptctl.sim.agent_store import AgentStore, Execution
from ckptctl.sim.environments import require_kind
from ckptctl.sim.identity import (
    CALL,
    EXPECTED_REVISION,
    GENERATION,
    PARENT_CALL,
    PARENT_CAPTURE,
    REQUEST_ID,
    REVISION,
    TURN,
    read_number,
)
from ckptctl.sim.policy_text import Item, function_output, message
from ckptctl.sim.run_wire import RunResult
from ckptctl.sim.sessions import MAX_RECEIPTS
from ckptctl.sim.settings import AgentSettings

FIRST_RETRY_S, LAST_RETRY_S = 0.02, 1.0
LOST_CALL_TRIES = 6
PARKED_CODES = ("checkpoint_parked", "resources_admission_closed")


class RunFailedError(Exception):
    """The rollout cannot go on."""


class Rollout:
    """One execution's conversation."""

    def __init__(
        self, execution: Execution, store: AgentStore, settings: AgentSettings, client: httpx2.AsyncClient
    ) -> None:
        self._execution, self._store, self._settings, self._client = execution, store, settings, client
        body = execution.body
        self._kind = require_kind(body.environment)
        self._model = body.model_server or settings.model_server
        self._resources = body.resources_server or body.environment
        self._items: list[Item] = [message("user", body.prompt)]
        self._turn = 0
        self._usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        self._revisions: dict[str, int] = {}
        self._cookies: dict[str, str] = {}
        self._parent: tuple[str, str] | None = None
        self._pending: PendingModel | None = None
        self._outputs: list[Item] = []
        """What the actions before the cursor of the pending response returned."""

    async def run(self) -> dict[str, Any]:
        """Play the rollout to its end. Raises RunFailedError."""
        if self._execution.boundary is None:
            await (self._seed() if self._kind.seeds else self._boundary("turn_complete"))
        else:
            self._continue_from(self._execution.boundary)
            await self._store.park(self._execution)
        while not self._is_over():
            if self._pending is None:
                await self._ask_model()
            if self._pending is not None:
                await self._act(self._pending)
        await self._await_verdict()
        return await self._verify()

    def _is_over(self) -> bool:
        if self._pending is not None:
            return False
        if self._kind.ends_with is not None:
            return any(item.get("name") == self._kind.ends_with for item in self._items)
        return self._items[-1].get("role") == "assistant"

    async def _seed(self) -> None:
        body = {"prompt": self._execution.body.prompt, "parameters": self._execution.body.parameters}
        reply = await self._call_resources("seed_session", body, f"{self._prefix}.seed", may_park=False)
        if reply.status_code != 200:
            raise RunFailedError(f"{self._resources} did not seed the session: {reply.status_code} {_refusal(reply)}")
        await self._boundary("turn_complete")

    def _continue_from(self, record: BoundaryRecord) -> None:
        self._items = [dict(item) for item in record.output_items]
        self._turn = record.turn_index
        self._usage = dict(record.usage or self._usage)
        self._revisions = dict(record.resource_state_revisions)
        self._cookies = dict(record.agent_state.get("resources_server_cookies", {}))
        self._outputs = [dict(item) for item in record.agent_state.get("action_outputs", [])]
        self._pending = record.pending_model
        if record.last_committed_model_capture_key is not None and record.last_committed_model_call_id is not None:
            self._parent = (record.last_committed_model_capture_key, record.last_committed_model_call_id)

    # --- model ---

    async def _ask_model(self) -> None:
        call_id = f"call-{self._turn}"
        response = await self._call_model(call_id)
        self._parent = (self._execution.pair.capture_key, call_id)
        for name in self._usage:
            self._usage[name] += int(response["usage"][name])
        calls = _function_calls(response)
        if not calls:
            self._items.extend(response["output"])
            self._turn += 1
            await self._boundary("turn_complete")
            return
        self._outputs = []
        await self._pending_boundary(call_id, response, 0, self._request_id(calls[0], 0))

    async def _call_model(self, call_id: str) -> dict[str, Any]:
        pair = self._execution.pair
        url = f"{self._url(self._model)}/ng-rollout/{pair.capture_key}/training-token-capture/v1/responses"
        body = {
            "model": self._model,
            "input": self._items,
            "turn_index": self._turn,
            "environment": self._execution.body.environment,
            "parameters": self._execution.body.parameters,
        }
        headers = {**self._headers(), CALL: call_id}
        if self._parent is not None:
            headers[PARENT_CAPTURE], headers[PARENT_CALL] = self._parent
        reply = await self._send("POST", url, headers, compact_sorted(body), may_park=True)
        if reply.status_code != 200:
            raise RunFailedError(f"{self._model} refused {call_id}: {reply.status_code} {_code(reply)}")
        answer = reply.json()
        assert isinstance(answer, dict)
        return answer

    # --- actions ---

    async def _act(self, pending: PendingModel) -> None:
        calls = _function_calls(pending.response)
        request_id = pending.resource_request_id
        for cursor in range(pending.pending_action_cursor, len(calls)):
            if self._settings.action_delay_s:
                await asyncio.sleep(self._settings.action_delay_s)
            reply = await self._call_action(calls[cursor], request_id)
            self._outputs.append(function_output(calls[cursor], reply.text))
            if cursor + 1 < len(calls):
                request_id = self._request_id(calls[cursor + 1], cursor + 1)
                await self._pending_boundary(pending.model_call_id, pending.response, cursor + 1, request_id)
        self._items.extend([*pending.response["output"], *self._outputs])
        self._pending, self._outputs = None, []
        self._turn += 1
        await self._boundary("turn_complete")

    async def _call_action(self, call: Item, request_id: str | None) -> httpx2.Response:
        arguments = json.loads(call["arguments"])
        if call["name"] in self._kind.reads:
            server = self._kind.elsewhere.get(call["name"], self._resources)
            reply = await self._read(server, call["name"], arguments)
        else:
            assert request_id is not None
            reply = await self._call_resources(call["name"], arguments, request_id, may_park=True)
        if reply.status_code == 409:
            raise RunFailedError(f"{self._resources} refused {call['name']}: {_refusal(reply)}")
        return reply

    async def _read(self, server: str, route: str, arguments: Mapping[str, Any]) -> httpx2.Response:
        url = f"{self._url(server)}/{route}"
        return await self._send("GET", url, self._headers(), None, params=arguments, may_park=True)

    async def _await_verdict(self) -> None:
        """Wait until the rollout can be verified. Nothing is done meanwhile, so it may park as often as it is asked to."""
        delay_s = FIRST_RETRY_S
        while self._kind.awaits is not None:
            reply = await self._read(self._resources, self._kind.awaits, {})
            if reply.status_code != 200:
                raise RunFailedError(f"{self._resources} did not answer {self._kind.awaits}: {_refusal(reply)}")
            if reply.json()["ready"]:
                return
            await self._store.wait_refused(self._execution, delay_s)
            delay_s = min(delay_s * 2, LAST_RETRY_S)

    async def _verify(self) -> dict[str, Any]:
        reply = await self._call_resources("verify", {}, f"{self._prefix}.verify", may_park=True)
        if reply.status_code != 200:
            raise RunFailedError(f"{self._resources} did not verify: {reply.status_code} {_refusal(reply)}")
        verdict = reply.json()
        pair = self._execution.pair
        result = RunResult(
            id=f"result-{pair.capture_key}",
            rollout_id=pair.rollout_id,
            attempt_index=pair.attempt_index,
            reward=float(verdict["reward"]),
            transcript=self._items,
            final_state=dict(verdict.get("state") or {}),
            turns=self._turn,
            usage=self._usage,
        )
        return result.model_dump(mode="json")

    async def _call_resources(
        self, route: str, body: Mapping[str, Any], request_id: str, *, may_park: bool
    ) -> httpx2.Response:
        headers = {**self._headers(), REQUEST_ID: request_id, TURN: str(self._turn)}
        if self._resources in self._revisions:
            headers[EXPECTED_REVISION] = str(self._revisions[self._resources])
        if self._resources in self._cookies:
            headers["cookie"] = self._cookies[self._resources]
        url = f"{self._url(self._resources)}/{route}"
        reply = await self._send("POST", url, headers, compact_sorted(dict(body)), may_park=may_park)
        revision = read_number(reply.headers.get(REVISION, ""))
        if revision is not None:
            self._revisions[self._resources] = revision
        if "set-cookie" in reply.headers:
            self._cookies[self._resources] = reply.headers["set-cookie"].partition(";")[0]
        return reply

    # --- boundaries ---

    async def _pending_boundary(
        self, call_id: str, response: dict[str, Any], cursor: int, request_id: str | None
    ) -> None:
        self._pending = PendingModel(
            model_call_id=call_id,
            response=response,
            model_server_cookies={},
            usage=response["usage"],
            pending_action_cursor=cursor,
            resource_request_id=request_id,
        )
        await self._boundary("pending_model")

    async def _boundary(self, kind: str) -> None:
        pair, last = self._execution.pair, self._execution.boundary
        record = BoundaryRecord(
            schema_version=2,
            rollout_id=pair.rollout_id,
            attempt_index=pair.attempt_index,
            boundary_index=0 if last is None else last.boundary_index + 1,
            turn_index=self._turn,
            boundary_kind="pending_model" if kind == "pending_model" else "turn_complete",
            pending_model=self._pending,
            output_items=list(self._items),
            usage=dict(self._usage),
            last_committed_model_capture_key=None if self._parent is None else self._parent[0],
            last_committed_model_call_id=None if self._parent is None else self._parent[1],
            resource_state_revisions=dict(self._revisions),
            agent_state={"resources_server_cookies": dict(self._cookies), "action_outputs": list(self._outputs)},
            created_at=self._store.now(),
        )
        await self._store.reach_boundary(self._execution, record)

    # --- calls ---

    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes | None,
        *,
        may_park: bool,
        params: Mapping[str, Any] | None = None,
    ) -> httpx2.Response:
        """Send until there is an answer that is not "later". The request never changes, so the server can tell repeats."""
        delay_s, lost = FIRST_RETRY_S, 0
        headers = {**headers, "content-type": "application/json"}
        while True:
            try:
                reply = await self._client.request(method, url, headers=headers, content=content, params=params)
            except httpx2.TransportError as error:
                lost += 1
                if lost == LOST_CALL_TRIES:
                    raise RunFailedError(f"{url} does not answer: {type(error).__name__}") from error
                await asyncio.sleep(delay_s)
            else:
                if reply.status_code != 409 or _code(reply) not in PARKED_CODES:
                    return reply
                if may_park and (not lost or REQUEST_ID not in headers):
                    await self._store.wait_refused(self._execution, delay_s)
                else:
                    await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, LAST_RETRY_S)

    def _headers(self) -> dict[str, str]:
        return {**self._execution.pair.headers(), GENERATION: str(self._execution.generation)}

    def _url(self, peer: str) -> str:
        if peer not in self._settings.peers:
            raise RunFailedError(f"the agent has no peer `{peer}`")
        return self._settings.peers[peer].rstrip("/")

    @property
    def _prefix(self) -> str:
        pair = self._execution.pair
        return f"{pair.rollout_id}.a{pair.attempt_index}"

    def _request_id(self, call: Item, number: int) -> str | None:
        return None if call["name"] in self._kind.reads else f"{self._prefix}.turn-{self._turn}.action-{number}"


def _function_calls(response: Mapping[str, Any]) -> list[Item]:
    return [item for item in response["output"] if item.get("type") == "function_call"]


def _refusal(reply: httpx2.Response) -> str:
    """The code of a refusal; where nothing an operator does would help, in words."""
    code = _code(reply)
    if code == "resource_receipt_capacity_exhausted":
        return f"{code}: a session keeps the receipt of every call that is not a read, {MAX_RECEIPTS} at most, and it has so many"
    return code


def _code(reply: httpx2.Response) -> str:
    try:
        return str(reply.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""
