"""Can every container be read to its end? Invariant 97, for each file that holds others or a pickle, and for a pack.

The readers have already tried; this rule only says what they found, once per file. What a readable container holds is judged by
the rules of that file, and a link or a missing file by MAN009 and MAN002.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ckptctl.domain.evidence import Evidence, Part
from ckptctl.domain.finding import Violation
from ckptctl.rules._model import CannotRunError
from ckptctl.rules.layout import KIND_WORDS, REQUIRED_FILES, entries_by_path


def containers_of(evidence: Evidence) -> Iterator[Part[Any]]:
    """Every `.pt`, `.pkl` and archive of the target."""
    yield from (evidence.dataloader, evidence.replay, evidence.ledger, evidence.reserve, evidence.controller_state)
    yield from evidence.units.values()
    for agent in evidence.agents:
        yield from agent.archives.values()
    for model in evidence.models:
        yield from model.archives.values()


def check_containers(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 97; an unusual `config.yaml` is a warning."""
    entries = entries_by_path(evidence)
    unknown: list[str] = []
    for part in containers_of(evidence):
        entry = entries.get(part.path)
        if (
            entry is None
            or entry.kind == "symlink"
            or part.opens
            or (entry.kind != "file" and part.path in REQUIRED_FILES)
        ):
            continue
        if entry.kind != "file":
            yield Violation(
                f"`{part.path}` cannot be read: it is {KIND_WORDS[entry.kind]}", part.path, expected="a file"
            )
        elif part.state == "damaged":
            yield _unreadable(part)
        elif part.state != "decoded":
            unknown.append(f"`{part.path}`: {part.reason}")
    if evidence.config.state == "damaged":
        yield _unreadable(evidence.config, warning=True)
    if unknown:
        raise CannotRunError("; ".join(unknown[:5]) + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""))


def check_pack(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 97, for the container that a whole snapshot was packed into."""
    part = evidence.pack
    if part is None:
        return
    if part.state == "unsupported":
        what = f"`{part.path}` {part.reason}: unpack it (`tar --zstd -xf`) and validate the directory"
        raise CannotRunError(what)
    for defect in part.defects:
        where = f" ({defect.location})" if defect.location else ""
        message = f"`{part.path}` is damaged: {defect.message}{where}"
        yield Violation(message, "", defect.location, defect.expected, defect.actual)  # the target itself is at fault


def _unreadable(part: Part[Any], *, warning: bool = False) -> Violation:
    if part.size_bytes == 0:
        return Violation(
            f"`{part.path}` cannot be read: it is empty",
            part.path,
            expected="content",
            actual="0 bytes",
            warning=warning,
        )
    defect = part.defects[0]
    where = f" ({defect.location})" if defect.location else ""
    message = f"`{part.path}` cannot be read: {defect.message}{where}"
    return Violation(message, part.path, defect.location, defect.expected, defect.actual, warning=warning)
