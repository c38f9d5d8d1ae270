"""Reads pickles without executing them: an opcode machine with a fixed vocabulary, inert results and limits.

A global stays a name, a call stays a record of the call, byte strings are skipped by seeking and become (offset, length):
nothing can be called or imported, and memory does not grow with tensor data. Source: data-plane section 5.

Decides: that the pickle ends where it must and stays within `Limits`. The opcodes are in `pickle_opcodes`; the nodes, and the
proof that a finished tree may be walked recursively (no cycle, bounded depth and growth), in `pickle_tree`.
Leaves to others: what a tree means (`tq_checkpoint` and the sidecars' modules), and the bytes behind a `ByteSpan`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ckptctl.domain.limits import Limits
from ckptctl.domain.source import ByteSource
from ckptctl.formats.pickle_opcodes import HANDLERS, STOP, refuse_global
from ckptctl.formats.pickle_state import WINDOW_BYTES, MachineState
from ckptctl.formats.pickle_tree import ByteSpan, Call, Global, OddKey, PersistentId, UnknownGlobal, check_shape

__all__ = [
    "ByteSpan",
    "Call",
    "Global",
    "OddKey",
    "PersistentId",
    "UnknownGlobal",
    "read_pickle",
    "refuse_global",
]


def read_pickle(
    source: ByteSource,
    *,
    start: int = 0,
    stop: int | None = None,
    allowed: frozenset[tuple[str, str]],
    limits: Limits,
    allow_persistent: bool = False,
    opaque_globals: bool = False,
    shortcut: Callable[[MachineState, int, Global], int] | None = None,
    keep: Callable[[Any, list[Any]], list[Any]] | None = None,
    has_short_lists: bool = False,
) -> Any:
    """Read the one pickle that fills `source` from `start` to `stop` (default: the end).

    The result is made of None, bool, int, float, str, list, tuple, set, dict and the node classes of this module.
    With `opaque_globals`, names outside `allowed` become UnknownGlobal instead of a defect. A `shortcut` is asked wherever a
    global is recalled and may put values of its own into the result; a defect that is raised with one may say the wrong thing.
    `keep` is offered what goes into a mapping or a set (which it gets, to know it again); what it does not give back stays out
    of the result. With `has_short_lists` a list of one number in a mapping may be a tuple, and a defect say the wrong thing.

    Raises:
        DefectError: location is the offset in `source`.
    """
    machine = MachineState(source, start, source.size_bytes if stop is None else stop, allowed, limits)
    machine.allow_persistent, machine.opaque_globals = allow_persistent, opaque_globals
    machine.shortcut, machine.keep, machine.has_short_lists = shortcut, keep, has_short_lists
    value, built = _run(machine)
    check_shape(value, built, limits)
    return value


def _run(machine: MachineState) -> tuple[Any, int]:
    """Execute up to STOP, which must be the last byte; gives the value and how many opcodes made it."""
    handlers = HANDLERS
    pos = built = 0
    try:
        for built in range(machine.limits.pickle_items):  # noqa: B007 - the count is wanted behind the loop
            if pos > machine.refill_at:
                pos = machine.refill(pos, WINDOW_BYTES)
            opcode = machine.window[pos]
            if opcode == STOP:
                break
            pos = handlers[opcode](machine, pos + 1)
        else:
            machine.fail_too_many(pos)
        built += machine.taken
        if built > machine.limits.pickle_items:
            machine.fail_too_many(pos)
        if machine.outer or len(machine.stack) != 1:
            machine.fail("the pickle ends with an unfinished value", machine.base + pos)
        if machine.base + pos + 1 != machine.stop:
            machine.fail("the pickle ends before the end of the file", machine.base + pos)
    except IndexError:
        machine.fail("the pickle is malformed: an opcode takes a value that is not there", machine.base + pos)
    except KeyError:
        machine.fail("the pickle refers to a memo entry that does not exist", machine.base + pos)
    except UnicodeDecodeError:
        machine.fail("the pickle holds a text that is not UTF-8", machine.base + pos)
    return machine.stack[0], built
