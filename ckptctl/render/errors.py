"""Errors as text and as JSON. The JSON shape is a promise (schemas/error.v1.json); the text is not."""

from __future__ import annotations

import json

from pydantic import Field

from ckptctl.domain.document import Document
from ckptctl.domain.safe_text import inert, inert_json, safe
from ckptctl.errors import CkptctlError, DeadlineError, ServerRefusedError, UnreachableError


class ErrorReport(Document):
    """One failure."""

    schema_version: int = 1
    code: str = Field(description="stable, kebab-case")
    exit_code: int
    message: str
    hint: str | None
    retryable: bool
    cause: str | None = Field(default=None, description="code of the error that caused this one")
    server: str | None = None
    server_code: str | None = Field(default=None, description="the refusal code that a server gave")


def error_report(error: CkptctlError) -> ErrorReport:
    """The machine-readable form of an error."""
    chain = (error, error.cause)
    refusal = next((item for item in chain if isinstance(item, ServerRefusedError)), None)
    silent = next((item for item in chain if isinstance(item, UnreachableError)), None)
    told_by = refusal or silent
    return ErrorReport(
        code=error.code,
        exit_code=int(error.exit_code),
        message=safe(error.message),
        hint=None if error.hint is None else safe(error.hint),
        retryable=error.retryable,
        cause=error.cause_code,
        server=None if told_by is None else safe(told_by.server),
        server_code=None if refusal is None else safe(refusal.server_code),
    )


def error_json(error: CkptctlError) -> str:
    """One JSON object on one line."""
    return inert_json(json.dumps(error_report(error).model_dump(), ensure_ascii=True)) + "\n"


def error_text(error: CkptctlError) -> str:
    """`error[code]: message`, the cause, and what to do next."""
    lines = [f"error[{error.code}]: {safe(error.message)}"]
    because = _because(error)
    if because:
        lines.append(f"  because: {safe(because)}")
    if error.hint:
        lines += ["", f"hint: {safe(error.hint)}"]
    return inert("\n".join(lines) + "\n")


def _because(error: CkptctlError) -> str:
    """What the cause adds to the message; the machine's own words for what the message says already add nothing."""
    text = "" if error.cause is None else str(error.cause)
    if isinstance(error, DeadlineError) and isinstance(error.cause, UnreachableError):
        return ""  # a deadline's message tells how it stood last
    said = (text, getattr(error.cause, "strerror", None) or text)
    return "" if any(words in error.message for words in said) else text
