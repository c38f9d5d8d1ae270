"""How a transaction can fail to begin, or end otherwise than published or restored."""

from __future__ import annotations

from ckptctl.errors.base import CkptctlError
from ckptctl.errors.exit_codes import ExitCode


class RefusedError(CkptctlError):
    """ckptctl will not begin: nothing was changed."""

    code = "refused"
    exit_code = ExitCode.REFUSED


class DiscoveryRefusedError(RefusedError):
    """The discovered topology cannot take part in coordinated snapshots."""

    code = "discovery-refused"


class AnchorRefusedError(RefusedError):
    """There is no durable anchor to bind a snapshot to."""

    code = "anchor-refused"


class NotFreshError(RefusedError):
    """A restore was asked for, but a server has already worked."""

    code = "not-fresh"


class BusyError(CkptctlError):
    """Somebody else is at work here."""

    code = "busy"
    exit_code = ExitCode.BUSY
    retryable = True


class LockHeldError(BusyError):
    """Another ckptctl holds the lock of the checkpoint directory."""

    code = "lock-held"

    def __init__(self, *, checkpoint_dir: str, owner: str, lease: str, may_be_dead: bool) -> None:
        self.owner = owner
        hint = "wait for it to end; " + (
            "its lease has ended: if" if may_be_dead else "once its lease has ended, and if"
        )
        hint += " nobody is at work here any more (look on that host, or ask `squeue`), repeat with `--break-lock`"
        super().__init__(f"`{checkpoint_dir}` is locked by another ckptctl: {owner}; {lease}", hint=hint)


class RunTakenOverError(BusyError):
    """The checkpoint directory is another run's by now; it does not become this one's again."""

    code = "run-taken-over"
    retryable = False


class CheckpointConflictError(BusyError):
    """A server is held under another checkpoint id."""

    code = "checkpoint-conflict"


class AttemptAbortedError(CkptctlError):
    """The attempt failed, everything was released, the previous snapshot is authoritative."""

    code = "attempt-aborted"
    exit_code = ExitCode.ABORTED
    retryable = True


class ReleasePendingError(CkptctlError):
    """The snapshot is durable, but not every server has been released."""

    code = "published-release-pending"
    exit_code = ExitCode.RELEASE_PENDING
    retryable = True


class AdmissionClosedError(CkptctlError):
    """The attempt failed and admission may still be closed."""

    code = "admission-may-be-closed"
    exit_code = ExitCode.ADMISSION_CLOSED
    retryable = True


class JournalDamagedError(AdmissionClosedError):
    """The journal of a transaction that is not known to have ended cannot be read: what it still owes is unknown."""

    code = "journal-damaged"
    retryable = False

    def __init__(self, *, path: str, transaction: str, problem: str) -> None:
        self.transaction = transaction
        super().__init__(
            f"the journal `{path}` is damaged: {problem}; nothing says that its transaction has ended, "
            "so admission may still be closed",
            hint=f"bring the file back as it was, or run `ckptctl publish --set-aside {transaction} --reason TEXT`: "
            "it keeps the file under another name and says who is still held, and what frees them",
        )
