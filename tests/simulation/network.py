"""The network: every request a task of its own, on its way for a while, and everything that can happen to it.

A request that was sent arrives even when its sender has given up; a reply finds nobody then. What happens to a message is the
weather's decision (`Fate`); here it happens. A server works in its own process' context, so that it dies as one.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import httpx2

from ckptctl.sim.faults import operation_of
from tests.simulation.kernel import ACTING, COORDINATOR, Process

FateKind = Literal[
    "lost-request",  # it never arrives, the connection breaks
    "silent-request",  # it never arrives, and nobody says so
    "lost-reply",  # done, the connection breaks before the answer
    "silent-reply",  # done, the answer never comes
    "duplicate",  # it arrives twice, the second one later; the first is answered
    "late-request",  # it arrives after `delay_s`
    "late-reply",  # done at once, answered after `delay_s`
    "reset",  # done, the connection breaks in the middle of the answer
    "rubbish",  # done, the answer is `body`
    "refuse",  # 409 with `code`, nothing done
    "status",  # HTTP `status`, nothing done
    "crash-before",  # the server dies as the request arrives
    "crash-after",  # the server dies when it has done it
]
RUBBISH = (b"", b"<html>\xff", b"{}", b'{"state": ', b"[1, 2]", b'{"state": {"a": []}, "checkpoint_id": 7}')


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one message."""

    kind: FateKind
    delay_s: float = 0.0
    code: str = ""
    status: int = 500
    body: bytes = b""


@dataclass(slots=True)
class Message:
    """One request."""

    caller: Process | None
    server: str
    method: str
    operation: str
    body: dict[str, Any]


@dataclass(slots=True, eq=False)
class Exchange:
    """One delivery of a request to a server's process."""

    process: Process
    reply: asyncio.Future[tuple[int, list[tuple[bytes, bytes]], bytes]]
    gone: asyncio.Event
    """The sender hung up."""


@dataclass(slots=True)
class Served:
    """A server that is up."""

    process: Process
    app: Any


