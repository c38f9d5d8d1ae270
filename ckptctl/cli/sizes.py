"""Sizes on the command line take a unit: `600M`, `4G` (binary). A number alone, or an unknown unit, is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

import typer

from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.errors import UsageError

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGT])(?:i?B)?\Z")
_MOST_BYTES, _MOST = 1 << 60, "1048576T"
_OWN_BYTES = 60 << 20
"""What the program itself takes."""
_LEAST = "200M"

MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="Memory that may be used; what needs more is reported as not checked. [default: 600M]",
        show_default=False,
    ),
]


def parse_size(text: str, option: str) -> int:
    """Bytes. Raises UsageError."""
    found = _FORM.match(text.strip())
    if found is None:
        raise UsageError(
            f"`{option}` takes a size with a unit, not `{text}`", hint=f"units: {', '.join(_UNITS)}; for example `4G`"
        )
    size_bytes = float(found.group(1)) * _UNITS[found.group(2)]
    if size_bytes > _MOST_BYTES:
        raise UsageError(f"`{option} {text}` is too large", hint=f"the most is {_MOST}")
    return int(size_bytes)


def limits_of(memory: str | None) -> Limits:
    """The limits of a validation with `--memory`. Raises UsageError."""
    if memory is None:
        return DEFAULT_LIMITS
    wanted = parse_size(memory, "--memory")
    if wanted < parse_size(_LEAST, "--memory"):
        raise UsageError(
            f"`--memory {memory}` is too little", hint=f"the least is {_LEAST}; the program itself takes 60M"
        )
    return replace(DEFAULT_LIMITS, memory_bytes=wanted - _OWN_BYTES)
