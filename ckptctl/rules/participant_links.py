"""Do continuations, boundary records and model ledgers speak of the same rollouts? Invariants 66 to 69, 71, 74 and 75.

One continuation per rollout is the hinge: its capture key and call id lead into the lineage, its attempt into the ledger. The
capture key may name an older attempt than the continuation's own, after a restore without a new call; it is never rebuilt here.
Storage references are `participant_storage`, the recovery ledger is `participant_ledger`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ckptctl.domain.amounts import plural
from ckptctl.domain.canonical import roots_digest
from ckptctl.domain.evidence import AgentEvidence, Evidence, ModelEvidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.ids import capture_key_belongs
from ckptctl.domain.lineage import boundary_rows
from ckptctl.domain.participant_files import BoundaryRecord
from ckptctl.domain.rows import ContinuationRow
from ckptctl.rules._model import Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules._views import (
    Pair,
    boundary_records,
    continuation_roots,
    continuation_rows,
    first,
    has_model_call,
    lineage_members,
    participant_manifest,
    require_documented,
)


def check_records(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 66."""
    records: dict[str, dict[Pair, BoundaryRecord]] = {agent.folder: {} for agent in evidence.agents}
    for agent, _, record in boundary_records(evidence):
        if has_model_call(record):
            records[agent.folder][record.rollout_id, record.attempt_index] = record
    for agent in evidence.agents:
        unmet = dict(records[agent.folder])
        rows = value_of(agent.continuations, "PAR006")
        for line, row in enumerate(rows, start=1):
            unmet.pop((row.rollout_id, row.attempt_index), None)
            record_found = records[agent.folder].get((row.rollout_id, row.attempt_index))
            yield from _pair_faults(agent, line, row, record_found)
        for rollout, attempt in sorted(unmet):
            message = f"boundary record of `{rollout}` attempt {attempt} has a model call but no continuation"
            yield Violation(message, agent.continuations.path, f"{rollout} attempt {attempt}", "a row", "none")


def _pair_faults(
    agent: AgentEvidence, line: int, row: ContinuationRow, record: BoundaryRecord | None
) -> Iterator[Violation]:
    path, where = agent.continuations.path, f"line {line}"
    what = f"continuation of `{row.rollout_id}` attempt {row.attempt_index}"
    if record is None:
        yield Violation(f"{what} has no boundary record", path, where, "a record with a model call", "none")
        return
    wanted = f"{record.last_committed_model_capture_key}/{record.last_committed_model_call_id}"
    found = f"{row.capture_key}/{row.last_committed_model_call_id}"
    if wanted != found:
        yield Violation(f"{what} names call `{found}`, its boundary record `{wanted}`", path, where, wanted, found)
    revisions = row.resource_state_revisions
    if revisions is not None and revisions != record.resource_state_revisions:
        expected, actual = _revisions(record.resource_state_revisions), _revisions(revisions)
        message = f"{what} has resource revisions {actual}, its boundary record {expected}"
        yield Violation(message, path, where, expected, actual)


def _revisions(revisions: dict[str, int]) -> str:
    return ", ".join(f"{name}={revisions[name]}" for name in sorted(revisions)) or "none"


