"""Sizes, lengths of time and counts in words, as every text for people has them."""

from __future__ import annotations


def size(byte_count: int) -> str:
    """A size for people: `412 KiB`."""
    value = float(byte_count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def duration(seconds: float) -> str:
    """A length of time for people: `250 ms`, `45 s`, `3 min`, `2 h`, `5 d`; the largest unit of which there is at least one."""
    for unit, length_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length_s:
            value = seconds / length_s
            return f"{value:.0f} {unit}" if value >= 10 or value == int(value) else f"{value:.1f} {unit}"
    return set_time(seconds) if 0 < seconds < 1 else f"{seconds:.0f} s"


def set_time(seconds: float) -> str:
    """A length of time that somebody set, as they would write it: `1 ms`, `250 ms`, `2.5 s`, `300 s`."""
    return f"{seconds * 1000:.3g} ms" if 0 < seconds < 0.9995 else f"{round(seconds, 2):.10g} s"


def short_time(seconds: float) -> str:
    """A measured length of time with three digits or so: `0.42 ms`, `41.2 ms`, `1.23 s`, `3 min`."""
    for unit, factor in (("ms", 1000.0), ("s", 1.0)):
        value = seconds * factor
        if value < (100 if unit == "s" else 999.5):
            return (
                f"{value:.2f} {unit}" if value < 10 else f"{value:.1f} {unit}" if value < 100 else f"{value:.0f} {unit}"
            )
    return duration(seconds)


def plural(count: int, noun: str, several: str | None = None) -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"
