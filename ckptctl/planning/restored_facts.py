"""What a snapshot's evidence says of its rollouts, in the terms of `planning.redispatch`.

Pure. Continuations come from the agents' boundary records (a record without a committed model call has no index row, but its
agent restores it all the same); the staged rows that each needs come from model lineage, or from the storage index where the
lineage is in a framework's own format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ckptctl.domain.controller import LedgerGroup, LedgerSibling
from ckptctl.domain.evidence import Evidence, ModelEvidence
from ckptctl.domain.ledger import Group
from ckptctl.domain.lineage import boundary_rows, staging_keys
from ckptctl.domain.participant_files import BoundaryRecord
from ckptctl.domain.redispatch import AttemptPlan, ContinuationFacts, SessionFacts, SiblingFacts
from ckptctl.domain.rows import ContinuationRow
from ckptctl.planning.redispatch import plan_attempts

Root = tuple[str, str]
"""Capture key and call id of a boundary."""


def plan_from(evidence: Evidence, siblings: Iterable[SiblingFacts], restart_only: Iterable[str] = ()) -> AttemptPlan:
    """What becomes of these siblings with what the snapshot holds. `restart_only`: discovered servers that lost their state."""
    return plan_attempts(
        siblings,
        continuations_of(evidence),
        sessions_of(evidence),
        restart_only=servers_without_state(evidence, restart_only),
        required_keys=route_plan_keys(evidence),
    )


def siblings_of_ledger(evidence: Evidence) -> tuple[SiblingFacts, ...]:
    """Every sibling of the snapshot's own ledger, groups that replay owns left out: what `--plan` decides on."""
    ledger, replay = evidence.ledger.value, evidence.replay.value
    finished = {group.group_id for group in replay.groups} if replay is not None else set()
    groups = [] if ledger is None else [group for group in ledger.groups if group.group_id not in finished]
    return tuple(fact for group in _admitted_first(groups) for fact in _siblings_of(group))


def _admitted_first(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: group.phase != "admitted")


def _siblings_of(group: Group) -> Iterable[SiblingFacts]:
    is_ready = all(sibling.current.status == "sealed" for sibling in group.siblings)
    for sibling in group.siblings:
        yield SiblingFacts(
            group_id=group.group_id,
            granularity=group.recovery_granularity,
            is_ready=is_ready,
            generation_index=sibling.generation_index,
            rollout_id=group.rollout_of(sibling),
            current_attempt=sibling.current.attempt_index,
            status=sibling.current.status,
            staging_keys=tuple(sibling.current.staging_keys),
        )


def siblings_of_controller(groups: Iterable[LedgerGroup], evidence: Evidence) -> tuple[SiblingFacts, ...]:
    """Every sibling as the restored controller has it; what sealed attempts need comes from the snapshot."""
    saved = {fact.rollout_id: fact for fact in siblings_of_ledger(evidence)}
    facts = []
    for group in groups:
        is_ready = all(sibling.status == "sealed" for sibling in group.siblings)
        for sibling in group.siblings:
            known = saved.get(sibling.rollout_id)
            facts.append(
                SiblingFacts(
                    group_id=group.group_id,
                    granularity=group.recovery_granularity,
                    is_ready=is_ready,
                    generation_index=sibling.generation_index,
                    rollout_id=sibling.rollout_id,
                    current_attempt=sibling.current_attempt,
                    status=sibling.status,
                    staging_keys=() if known is None else known.staging_keys,
                )
            )
    return tuple(facts)


def ledger_differences(groups: Iterable[LedgerGroup], evidence: Evidence) -> Iterator[str]:
    """Where a restored controller's ledger is not the saved one: a mapping made from it would run something twice or lose it."""
    saved = {fact.rollout_id: fact for fact in siblings_of_ledger(evidence)}
    unseen = {name for name, fact in saved.items() if not _is_reused(fact)}
    for group in groups:
        for sibling in group.siblings:
            unseen.discard(sibling.rollout_id)
            fact = saved.get(sibling.rollout_id)
            if fact is None:
                yield f"`{sibling.rollout_id}` is not in the saved ledger"
            elif (group.group_id, group.recovery_granularity) != (fact.group_id, fact.granularity):
                yield f"`{sibling.rollout_id}` belongs to another group, or to one of another granularity, than was saved"
            else:
                yield from _sibling_difference(sibling, fact)
    for name in sorted(unseen):
        yield f"`{name}` is missing"


def _sibling_difference(sibling: LedgerSibling, saved: SiblingFacts) -> Iterator[str]:
    name, found = f"`{sibling.rollout_id}`", sibling.status
    if sibling.current_attempt != saved.current_attempt:
        yield f"{name} is at attempt {sibling.current_attempt}, saved was {saved.current_attempt}"
    elif (found == "sealed") != _is_reused(saved) or (found == "reserved" and saved.status != "reserved"):
        yield f"{name} attempt {saved.current_attempt} is {found}, saved was {saved.status}"


