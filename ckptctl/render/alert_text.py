"""One line for Nagios, Icinga, Checkmk and their like: state, reasons, and after a bar what can be drawn over time."""

from __future__ import annotations

from collections.abc import Iterator

from ckptctl.domain.amounts import duration, plural
from ckptctl.domain.metrics import DirectoryFacts
from ckptctl.domain.safe_text import inert, safe
from ckptctl.planning.alert import AgeLimits, Alert, AlertState


def alert_line(alert: Alert, found: DirectoryFacts | None = None, limits: AgeLimits | None = None) -> str:
    """The line; the bar that begins the figures stands in it once."""
    told = "; ".join(alert.reasons)
    if found is not None and found.snapshots is not None:
        told += f" ({_count(found)})"
    figures = "" if found is None else " ".join(_figures(found, limits or AgeLimits()))
    line = f"CKPTCTL {alert.state.name} - {safe(told).replace('|', '/')}"
    return inert(f"{line} | {figures}\n" if figures else f"{line}\n")


def unknown_line(message: str) -> str:
    """What could not be told, and why."""
    return alert_line(Alert(AlertState.UNKNOWN, (message,)))


def _count(found: DirectoryFacts) -> str:
    valid = found.newest("valid")
    counted = plural(len(found.snapshots or ()), "snapshot")
    if valid is None:
        return counted
    age = "of unknown age" if valid.age_s is None else f"{duration(valid.age_s)} old"
    return f"{counted}; newest valid: {valid.path}, {age}, looked at {valid.level}"


def _figures(found: DirectoryFacts, limits: AgeLimits) -> Iterator[str]:
    """`label=value[unit];warn;critical;least`, for what is known."""
    valid = found.newest("valid")
    if valid is not None and valid.age_s is not None:
        yield f"age={valid.age_s:.0f}s;{_limit(limits.warn_s)};{_limit(limits.critical_s)};0"
    if valid is not None:
        yield f"size={valid.size_bytes}B;;;0"
    if found.snapshots is not None:
        yield f"snapshots={len(found.snapshots)};;;0"
        yield f"valid={sum(item.verdict == 'valid' for item in found.snapshots)};;;0"
    if found.admission_closed_s is not None:
        yield f"admission_closed={found.admission_closed_s:.3f}s;;;0"
    if "trash" in found.sizes_bytes:
        yield f"trash={found.sizes_bytes['trash']}B;;;0"


def _limit(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.0f}"
