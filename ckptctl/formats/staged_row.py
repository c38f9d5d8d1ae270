"""A staged row as the 24 (or 25) tensors that the staging partition holds, and back (data-plane section 9.1).

Decoding demands every required field with its dtype and rank, readable texts and numbers that can be digested; whether the
row is *right* (structural rules, digests, lineage, tags) is `domain.staged` and the rules of the full level.
"""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Mapping
from typing import Any

from ckptctl.domain.dataplane import DTYPE_BYTES, ROUTED_EXPERTS_FIELD, STAGED_FIELDS, TensorValue
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.domain.staged import (
    CAPTURE_MODES,
    ROUTES_ENVELOPE,
    ROUTES_NESTED,
    ROUTES_NONE,
    StagedRow,
    call_digest,
    chain_hash,
    cumulative_hash,
    extras_digest,
    stage_call,
)
from ckptctl.domain.staged_columns import has_negative, is_finite
from ckptctl.domain.staged_extras import ROUTE_DTYPES
from ckptctl.formats.canonical_json import load_json

__all__ = [
    "StagedRow",
    "call_digest",
    "chain_hash",
    "cumulative_hash",
    "decode_staged_row",
    "encode_staged_row",
    "extras_digest",
    "row_tags",
    "stage_call",
]

_ABSENT_TEXT = b"\x00"
_ABSENT_HASH = bytes(32)
_NO_EXTRAS = b"null"
_WANTED = tuple((name, dtype, rank, DTYPE_BYTES[dtype]) for name, (dtype, rank) in STAGED_FIELDS.items())


def row_tags(row: StagedRow) -> dict[str, Any]:
    """The tags under which NeMo-RL stores a staged row."""
    return {
        "rollout_id": row.rollout_id,
        "model_call_id": row.model_call_id,
        "parent_call_id": row.parent_call_id,
        "prev_len": row.prev_len,
        "delta_len": row.delta_len,
        "cum_len": row.cum_len,
        "weight_version": row.weight_version,
        "digest": row.digest,
        "schema_version": row.schema_version,
    }


