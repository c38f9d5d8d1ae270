"""The token capture of a policy model: one staged row and one lineage row per call, linked over capture keys.

Custody files (`<capture key>.lineage.jsonl`) are kept in memory byte for byte as they stand on disk; checkpoints
copy these bytes. Token ids are not kept: the prefix of a call is encoded again from its history and must hash to
what the parent's lineage row says.
"""

from __future__ import annotations

import base64
import os
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ckptctl.adapters import durable
from ckptctl.domain.canonical import compact_digest
from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.ids import lineage_file_name, staging_key
from ckptctl.domain.lineage import staging_keys
from ckptctl.domain.staged import StagedRow, cumulative_hash, stage_call
from ckptctl.formats.lineage import decode_lineage, encode_lineage_line
from ckptctl.formats.staged_row import encode_staged_row, row_tags
from ckptctl.sim.policy_text import Item, carried_from, encode

LINEAGE_SUFFIX = lineage_file_name("")
FINGERPRINT_VERSION = 2
FAILURE_REASON = "generation_failed"


class CaptureError(Exception):
    """A call cannot be linked: its parent is unknown or its history is not the parent's."""


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """What a child needs of its parent."""

    model_call_id: str
    cum_len: int
    chain_hash: str
    cumulative_hash: str
    staging_chain: tuple[str, ...]
    """Root first, own key last."""


class CaptureStore:
    """All lineage that one process holds."""

    def __init__(self, capture_dir: str) -> None:
        durable.make_directory(capture_dir)
        self._dir = capture_dir
        self._custody: dict[str, bytes] = {}
        self._calls: dict[tuple[str, str], CapturedCall] = {}

    def custody(self) -> dict[str, bytes]:
        """Capture key -> bytes of its custody file."""
        return dict(self._custody)

    def find(self, capture: str, call_id: str) -> CapturedCall | None:
        """A call that succeeded."""
        return self._calls.get((capture, call_id))

    def leftovers(self) -> list[str]:
        """Lineage files in the directory; a restore wants none."""
        return sorted(name for name in os.listdir(self._dir) if name.endswith(LINEAGE_SUFFIX))  # noqa: PTH208 - str paths throughout

    def add_call(self, row: StagedRow, parent: CapturedCall | None, facts: Mapping[str, Any]) -> None:
        """Record a call whose row is staged. `facts` are further columns."""
        chain = (*(parent.staging_chain if parent else ()), row.key)
        assert row.chain_hash is not None
        assert row.cumulative_hash is not None
        columns = {
            "model_call_id": row.model_call_id,
            "parent_call_id": row.parent_call_id,
            "staging_key": row.key,
            "staging_chain": list(chain),
            "staging_digest": row.digest,
            "extras_digest": row.extras_digest,
            "mode": row.capture_mode,
            "weight_version": row.weight_version,
            "prev_len": row.prev_len,
            "delta_len": row.delta_len,
            "cum_len": row.cum_len,
            "chain_hash": row.chain_hash,
            "cumulative_hash": row.cumulative_hash,
            "digest": row.cumulative_hash,
            "fingerprint_version": FINGERPRINT_VERSION,
            "response_id": response_id(row.digest),
            "output_fingerprint": sha256_hex(f"output:{row.digest}".encode()),
            "continuation_fingerprint": sha256_hex(f"continuation:{row.digest}".encode()),
            **facts,
        }
        self._append(row.rollout_id, columns)
        self._calls[row.rollout_id, row.model_call_id] = CapturedCall(
            row.model_call_id, row.cum_len, row.chain_hash, row.cumulative_hash, chain
        )

    def add_failure(self, capture: str, call_id: str) -> None:
        """Record a call that failed."""
        self._append(capture, {"model_call_id": call_id, "failure_reason": FAILURE_REASON})

    def install(self, custody: Mapping[str, bytes]) -> None:
        """Take restored custody files over; nothing stays when that fails. Raises StorageError, DefectError."""
        written: list[str] = []
        try:
            for key, data in custody.items():
                rows = [row for row in decode_lineage(data) if row.failure_reason is None and row.event is None]
                path = f"{self._dir}/{lineage_file_name(key)}"
                written.append(path)
                durable.write_file(path, data, sync_parent=False)
                self._custody[key] = data
                for row in rows:
                    self._calls[key, row.model_call_id] = CapturedCall(
                        row.model_call_id,
                        row.cum_len or 0,
                        row.chain_hash or "",
                        row.cumulative_hash or "",
                        staging_keys(row),
                    )
            durable.sync_directory(self._dir)
        except BaseException:
            self._custody.clear()
            self._calls.clear()
            for path in written:
                durable.remove_file(path)
            raise

    def _append(self, capture: str, columns: Mapping[str, Any]) -> None:
        line = encode_lineage_line(columns)
        path = f"{self._dir}/{lineage_file_name(capture)}"
        descriptor = durable.open_append(path)
        try:
            durable.append_line(descriptor, line.removesuffix(b"\n"), path=path, sync=False)
        finally:
            os.close(descriptor)
        self._custody[capture] = self._custody.get(capture, b"") + line


