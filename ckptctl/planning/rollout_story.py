"""The whole story of one rollout, from the evidence of one snapshot.

Pure. What each part says is put side by side by attempt; nothing is judged here. What a restore does with the rollout is asked of
the restore planner (`planning.restored_facts`), and only of a snapshot that a restore takes: others have no plan.
Rows of the data plane are `planning.rollout_rows`' business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ckptctl.domain.evidence import AgentEvidence, Evidence
from ckptctl.domain.finding import Finding, VerdictName
from ckptctl.domain.ids import capture_key
from ckptctl.domain.ledger import Group, Sibling
from ckptctl.domain.participant_files import BoundaryRecord
from ckptctl.domain.redispatch import AttemptPlan
from ckptctl.domain.rollout_story import (
    StoryAttempt,
    StoryBoundary,
    StoryCall,
    StoryFate,
    StoryFinished,
    StoryGroup,
    StoryRow,
    StorySession,
)
from ckptctl.domain.rows import LineageRow
from ckptctl.planning.restored_facts import plan_from, siblings_of_ledger
from ckptctl.planning.rollout_rows import RowBook, attempt_of

NOBODY = "no entry of the ledger names it, so nothing of it is dispatched"
OWNED = "the canonical row is restored as it is"
REUSED = "the attempt is sealed"


class Story(NamedTuple):
    """What a snapshot says of one rollout."""

    group: StoryGroup | None
    finished: StoryFinished | None
    attempts: tuple[StoryAttempt, ...]
    fate: StoryFate


def known_rollouts(evidence: Evidence) -> frozenset[str]:
    """Every rollout that ledger, replay metadata or a participant names."""
    ledger, replay = evidence.ledger.value, evidence.replay.value
    names = set() if ledger is None else set(ledger.siblings())
    if ledger is not None:
        names |= {owed.receipt.rollout_id for owed in ledger.pending_completed_execution_acknowledgements}
    names |= {name for group in ([] if replay is None else replay.groups) for name in group.meta.sample_ids}
    names |= {record.rollout_id for agent in evidence.agents for record in agent.boundaries()}
    names |= {part.value.rollout_id for server in evidence.resources for part in server.sessions.values() if part.value}
    for model in evidence.models:
        manifest = model.manifest.value
        pairs = () if manifest is None else (*manifest.tombstones, *manifest.source_attempts)
        names |= {pair.rollout_id for pair in pairs}
    return frozenset(names)


def tell_story(evidence: Evidence, rollout: str, verdict: VerdictName) -> Story | None:
    """Everything about `rollout`; None where the snapshot does not name it."""
    known = known_rollouts(evidence)
    if rollout not in known:
        return None
    book = RowBook(evidence, rollout, known - {rollout})
    pair = None if evidence.ledger.value is None else evidence.ledger.value.siblings().get(rollout)
    finished = _finished(evidence, rollout, book)
    attempts = tuple(_attempts(evidence, rollout, pair, book))
    return Story(
        group=None if pair is None else _group(*pair),
        finished=finished,
        attempts=attempts,
        fate=_fate(evidence, rollout, verdict, finished, attempts),
    )


def names_it(finding: Finding, rollout: str) -> bool:
    """Whether a finding is about the rollout: it has the name, that of an attempt, or that of a file of one."""
    name = rf"(?<![A-Za-z0-9._-]){re.escape(rollout)}(?:[-.]a\d+)?(?![A-Za-z0-9_-])"
    texts = (finding.artifact, finding.location, finding.message, finding.expected, finding.actual)
    return any(re.search(name, text) for text in texts)


# --- attempts ---


def _attempts(
    evidence: Evidence, rollout: str, pair: tuple[Group, Sibling] | None, book: RowBook
) -> Iterator[StoryAttempt]:
    ledger = evidence.ledger.value
    tries = {} if pair is None else {item.attempt_index: item for item in pair[1].attempts}
    records = {
        record.attempt_index: (agent, record)
        for agent in evidence.agents
        for record in agent.boundaries()
        if record.rollout_id == rollout
    }
    owed = {
        item.receipt.attempt_index: item.agent_name
        for item in ([] if ledger is None else ledger.pending_completed_execution_acknowledgements)
        if item.receipt.rollout_id == rollout
    }
    over = set(_tombstones(evidence, rollout))
    lineage = _lineage(evidence, rollout, book)
    sessions = _sessions(evidence, rollout, {index: record for index, (_, record) in records.items()})
    for index in sorted({*tries, *records, *owed, *over, *lineage, *sessions, *book.attempts()}):
        found, saved = tries.get(index), records.get(index)
        calls = lineage.get(index, [])
        yield StoryAttempt(
            attempt_index=index,
            capture_key=capture_key(rollout, index),
            is_current=pair is not None and pair[1].current.attempt_index == index,
            status=None if found is None else found.status,
            reward=None if found is None or found.reward is None else float(found.reward),
            mask_sample=None if found is None else found.mask_sample,
            result=None
            if found is None or found.completion_receipt is None
            else found.completion_receipt.result_identity,
            owed_to=owed.get(index),
            is_tombstone=index in over,
            boundary=None if saved is None else _boundary(*saved),
            sessions=tuple(sessions.get(index, ())),
            calls=tuple(_call(model, row, None if saved is None else saved[1]) for model, row in calls),
            rows=book.rows_of(index),
        )


def _boundary(agent: AgentEvidence, record: BoundaryRecord) -> StoryBoundary:
    row = next(
        (
            row
            for row in agent.continuations.value or ()
            if (row.rollout_id, row.attempt_index) == (record.rollout_id, record.attempt_index)
        ),
        None,
    )
    revisions = record.resource_state_revisions if row is None else row.resource_state_revisions
    pending = record.pending_model
    return StoryBoundary(
        agent=agent.entry.participant.participant_name,
        kind=record.boundary_kind,
        boundary_index=record.boundary_index,
        turn_index=record.turn_index,
        last_call=record.last_committed_model_call_id,
        last_capture_key=record.last_committed_model_capture_key,
        pending_action=None if pending is None else pending.pending_action_cursor,
        revisions=None if revisions is None else dict(revisions),
        created_at=float(record.created_at),
    )


def _tombstones(evidence: Evidence, rollout: str) -> Iterator[int]:
    for model in evidence.models:
        for pair in () if model.manifest.value is None else model.manifest.value.tombstones:
            if pair.rollout_id == rollout:
                yield pair.attempt_index


def _lineage(evidence: Evidence, rollout: str, book: RowBook) -> dict[int, list[tuple[str, LineageRow]]]:
    """The calls of every attempt, in the order of the custody files."""
    found: dict[int, list[tuple[str, LineageRow]]] = {}
    for model in evidence.models:
        name = model.entry.participant.participant_name
        for place in model.lineage_index.value or ():
            index = attempt_of(place.capture_key, rollout, book.others)
            part = model.lineage.get((place.archive, place.member))
            if index is not None and part is not None and part.value is not None:
                found.setdefault(index, []).extend((name, row) for row in part.value)
    return found


def _call(model: str, row: LineageRow, boundary: BoundaryRecord | None) -> StoryCall:
    is_last = boundary is not None and boundary.last_committed_model_call_id == row.model_call_id
    is_sound = row.failure_reason is None and row.event is None
    problem = None if is_sound else ": ".join(text for text in (row.event or "failed", row.failure_reason) if text)
    return StoryCall(
        model=model,
        model_call_id=row.model_call_id,
        parent_call_id=row.parent_call_id,
        staging_key=row.staging_key,
        weight_version=row.weight_version,
        new_tokens=row.delta_len,
        all_tokens=row.cum_len,
        problem=problem,
        is_boundary=is_last and is_sound,
    )


def _sessions(evidence: Evidence, rollout: str, records: dict[int, BoundaryRecord]) -> dict[int, list[StorySession]]:
    found: dict[int, list[StorySession]] = {}
    for server in evidence.resources:
        name = server.entry.participant.participant_name
        for part in server.sessions.values():
            session = part.value
            if session is None or session.rollout_id != rollout:
                continue
            record = records.get(session.attempt_index)
            found.setdefault(session.attempt_index, []).append(
                StorySession(
                    server_name=name,
                    revision=session.state_revision,
                    wanted_revision=None if record is None else record.resource_state_revisions.get(name),
                    recorded_answers=len(session.mutation_receipts),
                    created_at=float(session.created_at),
                )
            )
    return found


# --- group and finished group ---


def _group(group: Group, sibling: Sibling) -> StoryGroup:
    return StoryGroup(
        group_id=group.group_id,
        status=group.status,
        phase=group.phase,
        granularity=group.recovery_granularity,
        prompt_id=group.prompt_id,
        sample_id=group.prompt_ref.sample_id,
        agent=group.resolved_agent_name,
        generation_index=sibling.generation_index,
        expected_generations=group.expected_generations,
        start_weight_version=group.start_weight_version,
        target_step=group.target_step,
        siblings={
            group.rollout_of(one): f"attempt {one.current.attempt_index} {one.current.status}" for one in group.siblings
        },
    )


def _finished(evidence: Evidence, rollout: str, book: RowBook) -> StoryFinished | None:
    replay = evidence.replay.value
    for group in [] if replay is None else replay.groups:
        if rollout not in group.meta.sample_ids:
            continue
        row: StoryRow = book.row(group.meta.partition_id, rollout, (f"finished group {group.group_id}",))
        plan = book.route_plans.get(rollout)
        return StoryFinished(
            group_id=group.group_id,
            start_weight=group.start_weight,
            end_weight=group.end_weight,
            target_step=group.target_step,
            route_plan_rows=None if plan is None else len(plan),
            row=row,
        )
    return None


# --- what a restore does ---


def _fate(
    evidence: Evidence,
    rollout: str,
    verdict: VerdictName,
    finished: StoryFinished | None,
    attempts: Iterable[StoryAttempt],
) -> StoryFate:
    if verdict != "valid":
        return _decided("refused", f"the snapshot is {verdict}: a restore does not take it")
    plan = plan_from(evidence, siblings_of_ledger(evidence))
    decided = _decision(plan, rollout, finished)
    own = {row.key for attempt in attempts for row in attempt.rows}
    unclaimed = [item.server_name for item in plan.unclaimed_sessions if item.rollout_id == rollout]
    return decided.model_copy(
        update={
            "drops_boundary": any(item.rollout_id == rollout for item in plan.discards),
            "cleared_rows": tuple(key for key in plan.clear_keys if key in own),
            "kept_rows": tuple(key for key in plan.kept_shared_keys if key in own),
            "unclaimed_sessions": tuple(unclaimed),
        }
    )


def _decision(plan: AttemptPlan, rollout: str, finished: StoryFinished | None) -> StoryFate:
    for item in plan.redispatch:
        if item.rollout_id == rollout:
            return _decided(item.mode, item.reason, item.source_attempt, item.replacement_attempt)
    for sealed in plan.reused:
        if sealed.rollout_id == rollout:
            return _decided("reuse", REUSED, sealed.attempt_index)
    return _decided("finished", OWNED) if finished is not None else _decided("nothing", NOBODY)


def _decided(decision: str, reason: str, source: int | None = None, replacement: int | None = None) -> StoryFate:
    return StoryFate.model_validate(
        {
            "decision": decision,
            "source_attempt": source,
            "replacement_attempt": replacement,
            "reason": reason,
            "drops_boundary": False,
            "cleared_rows": (),
            "kept_rows": (),
            "unclaimed_sessions": (),
        }
    )
