"""What pydantic found wrong with a document, in the words of our findings.

One Defect per key path: the alternatives of a union are joined. Which fields a document has is decided by its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ckptctl.domain.document import reason_of
from ckptctl.domain.finding import Defect
from ckptctl.domain.safe_text import safe, shown

MANY_ERRORS = 10_000
"""Above this, listing them would cost more memory than the document did."""

_TYPE_RULES = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "list_type": "a list",
    "tuple_type": "a list",
    "none_required": "null",
    "finite_number": "a finite number",
    "string_unicode": "Unicode text",
}


def document_defects(error: ValidationError, raw: Any, prefix: str = "") -> tuple[Defect, ...]:
    """Every problem of one document, in pydantic's order; `prefix` is the key path at which `raw` lies."""
    if error.error_count() > MANY_ERRORS:
        return (Defect(f"{error.error_count()} fields are missing, unknown or wrong", prefix),)
    grouped: dict[str, tuple[Any, list[ErrorDetails]]] = {}
    for detail in error.errors(include_url=False, include_input=False):
        path, value = _place(detail, raw, prefix)
        grouped.setdefault(path, (value, []))[1].append(detail)
    return tuple(_defect(path, value, details) for path, (value, details) in grouped.items())


def _defect(path: str, value: Any, details: list[ErrorDetails]) -> Defect:
    first = details[0]
    quoted = f"`{path}`" if path else "the document"
    actual = shown(value)
    if first["type"] == "missing":
        return Defect(f"{quoted} is missing", path, "present", "absent")
    if first["type"] == "extra_forbidden":
        return Defect(f"{quoted} is not a field of this format", path, "no such field", actual)
    if first["type"] == "value_error":  # our own validators, which speak in whole sentences
        text = str(first["ctx"]["error"])
        return Defect(f"{quoted} {text}, found {actual}", path, text.removeprefix("must ").removeprefix("be "), actual)
    expected = " or ".join(dict.fromkeys(_rule(detail) for detail in details))
    return Defect(f"{quoted} must be {expected}, found {actual}", path, expected, actual)


def _rule(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _TYPE_RULES:
        return _TYPE_RULES[kind]
    if kind == "literal_error":
        return str(context.get("expected"))
    if kind == "greater_than_equal":
        return f"at least {context.get('ge')}"
    if kind == "less_than_equal":
        return f"at most {context.get('le')}"
    if kind == "string_too_short":
        return (
            "non-empty text"
            if context.get("min_length") == 1
            else f"text of at least {context.get('min_length')} characters"
        )
    if kind == "string_too_long":
        return f"text of at most {context.get('max_length')} characters"
    return f"valid ({safe(reason_of(detail['msg']))})"


def _place(detail: ErrorDetails, raw: Any, prefix: str) -> tuple[str, Any]:
    """Key path and value there, without the names that pydantic adds for alternatives of a union and for keys of a mapping."""
    parts = [prefix] if prefix else []
    value, last = raw, len(detail["loc"]) - 1
    for position, part in enumerate(detail["loc"]):
        if position == last and part == "[key]" and parts:
            return safe(".".join(parts))[:400], parts[-1]
        is_step = part in value if isinstance(value, Mapping) else isinstance(value, list) and isinstance(part, int)
        if is_step:
            value = value[part]
        elif not (position == last and detail["type"] == "missing"):
            continue
        parts.append(str(part))
    return safe(".".join(parts))[:400], value
