"""What follows from model lineage: the row of a boundary call, and the staged rows that continuations need.

Used by the server that commits (to write the storage index) and by the rules (to compare with it).
Source: participant-protocol section 11.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ckptctl.domain.amounts import plural
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.rows import ContinuationRow, LineageRow, StorageReferenceRow
from ckptctl.domain.safe_text import safe

STAGING_KIND = "token_capture_staging"
"""The only kind of storage reference that schema 4 has."""


def boundary_rows(root: ContinuationRow, rows: Iterable[LineageRow]) -> tuple[LineageRow, ...]:
    """The rows of a root's boundary call that are neither a failure nor an event. Exactly one is right."""
    return tuple(
        row
        for row in rows
        if row.model_call_id == root.last_committed_model_call_id and row.failure_reason is None and row.event is None
    )


def staging_keys(row: LineageRow) -> tuple[str, ...]:
    """The staged rows that lead to and include this call, each once: some writers put the own key into the chain as well."""
    own = () if row.staging_key is None else (row.staging_key,)
    return tuple(dict.fromkeys((*(row.staging_chain or ()), *own)))


def storage_references(
    roots: Iterable[ContinuationRow], lineage: Mapping[str, Sequence[LineageRow]]
) -> tuple[StorageReferenceRow, ...]:
    """The storage index: every key once, sorted; a key that several roots need stands under the first capture key.

    Raises:
        DefectError: when a root has no lineage, or its boundary call not exactly one row there.
    """
    found: dict[str, StorageReferenceRow] = {}
    for root in sorted(roots, key=lambda item: (item.capture_key, item.last_committed_model_call_id)):
        for key in staging_keys(_boundary_row(root, lineage)):
            reference = StorageReferenceRow(1, root.capture_key, root.last_committed_model_call_id, STAGING_KIND, key)
            found.setdefault(key, reference)
    return tuple(found[key] for key in sorted(found))


def _boundary_row(root: ContinuationRow, lineage: Mapping[str, Sequence[LineageRow]]) -> LineageRow:
    rows = lineage.get(root.capture_key)
    if rows is None:
        raise DefectError(
            Defect(f"`{safe(root.capture_key)}` has no lineage file", safe(root.capture_key), "a lineage file", "none")
        )
    found = boundary_rows(root, rows)
    if len(found) != 1:
        call = safe(root.last_committed_model_call_id)
        text = f"boundary call `{call}` of `{safe(root.capture_key)}` has {plural(len(found), 'row')} in the lineage"
        raise DefectError(Defect(text, safe(root.capture_key), "exactly one row", f"{plural(len(found), 'row')}"))
    return found[0]
