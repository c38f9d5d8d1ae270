"""Do the storage references name exactly the staged rows that continuations need? Invariants 72 and 73.

A key that several continuations share is listed once, under one of their capture keys. That the staging partition has the keys is
INV004's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import lt

from ckptctl.domain.amounts import plural
from ckptctl.domain.evidence import Evidence, ModelEvidence
from ckptctl.domain.finding import Violation
from ckptctl.domain.lineage import boundary_rows, staging_keys
from ckptctl.domain.rows import ContinuationRow, StorageReferenceRow
from ckptctl.rules._model import Rule
from ckptctl.rules._parts import value_of
from ckptctl.rules._views import continuation_roots, continuation_rows, first, lineage_members, require_documented


def needed_by_root(model: ModelEvidence, roots: dict[str, ContinuationRow]) -> dict[str, tuple[str, ...]]:
    """The staging keys that each continuation needs, by its capture key, as the model's lineage says."""
    needed: dict[str, tuple[str, ...]] = {}
    for capture_key, _, rows in lineage_members(model):
        root = roots.get(capture_key)
        found = boundary_rows(root, rows) if root is not None else ()
        if len(found) == 1:
            needed[capture_key] = staging_keys(found[0])
    return needed


def check_complete(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 72."""
    roots = continuation_roots(evidence)
    for model in evidence.models:
        if model.is_foreign:
            continue
        needed = needed_by_root(model, roots)
        rows = value_of(model.storage_references, "PAR006")
        listed = {row.key for row in rows}
        missing = {key for keys in needed.values() for key in keys if key not in listed}
        # A row of an unknown capture key is rule 73's.
        extra = {row.key for row in rows if row.key not in needed.get(row.capture_key, (row.key,))}
        if missing or extra:
            name = model.entry.participant.participant_name
            parts = [
                f"{plural(len(keys), 'key')} {word}: {first(keys)}"
                for word, keys in (("missing", missing), ("extra", extra))
                if keys
            ]
            message = f"storage index of `{name}`: {'; '.join(parts)}"
            expected, actual = plural(len(listed | missing) - len(extra), "key"), plural(len(listed), "key")
            yield Violation(message, model.storage_references.path, "", expected, actual)
    for model in evidence.models:
        require_documented(model)


def check_pointing(evidence: Evidence) -> Iterator[Violation]:
    """Invariant 73; a continuation without staged rows is legal, and a warning."""
    roots = continuation_roots(evidence)
    everywhere: dict[str, tuple[str, StorageReferenceRow]] = {}
    held: set[str] = set()
    bare: set[str] = set()
    for model in evidence.models:
        name, path = model.entry.participant.participant_name, model.storage_references.path
        rows = value_of(model.storage_references, "PAR006")
        seen: set[str] = set()
        held.update([row.capture_key for row in rows])
        is_alone = len(evidence.models) == 1 and _are_right(rows, roots)
        for line, row in enumerate(() if is_alone else rows, start=1):
            what, expected, actual = _row_fault(row, roots.get(row.capture_key))
            if row.key in seen:
                what, expected, actual = "is listed twice", "once", "twice"
            other, twin = everywhere.setdefault(row.key, (name, row))
            if not what and twin != row:
                what, expected, actual = f"differs from the row of `{other}`", twin.capture_key, row.capture_key
            if what:
                yield Violation(f"storage reference `{row.key}`: {what}", path, f"line {line}", expected, actual)
            seen.add(row.key)
        if not model.is_foreign:
            needed = needed_by_root(model, roots)
            held.update(capture_key for capture_key, keys in needed.items() if keys)
            bare.update(capture_key for capture_key, keys in needed.items() if not keys)
    if all(model.is_foreign for model in evidence.models):
        bare = (
            roots.keys() - held if evidence.models else set()
        )  # the references are all that is known of such a ledger
    bare -= held
    for agent, line, root in continuation_rows(evidence) if bare else ():
        if root.capture_key in bare:
            message = f"continuation `{root.capture_key}` holds no staged rows"
            yield Violation(message, agent.continuations.path, f"line {line}", "staged rows", "none", warning=True)


def _are_right(rows: Sequence[StorageReferenceRow], roots: Mapping[str, ContinuationRow]) -> bool:
    """Whether `_row_fault` finds nothing in any of these rows and each key stands once: some comparisons for a million rows."""
    found = [roots.get(row.capture_key) for row in rows]
    calls = [root.last_committed_model_call_id for root in found if root is not None]
    keys = [row.key for row in rows]
    is_once = all(map(lt, keys, islice(keys, 1, None))) or len(set(keys)) == len(keys)  # written in order, as a rule
    return is_once and calls == [row.boundary_model_call_id for row in rows]


def _row_fault(row: StorageReferenceRow, root: ContinuationRow | None) -> tuple[str, str, str]:
    if root is None:
        return f"capture key `{row.capture_key}` has no continuation", "a continuation", "none"
    wanted, found = root.last_committed_model_call_id, row.boundary_model_call_id
    if wanted != found:
        return f"names boundary call `{found}`, the continuation of `{row.capture_key}` `{wanted}`", wanted, found
    return "", "", ""


RULES: tuple[Rule, ...] = (
    Rule(
        id="PAR014",
        invariant=72,
        name="incomplete-storage-references",
        summary="The storage index of each policy model lists exactly the chain and own key of every boundary call.",
        why="Rows that it leaves out are deleted at restore, although a continuation is built on them.",
        hint="Use an older snapshot; upstream writes the index so, and never compares it again.",
        severity="error",
        level="standard",
        check=check_complete,
        requires=("MAN005", "PAR002", "PAR006", "PAR013", "PAR015"),
        needs=("gym",),
    ),
    Rule(
        id="PAR015",
        invariant=73,
        name="stray-storage-reference",
        summary="Each storage reference points at a continuation and its boundary call, each key once per index.",
        why="NeMo-RL refuses a reference to a continuation that does not exist, or to another call of it.",
        hint="Use an older snapshot; agents and model were committed at different moments.",
        severity="error",
        level="standard",
        check=check_pointing,
        requires=("MAN005", "PAR002", "PAR006", "PAR011", "PAR012"),
        needs=("gym",),
    ),
)
