"""Byte forms that digests depend on, and the digests over canonical JSON (head of snapshot-layout; sections 4, 5 and 7).

Strict *reading* of JSON is `formats.canonical_json`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.replay import ReplayGroup
from ckptctl.domain.rows import ContinuationRow

EMPTY_LIST_DIGEST = "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
ROLLOUT_METRICS_KEY = "rollout_metrics"


def compact_sorted(value: Any) -> bytes:
    """JSON, keys sorted, separators `,` and `:`, ASCII-escaped, no newline. Raises ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def pretty2_nl(value: Any) -> bytes:
    """JSON, keys sorted, indent 2, ASCII-escaped, one final newline."""
    return pretty2(value) + b"\n"


def pretty2(value: Any) -> bytes:
    """As pretty2_nl, no final newline."""
    return json.dumps(value, sort_keys=True, indent=2, allow_nan=False).encode()


def pretty1(value: Any) -> bytes:
    """As pretty2, indent 1."""
    return json.dumps(value, sort_keys=True, indent=1, allow_nan=False).encode()


def record2(value: Mapping[str, Any]) -> bytes:
    """JSON, given field order, indent 2, raw UTF-8, no final newline."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode()


def row(value: msgspec.Struct) -> bytes:
    """One JSON Lines row: declared field order, compact, raw UTF-8, nulls written, one newline."""
    return msgspec.json.encode(value) + b"\n"


def compact_digest(value: Any) -> str:
    """SHA-256 of compact_sorted."""
    return sha256_hex(compact_sorted(value))


def canonical_value(value: Any) -> Any:
    """A tag or extra_info value as the replay digest sees it.

    Raises:
        ValueError: for NaN, infinity, non-string keys and anything that is no JSON value.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number is not finite")
        return float(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a mapping has a key that is no string")
        return {key: canonical_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical_value(item) for item in value]
    raise ValueError(f"a value of type {type(value).__name__} has no canonical form")


def replay_digest(groups: Iterable[ReplayGroup]) -> str:
    """`manifest_digest` of the replay metadata: over the groups in file order, `rollout_metrics` left out. Raises ValueError."""
    return compact_digest(
        [
            {
                "group_id": group.group_id,
                "start_weight": group.start_weight,
                "end_weight": group.end_weight,
                "target_step": group.target_step,
                "meta": {
                    "partition_id": group.meta.partition_id,
                    "task_name": group.meta.task_name,
                    "sample_ids": list(group.meta.sample_ids),
                    "fields": group.meta.fields,
                    "sequence_lengths": group.meta.sequence_lengths,
                    "tags": canonical_value(group.meta.tags),
                    "extra_info": canonical_value(
                        {key: item for key, item in group.meta.extra_info.items() if key != ROLLOUT_METRICS_KEY}
                    ),
                },
            }
            for group in groups
        ]
    )


def roots_digest(rows: Iterable[ContinuationRow]) -> str:
    """`continuation_roots_sha256`: over all agents' rows, sorted by (capture key, call id)."""
    ordered = sorted(rows, key=lambda item: (item.capture_key, item.last_committed_model_call_id))
    plain = msgspec.json.encode(ordered, order="sorted")
    if plain.isascii() and b"\\" not in plain and b"\x7f" not in plain:
        return sha256_hex(plain)  # nothing to escape: the same bytes, ten times as fast for a million rows
    return compact_digest([msgspec.to_builtins(item) for item in ordered])