def check_callless(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 67."""
    found: dict[str, list[str]] = {}
    for agent, archive, record in boundary_records(evidence):
        if not has_model_call(record):
            found.setdefault(f"{agent.folder}/{archive}", []).append(record.rollout_id)
    for path, rollouts in found.items():
        noun = plural(len(rollouts), "boundary has", "boundaries have")
        message = f"{noun} no model call: NeMo-RL can neither see nor discard them: {first(rollouts)}"
        yield Violation(message, path, "", "a committed model call", "none")


def check_capture_keys(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 68."""
    for agent, line, row in continuation_rows(evidence):
        if not capture_key_belongs(row.capture_key, row.rollout_id, row.attempt_index):
            yield Violation(
                f"capture key `{row.capture_key}` does not belong to `{row.rollout_id}` attempt {row.attempt_index}",
                agent.continuations.path,
                f"line {line}",
                expected=f"{row.rollout_id} or {row.rollout_id}-a<k>, k at most {row.attempt_index}",
                actual=row.capture_key,
            )


def check_unique(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 69."""
    by_key: Counter[str] = Counter()
    by_rollout: Counter[str] = Counter()
    for agent, line, row in continuation_rows(evidence):
        by_key[row.capture_key] += 1
        by_rollout[row.rollout_id] += 1
        repeated = row.capture_key if by_key[row.capture_key] > 1 else None
        if repeated is None and by_rollout[row.rollout_id] > 1:
            repeated = row.rollout_id
        if repeated is not None:
            count = max(by_key[row.capture_key], by_rollout[row.rollout_id])
            message = f"`{repeated}` has {count} continuations"
            yield Violation(message, agent.continuations.path, f"line {line}", "one", str(count))


def check_boundary_calls(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 71."""
    roots = continuation_roots(evidence)
    digests: dict[str, tuple[str, str]] = {}
    for model in evidence.models:
        if not model.is_foreign:
            yield from _members_against_roots(model, roots)
            yield from _other_copies(model, digests)
    for model in evidence.models:
        require_documented(model)


def _members_against_roots(model: ModelEvidence, roots: dict[str, ContinuationRow]) -> Iterator[Violation]:
    name, seen = model.entry.participant.participant_name, set()
    for capture_key, archive, rows in lineage_members(model):
        root = roots.get(capture_key)
        path = f"{model.folder}/{archive}"
        if capture_key in seen:
            message = f"lineage of `{capture_key}` is listed twice by `{name}`"
            yield Violation(message, model.lineage_index.path, capture_key, "one", "two")
        elif root is None:
            message = f"lineage of `{capture_key}` in `{name}` belongs to no continuation"
            yield Violation(message, path, capture_key, "a continuation", "none")
        else:
            count, call = len(boundary_rows(root, rows)), root.last_committed_model_call_id
            if count != 1:
                word = "missing" if count == 0 else "ambiguous"
                message = f"boundary call `{call}` of `{capture_key}` is {word} in the lineage of `{name}`"
                yield Violation(message, path, f"{capture_key} {call}", "one row", plural(count, "row"))
        seen.add(capture_key)
    for capture_key in sorted(roots.keys() - seen):
        call = roots[capture_key].last_committed_model_call_id
        message = f"boundary call `{call}` of `{capture_key}` is missing: `{name}` has no lineage of it"
        yield Violation(message, model.lineage_index.path, capture_key, "a lineage member", "none")


def _other_copies(model: ModelEvidence, digests: dict[str, tuple[str, str]]) -> Iterator[Violation]:
    name = model.entry.participant.participant_name
    for row in value_of(model.lineage_index, "PAR006"):
        other, digest = digests.setdefault(row.capture_key, (name, row.sha256))
        if digest != row.sha256:
            message = f"lineage of `{row.capture_key}` differs between `{other}` and `{name}`"
            yield Violation(message, f"{model.folder}/{row.archive}", row.capture_key, digest, row.sha256)


def check_roots_digest(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 74."""
    rows = [row for _, _, row in continuation_rows(evidence)]
    digest = roots_digest(rows) if evidence.models else ""
    for model in evidence.models:
        if model.is_foreign:
            continue
        manifest, path = participant_manifest(model.manifest), model.manifest.path
        name = model.entry.participant.participant_name
        what = f"model `{name}` was committed against another set of continuations than the agents' files"
        if manifest.continuation_roots != len(rows):
            expected, actual = str(len(rows)), str(manifest.continuation_roots)
            message = f"{what}: it counts {actual}, they hold {expected}"
            yield Violation(message, path, "continuation_roots", expected, actual)
        elif manifest.continuation_roots_sha256 != digest:
            yield Violation(what, path, "continuation_roots_sha256", digest, manifest.continuation_roots_sha256)
    for model in evidence.models:
        require_documented(model)


def check_tombstones(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 75. Pairs are compared: a capture key may name an older attempt, which a server may well list."""
    aborted: dict[Pair, str] = {}
    for model in evidence.models:
        if not model.is_foreign:
            for pair in participant_manifest(model.manifest).tombstones:
                aborted.setdefault((pair.rollout_id, pair.attempt_index), model.entry.participant.participant_name)
    for agent, line, row in continuation_rows(evidence):
        owner = aborted.get((row.rollout_id, row.attempt_index))
        if owner is not None:
            message = f"`{row.rollout_id}` attempt {row.attempt_index} was aborted at `{owner}` but has a continuation"
            yield Violation(message, agent.continuations.path, f"line {line}", "no continuation", "one")
    for model in evidence.models:
        require_documented(model)


_AFTER_INDEXES = ("MAN005", "PAR002", "PAR006")
RULES: tuple[Rule, ...] = (
    Rule(
        id="PAR008",
        invariant=66,
        name="continuation-record-mismatch",
        summary="Continuation rows are exactly the boundary records that have a committed model call.",
        why="NeMo-RL plans from the rows, the agent restores from the records: where they differ a rollout is lost.",
        hint="Use an older snapshot; the agent refuses to restore this one.",
        severity="error",
        level="standard",
        check=check_records,
        requires=("MAN005", "PAR002", "PAR006", "PAR007"),
        needs=("gym",),
    ),
    Rule(
        id="PAR009",
        invariant=67,
        name="boundary-without-model-call",
        summary="Boundary records without a model call are counted.",
        why="They have no continuation row, so NeMo-RL can neither see nor discard what the agent restores.",
        hint="Nothing to do; the rollouts restart from the task or continue from that boundary.",
        severity="warning",
        level="standard",
        check=check_callless,
        requires=("MAN005", "PAR002", "PAR006", "PAR007"),
        needs=("gym",),
    ),
    Rule(
        id="PAR010",
        invariant=68,
        name="foreign-capture-key",
        summary="The capture key of each continuation belongs to its rollout and is not of a later attempt.",
        why="The rollout would continue on another one's model calls and tokens.",
        hint="Use an older snapshot; the agent wrote a key that is not the rollout's.",
        severity="error",
        level="standard",
        check=check_capture_keys,
        requires=_AFTER_INDEXES,
        needs=("gym",),
    ),
    Rule(
        id="PAR011",
        invariant=69,
        name="duplicate-continuation",
        summary="Over all agents each capture key and each rollout has one continuation.",
        why="Two continuations of a rollout would both be taken up: tools run twice. Equal doubles are refused too.",
        hint="Use an older snapshot; NeMo-RL and the policy model refuse this one.",
        severity="error",
        level="standard",
        check=check_unique,
        requires=_AFTER_INDEXES,
        needs=("gym",),
    ),
    Rule(
        id="PAR013",
        invariant=71,
        name="ambiguous-boundary-call",
        summary="Each policy model has one lineage file per continuation, with exactly one good row of its boundary call.",
        why="The next call of the continued rollout is linked to that row; without it nobody knows its parent.",
        hint="Use an older snapshot; upstream looks at this at commit only.",
        severity="error",
        level="standard",
        check=check_boundary_calls,
        requires=("MAN005", "PAR002", "PAR006", "PAR011", "PAR012"),
        needs=("gym",),
    ),
    Rule(
        id="PAR016",
        invariant=74,
        name="foreign-continuation-roots",
        summary="Each model ledger was committed against exactly the continuations that the agents' files hold.",
        why="Upstream does not compare them at restore: lineage of another cut would be taken for this one's.",
        hint="Use an older snapshot; agents and model were committed at different moments.",
        severity="error",
        level="standard",
        check=check_roots_digest,
        requires=_AFTER_INDEXES,
        needs=("gym",),
    ),
    Rule(
        id="PAR017",
        invariant=75,
        name="tombstoned-continuation",
        summary="No attempt that a policy model has aborted has a continuation.",
        why="Calls of an aborted attempt are refused, so the continued rollout could never go on.",
        hint="Use an older snapshot.",
        severity="error",
        level="standard",
        check=check_tombstones,
        requires=_AFTER_INDEXES,
        needs=("gym",),
    ),
)
