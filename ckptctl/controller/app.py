"""The controller interface as an ASGI application around a `RolloutController`.

Enforced here (controller-interface "Phases" and "Routes"):

1. credential, strict bodies, 422 before 401 before 409; `GET /status` without a token says only who it is;
2. one fence for close, save, restore, staging/clear and open; the acknowledgement routes have none;
3. a passed deadline is refused before anything is changed, work that passes its deadline is cancelled
   (`deadline_exceeded`);
4. restore only in a process that expects one and has never admitted work; a failure ends in `restore_failed`, where
   only restore is possible;
5. open: `released` or `aborted` from closed and saved, `aborted` from idle (a lost close) but not while a restore is
   expected, `restored` from restored, and there nothing else.

What the requests do is the controller's business.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar, cast

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

from ckptctl.controller.fence import IDLE, Fence, Operation
from ckptctl.controller.http import add_route, new_app
from ckptctl.controller.interface import RolloutController
from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.canonical import compact_digest
from ckptctl.domain.controller import (
    PREFIX,
    AcknowledgementsReply,
    ClearBody,
    ClearReply,
    CloseReply,
    ConfirmBody,
    ConfirmReply,
    ControllerPhase,
    ControllerStatus,
    LedgerReply,
    OpenBody,
    OpenReply,
    PublicStatus,
    RestoreBody,
    RestoreReply,
    SaveBody,
    SaveReply,
    SettleBody,
    SettleReply,
)
from ckptctl.domain.participant import CommonBody

R = TypeVar("R")

CLOSED, SAVED, RESTORED, RESTORE_FAILED = "closed", "saved", "restored", "restore_failed"

CLOSE = Operation("admission/close", frozenset({IDLE}), after=CLOSED)
SAVE = Operation("save", frozenset({CLOSED}), after=SAVED)
RESTORE = Operation("restore", frozenset({IDLE, RESTORE_FAILED}), after=RESTORED, failed=RESTORE_FAILED)
OPEN = Operation("admission/open", frozenset({IDLE, CLOSED, SAVED, RESTORED}), retires=True)

OUTCOMES = {
    IDLE: ("aborted",),
    CLOSED: ("released", "aborted"),
    SAVED: ("released", "aborted"),
    RESTORED: ("restored",),
}


class Page(BaseModel):
    """Query of the paged lists."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000
    after: str | None = None


