"""Writes pickles out of the inert trees that `pickle_machine` reads, in the vocabulary it reads and no other.

Protocol 2 is what torch zips hold, protocol 5 what TransferQueue writes. The same tree gives the same bytes: sets are sorted,
mappings keep their order, texts and globals go through the memo in order of first use. Sharing is not kept: a container that
occurs twice is written twice. Leaves to others: the container (`torch_zip`) and what a tree means.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from ckptctl.formats.pickle_tree import Call, Global, PersistentId

Protocol = Literal[2, 5]
_BATCH = 1000  # items per SETITEMS, APPENDS or ADDITEMS, as the standard pickler writes them
_MOST_LONG1_BYTES = 255


def write_pickle(tree: Any, protocol: Protocol) -> bytes:
    """Pickle a tree of None, bool, int, float, str, bytes, list, tuple, set, frozenset, dict, Global, Call and PersistentId.

    A set needs protocol 5. Bytes in protocol 2 become the call by which the standard pickler writes them there.

    Raises:
        ValueError: something else is in the tree, or an int or text has no form in this vocabulary.
    """
    writer = _Writer(protocol)
    writer.write(tree)
    body = b"".join(writer.chunks) + b"."
    if protocol == 2:
        return b"\x80\x02" + body
    return b"\x80\x05\x95" + struct.pack("<Q", len(body)) + body


class _Writer:
    """The output so far, and which texts and globals are in the memo."""

    __slots__ = ("chunks", "memo", "protocol")

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.chunks: list[bytes] = []
        self.memo: dict[Any, int] = {}

    def write(self, value: Any) -> None:
        """Append one value."""
        write = _WRITERS.get(type(value))
        if write is None:
            raise ValueError(f"a value of type {type(value).__name__} has no form in a checkpoint's pickle")
        write(self, value)

    def recalled(self, value: Any) -> bool:
        """Append `value` from the memo if it is there."""
        index = self.memo.get(value)
        if index is None:
            return False
        self.chunks.append(b"h" + bytes((index,)) if index < 256 else b"j" + struct.pack("<I", index))
        return True

    def remember(self, value: Any) -> None:
        """Put the value just appended into the memo."""
        index = self.memo[value] = len(self.memo)
        if self.protocol == 5:
            self.chunks.append(b"\x94")
        else:
            self.chunks.append(b"q" + bytes((index,)) if index < 256 else b"r" + struct.pack("<I", index))


def _constant(opcode: bytes) -> _WriteFunction:
    def write(writer: _Writer, _value: Any) -> None:
        writer.chunks.append(opcode)

    return write


def _bool(writer: _Writer, value: bool) -> None:
    writer.chunks.append(b"\x88" if value else b"\x89")


def _int(writer: _Writer, value: int) -> None:
    if 0 <= value < 1 << 8:
        writer.chunks.append(struct.pack("<cB", b"K", value))
    elif 0 <= value < 1 << 16:
        writer.chunks.append(struct.pack("<cH", b"M", value))
    elif -(1 << 31) <= value < 1 << 31:
        writer.chunks.append(struct.pack("<ci", b"J", value))
    else:
        count = value.bit_length() // 8 + 1
        if count > _MOST_LONG1_BYTES:
            raise ValueError("an int is too large for a checkpoint's pickle")
        writer.chunks.append(struct.pack("<cB", b"\x8a", count) + value.to_bytes(count, "little", signed=True))


def _float(writer: _Writer, value: float) -> None:
    writer.chunks.append(b"G" + struct.pack(">d", value))


def _str(writer: _Writer, value: str) -> None:
    if writer.recalled(value):
        return
    data = value.encode()
    if writer.protocol == 5 and len(data) < 256:
        writer.chunks += (b"\x8c" + bytes((len(data),)), data)
    else:
        writer.chunks += (b"X" + struct.pack("<I", len(data)), data)
    writer.remember(value)


def _bytes(writer: _Writer, value: bytes) -> None:
    if writer.protocol == 2:
        writer.write(Call(Global("_codecs", "encode"), (value.decode("latin1"), "latin1")))
    elif len(value) < 256:
        writer.chunks += (b"C" + bytes((len(value),)), value)
    elif len(value) < 1 << 32:
        writer.chunks += (b"B" + struct.pack("<I", len(value)), value)
    else:
        writer.chunks += (b"\x8e" + struct.pack("<Q", len(value)), value)


def _batches(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for begin in range(0, len(values), _BATCH):
        yield values[begin : begin + _BATCH]


def _add_items(writer: _Writer, values: Sequence[Any]) -> None:
    for batch in _batches(values):
        writer.chunks.append(b"(")
        for value in batch:
            writer.write(value)
        writer.chunks.append(b"e")


def _list(writer: _Writer, value: list[Any]) -> None:
    writer.chunks.append(b"]")
    _add_items(writer, value)


def _tuple(writer: _Writer, value: tuple[Any, ...]) -> None:
    if len(value) > 3:
        writer.chunks.append(b"(")
    for item in value:
        writer.write(item)
    writer.chunks.append((b")", b"\x85", b"\x86", b"\x87")[len(value)] if len(value) <= 3 else b"t")


def _set(writer: _Writer, value: set[Any] | frozenset[Any]) -> None:
    if writer.protocol == 2:
        raise ValueError("a set has no form in a pickle of protocol 2")
    writer.chunks.append(b"\x8f")
    for batch in _batches(sorted(value, key=lambda item: (type(item).__name__, item))):
        writer.chunks.append(b"(")
        for item in batch:
            writer.write(item)
        writer.chunks.append(b"\x90")


def _add_entries(writer: _Writer, entries: dict[Any, Any]) -> None:
    for batch in _batches(list(entries)):
        writer.chunks.append(b"(")
        for key in batch:
            if type(key) not in (str, int):
                raise ValueError(f"a mapping key of type {type(key).__name__} has no form in a checkpoint's pickle")
            writer.write(key)
            writer.write(entries[key])
        writer.chunks.append(b"u")


def _dict(writer: _Writer, value: dict[Any, Any]) -> None:
    writer.chunks.append(b"}")
    _add_entries(writer, value)


def _global(writer: _Writer, value: Global) -> None:
    if writer.recalled(value):
        return
    if writer.protocol == 5:
        writer.write(value.module)
        writer.write(value.name)
        writer.chunks.append(b"\x93")
    else:
        writer.chunks.append(f"c{value.module}\n{value.name}\n".encode())
    writer.remember(value)


def _call(writer: _Writer, value: Call) -> None:
    writer.write(value.callee)
    writer.write(value.arguments)
    writer.chunks.append(b"\x81" if value.is_new else b"R")
    _add_items(writer, value.appended or ())
    _add_entries(writer, value.entries or {})
    if value.has_state:
        writer.write(value.state)
        writer.chunks.append(b"b")


def _persistent_id(writer: _Writer, value: PersistentId) -> None:
    writer.write(value.value)
    writer.chunks.append(b"Q")


_WriteFunction = Callable[[_Writer, Any], None]
_WRITERS: dict[type, _WriteFunction] = {
    type(None): _constant(b"N"),
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    dict: _dict,
    Global: _global,
    Call: _call,
    PersistentId: _persistent_id,
}
