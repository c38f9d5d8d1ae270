"""Do the tags say what training can use? Invariants 43 (route plans) and 46 (weight versions).

At level full the plans are also compared with the staged rows that they name (43), and the weight versions inside staged rows are
looked at besides those of their tags (46). Which of the rows are damaged is INV006's and INV007's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import ValidationError

from ckptctl.domain.document import reason_of
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.replay import RoutePlan
from ckptctl.rules._model import NotAskedError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules._staged import sound_row
from ckptctl.rules._views import (
    INVENTORY_REQUIRES,
    ROUTE_PLAN_TAG,
    lineage_members,
    needed_staging_keys,
    optional_ledger,
    optional_replay,
    route_plans,
    staging_partition,
)


def check_route_plans(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 43."""
    optional_replay(evidence)
    staging = staging_partition(evidence)
    for sample, raw in route_plans(evidence):
        for what, expected, actual in (*_plan_faults(raw, staging), *_span_faults(raw, evidence)):
            yield Violation(
                f"route plan of `{sample}`: {what}",
                artifact=evidence.replay.path,
                location=f"{sample} {ROUTE_PLAN_TAG}",
                expected=expected,
                actual=actual,
            )


def _plan_faults(raw: object, staging: str) -> Iterator[tuple[str, str, str]]:
    if not isinstance(raw, Mapping):
        yield "is not an object", "an object", type(raw).__name__
        return
    try:
        plan = RoutePlan.model_validate(dict(raw))
    except ValidationError as error:
        for defect in error.errors()[:3]:
            yield (
                f"`{'.'.join(map(str, defect['loc']))}`: {reason_of(defect['msg'])}",
                "the documented shape",
                str(defect["type"]),
            )
        return
    if "spans" not in raw:
        yield "`spans` is missing", "a list", "absent"
    if plan.staging_partition != staging:
        yield "names another staging partition", staging, plan.staging_partition
    if len(set(plan.cleanup_staging_keys)) != len(plan.cleanup_staging_keys):
        yield "cleanup_staging_keys has a key twice", "each key once", f"{len(plan.cleanup_staging_keys)} entries"
    stray = {span.staging_key for span in plan.spans} - set(plan.cleanup_staging_keys)
    if stray:
        yield f"span of `{min(stray)}` is not among cleanup_staging_keys", "every span's key", f"{len(stray)} absent"
    total = sum(span.carry_len + span.generation_len for span in plan.spans)
    if plan.spans and total != plan.expected_token_length:
        yield "the spans' lengths do not add up to expected_token_length", str(plan.expected_token_length), str(total)


def _span_faults(raw: object, evidence: Evidence) -> Iterator[tuple[str, str, str]]:
    """Level full: what a span says of a staged row is what the row itself says."""
    spans = raw.get("spans") if isinstance(raw, Mapping) and evidence.staged is not None else None
    for span in spans if isinstance(spans, list) else ():
        key = span.get("staging_key") if isinstance(span, Mapping) else None
        facts = sound_row(evidence, key)
        if facts is None:
            continue
        for name, wanted in (("extras_digest", facts.extras_digest), ("staged_route_len", facts.routed_len)):
            if span.get(name) != wanted:
                yield f"`{name}` of the span of `{key}` is not the staged row's", str(wanted), str(span.get(name))


def check_weights(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 46."""
    if evidence.cut is None:
        raise NotAskedError("there is no trainer version to compare with")
    newest = evidence.cut.trainer_version
    for what, artifact, location, version in _weights(evidence):
        if not 0 <= version <= newest:
            yield Violation(
                f"{what} carries weight version {version}, trainer version is {newest}"
                if version > newest
                else f"{what} carries weight version {version}, which no trainer has",
                artifact,
                location,
                expected=f"0 to {newest}",
                actual=str(version),
            )


def _weights(evidence: Evidence) -> Iterator[tuple[str, str, str, int]]:
    replay = optional_replay(evidence)
    for group in replay.groups if replay is not None else ():
        path, name = evidence.replay.path, group.group_id
        yield f"replay group `{name}` (start_weight)", path, name, group.start_weight
        yield f"replay group `{name}` (end_weight)", path, name, group.end_weight
        for sample, tag in zip(group.meta.sample_ids, group.meta.tags or (), strict=False):
            yield from _tag_weight(f"tag of sample `{sample}`", path, sample, tag)
    ledger = optional_ledger(evidence)
    for unfinished in ledger.groups if ledger is not None else ():
        path, name = evidence.ledger.path, unfinished.group_id
        yield f"group `{name}` (start_weight_version)", path, name, unfinished.start_weight_version
        for sibling in unfinished.siblings:
            rows = (sibling.current.receipt or {}).get("manifest")
            for row in rows if isinstance(rows, list) else ():
                if isinstance(row, dict):
                    yield from _tag_weight(
                        f"receipt row `{row.get('staging_key')}`", path, unfinished.rollout_of(sibling), row
                    )
    staging = value_of(evidence.controller_state, "INV015").partitions.get(staging_partition(evidence))
    needed = needed_staging_keys(evidence) if staging is not None else frozenset()
    for key in sorted(needed):
        index = staging.keys.get(key) if staging is not None else None
        if staging is not None and index is not None:
            stated = staging.tags.get(index, {})
            yield from _tag_weight(f"tag of staging row `{key}`", evidence.controller_state.path, key, stated)
            part = (evidence.staged or {}).get(key)
            facts = part.value if part is not None else None
            if part is not None and facts is not None and stated.get("weight_version") != facts.weight_version:
                yield f"staging row `{key}`", part.path, key, facts.weight_version
    for model in evidence.models:
        if model.is_foreign:
            continue
        for capture_key, archive, lines in lineage_members(model):
            for line in lines:
                if line.weight_version is not None:
                    what = f"lineage row `{line.model_call_id}` of `{capture_key}`"
                    yield what, f"{model.folder}/{archive}", capture_key, line.weight_version


def _tag_weight(what: str, path: str, location: str, tag: Mapping[str, object]) -> Iterator[tuple[str, str, str, int]]:
    version = tag.get("weight_version")
    if isinstance(version, int) and not isinstance(version, bool):
        yield what, path, location, version


RULES: tuple[Rule, ...] = (
    Rule(
        id="INV011",
        invariant=43,
        name="malformed-route-plan",
        summary="Each deferred route plan has its shape, names the staging partition, covers its tokens and fits its rows.",
        why="A worker assembles routes from it in training; a plan that does not add up gives wrong routes or a crash there.",
        hint="Drop the sample's group and let it be generated again, or use an older snapshot.",
        severity="error",
        level="standard",
        check=check_route_plans,
        requires=INVENTORY_REQUIRES,
        needs=("data_plane",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="INV014",
        invariant=46,
        name="weight-from-the-future",
        summary="No weight version in replay metadata, ledger, lineage, tags or staged rows is newer than the trainer's.",
        why="Rows of a newer policy than the restored trainer's show that parts of two runs were mixed.",
        hint="Check that the snapshot lies in the anchor that it was taken for.",
        severity="warning",
        level="standard",
        check=check_weights,
        requires=INVENTORY_REQUIRES,
        needs=("data_plane", "cut"),
        targets=("snapshot", "anchor"),
    ),
)
