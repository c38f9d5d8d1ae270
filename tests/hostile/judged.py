"""One hostile case on disk, judged as the command judges it."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

from ckptctl.adapters.local_store import LocalStore
from ckptctl.adapters.memory import resident_bytes
from ckptctl.domain.evidence import Part
from ckptctl.domain.finding import Finding, Report, TargetReport, printable
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.memory_room import MemoryRoom
from ckptctl.domain.safe_text import safe
from ckptctl.workflows.validate import ValidateRequest, load_evidence, validate
from tests.builders import a_run_files, a_world, write_tree
from tests.hostile.cases import SNAPSHOT, Case


def written(root: Path, case: Case) -> Path:
    """A sound run with the one change; gives the checkpoint directory."""
    run = write_tree(root, a_run_files(a_world()))
    case.change(run / SNAPSHOT / case.path)
    return run


def judge(run: Path, case: Case) -> Report:
    """The report on the whole checkpoint directory."""
    room = MemoryRoom(resident_bytes, DEFAULT_LIMITS.memory_bytes)
    return validate(LocalStore(), ValidateRequest(paths=(str(run),), level=case.level, room=room))


def snapshot_of(report: Report) -> TargetReport:
    """The report's snapshot."""
    return next(target for target in report.targets if target.kind == "snapshot")


def told(case: Case, target: TargetReport, run: Path) -> list[Finding]:
    """The findings that say what the case must have said.

    Of a file whose digest another file holds it is said that the digest differs; then the loader must know the rest.
    """
    named = [finding for finding in (*target.findings, *target.notes) if _names(finding, case.artifact or case.path)]
    found = [
        finding
        for finding in named
        if case.said in finding.message + finding.actual + finding.location
        and case.place in finding.message + finding.location
    ]
    if not found and case.has_digest:
        known = read_as(run, case)
        if case.said in known and case.place in known:
            return [finding for finding in named if "digest differs" in finding.message]
    return found


def _names(finding: Finding, path: str) -> bool:
    """Whether a finding is about a file, or about something in it."""
    shown = printable(path)
    return shown in finding.message.split("`") or finding.artifact.startswith(shown)


def read_as(run: Path, case: Case) -> str:
    """What the loader says of the file, whatever the rules make of it."""
    evidence = load_evidence(LocalStore(), str(run / SNAPSHOT), case.level)
    parts: list[Part[Any]] = [evidence.config, evidence.ledger, evidence.controller_state]
    for agent in evidence.agents:
        parts += [agent.manifest, agent.continuations, *agent.archives.values(), *agent.records.values()]
    for model in evidence.models:
        parts += [model.manifest, *model.archives.values(), *model.lineage.values()]
    for server in evidence.resources:
        parts += [server.manifest, *server.sessions.values()]
    return safe(
        "\n".join(f"{part.path} {part.state} {part.defects} {part.value!r}" for part in parts if part.path == case.path)
    )


def unsafe_characters(report: Report) -> set[str]:
    """Characters of a report that no terminal should get."""
    text = report.model_dump_json()
    return {one for one in text if unicodedata.category(one) in {"Cc", "Cs", "Zl", "Zp"} or one in "\u202e\u2066\u200f"}
