"""What workflows ask of the world. Protocols only; the real ones live in `adapters`, the fakes in `tests/fakes`.

Paths are absolute or store-relative `str`. What talks HTTP is async; everything else is not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:  # a start must not pay for documents that only signatures name
    from ckptctl.domain.checksums import FileDigest, FileWork
    from ckptctl.domain.controller import (
        AcknowledgementsReply,
        ClearReply,
        CloseReply,
        ConfirmReply,
        ControllerStatus,
        LedgerReply,
        OpenReply,
        Outcome,
        Redispatch,
        RestoreReply,
        SaveReply,
        SettleReply,
    )
    from ckptctl.domain.evidence import PackFacts, Part, TreeEntry
    from ckptctl.domain.manifest import ArtifactReference
    from ckptctl.domain.participant import (
        AcknowledgeReply,
        AgentCommitReply,
        AgentRestoreReply,
        AgentStatus,
        Capabilities,
        CompletionReceipt,
        DiscardReply,
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
    from ckptctl.domain.source import ByteSource


class SnapshotReader(Protocol):
    """Reads a directory tree without following links or opening anything but regular files.

    Raises StorageError for I/O errors; `missing` files raise FileNotFoundError.
    """

    def list_tree(self, root: str, *, max_depth: int | None = None) -> tuple[TreeEntry, ...]:
        """Every name under `root`, sorted by path, links not followed."""
        ...

    def kind_of(self, path: str) -> str | None:
        """The entry kind of one path (lstat), or None when there is nothing."""
        ...

    def open_source(self, path: str) -> AbstractContextManager[ByteSource]:
        """Positioned reads of one regular file; refuses anything else."""
        ...

    def read_bytes(self, path: str, max_bytes: int) -> bytes:
        """A whole regular file. Raises StorageError above `max_bytes`."""
        ...

    def digest_files(
        self, root: str, wanted: Iterable[FileWork], advance: Callable[[int], None]
    ) -> Iterator[FileDigest]:
        """BLAKE3 of regular files below `root`, in any order; what is wrong with one is its result. `advance`: bytes done."""
        ...


@runtime_checkable
class PackReader(SnapshotReader, Protocol):
    """A reader that also looks into packed snapshots: once a pack was asked for, its members lie below its path."""

    def is_open_pack(self, path: str) -> bool:
        """Whether a path is a pack that was asked for."""
        ...

    def pack_at(self, path: str, *, whole: bool = False) -> Part[PackFacts]:
        """The pack as a container, with what was found wrong so far; `whole`: all of it is decoded first.

        Raises StorageError, FileNotFoundError when the file cannot be opened.
        """
        ...


class SnapshotStore(SnapshotReader, Protocol):
    """Changes a checkpoint directory. Every operation is durable when it returns, or says in its name that it is not."""

    def make_directory(self, path: str) -> None:
        """Create one directory (parents too) and sync the parents."""
        ...

    def write_file(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Temporary file, sync, rename, sync the directory."""
        ...

    def write_stream(self, path: str, pieces: Iterable[bytes]) -> None:
        """Write and sync a file that nobody looks at yet (its name says so), instead of what an earlier attempt left there."""
        ...

    def sync_tree(self, root: str) -> None:
        """Fsync every regular file and then its directory, bottom-up."""
        ...

    def sync_names(self, folder: str) -> None:
        """Fsync one directory: what somebody else renamed in it survives from now on."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename and sync the parent(s)."""
        ...

    def remove_tree(self, path: str) -> None:
        """Delete a tree that is already invisible (`tmp_`, `trash_`, our trash). Idempotent."""
        ...

    def file_system_now_s(self, folder: str) -> float:
        """What the file system that holds `folder` thinks the time is: comparable with the times of its files."""
        ...


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who holds a lock, for people; `is_dead`: provably gone, so that the next command takes the lock over by itself.

    An owner that lives renews its lease well within `lease_s`, by the file system's clock.
    """

    told: str
    is_dead: bool
    renewed_s: float
    lease_s: float


class Lock(Protocol):
    """The coordinator lock of one checkpoint directory. Raises LockHeldError."""

    def acquire(self, *, break_lock: bool = False) -> None:
        """Take it; a provably dead owner is taken over by itself, one that may be alive only with `break_lock`."""
        ...

    def is_owner(self) -> bool:
        """Whether it is still ours (checked before publication)."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...

    def holder(self) -> LockHolder | None:
        """Who holds it, by looking only; None when it is free."""
        ...

    def demand_run(self) -> None:
        """By looking only, as `acquire` does first: BusyError in a run that another one has succeeded, StorageError where
        that cannot be told.
        """
        ...


