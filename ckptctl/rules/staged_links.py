"""Do receipts, lineage and parents agree with the staged rows that they name? Invariants 41 and 42, level full.

Only rows that are what their own key and digest say are compared (INV006 and INV007 speak of the others), and of a chain only the
first break is told: every hash behind it differs as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

from ckptctl.domain.amounts import plural
from ckptctl.domain.evidence import Evidence, ModelEvidence, Part
from ckptctl.domain.finding import Violation
from ckptctl.domain.lineage import staging_keys
from ckptctl.domain.rows import LineageRow
from ckptctl.domain.staged_facts import StagedFacts
from ckptctl.rules._model import CannotRunError, Rule
from ckptctl.rules._staged import (
    STAGED_REQUIRES,
    STAGED_TARGETS,
    demand_all_read,
    sound_row,
    sound_rows,
    staged_parts,
)
from ckptctl.rules._views import lineage_members, optional_ledger, staging_needs
from ckptctl.rules.staged_plan import receipt_rows, split_key
from ckptctl.rules.staged_rows import is_same

_COMMON = (
    "model_call_id",
    "parent_call_id",
    "prev_len",
    "delta_len",
    "cum_len",
    "weight_version",
    "extras_digest",
    "chain_hash",
    "cumulative_hash",
)
_VERSIONS = ("schema_version", "digest_version", "extras_digest_version")


def check_named_rows(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 41."""
    staged_parts(evidence)
    yield from _receipts(evidence)
    for model in evidence.models:
        if not model.is_foreign:
            yield from _lineage(evidence, model)
    demand_all_read(evidence)


def _receipts(evidence: Evidence) -> Iterator[Violation]:
    ledger = optional_ledger(evidence)
    for group in ledger.groups if ledger is not None else ():
        for sibling in group.siblings:
            attempt = sibling.current
            for row in receipt_rows(attempt):
                key = row["staging_key"]
                facts = sound_row(evidence, key)
                if facts is None:
                    continue
                owner = (attempt.receipt or {}).get("rollout_id")
                for name, wanted in _receipt_columns(facts).items():
                    if name not in row or not is_same(row[name], wanted):
                        yield Violation(
                            f"receipt of `{owner}` and staged row `{key}` differ in `{name}`",
                            artifact=evidence.ledger.path,
                            location=f"{group.group_id} {group.rollout_of(sibling)} {key}",
                            expected=str(wanted),
                            actual=str(row[name]) if name in row else "absent",
                        )


def _receipt_columns(facts: StagedFacts) -> dict[str, Any]:
    return {
        "digest": facts.digest,
        "mode": facts.capture_mode,
        **{name: getattr(facts, name) for name in _COMMON},
        **dict(zip(_VERSIONS, facts.versions, strict=True)),
    }


def _lineage(evidence: Evidence, model: ModelEvidence) -> Iterator[Violation]:
    """Columns that a lineage row does not have are not missed: checkpoints use only some."""
    for capture_key, archive, line in _calls(model):
        facts = sound_row(evidence, line.staging_key)
        if facts is None:
            continue
        wanted = {name: getattr(facts, name) for name in _COMMON}
        for name, value in {"staging_digest": facts.digest, "mode": facts.capture_mode, **wanted}.items():
            found = getattr(line, name)
            if found is not None and not is_same(found, value):
                yield Violation(
                    f"lineage of `{capture_key}` and staged row `{line.staging_key}` differ in `{name}`",
                    artifact=f"{model.folder}/{archive}",
                    location=f"{capture_key} {line.model_call_id}",
                    expected=str(value),
                    actual=str(found),
                )


def _calls(model: ModelEvidence) -> Iterator[tuple[str, str, LineageRow]]:
    """(capture key, archive, row) for every call that was staged."""
    for capture_key, archive, lines in lineage_members(model):
        for line in lines:
            if line.failure_reason is None and line.event is None and line.staging_key is not None:
                yield capture_key, archive, line


