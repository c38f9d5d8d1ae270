"""From staged rows to what outlives them: the receipt of a sealed attempt, the canonical rows of a finished group.

It walks one call chain from its last call to its root, over the capture keys of older attempts where an attempt was
continued, and demands that every link's chain hash follows from its parent (data-plane section 9). When sealing
happens is the rollout loop's business.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Any

from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.ids import capture_key, staging_key
from ckptctl.domain.staged import StagedRow, chain_hash
from ckptctl.formats.staged_row import decode_staged_row
from ckptctl.sim.plane import DataPlane

RECEIPT_SCHEMA_VERSION, FINGERPRINT_VERSION = 2, 2
META_FIELDS = (
    "input_ids",
    "input_lengths",
    "generation_logprobs",
    "token_mask",
    "sample_mask",
    "prompt_ids_for_adv",
    "total_reward",
)
"""The fields of a finished row; the other canonical columns are produced by training."""


def call_chain(
    plane: DataPlane, partition: str, *, rollout: str, attempt_index: int, capture: str, call_id: str
) -> tuple[StagedRow, ...]:
    """The rows of one chain, root first.

    Raises:
        DefectError: a row is absent or damaged, or no candidate is the parent that the chain hash demands.
    """
    keys = plane.keys(partition)
    key = staging_key(capture, call_id)
    if key not in keys:
        raise DefectError(Defect("the terminal call was not staged", key))
    chain = [decode_staged_row(plane.get(partition, key))]
    captures = [capture_key(rollout, attempt) for attempt in range(attempt_index, -1, -1)]
    while (parent_id := chain[-1].parent_call_id) is not None:
        child = chain[-1]
        candidates = (staging_key(name, parent_id) for name in captures)
        rows = (decode_staged_row(plane.get(partition, name)) for name in candidates if name in keys)
        parent = next((row for row in rows if _is_parent(row, child)), None)
        if parent is None:
            raise DefectError(Defect("no staged row is the parent of this call", child.key, parent_id))
        chain.append(parent)
    return tuple(reversed(chain))


def capture_receipt(
    chain: Sequence[StagedRow], *, capture: str, reward: float, sealed_at: float
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The receipt of an attempt (snapshot-layout section 6.5) and the staging keys that it needs."""
    receipt = {
        "schema_version": RECEIPT_SCHEMA_VERSION,
        "digest_version": chain[-1].digest_version,
        "extras_digest_version": chain[-1].extras_digest_version,
        "rollout_id": capture,
        "reward": reward,
        "terminal_model_call_id": chain[-1].model_call_id,
        "manifest": [_receipt_row(row, sealed_at) for row in chain],
        "capture_poisoned": False,
        "failure_reason": None,
        "terminal_selection": "declared",
        "terminal_attribution_reason": None,
    }
    return receipt, tuple(row.key for row in chain)


def canonical_fields(chain: Sequence[StagedRow], *, reward: float, is_masked: bool) -> dict[str, TensorValue]:
    """The produced fields of one canonical row. An empty chain (capture failed) gives one masked padding token."""
    ids, mask, logprobs = array("q"), array("f"), array("f")
    for row in chain:
        ids.extend(row.token_ids)
        mask.extend(row.token_mask)
        logprobs.extend(row.logprobs)
    if not ids:
        ids.append(0)
        mask.append(0.0)
        logprobs.append(0.0)
    first_generated = next((at for at, value in enumerate(mask) if value), len(mask))
    return {
        "input_ids": _column("int64", ids),
        "input_lengths": TensorValue("int64", (), struct.pack("<q", len(ids))),
        "generation_logprobs": _column("float32", logprobs),
        "token_mask": _column("float32", mask),
        "sample_mask": TensorValue("float32", (), struct.pack("<f", 0.0 if is_masked else 1.0)),
        "prompt_ids_for_adv": _column("int64", ids[:first_generated]),
        "total_reward": TensorValue("float32", (), struct.pack("<f", reward)),
    }


def _is_parent(row: StagedRow, child: StagedRow) -> bool:
    return row.cum_len == child.prev_len and chain_hash(row.chain_hash, child.token_ids) == child.chain_hash


def _receipt_row(row: StagedRow, sealed_at: float) -> dict[str, Any]:
    return {
        "schema_version": row.schema_version,
        "digest_version": row.digest_version,
        "extras_digest_version": row.extras_digest_version,
        "model_call_id": row.model_call_id,
        "parent_call_id": row.parent_call_id,
        "prev_len": row.prev_len,
        "delta_len": row.delta_len,
        "cum_len": row.cum_len,
        "weight_version": row.weight_version,
        "digest": row.digest,
        "extras_digest": row.extras_digest,
        "staging_key": row.key,
        "mode": row.capture_mode,
        "chain_hash": row.chain_hash,
        "cumulative_hash": row.cumulative_hash,
        "response_id": f"resp-{row.digest[:12]}",
        "admitted_at": sealed_at,
        "output_fingerprint": sha256_hex(f"output:{row.digest}".encode()),
        "continuation_fingerprint": sha256_hex(f"continuation:{row.digest}".encode()),
        "fingerprint_version": FINGERPRINT_VERSION,
    }


def _column(dtype: str, values: array[Any]) -> TensorValue:
    # Stored data is little-endian; so is every machine that this cluster runs on.
    return TensorValue(dtype, (len(values),), values.tobytes())
