"""Faults of a simulated server, on order: one place in front of the application, so that participants stay honest.

A fault names an operation (the control route without its prefix, `generate` for a model call, else the path; `*` matches
anything) and what goes wrong with the next `times` requests of it. What only the server itself can get wrong (an orphan or
an uncertain session) is handed to it as a planted fault.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import parse_qs

import httpx2
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ckptctl.sim.fault_order import Fault

GENERATE = "generate"
PREFIXES = ("/ng-control/v1/", "/ckpt-control/v1/")


def operation_of(path: str) -> str:
    """The name by which faults mean a path."""
    for prefix in PREFIXES:
        if path.startswith(prefix):
            return path.removeprefix(prefix)
    return GENERATE if path.endswith(("/v1/responses", "/worker/generate")) else path.strip("/")


class FaultPlan:
    """The orders of one server."""

    def __init__(self) -> None:
        self._faults: list[tuple[Fault, int]] = []

    def add(self, fault: Fault) -> None:
        """Order one more; the oldest that fits is used first."""
        self._faults.append((fault, fault.times))

    def clear(self) -> None:
        """Forget all orders."""
        self._faults.clear()

    def pending(self) -> list[Fault]:
        """Orders that are not used up."""
        return [fault for fault, _ in self._faults]

    def take(self, operation: str, accepts: Callable[[Fault], bool] = lambda _: True) -> Fault | None:
        """The fault that the next request of `operation` meets, of those that `accepts` takes."""
        for index, (fault, left) in enumerate(self._faults):
            if fault.kind != "clock" and fnmatchcase(operation, fault.operation) and accepts(fault):
                if left == 1:
                    del self._faults[index]
                elif left > 1:
                    self._faults[index] = (fault, left - 1)
                return fault
        return None

    @property
    def clock_offset_s(self) -> float:
        """How far the Date header is off."""
        return sum(fault.delay_s for fault, _ in self._faults if fault.kind == "clock")


async def serve_faulty(
    fault: Fault, app: ASGIApp, scope: Scope, receive: Receive, send: Send, *, now: Callable[[], float] = time.time
) -> None:
    """Serve one request as `fault` says."""
    if fault.kind in ("refuse", "status"):
        await _answer(fault, scope, send)
        return
    if fault.kind == "lost":
        _break_connection(send)
        return
    body, replay = await _buffer(receive)
    if fault.kind in ("slow", "stall"):
        await asyncio.sleep(fault.delay_s if fault.kind == "slow" else _wait_s(fault, scope, body, now))
        await app(scope, replay, send)
        return
    messages: list[Message] = []

    async def capture(message: Message) -> None:
        messages.append(message)

    await app(scope, replay, capture)
    if fault.kind == "late":
        await asyncio.sleep(_wait_s(fault, scope, body, now))
    elif fault.kind == "drop":
        _break_connection(send)
        return
    await _send_changed(fault, messages, send)


async def _answer(fault: Fault, scope: Scope, send: Send) -> None:
    if fault.kind == "refuse":
        text_field = "detail" if scope["path"].startswith(PREFIXES) else "message"
        content: dict[str, Any] = {"error": {"code": fault.code or "injected", text_field: "a fault was injected"}}
        status = 409
    else:
        status, content = fault.status, {"detail": "a fault was injected"}
    await _send(status, json.dumps(content).encode(), send)


async def _send(status: int, data: bytes, send: Send, *, cut: bool = False) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if cut:
        await send({"type": "http.response.body", "body": data[: len(data) // 2], "more_body": True})
        _break_connection(send)
    else:
        await send({"type": "http.response.body", "body": data})


async def _send_changed(fault: Fault, messages: list[Message], send: Send) -> None:
    status = next(int(message["status"]) for message in messages if message["type"] == "http.response.start")
    data = b"".join(message.get("body", b"") for message in messages if message["type"] == "http.response.body")
    if fault.kind in ("wrong_digest", "wrong_count"):
        data = json.dumps(_changed(json.loads(data), fault.kind)).encode()
    elif fault.kind == "rubbish":
        data = b"<html>\xff"
    if fault.kind == "late":
        for message in messages:
            await send(message)
        return
    await _send(status, data, send, cut=fault.kind == "cut")


def _changed(value: Any, kind: str) -> Any:
    if isinstance(value, dict):
        return {key: _changed(item, kind) if key != "schema_version" else item for key, item in value.items()}
    if isinstance(value, list):
        return [_changed(item, kind) for item in value]
    if kind == "wrong_count" and isinstance(value, int) and not isinstance(value, bool):
        return value + 1
    if kind == "wrong_digest" and isinstance(value, str) and len(value) == 64:  # a SHA-256
        return ("1" if value[0] == "0" else "0") + value[1:]
    return value


async def _buffer(receive: Receive) -> tuple[bytes, Receive]:
    messages: list[Message] = []
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request" or not message.get("more_body", False):
            break
    body = b"".join(message.get("body", b"") for message in messages)

    async def replay() -> Message:
        return messages.pop(0) if messages else await receive()

    return body, replay


def _wait_s(fault: Fault, scope: Scope, body: bytes, now: Callable[[], float]) -> float:
    query = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("deadline_ts")
    try:
        deadline = float(query[0]) if query else float(json.loads(body)["deadline_ts"])
    except (ValueError, KeyError, TypeError):
        return fault.delay_s
    return max(0.0, deadline - now()) + fault.delay_s


def _break_connection(send: Send) -> None:
    """Abort the TCP connection. In process there is none, so the caller's transport raises what a real one would."""
    transport = getattr(send, "transport", None)
    if transport is None:
        raise httpx2.ReadError("the connection was broken by an injected fault")
    transport.abort()
