"""Validation in several parts: what makes reports comparable, and one report from the reports of all shards.

How the byte work is divided is `domain.share`'s business, how reports become one is decided in `rules.merge`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ckptctl.domain.document import reason_of
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import DefectError, Report, ShareInfo
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.domain.safe_text import safe
from ckptctl.errors import NotCheckedError, UsageError
from ckptctl.formats.canonical_json import load_json
from ckptctl.ports import SnapshotReader
from ckptctl.rules.merge import ShardsDoNotFitError, check_shards, merge_shards
from ckptctl.workflows.targets import input_file

if TYPE_CHECKING:
    from ckptctl.workflows.validate import ValidateRequest

_MERGE_HINT = (
    "give the JSON reports of all shards of one run: `ckptctl validate --merge report-1.json report-2.json ...`"
)
_MISSING_HINT = "run the missing shards again with the same options, then merge; without them there is no verdict"


class Subject:
    """What a validation is about: a digest of what was asked and of all names and sizes found, equal in all its shards."""

    def __init__(self, request: ValidateRequest) -> None:
        self._share = request.share
        self._digest = hashlib.sha256()
        if self._share is None:
            return
        asked = [
            *(request.level, request.select, request.ignore, request.under_final_name),
            *(repr(request.capabilities), request.capabilities_path, repr(request.run), self._share.kind),
        ]
        self._add(asked)

    def add(self, evidence: Evidence) -> None:
        """One target as it was listed."""
        if self._share is not None:
            self._add([evidence.path, evidence.kind, evidence.root_kind])
            for entry in evidence.tree:
                self._add([entry.path, entry.kind, entry.size_bytes])

    def share_info(self) -> ShareInfo | None:
        """What a report says of the part that it is about; None for the whole."""
        share = self._share
        if share is None:
            return None
        return ShareInfo(kind=share.kind, index=share.index, count=share.count, subject=self._digest.hexdigest())

    def _add(self, values: Sequence[object]) -> None:
        self._digest.update(json.dumps(values, default=list).encode("utf-8", "surrogatepass"))


def merge_reports(reader: SnapshotReader, paths: tuple[str, ...], limits: Limits = DEFAULT_LIMITS) -> Report:
    """The report of the whole from the files with the reports of its shards.

    Raises:
        UsageError: a file is no such report, is there twice, or belongs to another validation.
        NotCheckedError: a shard did not report.
        StorageError: a file cannot be read.
    """
    if not paths:
        raise UsageError("nothing to merge", hint=_MERGE_HINT)
    named = [(safe(path), _report_of(reader, path, limits)) for path in paths]
    try:
        check_shards(named)
    except ShardsDoNotFitError as error:
        if error.is_incomplete:
            raise NotCheckedError(str(error), hint=_MISSING_HINT) from None
        raise UsageError(str(error), hint=_MERGE_HINT) from None
    return merge_shards(sorted((report for _, report in named), key=_place))


def _place(report: Report) -> int:
    return report.share.index if report.share is not None else 0


def _report_of(reader: SnapshotReader, path: str, limits: Limits) -> Report:
    file = input_file(reader, path, "--merge", "reports", _MERGE_HINT)
    try:
        raw = reader.read_bytes(file, limits.json_document_bytes)
        load_json(raw, limits)
        return Report.model_validate_json(raw)
    except FileNotFoundError:
        raise UsageError(f"`{safe(path)}` does not exist: that shard did not report", hint=_MISSING_HINT) from None
    except (DefectError, ValidationError) as error:
        first = (
            reason_of(error.errors(include_url=False)[0]["msg"]) if isinstance(error, ValidationError) else str(error)
        )
        raise UsageError(
            f"`{safe(path)}` is no report of `ckptctl validate`: {safe(first)}", hint=_MERGE_HINT
        ) from None