class Network(httpx2.AsyncBaseTransport):
    """Leads requests to the servers by host name. `judge` decides each message's fate."""

    def __init__(self, rng: random.Random, judge: Callable[[Message], Fate | None]) -> None:
        self.servers: dict[str, Served] = {}
        self._rng = rng
        self._judge = judge
        self._exchanges: dict[Exchange, None] = {}
        self.pace_s = 0.002
        self.seen: Callable[[Message], None] = lambda _: None
        """Told of every request of a coordinator as it is sent."""
        self.kill: Callable[[Process], None] = lambda _: None
        self.failures: list[Exception] = []
        """What servers did not answer but fell over: HTTP 500."""
        self._errands: dict[asyncio.Task[Any], None] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        caller = ACTING.get()
        if caller is not None:
            caller.demand_alive()
        path = request.url.path
        content = request.content
        message = Message(caller, request.url.host, request.method, operation_of(path), {})
        is_control = caller is not None and caller.party == COORDINATOR
        if is_control:
            message.body = json.loads(content) if content else {}
            self.seen(message)
        fate = self._judge(message)
        if caller is not None:
            caller.demand_alive()
        if fate is None:
            response = await self._undisturbed(message, request, content)
        else:
            call = self._errand(self._call(message, request, content, fate))
            try:
                await asyncio.wait([call])
            except asyncio.CancelledError:
                call.cancel()
                raise
            response = call.result()
        if caller is not None:
            caller.demand_alive()
        return response

    async def _undisturbed(self, message: Message, request: httpx2.Request, content: bytes) -> httpx2.Response:
        """The common case, without tasks of its own: a sender that gives up early has sent nothing."""
        gone = asyncio.Event()
        try:
            status, headers, data = await self._deliver(message, request, content, None, gone, is_first=True)
        except asyncio.CancelledError:
            gone.set()
            raise
        await self._travel()
        return httpx2.Response(status, headers=headers, stream=_Body(data))

    def _errand(self, work: Awaitable[Any]) -> asyncio.Task[Any]:
        """A task that belongs to nobody's process: what was sent is on its way."""
        context = contextvars.copy_context()
        context.run(ACTING.set, None)
        task = asyncio.get_running_loop().create_task(work, context=context)
        self._errands[task] = None
        task.add_done_callback(lambda done: self._errands.pop(done, None))
        return task

    async def _call(self, message: Message, request: httpx2.Request, content: bytes, fate: Fate) -> httpx2.Response:
        kind = fate.kind
        if kind in ("refuse", "status"):
            await self._travel()
            return _refusal(fate)
        if kind in ("lost-request", "silent-request"):
            await self._travel()
            if kind == "lost-request":
                raise httpx2.ReadError("the connection broke")
            await self._silence()
        gone = asyncio.Event()
        delivery = self._errand(self._deliver(message, request, content, fate, gone, is_first=True))
        if kind == "duplicate":
            self._errand(self._deliver(message, request, content, fate, gone, is_first=False))
        try:
            await asyncio.wait([delivery])
        except asyncio.CancelledError:
            gone.set()
            raise
        status, headers, data = delivery.result()
        await self._travel()
        if kind == "lost-reply":
            raise httpx2.ReadError("the connection broke before the answer")
        if kind == "silent-reply":
            await self._silence()
        if kind == "late-reply":
            await asyncio.sleep(fate.delay_s)
        if kind == "rubbish":
            return httpx2.Response(200, headers=[(b"content-type", b"application/json")], stream=_Body(fate.body))
        if kind == "reset":
            return httpx2.Response(status, headers=headers, stream=_Body(data[: len(data) // 2], is_cut=True))
        return httpx2.Response(status, headers=headers, stream=_Body(data))

    async def _deliver(
        self,
        message: Message,
        request: httpx2.Request,
        content: bytes,
        fate: Fate | None,
        gone: asyncio.Event,
        *,
        is_first: bool,
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Bring the request to the server as it is when it arrives, and wait for the answer."""
        bound_to = self.servers.get(message.server)  # a connection is to one process
        await self._travel()
        if fate is not None and (fate.kind == "late-request" or not is_first):
            await asyncio.sleep(fate.delay_s)
        served = self.servers.get(message.server)
        if served is None or served is not bound_to or served.process.is_dead:
            raise httpx2.ConnectError("nobody listens")
        if fate is not None and fate.kind == "crash-before":
            self.kill(served.process)
            raise httpx2.ReadError("the connection broke")
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        exchange = Exchange(served.process, reply, gone)
        self._exchanges[exchange] = None
        context = contextvars.copy_context()
        context.run(ACTING.set, served.process)
        work = _serve(served.app, _scope(request), content, exchange, self.failures)
        asyncio.get_running_loop().create_task(work, context=context)
        try:
            found = await reply
        finally:
            self._exchanges.pop(exchange, None)
        if fate is not None and fate.kind == "crash-after":
            self.kill(served.process)
            raise httpx2.ReadError("the connection broke")
        return found

    def break_all(self, process: Process) -> None:
        """A process died: whoever talks to it notices."""
        for exchange in list(self._exchanges):
            if exchange.process is process and not exchange.reply.done():
                exchange.reply.set_exception(httpx2.ReadError("the connection broke"))

    async def close(self) -> None:
        """Drop everything that is on its way."""
        for task in list(self._errands):
            task.cancel()
        await asyncio.gather(*self._errands, return_exceptions=True)

    async def _travel(self) -> None:
        await asyncio.sleep(self._rng.random() * self.pace_s)

    async def _silence(self) -> None:
        await asyncio.get_running_loop().create_future()


class Line(httpx2.AsyncClient):
    """By what servers call each other. Pools, redirects, cookies and environment, of which they use nothing, are passed by."""

    def __init__(self, network: Network) -> None:
        super().__init__(transport=network, timeout=None, trust_env=False)
        self._network = network

    async def request(self, method: str, url: httpx2.URL | str, **facts: Any) -> httpx2.Response:
        """Send a request and read the answer. Nobody's patience ends: what is lost breaks the connection."""
        named = {name: facts[name] for name in ("headers", "params", "content", "json") if facts.get(name) is not None}
        response = await self._network.handle_async_request(httpx2.Request(method, url, **named))
        await response.aread()
        return response


class _Body(httpx2.AsyncByteStream):
    """An answer's content; a cut one ends in a broken connection."""

    def __init__(self, data: bytes, *, is_cut: bool = False) -> None:
        self._data, self._is_cut = data, is_cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._data:
            yield self._data
        if self._is_cut:
            raise httpx2.ReadError("the connection broke in the middle of the answer")


def _refusal(fate: Fate) -> httpx2.Response:
    if fate.kind == "refuse":
        content: dict[str, Any] = {"error": {"code": fate.code, "detail": "refused by the weather"}}
        return httpx2.Response(409, stream=_Body(json.dumps(content).encode()))
    return httpx2.Response(fate.status, stream=_Body(b'{"detail": "a status of the weather"}'))


def _scope(request: httpx2.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": "http",
        "path": request.url.path,
        "raw_path": request.url.raw_path.partition(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }


async def _serve(
    app: Any, scope: dict[str, Any], content: bytes, exchange: Exchange, failures: list[Exception]
) -> None:
    """One request in the server's process."""
    is_read = False
    status, headers, parts = 500, [], []

    async def receive() -> dict[str, Any]:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": content, "more_body": False}
        await exchange.gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message.get("headers", []))
        else:
            parts.append(message.get("body", b""))
            if not message.get("more_body", False) and not exchange.reply.done():
                exchange.reply.set_result((status, headers, b"".join(parts)))

    try:
        await app(scope, receive, send)
    except Exception as error:  # noqa: BLE001 - a server that fails answers 500
        failures.append(error)
        if not exchange.reply.done():
            exchange.reply.set_result((500, [], b'{"detail": "the server failed"}'))
