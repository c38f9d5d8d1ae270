"""What a pickle becomes: inert nodes beside plain Python values, and the proof that a tree of them may be walked.

Decides: that a finished value has no cycle, is not too deep and does not grow out of bounds through shared references;
afterwards anybody may walk it recursively. Leaves to others: how the nodes come about (`pickle_machine`), and what they mean.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits

_SHARING_FACTOR = 16
_SHARING_ALLOWANCE = 65_536


@dataclass(frozen=True, slots=True)
class Global:
    """A name that a pickle refers to. It is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class UnknownGlobal(Global):
    """A name outside the vocabulary, kept only with `opaque_globals`; whoever asked for that decides where it may stand."""

    offset: int = field(default=-1, compare=False)


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """A byte string as a place in the source; `head` has its first bytes (all of them up to `Limits.pickle_skip_bytes`)."""

    offset: int
    length: int
    head: bytes


@dataclass(slots=True, eq=False)
class Call:
    """What REDUCE (`is_new` false) or NEWOBJ (true) would have made; `state` is what BUILD would have set.

    `appended` and `entries` are items that were added to the object afterwards (an OrderedDict's, a deque's).
    """

    callee: Any
    arguments: tuple[Any, ...]
    is_new: bool = False
    state: Any = None
    has_state: bool = False
    appended: list[Any] | None = None
    entries: dict[Any, Any] | None = None

    def is_plain_call_of(self, module: str, name: str) -> bool:
        """Whether this is a REDUCE of that global with nothing added afterwards."""
        return (
            type(self.callee) is Global
            and self.callee.name == name
            and self.callee.module == module
            and not (self.is_new or self.has_state or self.appended or self.entries)
        )


@dataclass(frozen=True, slots=True, eq=False)
class PersistentId:
    """What BINPERSID refers to."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class OddKey:
    """A mapping key or set item that is no primitive, possible only with `opaque_globals`. Equal to nothing but itself."""

    value: Any


_CONTAINERS = frozenset({list, tuple, dict, Call, PersistentId})


def check_shape(root: Any, built: int, limits: Limits) -> None:
    """Refuse too much depth, cycles (which are endless depth), and values that sharing blows up; `built` opcodes made the value.

    This is the walk that everybody else makes afterwards, made once with a limit on its steps: what a pickle refers to twice is
    visited twice, so a list that doubles sixty times ends at the limit.

    Raises:
        DefectError: without a location; where such a thing begins is no one place.
    """
    most = min(limits.pickle_items, built * _SHARING_FACTOR + _SHARING_ALLOWANCE)
    steps = 0
    pending, depths = [root], [1]
    while pending:
        node, depth = pending.pop(), depths.pop()
        kind = type(node)
        if kind is dict:
            values: Collection[Any] = node.values()
        elif kind is list or kind is tuple:
            values = node
        elif kind is Call:
            values = (node.callee, node.arguments, node.state, node.appended, node.entries)
        elif kind is PersistentId:
            values = (node.value,)
        else:
            continue
        steps += len(values)
        if depth > limits.pickle_depth:
            message = f"the pickle is nested deeper than the limit of {limits.pickle_depth}, or without end"
            raise DefectError(Defect(message))
        if steps > most:
            message = "the pickle grows out of bounds through shared references"
            raise DefectError(Defect(message, expected=f"at most {most} values"))
        inner = [value for value in values if type(value) in _CONTAINERS]
        pending += inner
        depths += repeat(depth + 1, len(inner))
