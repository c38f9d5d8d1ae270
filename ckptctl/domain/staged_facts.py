"""What is kept of a staged row after its bytes were read: who it is, what it states, and what its digests come out as.

A row is examined while its columns are at hand and forgotten then: its facts do not grow with its tokens. Whether the facts are
right (keys, tags, receipts, lineage, chains) is for the rules of the full level; which rows are read, and in which order, for who
reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ckptctl.domain.finding import Defect
from ckptctl.domain.ids import staging_key
from ckptctl.domain.staged import (
    ROUTES_NONE,
    StagedRow,
    call_digest_over,
    chain_hash_over,
    cumulative_hash_over,
    row_extras_digest,
    structural_defects,
)
from ckptctl.domain.staged_columns import big_endian

RoutesState = Literal["none", "read", "missing", "unproduced", "unchecked"]


# Not frozen, although nobody changes one: a frozen one takes four times as long to make, and each row has one.
@dataclass(slots=True)
class StagedFacts:
    """One staged row. Names without `_found` are what the row states, `_found` what was computed from its bytes."""

    rollout_id: str
    model_call_id: str
    parent_call_id: str | None
    parent_key: str | None
    """The row that is its parent; None for a root, and where none was found."""
    capture_mode: str
    prev_len: int
    delta_len: int
    cum_len: int
    weight_version: int
    versions: tuple[int, int, int]
    digest: str
    extras_digest: str
    chain_hash: str | None
    cumulative_hash: str | None
    routed_len: int
    digest_found: str
    extras_found: str | None
    """None when the extras cannot be digested: `extras_problem` or `routes` says why."""
    chain_found: str | None
    """None when there is no parent to chain it to, or none that can be trusted."""
    cumulative_found: str | None
    """None when not every ancestor was read and is what its digest says."""
    defects: tuple[Defect, ...] = ()
    """What breaks the structural rules."""
    extras_problem: str = ""
    routes: RoutesState = "none"
    is_needed: bool = True
    """False for an ancestor that was read for its children's sake only."""
    gap: str = ""
    """Why the hash over the ancestors was not computed, although they are all there."""

    @property
    def own_key(self) -> str:
        """The key that the row itself names."""
        return staging_key(self.rollout_id, self.model_call_id)

    def is_sound_as(self, key: str) -> bool:
        """Whether this is the row of `key` and says what was captured: only then is it worth comparing with others."""
        return self.digest_found == self.digest and not self.defects and self.own_key == key


@dataclass(frozen=True, slots=True)
class Ancestry:
    """What is known of the calls before a row. `prefix`: the ids of each, as `big_endian` gives them; None if one is lacking."""

    parent_key: str | None = None
    parent: StagedFacts | None = None
    """None where there is none that can be trusted."""
    prefix: Sequence[bytes] | None = None
    gap: str = ""


def examine(
    row: StagedRow,
    ancestry: Ancestry,
    *,
    ids: bytes | None = None,
    routes: RoutesState = "none",
    is_needed: bool = True,
) -> StagedFacts:
    """The facts of a row. `ids`: its token ids as `big_endian` gives them, if they are at hand."""
    ids = big_endian(row.token_ids) if ids is None else ids
    is_root = row.parent_call_id is None
    has_chain = is_root or ancestry.parent is not None
    extras, problem = _extras(row)
    found = None
    if has_chain:
        found = chain_hash_over(None if ancestry.parent is None else ancestry.parent.chain_hash, ids)
    prefix = () if is_root else ancestry.prefix
    return StagedFacts(
        rollout_id=row.rollout_id,
        model_call_id=row.model_call_id,
        parent_call_id=row.parent_call_id,
        parent_key=ancestry.parent_key,
        capture_mode=row.capture_mode,
        prev_len=row.prev_len,
        delta_len=row.delta_len,
        cum_len=row.cum_len,
        weight_version=row.weight_version,
        versions=(row.schema_version, row.digest_version, row.extras_digest_version),
        digest=row.digest,
        extras_digest=row.extras_digest,
        chain_hash=row.chain_hash,
        cumulative_hash=row.cumulative_hash,
        routed_len=row.routed_len,
        digest_found=call_digest_over(row, ids),
        extras_found=extras,
        chain_found=found,
        cumulative_found=None if prefix is None or not has_chain else cumulative_hash_over((*prefix, ids)),
        defects=structural_defects(row),
        extras_problem=problem,
        routes=routes if row.routed_experts_encoding != ROUTES_NONE else "none",
        is_needed=is_needed,
        gap=ancestry.gap,
    )


def _extras(row: StagedRow) -> tuple[str | None, str]:
    if row.routed_experts_encoding != ROUTES_NONE and row.routed_experts is None:
        return None, ""
    try:
        return row_extras_digest(row), ""
    except ValueError as error:
        return None, str(error)
