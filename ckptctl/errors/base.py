"""The base of the tree: what every error a user can act on has."""

from __future__ import annotations

from typing import ClassVar

from ckptctl.errors.exit_codes import ExitCode


class CkptctlError(Exception):
    """Base of all errors a user can act on."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[ExitCode] = ExitCode.BUG
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str | None, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.cause = cause
        self.cause_code: str | None = cause.code if isinstance(cause, CkptctlError) else None
