"""`config.yaml`: the run configuration as plain YAML (snapshot-layout section 11), read safely and written as PyYAML writes it.

Plain means what a dump of JSON values can contain: mappings with text keys, lists, text, numbers, booleans, null. Tags, merge
keys, repeated keys and several documents are refused, dates stay text, and aliases count as often as they are used, so that a
small file cannot describe a large value. What the keys mean is left to others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.safe_text import safe, shown

MAX_NUMBER_CHARS = 400
"""Longest number literal; Python itself needs 309 digits for the largest float."""

_TAG = "tag:yaml.org,2002:"
_Parser = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_IMPLICIT: Mapping[str, list[tuple[str, re.Pattern[str]]]] = yaml.SafeLoader.yaml_implicit_resolvers
_CONSTRUCTOR = yaml.constructor.SafeConstructor()
_NO_KEY = object()


@dataclass(slots=True)
class _Frame:
    """One open mapping or list, and what it has cost so far."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    key: object = _NO_KEY
    nodes: int = 1
    height: int = 1

    def shown_key(self) -> str:
        """The key whose value is being built; a key that is itself a collection has none yet."""
        return "?" if self.key is _NO_KEY else str(self.key)


@dataclass(slots=True)
class _Anchored:
    """A finished value that aliases may name."""

    value: Any
    nodes: int
    height: int


