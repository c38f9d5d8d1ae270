"""One of several parts into which the byte work of a validation is divided.

A shard leaves the rest to others, who read it now; a subset leaves it unread. What is divided are the bytes that only level
full reads: checksums of whole files, and the staged rows of one call chain. Everything else is judged in every part alike, so
that parts can be compared and merged. Who is given what depends on names and sizes alone, never on order, time or machine.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Literal

from ckptctl.domain.digest import sha256_hex

MOST_PARTS = 10_000
_FRACTION = re.compile(r"([0-9]{1,5})/([0-9]{1,5})")
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,3})?) ?%")
OTHER_SHARD = "another shard reads it"
ShareKind = Literal["shard", "subset"]


@dataclass(frozen=True, slots=True)
class Share:
    """Part `index` (from 1) of `count`."""

    kind: ShareKind
    index: int
    count: int

    @property
    def reason(self) -> str:
        """Why what is not in this part was not read."""
        return OTHER_SHARD if self.kind == "shard" else f"not in the part of the data that was read ({self.words})"

    @property
    def words(self) -> str:
        """Which part it is."""
        return f"{self.index}/{self.count}"

    def has(self, name: str) -> bool:
        """Whether something that cannot be weighed belongs to this part."""
        return int(sha256_hex(name.encode("utf-8", "surrogateescape"))[:16], 16) % self.count == self.index - 1

    def of_files(self, files: Iterable[tuple[str, int]]) -> frozenset[str]:
        """The files (path, size in bytes) of this part: the largest first, each to the part that has least so far."""
        loads = [(0, index) for index in range(1, self.count + 1)]
        mine: list[str] = []
        for path, size_bytes in sorted(files, key=lambda file: (-file[1], file[0])):
            load, index = heapq.heappop(loads)
            heapq.heappush(loads, (load + size_bytes + 1, index))
            if index == self.index:
                mine.append(path)
        return frozenset(mine)


def parse_fraction(text: str, kind: ShareKind) -> Share:
    """`2/4`: the second of four parts. Raises ValueError, in words."""
    match = _FRACTION.fullmatch(text)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count <= MOST_PARTS:
        raise ValueError(f"`{text}` is not one of I/N with I from 1 to N and N up to {MOST_PARTS}")
    return Share(kind, index, count)


def parse_subset(text: str, day: int) -> Share:
    """`10%`: one of ten parts, the next one each day; `3/10`: that one. `day`: since 1970. Raises ValueError, in words."""
    if not text.endswith("%"):
        return parse_fraction(text, "subset")
    match = _PERCENT.fullmatch(text)
    percent = float(match[1]) if match else 0.0
    count = ceil(100 / percent) if 0 < percent <= 100 else 0
    if not 1 <= count <= MOST_PARTS:
        raise ValueError(
            f"`{text}` is no percentage from {100 / MOST_PARTS:g}% (one part in {MOST_PARTS:,}) to 100%, "
            "with at most three decimals"
        )
    return Share("subset", day % count + 1, count)
