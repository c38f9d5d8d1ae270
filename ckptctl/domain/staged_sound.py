"""The usual staged row, examined at the speed of its hashes: nothing is wrong with it, and it has no routed experts.

Of such a row the answer is known beforehand: every digest comes out as stated. So it is taken straight from the stored bytes,
without a `StagedRow` in between. A row about which anything else is true gets no answer here and is examined by `staged_facts`,
the only place that says what is wrong with one. Whatever gets an answer here gets the same one there.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import NamedTuple

from ckptctl.domain.dataplane import STAGED_FIELDS
from ckptctl.domain.ids import staging_key
from ckptctl.domain.staged import (
    CALL_DIGEST_VERSION,
    CALL_DOMAIN,
    CAPTURE_MODES,
    CHAIN_DOMAIN,
    EXTRAS_DIGEST_VERSION,
    PREFIX_DOMAIN,
    ROUTES_NONE,
    STAGED_SCHEMA_VERSION,
)
from ckptctl.domain.staged_columns import has_negative, is_finite, is_mask, is_zero_outside
from ckptctl.domain.staged_extras import text_block
from ckptctl.domain.staged_facts import StagedFacts

FIELDS = tuple(STAGED_FIELDS)
"""The order in which `examine_sound` takes the fields of a row."""
_VERSIONS = (STAGED_SCHEMA_VERSION, CALL_DIGEST_VERSION, EXTRAS_DIGEST_VERSION)
_CALL_HEAD = CALL_DOMAIN + bytes(_VERSIONS)
_MODES = tuple(map(text_block, CAPTURE_MODES))
_TEXT, _TOKEN_IN = range(len(CAPTURE_MODES))
_NUMBERS, _TWO, _SIX = struct.Struct("<10q"), struct.Struct(">2Q"), struct.Struct(">6Q")
_COUNT = struct.Struct(">Q")
_DIGEST_BYTES = 32
_TRUE, _FALSE, _ABSENT_TEXT = b"\x01", b"\x00", b"\x00"


class Above(NamedTuple):
    """The row above: its key, its facts, and the ids of the calls from the root to it, as digests take them."""

    key: str
    facts: StagedFacts
    ids: Sequence[array[int]]


def examine_sound(
    key: str,
    fields: Sequence[bytes],
    above: Above | None,
    extras_digest_of: Callable[[bytes], bytes | None],
    *,
    is_needed: bool,
) -> tuple[StagedFacts, array[int]] | None:
    """The facts of the row of `key` and its ids as digests take them; None unless everything about it is as it should be.

    `extras_digest_of` gives the digest of stored extras, or None for those that have none.
    """
    ids, mask, logprobs = fields[:3]
    rollout_utf8, call_utf8, parent_utf8 = fields[6:9]
    digest, extras, chain, _, cumulative, _, metadata = fields[15:22]
    numbers = _NUMBERS.unpack(b"".join((*fields[3:6], *fields[10:15], *fields[22:24])))
    mode, prev_len, delta_len, cum_len, weight_version, _, routed_len = numbers[3:]
    if not _is_usual(fields, numbers, is_root=above is None) or extras_digest_of(metadata) != extras:
        return None
    try:
        rollout, call = rollout_utf8.decode(), call_utf8.decode()
        parent_call = None if above is None else parent_utf8.decode()
    except UnicodeDecodeError:
        return None
    swapped = _swapped("q", ids)
    head = (
        _CALL_HEAD, _COUNT.pack(len(rollout_utf8)), rollout_utf8, _COUNT.pack(len(call_utf8)), call_utf8,
        _FALSE if above is None else _TRUE + _COUNT.pack(len(parent_utf8)) + parent_utf8, _MODES[mode],
        _SIX.pack(prev_len, delta_len, cum_len, weight_version, len(ids) + 8, delta_len),
    )  # fmt: skip
    columns = (
        swapped, _TWO.pack(len(mask) + 8, delta_len), _swapped("I", mask),
        _TWO.pack(len(logprobs) + 8, delta_len), _swapped("I", logprobs),
    )  # fmt: skip
    tail = (extras, _TRUE, chain, _TRUE, cumulative)
    link = _FALSE if above is None else _TRUE + bytes.fromhex(above.facts.chain_hash or "")
    prefix = (*(above.ids if above is not None else ()), swapped)
    is_as_stated = (
        staging_key(rollout, call) == key
        and sha256(b"".join((*head, *columns, *tail))).digest() == digest
        and sha256(b"".join((CHAIN_DOMAIN, link, _COUNT.pack(delta_len), swapped))).digest() == chain
        and _prefix_digest(prefix) == cumulative
    )
    if not is_as_stated:
        return None
    digest_hex, extras_hex, chain_hex, cumulative_hex = digest.hex(), extras.hex(), chain.hex(), cumulative.hex()
    facts = StagedFacts(
        rollout, call, parent_call, None if above is None else above.key, CAPTURE_MODES[mode],
        prev_len, delta_len, cum_len, weight_version, _VERSIONS,
        digest_hex, extras_hex, chain_hex, cumulative_hex, routed_len,
        digest_hex, extras_hex, chain_hex, cumulative_hex, is_needed=is_needed,
    )  # fmt: skip
    return facts, swapped


def _is_usual(fields: Sequence[bytes], numbers: tuple[int, ...], *, is_root: bool) -> bool:
    """Whether a row keeps the structural rules (`staged.structural_defects`) and its columns can be digested."""
    ids, mask, logprobs = fields[:3]
    parent_utf8, has_parent = fields[8:10]
    digest, extras, chain, has_chain, cumulative, has_cumulative = fields[15:21]
    mode, prev_len, delta_len, cum_len, weight_version, encoding, routed_len = numbers[3:]
    if is_root:
        is_linked = has_parent == _FALSE and parent_utf8 == _ABSENT_TEXT and prev_len == 0 and mode == _TEXT
    else:
        is_linked = has_parent == _TRUE and prev_len > 0 and mode == _TOKEN_IN
    return (
        is_linked
        and numbers[:3] == _VERSIONS
        and encoding == ROUTES_NONE
        and routed_len == 0
        and len(ids) == 8 * delta_len > 0
        and len(mask) == len(logprobs) == 4 * delta_len
        and prev_len + delta_len == cum_len
        and weight_version >= 0
        and has_chain == has_cumulative == _TRUE
        and len(digest) == len(extras) == len(chain) == len(cumulative) == _DIGEST_BYTES
        and not has_negative(ids)
        and is_mask(mask)
        and is_finite(logprobs)
        and is_zero_outside(mask, logprobs)
    )


def _swapped(typecode: str, stored: bytes) -> array[int]:
    """The words of a column, in memory as digests take them: big-endian on any machine."""
    words: array[int] = array(typecode, stored)
    words.byteswap()
    return words


def _prefix_digest(prefix: Sequence[array[int]]) -> bytes:
    hasher = sha256(PREFIX_DOMAIN + _COUNT.pack(sum(map(len, prefix))))
    for ids in prefix:
        hasher.update(ids)
    return hasher.digest()
