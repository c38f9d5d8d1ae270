"""Digests of staged rows recomputed at level full, against `hashlib.sha256` over the same number of bytes and messages."""

import tempfile
from pathlib import Path

from ckptctl.adapters.cores import usable_cores
from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.rules.staged_plan import StagedPlan, find_plan
from ckptctl.workflows.collection import seldom_collected
from ckptctl.workflows.load_staged import read_staged_rows
from ckptctl.workflows.read_parts import PartReader
from ckptctl.workflows.staged_batches import examine_batches, locate_trees
from ckptctl.workflows.staged_columns import ColumnReader
from ckptctl.workflows.tensor_sources import TensorSources
from ckptctl.workflows.validate import load_evidence
from tests.bench.large import CHAIN, write_large
from tests.bench.measure import MEBIBYTE, compare, in_turns
from tests.bench.rivals import hash_bare

_CALL_BYTES = 270
"""Of a call's payload, besides its three columns; about."""


def messages(rows: int, tokens: int) -> list[int]:
    """The sizes of what is fed to SHA-256 for chains of four: call digest, chain hash, cumulative hash, extras left out."""
    return [
        size
        for number in range(rows)
        for size in (16 * tokens + _CALL_BYTES, 8 * tokens + 66, 8 * tokens * (number % CHAIN + 1) + 34)
    ]


def bench_staged(rows: int, tokens: int, rounds: int) -> None:
    """Row 2 of the table."""
    cores = usable_cores()
    with tempfile.TemporaryDirectory(prefix="ckptctl-bench-") as folder:
        snapshot = write_large(Path(folder), rows, tokens)
        store = LocalStore()
        plan = find_plan(load_evidence(store, str(snapshot)))
        assert plan is not None
        parts = PartReader(
            store, str(snapshot), DEFAULT_LIMITS, {entry.path: entry for entry in store.list_tree(str(snapshot))}
        )
        with TensorSources(parts, plan.plane, "data_plane/") as sources:
            reader = ColumnReader(plan, sources, DEFAULT_LIMITS)
            located = list(locate_trees(_trees(plan), reader))

        def digests() -> None:
            with seldom_collected(), TensorSources(parts, plan.plane, "data_plane/") as sources:
                reader = ColumnReader(plan, sources, DEFAULT_LIMITS)
                found = list(examine_batches(located, frozenset(plan.needed), reader, DEFAULT_LIMITS, cores))
                assert rows == sum(len(tree or ()) for _, tree in found)

        def everything() -> None:
            with seldom_collected(), TensorSources(parts, plan.plane, "data_plane/") as sources:
                assert rows == len(read_staged_rows(plan, sources, DEFAULT_LIMITS, None, cores).rows)

        sizes = messages(rows, tokens)
        times = in_turns(
            {
                "ckptctl": digests,
                "bare hashlib.sha256": lambda: hash_bare(sizes, cores),
                "ckptctl, locating as well": everything,
            },
            rounds,
        )
    fed = sum(sizes) / MEBIBYTE
    compare(
        f"digests of {rows:,} staged rows of {tokens:,} tokens in chains of {CHAIN}: {fed:.0f} MiB to SHA-256, {cores} cores",
        times,
        "goal: 0.6 of the bare hash; reading the rows is counted, locating them is not",
    )


def _trees(plan: StagedPlan) -> list[dict[str, str | None]]:
    """The chains, by how their keys are made here."""
    trees: dict[str, dict[str, str | None]] = {}
    for key in sorted(plan.needed):
        capture = key.partition("/")[0]
        tree = trees.setdefault(capture, {})
        tree[key] = next(reversed(tree), None)
    return list(trees.values())