class ControllerService:
    """Protocol state around one controller; `create_app` turns it into an application."""

    def __init__(
        self, controller: RolloutController, *, instance_id: str, restore_expected: bool, now: Callable[[], float]
    ) -> None:
        self.controller = controller
        self.fence = Fence()
        self.restore_expected = restore_expected
        self._instance_id = instance_id
        self._now = now

    @property
    def is_admission_open(self) -> bool:
        """Whether rollouts may be dispatched, as the status reports it."""
        return self.fence.phase == IDLE and self.fence.active_checkpoint_id is None and not self.restore_expected

    async def status(self, *, authorized: bool) -> PublicStatus | ControllerStatus:
        """Who this is; with the token, everything a coordinator must know before it begins."""
        if not authorized:
            return PublicStatus(instance_id=self._instance_id)
        facts = await self.controller.facts()
        return ControllerStatus(
            instance_id=self._instance_id,
            phase=cast("ControllerPhase", self.fence.phase),
            admission="open" if self.is_admission_open else "closed",
            active_checkpoint_id=self.fence.active_checkpoint_id,
            restore_expected=self.restore_expected,
            **facts.model_dump(),
        )

    async def close(self, body: CommonBody) -> CloseReply:
        """Close rollout admission."""

        async def work() -> CloseReply:
            if self.restore_expected:
                raise RefusalError("invalid_phase", "this process expects a restore; there is nothing to close")
            return await self.controller.close_admission(body)

        return await self._fenced(CLOSE, body, work)

    async def save(self, body: SaveBody) -> SaveReply:
        """Write the controller's part of the snapshot."""
        return await self._fenced(SAVE, body, lambda: self.controller.save(body))

    async def restore(self, body: RestoreBody) -> RestoreReply:
        """Load a snapshot into a fresh process."""

        async def work() -> RestoreReply:
            if not self.restore_expected:
                raise RefusalError(
                    "not_fresh", "this process has admitted work; start one that expects a restore", harmless=True
                )
            return await self.controller.restore(body)

        return await self._fenced(RESTORE, body, work)

    async def clear(self, body: ClearBody) -> ClearReply:
        """Remove staging rows that no continuation needs any more."""
        # Repeatable with other keys under one id: each set of keys has its own replay slot.
        operation = Operation(f"staging/clear:{compact_digest(sorted(body.keys))}", frozenset({RESTORED}))
        return await self._fenced(operation, body, lambda: self.controller.clear_staging(body))

    async def open(self, body: OpenBody) -> OpenReply:
        """End the checkpoint id and dispatch again."""

        async def work() -> OpenReply:
            phase = self.fence.phase
            if body.outcome not in OUTCOMES[phase]:
                raise RefusalError("invalid_phase", f"outcome {body.outcome} is not possible in phase {phase}")
            if phase == IDLE and self.restore_expected:
                raise RefusalError("invalid_phase", "this process expects a restore; admission stays closed until then")
            dispatched = await self.controller.open_admission(body)
            self.restore_expected = False
            return OpenReply(phase="idle", admission="open", dispatched=dispatched)

        return await self._fenced(OPEN, body, work)

    async def acknowledgements(self, page: Page) -> AcknowledgementsReply:
        """One page of the outbox."""
        return await self.controller.acknowledgements(page.limit, page.after)

    async def confirm(self, body: ConfirmBody) -> ConfirmReply:
        """Remove what was delivered."""
        return await self.controller.confirm(body)

    async def settle(self, body: SettleBody) -> SettleReply:
        """Remove what a restarted agent no longer knows and the controller owns."""
        return await self.controller.settle(body)

    async def ledger(self, page: Page) -> LedgerReply:
        """One page of the unfinished groups: after a restore, and while a snapshot asks whose sessions are in use."""
        if self.fence.phase not in (CLOSED, RESTORED):
            raise RefusalError(
                "invalid_phase", f"the ledger is shown in phases {CLOSED} and {RESTORED}, not {self.fence.phase}"
            )
        return await self.controller.ledger(page.limit, page.after)

    async def _fenced(self, operation: Operation, body: CommonBody, work: Callable[[], Awaitable[R]]) -> R:
        async def bounded() -> R:
            remaining_s = body.deadline_ts - self._now()
            if remaining_s <= 0:
                raise RefusalError("deadline_exceeded", "the deadline has passed; nothing was changed", harmless=True)
            try:
                async with asyncio.timeout(remaining_s) as limit:
                    return await work()
            except TimeoutError:
                if not limit.expired():
                    raise  # the controller's own, a bug
                raise RefusalError("deadline_exceeded", f"{operation.name} was not done by its deadline") from None

        return await self.fence.run(body.checkpoint_id, operation, bounded, deadline_ts=body.deadline_ts)


def create_app(
    controller: RolloutController,
    token: str,
    *,
    restore_expected: bool = False,
    instance_id: str | None = None,
    now: Callable[[], float] = time.time,
) -> FastAPI:
    """The ASGI application. `app.state.service` is its ControllerService.

    Raises:
        ValueError: without a token; a controller that anyone may stop is never served.
    """
    if not token:
        raise ValueError("the controller interface needs a token")
    service = ControllerService(
        controller, instance_id=instance_id or uuid.uuid4().hex, restore_expected=restore_expected, now=now
    )
    app = new_app("ckptctl controller interface", "1", "The rollout controller's side of a coordinated snapshot.")
    app.state.service = service
    for method, path, handler, request, reply in (
        ("POST", "/admission/close", service.close, CommonBody, CloseReply),
        ("POST", "/admission/open", service.open, OpenBody, OpenReply),
        ("GET", "/acknowledgements", service.acknowledgements, Page, AcknowledgementsReply),
        ("POST", "/acknowledgements/confirm", service.confirm, ConfirmBody, ConfirmReply),
        ("POST", "/acknowledgements/settle", service.settle, SettleBody, SettleReply),
        ("POST", "/save", service.save, SaveBody, SaveReply),
        ("POST", "/restore", service.restore, RestoreBody, RestoreReply),
        ("GET", "/ledger", service.ledger, Page, LedgerReply),
        ("POST", "/staging/clear", service.clear, ClearBody, ClearReply),
    ):
        add_route(
            app,
            method,
            PREFIX + path,
            handler,
            token=token,
            body=request if method == "POST" else None,
            query=request if method == "GET" else None,
            reply=reply,
            summary=(reply.__doc__ or "").partition("\n")[0],
        )
    add_route(
        app,
        "GET",
        PREFIX + "/status",
        service.status,
        token=token,
        reply=ControllerStatus | PublicStatus,
        wants_credential=True,
        summary="Who this is; with the token also phase, admission and counters.",
    )
    return app


def openapi_document() -> dict[str, object]:
    """The interface as OpenAPI, for `schemas/controller-openapi.json`. Depends on nothing but this code."""
    unconnected = cast("RolloutController", None)  # the routes are described, never called
    return create_app(unconnected, token="unused", instance_id="unused").openapi()  # noqa: S106  # no credential: never served
