"""What a rollout controller must be able to do, one async method per route of the controller interface.

The application (`app`) has checked the request, the credential, the fence and the deadline before it calls; it owns
phase, admission as reported, the active id and the freshness of the process. The controller owns everything else:
the ledger, the data plane, the trainer's counters, the outbox, files. It refuses by raising `RefusalError` with a
code of the interface.

A call is cancelled at its deadline (`asyncio.CancelledError`): the controller then undoes what it began, except in
`restore`. Work in threads is not stopped by that by itself.
"""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from pydantic import Field

from ckptctl.domain.controller import (
    AcknowledgementsReply,
    ClearBody,
    ClearReply,
    CloseReply,
    ConfirmBody,
    ConfirmReply,
    LedgerReply,
    OpenBody,
    RestoreBody,
    RestoreReply,
    SaveBody,
    SaveReply,
    SettleBody,
    SettleReply,
)
from ckptctl.domain.document import Count, Digest, Document, NonEmpty
from ckptctl.domain.participant import CommonBody


class ControllerFacts(Document):
    """The part of the status that only the controller knows; fields as in the full status."""

    train_step: Count
    trainer_version: Count
    epoch: Count
    mutation_version: Count
    sampler_dispatch_index: Annotated[int, Field(ge=-1)]
    sampler_name: str
    unfinished_rollouts: Count
    acknowledgements_pending: Count
    canonical_partition: NonEmpty
    staging_partition: NonEmpty
    data_plane: Literal["embedded", "transferqueue"]
    storage_units: Annotated[int, Field(ge=1)]
    takes_own_snapshots: bool
    trainer_busy: bool
    checkpoint_dir: NonEmpty
    anchor: str | None
    bootstrap_fingerprint: Digest | None


class RolloutController(Protocol):
    """Implement this, and `create_app` serves it."""

    async def facts(self) -> ControllerFacts:
        """`GET /status`. Cheap: it is polled."""
        ...

    async def close_admission(self, request: CommonBody) -> CloseReply:
        """`POST /admission/close`: no new dispatch begins; return when those already begun have reached their agents.

        Cancelled or failing: dispatch goes on as before.
        """
        ...

    async def acknowledgements(self, limit: int, after: str | None) -> AcknowledgementsReply:
        """`GET /acknowledgements`: one page of the outbox, sorted by agent, rollout, attempt."""
        ...

    async def confirm(self, request: ConfirmBody) -> ConfirmReply:
        """`POST /acknowledgements/confirm`: remove exactly these. Idempotent."""
        ...

    async def settle(self, request: SettleBody) -> SettleReply:
        """`POST /acknowledgements/settle`: remove those that ledger or replay metadata own. Idempotent."""
        ...

    async def save(self, request: SaveBody) -> SaveReply:
        """`POST /save`: write the controller's part of the snapshot under the exclusive data-plane cut.

        Cancelled or failing: every file it wrote in the directory is removed again.
        """
        ...

    async def restore(self, request: RestoreBody) -> RestoreReply:
        """`POST /restore`: load the snapshot; admission stays closed. Repeatable after a failure.

        A refusal made before anything was loaded may be `harmless`: then the process stays idle.
        """
        ...

    async def ledger(self, limit: int, after: str | None) -> LedgerReply:
        """`GET /ledger`: one page of the unfinished groups, sorted by group id; asked in phases `closed` and `restored`."""
        ...

    async def clear_staging(self, request: ClearBody) -> ClearReply:
        """`POST /staging/clear`: remove these staging keys, count those that are not there."""
        ...

    async def open_admission(self, request: OpenBody) -> int:
        """`POST /admission/open`: dispatch again; after a restore exactly as `redispatch` says. Returns how many were dispatched.

        Harmless when nothing was closed (`aborted` after a lost close).
        Refuses a redispatch mapping that does not fit the ledger (`unowned_redispatch`) before anything is dispatched.
        """
        ...
