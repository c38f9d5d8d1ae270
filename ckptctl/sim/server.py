"""What all simulated servers have in common: the outermost ASGI layer, control routes, and the process around it.

The order of the layers: faults and clock, then the application (`routes`: validation, credential, handler). A
server without a token installs no checkpoint routes (participant-protocol section 2).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http.cookiejar import DefaultCookiePolicy
from typing import Any, get_args

import httpx2
import uvicorn
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from ckptctl.controller.fence import Fence
from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.document import Document
from ckptctl.domain.participant import Capabilities
from ckptctl.sim.fault_order import PLANTED, Fault, Kind, Planted
from ckptctl.sim.faults import FaultPlan, operation_of, serve_faulty
from ckptctl.sim.routes import Handler, add_route
from ckptctl.sim.settings import ServerSettings

CONTROL_PREFIX = "/ng-control/v1/"
FAULT_ROUTE = "/sim/v1/fault"
GRACE_S = 1


class FaultsReply(Document):
    """The orders that are not used up, and the session that this order planted."""

    faults: list[Fault]
    planted: Planted | None = None


class FaultMenu(Document):
    """What can be ordered of one server."""

    operations: list[str]
    """As a fault names them; a fault may give a pattern with `*`."""
    kinds: list[str]


class SimulatedServer:
    """One server: an ASGI application. `service` is the participant behind it."""

    def __init__(
        self,
        settings: ServerSettings,
        token: str | None,
        *,
        close: Callable[[], Awaitable[None]] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.token = token
        self.now = now
        self.faults = FaultPlan()
        self.app = Starlette()
        self.service: Any = None
        self.delays_inside: frozenset[str] = frozenset()
        """Operations whose `slow` faults the service applies itself, where the work is done."""
        self.tools: tuple[str, ...] = ()
        """Paths that the service serves without a route of their own."""
        self.plant: Callable[[Fault], Awaitable[Planted]] | None = None
        """Puts a faulty session into the service, where it has sessions that a checkpoint saves."""
        self._close = close
        if token:
            add_route(self.app, "POST", FAULT_ROUTE, self._order_fault, token=token, body=Fault)
            add_route(self.app, "GET", FAULT_ROUTE, self._list_faults, token=token)
            add_route(self.app, "POST", FAULT_ROUTE + "/clear", self._clear_faults, token=token)
            add_route(self.app, "GET", FAULT_ROUTE + "/menu", self.fault_menu, token=token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event: a request, or the process' start and end."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        assert scope["type"] == "http"
        dated = self._Dated(send, self)
        operation = operation_of(scope["path"])
        fault = None if scope["path"].startswith(FAULT_ROUTE) else self.faults.take(operation, self._is_outside)
        if fault is None:
            await self.app(scope, receive, dated)
        else:
            await serve_faulty(fault, self.app, scope, receive, dated, now=self.now)

    def _is_outside(self, fault: Fault) -> bool:
        return not (fault.kind == "slow" and fault.operation in self.delays_inside)

    async def delay_inside(self, operation: str) -> None:
        """Meet a `slow` fault of an operation that delays inside."""
        fault = self.faults.take(operation, lambda order: not self._is_outside(order))
        if fault is not None:
            await asyncio.sleep(fault.delay_s)

    class _Dated:
        """Adds the Date header, offset as ordered, and leads faults to the TCP transport where there is one."""

        def __init__(self, send: Send, server: SimulatedServer) -> None:
            self._send, self._server = send, server
            self.transport = getattr(getattr(send, "__self__", None), "transport", None)

        async def __call__(self, message: Message) -> None:
            if message["type"] == "http.response.start":
                now = self._server.now() + self._server.faults.clock_offset_s
                date = (b"date", formatdate(now, usegmt=True).encode())
                message = {**message, "headers": [*message.get("headers", []), date]}
            await self._send(message)

    def control(
        self,
        method: str,
        route: str,
        handler: Handler,
        *,
        body: type[BaseModel] | None = None,
        query: type[BaseModel] | None = None,
    ) -> None:
        """Install one control route; without a token there is none."""
        if self.token:
            path = CONTROL_PREFIX + route
            add_route(self.app, method, path, handler, token=self.token, body=body, query=query)

    def capabilities(self, fence: Fence, **facts: Any) -> None:
        """Install discovery, which needs no credential. `facts` are the fields that do not change."""

        async def describe() -> Capabilities:
            return Capabilities(
                name=self.settings.name,
                schema_version=1,
                phase=fence.phase,  # type: ignore[arg-type]  # participants use the documented phases only
                active_checkpoint_id=fence.active_checkpoint_id,
                deadline_ts=fence.deadline_ts,
                **facts,
            )

        add_route(self.app, "GET", CONTROL_PREFIX + "capabilities", describe, token=None)

    def remaining_s(self, deadline_ts: float) -> float:
        """The budget until a deadline; a passed one is zero, not an error."""
        return max(0.0, deadline_ts - self.now())

    async def _order_fault(self, fault: Fault) -> FaultsReply:
        if fault.kind not in PLANTED:
            self.faults.add(fault)
            return await self._list_faults()
        if self.plant is None:
            raise RefusalError("unknown_fault", f"{self.settings.name} has no sessions that a checkpoint would save")
        return FaultsReply(faults=self.faults.pending(), planted=await self.plant(fault))

    async def _list_faults(self) -> FaultsReply:
        return FaultsReply(faults=self.faults.pending())

    async def fault_menu(self) -> FaultMenu:
        """Every route that this server has, by the name by which faults mean it."""
        paths = [*(str(getattr(route, "path", "")) for route in self.app.routes), *self.tools]
        names = {operation_of(path) for path in paths if path and not path.startswith(FAULT_ROUTE)}
        names = {name for name in names if "{" not in name}
        kinds = [kind for kind in get_args(Kind) if self.plant is not None or kind not in PLANTED]
        return FaultMenu(operations=sorted(names), kinds=kinds)

    async def _clear_faults(self) -> FaultsReply:
        self.faults.clear()
        return await self._list_faults()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                if self._close is not None:
                    await self._close()
                await send({"type": "lifespan.shutdown.complete"})
                return


def new_client() -> httpx2.AsyncClient:
    """The HTTP client of a server for its inner calls: no proxies, many connections, waiting is the caller's business."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    client = httpx2.AsyncClient(timeout=httpx2.Timeout(None, connect=5), limits=limits, trust_env=False)
    refuse_cookies(client)
    return client


def refuse_cookies(client: httpx2.AsyncClient) -> None:
    """Cookies belong to rollouts, which send them themselves; a client that all of them share must keep none."""
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))


class Signal:
    """Wakes whoever waits for a state to change. Firing needs no await, so any code may do it."""

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}  # in order of arrival, which a set would not keep

    def fire(self) -> None:
        """Something has changed: everybody looks again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, is_met: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until `is_met`, at most `timeout_s`. Returns whether it is met."""
        loop = asyncio.get_running_loop()
        end = None if timeout_s is None else loop.time() + timeout_s
        while not is_met():
            left_s = None if end is None else end - loop.time()
            if left_s is not None and left_s <= 0:
                return False
            waiter = loop.create_future()
            self._waiters[waiter] = None
            try:
                await asyncio.wait([waiter], timeout=left_s)
            finally:
                self._waiters.pop(waiter, None)
        return True


def run_server(server: SimulatedServer) -> None:
    """Serve until SIGTERM or SIGINT. Parked calls are not waited for longer than the grace."""
    settings = server.settings
    uvicorn.run(
        server,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        date_header=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
