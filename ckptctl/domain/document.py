"""The base of every document that crosses a file or a wire: frozen, strict.

Unknown fields are refused unless a class says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from ckptctl.domain.ids import MAX_CHECKPOINT_ID_CHARS, is_checkpoint_id, is_digest, is_file_name, is_id, path_problem


class Document(BaseModel):
    """Unknown fields are refused; booleans are not ints, `1.0` is not an int; values do not change."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def reason_of(message: str) -> str:
    """What pydantic says of a value, without the words that it puts before reasons of ours."""
    return message.removeprefix("Value error, ").removeprefix("Assertion failed, ")


class LenientDocument(BaseModel):
    """As Document, but unknown fields are kept aside (`model_extra`), for replies that servers may extend."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow", allow_inf_nan=False)


def _demand_id(text: str) -> str:
    if not is_id(text):
        raise ValueError("must match [A-Za-z0-9][A-Za-z0-9._-]*")
    return text


def _demand_checkpoint_id(text: str) -> str:
    if not is_checkpoint_id(text):
        raise ValueError("must be 1 to 128 characters [A-Za-z0-9][A-Za-z0-9._-]*")
    return text


def _demand_digest(text: str) -> str:
    if not is_digest(text):
        raise ValueError("must be 64 lower-case hex digits")
    return text


def _demand_relative_path(text: str) -> str:
    problem = path_problem(text)
    if problem:
        raise ValueError(problem)
    return text


def _demand_file_name(text: str) -> str:
    if not is_file_name(text):
        raise ValueError("must be a plain file name")
    return text


def _demand_plain_int(value: Any) -> Any:
    if type(value) is not int:
        raise ValueError("must be an integer")
    return value


PLAIN_INT = BeforeValidator(_demand_plain_int)
"""Beside a Literal of ints: pydantic's own comparison takes `true` and `1.0` for 1, even in strict mode."""
One = Annotated[Literal[1], PLAIN_INT]
_ID_FORM = "^[A-Za-z0-9][A-Za-z0-9._-]*$"
Id = Annotated[str, AfterValidator(_demand_id), WithJsonSchema({"type": "string", "pattern": _ID_FORM})]
CheckpointId = Annotated[
    str,
    AfterValidator(_demand_checkpoint_id),
    WithJsonSchema({"type": "string", "pattern": _ID_FORM, "maxLength": MAX_CHECKPOINT_ID_CHARS}),
]
Digest = Annotated[str, AfterValidator(_demand_digest), WithJsonSchema({"type": "string", "pattern": "^[0-9a-f]{64}$"})]
Count = Annotated[int, Field(ge=0)]
NonEmpty = Annotated[str, Field(min_length=1)]
RelativePath = Annotated[str, AfterValidator(_demand_relative_path)]
"""A path inside the snapshot, or another folder that is known: relative to it."""
FileName = Annotated[str, AfterValidator(_demand_file_name)]
"""One name inside a known folder."""