@dataclass(slots=True)
class _Builder:
    """Builds the value from parser events, without recursion."""

    limits: Limits
    stack: list[_Frame] = field(default_factory=list)
    anchors: dict[str, _Anchored] = field(default_factory=dict)
    documents: int = 0
    total: int = 0
    result: Any = None

    def take(self, event: Event) -> None:
        """Take one event. Raises DefectError."""
        if isinstance(event, DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise _defect(event, "holds more than one document")
        elif isinstance(event, AliasEvent):
            found = self.anchors.get(str(event.anchor))
            if found is None:
                raise _defect(event, f"the alias {shown(event.anchor)} names no finished value")
            self._count(event, found.nodes)
            self._add(event, found.value, found.nodes, found.height)
        elif isinstance(event, ScalarEvent):
            self._refuse_tag(event)
            self._count(event, 1)
            value = _scalar(event)
            self._remember(event.anchor, value, 1, 0)
            self._add(event, value, 1, 0)
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            self._refuse_tag(event)
            self._count(event, 1)
            if len(self.stack) >= self.limits.yaml_depth:
                raise _defect(event, f"is nested deeper than {self.limits.yaml_depth} levels")
            self.stack.append(_Frame({} if isinstance(event, MappingStartEvent) else [], event.anchor))
        elif isinstance(event, CollectionEndEvent):
            frame = self.stack.pop()
            self._remember(frame.anchor, frame.value, frame.nodes, frame.height)
            self._add(event, frame.value, frame.nodes, frame.height)

    def _count(self, event: Event, nodes: int) -> None:
        self.total += nodes
        if self.total > self.limits.yaml_nodes:
            raise _defect(event, f"has more than {self.limits.yaml_nodes} values")

    def _add(self, event: Event, value: Any, nodes: int, height: int) -> None:
        if not self.stack:
            self.result = value
            return
        frame = self.stack[-1]
        frame.nodes += nodes
        frame.height = max(frame.height, height + 1)
        if len(self.stack) + height > self.limits.yaml_depth:
            raise _defect(event, f"is nested deeper than {self.limits.yaml_depth} levels")
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is _NO_KEY:
            frame.key = self._key(event, value, frame.value)
        else:
            frame.value[str(frame.key)] = value
            frame.key = _NO_KEY

    def _key(self, event: Event, key: Any, known: Mapping[str, Any]) -> str:
        if not isinstance(key, str):
            raise _defect(event, f"{self._place()} has a key that is no text: {shown(key)}", "text", shown(key))
        if key in known:
            raise _defect(
                event, f"the key `{safe(key)}` occurs twice in {self._place()}", "each key once", f"`{safe(key)}` twice"
            )
        return key

    def _place(self) -> str:
        keys = [
            str(len(frame.value)) if isinstance(frame.value, list) else frame.shown_key() for frame in self.stack[:-1]
        ]
        return f"`{safe('.'.join(keys))}`" if keys else "the top level"

    def _remember(self, anchor: str | None, value: Any, nodes: int, height: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = _Anchored(value, nodes, height)

    def _refuse_tag(self, event: ScalarEvent | MappingStartEvent | SequenceStartEvent) -> None:
        if event.tag is not None:
            raise _defect(event, f"has a tag, {shown(event.tag)}: plain YAML has none", "no tags", shown(event.tag))


def _scalar(event: ScalarEvent) -> Any:
    """The value of one scalar, by the rules of YAML 1.1 that PyYAML follows, except that dates are text."""
    text: str = event.value
    tag = _tag_of(text) if event.implicit[0] else _TAG
    if tag == f"{_TAG}merge":
        raise _defect(event, "has a merge key `<<`: write the keys out", "no merge keys", "`<<`")
    if tag == f"{_TAG}null":
        return None
    if tag == f"{_TAG}bool":
        return _CONSTRUCTOR.bool_values[text.lower()]
    if tag not in {f"{_TAG}int", f"{_TAG}float"}:
        return text
    if len(text) > MAX_NUMBER_CHARS:
        raise _defect(event, f"has a number of more than {MAX_NUMBER_CHARS} characters")
    node = yaml.ScalarNode(tag, text)
    try:
        return _CONSTRUCTOR.construct_yaml_int(node) if tag == f"{_TAG}int" else _CONSTRUCTOR.construct_yaml_float(node)
    except ValueError:
        raise _defect(event, f"{shown(text)} looks like a number and is none") from None


def _tag_of(text: str) -> str:
    for tag, pattern in _IMPLICIT.get(text[:1], ()):
        if pattern.match(text):
            return tag
    return _TAG


def decode_yaml(data: bytes, limits: Limits) -> dict[str, Any]:
    """A configuration as JSON values. Infinity and NaN stay floats: only what needs a digest refuses them.

    Raises:
        DefectError: with the first problem and its place.
    """
    if len(data) > limits.yaml_bytes:
        raise DefectError(Defect(f"exceeds the limit of {limits.yaml_bytes} bytes", "", "", f"{len(data)} bytes"))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DefectError(Defect("is not UTF-8", f"line {line}", "UTF-8", f"byte 0x{data[error.start]:02x}")) from None
    builder = _Builder(limits)
    try:
        for event in yaml.parse(text, Loader=_Parser):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        place = (
            f"line {error.problem_mark.line + 1} column {error.problem_mark.column + 1}" if error.problem_mark else ""
        )
        raise DefectError(Defect(f"is not YAML: {safe(str(error.problem or error.context))}", place, "YAML")) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DefectError(Defect(f"is not YAML: {safe(str(error).partition(chr(10))[0])[:200]}", "", "YAML")) from None
    if not isinstance(builder.result, dict):
        raise DefectError(Defect("top level must be a mapping", "line 1", "a mapping", shown(builder.result)))
    return builder.result


def encode_yaml(config: Mapping[str, Any]) -> bytes:
    """The bytes of a configuration as PyYAML dumps it: keys sorted, block style, no aliases."""
    text: str = yaml.dump(dict(config), Dumper=_PlainDumper, sort_keys=True, default_flow_style=False)
    return text.encode()


class _PlainDumper(yaml.SafeDumper):
    """A value that occurs twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def _defect(event: Event, message: str, expected: str = "", actual: str = "") -> DefectError:
    mark = event.start_mark
    place = f"line {mark.line + 1} column {mark.column + 1}" if mark is not None else ""
    return DefectError(Defect(message, place, expected, actual))
