"""Text that came from files and servers, made safe for a terminal.

No control characters, no direction overrides, no lone surrogates.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from ckptctl.domain.amounts import plural

_DIRECTION_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def safe(text: str, *, keep_newlines: bool = False) -> str:
    r"""Return `text` with every control, format-direction and surrogate character written as an escape such as `\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_safe_character(character, keep_newlines) for character in text)


def _safe_character(character: str, keep_newlines: bool) -> str:
    if character == "\n" and keep_newlines:
        return character
    category = unicodedata.category(character)
    if category in {"Cc", "Cs", "Zl", "Zp"} or character in _DIRECTION_CONTROLS:
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    return character


OVERWRITE = "\r\x1b[K"
"""Begins a line of our own on a terminal that takes the place of the unfinished one before."""

_COMMAND_LINE = re.compile(r"^([ \t]*):(?=:)", re.MULTILINE)
_COMMAND_MARK = re.compile(r"##(?=[a-z]*\[)")


def inert(text: str) -> str:
    r"""Return `text` for a log in which CI systems look for commands of their own: no line begins with `::`, none has `##[`."""
    return _COMMAND_MARK.sub(r"#\\x23", _COMMAND_LINE.sub(r"\1\\x3a", text))


def inert_json(text: str) -> str:
    r"""The same for JSON: `##`, which only strings can hold, becomes `#\u0023`, and reads as before."""
    return text.replace("##", "#\\u0023")


_CREDENTIALS = re.compile(r"//[^/@\s]*@")
"""User and password in a url: quoted nowhere, whatever is wrong with the value."""


def shown(value: object, limit: int = 160) -> str:
    """A decoded value as an error text quotes it: JSON's words for null and booleans, text in quotes, safe, clipped."""
    if value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, Mapping):
        text = f"an object with {plural(len(value), 'key')}" if value else "an empty object"
    elif isinstance(value, list | tuple):
        text = f"a list of {len(value)}" if value else "an empty list"
    elif isinstance(value, str):
        text = f'"{safe(_CREDENTIALS.sub("//<redacted>@", value[: limit + 1]))}"'
    else:
        text = safe(repr(value)[: limit + 1])
    return text if len(text) <= limit else text[: limit - 3] + "..."