def check_chains(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 42."""
    chains = _Chains(evidence)
    too_long = 0
    for key, part, facts in sound_rows(evidence):
        yield from chains.breaks(key, part, facts)
        too_long += facts.cumulative_found is None and bool(facts.gap)
    for model in evidence.models:
        if not model.is_foreign:
            yield from _listed_chains(evidence, model)
    demand_all_read(evidence)
    if too_long:
        raise CannotRunError(f"{plural(too_long, 'call chain')} too long to be hashed again")


class _Chains:
    """Compares each row with its parent."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._parts = staged_parts(evidence)

    def breaks(self, key: str, part: Part[StagedFacts], facts: StagedFacts) -> Iterator[Violation]:
        """The first break of a row's chain, if it is at this row."""
        ancestor, what, expected, actual = self._break(key, facts)
        if what:
            message = f"call chain of `{key}` breaks at `{ancestor}`: {what}"
            yield Violation(message, part.path, f"{key} {ancestor}", expected, actual)

    def _break(self, key: str, facts: StagedFacts) -> tuple[str, str, str, str]:
        parent_key = facts.parent_key
        if facts.parent_call_id is not None and parent_key is None:
            if key not in self._chained:
                return "", "", "", ""  # nobody says that the whole chain is needed
            return facts.parent_call_id, "this ancestor has no staged row", "a staged row", "none"
        parent = self._sound(parent_key)
        if parent is not None and parent_key is not None:
            if facts.prev_len != parent.cum_len:
                found = f"the child begins at {facts.prev_len}, this call ends at {parent.cum_len}"
                return parent_key, found, str(parent.cum_len), str(facts.prev_len)
            if not parent.is_needed and key in self._chained:
                return (
                    parent_key,
                    "nothing keeps this ancestor: a restore deletes it",
                    "a needed row",
                    "an unreferenced row",
                )
        at = key if parent_key is None else parent_key
        if facts.chain_found is not None and facts.chain_found != facts.chain_hash:
            what = "the chain hash does not follow from it"
            return at, what, facts.chain_found, str(facts.chain_hash)
        is_first = parent is None or parent.cumulative_found == parent.cumulative_hash
        if facts.cumulative_found is not None and is_first and facts.cumulative_found != facts.cumulative_hash:
            what = "the cumulative hash is not that of all ids up to this call"
            return key, what, facts.cumulative_found, str(facts.cumulative_hash)
        return "", "", "", ""

    def _sound(self, key: str | None) -> StagedFacts | None:
        part = self._parts.get(key) if key is not None else None
        facts = part.value if part is not None else None
        return facts if facts is not None and key is not None and facts.is_sound_as(key) else None

    @cached_property
    def _chained(self) -> frozenset[str]:
        """Rows whose whole chain is needed: those of receipts and continuations. Of a data plane alone nobody says so."""
        if self._evidence.kind == "data_plane":
            return frozenset()
        return frozenset(need.key for need in staging_needs(self._evidence) if need.kind != "route plan")


def _listed_chains(evidence: Evidence, model: ModelEvidence) -> Iterator[Violation]:
    """The chain that lineage lists for a call is the one that the rows themselves make, from a root on."""
    for capture_key, archive, line in _calls(model):
        keys = staging_keys(line)
        rows = [sound_row(evidence, key) for key in keys]
        starts_late = rows[0] is not None and rows[0].parent_call_id is not None
        breaks = [keys[0]] if starts_late else []
        breaks += [
            parent_key
            for (parent_key, parent), (_, child) in pairwise(zip(keys, rows, strict=True))
            if child is not None and not _follows(child, parent_key, parent)
        ]
        if breaks and rows[-1] is not None:
            yield Violation(
                f"call chain of `{line.staging_key}` breaks at `{breaks[0]}`: the rows make another chain than the lineage lists",
                artifact=f"{model.folder}/{archive}",
                location=f"{capture_key} {line.model_call_id}",
                expected="parents in order, the root first",
                actual=", ".join(keys),
            )


def _follows(child: StagedFacts, parent_key: str, parent: StagedFacts | None) -> bool:
    return child.parent_call_id == split_key(parent_key)[1] and (parent is None or child.parent_key == parent_key)


RULES: tuple[Rule, ...] = (
    Rule(
        id="INV009",
        invariant=41,
        name="receipt-contradicts-row",
        summary="Receipts and lineage agree with the staged rows that they name.",
        why="The finalizer refuses a receipt whose rows are others, after the rollout was counted as done.",
        hint="Ledger, lineage and data plane come from different moments, or were changed; use an older snapshot.",
        severity="error",
        level="full",
        check=check_named_rows,
        requires=STAGED_REQUIRES,
        needs=("data_plane",),
        targets=("snapshot", "anchor"),
    ),
    Rule(
        id="INV010",
        invariant=42,
        name="broken-call-chain",
        summary="Lengths and hashes of each call follow from those of its ancestors, and no ancestor is lacking.",
        why="A chain with a gap assembles into a sequence that no model produced.",
        hint="Use an older snapshot; tokens of an ancestor are lost, or calls were linked wrongly when they were captured.",
        severity="error",
        level="full",
        check=check_chains,
        requires=STAGED_REQUIRES,
        needs=("data_plane",),
        targets=STAGED_TARGETS,
    ),
)
