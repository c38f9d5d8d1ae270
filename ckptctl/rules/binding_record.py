"""The binding record in `data_plane/metadata.json`: can it be read, and is it one that a restore takes? Invariant 23.

What it says is compared by `binding`. The record is NeMo-RL's; TransferQueue keeps it for the caller and does not look into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from ckptctl.domain.binding import BINDING_SCHEMA_VERSION, Binding
from ckptctl.domain.document import reason_of
from ckptctl.domain.evidence import Evidence, Part
from ckptctl.domain.finding import Violation
from ckptctl.domain.safe_text import shown
from ckptctl.rules._model import CannotRunError
from ckptctl.rules._parts import value_of

RECORD = "BND001"
"""The rule of this module; others name it when the record cannot be used."""
VERSION_FIELD = "data_plane_checkpoint_schema_version"


def binding_of(evidence: Evidence) -> Binding:
    """The binding record.

    Raises:
        CannotRunError: it is absent or damaged.
    """
    record = value_of(evidence.metadata, RECORD).user_metadata
    try:
        return Binding.model_validate(record)
    except ValidationError as error:
        raise CannotRunError("the binding record cannot be used", because=(RECORD,)) from error


def check_record(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 23. For a data plane alone no binding is asked for."""
    part = evidence.metadata
    if part.state == "damaged":
        for defect in part.defects:
            yield Violation(
                f"`{part.path}`: {defect.message}", part.path, defect.location, defect.expected, defect.actual
            )
        return
    if part.state == "missing" and evidence.kind != "snapshot":
        yield Violation(
            f"`{part.path}` is missing: the save of the data plane was not finished", part.path, expected="a file"
        )
        return
    metadata = value_of(part)
    if not metadata.storage_saved:
        yield _wrong(part, "storage_saved", False, True)
    if evidence.kind == "data_plane":
        return
    record = metadata.user_metadata
    if record is None:
        yield _wrong(part, "user_metadata", None, "an object")
        return
    version = record.get(VERSION_FIELD)
    if version != BINDING_SCHEMA_VERSION or isinstance(version, bool):
        is_number = isinstance(version, int) and not isinstance(version, bool)
        yield Violation(
            f"`{part.path}`: unsupported data-plane binding version: `{VERSION_FIELD}` is {shown(version)}, "
            f"expected {BINDING_SCHEMA_VERSION}",
            part.path,
            f"user_metadata.{VERSION_FIELD}",
            str(BINDING_SCHEMA_VERSION),
            shown(version),
            incompatible=is_number,
        )
        return
    yield from _field_violations(part, record)
    allowed = ("authoritative",) if evidence.kind == "snapshot" else ("authoritative", "shadow")
    if isinstance(record.get("mode"), str) and record["mode"] not in allowed:
        yield _wrong(part, "user_metadata.mode", record["mode"], "authoritative")


def _field_violations(part: Part[Any], record: dict[str, Any]) -> Iterator[Violation]:
    try:
        Binding.model_validate(record)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False):
            field = ".".join(str(step) for step in detail["loc"])
            if detail["type"] == "missing":
                yield Violation(
                    f"`{part.path}`: `user_metadata.{field}` is missing",
                    part.path,
                    f"user_metadata.{field}",
                    "present",
                    "absent",
                )
            else:
                yield _wrong(part, f"user_metadata.{field}", detail["input"], reason_of(detail["msg"]))


def _wrong(part: Part[Any], field: str, found: object, expected: object) -> Violation:
    wanted = expected if isinstance(expected, str) else shown(expected)
    message = f"`{part.path}`: `{field}` is {shown(found)}, expected {wanted}"
    return Violation(message, part.path, field, wanted, shown(found))
