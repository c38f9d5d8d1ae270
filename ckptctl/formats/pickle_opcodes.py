"""What each legal opcode does to the state, one small function each; every other opcode is refused (data-plane section 5).

A handler gets the window position behind its opcode and gives the position of the next one. Leaves to others: the loop
(`pickle_machine`), and cycles, depth and growth, which show only in the finished value (`pickle_tree`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.formats.pickle_runs import take_numbers
from ckptctl.formats.pickle_state import MachineState
from ckptctl.formats.pickle_tree import ByteSpan, Call, Global, OddKey, PersistentId, UnknownGlobal

Handler = Callable[[MachineState, int], int]
STOP = ord(".")
_GLOBAL_LINE_BYTES = 512


def _refuse(machine: MachineState, pos: int) -> int:
    machine.fail_at(f"the pickle uses opcode 0x{machine.window[pos - 1]:02x}, which no checkpoint needs", pos)


def _proto(machine: MachineState, pos: int) -> int:
    if machine.window[pos] > 5:
        machine.fail_at(f"the pickle has protocol {machine.window[pos]}; 5 is the newest known", pos)
    return pos + 1


def _frame(_machine: MachineState, pos: int) -> int:
    return pos + 8


def _mark(machine: MachineState, pos: int) -> int:
    outer = machine.outer
    if len(outer) >= machine.limits.pickle_depth:
        machine.fail_at(f"the pickle is nested deeper than the limit of {machine.limits.pickle_depth}", pos)
    outer.append(machine.stack)
    machine.stack = []
    return take_numbers(machine, pos)


def _memoize(machine: MachineState, pos: int) -> int:
    if machine.memoized >= machine.limits.pickle_memo:
        machine.fail_at(f"the memo exceeds the limit of {machine.limits.pickle_memo}", pos)
    machine.memoize(machine.stack[-1])
    return pos


def _demand_stored(machine: MachineState, pos: int) -> None:
    """Numbered entries and what a shortcut took do not go together; the file is read again without it."""
    if machine.unstored:
        machine.fail_at("the memo is numbered by hand", pos)


def _binput(machine: MachineState, pos: int) -> int:
    _demand_stored(machine, pos)
    machine.memoize_as(machine.window[pos], machine.stack[-1])  # 256 entries at most
    return pos + 1


def _long_binput(machine: MachineState, pos: int) -> int:
    _demand_stored(machine, pos)
    if machine.memoized >= machine.limits.pickle_memo:
        machine.fail_at(f"the memo exceeds the limit of {machine.limits.pickle_memo}", pos)
    machine.memoize_as(int.from_bytes(machine.window[pos : pos + 4], "little"), machine.stack[-1])
    return pos + 4


def _binget(machine: MachineState, pos: int) -> int:
    return _recall(machine, pos, machine.recalled(machine.window[pos]), 1)


def _long_binget(machine: MachineState, pos: int) -> int:
    return _recall(machine, pos, machine.recalled(int.from_bytes(machine.window[pos : pos + 4], "little")), 4)


def _recall(machine: MachineState, pos: int, value: Any, argument_bytes: int) -> int:
    if machine.shortcut is not None and type(value) is Global:
        behind = machine.shortcut(machine, pos - 1, value)
        if behind >= 0:
            return behind
        pos = ~behind + 1
    machine.stack.append(value)
    return pos + argument_bytes


def _constant(value: Any) -> Handler:
    def handler(machine: MachineState, pos: int) -> int:
        machine.stack.append(value)
        return pos

    return handler


def _empty_list(machine: MachineState, pos: int) -> int:
    machine.stack.append([])
    return pos


def _empty_dict(machine: MachineState, pos: int) -> int:
    machine.stack.append({})
    return pos


def _empty_set(machine: MachineState, pos: int) -> int:
    machine.stack.append(set())
    return pos


def _binint1(machine: MachineState, pos: int) -> int:
    machine.stack.append(machine.window[pos])
    return pos + 1


def _binint2(machine: MachineState, pos: int) -> int:
    window = machine.window
    machine.stack.append(window[pos] | window[pos + 1] << 8)
    return pos + 2


def _binint(machine: MachineState, pos: int) -> int:
    machine.stack.append(int.from_bytes(machine.window[pos : pos + 4], "little", signed=True))
    return pos + 4


def _long1(machine: MachineState, pos: int) -> int:
    count = machine.window[pos]
    pos = machine.need(pos + 1, count)
    machine.stack.append(int.from_bytes(machine.window[pos : pos + count], "little", signed=True))
    return pos + count


_DOUBLE = struct.Struct(">d")


def _binfloat(machine: MachineState, pos: int) -> int:
    machine.stack.append(_DOUBLE.unpack_from(machine.window, pos)[0])
    return pos + 8


def _short_binunicode(machine: MachineState, pos: int) -> int:
    begin = pos + 1
    end = begin + machine.window[pos]
    if end > machine.valid:
        count = end - begin
        begin = machine.need(begin, count)
        end = begin + count
    machine.stack.append(machine.window[begin:end].decode())
    return end


def _binunicode(machine: MachineState, pos: int) -> int:
    count = int.from_bytes(machine.window[pos : pos + 4], "little")
    if machine.base + pos + 4 + count > machine.stop:
        machine.fail_cut_off()
    if count > machine.limits.pickle_text_bytes:
        machine.fail_at(f"a text of {count} bytes exceeds the limit of {machine.limits.pickle_text_bytes}", pos)
    pos = machine.need(pos + 4, count)
    machine.stack.append(machine.window[pos : pos + count].decode())
    return pos + count


def _bytes_with_length(length_bytes: int) -> Handler:
    def handler(machine: MachineState, pos: int) -> int:
        count = int.from_bytes(machine.window[pos : pos + length_bytes], "little")
        pos += length_bytes
        shown = min(count, machine.limits.pickle_skip_bytes)
        if machine.base + pos + count > machine.stop:
            machine.fail_cut_off()
        pos = machine.need(pos, shown)
        machine.stack.append(ByteSpan(machine.base + pos, count, machine.window[pos : pos + shown]))
        return machine.skip(pos, count)

    return handler


def _tuple_of(count: int) -> Handler:
    def handler(machine: MachineState, pos: int) -> int:
        stack = machine.stack
        if len(stack) < count:
            raise IndexError
        stack[-count:] = [tuple(stack[-count:])]
        return pos

    return handler


def _tuple(machine: MachineState, pos: int) -> int:
    values = machine.pop_mark()
    machine.stack.append(tuple(values))
    return pos


def _append_values(machine: MachineState, values: list[Any], pos: int) -> None:
    target = machine.stack[-1]
    if type(target) is list:
        target += values
    elif type(target) is Call:
        if target.appended is None:
            target.appended = []
        target.appended += values
    else:
        machine.fail_at(f"the pickle appends to something that is no list: {_kind(target)}", pos)


def _append(machine: MachineState, pos: int) -> int:
    value = machine.stack.pop()
    _append_values(machine, [value], pos)
    return pos


def _appends(machine: MachineState, pos: int) -> int:
    _append_values(machine, machine.pop_mark(), pos)
    return pos


_KEY_TYPES = {str, int}
_SET_ITEM_TYPES = {str, int, float, bool, type(None)}


def _set_values(machine: MachineState, values: list[Any], pos: int) -> None:
    target = machine.stack[-1]
    if type(target) is Call and target.entries is None:
        target.entries = {}
    entries = target.entries if type(target) is Call else target
    if type(entries) is not dict:
        machine.fail_at(f"the pickle sets a key of something that is no mapping: {_kind(target)}", pos)
    if len(values) % 2:
        machine.fail_at("the pickle sets a key without a value", pos)
    keys = values[0::2]
    if not _KEY_TYPES.issuperset(map(type, keys)):
        if not machine.opaque_globals:
            odd = next(key for key in keys if type(key) not in _KEY_TYPES)
            machine.fail_at(f"a mapping key is neither text nor int: {_kind(odd)}", pos)
        keys = [key if type(key) in _KEY_TYPES else OddKey(key) for key in keys]
    wanted = len(entries) + len(keys)
    entries.update(zip(keys, values[1::2], strict=True))
    if len(entries) != wanted:
        machine.fail_at("a mapping has a key twice", pos)


def _setitem(machine: MachineState, pos: int) -> int:
    value, key = machine.stack.pop(), machine.stack.pop()
    target = machine.stack[-1]
    if type(target) is dict and type(key) is str and key not in target:
        target[key] = value
    else:
        _set_values(machine, [key, value], pos)
    return pos


def _setitems(machine: MachineState, pos: int) -> int:
    values = machine.pop_mark()
    if machine.keep is not None:
        values = machine.keep(machine.stack[-1], values)
    _set_values(machine, values, pos)
    return pos


def _additems(machine: MachineState, pos: int) -> int:
    values = machine.pop_mark()
    target = machine.stack[-1]
    if machine.keep is not None:
        values = machine.keep(target, values)
    if type(target) is not set:
        machine.fail_at(f"the pickle adds items to something that is no set: {_kind(target)}", pos)
    if not _SET_ITEM_TYPES.issuperset(map(type, values)):
        if not machine.opaque_globals:
            machine.fail_at("a set item is no primitive", pos)
        values = [value if type(value) in _SET_ITEM_TYPES else OddKey(value) for value in values]
    target.update(values)
    return pos


def _push_global(machine: MachineState, module: str, name: str, offset: int) -> None:
    if (module, name) in machine.allowed:
        machine.stack.append(Global(module, name))
    elif machine.opaque_globals:
        machine.stack.append(UnknownGlobal(module, name, offset))
    else:
        refuse_global(module, name, offset)


def refuse_global(module: str, name: str, offset: int) -> NoReturn:
    """Raise the defect of a name that is not in the vocabulary."""
    what = f"pickle names a global ckptctl does not know: loading it would import and may call `{module}.{name}`"
    raise DefectError(Defect(what, location=f"offset {offset}"))


def _global(machine: MachineState, pos: int) -> int:
    begin = machine.need(pos, min(2 * _GLOBAL_LINE_BYTES + 2, machine.stop - machine.base - pos))
    offset = machine.base + begin - 1
    names: list[str] = []
    for _ in range(2):
        end = machine.window.find(b"\n", begin, begin + _GLOBAL_LINE_BYTES + 1)
        if end < 0:
            machine.fail("the name of a global is too long or cut off", offset)
        names.append(machine.window[begin:end].decode())
        begin = end + 1
    _push_global(machine, names[0], names[1], offset)
    return begin


def _stack_global(machine: MachineState, pos: int) -> int:
    name, module = machine.stack.pop(), machine.stack.pop()
    if type(name) is not str or type(module) is not str:
        machine.fail_at("the name of a global is not a text", pos)
    if len(name) > _GLOBAL_LINE_BYTES or len(module) > _GLOBAL_LINE_BYTES:
        machine.fail_at("the name of a global is too long", pos)
    _push_global(machine, module, name, machine.base + pos - 1)
    return pos


def _call(*, is_new: bool) -> Handler:
    def handler(machine: MachineState, pos: int) -> int:
        stack = machine.stack
        arguments = stack.pop()
        callee = stack[-1]
        if type(callee) is not Global and not (machine.opaque_globals and isinstance(callee, Global | Call)):
            machine.fail_at(f"the pickle calls something that is no global: {_kind(callee)}", pos)
        if type(arguments) is not tuple:
            machine.fail_at(f"the pickle calls `{callee}` with something that is no tuple: {_kind(arguments)}", pos)
        stack[-1] = Call(callee, arguments, is_new)
        return pos

    return handler


def _build(machine: MachineState, pos: int) -> int:
    state = machine.stack.pop()
    target = machine.stack[-1]
    if type(target) is not Call or target.has_state:
        machine.fail_at(f"the pickle sets the state of something that has none, or has it: {_kind(target)}", pos)
    target.state, target.has_state = state, True
    return pos


def _binpersid(machine: MachineState, pos: int) -> int:
    if not machine.allow_persistent:
        machine.fail_at("the pickle uses a persistent id, which this file never has", pos)
    machine.stack[-1] = PersistentId(machine.stack[-1])
    return pos


def _kind(value: Any) -> str:
    names = {Call: "called object", Global: "global", UnknownGlobal: "global", ByteSpan: "byte string"}
    return names.get(type(value), type(value).__name__)


HANDLERS: list[Handler] = [_refuse] * 256


def _install() -> None:
    table: dict[int, Handler] = {
        0x80: _proto, 0x95: _frame, ord("("): _mark,
        0x94: _memoize, ord("q"): _binput, ord("r"): _long_binput, ord("h"): _binget, ord("j"): _long_binget,
        ord("}"): _empty_dict, ord("]"): _empty_list, 0x8F: _empty_set, ord(")"): _constant(()),
        ord("s"): _setitem, ord("u"): _setitems, ord("a"): _append, ord("e"): _appends, 0x90: _additems,
        ord("t"): _tuple, 0x85: _tuple_of(1), 0x86: _tuple_of(2), 0x87: _tuple_of(3),
        ord("J"): _binint, ord("K"): _binint1, ord("M"): _binint2, 0x8A: _long1, ord("G"): _binfloat,
        ord("N"): _constant(None), 0x88: _constant(True), 0x89: _constant(False),
        0x8C: _short_binunicode, ord("X"): _binunicode,
        ord("C"): _bytes_with_length(1), ord("B"): _bytes_with_length(4),
        0x8E: _bytes_with_length(8), 0x96: _bytes_with_length(8),
        ord("c"): _global, 0x93: _stack_global, ord("R"): _call(is_new=False), 0x81: _call(is_new=True),
        ord("b"): _build, ord("Q"): _binpersid,
    }  # fmt: skip
    for opcode, handler in table.items():
        HANDLERS[opcode] = handler


_install()
