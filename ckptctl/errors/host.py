"""What the machine does to ckptctl: files that cannot be written, signals."""

from __future__ import annotations

from ckptctl.errors.base import CkptctlError
from ckptctl.errors.exit_codes import ExitCode


class StorageError(CkptctlError):
    """A file operation failed: full disk, permission, I/O error."""

    code = "storage"
    exit_code = ExitCode.STORAGE
    retryable = True

    def __init__(
        self, *, operation: str, path: str, detail: str, hint: str | None = None, cause: BaseException | None = None
    ) -> None:
        self.operation, self.path, self.detail = operation, path, detail
        super().__init__(
            f"cannot {operation} `{path}`: {detail}",
            hint=hint or "mend the file system (space, permissions, mount), then run the same command again",
            cause=cause,
        )


class PublicationUnseenError(StorageError):
    """A disk that fails does not show whether the snapshot has its final name."""

    code = "publication-unseen"

    def __init__(self, *, path: str, detail: str, cause: BaseException | None = None) -> None:
        super().__init__(
            operation="see what became of",
            path=path,
            detail=f"it may be published, or not: {detail}",
            hint="mend the file system, then run `ckptctl publish`: it looks again and finishes either",
            cause=cause,
        )


class StoppedError(CkptctlError):
    """SIGINT, SIGTERM or SIGHUP ended the command in an orderly way."""

    code = "stopped"
    exit_code = ExitCode.TERMINATED
    retryable = True


class InterruptedStoppedError(StoppedError):
    """SIGINT."""

    code = "interrupted"
    exit_code = ExitCode.INTERRUPTED
