"""The Gym control protocol, generation A, over HTTP: `ports.Participants`, one short method per route
(participant-protocol section 5).

Optional request fields of the protocol are never sent. Retries, order and what a refusal means for a transaction are
left to the workflows; generation B is recognised here, because only its routes tell it from a server without a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import BaseModel

from ckptctl.adapters.channel import Channel
from ckptctl.adapters.other_role import explained
from ckptctl.domain.document import LenientDocument
from ckptctl.domain.manifest import ArtifactReference
from ckptctl.domain.participant import (
    PREFIX,
    AcknowledgeBody,
    AcknowledgeReply,
    AgentCommitReply,
    AgentRestoreReply,
    AgentStatus,
    Capabilities,
    CommonBody,
    CompletionReceipt,
    DirectoryBody,
    DiscardReply,
    ExecutionBody,
    ModelCommitBody,
    ModelCommitReply,
    ModelRestoreReply,
    ModelStatus,
    PauseReply,
    ResourcesCommitReply,
    ResourcesPrepareReply,
    ResourcesRestoreReply,
    ResourcesRetireReply,
    ResourcesStatus,
    ResumeReply,
)
from ckptctl.errors import (
    CredentialError,
    DiscoveryRefusedError,
    RouteMissingError,
    ServerRefusedError,
    UnreachableError,
)

M = TypeVar("M", bound=BaseModel)

GENERATION_B = "this Gym deployment speaks control protocol generation B; ckptctl speaks generation A"


class HttpParticipants:
    """Implements `ports.Participants`. `urls`: configured server name -> base url."""

    def __init__(self, channel: Channel, urls: Mapping[str, str], *, control_timeout_s: float) -> None:
        self._channel = channel
        self._urls = urls
        self._control_timeout_s = control_timeout_s

    async def capabilities(self, server: str) -> Capabilities:
        """`GET capabilities`. Raises DiscoveryRefusedError for generation B."""
        try:
            return await self._get(
                server, "capabilities", Capabilities, {}, self._control_timeout_s, is_authorised=False
            )
        except RouteMissingError as error:
            if await self._is_generation_b(server):
                hint = f"`{server}` has the routes of generation B: it needs a coordinator of that generation"
                raise DiscoveryRefusedError(GENERATION_B, hint=hint) from None
            raise await self._explained(error) from error

    async def model_pause(self, server: str, checkpoint_id: str, deadline_ts: float) -> PauseReply:
        """`POST model-admission/pause`."""
        return await self._post(server, "model-admission/pause", _common(checkpoint_id, deadline_ts), PauseReply)

    async def model_status(
        self, server: str, checkpoint_id: str, deadline_ts: float, *, wait_paused_s: float | None
    ) -> ModelStatus:
        """`GET model-admission/status`, as a long poll with `wait_paused_s`."""
        query = {"checkpoint_id": checkpoint_id, "deadline_ts": repr(float(deadline_ts))}
        if wait_paused_s is not None:
            query |= {"wait_state": "paused", "timeout_s": repr(max(0.0, round(wait_paused_s, 3)))}
        timeout_s = self._channel.remaining_s(deadline_ts)
        return await self._get(server, "model-admission/status", ModelStatus, query, timeout_s)

    async def model_resume(self, server: str, checkpoint_id: str, deadline_ts: float) -> ResumeReply:
        """`POST model-admission/resume`."""
        return await self._post(server, "model-admission/resume", _common(checkpoint_id, deadline_ts), ResumeReply)

    async def model_commit(
        self,
        server: str,
        checkpoint_id: str,
        deadline_ts: float,
        checkpoint_dir: str,
        indexes: Iterable[ArtifactReference],
    ) -> ModelCommitReply:
        """`POST model-checkpoint/commit`."""
        body = ModelCommitBody(
            checkpoint_id=checkpoint_id,
            deadline_ts=deadline_ts,
            checkpoint_dir=checkpoint_dir,
            continuation_indexes=list(indexes),
        )
        return await self._post(server, "model-checkpoint/commit", body, ModelCommitReply)

    async def model_restore(
        self, server: str, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str
    ) -> ModelRestoreReply:
        """`POST model-checkpoint/restore`."""
        body = _directory(checkpoint_id, deadline_ts, checkpoint_dir)
        return await self._post(server, "model-checkpoint/restore", body, ModelRestoreReply)

    async def agent_prepare(self, server: str, checkpoint_id: str, deadline_ts: float) -> AgentStatus:
        """`POST agent-checkpoint/prepare`."""
        return await self._post(server, "agent-checkpoint/prepare", _common(checkpoint_id, deadline_ts), AgentStatus)

    async def agent_status(self, server: str, checkpoint_id: str) -> AgentStatus:
        """`GET agent-checkpoint/status`."""
        query = {"checkpoint_id": checkpoint_id}
        return await self._get(server, "agent-checkpoint/status", AgentStatus, query, self._control_timeout_s)

    async def agent_commit(
        self, server: str, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str
    ) -> AgentCommitReply:
        """`POST agent-checkpoint/commit`."""
        body = _directory(checkpoint_id, deadline_ts, checkpoint_dir)
        return await self._post(server, "agent-checkpoint/commit", body, AgentCommitReply)

    async def agent_restore(
        self, server: str, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str
    ) -> AgentRestoreReply:
        """`POST agent-checkpoint/restore`."""
        body = _directory(checkpoint_id, deadline_ts, checkpoint_dir)
        return await self._post(server, "agent-checkpoint/restore", body, AgentRestoreReply)

    async def agent_discard(
        self, server: str, checkpoint_id: str, deadline_ts: float, rollout_id: str, attempt_index: int
    ) -> DiscardReply:
        """`POST agent-checkpoint/discard-restored-continuation`; `attempt_index` is the replacement."""
        body = _execution(checkpoint_id, deadline_ts, rollout_id, attempt_index)
        return await self._post(server, "agent-checkpoint/discard-restored-continuation", body, DiscardReply)

    async def agent_resume(self, server: str, checkpoint_id: str, deadline_ts: float) -> ResumeReply:
        """`POST agent-checkpoint/resume`."""
        return await self._post(server, "agent-checkpoint/resume", _common(checkpoint_id, deadline_ts), ResumeReply)

    async def agent_acknowledge(self, server: str, receipts: tuple[CompletionReceipt, ...]) -> AcknowledgeReply:
        """`POST agent-checkpoint/acknowledge-completed`; no checkpoint id, no fence."""
        body = AcknowledgeBody(executions=list(receipts))
        timeout_s = self._control_timeout_s
        return await self._send(server, "agent-checkpoint/acknowledge-completed", body, AcknowledgeReply, timeout_s)

    async def resources_status(self, server: str, checkpoint_id: str, deadline_ts: float) -> ResourcesStatus:
        """`GET resources-checkpoint/status`."""
        query = {"checkpoint_id": checkpoint_id, "deadline_ts": repr(float(deadline_ts))}
        timeout_s = min(self._control_timeout_s, self._channel.remaining_s(deadline_ts))
        return await self._get(server, "resources-checkpoint/status", ResourcesStatus, query, timeout_s)

    async def resources_prepare(self, server: str, checkpoint_id: str, deadline_ts: float) -> ResourcesPrepareReply:
        """`POST resources-checkpoint/prepare`."""
        body = _common(checkpoint_id, deadline_ts)
        return await self._post(server, "resources-checkpoint/prepare", body, ResourcesPrepareReply)

    async def resources_commit(
        self, server: str, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str
    ) -> ResourcesCommitReply:
        """`POST resources-checkpoint/commit`."""
        body = _directory(checkpoint_id, deadline_ts, checkpoint_dir)
        return await self._post(server, "resources-checkpoint/commit", body, ResourcesCommitReply)

    async def resources_restore(
        self, server: str, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str
    ) -> ResourcesRestoreReply:
        """`POST resources-checkpoint/restore`."""
        body = _directory(checkpoint_id, deadline_ts, checkpoint_dir)
        return await self._post(server, "resources-checkpoint/restore", body, ResourcesRestoreReply)

    async def resources_retire(
        self, server: str, checkpoint_id: str, deadline_ts: float, rollout_id: str, attempt_index: int
    ) -> ResourcesRetireReply:
        """`POST resources-checkpoint/retire`."""
        body = _execution(checkpoint_id, deadline_ts, rollout_id, attempt_index)
        return await self._post(server, "resources-checkpoint/retire", body, ResourcesRetireReply)

    async def resources_resume(self, server: str, checkpoint_id: str, deadline_ts: float) -> ResumeReply:
        """`POST resources-checkpoint/resume`."""
        return await self._post(server, "resources-checkpoint/resume", _common(checkpoint_id, deadline_ts), ResumeReply)

    async def _post(self, server: str, route: str, body: CommonBody, reply: type[M]) -> M:
        return await self._send(server, route, body, reply, self._channel.remaining_s(body.deadline_ts))

    async def _send(self, server: str, route: str, body: BaseModel, reply: type[M], timeout_s: float) -> M:
        path, url = f"{PREFIX}/{route}", self._urls[server]
        try:
            return await self._channel.call(server, url, "POST", path, reply, timeout_s=timeout_s, body=body)
        except RouteMissingError as error:
            raise await self._explained(error) from error

    async def _explained(self, error: RouteMissingError) -> RouteMissingError:
        key = f"`{error.server}` in `ckptctl.participants`"
        return await explained(self._channel, self._urls[error.server], key, error)

    async def _get(
        self,
        server: str,
        route: str,
        reply: type[M],
        query: Mapping[str, str],
        timeout_s: float,
        *,
        is_authorised: bool = True,
    ) -> M:
        try:
            return await self._channel.call(
                server,
                self._urls[server],
                "GET",
                f"{PREFIX}/{route}",
                reply,
                timeout_s=timeout_s,
                query=query or None,
                is_authorised=is_authorised,
            )
        except RouteMissingError as error:
            if not is_authorised:
                raise  # a question of what the server is: whoever asks knows what to make of it
            raise await self._explained(error) from error

    async def _is_generation_b(self, server: str) -> bool:
        """Generation B answers 200 or 401 to a status route that generation A does not have."""
        try:
            await self._get(
                server, "checkpoint/status", LenientDocument, {}, self._control_timeout_s, is_authorised=False
            )
        except CredentialError:
            return True
        except (ServerRefusedError, UnreachableError):
            return False
        return True


def _common(checkpoint_id: str, deadline_ts: float) -> CommonBody:
    return CommonBody(checkpoint_id=checkpoint_id, deadline_ts=deadline_ts)


def _directory(checkpoint_id: str, deadline_ts: float, checkpoint_dir: str) -> DirectoryBody:
    return DirectoryBody(checkpoint_id=checkpoint_id, deadline_ts=deadline_ts, checkpoint_dir=checkpoint_dir)


def _execution(checkpoint_id: str, deadline_ts: float, rollout_id: str, attempt_index: int) -> ExecutionBody:
    return ExecutionBody(
        checkpoint_id=checkpoint_id, deadline_ts=deadline_ts, rollout_id=rollout_id, attempt_index=attempt_index
    )