def encode_staged_row(row: StagedRow) -> dict[str, TensorValue]:
    """The fields of one row in the order of data-plane section 9.1, `routed_experts` last where there are any."""
    metadata = json.dumps(row.extras, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    fields = {
        "token_ids_delta": _column("int64", row.token_ids),
        "token_mask_delta": _column("float32", row.token_mask),
        "generation_logprobs_delta": _column("float32", row.logprobs),
        "schema_version": _number(row.schema_version),
        "digest_version": _number(row.digest_version),
        "extras_digest_version": _number(row.extras_digest_version),
        "rollout_id_utf8": _octets(row.rollout_id.encode()),
        "model_call_id_utf8": _octets(row.model_call_id.encode()),
        "parent_call_id_utf8": _octets(_ABSENT_TEXT if row.parent_call_id is None else row.parent_call_id.encode()),
        "parent_call_id_present": _flag(row.parent_call_id is not None),
        "capture_mode": _number(CAPTURE_MODES.index(row.capture_mode)),
        "prev_len": _number(row.prev_len),
        "delta_len": _number(row.delta_len),
        "cum_len": _number(row.cum_len),
        "weight_version": _number(row.weight_version),
        "digest_bytes": _octets(bytes.fromhex(row.digest)),
        "extras_digest_bytes": _octets(bytes.fromhex(row.extras_digest)),
        "chain_hash_bytes": _octets(_ABSENT_HASH if row.chain_hash is None else bytes.fromhex(row.chain_hash)),
        "chain_hash_present": _flag(row.chain_hash is not None),
        "cumulative_hash_bytes": _octets(
            _ABSENT_HASH if row.cumulative_hash is None else bytes.fromhex(row.cumulative_hash)
        ),
        "cumulative_hash_present": _flag(row.cumulative_hash is not None),
        "extras_metadata_json": _octets(metadata),
        "routed_experts_encoding": _number(row.routed_experts_encoding),
        "routed_len": _number(row.routed_len),
    }
    if row.routed_experts is not None:
        fields[ROUTED_EXPERTS_FIELD] = row.routed_experts
    return fields


def decode_staged_row(
    fields: Mapping[str, TensorValue], limits: Limits = DEFAULT_LIMITS, *, with_routes: bool = True
) -> StagedRow:
    """Read one row from its fields. Fields of other names are listed, not refused.

    Without `with_routes` the row has no routed experts, whatever its encoding says: its extras cannot be digested then.

    Raises:
        DefectError: a required field is absent, of another dtype or rank, or holds what no digest can cover.
    """
    _demand_fields(fields)
    reader = _Reader(fields)
    encoding = reader.number("routed_experts_encoding", 0, ROUTES_NESTED)
    routes = None if encoding == ROUTES_NONE or not with_routes else _routes(fields, encoding)
    return StagedRow(
        rollout_id=reader.text("rollout_id_utf8"),
        model_call_id=reader.text("model_call_id_utf8"),
        parent_call_id=reader.optional_text("parent_call_id_utf8", "parent_call_id_present"),
        capture_mode=CAPTURE_MODES[reader.number("capture_mode", 0, len(CAPTURE_MODES) - 1)],
        prev_len=reader.number("prev_len"),
        delta_len=reader.number("delta_len"),
        cum_len=reader.number("cum_len"),
        weight_version=reader.number("weight_version"),
        token_ids=reader.ids("token_ids_delta"),
        token_mask=reader.floats("token_mask_delta"),
        logprobs=reader.floats("generation_logprobs_delta"),
        digest=reader.digest("digest_bytes"),
        extras_digest=reader.digest("extras_digest_bytes"),
        chain_hash=reader.digest("chain_hash_bytes") if reader.flag("chain_hash_present") else None,
        cumulative_hash=reader.digest("cumulative_hash_bytes") if reader.flag("cumulative_hash_present") else None,
        extras=reader.extras("extras_metadata_json", limits),
        routed_experts=routes,
        routed_experts_encoding=encoding,
        routed_len=reader.number("routed_len"),
        schema_version=reader.number("schema_version"),
        digest_version=reader.number("digest_version"),
        extras_digest_version=reader.number("extras_digest_version"),
        unknown_fields=tuple(sorted(set(fields) - set(STAGED_FIELDS) - {ROUTED_EXPERTS_FIELD})),
    )


class _Reader:
    """Typed access to fields whose dtype, rank and size were checked."""

    def __init__(self, fields: Mapping[str, TensorValue]) -> None:
        self._fields = fields

    def number(self, name: str, least: int = 0, most: int = 2**63 - 1) -> int:
        value = int.from_bytes(self._fields[name].data, "little", signed=True)
        if not least <= value <= most:
            raise DefectError(Defect("a number of a staged row is out of range", name, f"{least}..{most}", str(value)))
        return value

    def flag(self, name: str) -> bool:
        data = self._fields[name].data
        if data not in (b"\x00", b"\x01"):
            raise DefectError(Defect("a flag of a staged row is neither true nor false", name, "0 or 1", str(data[0])))
        return data == b"\x01"

    def optional_text(self, name: str, flag_name: str) -> str | None:
        """A text that is one NUL byte where it is absent: any other would be a change that no digest covers."""
        if self.flag(flag_name):
            return self.text(name)
        if self._fields[name].data != _ABSENT_TEXT:
            raise DefectError(Defect("an absent text of a staged row is not one NUL byte", name))
        return None

    def text(self, name: str) -> str:
        try:
            return self._fields[name].data.decode()
        except UnicodeDecodeError as error:
            raise DefectError(Defect("a text of a staged row is not UTF-8", name, actual=error.reason)) from error

    def digest(self, name: str) -> str:
        data = self._fields[name].data
        if len(data) != len(_ABSENT_HASH):
            raise DefectError(
                Defect("a digest of a staged row has another length", name, "32 bytes", f"{len(data)} bytes")
            )
        return data.hex()

    def ids(self, name: str) -> array[int]:
        data = self._fields[name].data
        values: array[int] = _words("q", data)
        if has_negative(data):
            raise DefectError(Defect("a token id is negative", name, ">= 0", str(min(values))))
        return values

    def floats(self, name: str) -> array[float]:
        data = self._fields[name].data
        if not is_finite(data):
            raise DefectError(Defect("a number of a staged row is not finite", name))
        return _words("f", data)

    def extras(self, name: str, limits: Limits) -> Mapping[str, Any] | None:
        data = self._fields[name].data
        if data == _NO_EXTRAS:
            return None
        try:
            value = load_json(data, limits)
        except DefectError as error:
            first = error.defects[0]
            raise DefectError(
                Defect(first.message, f"{name}: {first.location}", first.expected, first.actual)
            ) from error
        if value is not None and not isinstance(value, dict):
            raise DefectError(
                Defect("the extras of a staged row are no object", name, "object or null", type(value).__name__)
            )
        return value


def _demand_fields(fields: Mapping[str, TensorValue]) -> None:
    defects = []
    for name, dtype, rank, element_bytes in _WANTED:
        value = fields.get(name)
        if value is None:
            defects.append(Defect("a staged row lacks a required field", name))
            continue
        found, shape, data = value
        if found != dtype or len(shape) != rank:
            is_like = f"{found}, rank {len(shape)}"
            defects.append(Defect("a field of a staged row is of another type", name, f"{dtype}, rank {rank}", is_like))
        elif len(data) != (shape[0] * element_bytes if rank else element_bytes):
            defects.append(Defect("a field of a staged row does not have the bytes of its shape", name))
    if defects:
        raise DefectError(*defects)


def _routes(fields: Mapping[str, TensorValue], encoding: int) -> TensorValue:
    value = fields.get(ROUTED_EXPERTS_FIELD)
    if value is None:
        raise DefectError(Defect("a staged row says that it has routed experts and lacks them", ROUTED_EXPERTS_FIELD))
    wanted = set(ROUTE_DTYPES) if encoding == ROUTES_ENVELOPE else {"int16"}
    if value.dtype not in wanted or len(value.shape) != 3 or 0 in value.shape:
        expected, found = f"{' or '.join(sorted(wanted))}, rank 3", f"{value.dtype}, shape {list(value.shape)}"
        raise DefectError(Defect("routed experts are of another type", ROUTED_EXPERTS_FIELD, expected, found))
    if len(value.data) != math.prod(value.shape) * DTYPE_BYTES[value.dtype]:
        raise DefectError(Defect("routed experts do not have the bytes of their shape", ROUTED_EXPERTS_FIELD))
    return value


def _words(typecode: str, data: bytes) -> array[Any]:
    words: array[Any] = array(typecode)
    words.frombytes(data)
    if sys.byteorder == "big":  # stored data is little-endian
        words.byteswap()
    return words


def _column(dtype: str, values: array[Any]) -> TensorValue:
    words = values
    if sys.byteorder == "big":  # stored data is little-endian
        words = values[:]
        words.byteswap()
    return TensorValue(dtype, (len(values),), words.tobytes())


def _number(value: int) -> TensorValue:
    return TensorValue("int64", (), value.to_bytes(8, "little", signed=True))


def _flag(value: bool) -> TensorValue:
    return TensorValue("bool", (), b"\x01" if value else b"\x00")


def _octets(data: bytes) -> TensorValue:
    return TensorValue("uint8", (len(data),), data)
