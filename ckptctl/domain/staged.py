"""A staged row (one model call's token delta) as values, its digests, and its structural rules (data-plane section 9).

Nothing here reads or writes tensors (`formats.staged_row` does) or compares a row with receipts, lineage and tags (the rules do).
Every integer is hashed big-endian; stored columns are little-endian, so they are swapped as whole words and never as numbers:
negative zero and every finite bit pattern survive.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ckptctl.domain.dataplane import ROUTED_EXPERTS_FIELD, TensorValue
from ckptctl.domain.finding import Defect
from ckptctl.domain.ids import staging_key
from ckptctl.domain.staged_columns import big_endian, has_negative, is_mask, is_zero_outside, little_endian
from ckptctl.domain.staged_extras import (
    envelope,
    envelope_pieces,
    nested,
    nested_pieces,
    text_block,
    typed_pieces,
)

STAGED_SCHEMA_VERSION = 2
CALL_DIGEST_VERSION = 2
EXTRAS_DIGEST_VERSION = 1
CAPTURE_MODES: tuple[Literal["text", "token_in"], ...] = ("text", "token_in")
"""By their stored number."""
ROUTES_NONE, ROUTES_ENVELOPE, ROUTES_NESTED = 0, 1, 2

PREFIX_DOMAIN = b"nemo-gym-staging-prefix-v2"
CHAIN_DOMAIN = b"nemo-gym-staging-chain-v1"
_EXTRAS_DOMAIN = b"nemo-gym-staging-extras-v1"
CALL_DOMAIN = b"nemo-gym-staging-call-v2"


@dataclass(frozen=True, slots=True)
class StagedRow:
    """One row of the staging partition. Digests are lower-case hex as stored, not as recomputed; columns are typed arrays
    (`q`, `f`, `f`). `extras` is the parsed metadata without routed experts; `unknown_fields` are attachments of other writers.
    """

    rollout_id: str
    """The capture key of the attempt that made the call."""
    model_call_id: str
    parent_call_id: str | None
    capture_mode: Literal["text", "token_in"]
    prev_len: int
    delta_len: int
    cum_len: int
    weight_version: int
    token_ids: array[int]
    token_mask: array[float]
    logprobs: array[float]
    digest: str
    extras_digest: str
    chain_hash: str | None
    cumulative_hash: str | None
    extras: Mapping[str, Any] | None = None
    routed_experts: TensorValue | None = None
    routed_experts_encoding: int = ROUTES_NONE
    routed_len: int = 0
    schema_version: int = STAGED_SCHEMA_VERSION
    digest_version: int = CALL_DIGEST_VERSION
    extras_digest_version: int = EXTRAS_DIGEST_VERSION
    unknown_fields: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key that names this row."""
        return staging_key(self.rollout_id, self.model_call_id)


def cumulative_hash(token_ids: Sequence[int]) -> str:
    """Hash over all ids from the root of the chain to the end of a call."""
    return cumulative_hash_over((_ids(token_ids),))


