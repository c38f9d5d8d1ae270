"""Durations on the command line take a unit: `90s`, `5m`, `2h`, `1d`. A number alone, or an unknown unit, is refused."""

from __future__ import annotations

import re

from ckptctl.errors import UsageError

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z]+)\Z")


def parse_duration_s(text: str, option: str) -> float:
    """Seconds. Raises UsageError."""
    found = _FORM.match(text.strip())
    if found is None or found.group(2) not in _UNITS_S:
        raise UsageError(
            f"`{option}` takes a duration with a unit, not `{text}`",
            hint=f"units: {', '.join(_UNITS_S)}; for example `90s`",
        )
    return float(found.group(1)) * _UNITS_S[found.group(2)]