def _is_reused(fact: SiblingFacts) -> bool:
    """Whether a sibling stays sealed through a restart (snapshot-layout section 6.4)."""
    return fact.status == "sealed" and (fact.granularity == "sibling" or fact.is_ready)


def saved_counts(evidence: Evidence) -> dict[str, int]:
    """What a controller that restored the snapshot must report, by the fields of its reply.

    Not `staging_rows`, because which rows nothing needs any more the controller decides by itself, and not `outbox`: what is
    owed to processes that are gone it drops, now or when it is asked.
    """
    manifest = evidence.manifest.manifest
    assert manifest is not None, "a valid snapshot has a manifest"
    replay = evidence.replay.value
    groups = () if replay is None else replay.groups
    return {
        "train_step": manifest.base_train_step,
        "trainer_version": manifest.trainer_version,
        "epoch": manifest.current_epoch,
        "ledger_groups": len({fact.group_id for fact in siblings_of_ledger(evidence)}),
        "replay_groups": len(groups),
        "canonical_rows": sum(len(group.meta.sample_ids) for group in groups),
    }


def continuations_of(evidence: Evidence) -> tuple[ContinuationFacts, ...]:
    """Every boundary that the agents will restore."""
    needed = _keys_by_root(evidence)
    facts: list[ContinuationFacts] = []
    for agent in evidence.agents:
        rows = {(row.rollout_id, row.attempt_index): row for row in agent.continuations.value or ()}
        facts += [
            _continuation(record, rows.get((record.rollout_id, record.attempt_index)), needed)
            for record in agent.boundaries()
        ]
    return tuple(facts)


def _continuation(
    record: BoundaryRecord, row: ContinuationRow | None, needed: dict[Root, tuple[str, ...]]
) -> ContinuationFacts:
    # An index row without revisions is older than the dependency feature: then the record's map says nothing either.
    revisions = record.resource_state_revisions if row is None else row.resource_state_revisions
    return ContinuationFacts(
        rollout_id=record.rollout_id,
        attempt_index=record.attempt_index,
        revisions=None if revisions is None else dict(revisions),
        staging_keys=() if row is None else needed.get((row.capture_key, row.last_committed_model_call_id), ()),
        has_model_call=row is not None,
    )


def _keys_by_root(evidence: Evidence) -> dict[Root, tuple[str, ...]]:
    roots = [row for agent in evidence.agents for row in agent.continuations.value or ()]
    needed: dict[Root, tuple[str, ...]] = {}
    for model in evidence.models:
        found = _referenced(model) if model.is_foreign else _from_lineage(model, roots)
        for root, keys in found.items():
            needed[root] = tuple(dict.fromkeys((*needed.get(root, ()), *keys)))
    return needed


def _referenced(model: ModelEvidence) -> dict[Root, tuple[str, ...]]:
    found: dict[Root, list[str]] = {}
    for row in model.storage_references.value or ():
        found.setdefault((row.capture_key, row.boundary_model_call_id), []).append(row.key)
    return {root: tuple(keys) for root, keys in found.items()}


def _from_lineage(model: ModelEvidence, roots: Iterable[ContinuationRow]) -> dict[Root, tuple[str, ...]]:
    places = {row.capture_key: (row.archive, row.member) for row in model.lineage_index.value or ()}
    found: dict[Root, tuple[str, ...]] = {}
    for root in roots:
        part = model.lineage.get(places.get(root.capture_key, ("", "")))
        for row in boundary_rows(root, () if part is None else part.value or ()):
            found[root.capture_key, root.last_committed_model_call_id] = staging_keys(row)
    return found


def sessions_of(evidence: Evidence) -> tuple[SessionFacts, ...]:
    """Every session that the resources servers will restore."""
    return tuple(
        SessionFacts(
            server_name=server.entry.participant.participant_name,
            rollout_id=part.value.rollout_id,
            attempt_index=part.value.attempt_index,
        )
        for server in evidence.resources
        for part in server.sessions.values()
        if part.value is not None
    )


def servers_without_state(evidence: Evidence, restart_only: Iterable[str]) -> frozenset[str]:
    """Resources servers whose dependants restart: discovered restart_only ones, and every name that saved nothing."""
    saved = {server.entry.participant.participant_name for server in evidence.resources}
    named = {
        name for agent in evidence.agents for record in agent.boundaries() for name in record.resource_state_revisions
    }
    return frozenset(restart_only) | frozenset(named - saved)


def route_plan_keys(evidence: Evidence) -> frozenset[str]:
    """Staged rows that route plans of finished groups need."""
    replay = evidence.replay.value
    keys: set[str] = set()
    for group in replay.groups if replay is not None else ():
        for tag in group.meta.tags or ():
            plan = tag.get("route_assembly_plan")
            if isinstance(plan, dict):
                keys.update(key for key in plan.get("cleanup_staging_keys", ()) if isinstance(key, str))
    return frozenset(keys)
