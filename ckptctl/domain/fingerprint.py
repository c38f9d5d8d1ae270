"""What a snapshot depends on: of the configuration (snapshot-layout section 4) and the Gym topology (section 5). What is secret.

Decides which keys take no part (the built-in list and the run's own), the two digests, how two configurations differ, and which
values must never be written or shown in clear. Whether a difference matters is left to the rules. Everything here is about
decoded values; reading a file is `formats.config_file`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ckptctl.domain.binding import BootstrapIdentity
from ckptctl.domain.canonical import compact_digest, compact_sorted
from ckptctl.domain.config_paths import BUILT_IN_EXCLUDED_PATHS, SECRET_PATTERNS, PathMatcher, States
from ckptctl.domain.participant import DiscoveredParticipant
from ckptctl.domain.safe_text import safe, shown

TOPOLOGY_SCHEMA = 1
REDACTED = "<redacted>"
MAX_SHOWN_CHARS = 160
EXTRA_PATHS_KEY = "extra_fingerprint_excluded_paths"
EXTRA_PATHS_PLACE = f"rollout_checkpointing.{EXTRA_PATHS_KEY}"
PATTERN_RULE = "dotted, no blanks around it, no empty segment, and not `*` or `**` alone"

__all__ = [
    "BUILT_IN_EXCLUDED_PATHS",
    "SECRET_PATTERNS",
    "bootstrap_fingerprint",
    "bootstrap_identity",
    "config_fingerprint",
    "extra_excluded_paths",
    "identity_differences",
    "is_usable_pattern",
    "projection_differences",
    "redact",
    "secret_paths",
    "topology_document",
    "topology_fingerprint",
]

# --- the bootstrap fingerprint ---


def bootstrap_identity(config: Mapping[str, Any], extra: Iterable[str] = ()) -> BootstrapIdentity:
    """What the fingerprint of `config` is computed over, with the run's own excluded paths.

    Raises:
        ValueError: for an unusable pattern or a key that is no text.
    """
    added = tuple(extra)
    for pattern in added:
        if not is_usable_pattern(pattern):
            raise ValueError(f"`{EXTRA_PATHS_PLACE}`: {shown(pattern)} is no usable pattern ({PATTERN_RULE})")
    patterns = sorted({*BUILT_IN_EXCLUDED_PATHS, *added})
    matcher = PathMatcher(patterns)
    kept = _without(config, matcher, matcher.start, ())
    return BootstrapIdentity(schema_version=7, excluded_paths=patterns, config=kept)


def bootstrap_fingerprint(identity: BootstrapIdentity) -> str:
    """The digest of an identity.

    Raises:
        ValueError: when the configuration holds a value that JSON does not have, or a number that is not finite.
    """
    try:
        return compact_digest(identity.model_dump(mode="python"))
    except TypeError as error:
        raise ValueError(str(error)) from None


def config_fingerprint(config: Mapping[str, Any]) -> str:
    """The bootstrap fingerprint of a whole run configuration, its own excluded paths included. Raises ValueError."""
    return bootstrap_fingerprint(bootstrap_identity(config, extra_excluded_paths(config)))


def extra_excluded_paths(config: Mapping[str, Any]) -> tuple[str, ...]:
    """`rollout_checkpointing.extra_fingerprint_excluded_paths`. Raises ValueError when it is no list of texts."""
    section = config.get("rollout_checkpointing")
    value = section.get(EXTRA_PATHS_KEY) if isinstance(section, Mapping) else None
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"`{EXTRA_PATHS_PLACE}` must be a list of texts, found {shown(value)}")
    return tuple(value)


def is_usable_pattern(pattern: str) -> bool:
    """Whether an extra pattern obeys PATTERN_RULE."""
    return pattern not in {"*", "**"} and pattern == pattern.strip() and all(pattern.split("."))


def projection_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """How two run configurations differ in what a snapshot depends on: `path old -> new`, each value clipped.

    Excluded paths that no fingerprint could be computed with are taken as absent: the rest can still be compared.
    """
    return identity_differences(_comparable_identity(old), _comparable_identity(new))


def identity_differences(old: BootstrapIdentity, new: BootstrapIdentity) -> tuple[str, ...]:
    """How two identities differ, their lists of excluded paths included."""
    lines = [f"{safe(path)} {left} -> {right}" for path, left, right in _differences(old.config, new.config, "")]
    if old.excluded_paths != new.excluded_paths:
        removed = sorted(set(old.excluded_paths) - set(new.excluded_paths))
        added = sorted(set(new.excluded_paths) - set(old.excluded_paths))
        lines.append(f"excluded_paths {_clipped(removed)} -> {_clipped(added)}")
    return tuple(lines)


def _comparable_identity(config: Mapping[str, Any]) -> BootstrapIdentity:
    try:
        extra = extra_excluded_paths(config)
    except ValueError:
        extra = ()
    return bootstrap_identity(config, filter(is_usable_pattern, extra))


def _without(value: Any, matcher: PathMatcher, states: States, path: tuple[str, ...]) -> Any:
    """`value` less everything that a pattern names; an emptied parent stays."""
    if isinstance(value, Mapping):
        kept: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                place = safe(".".join(path))
                raise ValueError(f"`{place}` has a key that is no text: {shown(key)}")  # noqa: TRY004 - bad data, no bug
            reached = matcher.step(states, key)
            if not matcher.is_match(reached):
                kept[key] = _without(item, matcher, reached, (*path, key))
        return kept
    if isinstance(value, list | tuple):
        reached_by = [(matcher.step(states, str(index)), index, item) for index, item in enumerate(value)]
        return [
            _without(item, matcher, reached, (*path, str(index)))
            for reached, index, item in reached_by
            if not matcher.is_match(reached)
        ]
    return value


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key, _ABSENT), new.get(key, _ABSENT), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            left = old[index] if index < len(old) else _ABSENT
            right = new[index] if index < len(new) else _ABSENT
            yield from _differences(left, right, f"{path}.{index}" if path else str(index))
    elif type(old) is not type(new) or old != new:
        yield path, _clipped(old), _clipped(new)


class _Absent:
    """Stands for a key that one side lacks."""


_ABSENT = _Absent()


def _clipped(value: Any) -> str:
    if isinstance(value, _Absent):
        return "<absent>"
    try:
        text = safe(compact_sorted(value).decode())
    except (TypeError, ValueError):
        text = safe(repr(value))
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 3] + "..."


# --- secrets ---

_SECRETS = PathMatcher(SECRET_PATTERNS)


def secret_paths(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The dotted paths of all values in clear under keys that hold secrets. Empty values, booleans and `<redacted>` are none."""
    return tuple(safe(".".join(path)) for path in _secrets(config, _SECRETS.start, ()))


