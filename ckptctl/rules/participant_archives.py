"""Do the archives of agents and policy models hold exactly what their indexes say? Invariants 65 and 70.

Agents put the members of an archive in index order and upstream insists on it; the order of lineage members is free. That an
archive can be read at all is MAN010's business; what the records mean is left to the other participant modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ckptctl.domain.amounts import plural
from ckptctl.domain.evidence import AgentEvidence, ArchiveMember, Evidence, ModelEvidence, Part
from ckptctl.domain.finding import Violation
from ckptctl.domain.ids import lineage_file_name, record_file_name
from ckptctl.domain.participant_files import ArchiveEntry, BoundaryRecord
from ckptctl.domain.rows import AgentIndexRow, LineageIndexRow
from ckptctl.rules._model import CannotRunError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules._views import participant_manifest, require_documented

IndexRow = AgentIndexRow | LineageIndexRow
_AGENT_ARCHIVE = re.compile(r"agent-part-[0-9]{6}\.tar\Z")
_LINEAGE_ARCHIVE = re.compile(r"lineage-part-[0-9]{6}\.tar\Z")
_AFTER_INDEXES = ("MAN005", "PAR002", "PAR006")
_CHANGED_HINT = "Use an older snapshot; an archive was changed, cut off or lost after the commit."
_WRITTEN_HINT = (
    "Use an older snapshot. An archive that has its digest was not changed since: it was written like this, "
    "so report the build of the participant."
)


def check_agent_archives(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 65."""
    unread: list[str] = []
    for agent in evidence.agents:
        rows = value_of(agent.record_index, "PAR006")
        wanted = {(row.archive, row.member): record_file_name(row.rollout_id, row.attempt_index) for row in rows}
        faults = list(_archive_faults(agent, rows, wanted, unread))
        yield from faults
        if faults or unread:
            continue  # what the members say is not worth looking at before that is mended
        yield from _duplicate_pairs(agent, rows)
        for row in rows:
            part = agent.records.get((row.archive, row.member))
            if part is not None and part.value is not None:
                path, place = f"{agent.folder}/{row.archive}", f"`{row.archive}`/`{row.member}`"
                for what, expected, actual in _record_faults(row, part.value):
                    yield Violation(f"{place}: {what}", path, row.member, expected, actual)
            else:
                yield from _unreadable_member(agent, row, part, unread)
    _raise_unread(unread)


def _unreadable_member(
    saved: AgentEvidence | ModelEvidence, row: IndexRow, part: Part[Any] | None, unread: list[str]
) -> Iterator[Violation]:
    place = f"`{row.archive}`/`{row.member}`"
    if part is None or part.state != "damaged":
        unread.append(f"{place}: {part.reason if part is not None else 'not read'}")
        return
    for defect in part.defects:
        location = f"{row.member} {defect.location}".rstrip()
        message = f"{place}: {defect.message}"
        yield Violation(message, f"{saved.folder}/{row.archive}", location, defect.expected, defect.actual)


def _raise_unread(unread: Sequence[str]) -> None:
    if unread:
        raise CannotRunError("; ".join(unread[:5]), because=("MAN009", "MAN010"))


def _duplicate_pairs(agent: AgentEvidence, rows: Iterable[AgentIndexRow]) -> Iterator[Violation]:
    seen: set[tuple[str, int]] = set()
    for line, row in enumerate(rows, start=1):
        pair = (row.rollout_id, row.attempt_index)
        if pair in seen:
            message = f"`{row.rollout_id}` attempt {row.attempt_index} has two boundary records"
            yield Violation(message, agent.record_index.path, f"line {line}", "one", "two")
        seen.add(pair)


def _record_faults(row: AgentIndexRow, record: BoundaryRecord) -> Iterator[tuple[str, str, str]]:
    named, found = (row.rollout_id, row.attempt_index), (record.rollout_id, record.attempt_index)
    if named != found:
        yield (
            f"is the record of `{found[0]}` attempt {found[1]}",
            f"{named[0]} attempt {named[1]}",
            f"{found[0]} attempt {found[1]}",
        )
    if (record.boundary_kind == "pending_model") != (record.pending_model is not None):
        actual = "present" if record.pending_model is not None else "null"
        expected = "an object" if record.pending_model is None else "null"
        yield (
            f"boundary of kind {record.boundary_kind} of `{record.rollout_id}`: pending_model is {actual}",
            expected,
            actual,
        )
    if (record.last_committed_model_call_id is None) != (record.last_committed_model_capture_key is None):
        yield "last committed capture key and call id come not together", "both or neither", "one"


