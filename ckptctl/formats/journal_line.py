"""One line of a journal, decoded: the only way in, so that nobody who reads records asks again of what type a value is.

A line is a record when every field that `schemas/journal.v1.json` names and a reader touches has the type, and lies within the
bounds, that stand there. Fields that it does not name are left alone: a newer ckptctl may have written them. What a begin
says of its transaction as a whole is checked where it is needed (`planning.recovery`), against the class of its kind.

Not pydantic, which the schema is made with: journals are read in bulk, and at the start of commands that only look.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta

from ckptctl.domain.journal_bounds import LAST_S

_Text = Annotated[str, Meta(min_length=1)]
_Path = Annotated[str, Meta(pattern=r"\A[^\x00-\x1f\x7f]+\Z")]
_At = Annotated[float, Meta(ge=0, le=LAST_S)]
_Seconds = Annotated[float, Meta(ge=0, le=LAST_S)]
_Count = Annotated[int, Meta(ge=0)]
_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class _Line(msgspec.Struct, tag_field="event"):
    at: _At


class _Begin(_Line, tag="begin"):
    kind: str
    transaction: str
    checkpoint_id: str | None = None
    anchor: _Path | None = None
    staged: _Path | None = None
    final: _Path | None = None
    snapshot: _Path | None = None


class _Intent(_Line, tag="intent"):
    step: _Text
    number: str | None = None
    targets: list[str] | None = None
    path: str | None = None


class _Measured(_Line):
    seconds: _Seconds | None = None
    elapsed_s: _Seconds | None = None
    requests: _Count | None = None
    sent_bytes: _Count | None = None
    received_bytes: _Count | None = None
    waiting_s: _Seconds | None = None


class _Outcome(_Measured, tag="outcome", kw_only=True):
    step: _Text
    number: str | None = None
    path: str | None = None
    checkpoint_id: str | None = None
    checksums_blake3: _Digest | None = None
    manifest_sha256: _Digest | None = None
    mutation_version: _Count | None = None
    retired: list[dict[str, Any]] | None = None


class _Failure(_Measured, tag="failure", kw_only=True):
    step: _Text
    code: _Text
    message: str


class _Recovery(_Line, tag="recovery"):
    pass


class _Finish(_Line, tag="finish"):
    outcome: _Text
    reason: str | None = None
    unclaimed_sessions: list[dict[str, Any]] | None = None


_LINE = _Begin | _Intent | _Outcome | _Failure | _Recovery | _Finish


def decode_line(line: bytes) -> Mapping[str, Any] | None:
    """The record of one line, without its end; None when it is none of ours."""
    try:
        return as_record(json.loads(line, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


def as_record(value: Any) -> Mapping[str, Any] | None:
    """The record that a decoded JSON value is; None when it is none of ours."""
    try:
        msgspec.convert(value, _LINE)
    except (ValueError, msgspec.ValidationError, OverflowError, RecursionError):
        return None
    found: Mapping[str, Any] = value
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"`{name}` is no JSON")
