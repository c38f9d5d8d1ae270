"""`inspect SNAPSHOT --bundle FILE`: a support bundle, made to be attached to a public bug report.

Metadata only: manifests, indexes, configuration, what the ledger, the replay metadata and the data plane's controller state say
of counts and states, the anchor's small files, journals, the validation report, the listing with sizes, versions. Every document
passes `formats.redaction`, which lets through what is known to be harmless and replaces the rest by type and size; nothing of
boundary records, sessions, lineage rows and tensors goes in at all. The file is written under another name and then renamed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ckptctl import __version__
from ckptctl.domain.evidence import Evidence, Part, TreeEntry
from ckptctl.domain.finding import DefectError, Finding, Level, TargetReport
from ckptctl.domain.ledger import Ledger
from ckptctl.domain.limits import Limits
from ckptctl.domain.memory_room import DOCUMENT_FACTOR
from ckptctl.domain.pack import BUNDLE_MARK, PACK_SUFFIXES
from ckptctl.domain.replay import ReplayMetadata
from ckptctl.domain.safe_text import safe
from ckptctl.errors import CkptctlError, StorageError, UsageError
from ckptctl.formats.canonical_json import load_json
from ckptctl.formats.config_file import decode_yaml
from ckptctl.formats.pack import PackMember, pack_bytes
from ckptctl.formats.redaction import Redactor
from ckptctl.ports import SnapshotStore
from ckptctl.workflows.load_anchor import CONFIG_FILE, MANIFEST_FILE, TRAINING_INFO_FILE, AnchorLoader
from ckptctl.workflows.load_evidence import Known, load_target
from ckptctl.workflows.targets import Target, find_targets
from ckptctl.workflows.validate import ValidateRequest, judge
from ckptctl.workflows.world import World

MOST_LINES = 1000
MOST_JOURNALS = 50
MOST_GROUPS = 200
MOST_NAMES = 20_000
MOST_FILES = 200
_HEAD_BYTES = 4 << 20
"""How much of an index is read; its lines up to there stand for the rest."""
_MODE = 0o644
_DOCUMENTS = frozenset({MANIFEST_FILE, "metadata.json", "storage_unit_info.json", TRAINING_INFO_FILE})
_NOT_READ = {"problem": "it cannot be decoded"}


@dataclass(frozen=True, slots=True)
class BundleRequest:
    """What is asked for. `folder` is where the bundle is to lie, `about` which versions run here; no name of the host."""

    snapshot: str
    folder: str
    name: str
    about: Mapping[str, str]
    level: Level = "standard"


@dataclass(frozen=True, slots=True)
class _Source:
    """One directory that documents are taken from."""

    world: World
    root: str
    redactor: Redactor

    def document(self, path: str, entry: TreeEntry, decode: Callable[[bytes], Any]) -> dict[str, Any]:
        """One redacted document, or that there is none."""
        try:
            self.world.room.demand(entry.size_bytes * DOCUMENT_FACTOR)
            data = self.world.store.read_bytes(f"{self.root}/{path}", self.world.limits.json_document_bytes)
            content = self.redactor.value(decode(data))
        except (DefectError, CkptctlError, FileNotFoundError, RecursionError):
            content = _NOT_READ  # the reason may quote what is in the file
        return {"path": self.redactor.path(path), "size_bytes": entry.size_bytes, "content": content}

    def lines(self, path: str, entry: TreeEntry) -> dict[str, Any]:
        """The first lines of an index, redacted."""
        try:
            with self.world.store.open_source(f"{self.root}/{path}") as source:
                head = source.read_at(0, _HEAD_BYTES)
        except (CkptctlError, FileNotFoundError):
            return {"path": self.redactor.path(path), "size_bytes": entry.size_bytes, "content": _NOT_READ}
        lines = head.split(b"\n")[:MOST_LINES]
        content = [self._line(line) for line in lines if line]
        return {
            "path": self.redactor.path(path),
            "size_bytes": entry.size_bytes,
            "is_cut": len(head) < entry.size_bytes or head.count(b"\n") > MOST_LINES,
            "content": content,
        }

    def _line(self, line: bytes) -> Any:
        try:
            return self.redactor.value(load_json(line, self.world.limits))
        except DefectError:
            return f"<line of {len(line)} bytes, no JSON>"


def write_bundle(world: World, place: SnapshotStore, request: BundleRequest) -> int:
    """Write the bundle of one snapshot into `place`. Returns its size in bytes.

    Raises:
        UsageError: it is no snapshot, the name is no bundle's, or is taken.
        StorageError: it cannot be written.
    """
    path = f"{request.folder}/{request.name}"
    if not request.name.endswith(PACK_SUFFIXES):
        raise UsageError(f"`--bundle {safe(request.name)}`: a bundle is a `.tar.zst`", hint="name it `NAME.tar.zst`")
    if place.kind_of(path) is not None:
        raise UsageError(f"`{safe(path)}` exists: a bundle replaces nothing", hint="give another name, or move it away")
    targets = find_targets(world.store, request.snapshot)
    if len(targets) != 1 or targets[0].kind != "snapshot":
        raise UsageError(
            f"`--bundle` is about one snapshot; `{safe(request.snapshot)}` is something else",
            hint="for example `ckptctl inspect CHECKPOINT_DIR/step_1/rollout_snapshots/snapshot_000001 --bundle FILE`",
        )
    temporary = f"{request.folder}/.ckptctl-{world.nonce()[:16]}.tmp"
    try:
        place.write_stream(temporary, pack_bytes(_members(world, targets[0], request)))
    except DefectError as error:  # pragma: no cover - names and sizes are ours
        raise StorageError(operation="write", path=path, detail=str(error)) from error
    place.rename(temporary, path)
    with place.open_source(path) as source:
        return source.size_bytes


def _members(world: World, target: Target, request: BundleRequest) -> Iterator[PackMember]:
    redactor = Redactor()
    loader = AnchorLoader(world.store, world.limits, world.room)
    loaded = load_target(world.store, target, request.level, Known(), loader, world.limits)
    report = judge(loaded, ValidateRequest(paths=(target.path,), level=request.level))
    evidence = loaded.evidence
    documents: dict[str, Any] = {
        "anchor.json": list(_anchor(world, target, redactor)),
        BUNDLE_MARK: {
            "what": "support bundle of one snapshot: metadata only; texts, ids, digests and values are replaced",
            "schema_version": 1,
            "tool_version": __version__,
            "created_at": int(world.clock.now_s()),
            "level": request.level,
            **request.about,
        },
        "data-plane.json": _data_plane(evidence, redactor),
        "documents.json": list(islice(_documents(world, target, evidence, redactor), MOST_FILES)),
        "indexes.json": list(islice(_indexes(world, target, evidence, redactor), MOST_FILES)),
        "journals.json": list(_journals(world, redactor)),
        "ledger.json": _ledger(evidence.ledger, redactor),
        "replay.json": _replay(evidence.replay, redactor),
        "report.json": _report(report, redactor),
        "tree.json": {
            "names": len(evidence.tree),
            "first": [_entry(entry, redactor) for entry in evidence.tree[:MOST_NAMES]],
        },
    }
    for name in sorted(documents):
        data = (json.dumps(documents[name], indent=1, ensure_ascii=True) + "\n").encode()
        yield PackMember(name, _MODE, len(data), [data])


def _entry(entry: TreeEntry, redactor: Redactor) -> dict[str, Any]:
    return {
        "path": redactor.path(entry.path),
        "kind": entry.kind,
        "size_bytes": entry.size_bytes,
        "mode": f"{entry.mode:04o}",
    }


def _documents(world: World, target: Target, evidence: Evidence, redactor: Redactor) -> Iterator[dict[str, Any]]:
    source = _Source(world, target.path, redactor)
    for entry in evidence.tree:
        name = entry.path.rpartition("/")[2]
        if entry.kind == "file" and name in _DOCUMENTS:
            yield source.document(entry.path, entry, _json(world.limits))
        elif entry.kind == "file" and name == CONFIG_FILE:
            yield source.document(entry.path, entry, _yaml(world.limits))


def _indexes(world: World, target: Target, evidence: Evidence, redactor: Redactor) -> Iterator[dict[str, Any]]:
    source = _Source(world, target.path, redactor)
    for entry in evidence.tree:
        if entry.kind == "file" and entry.path.endswith(".jsonl"):
            yield source.lines(entry.path, entry)


def _anchor(world: World, target: Target, redactor: Redactor) -> Iterator[dict[str, Any]]:
    if target.anchor is None:
        return
    source = _Source(world, target.anchor, redactor)
    for entry in world.store.list_tree(target.anchor, max_depth=1):
        if entry.kind == "file" and entry.path in {MANIFEST_FILE, TRAINING_INFO_FILE}:
            yield source.document(entry.path, entry, _json(world.limits))
        elif entry.kind == "file" and entry.path == CONFIG_FILE:
            yield source.document(entry.path, entry, _yaml(world.limits))
        else:
            yield _entry(entry, redactor)


def _journals(world: World, redactor: Redactor) -> Iterator[dict[str, Any]]:
    try:
        names = world.journal.transactions()[-MOST_JOURNALS:]
    except CkptctlError:
        yield {"transaction": None, "content": _NOT_READ}
        return
    for name in names:
        try:
            records = [redactor.value(dict(found.record)) for found in world.journal.read(name)[:MOST_LINES]]
        except CkptctlError:
            yield {"transaction": redactor.text(name), "content": _NOT_READ}
            continue
        yield {"transaction": redactor.text(name), "content": records}


def _ledger(part: Part[Ledger], redactor: Redactor) -> dict[str, Any]:
    """Counts by state, and the first groups as they are, redacted."""
    ledger = part.value
    groups = [] if ledger is None else ledger.groups
    owed = [] if ledger is None else ledger.pending_completed_execution_acknowledgements
    attempts = Counter(sibling.current.status for group in groups for sibling in group.siblings)
    return {
        **_state(part),
        "groups": dict(sorted(Counter(f"{group.status}, {group.recovery_granularity}" for group in groups).items())),
        "current_attempts": dict(sorted(attempts.items())),
        "acknowledgements": len(owed),
        "first": [redactor.value(group.model_dump(mode="json")) for group in groups[:MOST_GROUPS]],
    }


def _replay(part: Part[ReplayMetadata], redactor: Redactor) -> dict[str, Any]:
    groups = [] if part.value is None else part.value.groups
    first = [redactor.value(group.model_dump(mode="json")) for group in groups[:MOST_GROUPS]]
    return {**_state(part), "groups": len(groups), "first": first}


def _state(part: Part[Any]) -> dict[str, Any]:
    """What became of a file; why is not said, because the reason may quote it."""
    return {"state": part.state, "size_bytes": part.size_bytes}


def _data_plane(evidence: Evidence, redactor: Redactor) -> dict[str, Any]:
    """Counts of the controller state and of the storage units; no key, no tag and no value."""
    controller = evidence.controller_state.value
    partitions = {} if controller is None else controller.partitions
    return {
        "controller_state": evidence.controller_state.state,
        "partitions": [
            {
                "partition": redactor.text(name),
                "keys": len(partition.keys),
                "columns": len(partition.columns),
                "rows": partition.production_rows,
                "produced": partition.production.count(1),
            }
            for name, partition in sorted(partitions.items())
        ],
        "units": [
            {
                "path": redactor.path(part.path),
                **_state(part),
                "columns": None if part.value is None else len(part.value.rows),
                "rows": None if part.value is None else len(part.value.active_keys),
            }
            for part in evidence.units.values()
        ],
    }


def _report(report: TargetReport, redactor: Redactor) -> dict[str, Any]:
    """Rules, places and counts. Messages quote what they found, so they are texts; names and hints are the catalogue's own."""
    coverage = report.coverage
    found = report.schema_found
    return {
        "kind": report.kind,
        "verdict": report.verdict,
        "level": report.level,
        "schema_found": found if found is not None and 0 <= found <= MOST_LINES else redactor.value(found),
        "findings": [_finding(finding, redactor) for finding in (*report.findings, *report.notes)],
        "outcomes": {outcome.rule: outcome.outcome for outcome in report.outcomes},
        "files": f"{coverage.files_checked} of {coverage.files_total}",
        "bytes": f"{coverage.bytes_checked} of {coverage.bytes_total}",
        "unchecked": [
            {"path": redactor.path(item.path), "size_bytes": item.bytes} for item in coverage.unchecked[:MOST_LINES]
        ],
    }


def _finding(finding: Finding, redactor: Redactor) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "name": finding.name,
        "severity": finding.severity,
        "incompatible": finding.incompatible,
        "count": finding.count,
        "artifact": redactor.path(finding.artifact),
        "location": redactor.place(finding.location),
        "message": redactor.text(finding.message),
        "expected": redactor.text(finding.expected),
        "actual": redactor.text(finding.actual),
    }


def _json(limits: Limits) -> Callable[[bytes], Any]:
    return lambda data: load_json(data, limits)


def _yaml(limits: Limits) -> Callable[[bytes], Any]:
    return lambda data: decode_yaml(data, limits)
