"""What can go wrong, and how a plan of a few faults is drawn from the seed.

Most plans begin with a fault that is *aimed*: the seed's number chooses a step, somebody, and something that can strike him there, so
that a short step is struck as often as a long one. The others are drawn as they come: over all messages, calls and events.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass
from functools import cache
from typing import Literal

from ckptctl.planning import restore as restoring
from ckptctl.planning import snapshot as saving
from tests.simulation.kernel import COORDINATOR
from tests.simulation.network import FateKind

CODES = {
    "controller": (
        "checkpoint_conflict", "stale_checkpoint", "invalid_phase", "deadline_exceeded", "trainer_state_changed",
        "acknowledgements_pending", "finalization_in_progress", "staging_rows_missing", "canonical_rows_differ",
        "restore_failed", "manifest_mismatch", "not_fresh", "unowned_redispatch", "storage_error",
    ),
    "policy_model": (
        "stale_checkpoint", "checkpoint_conflict", "invalid_phase", "not_a_policy_instance", "ledger_mismatch",
        "ledger_not_checkpointable", "ledger_not_quiescent",
    ),
    "simple_agent": (
        "stale_checkpoint", "checkpoint_conflict", "invalid_phase", "agent_prepare_incomplete", "agent_checkpoint_error",
        "completed_execution_acknowledgement_error",
    ),
    "counter": (
        "stale_checkpoint", "checkpoint_conflict", "invalid_phase", "resources_checkpoint_error",
        "resource_mutation_uncertain", "unsafe_resources_restore", "resource_revision_mismatch",
    ),
}  # fmt: skip
"""Refusals of each server's control routes, as documented."""
UNKNOWN_CODE = "a_code_of_next_year"
STATUSES = (401, 404, 422, 500, 503)
MESSAGE_KINDS: tuple[FateKind, ...] = (
    "lost-request", "silent-request", "lost-reply", "silent-reply", "duplicate", "late-request", "late-reply", "reset",
    "rubbish", "refuse", "status",
)  # fmt: skip
DEADLY: tuple[FateKind, ...] = ("crash-before", "crash-after")
DISK_ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EROFS": errno.EROFS, "EACCES": errno.EACCES}
TORN = "torn-write"
FITTING = {"ENOSPC": 0.06, "EIO": 0.6, "EROFS": 0.1, "EACCES": 0.3}
"""Which part of a command's events are system calls that can fail like that."""
TAKES_ROOM = frozenset({"create", "write", "mkdir", "link"})
NAMES = frozenset({"create", "open", "mkdir", "link", "rename", "unlink", "rmdir", "list"})
JUMPS_S = (-86_400.0, -120.0, -6.0, 6.0, 120.0, 86_400.0)
FREEZES_S = (20.0, 90.0, 200.0, 500.0)
SERVERS = ("controller", "policy_model", "simple_agent", "counter")
FILE_SERVER = "file-server"
"""Whose clock gives files their times; nothing else ever happens to it."""
Event = Literal["crash", "power", "jump", "signal", "freeze"]
AIMED = 0.75
STRIDE = 7919
"""A prime: seeds one after the other aim at parts of a command that lie far from each other."""
COORDINATOR_EVENTS: tuple[Event, ...] = ("crash", "power", "jump", "signal", "freeze")

