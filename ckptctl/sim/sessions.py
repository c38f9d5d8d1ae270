"""The sessions of a resources server in memory: state, revision, receipts, tombstones and their limits.

Values only: who may call when (admission, locks, order of checks) is `resources`', what a call does the environment's.
Source: participant-protocol sections 6.3 and 10.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ckptctl.domain.canonical import compact_sorted
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.participant_files import MutationReceipt, SessionRecord
from ckptctl.sim.identity import REVISION, Pair

MAX_RECEIPTS = 1024
MAX_RETIRED_SESSIONS = 1024
MAX_EVICTED = 4096


@dataclass(slots=True)
class Session:
    """One bound session, or what is left of one that its terminal call released (`is_bound` false)."""

    pair: Pair
    created_at: float
    state: dict[str, Any] | None = None
    revision: int = 0
    receipts: dict[str, MutationReceipt] = field(default_factory=dict)
    is_bound: bool = False
    uncertain_reason: str | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def record(self) -> SessionRecord:
        """What a commit writes."""
        return SessionRecord(
            schema_version=2,
            rollout_id=self.pair.rollout_id,
            attempt_index=self.pair.attempt_index,
            state_revision=self.revision,
            state=self.state or {},
            mutation_receipts=list(self.receipts.values()),
            created_at=self.created_at,
        )


class SessionBook:
    """All sessions of one process."""

    def __init__(self) -> None:
        self._sessions: dict[Pair, Session] = {}
        self._evicted: dict[Pair, None] = {}
        self.tombstones: set[Pair] = set()
        self.is_saturated = False
        """More evictions than can be remembered: no identified request can be judged any more."""

    def bound(self) -> list[Session]:
        """Bound sessions, sorted by pair."""
        return sorted((session for session in self._sessions.values() if session.is_bound), key=lambda item: item.pair)

    def released(self) -> list[Session]:
        """Sessions that only keep receipts, oldest first."""
        return [session for session in self._sessions.values() if not session.is_bound and session.receipts]

    def uncertain(self) -> list[Session]:
        """Sessions whose last call has an unknown outcome."""
        return [session for session in self._sessions.values() if session.uncertain_reason is not None]

    @property
    def evicted_count(self) -> int:
        """How many pairs' receipts were forgotten."""
        return len(self._evicted)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever held."""
        return not self._sessions and not self.tombstones and not self._evicted

    def is_evicted(self, pair: Pair) -> bool:
        """Whether a request of this pair can no longer be judged."""
        return self.is_saturated or pair in self._evicted

    def find(self, pair: Pair) -> Session | None:
        """What is known of a pair."""
        return self._sessions.get(pair)

    def require(self, pair: Pair, now_s: float) -> Session:
        """The session of a pair; an unbound empty one is made where there is none."""
        return self._sessions.setdefault(pair, Session(pair, now_s))

    def release(self, session: Session) -> None:
        """Its terminal call succeeded: keep the receipts for replay, within the limit."""
        session.is_bound, session.state = False, None
        self._sessions[session.pair] = self._sessions.pop(session.pair)  # youngest last
        released = self.released()
        for oldest in released[: max(0, len(released) - MAX_RETIRED_SESSIONS)]:
            del self._sessions[oldest.pair]
            if len(self._evicted) >= MAX_EVICTED:
                self.is_saturated = True
            else:
                self._evicted[oldest.pair] = None

    def drop(self, pair: Pair) -> None:
        """Forget state, revision and receipts; the tombstone is the caller's."""
        self._sessions.pop(pair, None)

    def drop_if_unused(self, session: Session) -> None:
        """Forget a session that was made for a request that then did nothing."""
        if not session.is_bound and not session.receipts and session.uncertain_reason is None:
            self._sessions.pop(session.pair, None)

    def install(self, records: Iterable[SessionRecord]) -> None:
        """Take restored sessions over for exactly the next attempt, and fence exactly the saved one."""
        for record in records:
            saved = Pair(record.rollout_id, record.attempt_index)
            self.tombstones.add(saved)
            self._sessions[saved.successor] = Session(
                pair=saved.successor,
                created_at=float(record.created_at),
                state=record.state,
                revision=record.state_revision,
                receipts={receipt.request_id: receipt for receipt in record.mutation_receipts},
                is_bound=True,
            )


def input_digest(
    method: str, path: str, query: str, content_types: Iterable[str], cookies: Iterable[tuple[str, str]], body: bytes
) -> str:
    """What a request id stands for: two requests with one id must have one digest."""
    facts = {
        "content-type": sorted(_normal_content_type(value) for value in content_types),
        "cookies": sorted([name, value] for name, value in cookies),
    }
    return sha256_hex(b"\0".join([method.encode(), path.encode(), query.encode(), compact_sorted(facts), body]))


def _normal_content_type(value: str) -> str:
    kind, *parameters = (part.strip().lower() for part in value.split(";"))
    return ";".join([kind, *sorted(parameters)])


def new_receipt(
    *,
    request_id: str,
    expected_revision: int | None,
    digest: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    revision: int | None,
) -> MutationReceipt:
    """The recorded answer of one call; a failed one has no resulting revision."""
    return MutationReceipt(
        request_id=request_id,
        expected_revision=expected_revision,
        input_digest=digest,
        status=status,
        headers=[[name, value] for name, value in sorted(headers.items()) if name != REVISION],
        body_base64=base64.b64encode(body).decode(),
        resulting_revision=revision,
    )
