"""Takes what stands in a pickle a million times in a row in one step: whole numbers, and pairs of a number and a short list.

Sets of indexes and shapes of rows are written so. Decides nothing: what does not match is left to the opcodes' own functions.
"""

from __future__ import annotations

import re
import struct
from itertools import repeat

from ckptctl.formats.pickle_state import NOT_KEPT, MachineState

_NUMBERS = re.compile(rb"((?:K.)*)((?:M..)*)((?:J.{4})*)", re.DOTALL)
_NUMBER_FORMS = tuple(map(struct.Struct, ("<xB", "<xH", "<xi")))


def take_numbers(machine: MachineState, pos: int) -> int:
    """Push the whole numbers that follow, as a set of a million indexes has them, without a step for each."""
    found = _NUMBERS.match(machine.window, pos, max(pos, machine.valid))
    if found is None or found.end() == pos:
        return pos
    if machine.has_short_lists and machine.window[found.end() : found.end() + 1] == b"]":
        return _take_short_lists(machine, pos)
    before = len(machine.stack)
    for form, pickled in zip(_NUMBER_FORMS, found.groups(), strict=True):
        machine.stack.extend(number for (number,) in form.iter_unpack(pickled))
    machine.count(len(machine.stack) - before, pos)
    return found.end()


_NUMBER = rb"(K.|M..|J.{4})"
_SHORT_LIST = re.compile(_NUMBER + rb"\]\x94" + _NUMBER + b"a", re.DOTALL)
_SHORT_LISTS = re.compile(b"(?:" + _SHORT_LIST.pattern + b")+", re.DOTALL)
_SHORT_LIST_OPCODES = 5


def _take_short_lists(machine: MachineState, pos: int) -> int:
    """Push the pairs of a number and a list of one number that follow, as a mapping of the shapes of a million rows has them."""
    found = _SHORT_LISTS.match(machine.window, pos, machine.valid)
    if found is None:
        return pos
    before = len(machine.stack)
    for index, length in _SHORT_LIST.findall(found[0]):
        machine.stack += (_number(index), (_number(length),))
    pairs = (len(machine.stack) - before) // 2
    if machine.memo or machine.unstored or machine.memoized + pairs > machine.limits.pickle_memo:
        machine.fail_at("lists are numbered by hand, or too many", pos)
    machine.entries.extend(repeat(NOT_KEPT, pairs))
    machine.count(pairs * _SHORT_LIST_OPCODES, pos)
    return found.end()


def _number(pickled: bytes) -> int:
    return int.from_bytes(pickled[1:], "little", signed=len(pickled) == 5)