RELEASE = (saving.RESUME_RESOURCES, saving.RESUME_MODELS, saving.RESUME_AGENTS, saving.OPEN)
PUBLISHING = (saving.VALIDATE, saving.WRITE_CHECKSUMS, saving.SYNC, saving.PUBLISH, saving.RETAIN)
STEPS = {
    "snapshot": (
        saving.CLOSE, saving.DRAIN, saving.PAUSE_MODELS, saving.PREPARE_AGENTS, saving.PREPARE_RESOURCES,
        saving.DRAIN_MODELS, saving.RETIRE_ORPHANS, saving.CHECK_PREPARED, saving.ALLOCATE, saving.COMMIT_AGENTS,
        saving.COMMIT_MODELS, saving.COMMIT_RESOURCES, saving.CHECK_COMMITTED, saving.SAVE, saving.WRITE_MANIFEST,
        *PUBLISHING, *RELEASE, saving.REMOVE_STAGED,
    ),
    "publish": (*PUBLISHING, *RELEASE, saving.REMOVE_STAGED),
    "restore": (
        restoring.RESTORE_CONTROLLER, restoring.RESTORE_MODELS, restoring.RESTORE_AGENTS, restoring.RESTORE_RESOURCES,
        restoring.CHECK_RESTORED, restoring.PLAN_ATTEMPTS, restoring.DISCARD, restoring.CLEAR_STAGING, *RELEASE,
    ),
    "gc": (),
}  # fmt: skip
"""The steps of each command beside its beginning, as it may come to them."""
ASKED = {
    "controller": (
        saving.CLOSE, saving.DRAIN, saving.CHECK_PREPARED, saving.SAVE, saving.OPEN, restoring.RESTORE_CONTROLLER,
        restoring.PLAN_ATTEMPTS,
    ),
    "policy_model": (
        saving.PAUSE_MODELS, saving.DRAIN_MODELS, saving.COMMIT_MODELS, saving.RESUME_MODELS, restoring.RESTORE_MODELS,
    ),
    "simple_agent": (
        saving.DRAIN, saving.PREPARE_AGENTS, saving.COMMIT_AGENTS, saving.RESUME_AGENTS, restoring.RESTORE_AGENTS,
    ),
    "counter": (
        saving.PREPARE_RESOURCES, saving.COMMIT_RESOURCES, saving.RESUME_RESOURCES, restoring.RESTORE_RESOURCES,
    ),
}  # fmt: skip
"""Which server is asked something in which step."""
WRITES = (
    saving.COMMIT_AGENTS, saving.COMMIT_MODELS, saving.COMMIT_RESOURCES, saving.SAVE, restoring.RESTORE_CONTROLLER,
    restoring.RESTORE_MODELS, restoring.RESTORE_AGENTS, restoring.RESTORE_RESOURCES,
)  # fmt: skip
"""Steps in which the server that is asked uses the disk."""
COMMITS = tuple((server, f"{kind}-checkpoint/commit") for server, kind in
                (("simple_agent", "agent"), ("policy_model", "model"), ("counter", "resources")))  # fmt: skip


def begin_of(command: str) -> str:
    """What the time before a command's first step is called."""
    return f"begin-{command}"


@dataclass(slots=True)
class MessageFault:
    """From the `nth` fitting message of a coordinator on, so many `times` (0: until fair weather)."""

    kind: FateKind
    nth: int
    operation: str | None
    """None fits every message."""
    server: str | None = None
    times: int = 1
    step: str | None = None
    code: str = ""
    """Of a refusal; empty: any."""


@dataclass(slots=True)
class DiskFault:
    """From the `nth` fitting system call of a party on, `times` of them fail (0: until the disk is mended)."""

    error: str
    party: str
    nth: int
    times: int
    fills: bool = False
    """It begins with a write of which only half is taken."""
    step: str | None = None


@dataclass(slots=True)
class EventFault:
    """Something that happens to a party at the `at`th event."""

    kind: Event
    party: str
    at: int
    amount_s: float = 0.0
    """How far a clock jumps, or how long a process stands still."""
    step: str | None = None


Fault = MessageFault | DiskFault | EventFault


@cache
def targets(command: str) -> tuple[tuple[str, str, str], ...]:
    """Everything to aim at: (step, party, fault). A refusal is `refuse:` and its code."""
    found: list[tuple[str, str, str]] = []
    begin = begin_of(command)
    for step in (begin, *STEPS[command]):
        found += [(step, COORDINATOR, kind) for kind in (*DISK_ERRORS, TORN, *COORDINATOR_EVENTS)]
        found.append((step, FILE_SERVER, "jump"))
        if command == "gc":
            continue
        for server in SERVERS:
            found += [(step, server, kind) for kind in ("crash", "jump")]
            if step not in (begin, *ASKED[server]):
                continue
            found += [(step, server, kind) for kind in (*MESSAGE_KINDS, *DEADLY) if kind != "refuse"]
            found += [(step, server, f"refuse:{code}") for code in (*CODES[server], UNKNOWN_CODE)]
            if step in WRITES:
                found += [(step, server, kind) for kind in (*DISK_ERRORS, TORN)]
    return tuple(found)


def draw_plan(
    rng: random.Random,
    command: str,
    operations: tuple[tuple[str, str], ...],
    *,
    servers: bool,
    events: int,
    number: int,
) -> list[Fault]:
    """A few faults. `operations`: (server, operation) that the command sends; `events`: about how many it has.

    Neighbouring numbers aim at different targets, so that many seeds come to all of them.
    """
    count = rng.choices((1, 2, 3, 4), (55, 25, 12, 8))[0]
    plan: list[Fault] = []
    if rng.random() < AIMED:
        every = targets(command)
        plan += _aimed(rng, command, every[number * STRIDE % len(every)], events)
        count -= 1
    return [*plan, *(_draw(rng, operations, servers=servers, events=events) for _ in range(count))]


