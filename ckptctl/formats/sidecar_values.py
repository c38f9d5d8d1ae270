"""From the inert tree of a sidecar to plain values: what the ledger and the replay metadata have in common.

Decides: that where plain values belong nothing else stands (no called object, no global, no NaN), and how a place inside a
sidecar is named: a key path in which each group carries its id. Leaves to others: the shape (`domain.ledger`, `domain.replay`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.safe_text import safe
from ckptctl.formats.document_defects import document_defects
from ckptctl.formats.pickle_machine import Call, Global, PersistentId, UnknownGlobal, refuse_global

M = TypeVar("M", bound=BaseModel)

_LEAVES = frozenset({type(None), bool, int, str})
_KEY_TYPES = frozenset({str, int})
_GROUP_PATH = re.compile(r"groups\.([0-9]{1,9})(?=\.|\Z)")
_SHOWN_ID_CHARS = 80

ReadCall = Callable[[Call], Any]
"""Gives the plain value of a called object; raises ValueError with a clause that says why there is none."""


class _MisplacedError(Exception):
    """Something that is no plain value; `path` is collected, innermost first, on the way out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []


def plain_value(tree: Any, place: str, read_call: ReadCall | None = None) -> Any:
    """Copy a tree that must be made of None, bool, int, finite float, str, list, tuple and dict.

    Raises:
        DefectError: located by the key path, which begins with `place`.
    """
    try:
        return _plain(tree, read_call)
    except _MisplacedError as error:
        path = ".".join([*([place] if place else []), *reversed(error.path)])
        quoted = f"`{safe(path)[:400]}`" if path else "the value"
        raise DefectError(Defect(f"{quoted} {error.problem}", safe(path)[:400], expected="a plain value")) from None


def writable_value(value: Any) -> Any:
    """The value if it is one that `plain_value` gives. Raises ValueError: what is written must be what is read."""
    try:
        return plain_value(value, "")
    except DefectError as error:
        raise ValueError(str(error)) from None


def _plain(tree: Any, read_call: ReadCall | None) -> Any:
    kind = type(tree)
    if kind in _LEAVES:
        return tree
    if kind is float:
        if not math.isfinite(tree):
            raise _MisplacedError("is a number that is not finite")
        return tree
    if kind is dict:
        return _plain_dict(tree, read_call)
    if kind is list or kind is tuple:
        values: list[Any] = []
        try:
            for item in tree:
                values.append(_plain(item, read_call))  # noqa: PERF401 - the list says how far it came
        except _MisplacedError as error:
            error.path.append(str(len(values)))
            raise
        return kind(values)
    return _read_node(tree, read_call)


def _plain_dict(tree: dict[Any, Any], read_call: ReadCall | None) -> dict[Any, Any]:
    if not _KEY_TYPES.issuperset(map(type, tree)):
        raise _MisplacedError("has a key that is neither text nor int")
    values: dict[Any, Any] = {}
    key: Any = None
    try:
        for key, item in tree.items():
            values[key] = _plain(item, read_call)
    except _MisplacedError as error:
        error.path.append(str(key))
        raise
    return values


def _read_node(node: Any, read_call: ReadCall | None) -> Any:
    """The value of something that only pickles have, or why it may not stand here."""
    inner = node
    while type(inner) is Call:
        inner = inner.callee
    if type(inner) is UnknownGlobal:
        refuse_global(inner.module, inner.name, inner.offset)
    if type(node) is Call and read_call is not None:
        try:
            return read_call(node)
        except ValueError as error:
            raise _MisplacedError(str(error)) from None
    raise _MisplacedError(f"is {kind_name(node)}, where only plain values are legal")


def kind_name(node: Any) -> str:
    """What a node is, as a finding says it."""
    if type(node) is Call:
        return (
            f"an object made by `{safe(str(node.callee))[:200]}`"
            if isinstance(node.callee, Global)
            else "a called object"
        )
    if isinstance(node, Global):
        return f"the global `{safe(str(node))[:200]}`"
    return "a tensor" if type(node) is PersistentId else f"a {type(node).__name__}"


def demand_mapping(tree: Any, what: str) -> dict[Any, Any]:
    """The top level of a sidecar. Raises DefectError unless it is a mapping."""
    if type(tree) is Call and type(tree.callee) is UnknownGlobal:
        refuse_global(tree.callee.module, tree.callee.name, tree.callee.offset)
    if type(tree) is not dict:
        raise DefectError(Defect(f"{what} must be a mapping, and is {kind_name(tree)}", expected="a mapping"))
    return tree


def validated(model: type[M], raw: Mapping[str, Any]) -> M:
    """Give plain values their class. Raises DefectError with every field that is missing, unknown or wrong."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise DefectError(*document_defects(error, raw)) from None


@contextmanager
def naming_groups(raw: Mapping[Any, Any]) -> Iterator[None]:
    """Within it, `groups.2` at the beginning of a defect's location becomes `groups[2] (group <id>)`."""
    try:
        yield
    except DefectError as error:
        raise DefectError(
            *(_named(raw, defect) for defect in error.defects), is_unsupported=error.is_unsupported
        ) from None


def _named(raw: Mapping[Any, Any], defect: Defect) -> Defect:
    found = _GROUP_PATH.match(defect.location)
    groups = raw.get("groups")
    if found is None or type(groups) is not list or int(found[1]) >= len(groups):
        return defect
    group = groups[int(found[1])]
    group_id = group.get("group_id") if type(group) is dict else None
    shown_id = f" (group {safe(group_id[:_SHOWN_ID_CHARS])})" if type(group_id) is str else ""
    location = f"groups[{found[1]}]{shown_id}{defect.location[found.end() :]}"
    return Defect(defect.message, location, defect.expected, defect.actual)