def cumulative_hash_over(deltas: Iterable[bytes]) -> str:
    """As `cumulative_hash`, with the ids of each call of the chain as `big_endian` gives them."""
    parts = tuple(deltas)
    hasher = hashlib.sha256(PREFIX_DOMAIN + struct.pack(">Q", sum(map(len, parts)) // 8))
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def chain_hash(parent_chain_hash: str | None, delta_ids: Sequence[int]) -> str:
    """Hash of a call's delta, chained to its parent's; None for a root."""
    return chain_hash_over(parent_chain_hash, _ids(delta_ids))


def chain_hash_over(parent_chain_hash: str | None, ids: bytes) -> str:
    """As `chain_hash`, with the call's ids as `big_endian` gives them."""
    link = b"\x00" if parent_chain_hash is None else b"\x01" + bytes.fromhex(parent_chain_hash)
    hasher = hashlib.sha256(CHAIN_DOMAIN + link + struct.pack(">Q", len(ids) // 8))
    hasher.update(ids)
    return hasher.hexdigest()


def extras_digest(extras: Mapping[str, Any] | None) -> str:
    """Digest of the typed encoding of `extras` (see `extras_to_hash`).

    Raises:
        ValueError: for anything that has no typed encoding: other types, non-string keys, numbers out of range, depth.
    """
    return _extras_hash(typed_pieces(extras))


def row_extras_digest(row: StagedRow) -> str:
    """What the extras digest of a row should be: `extras_digest(extras_to_hash(row))` without building the routes' wire form.

    Raises:
        ValueError: the extras have no typed encoding, or the row says that it has routed experts and does not have them.
    """
    if row.routed_experts_encoding == ROUTES_NONE:
        return _extras_hash(typed_pieces(row.extras))
    routes = _demand_routes(row)
    pieces = envelope_pieces(routes) if row.routed_experts_encoding == ROUTES_ENVELOPE else nested_pieces(routes)
    return _extras_hash(typed_pieces(row.extras or {}, {ROUTED_EXPERTS_FIELD: pieces}))


def extras_to_hash(row: StagedRow) -> Mapping[str, Any] | None:
    """The extras as the digest covers them: the metadata, with the routed experts put back in the form that they had on the wire.

    Raises:
        ValueError: the row says that it has routed experts and does not have them.
    """
    if row.routed_experts_encoding == ROUTES_NONE:
        return row.extras
    routes = _demand_routes(row)
    is_envelope = row.routed_experts_encoding == ROUTES_ENVELOPE
    return {**(row.extras or {}), ROUTED_EXPERTS_FIELD: envelope(routes) if is_envelope else nested(routes)}


def call_payload(row: StagedRow) -> bytes:
    """What the call digest covers, domain string excluded. It takes extras digest and hashes as the row states them."""
    return b"".join(_call_pieces(row, big_endian(row.token_ids)))


def call_digest(row: StagedRow) -> str:
    """The digest that names a staged call."""
    return call_digest_over(row, big_endian(row.token_ids))


def call_digest_over(row: StagedRow, ids: bytes) -> str:
    """As `call_digest`, with the row's token ids as `big_endian` gives them, for who needs these for other hashes as well."""
    hasher = hashlib.sha256(CALL_DOMAIN)
    for piece in _call_pieces(row, ids):
        hasher.update(piece)
    return hasher.hexdigest()


def _call_pieces(row: StagedRow, ids: bytes) -> tuple[bytes, ...]:
    """Long columns stay pieces of their own: nothing is copied together that a hash can take one after the other."""
    mask, logprobs = big_endian(row.token_mask), big_endian(row.logprobs)
    head = (
        bytes((row.schema_version & 0xFF, row.digest_version & 0xFF, row.extras_digest_version & 0xFF)),
        text_block(row.rollout_id),
        text_block(row.model_call_id),
        b"\x00" if row.parent_call_id is None else b"\x01" + text_block(row.parent_call_id),
        text_block(row.capture_mode),
        struct.pack(
            ">6Q", row.prev_len, row.delta_len, row.cum_len, row.weight_version, len(ids) + 8, len(row.token_ids)
        ),
    )
    tail = (bytes.fromhex(row.extras_digest), _present_hash(row.chain_hash), _present_hash(row.cumulative_hash))
    return (
        b"".join(head),
        ids,
        struct.pack(">2Q", len(mask) + 8, len(row.token_mask)) + mask,
        struct.pack(">2Q", len(logprobs) + 8, len(row.logprobs)) + logprobs,
        b"".join(tail),
    )


def stage_call(
    *,
    rollout_id: str,
    model_call_id: str,
    token_ids: Iterable[int],
    token_mask: Iterable[float],
    logprobs: Iterable[float],
    weight_version: int,
    parent: StagedRow | None = None,
    prefix_ids: Sequence[int] = (),
    extras: Mapping[str, Any] | None = None,
    routed_experts: TensorValue | None = None,
    routed_experts_encoding: int = ROUTES_NONE,
) -> StagedRow:
    """Build the row of one call with all its digests. `prefix_ids` are all ids before this delta, from the root of the chain.

    Raises:
        ValueError: the values cannot be digested, or the prefix is not as long as the parent says.
    """
    ids = array("q", token_ids)
    if len(prefix_ids) != (0 if parent is None else parent.cum_len):
        raise ValueError("the prefix is not as long as the parent's chain")
    row = StagedRow(
        rollout_id=rollout_id,
        model_call_id=model_call_id,
        parent_call_id=None if parent is None else parent.model_call_id,
        capture_mode="text" if parent is None else "token_in",
        prev_len=len(prefix_ids),
        delta_len=len(ids),
        cum_len=len(prefix_ids) + len(ids),
        weight_version=weight_version,
        token_ids=ids,
        token_mask=array("f", token_mask),
        logprobs=array("f", logprobs),
        digest="",
        extras_digest="",
        chain_hash=chain_hash(None if parent is None else parent.chain_hash, ids),
        cumulative_hash=cumulative_hash([*prefix_ids, *ids]),
        extras=extras,
        routed_experts=routed_experts,
        routed_experts_encoding=routed_experts_encoding,
        routed_len=0 if routed_experts is None else len(ids),
    )
    row = replace(row, extras_digest=extras_digest(extras_to_hash(row)))
    return replace(row, digest=call_digest(row))


def structural_defects(row: StagedRow) -> tuple[Defect, ...]:
    """What breaks the structural rules of a row: versions, lengths, parentage, mask values. Digests are compared elsewhere."""
    return tuple(_structural_defects(row))


def _structural_defects(row: StagedRow) -> Iterator[Defect]:
    versions = (row.schema_version, row.digest_version, row.extras_digest_version)
    wanted = (STAGED_SCHEMA_VERSION, CALL_DIGEST_VERSION, EXTRAS_DIGEST_VERSION)
    if versions != wanted:
        yield Defect("the versions of a staged row are not known", "schema_version", str(wanted), str(versions))
    lengths = {len(row.token_ids), len(row.token_mask), len(row.logprobs)}
    if lengths != {row.delta_len} or row.delta_len < 1:
        yield Defect(
            "the columns of a staged row are not `delta_len` long",
            "delta_len",
            str(row.delta_len),
            str(sorted(lengths)),
        )
    if row.prev_len + row.delta_len != row.cum_len:
        yield Defect(
            "`cum_len` is not the sum of `prev_len` and `delta_len`",
            "cum_len",
            str(row.prev_len + row.delta_len),
            str(row.cum_len),
        )
    is_root = row.parent_call_id is None
    if is_root and (row.prev_len != 0 or row.capture_mode != "text"):
        yield Defect(
            "a call without parent starts at 0 in mode `text`",
            "parent_call_id",
            "0, text",
            f"{row.prev_len}, {row.capture_mode}",
        )
    if not is_root and (row.prev_len == 0 or row.capture_mode != "token_in"):
        yield Defect(
            "a call with a parent starts after it in mode `token_in`",
            "parent_call_id",
            "> 0, token_in",
            f"{row.prev_len}, {row.capture_mode}",
        )
    if row.chain_hash is None or row.cumulative_hash is None:
        yield Defect("digest version 2 needs chain hash and cumulative hash", "chain_hash_present")
    mask = little_endian(row.token_mask)
    if not is_mask(mask):
        yield Defect("the mask holds other values than 0 and 1", "token_mask_delta")
    elif len(row.token_mask) == len(row.logprobs) and not is_zero_outside(mask, little_endian(row.logprobs)):
        yield Defect("a token that was not generated has a log probability", "generation_logprobs_delta", "0.0")
    if row.routed_len not in ({0} if row.routed_experts_encoding == ROUTES_NONE else {row.delta_len}):
        yield Defect("`routed_len` does not fit the encoding", "routed_len", actual=str(row.routed_len))


def _demand_routes(row: StagedRow) -> TensorValue:
    if row.routed_experts is None:
        raise ValueError("the row has no routed experts although their encoding is set")
    return row.routed_experts


def _extras_hash(pieces: Iterable[bytes]) -> str:
    hasher = hashlib.sha256(_EXTRAS_DOMAIN + bytes([EXTRAS_DIGEST_VERSION]))
    for piece in pieces:
        hasher.update(piece)
    return hasher.hexdigest()


def _present_hash(digest: str | None) -> bytes:
    return b"\x00" if digest is None else b"\x01" + bytes.fromhex(digest)


def _ids(token_ids: Sequence[int]) -> bytes:
    if isinstance(token_ids, array) and token_ids.typecode == "q" and not has_negative(little_endian(token_ids)):
        return big_endian(token_ids)
    try:
        words = array("Q", token_ids)
    except (OverflowError, TypeError) as error:
        raise ValueError("a token id is no unsigned 64-bit number") from error
    return big_endian(words)
