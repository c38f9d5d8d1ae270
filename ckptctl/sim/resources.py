"""A resources server: sessions with revisions and replayable receipts around an environment.

Order of checks of a data-plane call, all 409 with `message` (participant-protocol section 6.3):

1. identity headers both or neither, well formed; 2. tombstone; 3. admission; 4. evicted receipts; 5. uncertain
   session;
6. expected revision well formed; 7. request id there and well formed for every call that is not a read;
8. under the session's lock: 2 to 5 again, then a known request id is replayed byte for byte (or refused when it
   stands for something else), then bound, revision, room; only then the environment is asked.

Sessions as values are `sessions`', files `resources_files`', what a call means the environment's.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import uuid
from collections.abc import Mapping
from itertools import count
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ckptctl.controller.fence import Fence
from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.ids import RESOURCES
from ckptctl.domain.participant_files import MutationReceipt
from ckptctl.sim.audit import AuditLog
from ckptctl.sim.environments import require_server
from ckptctl.sim.fault_order import Fault, Planted
from ckptctl.sim.identity import EXPECTED_REVISION, REQUEST_ID, REVISION, TURN, Pair, read_number, read_pair
from ckptctl.sim.outcome import Call, Outcome, RouteKind
from ckptctl.sim.resources_checkpoint import ResourcesCheckpoint, install_routes
from ckptctl.sim.routes import refusal_response
from ckptctl.sim.server import SimulatedServer
from ckptctl.sim.sessions import MAX_RECEIPTS, Session, SessionBook, input_digest, new_receipt
from ckptctl.sim.settings import ResourcesSettings

_REQUEST_ID = re.compile(r"[\x20-\x7e]{1,512}\Z")


class ResourcesServer:
    """The data plane of one resources server; `checkpoint` is its control side."""

    def __init__(self, settings: ResourcesSettings, server: SimulatedServer) -> None:
        self.settings = settings
        self.kind = require_server(settings.environment)
        self.environment = self.kind.create()
        self.book = SessionBook()
        self.audit = AuditLog(settings.run_dir, settings.name, settings.incarnation, uuid.uuid4().hex[:12])
        self.checkpoint = ResourcesCheckpoint(
            server, self.book, self.audit, self.environment, exports=self.kind.checkpoint_mode == "export_restore"
        )
        self._now = server.now

    async def call(self, request: Request) -> Response:
        """One data-plane call."""
        try:
            return await self._call(request)
        except RefusalError as error:
            return refusal_response(error, text_field="message")

    async def _call(self, request: Request) -> Response:
        route = request.url.path.strip("/")
        kind = self.environment.routes.get(route)
        if kind is None:
            return _json({"detail": "no such route"}, 404)
        pair = read_pair(request.headers)  # 1
        if pair is None:
            return await self._untracked(request, route, kind)
        self._check_pair(pair)  # 2 to 5
        expected = _expected_revision(request.headers)  # 6
        if kind == "read":
            return await self._read(request, route, pair)
        request_id = request.headers.get(REQUEST_ID, "")
        if not _REQUEST_ID.match(request_id):  # 7
            raise RefusalError("resource_request_receipt_error", "the request id is missing or malformed")
        body = await request.body()
        digest = input_digest(
            request.method,
            request.url.path,
            request.url.query,
            request.headers.getlist("content-type"),
            request.cookies.items(),
            body,
        )
        while True:
            session = self.book.require(pair, self._now())
            async with session.lock:  # 8
                if self.book.find(pair) is not session:
                    continue  # forgotten while this request waited for its lock
                try:
                    self._check_pair(pair)
                    known = session.receipts.get(request_id)
                    if known is not None:
                        return _replayed(known, expected, digest)
                    self._check_session(session, kind, expected)
                    return await self._change(request, route, kind, session, request_id, expected, digest, body)
                finally:
                    self.book.drop_if_unused(session)

    def _check_pair(self, pair: Pair) -> None:
        session = self.book.find(pair)
        if pair in self.book.tombstones:
            raise RefusalError("stale_attempt", f"{pair.rollout_id} attempt {pair.attempt_index} is over")
        if not self.checkpoint.is_open:
            raise RefusalError("resources_admission_closed", "admission is closed for a checkpoint")
        if self.book.is_evicted(pair):
            raise RefusalError("resource_receipt_evicted", "whether this request was served before is no longer known")
        if session is not None and session.uncertain_reason is not None:
            raise RefusalError("resource_mutation_uncertain", session.uncertain_reason)

    def _check_session(self, session: Session, kind: RouteKind, expected: int | None) -> None:
        if not session.is_bound and kind != "start":
            raise RefusalError("resources_session_unbound", "the session was not started, or is over")
        if expected is not None and expected != session.revision:
            raise RefusalError(
                "resource_revision_mismatch",
                f"expected revision {expected}, the session is at {session.revision}",
                expected_revision=expected,
                actual_revision=session.revision,
            )
        if len(session.receipts) >= MAX_RECEIPTS:
            raise RefusalError("resource_receipt_capacity_exhausted", f"the session has {MAX_RECEIPTS} receipts")

    async def _change(
        self,
        request: Request,
        route: str,
        kind: RouteKind,
        session: Session,
        request_id: str,
        expected: int | None,
        digest: str,
        body: bytes,
    ) -> Response:
        outcome = await self._ask(route, session, _parsed(body))
        is_done = outcome.status < 400
        if is_done:
            # The line first: a call that cannot be written down has not happened, and may be repeated.
            self.audit.append(
                "mutation",
                rollout=session.pair.rollout_id,
                attempt=session.pair.attempt_index,
                turn=read_number(request.headers.get(TURN, "")),
                route=route,
                kind=kind,
                revision=session.revision + 1,
                request_id=request_id,
            )
            session.state, session.is_bound = outcome.state, True
            session.revision += 1
        headers = {"content-type": "application/json"}
        if is_done and kind == "start":
            headers["set-cookie"] = f"session={self.settings.name}.{session.pair.rollout_id}"
        receipt = new_receipt(
            request_id=request_id,
            expected_revision=expected,
            digest=digest,
            status=outcome.status,
            headers=headers,
            body=json.dumps(dict(outcome.body), sort_keys=True, separators=(",", ":")).encode(),
            revision=session.revision if is_done else None,
        )
        session.receipts[request_id] = receipt
        if is_done and kind == "terminal":
            self.book.release(session)
        return _response_of(receipt)

    async def _ask(self, route: str, session: Session, body: Mapping[str, Any]) -> Outcome:
        try:
            if self.settings.action_delay_s:
                await asyncio.sleep(self.settings.action_delay_s)
            return self.environment.call(Call(route, body, session.state, session.pair.rollout_id))
        except Exception as error:
            # Nobody knows how far it came: the session must never be used or exported again.
            session.uncertain_reason = f"{route} raised {type(error).__name__}"
            raise RefusalError("resource_mutation_uncertain", session.uncertain_reason) from error

    async def _read(self, request: Request, route: str, pair: Pair) -> Response:
        session = self.book.find(pair)
        is_bound = session is not None and session.is_bound
        if not is_bound and self.kind.checkpoint_mode != "stateless":
            raise RefusalError("resources_session_unbound", "the session was not started, or is over")
        state = None if session is None else session.state
        outcome = self.environment.call(Call(route, dict(request.query_params), state, pair.rollout_id))
        return _json(outcome.body, outcome.status)

    async def _untracked(self, request: Request, route: str, kind: RouteKind) -> Response:
        if not self.checkpoint.is_open:
            raise RefusalError("resources_admission_closed", "admission is closed for a checkpoint")
        outcome = self.environment.call(Call(route, _parsed(await request.body())))
        if outcome.status < 400 and kind in ("start", "mutation"):
            self.checkpoint.has_untracked_traffic = True
        return _json(outcome.body, outcome.status)

    async def plant(self, fault: Fault) -> Planted:
        """Make an orphan session, or make a session uncertain. Raises RefusalError: the orphan would take a real one's place."""
        if fault.kind == "uncertain_session":
            bound = [session for session in self.book.bound() if fault.rollout_id in (None, session.pair.rollout_id)]
            session = bound[0] if bound else self._orphan(fault.rollout_id)
            session.uncertain_reason = "a fault was injected"
            is_new = not bound
        else:
            session, is_new = self._orphan(fault.rollout_id), True
        pair = session.pair
        return Planted(kind=fault.kind, rollout_id=pair.rollout_id, attempt_index=pair.attempt_index, is_new=is_new)

    def _orphan(self, rollout_id: str | None) -> Session:
        """A bound session that no agent knows; where no rollout is named, of one that there is not."""
        named = (Pair(f"orphan-{number}_g0", 0) for number in count())
        pair = (
            Pair(rollout_id, 0) if rollout_id is not None else next(name for name in named if not self._is_known(name))
        )
        if self._is_known(pair):
            raise RefusalError("session_exists", f"{pair.rollout_id} has, or had, a session of its own")
        session = self.book.require(pair, self._now())
        session.is_bound, session.state, session.revision = True, {"orphan": True}, 1
        return session

    def _is_known(self, pair: Pair) -> bool:
        return self.book.find(pair) is not None or pair in self.book.tombstones or self.book.is_evicted(pair)


