"""Are staged rows what their keys, digests and tags say? Invariants 38 to 40, level full: they need tensor bytes.

One row at a time; what receipts, lineage and parents say of it is `staged_links`' business, absent fields are INV005's. A row
that nothing needs is not looked at: a restore deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ckptctl.domain.amounts import plural
from ckptctl.domain.evidence import Evidence, Part
from ckptctl.domain.finding import Violation
from ckptctl.domain.staged_facts import StagedFacts
from ckptctl.rules._model import CannotRunError, Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules._staged import (
    STAGED_REQUIRES,
    STAGED_TARGETS,
    UNUSABLE_ROW,
    demand_all_read,
    needed_rows,
    sound_rows,
    staged_parts,
)
from ckptctl.rules._views import staging_partition

_NUMBER_TAGS = ("prev_len", "delta_len", "cum_len", "weight_version")


def check_identity(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 38."""
    for key, part, facts in needed_rows(evidence):
        if facts.own_key != key:
            yield Violation(
                f"row of `{key}` belongs to `{facts.own_key}`: the index was reused in a torn save",
                artifact=part.path,
                location=key,
                expected=key,
                actual=facts.own_key,
            )
    demand_all_read(evidence)


def check_digests(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 39."""
    tags = _tags(evidence)
    for key, part in staged_parts(evidence).items():
        facts = part.value
        if facts is None:
            yield from _undecodable(key, part)
        elif facts.is_needed and facts.own_key == key:
            yield from _row_faults(key, part, facts)
            yield from _tag_faults(evidence, key, facts, tags.get(key, {}))
    demand_all_read(evidence)


def _undecodable(key: str, part: Part[StagedFacts]) -> Iterator[Violation]:
    if part.state != "damaged":
        return
    for defect in part.defects:
        message = f"staging row `{key}` cannot be digested: {defect.message}"
        yield Violation(message, part.path, f"{key} {defect.location}".rstrip(), defect.expected, defect.actual)


def _row_faults(key: str, part: Part[StagedFacts], facts: StagedFacts) -> Iterator[Violation]:
    for defect in facts.defects:
        yield Violation(
            f"staging row `{key}`: {defect.message}",
            part.path,
            f"{key} {defect.location}".rstrip(),
            defect.expected,
            defect.actual,
        )
    if facts.digest_found != facts.digest:
        yield Violation(
            f"digest of `{key}` differs: the tokens are not the ones that were captured",
            part.path,
            f"{key} digest_bytes",
            expected=facts.digest,
            actual=facts.digest_found,
        )


def _tag_faults(evidence: Evidence, key: str, facts: StagedFacts, tag: Mapping[str, object]) -> Iterator[Violation]:
    """Tags may be lacking; one that is there must say what the row says. A row whose digest is wrong is one finding already."""
    if facts.digest_found != facts.digest or facts.defects:
        return
    stated = {
        "rollout_id": facts.rollout_id,
        "model_call_id": facts.model_call_id,
        "parent_call_id": facts.parent_call_id,
        "digest": facts.digest,
        "schema_version": facts.versions[0],
        **{name: getattr(facts, name) for name in _NUMBER_TAGS},
    }
    for name, value in stated.items():
        if name in tag and not is_same(tag[name], value):
            yield Violation(
                f"tag `{name}` of `{key}` differs from the row: the tokens are not the ones that were announced",
                artifact=evidence.controller_state.path,
                location=f"{key} {name}",
                expected=str(value),
                actual=str(tag[name]),
            )


def is_same(found: object, wanted: object) -> bool:
    """Equal and of one type: true is not 1 here."""
    return type(found) is type(wanted) and found == wanted


def _tags(evidence: Evidence) -> dict[str, Mapping[str, object]]:
    partition = value_of(evidence.controller_state, "INV015").partitions.get(staging_partition(evidence))
    if partition is None:
        return {}
    return {key: partition.tags.get(index, {}) for key, index in partition.keys.items()}


def check_extras(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 40; whether `routed_len` fits is part of 39, whether routes are stored of 37."""
    unchecked = 0
    for key, part, facts in sound_rows(evidence):
        if facts.extras_found is not None and facts.extras_found != facts.extras_digest:
            yield Violation(
                f"extras of `{key}` do not match their digest",
                part.path,
                f"{key} extras_digest_bytes",
                expected=facts.extras_digest,
                actual=facts.extras_found,
            )
        elif facts.extras_problem:
            message = f"extras of `{key}` do not match their digest: {facts.extras_problem}"
            yield Violation(message, part.path, f"{key} extras_metadata_json")
        unchecked += facts.routes == "unchecked"
    demand_all_read(evidence)
    if unchecked:
        raise CannotRunError(
            f"routed experts of {plural(unchecked, 'row')} are not read: another dtype or codec, or too large",
            because=(UNUSABLE_ROW,),
        )


RULES: tuple[Rule, ...] = (
    Rule(
        id="INV006",
        invariant=38,
        name="foreign-staged-row",
        summary="A staged row names itself as its key does.",
        why="Indexes are used again after a clear: in a torn save a key may point at the row of another call.",
        hint="The save was torn by a put or a clear; use an older snapshot.",
        severity="error",
        level="full",
        check=check_identity,
        requires=STAGED_REQUIRES,
        needs=("data_plane",),
        targets=STAGED_TARGETS,
    ),
    Rule(
        id="INV007",
        invariant=39,
        name="changed-staged-row",
        summary="The recomputed digest of a staged row is that in the row and its tag; versions, lengths and mask are right.",
        why="Tokens that are not the captured ones would be trained on.",
        hint="Bytes changed after the call was captured: check the storage, and use an older snapshot.",
        severity="error",
        level="full",
        check=check_digests,
        requires=STAGED_REQUIRES,
        needs=("data_plane",),
        targets=STAGED_TARGETS,
    ),
    Rule(
        id="INV008",
        invariant=40,
        name="changed-staged-extras",
        summary="The recomputed digest of a staged row's extras, routed experts included, is the one stored in it.",
        why="Extras carry the routes that a replayed forward pass must take.",
        hint="Bytes changed after the call was captured: check the storage, and use an older snapshot.",
        severity="error",
        level="full",
        check=check_extras,
        requires=STAGED_REQUIRES,
        needs=("data_plane",),
        targets=STAGED_TARGETS,
    ),
)
