"""Index rows against the keys of the data plane: continuations, storage references, TransferQueue's keys (in memory)."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ckptctl.domain.evidence import Evidence, Part
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.rows import ContinuationRow, StorageReferenceRow
from ckptctl.domain.source import BytesSource
from ckptctl.formats.participant_files import encode_rows
from ckptctl.formats.row_pieces import read_rows
from ckptctl.rules.inventory import check_staging_keys
from ckptctl.rules.participant_storage import check_pointing
from ckptctl.workflows.collection import seldom_collected
from tests.bench.measure import MEBIBYTE, compare, in_turns, peak_mib
from tests.bench.rivals import ContinuationLine, ReferenceLine, duckdb_or_none
from tests.builders import an_evidence
from tests.world import STAGING


def _capture(number: int) -> str:
    return f"g{number // 8}_g{number % 8}-a1"


def index_files(count: int) -> tuple[bytes, bytes, dict[str, int]]:
    """`continuations.jsonl`, `storage-references.jsonl`, and the keys of a staging partition that has each reference.

    Both indexes are sorted, as they are written; TransferQueue has its keys in the order in which they came.
    """
    keys = {f"{_capture(number)}/call-{number}": number for number in range(count)}
    numbers = [keys[key] for key in sorted(keys)]
    continuations = encode_rows(
        ContinuationRow(
            1, f"g{number // 8}_g{number % 8}", 1, _capture(number), f"call-{number}", {"tools": number % 7}
        )
        for number in numbers
    )
    references = encode_rows(
        StorageReferenceRow(
            1, _capture(number), f"call-{number}", "token_capture_staging", f"{_capture(number)}/call-{number}"
        )
        for number in numbers
    )
    return continuations, references, keys


def rows_with_ckptctl(continuations: bytes, references: bytes, keys: dict[str, int], base: Evidence) -> list[Any]:
    """The program's own readers, and the two rules that compare what they read (PAR015, INV004)."""
    with seldom_collected():
        roots = read_rows(BytesSource(continuations), ContinuationRow, DEFAULT_LIMITS)
        listed = read_rows(BytesSource(references), StorageReferenceRow, DEFAULT_LIMITS)
        agent, model, controller = base.agents[0], base.models[0], base.controller_state.value
        assert controller is not None
        partition = replace(controller.partitions[STAGING], keys=keys)
        state = replace(controller, partitions={**controller.partitions, STAGING: partition})
        evidence = replace(
            base,
            agents=(replace(agent, continuations=Part("continuations.jsonl", "decoded", roots)),),
            models=(replace(model, storage_references=Part("references.jsonl", "decoded", listed), is_foreign=True),),
            controller_state=replace(base.controller_state, value=state),
        )
        return [*check_pointing(evidence), *check_staging_keys(evidence)]


def rows_with_pydantic(continuations: bytes, references: bytes, keys: dict[str, int]) -> list[str]:
    """Each line validated by itself, then the same comparisons."""
    lines = [ContinuationLine.model_validate_json(line) for line in continuations.splitlines()]
    roots = {line.capture_key: line for line in lines}
    seen: set[str] = set()
    faults = []
    for reference in [ReferenceLine.model_validate_json(line) for line in references.splitlines()]:
        root = roots.get(reference.capture_key)
        if root is None or root.last_committed_model_call_id != reference.boundary_model_call_id:
            faults.append(f"{reference.key}: another boundary")
        if reference.key in seen:
            faults.append(f"{reference.key}: twice")
        if reference.key not in keys:
            faults.append(f"{reference.key}: missing")
        seen.add(reference.key)
    return faults


def base_evidence() -> Evidence:
    """A valid snapshot that needs no staged rows but those of its storage references."""
    evidence = an_evidence()
    ledger, replay = evidence.ledger.value, evidence.replay.value
    assert ledger is not None
    assert replay is not None
    return replace(
        evidence,
        ledger=replace(evidence.ledger, value=ledger.model_copy(update={"groups": []})),
        replay=replace(evidence.replay, value=replay.model_copy(update={"groups": []})),
    )


def bench_rows(count: int, rounds: int) -> None:
    """Row 3 of the table."""
    continuations, references, keys = index_files(count)
    base = base_evidence()
    works: dict[str, Callable[[], Any]] = {
        "ckptctl, one core": lambda: rows_with_ckptctl(continuations, references, keys, base),
        "pydantic, line by line": lambda: rows_with_pydantic(continuations, references, keys),
    }
    _demand_silence(works.values())
    times = in_turns({**works, **duckdb_or_none(continuations, references, keys)}, rounds)
    memory = [f"{name} {peak_mib(work):,.0f} MiB" for name, work in works.items()]
    size = (len(continuations) + len(references)) / MEBIBYTE
    compare(
        f"{count:,} continuations and {count:,} storage references ({size:.0f} MiB) against {count:,} keys of TransferQueue",
        times,
        f"peak memory beyond the input: {'; '.join(memory)}",
        "goals: 4 on one core, 6 on two; a third of the memory. DuckDB compares keys only and checks no row",
    )


def _demand_silence(works: Iterable[Callable[[], Any]]) -> None:
    for work in works:
        found = work()
        assert not found, found[:3]
