"""SHA-256 as the field writes it, BLAKE3 as the checksum file does: 64 lower-case hex digits over stored bytes.

A foreign file is never re-serialised to be hashed.
"""

from __future__ import annotations

import hashlib

from blake3 import blake3

from ckptctl.domain.source import ByteSource

PIECE_BYTES = 1 << 20
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    """SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def blake3_hex(data: bytes | bytearray | memoryview) -> str:
    """BLAKE3 of `data`."""
    return blake3(data).hexdigest()


def sha256_of(source: ByteSource) -> str:
    """SHA-256 of everything that a source holds, read in pieces."""
    digest = hashlib.sha256()
    offset = 0
    while piece := source.read_at(offset, PIECE_BYTES):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()
