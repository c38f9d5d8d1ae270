"""Takes pickled tensors of a storage unit in one step each, where they have exactly the form in which TransferQueue writes them.

A unit holds millions of opcodes, and nearly all belong to tensors that differ in index, storage key and bytes only. Here such a
tensor is matched as bytes and becomes its StoredValue at once; where it is like its neighbour it is compared, and not read again.
Decides nothing on its own: in the slightest doubt the opcode machine goes on, one opcode after the other, and whoever reads with
this shortcut reads again without it when anything is refused (`tq_checkpoint`), so that every defect is the machine's.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from functools import partial
from itertools import chain, repeat

from ckptctl.domain.dataplane import DTYPE_BYTES, StoredValue
from ckptctl.domain.finding import DefectError
from ckptctl.formats.pickle_state import WINDOW_BYTES, MachineState
from ckptctl.formats.pickle_tree import Global
from ckptctl.formats.torch_stream import STORAGE_DTYPES, STREAM_HEAD
from ckptctl.formats.tq_values import check_view

_REBUILD, _LOAD, _HOOKS = (
    Global("torch._utils", "_rebuild_tensor_v2"),
    Global("torch.storage", "_load_from_bytes"),
    Global("collections", "OrderedDict"),
)
_RECALL = rb"(?:h.|j.{4})"
_NUMBER = rb"(?:K.|M..|J.{4})"
_SIZES = rb"(?:\)|" + _NUMBER + rb"{1,3}[\x85-\x87])"
_TO_DATA = re.compile(
    rb"(" + _RECALL + rb")\((" + _RECALL + rb")(?:C(.)|B(.{4})|\x8e(.{8}))("
    + re.escape(STREAM_HEAD)
    + rb"\x80\x02\(X\x07\x00\x00\x00storageq\x00ctorch\n([A-Za-z0-9]{1,40})\nq\x01"
    + rb"X(?P<size>.)\x00\x00\x00(?P<key>[0-9]{1,20})q\x02X\x03\x00\x00\x00cpuq\x03(" + _NUMBER + rb")Ntq\x04Q\."
    + rb"\x80\x02\]q\x00X(?P=size)\x00\x00\x00(?P<again>(?P=key))q\x01a\.(.{8}))",
    re.DOTALL,
)  # fmt: skip
_BEHIND_DATA = re.compile(
    rb"(\x94?)\x85(\x94?)R(\x94?)(\x95.{8})?"  # a frame that has got long ends behind the storage
    rb"(" + _NUMBER + rb")(" + _SIZES + rb")(\x94?)(" + _SIZES + rb")(\x94?)"
    + rb"\x89(" + _RECALL + rb")\)R(\x94?)t(\x94?)R(\x94?)",
    re.DOTALL,
)  # fmt: skip
_REACH_BYTES = 512
"""More than everything in front of a tensor's bytes, and more than everything behind them."""
_FEW_BYTES = 1 << 14
"""Longer data is stepped over one by one, so that not all of it is read."""
_FRAME, _FRAME_BYTES = b"\x95", 9
_FIRST_BYTES = 8
"""Two recalls and the length of the stream: by these a tensor is taken for one like an earlier one, and then compared."""
_MOST_KINDS = 4096
_FEW = 16
"""So many neighbours alike, and it is worth a pattern that takes the rest of them in one match."""
_INDEX_BYTES = {b"K": (1, b"K."), b"M": (2, b"M.."), b"J": (4, b"J...[\\x00-\\x7f]")}
_stored_value = partial(tuple.__new__, StoredValue)


class _Kind:
    """What tensors of a column have in common: all their bytes but index, storage key and data."""

    __slots__ = ("front", "item_bytes", "memoized", "storage_end", "tail", "value", "view")

    def __init__(
        self, window: bytes, begin: int, found: re.Match[bytes], behind: re.Match[bytes], value: StoredValue
    ) -> None:
        (key_at, key_end), (again_at, again_end) = found.span("key"), found.span("again")
        self.front = (
            window[begin:key_at],
            key_end - key_at,
            window[key_end:again_at],
            window[again_end : found.end()],
            found.end() - begin,
            value.byte_count,
        )
        # what stands before the key, and the key's length; what stands between its two places, and behind them; where the data
        # begins, and its length
        self.storage_end, self.view = (
            behind[0][: behind.end(3) - behind.start()],
            behind[0][behind.start(5) - behind.start() :],
        )
        self.tail = self.storage_end + self.view
        self.memoized, self.value = _memoized(behind), value
        self.item_bytes = found.end() - begin + value.byte_count + len(self.tail)

    def framed_end(self, window: bytes, pos: int) -> int:
        """The position behind such a tensor whose data ends at `pos`, with a new frame in between, or -1."""
        frame_at = pos + len(self.storage_end)
        view_at = frame_at + _FRAME_BYTES
        is_right = (
            window.startswith(self.storage_end, pos)
            and window.startswith(_FRAME, frame_at)
            and window.startswith(self.view, view_at)
        )
        return view_at + len(self.view) if is_right else -1

    def values_at(self, data_offsets: range) -> Iterable[StoredValue]:
        """The values of such tensors whose data begins there."""
        same = [repeat(one) for one in self.value[:6]]
        return map(_stored_value, zip(*same, data_offsets, repeat(None), repeat(self.value.byte_count)))

    def run(self, index: bytes) -> re.Pattern[bytes]:
        """Any number of pairs of an index (as a pattern) and such a tensor."""
        head, key_bytes, between, ending, _, data_bytes = self.front
        key = b"([0-9]{%d})" % key_bytes
        fixed = map(re.escape, (head, between, ending, self.tail))
        parts = (index, next(fixed), key, next(fixed), rb"\1", next(fixed), b".{%d}" % data_bytes, next(fixed))
        return re.compile(b"(?:" + b"".join(parts) + b")*", re.DOTALL)


