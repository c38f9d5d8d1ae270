"""What `inspect --timings` answers: how long the steps of past snapshots took and what they asked of servers.

Everything comes from the journals of one checkpoint directory; how it is drawn from them is `planning.timings`' business.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ckptctl.domain.document import Count, Document
from ckptctl.domain.finding import SafeText

Span = Annotated[float, Field(ge=0)]
StepState = Literal["done", "failed", "unknown"]


class Spread(Document):
    """Several values of one kind; each quantile is one of them (nearest rank)."""

    count: Annotated[int, Field(ge=1)]
    p50: Span
    p95: Span
    max: Span


class StepTimes(Document):
    """One step in all published snapshots that did it."""

    number: SafeText
    name: SafeText
    seconds: Spread
    own_s: Spread | None = Field(description="time of the step in which no request was under way")
    requests: Spread | None
    bytes: Spread | None = Field(description="bodies of requests and replies")


class StepInTime(Document):
    """One step of one transaction."""

    number: SafeText
    name: SafeText
    state: StepState = Field(description="unknown: it was begun, and nothing says how it ended")
    began_s: Span = Field(description="since the first step of the transaction began")
    seconds: Span | None
    waiting_s: Span | None = Field(description="time in which at least one request was under way")
    requests: Count | None
    sent_bytes: Count | None
    received_bytes: Count | None


class TransactionTimes(Document):
    """One transaction that closed admission, as its journal tells."""

    transaction: SafeText
    checkpoint_id: SafeText
    snapshot: SafeText = Field(description="the final name that it was to get, relative to the checkpoint directory")
    began_at: Span = Field(description="Unix seconds")
    outcome: SafeText = Field(description="how it ended; `unfinished` when nothing says so")
    is_recovered: bool = Field(description="another process finished it: the time between the two is in the window")
    admission_closed_s: Span | None = Field(
        description="from before admission was asked to close until it was open again; null while nothing says that it is"
    )
    own_s: Span | None = Field(
        description="time of that window in which no request was under way, without save, validation and publication"
    )
    requests: Count | None
    bytes: Count | None = Field(description="bodies of requests and replies")


class TimingsInspection(Document):
    """The answer of `ckptctl inspect --timings`."""

    schema_version: Literal[1] = 1
    path: SafeText
    outcomes: dict[SafeText, Count] = Field(
        description="how many transactions ended how; the spreads are of `published` alone"
    )
    left_out: Count = Field(description="older journals that were not read")
    admission_closed_s: Spread | None
    own_s: Spread | None
    requests: Spread | None
    bytes: Spread | None
    steps: tuple[StepTimes, ...]
    last: TransactionTimes = Field(description="the newest transaction")
    last_steps: tuple[StepInTime, ...]
    transactions: tuple[TransactionTimes, ...] = Field(description="newest last")
    warnings: tuple[SafeText, ...]
