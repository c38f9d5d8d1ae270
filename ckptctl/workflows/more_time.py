"""A deadline that passed: which key of the configuration, or which option, gives what it bounds more time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ckptctl.errors import DeadlineError

PREPARE = "`rollout_checkpointing.gym.prepare_timeout_s`"
CONTROL = "`ckptctl.control_timeout_s`"


def way_to_more_time(error: DeadlineError, setting: str) -> str:
    """The hint of the error, which names the setting unless whoever raised it knew better."""
    if error.hint is not None and error.hint != DeadlineError.default_hint:
        return error.hint
    return f"give more time with {setting}, or see with `ckptctl inspect --live` what it waits for"


@contextmanager
def bounded_by(setting: str) -> Iterator[None]:
    """What runs here has as long as the setting says. Raises DeadlineError: as what runs here, with a hint that names it."""
    try:
        yield
    except DeadlineError as error:
        error.hint = way_to_more_time(error, setting)
        raise