class TensorRuns:
    """The shortcut of one reading: takes the tensor that a recalled global begins, and the (index, tensor) pairs behind it."""

    __slots__ = ("_kinds", "_known", "_runs")

    def __init__(self) -> None:
        self._kinds: dict[bytes, _Kind] = {}
        self._runs: dict[tuple[_Kind, bytes], re.Pattern[bytes]] = {}
        self._known: dict[bytes, Global] = {}

    def __call__(self, machine: MachineState, begin: int, callee: Global) -> int:
        """Push what is taken; gives the position behind it, or the complement of `begin` if that is nothing (windows move)."""
        if callee != _REBUILD:
            return ~begin
        pos = self._tensor(machine, begin)
        while pos >= 0:
            pos = machine.peek(self._take_alike(machine, pos), _REACH_BYTES)
            index, at = _number_at(machine.window, pos)
            if index < 0:
                return pos
            machine.stack.append(index)
            pos = self._tensor(machine, at)
            if pos < 0:
                return ~pos  # the index is there; the machine goes on behind it
        return pos

    def _tensor(self, machine: MachineState, begin: int) -> int:
        """One tensor, and everything about it looked at. Gives the position behind it, or the complement of `begin`."""
        begin = machine.peek(begin, _REACH_BYTES)
        window, base = machine.window, machine.base
        found = _TO_DATA.match(window, begin)
        if found is None:
            return ~begin
        rebuild, load, byte, word, double, stream, kind, size, key, count, _, stated = found.groups()
        dtype = STORAGE_DTYPES.get(kind.decode())
        elements, _ = _number_at(count, 0)
        data_bytes = elements * DTYPE_BYTES.get(dtype or "", 0)
        is_right = (
            elements >= 0
            and size[0] == len(key)
            and stated == struct.pack("<q", elements)
            and int.from_bytes(byte or word or double, "little") == len(stream) + data_bytes
            and base + found.end() + data_bytes <= machine.stop
            and self._is(machine, rebuild, _REBUILD)
            and self._is(machine, load, _LOAD)
        )
        if not is_right or dtype is None:
            return ~begin
        pos = machine.peek(machine.skip(found.end(), data_bytes), _REACH_BYTES)
        behind = _BEHIND_DATA.match(machine.window, pos)
        view = self._view(machine, behind, elements) if behind is not None else None
        if behind is None or view is None:
            moved = machine.base != base
            return ~(machine.refill(base + begin - machine.base, WINDOW_BYTES) if moved else begin)
        value = StoredValue("tensor", dtype, *view, elements, base + found.end(), None, data_bytes)
        machine.stack.append(value)
        machine.count(2, pos)
        machine.unstored += _memoized(behind)
        if behind[4] is None and len(self._kinds) < _MOST_KINDS:
            self._kinds[window[begin : begin + _FIRST_BYTES]] = _Kind(window, begin, found, behind, value)
        return behind.end()

    def _view(
        self, machine: MachineState, behind: re.Match[bytes], elements: int
    ) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
        """Shape, stride and offset, if they are what the machine and `tq_values` would take."""
        offset, _ = _number_at(behind[5], 0)
        shape, stride = _sizes(behind[6]), _sizes(behind[8])
        if shape is None or stride is None or not self._is(machine, behind[10], _HOOKS):
            return None
        try:
            check_view(shape, stride, offset, elements, "")
        except DefectError:
            return None
        return shape, stride, offset

    def _is(self, machine: MachineState, recall: bytes, wanted: Global) -> bool:
        """Whether a recall gets this global. What is in the memo stays as it is: the machine sees to that."""
        found = self._known.get(recall)
        if found is None:
            number = int.from_bytes(recall[1:], "little")
            found = machine.entries[number] if number < len(machine.entries) else machine.memo.get(number)
            if type(found) is not Global:
                return False
            self._known[recall] = found
        return found == wanted

    def _take_alike(self, machine: MachineState, pos: int) -> int:
        """Push the pairs whose tensor is like an earlier one; a few comparisons each, since there may be millions."""
        kinds, push, valid = self._kinds, machine.stack.append, machine.valid
        window, begins_with = machine.window, machine.window.startswith
        latest, alike, taken, memoized = None, 0, 0, 0
        while True:
            if pos + _REACH_BYTES > valid:
                pos = machine.peek(pos, _REACH_BYTES)
                window, begins_with, valid = machine.window, machine.window.startswith, machine.valid
            index, at = _number_at(window, pos)
            kind = kinds.get(window[at : at + _FIRST_BYTES])
            if index < 0 or kind is None:
                break
            head, key_bytes, between, ending, data_from, data_bytes = kind.front
            key_at, data_at = at + len(head), at + data_from
            key = window[key_at : key_at + key_bytes]
            if not (
                begins_with(head, at) and key.isdigit() and begins_with(between + key + ending, key_at + key_bytes)
            ):
                break
            base, end = machine.base, data_at + data_bytes
            if end + _REACH_BYTES > valid:
                if base + end > machine.stop:
                    break
                end = machine.peek(machine.skip(data_at, data_bytes), _REACH_BYTES)
                window, begins_with, valid = machine.window, machine.window.startswith, machine.valid
            if begins_with(kind.tail, end):
                behind = end + len(kind.tail)
            else:
                behind = kind.framed_end(window, end)
                if behind < 0:
                    pos = pos if base == machine.base else machine.refill(base + pos - machine.base, WINDOW_BYTES)
                    break
            push(index)
            push(_stored_value((*kind.value[:6], base + data_at, None, data_bytes)))
            taken += 1
            memoized += kind.memoized
            pos = behind
            alike = alike + 1 if kind is latest else 0
            latest = kind
            if alike >= _FEW and data_bytes < _FEW_BYTES:
                pos = self._take_run(machine, pos, kind)
                alike = 0
        machine.unstored += memoized
        machine.count(2 * taken, pos)
        return pos

    def _take_run(self, machine: MachineState, pos: int, kind: _Kind) -> int:
        """Push as many pairs of one kind as this window holds in a row."""
        opcode = machine.window[pos : pos + 1]
        if opcode not in _INDEX_BYTES:
            return pos
        index_bytes, index_pattern = _INDEX_BYTES[opcode]
        pattern = self._runs.get((kind, opcode))
        if pattern is None:
            pattern = self._runs[kind, opcode] = kind.run(index_pattern)
        found = pattern.match(machine.window, pos, machine.valid)
        end = found.end() if found is not None else pos
        pair_bytes = 1 + index_bytes + kind.item_bytes
        lanes = [machine.window[pos + lane : end : pair_bytes] for lane in range(1, 1 + index_bytes)]
        raw = bytearray(4 * len(lanes[0]))
        for lane, values in enumerate(lanes):
            raw[lane::4] = values
        indexes = struct.unpack(f"<{len(lanes[0])}I", raw)
        offset = machine.base + pos + 1 + index_bytes + kind.front[4]
        found_values = kind.values_at(range(offset, offset + len(indexes) * pair_bytes, pair_bytes))
        machine.stack.extend(chain.from_iterable(zip(indexes, found_values, strict=True)))
        machine.unstored += len(indexes) * kind.memoized
        machine.count(2 * len(indexes), end)
        return end


def _memoized(behind: re.Match[bytes]) -> int:
    """How many values of a tensor went into the memo."""
    return len(b"".join(behind.group(1, 2, 3, 7, 9, 11, 12, 13)))


def _number_at(data: bytes, pos: int) -> tuple[int, int]:
    """A pickled whole number >= 0 and the position behind it; -1 for anything else."""
    opcode = data[pos : pos + 1]
    if opcode == b"M":
        return data[pos + 1] | data[pos + 2] << 8, pos + 3
    if opcode == b"K":
        return data[pos + 1], pos + 2
    if opcode == b"J":
        return int.from_bytes(data[pos + 1 : pos + 5], "little", signed=True), pos + 5
    return -1, pos


def _sizes(pickled: bytes) -> tuple[int, ...] | None:
    """A pickled tuple of whole numbers >= 0, as _SIZES matches it."""
    if pickled == b")":
        return ()
    found: list[int] = []
    pos = 0
    while pos < len(pickled) - 1:
        number, pos = _number_at(pickled, pos)
        found.append(number)
    return tuple(found) if len(found) == pickled[-1] - 0x84 and min(found) >= 0 else None
