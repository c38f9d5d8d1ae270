"""The controller interface over HTTP: `ports.Controller`, one short method per route (controller-interface "Routes")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from ckptctl.adapters.channel import Channel
from ckptctl.adapters.other_role import CONTROLLER as SERVER
from ckptctl.adapters.other_role import explained
from ckptctl.domain.controller import (
    PREFIX,
    AcknowledgementsReply,
    ClearBody,
    ClearReply,
    CloseReply,
    ConfirmBody,
    ConfirmReply,
    ControllerStatus,
    LedgerReply,
    OpenBody,
    OpenReply,
    Outcome,
    PublicStatus,
    Redispatch,
    RestoreBody,
    RestoreReply,
    SaveBody,
    SaveReply,
    SettleBody,
    SettleReply,
)
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.participant import CommonBody, CompletionReceipt
from ckptctl.errors import CredentialError, MalformedReplyError, RouteMissingError

M = TypeVar("M", bound=BaseModel)


class HttpController:
    """Implements `ports.Controller`."""

    def __init__(self, channel: Channel, url: str, *, control_timeout_s: float) -> None:
        self._channel = channel
        self._url = url
        self._control_timeout_s = control_timeout_s

    async def public_status(self) -> str:
        """`GET /status` without a token: the instance id."""
        return (await self._get("status", PublicStatus, is_authorised=False)).instance_id

    async def status(self) -> ControllerStatus:
        """`GET /status`. A controller that answers only what it tells everybody did not take the token: CredentialError."""
        try:
            return await self._get("status", ControllerStatus)
        except MalformedReplyError as error:
            try:
                await self._get("status", PublicStatus)
            except MalformedReplyError:
                raise error from None
            detail = "it answers only what needs no token"
            raise CredentialError(
                server=SERVER, operation="status", status=200, server_code="", detail=detail
            ) from error

    async def close_admission(self, checkpoint_id: str, deadline_ts: float) -> CloseReply:
        """`POST /admission/close`."""
        body = CommonBody(checkpoint_id=checkpoint_id, deadline_ts=deadline_ts)
        return await self._post("admission/close", body, CloseReply)

    async def acknowledgements(self, *, limit: int = 1000, after: str | None = None) -> AcknowledgementsReply:
        """`GET /acknowledgements`."""
        return await self._get("acknowledgements", AcknowledgementsReply, _page(limit, after))

    async def confirm(self, receipts: tuple[CompletionReceipt, ...]) -> ConfirmReply:
        """`POST /acknowledgements/confirm`."""
        body = ConfirmBody(acknowledged=list(receipts))
        return await self._send("acknowledgements/confirm", body, ConfirmReply, self._control_timeout_s)

    async def settle(self, receipts: tuple[CompletionReceipt, ...]) -> SettleReply:
        """`POST /acknowledgements/settle`."""
        body = SettleBody(receipts=list(receipts))
        return await self._send("acknowledgements/settle", body, SettleReply, self._control_timeout_s)

    async def save(
        self, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str, indexes: Iterable[ArtifactReference]
    ) -> SaveReply:
        """`POST /save`."""
        body = SaveBody(
            checkpoint_id=checkpoint_id,
            deadline_ts=deadline_ts,
            checkpoint_dir=checkpoint_dir,
            storage_reference_indexes=list(indexes),
        )
        return await self._post("save", body, SaveReply)

    async def restore(
        self, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str, manifest_sha256: str
    ) -> RestoreReply:
        """`POST /restore`."""
        body = RestoreBody(
            checkpoint_id=checkpoint_id,
            deadline_ts=deadline_ts,
            checkpoint_dir=checkpoint_dir,
            manifest_sha256=manifest_sha256,
        )
        return await self._post("restore", body, RestoreReply)

    async def ledger(self, *, limit: int = 1000, after: str | None = None) -> LedgerReply:
        """`GET /ledger`."""
        return await self._get("ledger", LedgerReply, _page(limit, after))

    async def clear_staging(self, checkpoint_id: str, deadline_ts: float, keys: tuple[str, ...]) -> ClearReply:
        """`POST /staging/clear`."""
        body = ClearBody(checkpoint_id=checkpoint_id, deadline_ts=deadline_ts, keys=list(keys))
        return await self._post("staging/clear", body, ClearReply)

    async def open_admission(
        self, checkpoint_id: str, deadline_ts: float, outcome: Outcome, redispatch: tuple[Redispatch, ...] = ()
    ) -> OpenReply:
        """`POST /admission/open`."""
        body = OpenBody(
            checkpoint_id=checkpoint_id, deadline_ts=deadline_ts, outcome=outcome, redispatch=list(redispatch)
        )
        return await self._post("admission/open", body, OpenReply)

    async def _post(self, route: str, body: CommonBody, reply: type[M]) -> M:
        return await self._send(route, body, reply, self._channel.remaining_s(body.deadline_ts))

    async def _send(self, route: str, body: BaseModel, reply: type[M], timeout_s: float) -> M:
        return await self._call("POST", route, reply, timeout_s=timeout_s, body=body)

    async def _get(
        self, route: str, reply: type[M], query: Mapping[str, str] | None = None, *, is_authorised: bool = True
    ) -> M:
        timeout_s = self._control_timeout_s
        return await self._call("GET", route, reply, timeout_s=timeout_s, query=query, is_authorised=is_authorised)

    async def _call(self, method: str, route: str, reply: type[M], **how: Any) -> M:
        try:
            return await self._channel.call(SERVER, self._url, method, f"{PREFIX}/{route}", reply, **how)
        except RouteMissingError as error:
            raise await explained(self._channel, self._url, "`ckptctl.controller.url`", error) from error


def _page(limit: int, after: str | None) -> dict[str, str]:
    return {"limit": str(limit)} if after is None else {"limit": str(limit), "after": after}
