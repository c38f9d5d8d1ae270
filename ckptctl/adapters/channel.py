"""One HTTP call to a server: request out, strictly parsed reply or a CkptctlError in. Shared by both HTTP adapters.

Decided here:

1. the token goes into the header of authorised calls and nowhere else; redirects are not followed and proxies of the
   environment not used, because both would carry it to somebody else;
2. a call has one time limit for everything, connection and body included; a reply has a size limit and may not be compressed;
3. HTTP 409 becomes the class of its documented code (`detail` and `message` are both read), 401, 404, 422 and 5xx theirs;
4. a reply that is not exactly what its class says is a MalformedReplyError; unknown fields of lenient replies are told once;
5. a server whose `Date` is more than 5 s off, and plain http to another host, are told once.

Which call may be repeated is decided by the workflows: a lost reply does not say whether the operation was done.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx2
from pydantic import BaseModel

from ckptctl.adapters.meter import Meter
from ckptctl.domain.amounts import set_time
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.domain.safe_text import safe, shown
from ckptctl.domain.traffic import Asked, TrafficCount
from ckptctl.errors import (
    REFUSALS,
    CredentialError,
    MalformedReplyError,
    RouteMissingError,
    ServerRefusedError,
    TimedOutError,
    UnreachableError,
)
from ckptctl.formats.canonical_json import decode_document, load_object
from ckptctl.ports import Clock

M = TypeVar("M", bound=BaseModel)

CLOCK_TOLERANCE_S = 5.0
AS_LONG = 0.9
"""Of a time limit that has passed: who has been asked for so much of it counts as silent too."""
_ERROR_BYTES = 1 << 20
_IDLE_CONNECTION_S = 2.0
"""Shorter than servers keep an idle connection, so that a request does not run into its closing."""


class Channel:
    """HTTP with one token and one clock. Use as an async context manager."""

    def __init__(
        self,
        *,
        token: str | None,
        clock: Clock,
        notice: Callable[[str], None],
        limits: Limits = DEFAULT_LIMITS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._token = token
        self._clock = clock
        self._notice = notice
        self._limits = limits
        self._told: set[str] = set()
        self._transport = transport
        self._clients: dict[str, httpx2.AsyncClient] = {}
        self._meter = Meter(clock)
        self._clocks_ahead: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.aclose()

    def traffic(self) -> TrafficCount:
        """What was asked of servers so far."""
        return self._meter.count()

    def under_way(self) -> tuple[Asked, ...]:
        """Whom this process waits for just now."""
        return self._meter.under_way()

    def clocks_ahead(self) -> Mapping[str, float]:
        """Server -> by how many seconds its clock was ahead of ours when it last answered."""
        return self._clocks_ahead

    def remaining_s(self, deadline_ts: float) -> float:
        """Time left for a call; a passed deadline is a tiny budget, not an error."""
        return max(0.001, deadline_ts - self._clock.now_s())

    async def call(
        self,
        server: str,
        url: str,
        method: str,
        path: str,
        reply: type[M],
        *,
        timeout_s: float,
        body: BaseModel | None = None,
        query: Mapping[str, str] | None = None,
        is_authorised: bool = True,
    ) -> M:
        """Make one call.

        Raises:
            UnreachableError, TimedOutError: no (whole) answer; whether the operation was done is unknown.
            ServerRefusedError: a refusal, by its code; MalformedReplyError for rubbish.
        """
        operation = path.rpartition("/v1/")[2]
        request = self._request(url, method, path, body, query, is_authorised)
        self._warn_of_plain_http(server, url)
        try:
            with self._meter.request(Asked(server, url, operation), len(request.content)):
                async with asyncio.timeout(timeout_s):
                    status, headers, data = await self._exchange(request, server, operation)
        except TimeoutError as error:
            # Whoever else was given all that time is as silent: the first failure of several stops them all.
            others = tuple(other.told() for other in self._meter.under_way(timeout_s * AS_LONG))
            detail = f"no answer within {set_time(timeout_s)}"
            raise TimedOutError(
                server=server, operation=operation, url=url, detail=detail, others=others, cause=error
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            detail = safe(str(error)) or type(error).__name__
            raise UnreachableError(server=server, operation=operation, url=url, detail=detail, cause=error) from error
        self._compare_clocks(server, headers)
        if status != 200:
            raise self._refusal(server, url, operation, status, data)
        try:
            found = decode_document(data, reply, self._limits, max_bytes=self._limits.reply_bytes)
        except DefectError as error:
            raise _malformed(server, operation, status, error.defects[0].message) from error
        self._tell_unknown(server, operation, found)
        return found

    def _request(
        self,
        url: str,
        method: str,
        path: str,
        body: BaseModel | None,
        query: Mapping[str, str] | None,
        is_authorised: bool,
    ) -> httpx2.Request:
        headers = {}
        content = None
        if is_authorised and self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(body.model_dump(mode="json"), allow_nan=False).encode()
        target = url.rstrip("/") + path
        return self._client(url).build_request(method, target, params=query, headers=headers, content=content)

    def _client(self, url: str) -> httpx2.AsyncClient:
        """One client per scheme: loading the certificates takes longer than a whole drain, so only https pays for it."""
        scheme = urlsplit(url).scheme
        if scheme not in self._clients:
            self._clients[scheme] = httpx2.AsyncClient(
                transport=self._transport,
                verify=scheme != "http",
                trust_env=False,
                follow_redirects=False,
                headers={"accept": "application/json", "accept-encoding": "identity", "user-agent": "ckptctl"},
                limits=httpx2.Limits(max_connections=None, keepalive_expiry=_IDLE_CONNECTION_S),
                timeout=None,  # `asyncio.timeout` bounds the whole call, not each read of it
            )
        return self._clients[scheme]

    async def _exchange(
        self, request: httpx2.Request, server: str, operation: str
    ) -> tuple[int, httpx2.Headers, bytes]:
        response = await self._client(str(request.url)).send(request, stream=True)
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise _malformed(
                    server, operation, response.status_code, "the reply is compressed, which was not asked for"
                )
            most = self._limits.reply_bytes if response.status_code == 200 else _ERROR_BYTES
            data = bytearray()
            async for chunk in response.aiter_raw():
                data += chunk
                self._meter.received(len(chunk))
                if len(data) > most:
                    raise _malformed(server, operation, response.status_code, f"the reply exceeds {most} bytes")
            return response.status_code, response.headers, bytes(data)
        finally:
            await response.aclose()

    def _refusal(
        self, server: str, url: str, operation: str, status: int, data: bytes
    ) -> ServerRefusedError | UnreachableError:
        facts: dict[str, Any] = {"server": server, "operation": operation, "status": status}
        if status == 401:
            return CredentialError(**facts, server_code="401", detail="the control token is missing or wrong")
        if status == 404:
            return RouteMissingError(**facts, server_code="404", detail="there is no such route")
        if status in (502, 503, 504):
            return UnreachableError(server=server, operation=operation, url=url, detail=f"HTTP {status}")
        try:
            body = load_object(data, self._limits, max_bytes=_ERROR_BYTES)
        except DefectError:
            body = {}
        if status == 409:
            return self._coded(body, facts)
        if status == 422:
            detail = f"it does not accept our request: {self._quoted(body.get('detail'))}"
            return ServerRefusedError(
                **facts, server_code="422", detail=detail, hint="the server's version may not be supported"
            )
        if status >= 500:
            hint = "that is a fault of the server; its log says more"
            return ServerRefusedError(**facts, server_code=str(status), detail="the server failed", hint=hint)
        return _malformed(server, operation, status, f"HTTP {status} is not a documented answer")

    def _coded(self, body: Mapping[str, Any], facts: dict[str, Any]) -> ServerRefusedError:
        error = body.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        if not isinstance(error, dict) or not isinstance(code, str):
            return MalformedReplyError(**facts, server_code="malformed", detail="HTTP 409 without an error code")
        text = error.get("detail", error.get("message"))
        detail = self._hidden(safe(text[:2000])) if isinstance(text, str) else "no detail given"
        return REFUSALS.get(code, ServerRefusedError)(**facts, server_code=safe(code[:100]), detail=detail)

    def _quoted(self, value: object) -> str:
        texts = [str(item.get("msg")) for item in value if isinstance(item, dict)] if isinstance(value, list) else []
        return self._hidden(safe("; ".join(texts)[:500]) if texts else shown(value))

    def _hidden(self, text: str) -> str:
        return text.replace(self._token, "<redacted>") if self._token else text

    def _compare_clocks(self, server: str, headers: httpx2.Headers) -> None:
        try:
            theirs_s = parsedate_to_datetime(headers["date"]).timestamp()
        except (KeyError, ValueError, TypeError):
            return
        off_s = self._clocks_ahead[server] = theirs_s - self._clock.now_s()
        if abs(off_s) > CLOCK_TOLERANCE_S + 1.0:  # the header has whole seconds
            way = "ahead of" if off_s > 0 else "behind"
            self._tell(
                f"clock of {server}",
                f"the clock of `{server}` is {abs(off_s):.0f} s {way} ours: deadlines will be wrong",
            )

    def _warn_of_plain_http(self, server: str, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            self._tell(
                "plain http",
                f"`{server}` is reached by plain http on another host: the control token can be read on the way",
            )

    def _tell_unknown(self, server: str, operation: str, found: BaseModel) -> None:
        names = sorted({safe(name) for name in _unknown_fields(found)})
        if names:
            self._tell(
                f"{server} {operation}",
                f"`{server}` {operation}: unknown reply fields are ignored: {', '.join(names)}"[:500],
            )

    def _tell(self, key: str, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._notice(text)


def is_loopback(host: str) -> bool:
    """Whether a host name of a url means this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _malformed(server: str, operation: str, status: int, detail: str) -> MalformedReplyError:
    return MalformedReplyError(
        server=server, operation=operation, status=status, server_code="malformed", detail=detail
    )


def _unknown_fields(value: object) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from value.model_extra or ()
        for name in type(value).model_fields:
            yield from _unknown_fields(getattr(value, name))
    elif isinstance(value, list | tuple):
        for item in value[:100]:
            yield from _unknown_fields(item)
