"""`validate`: find the targets of each PATH, load them one after another, judge them, and put the report together.

Snapshots are judged before their anchor, because two rules of the anchor ask whether the snapshot that would be
selected is valid.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ckptctl import __version__
from ckptctl.domain.binding import BootstrapManifest
from ckptctl.domain.document import reason_of
from ckptctl.domain.evidence import Evidence, LiveFacts, RunFacts
from ckptctl.domain.finding import LEVEL_ORDER, DefectError, Level, Report, TargetReport, worst
from ckptctl.domain.fingerprint import bootstrap_fingerprint, bootstrap_identity, extra_excluded_paths
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.domain.memory_room import UNBOUNDED, MemoryRoom
from ckptctl.domain.participant import DiscoveredParticipant
from ckptctl.domain.safe_text import safe
from ckptctl.domain.schemas import WRITTEN_SCHEMA
from ckptctl.domain.share import Share
from ckptctl.errors import ExitCode, UsageError
from ckptctl.formats.canonical_json import load_json
from ckptctl.ports import Progress, SnapshotReader
from ckptctl.rules.run import leaves_rules, run_rules, too_deep_words, unknown_words
from ckptctl.workflows.collection import seldom_collected
from ckptctl.workflows.load_anchor import AnchorLoader
from ckptctl.workflows.load_evidence import Known, Loaded, load_target
from ckptctl.workflows.load_pack import load_pack
from ckptctl.workflows.shards import Subject
from ckptctl.workflows.targets import absolute, find_targets, input_file

VERDICT_CODES = {
    "valid": ExitCode.DONE,
    "incomplete": ExitCode.NOT_CHECKED,
    "incompatible": ExitCode.INCOMPATIBLE,
    "invalid": ExitCode.INVALID,
}
OWN_SECTION = "ckptctl"


@dataclass(frozen=True, slots=True)
class ValidateRequest:
    """What to judge and how.

    `under_final_name`: a staged `tmp_snapshot_N` is judged as the `snapshot_N` that it will be. `share`: only this part of the
    byte work is done, and the report is about that part.
    """

    paths: tuple[str, ...]
    level: Level = "standard"
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    strict: bool = False
    capabilities: tuple[DiscoveredParticipant, ...] | None = None
    capabilities_path: str | None = None
    run: RunFacts = field(default_factory=RunFacts)
    live: LiveFacts = field(default_factory=LiveFacts)
    under_final_name: bool = False
    limits: Limits = DEFAULT_LIMITS
    room: MemoryRoom = UNBOUNDED
    """No more is read than there is room for in memory."""
    share: Share | None = None
    jobs: int = 0
    """How many threads hash staged rows; 0: one for each core that the process is pinned to. The report does not depend on it."""


@seldom_collected()
def validate(reader: SnapshotReader, request: ValidateRequest, progress: Progress | None = None) -> Report:
    """Judge everything that the request names.

    Raises:
        NothingThereError: a path is not there, or nothing to judge is in it.
        UsageError: unknown rules, a path that is something else, or an unusable capabilities file.
    """
    _demand_rules(request)
    known = Known(
        capabilities=_capabilities(reader, request),
        run=request.run,
        live=request.live,
        under_final_name=request.under_final_name,
        share=request.share,
        jobs=request.jobs or len(os.sched_getaffinity(0)),
    )
    targets = tuple(dict.fromkeys(target for path in request.paths for target in find_targets(reader, absolute(path))))
    anchors = AnchorLoader(reader, request.limits, request.room)
    reports: list[TargetReport] = []
    subject = Subject(request)
    for index, target in enumerate(targets):
        if progress is not None:
            which = f" {index + 1} of {len(targets)}" if len(targets) > 1 else ""
            progress.phase(f"validate{which}", target.path)
        if target.kind == "pack":
            loaded = Loaded(*load_pack(reader, target, request.level))
        else:
            loaded = load_target(reader, target, request.level, known, anchors, request.limits)
        subject.add(loaded.evidence)
        reports.append(judge(loaded, request))
        del loaded  # before the next one is loaded
        anchors.verdicts[target.path] = None if reports[-1].verdict == "incomplete" else reports[-1].verdict == "valid"
    return Report(
        tool_version=__version__,
        verdict=worst([report.verdict for report in reports]),
        targets=tuple(reports),
        share=subject.share_info(),
    )


run_validation = validate


def judge(loaded: Loaded, request: ValidateRequest) -> TargetReport:
    """Judge one loaded target. A pack is judged whatever was selected: without it nothing in it means anything."""
    evidence = loaded.evidence
    select, ignore = ((), ()) if evidence.kind == "pack" else (request.select, request.ignore)
    judgement = run_rules(evidence, level=request.level, select=select, ignore=ignore, limits=request.limits)
    found = evidence.manifest.schema_found
    return TargetReport(
        path=evidence.path,
        kind=evidence.kind,
        verdict=judgement.verdict,
        level=request.level,
        schema_found=found if type(found) is int else None,
        findings=judgement.findings,
        notes=judgement.notes,
        outcomes=judgement.outcomes,
        coverage=loaded.coverage,
    )


def load_evidence(
    reader: SnapshotReader, path: str, level: Level = "standard", *, known: Known | None = None
) -> Evidence:
    """The evidence of one snapshot, anchor or data plane, for those who ask more than a verdict. Raises as `validate`."""
    target = find_targets(reader, absolute(path))[-1]
    return load_target(reader, target, level, known or Known(), AnchorLoader(reader, DEFAULT_LIMITS)).evidence


def exit_code(report: Report, *, strict: bool = False) -> ExitCode:
    """The status that a report ends with."""
    code = VERDICT_CODES[report.verdict]
    if code is ExitCode.DONE and strict and any(target.findings for target in report.targets):
        return ExitCode.WARNINGS
    return code


def run_facts(config: Mapping[str, Any]) -> RunFacts:
    """What a run's own configuration says that snapshots are compared with. Our own section is not part of the run."""
    theirs = {key: value for key, value in config.items() if key != OWN_SECTION}
    participants = _setting(theirs, "rollout_checkpointing", "gym", "participant_checkpointing_enabled")
    units = _setting(theirs, "data_plane", "num_storage_units")
    partition = _setting(theirs, "token_capture", "staging_partition")
    return RunFacts(
        config=theirs,
        bootstrap_manifest=_bootstrap_manifest(theirs),
        participant_checkpointing=participants is True,
        storage_units=units if type(units) is int else None,
        staging_partition=partition if isinstance(partition, str) and partition else None,
    )