def stage(
    *,
    capture: str,
    call_id: str,
    items: Sequence[Item],
    generated_ids: Sequence[int],
    logprobs: Sequence[float],
    weight_version: int,
    parent: CapturedCall | None,
) -> StagedRow:
    """The staged row of a call. Raises CaptureError."""
    start = 0 if parent is None else carried_from(items)
    prefix, carried = encode(items[:start]), encode(items[start:])
    if parent is not None and cumulative_hash(prefix) != parent.cumulative_hash:
        raise CaptureError(f"the history of {call_id} is not that of its parent {parent.model_call_id}")
    return stage_call(
        rollout_id=capture,
        model_call_id=call_id,
        token_ids=[*carried, *generated_ids],
        token_mask=[*(0.0 for _ in carried), *(1.0 for _ in generated_ids)],
        logprobs=[*(0.0 for _ in carried), *logprobs],
        weight_version=weight_version,
        parent=None if parent is None else _parent_row(parent),
        prefix_ids=prefix,
    )


def _parent_row(parent: CapturedCall) -> StagedRow:
    """As much of the parent's row as a child's digests cover; the lineage holds no more."""
    empty: Any = array("q")
    return StagedRow(
        rollout_id="",
        model_call_id=parent.model_call_id,
        parent_call_id=None,
        capture_mode="text",
        prev_len=0,
        delta_len=0,
        cum_len=parent.cum_len,
        weight_version=0,
        token_ids=empty,
        token_mask=array("f"),
        logprobs=array("f"),
        digest="",
        extras_digest="",
        chain_hash=parent.chain_hash,
        cumulative_hash=parent.cumulative_hash,
    )


def put_body(partition: str, row: StagedRow) -> dict[str, Any]:
    """The request that puts a row into the embedded data plane."""
    return {
        "partition": partition,
        "key": staging_key(row.rollout_id, row.model_call_id),
        "fields": {name: _wire_tensor(value) for name, value in encode_staged_row(row).items()},
        "tags": row_tags(row),
    }


def _wire_tensor(value: TensorValue) -> dict[str, Any]:
    return {"dtype": value.dtype, "shape": list(value.shape), "data_base64": base64.b64encode(value.data).decode()}


def context_facts(items: Sequence[Item], admitted_at: float) -> dict[str, Any]:
    """Lineage columns about what a call saw."""
    digest = compact_digest(list(items))
    return {
        "admitted_at": admitted_at,
        "context_len": len(items),
        "context_digest": digest,
        "fingerprint": sha256_hex(f"context:{digest}".encode()),
    }


def response_id(digest: str) -> str:
    """The id of a response, from its row's digest."""
    return f"resp-{digest[:12]}"
