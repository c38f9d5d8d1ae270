"""Typed access to the nodes of TransferQueue's pickles; `place` is the attribute path that a defect names.

An attribute that is not known means another TransferQueue, so the file is *unsupported* rather than damaged; one that is missing
is damage. Leaves to others: which attributes there are (`tq_checkpoint`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.safe_text import shown
from ckptctl.formats.pickle_machine import Call, Global
from ckptctl.formats.tq_columns import IndexSets

PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})


def demand_instance(node: Any, cls: tuple[str, str], keys: frozenset[str], place: str) -> dict[str, Any]:
    """The attributes of an object made by NEWOBJ without arguments and BUILD."""
    is_right = (
        type(node) is Call and node.is_new and node.callee == Global(*cls) and node.arguments == () and node.has_state
    )
    if not is_right or node.entries or node.appended:
        refuse(f"this is no {cls[1]}", place, ".".join(cls), kind_of(node))
    return demand_record(node.state, keys, place)


def demand_record(node: Any, keys: frozenset[str], place: str) -> dict[str, Any]:
    """A mapping with exactly these keys; more of them are another TransferQueue's, fewer are damage."""
    found = demand_mapping(node, place)
    missing, more = keys - found.keys(), found.keys() - keys
    if missing:
        refuse("an attribute is missing", place, ", ".join(sorted(missing)))
    if more:
        names = ", ".join(sorted(map(repr, more)))[:200]
        refuse(
            "an attribute is unknown: written by another TransferQueue",
            place,
            ", ".join(sorted(keys)),
            names,
            is_unsupported=True,
        )
    return found


def demand_mapping(node: Any, place: str) -> dict[Any, Any]:
    """The mapping that `node` must be."""
    if type(node) is not dict:
        refuse("this is no mapping", place, "a mapping", kind_of(node))
    return node


def demand_named(node: Any, place: str) -> dict[str, Any]:
    """A mapping with texts as keys."""
    found = demand_mapping(node, place)
    if not {str}.issuperset(map(type, found)):
        refuse("a mapping has a key that is no text", place)
    return found


def demand_by_index(node: Any, place: str) -> dict[int, Any]:
    """A mapping with whole numbers >= 0 as keys."""
    found = demand_mapping(node, place)
    demand_whole(found, place)
    return found


def demand_name_indexes(node: Any, place: str) -> dict[str, int]:
    """A mapping of texts to whole numbers >= 0."""
    found = demand_named(node, place)
    demand_whole(found.values(), place)
    return found


def demand_indexes(node: Any, place: str, kept: IndexSets) -> frozenset[int]:
    """A set of whole numbers >= 0, with those that were kept apart."""
    if type(node) is not set:
        refuse("this is no set", place, "a set", kind_of(node))
    items = kept.items_of(node)
    return items.union(demand_whole(node, place)) if node else items


def demand_whole(values: Iterable[Any], place: str) -> Iterable[int]:
    """Demand whole numbers >= 0; booleans are none."""
    if not {int}.issuperset(map(type, values)):
        refuse("an index is no whole number", place)
    if min(values, default=0) < 0:
        refuse("an index is negative", place, ">= 0", str(min(values)))
    return values


def demand_index(node: Any, place: str) -> int:
    """A whole number >= 0."""
    if type(node) is not int or node < 0:
        refuse(
            "this is no whole number >= 0", place, ">= 0", shown(node) if type(node) in PLAIN_TYPES else kind_of(node)
        )
    return node


def demand_text(node: Any, place: str) -> str:
    """The text that `node` must be."""
    if type(node) is not str:
        refuse("this is no text", place, "a text", kind_of(node))
    return node


def demand_shape(node: Any, place: str) -> tuple[int, ...]:
    """A shape: a list, a tuple or a torch.Size of whole numbers >= 0."""
    is_size = type(node) is Call and node.is_plain_call_of("torch", "Size") and len(node.arguments) == 1
    values = node.arguments[0] if is_size else node
    if type(values) not in (list, tuple):
        refuse("a shape is no list", place, "a list", kind_of(node))
    return tuple(demand_whole(values, place))


def kind_of(value: Any) -> str:
    """What a node is, in a word."""
    return str(value.callee) if type(value) is Call else type(value).__name__


def refuse(message: str, place: str, expected: str = "", actual: str = "", *, is_unsupported: bool = False) -> NoReturn:
    """Raise the defect of one place."""
    raise DefectError(Defect(message, place, expected, actual), is_unsupported=is_unsupported)


def defect(message: str, place: str, expected: str = "", actual: str = "") -> DefectError:
    """The error of one place, for those who raise it themselves."""
    return DefectError(Defect(message, place, expected, actual))
