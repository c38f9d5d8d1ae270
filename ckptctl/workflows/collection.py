"""How often Python looks for garbage while a snapshot is loaded: seldom, since what is loaded has no cycles and is large.

Every full collection walks over all values that were loaded so far; by default that is a quarter of the time of a validation.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (50_000, 20, 100)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect a hundred times less often, for as long as this lasts; also a decorator."""
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
