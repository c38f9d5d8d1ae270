"""How many cores this process may use: what it is pinned to, and what its control group is allowed."""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Of a container that sees itself as the root of its own group, which is what a quota mostly belongs to."""


def usable_cores(quota: Path = _QUOTA) -> int:
    """At least 1. A job step or a container has fewer than the machine."""
    pinned = len(os.sched_getaffinity(0))
    try:
        allowed, period = quota.read_text(encoding="ascii").split()
        return max(1, min(pinned, ceil(int(allowed) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return pinned  # `max` is no number: no quota
