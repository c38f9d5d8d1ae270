"""The lines of a journal, `<checkpoint_dir>/.ckptctl/journal/NNNNNN-<kind>.jsonl`, as documents: what a program may rely on that
reads one, and what the writers are tested against.

Lines are decoded by `formats.journal_line`, which is lenient in one thing: a field that it does not know may be of a newer
ckptctl. What they tell is `planning.recovery`'s business. One line is one object: `begin` first, then `intent` before and
`outcome` or `failure` after each step, `finish` last; a journal without `finish` is unfinished.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, RootModel

from ckptctl.domain.document import CheckpointId, Count, Digest, Document, LenientDocument, NonEmpty, RelativePath
from ckptctl.domain.journal_bounds import LAST_S
from ckptctl.domain.restore import RestoreFacts
from ckptctl.domain.retention import GcItem, GcPolicy
from ckptctl.domain.transaction import SnapshotFacts

TransactionName = Annotated[str, Field(pattern=r"^[0-9]{6,12}-[a-z]+$")]
At = Annotated[float, Field(ge=0, le=LAST_S, description="Unix seconds")]


class BeginSnapshot(SnapshotFacts):
    """A snapshot begins: enough to finish or undo it without anybody's memory."""

    model_config = ConfigDict(extra="forbid")

    at: At
    event: Literal["begin"]
    kind: Literal["snapshot"]
    transaction: TransactionName


class BeginRestore(RestoreFacts):
    """A restore begins: enough to continue it."""

    model_config = ConfigDict(extra="forbid")

    at: At
    event: Literal["begin"]
    kind: Literal["restore"]
    transaction: TransactionName


class BeginPublish(Document):
    """The publication of a staged directory begins that no transaction of ours owns."""

    at: At
    event: Literal["begin"]
    kind: Literal["publish"]
    transaction: TransactionName
    schema_version: Literal[1]
    tool_version: str
    staged: RelativePath = Field(min_length=1, description="relative to the checkpoint directory")
    final: RelativePath = Field(min_length=1, description="relative to the checkpoint directory")


class BeginRelease(Document):
    """`publish --release` begins to free participants that another coordinator left paused."""

    at: At
    event: Literal["begin"]
    kind: Literal["release"]
    transaction: TransactionName
    schema_version: Literal[1]
    tool_version: str
    checkpoint_id: CheckpointId
    reason: NonEmpty


class BeginAside(Document):
    """`publish --set-aside` takes a journal that cannot be read out of the way; `finish` says where it is kept."""

    at: At
    event: Literal["begin"]
    kind: Literal["aside"]
    transaction: TransactionName
    schema_version: Literal[1]
    tool_version: str
    set_aside: TransactionName = Field(description="the transaction whose journal it was")
    reason: NonEmpty


class BeginGc(Document):
    """Garbage collection begins, or one of its single acts: a pin, its end, bringing a snapshot back."""

    at: At
    event: Literal["begin"]
    kind: Literal["gc"]
    transaction: TransactionName
    schema_version: Literal[1]
    tool_version: str
    policy: GcPolicy | None = None
    going: tuple[GcItem, ...] | None = Field(default=None, description="what is moved or deleted")
    pin: str | None = None
    unpin: str | None = None
    undelete: str | None = Field(default=None, description="the entry of the trash")
    snapshot: str | None = Field(default=None, description="where it is brought back to")
    reason: str | None = None


class Intent(Document):
    """A step is about to be done."""

    at: At
    event: Literal["intent"]
    number: str | None = Field(default=None, description="place in the numbered order, for example 4.2")
    step: NonEmpty
    targets: tuple[str, ...] | None = Field(default=None, description="server names or paths")
    path: str | None = Field(default=None, description="of garbage collection: relative to the checkpoint directory")


Seconds = Annotated[float, Field(ge=0, le=LAST_S)]


class Measured(Document):
    """What a step cost. Journals of older versions, and of acts that ask no server, say nothing of it, or only the seconds."""

    seconds: Seconds | None = None
    elapsed_s: Seconds | None = Field(
        default=None, description="when the step ended, since this process began to write this journal; monotonic"
    )
    requests: Count | None = Field(default=None, description="to servers")
    sent_bytes: Count | None = Field(default=None, description="bodies of the requests")
    received_bytes: Count | None = Field(default=None, description="bodies of the replies")
    waiting_s: Seconds | None = Field(default=None, description="time in which at least one request was under way")


class Outcome(Measured):
    """A step was done. What it brought stands beside these fields."""

    model_config = ConfigDict(extra="allow")

    at: At
    event: Literal["outcome"]
    number: str | None = None
    step: NonEmpty
    path: str | None = None
    checkpoint_id: str | None = Field(
        default=None, description="what the checksum file, or a server's reply, was about"
    )
    checksums_blake3: Digest | None = Field(
        default=None, description="of the checksum file that was written or published"
    )
    manifest_sha256: Digest | None = Field(default=None, description="of the manifest that was written")
    mutation_version: Count | None = Field(
        default=None, description="of the controller's state that was saved or restored"
    )
    retired: list[dict[str, Any]] | None = Field(default=None, description="leaked sessions that were retired")


class Failure(Measured):
    """A step failed."""

    at: At
    event: Literal["failure"]
    step: NonEmpty
    code: NonEmpty = Field(description="code of the error, or the name of its class")
    message: str


class Recovery(Document):
    """Another process goes on from here."""

    at: At
    event: Literal["recovery"]


class Finish(LenientDocument):
    """The transaction has ended."""

    at: At
    event: Literal["finish"]
    outcome: NonEmpty
    reason: str | None = None
    unclaimed_sessions: list[dict[str, Any]] | None = Field(
        default=None,
        description="restored sessions that no continuation claims; the next snapshot retires those that are left",
    )


Begin = Annotated[
    BeginSnapshot | BeginRestore | BeginPublish | BeginRelease | BeginAside | BeginGc, Field(discriminator="kind")
]


class JournalLine(
    RootModel[Annotated[Begin | Intent | Outcome | Failure | Recovery | Finish, Field(discriminator="event")]]
):
    """One line of a journal."""
