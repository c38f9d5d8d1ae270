"""Whole columns of 8-byte ids and 4-byte floats: swapped and judged without looking at one element at a time.

A column is taken apart into *lanes* (every eighth or fourth byte), which slicing, `translate` and comparison handle at the speed
of memory. What a column means is `staged`'s business; a column that is no whole number of elements is nobody's here.
"""

from __future__ import annotations

import sys
from array import array
from typing import Any

_EXPONENT_ONES = bytes(byte & 0x7F == 0x7F for byte in range(256))
"""Of a float's top byte: the upper seven bits of the exponent are all set."""
_TOP_BIT = bytes(byte >> 7 for byte in range(256))
_SECOND_OF_MASK = bytes({0x00: 0x00, 0x80: 0x00, 0x3F: 0x80}.get(byte, 0x01) for byte in range(256))
"""The third byte that 0.0, -0.0 and 1.0 have, by their top byte; for any other a byte that no mask value has."""
_ONE = b"\x00\x00\x80\x3f"
_NOT_GENERATED = bytes(0x00 if byte == 0x3F else 0xFF for byte in range(256))
_WITHOUT_SIGN = bytes(byte & 0x7F for byte in range(256))


def big_endian(words: array[Any]) -> bytes:
    """The words as digests take them."""
    if sys.byteorder == "little":
        words = words[:]
        words.byteswap()
    return words.tobytes()


def little_endian(words: array[Any]) -> bytes:
    """The words as they are stored."""
    if sys.byteorder == "big":
        words = words[:]
        words.byteswap()
    return words.tobytes()


def has_negative(ids: bytes) -> bool:
    """Whether one of these stored int64 is below 0."""
    return not ids[7::8].isascii()


def is_finite(floats: bytes) -> bool:
    """Whether none of these stored float32 is infinite or no number."""
    top = floats[3::4]
    if 0x7F not in top and 0xFF not in top:
        return True
    return not _both(top.translate(_EXPONENT_ONES), floats[2::4].translate(_TOP_BIT))


def is_mask(floats: bytes) -> bool:
    """Whether each of these stored float32 is 0.0 or 1.0; a negative zero is a zero."""
    if _carried_bytes(floats) is not None:
        return True
    nothing = bytes(len(floats) // 4)
    third = floats[2::4]
    return (
        floats[0::4] == nothing
        and floats[1::4] == nothing
        and floats[3::4].translate(_SECOND_OF_MASK) == third
        and not third.translate(None, b"\x00\x80")
    )


def is_zero_outside(mask: bytes, floats: bytes) -> bool:
    """Whether each of these stored float32 is a zero where `mask` (see `is_mask`) is one."""
    carried = _carried_bytes(mask)
    if carried is not None and floats[:carried] == bytes(carried):
        return True
    outside = mask[3::4].translate(_NOT_GENERATED)
    top = floats[3::4].translate(_WITHOUT_SIGN)
    return not any(_both(lane, outside) for lane in (top, floats[2::4], floats[1::4], floats[0::4]))


def _carried_bytes(mask: bytes) -> int | None:
    """Of a mask in the usual form, zeros and then ones: how many bytes the zeros take. None for any other column."""
    first = mask.find(b"\x80")  # of the first 1.0; stripping zeros takes ten times as long
    zeros = len(mask) if first < 0 else first - 2
    return zeros if zeros % 4 == 0 and mask == bytes(max(zeros, 0)) + _ONE * ((len(mask) - zeros) // 4) else None


def _both(lane: bytes, other: bytes) -> int:
    return int.from_bytes(lane, "little") & int.from_bytes(other, "little")
