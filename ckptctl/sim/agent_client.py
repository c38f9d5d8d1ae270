"""The controller's side of an agent: `/run`, the completion receipt, the acknowledgement, and who is known there.

It sorts answers into what the rollout loop must tell apart: a result, a dispatch that never began, an attempt that
failed. Retrying, and what the ledger says of it, is the loop's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import httpx2

from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.participant import AcknowledgeReply, CompletionReceipt
from ckptctl.formats.canonical_json import decode_document, load_json

D = TypeVar("D", CompletionReceipt, AcknowledgeReply)

CONTROL = "/ng-control/v1/agent-checkpoint"
TURNED_AWAY = "agent_admission_closed"
FORGOTTEN = "completed_execution_acknowledgement_error"
"""What an agent process says of a result that another one had."""


@dataclass(frozen=True, slots=True)
class RunReply:
    """How one `/run` ended."""

    outcome: Literal["result", "turned_away", "failed"]
    result: Mapping[str, Any] | None = None
    reason: str = ""


class AgentClientError(Exception):
    """An agent did not give the documented answer; the text says which call and why, `code` is that of a refusal."""

    def __init__(self, text: str, *, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class AgentClient:
    """One agent. Shares the HTTP client of the process."""

    def __init__(self, name: str, url: str, http: httpx2.AsyncClient, token: str) -> None:
        self.name = name
        self._url = url.rstrip("/")
        self._http = http
        self._headers = {"authorization": f"Bearer {token}"}

    async def run(self, body: Mapping[str, Any]) -> RunReply:
        """Send a rollout and wait for its end, however long that takes."""
        try:
            response = await self._http.post(
                f"{self._url}/run", json=dict(body), timeout=httpx2.Timeout(5, read=None, pool=None)
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            return RunReply("turned_away", reason=f"not reached: {error}")
        except httpx2.TransportError as error:
            return RunReply("failed", reason=f"connection lost: {type(error).__name__}: {error}")
        if response.status_code == 200:
            result = _document(response)
            return (
                RunReply("failed", reason="the result is no object") if result is None else RunReply("result", result)
            )
        code = _code(response)
        outcome: Literal["turned_away", "failed"] = "turned_away" if code == TURNED_AWAY else "failed"
        return RunReply(outcome, reason=f"{response.status_code} {code}")

    async def completion_receipt(self, rollout_id: str, attempt_index: int) -> CompletionReceipt:
        """What the agent says of a completed result. Raises AgentClientError."""
        query = {"rollout_id": rollout_id, "attempt_index": str(attempt_index)}
        response = await self._call("GET", "completion-receipt", params=query)
        return _decoded(response, CompletionReceipt)

    async def acknowledge(self, receipts: Sequence[CompletionReceipt]) -> None:
        """Tell the agent that its results are owned. Raises AgentClientError; also for an echo that differs."""
        body = {"schema_version": 1, "executions": [receipt.model_dump(mode="json") for receipt in receipts]}
        reply = _decoded(await self._call("POST", "acknowledge-completed", json=body), AcknowledgeReply)
        if {receipt.model_dump_json() for receipt in reply.acknowledged} != {
            receipt.model_dump_json() for receipt in receipts
        }:
            raise AgentClientError(f"{self.name} acknowledged something else")

    async def executions(self, checkpoint_id: str) -> frozenset[tuple[str, int]]:
        """The executions that the agent knows, by pair. Raises AgentClientError."""
        response = await self._call("GET", "status", params={"checkpoint_id": checkpoint_id})
        listed = (_document(response) or {}).get("executions", [])
        return frozenset((str(item["rollout_id"]), int(item["attempt_index"])) for item in listed)

    async def _call(self, method: str, route: str, **arguments: Any) -> httpx2.Response:
        try:
            response = await self._http.request(
                method, f"{self._url}{CONTROL}/{route}", headers=self._headers, timeout=10, **arguments
            )
        except httpx2.TransportError as error:
            raise AgentClientError(f"{self.name} {route}: {type(error).__name__}: {error}") from error
        if response.status_code != 200:
            code = _code(response)
            raise AgentClientError(f"{self.name} {route}: {response.status_code} {code}", code=code)
        return response


def _document(response: httpx2.Response) -> dict[str, Any] | None:
    try:
        value = load_json(response.content, DEFAULT_LIMITS)
    except DefectError:
        return None
    return value if isinstance(value, dict) else None


def _code(response: httpx2.Response) -> str:
    error = (_document(response) or {}).get("error")
    return str(error.get("code", "")) if isinstance(error, dict) else ""


def _decoded(response: httpx2.Response, kind: type[D]) -> D:
    try:
        return decode_document(response.content, kind, DEFAULT_LIMITS)
    except DefectError as problem:
        raise AgentClientError(f"a reply is no {kind.__name__}: {problem}") from problem
