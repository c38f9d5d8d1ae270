"""Where bytes come from, for readers that must not hold a whole file: a size and positioned reads.

The file-backed implementation lives in `adapters.local_store`; `BytesSource` serves what is already in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ByteSource(Protocol):
    """Random access to immutable bytes."""

    @property
    def size_bytes(self) -> int:
        """Total size."""
        ...

    def read_at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer only at the end."""
        ...


@dataclass(frozen=True, slots=True)
class BytesSource:
    """Bytes in memory as a ByteSource."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        """Total size."""
        return len(self.data)

    def read_at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`."""
        return self.data[offset : offset + count]


@dataclass(frozen=True, slots=True)
class SliceSource:
    """`size_bytes` bytes of another source, from `offset`; whoever makes one has checked that they exist."""

    source: ByteSource
    offset: int
    size_bytes: int

    def read_at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset` of the slice."""
        return self.source.read_at(self.offset + offset, max(0, min(count, self.size_bytes - offset)))
