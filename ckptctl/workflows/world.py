"""Everything outside that the live workflows use, as one value. The command line fills it with adapters, tests with fakes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import eq

from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.domain.memory_room import UNBOUNDED, MemoryRoom
from ckptctl.domain.traffic import NO_TRAFFIC, Asked, TrafficCount
from ckptctl.ports import Clock, Controller, Journal, Lock, Observer, Participants, Progress, SnapshotStore


def _random_share() -> float:
    return secrets.randbelow(1 << 20) / (1 << 20)


def _new_nonce() -> str:
    return secrets.token_hex(16)


def _no_traffic() -> TrafficCount:
    return NO_TRAFFIC


def _nothing_asked() -> tuple[Asked, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class World:
    """The ports of one command."""

    store: SnapshotStore
    lock: Lock
    journal: Journal
    clock: Clock
    progress: Progress
    participants: Participants
    controller: Controller
    notice: Callable[[str], None]
    """Takes a warning for the person who runs the command."""
    observer: Observer | None = None
    share: Callable[[], float] = _random_share
    """A number from 0 to 1, for jitter."""
    nonce: Callable[[], str] = _new_nonce
    """Makes checkpoint ids unique."""
    is_same_directory: Callable[[str, str], bool] = eq
    """Whether two absolute paths are one directory here."""
    limits: Limits = DEFAULT_LIMITS
    room: MemoryRoom = UNBOUNDED
    """No more of a snapshot is read than there is room for in memory."""
    traffic: Callable[[], TrafficCount] = _no_traffic
    """What this process has asked of servers so far."""
    under_way: Callable[[], tuple[Asked, ...]] = _nothing_asked
    """Of that, what they have not answered yet."""
    clocks_ahead: Callable[[], Mapping[str, float]] = dict
    """Server -> by how many seconds its clock was ahead of ours when it last answered, as far as it says."""


def with_warnings(world: World) -> tuple[World, list[str]]:
    """The same world, and a list that fills with what its workflow warns of, for the answer."""
    warnings: list[str] = []

    def notice(text: str) -> None:
        warnings.append(text)
        world.notice(text)

    return replace(world, notice=notice), warnings
