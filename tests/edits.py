"""Change one thing deep inside a frozen value: the way samples and unit tests turn a valid world into a damaged one.

A path is names, indexes and keys separated by blanks: `ledger groups 0 status`, `resources 0 sessions g7_g0.a1.json state`. A step
`*` is the first element. The new value may be a function of the old one, DROP (leave the element out) or APPEND(value).
"""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import msgspec
from pydantic import BaseModel


class _Drop:
    def __repr__(self) -> str:
        return "DROP"


DROP = _Drop()


@dataclass(frozen=True)
class APPEND:
    """Add an element to a sequence."""

    value: Any


def edited(thing: Any, changes: Mapping[str, Any]) -> Any:
    """`thing` with every change made, in order."""
    for path, change in changes.items():
        thing = put(thing, tuple(path.split()), change)
    return thing


def put(thing: Any, path: tuple[str, ...], change: Any) -> Any:
    """`thing` with the one place at `path` changed. Raises KeyError, IndexError or AttributeError when there is no such place."""
    if not path:
        if isinstance(change, APPEND):
            return (*thing, change.value) if isinstance(thing, tuple) else [*thing, change.value]
        return change(thing) if callable(change) and not isinstance(change, type | _Drop) else change
    step, rest = path[0], path[1:]
    if isinstance(thing, Mapping):
        return _put_key(thing, step, rest, change)
    if isinstance(thing, tuple | list) and not hasattr(thing, "_fields"):
        return _put_index(thing, step, rest, change)
    if hasattr(thing, "_replace"):
        return thing._replace(**{step: put(getattr(thing, step), rest, change)})
    new = put(getattr(thing, step), rest, change)
    if isinstance(thing, BaseModel):
        return thing.model_copy(update={step: new})
    if isinstance(thing, msgspec.Struct):
        return msgspec.structs.replace(thing, **{step: new})
    assert is_dataclass(thing), f"cannot change {step} of {type(thing).__name__}"
    return replace(thing, **{step: new})


def _put_key(thing: Mapping[Any, Any], step: str, rest: tuple[str, ...], change: Any) -> dict[Any, Any]:
    keys = {str(key): key for key in thing}
    key = next(iter(thing)) if step == "*" else keys.get(step, step)
    if not rest and change is DROP:
        assert key in thing, f"nothing to drop at {step}"
        return {name: value for name, value in thing.items() if name != key}
    return {**thing, key: put(thing[key] if rest or callable(change) else None, rest, change)}


def _put_index(thing: Any, step: str, rest: tuple[str, ...], change: Any) -> Any:
    index = 0 if step == "*" else int(step)
    index = index if index >= 0 else len(thing) + index
    middle = () if not rest and change is DROP else (put(thing[index], rest, change),)
    return type(thing)((*thing[:index], *middle, *thing[index + 1 :]))