def _aimed(rng: random.Random, command: str, target: tuple[str, str, str], events: int) -> list[Fault]:
    """A fault in one step; where only an attempt that failed comes to that step, one before it that makes it fail."""
    step, party, kind = target
    before: list[Fault] = []
    if command == "snapshot" and step == saving.REMOVE_STAGED:
        server, operation = rng.choice(COMMITS)
        before = [MessageFault("refuse", 1, operation, server)]
    most = min(events, 300) if step == begin_of(command) else 48
    nth = 1 if rng.random() < 0.5 else round(most ** rng.random())  # evenly over orders of magnitude
    times = rng.choice((1, 1, 2, 3, 0))
    if kind in DISK_ERRORS or kind == TORN:
        error = "ENOSPC" if kind == TORN else kind
        return [*before, DiskFault(error, party, nth, times, kind == TORN, step)]
    for fate in (*MESSAGE_KINDS, *DEADLY):
        if fate == kind.partition(":")[0]:
            code = kind.partition(":")[2]
            return [*before, MessageFault(fate, rng.choice((1, 1, 1, 2)), None, party, times, step, code)]
    [event] = [event for event in COORDINATOR_EVENTS if event == kind]
    return [*before, _event(rng, event, party, nth, step)]


def _event(rng: random.Random, kind: Event, party: str, at: int, step: str | None) -> EventFault:
    amount_s = rng.choice(JUMPS_S) if kind == "jump" else rng.choice(FREEZES_S) if kind == "freeze" else 0.0
    return EventFault(kind, party, at, amount_s, step)


def _draw(rng: random.Random, operations: tuple[tuple[str, str], ...], *, servers: bool, events: int) -> Fault:
    kinds = ("message", "disk", "coordinator", "server", "power", "jump", "signal", "freeze")
    weights = (45, 22, 13, 6, 4, 5, 5, 4) if servers else (0, 60, 25, 0, 10, 5, 0, 4)
    kind = rng.choices(kinds, weights)[0]
    if kind == "message":
        return _message(rng, operations)
    if kind == "disk":
        error = rng.choice(tuple(DISK_ERRORS))
        party = COORDINATOR if not servers or rng.random() < 0.6 else rng.choice(SERVERS)
        fills = error == "ENOSPC" and rng.random() < 0.5
        most = int(events * FITTING[error] * (1.0 if party == COORDINATOR else 0.2))
        return DiskFault(error, party, rng.randint(1, max(2, most)), rng.choice((1, 1, 2, 0)), fills)
    at = rng.randint(1, events)
    if kind == "coordinator":
        return EventFault("crash", COORDINATOR, at)
    if kind == "server":
        return EventFault("crash", rng.choice(SERVERS), at)
    if kind == "jump":
        return _event(rng, "jump", rng.choice((COORDINATOR, FILE_SERVER, *(SERVERS if servers else ()))), at, None)
    [event] = [event for event in COORDINATOR_EVENTS if event == kind]
    return _event(rng, event, COORDINATOR, at, None)


def _message(rng: random.Random, operations: tuple[tuple[str, str], ...]) -> MessageFault:
    fate: FateKind = rng.choice((*MESSAGE_KINDS, "refuse"))
    if rng.random() < 0.15:
        fate = rng.choice(DEADLY)
    times = rng.choices((1, 2, 3, 6, 0), (60, 8, 12, 10, 10))[0]
    if rng.random() < 0.2:
        return MessageFault(fate, rng.randint(1, 30), None)
    if rng.random() < 0.25:  # a release that fails as often as it is tried is rare, and matters most
        operations = tuple(item for item in operations if item[1].endswith(("resume", "open")))
        times = rng.choice((1, 3, 0))
    server, operation = rng.choice(operations)
    if rng.random() < 0.2:
        return MessageFault(fate, rng.randint(1, 6), None, server, times)
    return MessageFault(fate, rng.choice((1, 1, 1, 2, 3)), operation, server, times)


def can_fail(error: str, call: str, *, is_write: bool) -> bool:
    """Whether a system call can fail like that."""
    if error == "ENOSPC":
        return call in TAKES_ROOM
    if error == "EROFS":
        return is_write and call not in ("fsync", "write")
    if error == "EACCES":
        return call in NAMES
    return True
