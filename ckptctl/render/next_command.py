"""A command that a text names, as it has to be typed here: with the configuration that this one was given."""

from __future__ import annotations

import re
import shlex

_LIVE = re.compile(r"(`ckptctl (?:snapshot|publish|restore|gc|inspect))\b([^`]*`)")
"""Commands of a run; `validate` and the others take a path or nothing."""


def with_config(text: str, config: str | None) -> str:
    """The text with `--config` in every command that needs one and names neither a configuration nor a place."""
    if config is None:
        return text
    return _LIVE.sub(lambda found: _completed(found[1], found[2], config), text)


def _completed(command: str, rest: str, config: str) -> str:
    """Before the other options: after the last one it could be taken for its value."""
    if "--config" in rest or "CHECKPOINT_DIR" in rest or "/" in rest:
        return command + rest
    return f"{command} --config {shlex.quote(config)}{rest}"