def check_lineage_archives(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 70."""
    unread: list[str] = []
    for model in evidence.models:
        if model.is_foreign:
            continue
        rows = value_of(model.lineage_index, "PAR006")
        wanted = {(row.archive, row.member): lineage_file_name(row.capture_key) for row in rows}
        faults = list(_archive_faults(model, rows, wanted, unread))
        yield from faults
        for row in rows if not faults and not unread else ():
            part = model.lineage.get((row.archive, row.member))
            if part is None or part.value is None:
                yield from _unreadable_member(model, row, part, unread)
            elif len(part.value) != row.rows:
                place, found = f"`{row.archive}`/`{row.member}`", len(part.value)
                message = f"{place}: {plural(found, 'row')}, the index says {row.rows}"
                yield Violation(message, f"{model.folder}/{row.archive}", row.member, str(row.rows), str(found))
    _raise_unread(unread)
    for model in evidence.models:
        require_documented(model)


def _archive_faults(
    saved: AgentEvidence | ModelEvidence,
    rows: Sequence[IndexRow],
    wanted: Mapping[tuple[str, str], str],
    unread: list[str],
) -> Iterator[Violation]:
    """Shards against manifest and index. `wanted` gives each member the name that follows from its row."""
    is_agent = isinstance(saved, AgentEvidence)
    index_path = saved.record_index.path if isinstance(saved, AgentEvidence) else saved.lineage_index.path
    manifest: Part[Any] = saved.manifest
    entries: list[ArchiveEntry] = participant_manifest(manifest).archives
    form = _AGENT_ARCHIVE if is_agent else _LINEAGE_ARCHIVE
    by_archive: dict[str, list[IndexRow]] = {}
    for row in rows:
        by_archive.setdefault(row.archive, []).append(row)
    for number, entry in enumerate(entries):
        if form.match(entry.name) is None or int(entry.name[-10:-4]) != number:
            message = f"archive {number} of `{saved.manifest.path}` is named `{entry.name}`"
            yield Violation(message, saved.manifest.path, "archives", f"number {number:06d}", entry.name)
    listed = {entry.name for entry in entries}
    for name in sorted(by_archive.keys() - listed):
        yield Violation(
            f"the index names archive `{name}`, the manifest does not", index_path, name, "listed", "not listed"
        )
    if len(wanted) != len(rows):
        yield Violation("the index names one archive member twice", index_path, expected="once", actual="twice")
    for entry in entries:
        part = saved.archives.get(entry.name)
        path = f"{saved.folder}/{entry.name}"
        if part is None or part.state == "missing":
            yield Violation(f"`{path}` is missing", path, expected="a file", actual="missing", hint=_CHANGED_HINT)
        elif part.value is None:  # damaged or not readable: MAN010 or MAN009 says so
            unread.append(f"`{path}`: {part.reason}")
        elif part.sha256 is not None and part.sha256 != entry.sha256:
            what = f"`{path}`: digest differs from the manifest"
            yield Violation(what, path, "", entry.sha256, part.sha256, hint=_CHANGED_HINT)
        elif part.size_bytes != entry.bytes:
            yield Violation(
                f"`{path}`: size differs from the manifest", path, "", str(entry.bytes), str(part.size_bytes)
            )
        else:
            named = by_archive.get(entry.name, [])
            yield from _name_faults(path, named, wanted)
            yield from _member_faults(path, entry, part.value, named, is_agent=is_agent)


def _name_faults(path: str, rows: Sequence[IndexRow], wanted: Mapping[tuple[str, str], str]) -> Iterator[Violation]:
    for row in rows:
        name = wanted[row.archive, row.member]
        if row.member != name:
            message = f"`{row.archive}`/`{row.member}`: this member must be named `{name}`"
            yield Violation(message, path, row.member, name, row.member)


def _member_faults(
    path: str,
    entry: ArchiveEntry,
    members: Sequence[ArchiveMember],
    rows: Sequence[IndexRow],
    *,
    is_agent: bool,
) -> Iterator[Violation]:
    if len(members) != entry.members:
        message = f"`{path}`: {plural(len(members), 'member')}, the manifest says {entry.members}"
        yield Violation(message, path, "members", str(entry.members), str(len(members)))
    found, named = [member.name for member in members], [row.member for row in rows]
    if (found if is_agent else sorted(found)) != (named if is_agent else sorted(named)):
        yield _set_fault(path, entry.name, found, named)
        return
    by_name = {member.name: member for member in members}
    for row in rows:
        member = by_name[row.member]
        place = f"`{entry.name}`/`{row.member}`"
        if not member.is_regular:
            yield Violation(f"{place}: is not a regular file", path, row.member, "a regular file", "something else")
        elif member.size_bytes != row.bytes:
            yield Violation(
                f"{place}: size differs from the index", path, row.member, str(row.bytes), str(member.size_bytes)
            )
        elif member.sha256 != row.sha256:
            yield Violation(f"{place}: digest differs from the index", path, row.member, row.sha256, str(member.sha256))


def _set_fault(path: str, archive: str, found: Sequence[str], named: Sequence[str]) -> Violation:
    lost, extra = sorted(set(named) - set(found)), sorted(set(found) - set(named))
    if not lost and not extra:
        message = f"`{archive}`: members are repeated or not in the order of the index"
        return Violation(message, path, "", "index order", "another order")
    texts = [f"{word} `{names[0]}`" for word, names in (("lacks", lost), ("has", extra)) if names]
    message = f"`{archive}`: members are not those of the index: {', '.join(texts)}"
    return Violation(message, path, "", lost[0] if lost else "no such member", extra[0] if extra else "absent")


RULES: tuple[Rule, ...] = (
    Rule(
        id="PAR007",
        invariant=65,
        name="agent-archive-mismatch",
        summary="Agent archives hold exactly the boundary records of their index, in its order, each whole and well formed.",
        why="The agent refuses the whole restore at the first record that is not what its index says.",
        hint=_WRITTEN_HINT,
        severity="error",
        level="standard",
        check=check_agent_archives,
        requires=_AFTER_INDEXES,
        needs=("gym",),
    ),
    Rule(
        id="PAR012",
        invariant=70,
        name="lineage-archive-mismatch",
        summary="Lineage archives hold exactly the custody files of their index, each whole and readable.",
        why="The policy model refuses the restore, or continues a rollout without knowing its earlier calls.",
        hint=_WRITTEN_HINT,
        severity="error",
        level="standard",
        check=check_lineage_archives,
        requires=_AFTER_INDEXES,
        needs=("gym",),
    ),
)
