"""What validation says: findings, rule outcomes, coverage, verdicts.

Pydantic, because the JSON report's schema is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ckptctl.domain.document import Count, Digest, Document
from ckptctl.domain.safe_text import safe

REPORT_SCHEMA_VERSION = 1

Severity = Literal["error", "warning", "information"]
Level = Literal["quick", "standard", "full"]
VerdictName = Literal["valid", "incomplete", "incompatible", "invalid"]
LEVEL_ORDER: tuple[Level, ...] = ("quick", "standard", "full")
VERDICT_ORDER: tuple[VerdictName, ...] = ("valid", "incomplete", "incompatible", "invalid")
"""From best to worst; several targets give the worst."""


TEXT_CHARS = 2000
"""Longest text of a finding; a hostile file must not fill the report."""


def printable(text: str) -> str:
    """Text as a report carries it: clipped, no control characters. Brackets stay: whoever prints parses no markup."""
    return safe(text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - 3] + "...")


SafeText = Annotated[str, AfterValidator(printable)]


@dataclass(frozen=True, slots=True)
class Defect:
    """Why bytes are not what they should be; a decoder's answer. `location` is a line, member, key or offset inside the file.

    What it quotes from the file is made safe to print here, once for all decoders.
    """

    message: str
    location: str = ""
    expected: str = ""
    actual: str = ""

    def __post_init__(self) -> None:
        for name in ("message", "location", "expected", "actual"):
            text = getattr(self, name)
            if not (text.isascii() and text.isprintable()):
                object.__setattr__(self, name, safe(text))


class DefectError(Exception):
    """Raised by decoders: the bytes are not what they should be. The loader turns it into a Part.

    It never reaches a user as an error.

    `is_unsupported`: nothing is damaged, but this reader knows the variant only well enough to refuse it (whoever needs the
    file *could not run*).
    """

    def __init__(self, *defects: Defect, is_unsupported: bool = False) -> None:
        super().__init__(defects[0].message if defects else "")
        self.defects = defects
        self.is_unsupported = is_unsupported


@dataclass(frozen=True, slots=True)
class Violation:
    """One breach of one rule, before it becomes a Finding.

    `incompatible`: sound, but of another version, anchor or fingerprint.
    """

    message: str
    artifact: str = ""
    location: str = ""
    expected: str = ""
    actual: str = ""
    incompatible: bool = False
    warning: bool = False
    """The rule is an error, but this breach of it is only a warning (or the reverse is never the case)."""
    hint: str = ""
    """What to do about this breach, where it is not what the rule says."""


class Finding(Document):
    """A breach as reported. Texts are safe to print: control characters are escaped when it is made."""

    rule: str
    name: str
    severity: Severity
    incompatible: bool = False
    artifact: SafeText = Field(description="path relative to the snapshot")
    location: SafeText
    message: SafeText
    expected: SafeText
    actual: SafeText
    hint: str
    count: Count = Field(
        default=1, description="how many breaches of this rule stand behind a last, summarising finding"
    )
    kind: Literal["breach", "more", "gap"] = Field(
        default="breach", description="`more`: stands for breaches that are not listed; `gap`: could not be checked"
    )


class RuleOutcome(Document):
    """What became of one rule."""

    rule: str
    name: str
    outcome: Literal["passed", "failed", "skipped", "could_not_run"]
    reason: SafeText = ""
    """Why skipped or could not run."""


class Unchecked(Document):
    """A file, or part of one, that nothing looked at."""

    path: SafeText
    bytes: Count
    reason: SafeText
    is_whole_file: bool = Field(default=False, description="no byte of the file was looked at")


class Coverage(Document):
    """How much of the target was looked at."""

    files_total: Count
    files_checked: Count
    bytes_total: Count
    bytes_checked: Count
    unchecked: tuple[Unchecked, ...] = ()


class TargetReport(Document):
    """One target: a snapshot, an anchor's own files, a data plane alone, or a pack as a container."""

    path: SafeText
    kind: Literal["snapshot", "anchor", "checkpoint_dir", "data_plane", "pack"]
    verdict: VerdictName = Field(description="of the part that the report's `share` names, where it names one")
    level: Level
    schema_found: int | None = None
    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = Field(default=(), description="findings of severity information")
    outcomes: tuple[RuleOutcome, ...]
    coverage: Coverage


class ShareInfo(Document):
    """Which part of the byte work this report is about, when it was divided."""

    kind: Literal["shard", "subset"]
    index: Count = Field(description="from 1")
    count: Count
    subject: Digest = Field(description="SHA-256 of what was asked and of all names and sizes; equal in all shards")


class Report(Document):
    """The answer of `ckptctl validate`."""

    schema_version: Literal[1] = 1
    tool_version: str
    verdict: VerdictName = Field(
        description="worst of the targets' verdicts; where `share` is given it is about that part of the data only"
    )
    targets: tuple[TargetReport, ...]
    share: ShareInfo | None = Field(
        default=None,
        description="given for a shard or a subset: every verdict here is about this part of the data; the verdict on the whole "
        "that a shard belongs to is that of `validate --merge` over the reports of all shards",
    )


def worst(verdicts: tuple[VerdictName, ...] | list[VerdictName]) -> VerdictName:
    """The worst of several verdicts; `valid` for none."""
    return max(verdicts, key=VERDICT_ORDER.index, default="valid")
