"""The typed encoding of a staged row's extras, and routed experts in the two forms that they had on the wire (data-plane 9.2).

Routes may be far larger than everything else of a row: their encodings are also given in pieces, so that a digest needs no
second copy of them. Which form a row has, and what is hashed around it, is `staged`'s business.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ckptctl.domain.dataplane import DTYPE_BYTES, TensorValue

ROUTE_DTYPES = {"int8": "b", "int16": "<h", "int32": "<i"}

_MOST_DEPTH = 64
_CHUNK_BYTES = 3 << 16
"""A multiple of 3, so that pieces of base64 join without padding between them."""
_SIGNS = bytes(0xFF * (byte >> 7) for byte in range(256))


def text_block(text: str) -> bytes:
    """T(text): its UTF-8 bytes with their number in front. Raises ValueError for lone surrogates."""
    data = text.encode()
    return struct.pack(">Q", len(data)) + data


def typed_pieces(value: object, ready: Mapping[str, Iterable[bytes]] | None = None) -> Iterator[bytes]:
    """X(value); with `ready`, `value` is a mapping and these keys (which win over its own) come encoded already.

    Raises:
        ValueError: for anything that has no typed encoding: other types, non-string keys, numbers out of range, depth.
    """
    if ready and isinstance(value, Mapping):
        return _typed_mapping(value, 0, ready)
    return _typed(value, 0)


def envelope(routes: TensorValue) -> str:
    """Routed experts as one text."""
    return _envelope_head(routes) + base64.b64encode(routes.data).decode()


def envelope_pieces(routes: TensorValue) -> Iterator[bytes]:
    """X of `envelope`."""
    head = _envelope_head(routes).encode()
    yield b"S" + struct.pack(">Q", len(head) + (len(routes.data) + 2) // 3 * 4) + head
    for at in range(0, len(routes.data), _CHUNK_BYTES):
        yield base64.b64encode(routes.data[at : at + _CHUNK_BYTES])


def nested(routes: TensorValue) -> Any:
    """Routed experts as nested lists of whole numbers."""
    form = ROUTE_DTYPES[routes.dtype]
    items: list[Any] = [number for (number,) in struct.iter_unpack(form, routes.data)]
    for rank in range(len(routes.shape) - 1, 0, -1):
        size = routes.shape[rank]
        items = [items[at * size : (at + 1) * size] for at in range(math.prod(routes.shape[:rank]))]
    return items


def nested_pieces(routes: TensorValue) -> Iterator[bytes]:
    """X of `nested`: one list of layers for each token, some tokens at a time."""
    if len(routes.shape) != 3 or 0 in routes.shape:
        yield from _typed(nested(routes), 1)
        return
    tokens, layers, experts = routes.shape
    yield b"L" + struct.pack(">Q", tokens)
    token_bytes = layers * experts * DTYPE_BYTES[routes.dtype]
    step = max(1, _CHUNK_BYTES // token_bytes)
    for at in range(0, tokens, step):
        yield _layers(routes.data[at * token_bytes : (at + step) * token_bytes], routes.dtype, layers, experts)


def _layers(data: bytes, dtype: str, layers: int, experts: int) -> bytes:
    """X of a run of tokens' layers: every list head and every byte of every number is put in its place for all at once."""
    size = DTYPE_BYTES[dtype]
    layer_bytes = 9 + 9 * experts
    token_bytes = 9 + layers * layer_bytes
    tokens = len(data) // (layers * experts * size)
    found = bytearray((b"L" + struct.pack(">Q", layers) + bytes(layers * layer_bytes)) * tokens)
    layer = b"L" + struct.pack(">Q", experts) + (b"I" + bytes(8)) * experts
    per_token = layers * experts * size
    for at in range(layers):
        for offset, byte in enumerate(layer):
            if byte:
                found[9 + at * layer_bytes + offset :: token_bytes] = bytes((byte,)) * tokens
        for expert in range(experts):
            start = 9 + at * layer_bytes + 9 + 9 * expert
            number = (at * experts + expert) * size
            signs = data[number + size - 1 :: per_token].translate(_SIGNS)
            for place in range(8 - size):
                found[start + 1 + place :: token_bytes] = signs
            for place in range(size):
                found[start + 8 - place :: token_bytes] = data[number + place :: per_token]
    return bytes(found)


def _envelope_head(routes: TensorValue) -> str:
    return f"nrlre1:{routes.dtype}:{'x'.join(map(str, routes.shape))}:"


def _typed(value: object, depth: int) -> Iterator[bytes]:
    """Booleans before ints, since a bool is an int."""
    if depth > _MOST_DEPTH:
        raise ValueError("extras are nested too deeply")
    if value is None:
        yield b"N"
    elif isinstance(value, bool):
        yield b"B\x01" if value else b"B\x00"
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError("an integer of the extras does not fit 64 bits")
        yield b"I" + struct.pack(">q", value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number of the extras is not finite")
        yield b"F" + struct.pack(">d", value)
    elif isinstance(value, str):
        yield b"S" + text_block(value)
    elif isinstance(value, list | tuple):
        yield b"L" + struct.pack(">Q", len(value))
        for item in value:
            yield from _typed(item, depth + 1)
    elif isinstance(value, Mapping):
        yield from _typed_mapping(value, depth, {})
    else:
        raise ValueError(f"extras hold a value of type {type(value).__name__}")


def _typed_mapping(value: Mapping[Any, Any], depth: int, ready: Mapping[str, Iterable[bytes]]) -> Iterator[bytes]:
    if not all(isinstance(key, str) for key in value):
        raise ValueError("a mapping of the extras has a key that is no string")
    keys = {*value, *ready}
    yield b"D" + struct.pack(">Q", len(keys))
    for key in sorted(keys, key=str.encode):
        yield text_block(key)
        yield from ready[key] if key in ready else _typed(value[key], depth + 1)