def _bootstrap_manifest(config: Mapping[str, Any]) -> BootstrapManifest | None:
    try:
        identity = bootstrap_identity(config, extra_excluded_paths(config))
        fingerprint = bootstrap_fingerprint(identity)
    except ValueError:
        return None
    return BootstrapManifest(
        schema_version=WRITTEN_SCHEMA,
        base_train_step=0,
        trainer_version=0,
        bootstrap_fingerprint=fingerprint,
        bootstrap_identity=identity,
    )


def _setting(config: Mapping[str, Any], *path: str) -> Any:
    value: Any = config
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _demand_rules(request: ValidateRequest) -> None:
    unknown = unknown_words((*request.select, *request.ignore))
    if unknown:
        names = ", ".join(f"`{safe(word)}`" for word in unknown)
        raise UsageError(f"no such rule: {names}", hint="`ckptctl validate --list-rules` lists them all")
    if not leaves_rules(request.select, request.ignore):
        raise UsageError(
            "`--select` and `--ignore` together leave no rule to judge by", hint="a verdict needs one rule at least"
        )
    too_deep = too_deep_words(request.select, request.level)
    if too_deep:
        names = ", ".join(f"`{safe(word)}`" for word in too_deep)
        deepest = max(too_deep.values(), key=LEVEL_ORDER.index)
        raise UsageError(
            f"at level {request.level} nothing of {names} is looked at, so a verdict would say nothing about it",
            hint=f"add `--level {deepest}`",
        )


def _capabilities(reader: SnapshotReader, request: ValidateRequest) -> tuple[DiscoveredParticipant, ...] | None:
    path = request.capabilities_path
    if path is None:
        return request.capabilities
    hint = "give the list that discovery returned, one object with `server_name` and `capabilities` per server"
    file = input_file(reader, path, "--capabilities", "a file", hint)
    try:
        raw = load_json(reader.read_bytes(file, request.limits.json_document_bytes), request.limits)
        found = TypeAdapter(list[DiscoveredParticipant]).validate_python(raw)
    except FileNotFoundError:
        raise UsageError(f"capabilities file `{safe(path)}` does not exist", hint=hint) from None
    except DefectError as error:
        raise UsageError(f"capabilities file `{safe(path)}`: {error}", hint=hint) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise UsageError(
            f"capabilities file `{safe(path)}`: `{safe(place)}`: {safe(reason_of(first['msg']))}", hint=hint
        ) from None
    return tuple(found)