class JournalWriter(Protocol):
    """One transaction's journal: append-only JSON Lines, `intent` before every effect, `outcome` after it."""

    def append(self, record: Mapping[str, Any], *, sync: bool) -> None:
        """Append one record (a timestamp is added)."""
        ...


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One line of a journal, as read back."""

    transaction: str
    record: Mapping[str, Any]


class Journal(Protocol):
    """All transactions of a checkpoint directory."""

    def begin(self, kind: str, facts: Mapping[str, Any]) -> JournalWriter:
        """Start a transaction of `kind` (`snapshot`, `restore`, `gc`)."""
        ...

    def resume(self, transaction: str) -> JournalWriter:
        """Go on writing an unfinished one."""
        ...

    def transactions(self) -> tuple[str, ...]:
        """Names of all transactions, oldest first."""
        ...

    def read(self, transaction: str) -> tuple[JournalRecord, ...]:
        """All records of one transaction; a torn last line is dropped. Raises JournalDamagedError, StorageError."""
        ...

    def path_of(self, transaction: str) -> str:
        """Where its file lies, for people."""
        ...

    def set_aside(self, transaction: str) -> str:
        """Take the file of a transaction that cannot be read out of the way, and keep it; returns its new path."""
        ...


class Clock(Protocol):
    """Time. `now_s` is Unix time (deadlines), `monotonic_s` for durations."""

    def now_s(self) -> float:
        """Unix seconds."""
        ...

    def monotonic_s(self) -> float:
        """Monotonic seconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Progress(Protocol):
    """Where long work says how far it is. Never the answer."""

    def phase(self, name: str, detail: str = "") -> None:
        """A new phase began; `detail` names what it is about, most often the path that it reads."""
        ...

    def advance(self, done: int, total: int, unit: str) -> None:
        """`done` of `total` in `unit` (`bytes`, `files`) since the phase began; a store tells the bytes that it reads."""
        ...


class Participants(Protocol):
    """The Gym control protocol, generation A, one method per route that a coordinator uses.

    `server` is the configured server name.

    Raises UnreachableError, TimedOutError, ServerRefusedError (by its documented code), MalformedReplyError.
    """

    async def capabilities(self, server: str) -> Capabilities: ...

    async def model_pause(self, server: str, checkpoint_id: str, deadline_ts: float) -> PauseReply: ...

    async def model_status(
        self, server: str, checkpoint_id: str, deadline_ts: float, *, wait_paused_s: float | None
    ) -> ModelStatus: ...

    async def model_resume(self, server: str, checkpoint_id: str, deadline_ts: float) -> ResumeReply: ...

    async def model_commit(
        self,
        server: str,
        checkpoint_id: str,
        deadline_ts: float,
        checkpoint_dir: str,
        indexes: Iterable[ArtifactReference],
    ) -> ModelCommitReply: ...

    async def model_restore(
        self, server: str, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str
    ) -> ModelRestoreReply: ...

    async def agent_prepare(self, server: str, checkpoint_id: str, deadline_ts: float) -> AgentStatus: ...

    async def agent_status(self, server: str, checkpoint_id: str) -> AgentStatus: ...

    async def agent_commit(
        self, server: str, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str
    ) -> AgentCommitReply: ...

    async def agent_restore(
        self, server: str, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str
    ) -> AgentRestoreReply: ...

    async def agent_discard(
        self, server: str, checkpoint_id: str, deadline_ts: float, rollout_id: str, attempt_index: int
    ) -> DiscardReply: ...

    async def agent_resume(self, server: str, checkpoint_id: str, deadline_ts: float) -> ResumeReply: ...

    async def agent_acknowledge(self, server: str, receipts: tuple[CompletionReceipt, ...]) -> AcknowledgeReply: ...

    async def resources_status(self, server: str, checkpoint_id: str, deadline_ts: float) -> ResourcesStatus: ...

    async def resources_prepare(self, server: str, checkpoint_id: str, deadline_ts: float) -> ResourcesPrepareReply: ...

    async def resources_commit(
        self, server: str, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str
    ) -> ResourcesCommitReply: ...

    async def resources_restore(
        self, server: str, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str
    ) -> ResourcesRestoreReply: ...

    async def resources_retire(
        self, server: str, checkpoint_id: str, deadline_ts: float, rollout_id: str, attempt_index: int
    ) -> ResourcesRetireReply: ...

    async def resources_resume(self, server: str, checkpoint_id: str, deadline_ts: float) -> ResumeReply: ...


class Controller(Protocol):
    """The controller interface, one method per route. Raises as Participants does."""

    async def public_status(self) -> str: ...

    async def status(self) -> ControllerStatus: ...

    async def close_admission(self, checkpoint_id: str, deadline_ts: float) -> CloseReply: ...

    async def acknowledgements(self, *, limit: int = 1000, after: str | None = None) -> AcknowledgementsReply: ...

    async def confirm(self, receipts: tuple[CompletionReceipt, ...]) -> ConfirmReply: ...

    async def settle(self, receipts: tuple[CompletionReceipt, ...]) -> SettleReply: ...

    async def save(
        self, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str, indexes: Iterable[ArtifactReference]
    ) -> SaveReply: ...

    async def restore(
        self, checkpoint_id: str, deadline_ts: float, checkpoint_dir: str, manifest_sha256: str
    ) -> RestoreReply: ...

    async def ledger(self, *, limit: int = 1000, after: str | None = None) -> LedgerReply: ...

    async def clear_staging(self, checkpoint_id: str, deadline_ts: float, keys: tuple[str, ...]) -> ClearReply: ...

    async def open_admission(
        self, checkpoint_id: str, deadline_ts: float, outcome: Outcome, redispatch: tuple[Redispatch, ...] = ()
    ) -> OpenReply: ...


Observer = Callable[[str], Awaitable[None] | None]
"""Called with the name of each numbered step of a transaction as it begins; tests stop a process there."""