def _expected_revision(headers: Mapping[str, str]) -> int | None:
    text = headers.get(EXPECTED_REVISION)
    if text is None:
        return None
    number = read_number(text)
    if number is None:
        raise RefusalError("resource_revision_mismatch", "the expected revision is malformed")
    return number


def _replayed(receipt: MutationReceipt, expected: int | None, digest: str) -> Response:
    if receipt.expected_revision != expected or receipt.input_digest != digest:
        raise RefusalError("resource_request_receipt_error", "the request id was used for another request")
    return _response_of(receipt)


def _response_of(receipt: MutationReceipt) -> Response:
    headers = {name: value for name, value in receipt.headers}  # noqa: C416 - pairs are lists, dict() would not type
    if receipt.resulting_revision is not None:
        headers[REVISION] = str(receipt.resulting_revision)
    return Response(base64.b64decode(receipt.body_base64), receipt.status, headers=headers)


def _parsed(body: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _json(body: Mapping[str, Any], status: int) -> Response:
    return Response(json.dumps(dict(body)).encode(), status, media_type="application/json")


def create_resources_app(settings: ResourcesSettings, token: str | None, **options: Any) -> SimulatedServer:
    """The ASGI application of a resources server."""

    async def close() -> None:
        service.audit.close()

    server = SimulatedServer(settings, token, close=close, **options)
    service = server.service = ResourcesServer(settings, server)
    server.tools = tuple(service.environment.routes)
    fence: Fence = service.checkpoint.fence
    mode = service.kind.checkpoint_mode
    exports = service.checkpoint.exports and bool(token)
    if service.checkpoint.exports and not token:
        mode = "restart_only"
    server.capabilities(
        fence,
        component=RESOURCES,
        admission_states=["accepting", "draining", "paused"] if exports else ["accepting"],
        checkpoint_mode=mode,
        concurrency_contract="stateless" if mode == "stateless" else "serialized_per_session",
        multi_process={"mode": "single_worker", "num_workers": 1},
        instance_role=None,
        features=[],
    )
    if exports:
        server.plant = service.plant
        install_routes(server, service.checkpoint)
    server.app.router.add_route("/{path:path}", service.call, methods=["GET", "POST"])
    return server