def redact(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `config` in which every secret is `<redacted>`; everything else stays."""
    found: dict[str, Any] = _redacted(config, _SECRETS.start)
    return found


def _is_secret(value: Any) -> bool:
    return not (
        value is None
        or isinstance(value, bool)
        or value in ("", REDACTED)
        or (isinstance(value, Mapping | list | tuple) and not value)
    )


def _secrets(value: Any, states: States, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, item in _children(value):
        reached = _SECRETS.step(states, key)
        if not _SECRETS.is_match(reached):
            yield from _secrets(item, reached, (*path, key))
        elif _is_secret(item):
            yield (*path, key)


def _redacted(value: Any, states: States) -> Any:
    if isinstance(value, Mapping):
        return {key: _redacted_child(str(key), item, states) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted_child(str(index), item, states) for index, item in enumerate(value)]
    return value


def _redacted_child(key: str, item: Any, states: States) -> Any:
    reached = _SECRETS.step(states, key)
    if _SECRETS.is_match(reached):
        return REDACTED if _is_secret(item) else item
    return _redacted(item, reached)


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key), item
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for index, item in enumerate(value):
            yield str(index), item


# --- the topology fingerprint ---


def topology_document(participants: Iterable[DiscoveredParticipant]) -> dict[str, Any]:
    """What the topology fingerprint is computed over: every discovered participant, without its features and live state."""
    entries = [
        {
            "participant": {
                "server_name": item.server_name,
                "component": item.capabilities.component,
                "participant_name": item.capabilities.name,
            },
            "schema_version": item.capabilities.schema_version,
            "admission_states": sorted(item.capabilities.admission_states),
            "checkpoint_mode": item.capabilities.checkpoint_mode,
            "concurrency_contract": item.capabilities.concurrency_contract,
            "multi_process": {
                "mode": item.capabilities.multi_process.mode,
                "num_workers": item.capabilities.multi_process.num_workers,
            },
            "instance_role": item.capabilities.instance_role,
        }
        for item in sorted(participants, key=_topology_order)
    ]
    return {"schema_version": TOPOLOGY_SCHEMA, "participants": entries}


def topology_fingerprint(participants: Iterable[DiscoveredParticipant]) -> str:
    """The digest of a discovered topology. Worker counts and modes belong to it, features do not."""
    return compact_digest(topology_document(participants))


def _topology_order(item: DiscoveredParticipant) -> tuple[str, str, str]:
    return item.capabilities.component, item.server_name, item.capabilities.name
