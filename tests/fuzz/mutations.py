"""Turns good bytes into bad ones. The same seed gives the same input on every machine; nothing here knows what it damages.

What helps to get past the first check of a format is given as tokens: pieces that mean something there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

MOST_BYTES = 1 << 18
"""Longest input that is made: what takes more is the business of `tests.hostile`."""
_NUMBERS = (
    0,
    1,
    2,
    16,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    511,
    512,
    0x7FFF,
    0x8000,
    0xFFFF,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
)
_NUMBERS += ((1 << 32) - 1, 1 << 32, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)

JSON_TOKENS = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\n", b"null", b"true", b"false", b"0", b"-0", b"-1", b"1.0", b"1e999",
    b"-1e-999", b"1E5", b"NaN", b"Infinity", b"-Infinity", b"9" * 19, b"9" * 20, b"9" * 400, b"18446744073709551616", b'""', b"[]",
    b"{}", b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\u0000"', b'"\x1b[31m"', b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"[" * 70,
    b'{"a":' * 70, b'"a":1,"a":2', b'"schema_version"', b'"../x"', b'"/etc/passwd"', b"/*", b"'", b"\x00", b" " * 50,
)  # fmt: skip
YAML_TOKENS = (
    b"&a ", b"*a", b"<<: ", b"!!python/object:os.system ", b"!!binary ", b"!!set ", b"? ", b"- ", b": ", b"\n", b"  ", b"\t", b"{", b"}",
    b"[", b"]", b"'", b'"', b"|\n", b">\n", b"---\n", b"...\n", b"%YAML 1.2\n", b"0x1F", b"0o7", b"1:30:00", b".inf", b".nan",
    b"2001-12-14", b"0b1_0", b"0x_", b"0b_", b"1_", b"._", b"-._", b"+_:0", b"~", b"=", b"yes", b"#", b"@", b"`", b"\x00", b"\xff", b"\xc2\x85",
    b"\xef\xbb\xbf", b"9" * 500, b"[" * 70, b"- " * 70, b"a: " * 3, b"190:20:30", b"1e3", b"-0", b"0.", b".5",
)  # fmt: skip
PICKLE_TOKENS = (
    b"\x80\x02", b"\x80\x05", b"\x80\x06", b"\x95" + b"\xff" * 8, b"\x95" + bytes(8), b"(", b".", b"]", b"}", b"\x8f", b")", b"a", b"e",
    b"s", b"u", b"t", b"\x85", b"\x86", b"\x87", b"\x90", b"\x91", b"N", b"\x88", b"\x89", b"\x94", b"q\x00", b"q\x01", b"h\x00", b"h\x01",
    b"r\xff\xff\xff\xff", b"j\x00\x00\x00\x00", b"K\x00", b"M\xff\xff", b"J\xff\xff\xff\xff", b"\x8a\x00", b"\x8a\xff", b"\x8a\x08" + b"\x7f" * 8,
    b"G\x7f\xf0\x00\x00\x00\x00\x00\x00", b"G\x7f\xf8\x00\x00\x00\x00\x00\x00", b"\x8c\x00", b"\x8c\x01a", b"\x8c\x04\xed\xa0\x80a",
    b"X\x00\x00\x00\x00", b"X\xff\xff\xff\xff", b"C\x00", b"C\x03abc", b"B\xff\xff\xff\xff", b"\x8e" + b"\xff" * 8, b"\x96" + bytes(8),
    b"cos\nsystem\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nLongStorage\n", b"ccollections\nOrderedDict\n", b"\x93", b"R",
    b"\x81", b"b", b"Q", b"0", b"2", b"P0\n", b"I1\n", b"L1L\n", b"V\\u0041\n", b"i", b"o", b"\x82\x01", b"\x97", b"\x98", b"](" * 10, b"]" * 70,
    b"N" + b"\x85" * 70, b"c" + b"m" * 600,
)  # fmt: skip
ZIP_TOKENS = (
    b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08", b"../", b"/", b"archive/data.pkl", b"\xff\xff",
    b"\xff\xff\xff\xff", b"\x01\x00\x10\x00" + b"\xff" * 16, b"\x08\x00", b"\x00" * 22,
)  # fmt: skip
TAR_TOKENS = (
    b"ustar\x0000", b"ustar  \x00", b"././@PaxHeader", b"27 path=../../../etc/passwd\n", b"20 GNU.sparse.size=9\n", b"0", b"1", b"2", b"3", b"5",
    b"6", b"x", b"g", b"L", b"S", b"\x00", b"../x", b"/x", b"77777777777", b"\x80" + b"\xff" * 11, b"\x00" * 512, b"99999999 path=x\n",
    b"0 path=x\n",
)  # fmt: skip

Mutation = Callable[[random.Random, bytearray, Sequence[bytes], Sequence[bytes]], None]


def mutated(chance: random.Random, samples: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """One sample with one to eight changes."""
    data = bytearray(chance.choice(samples))
    for _ in range(min(8, 1 + int(chance.expovariate(0.7)))):
        chance.choice(_MUTATIONS)(chance, data, samples, tokens)
        del data[MOST_BYTES:]
    return bytes(data)


def _place(chance: random.Random, data: bytearray) -> int:
    """Anywhere; more often near the ends, where headers and directories lie."""
    if not data:
        return 0
    kind = chance.random()
    if kind < 0.2:
        return chance.randrange(min(len(data), 64))
    return len(data) - 1 - chance.randrange(min(len(data), 64)) if kind < 0.4 else chance.randrange(len(data))


def _span(chance: random.Random, data: bytearray) -> tuple[int, int]:
    begin = _place(chance, data)
    return begin, min(len(data), begin + 1 + int(chance.expovariate(1 / 12)))


def _flip(chance: random.Random, data: bytearray, *_: Sequence[bytes]) -> None:
    if data:
        data[_place(chance, data)] ^= 1 << chance.randrange(8)


def _set_byte(chance: random.Random, data: bytearray, *_: Sequence[bytes]) -> None:
    if data:
        data[_place(chance, data)] = chance.randrange(256)


def _delete(chance: random.Random, data: bytearray, *_: Sequence[bytes]) -> None:
    begin, end = _span(chance, data)
    del data[begin:end]


def _double(chance: random.Random, data: bytearray, *_: Sequence[bytes]) -> None:
    begin, end = _span(chance, data)
    data[end:end] = data[begin:end] * chance.choice((1, 1, 1, 2, 70, 300))


def _noise(chance: random.Random, data: bytearray, *_: Sequence[bytes]) -> None:
    begin, end = _span(chance, data)
    data[begin:end] = chance.randbytes(chance.randrange(17))


def _cut(chance: random.Random, data: bytearray, *_: Sequence[bytes]) -> None:
    del data[_place(chance, data) :]


def _number(chance: random.Random, data: bytearray, *_: Sequence[bytes]) -> None:
    """Write a number at the edge of some range over 1, 2, 4 or 8 bytes."""
    width, begin = chance.choice((1, 2, 4, 8)), _place(chance, data)
    value = chance.choice(_NUMBERS) & ((1 << 8 * width) - 1)
    data[begin : begin + width] = value.to_bytes(width, chance.choice(("little", "big")))


def _token(chance: random.Random, data: bytearray, _: Sequence[bytes], tokens: Sequence[bytes]) -> None:
    begin, end = _span(chance, data)
    data[begin : chance.choice((begin, end))] = chance.choice(tokens) if tokens else b"\0"


def _splice(chance: random.Random, data: bytearray, samples: Sequence[bytes], _: Sequence[bytes]) -> None:
    other = bytearray(chance.choice(samples))
    data[_place(chance, data) :] = other[_place(chance, other) :]


def _copy(chance: random.Random, data: bytearray, samples: Sequence[bytes], _: Sequence[bytes]) -> None:
    other = bytearray(chance.choice(samples))
    begin, end = _span(chance, other)
    at = _place(chance, data)
    data[at : at + chance.choice((0, end - begin))] = other[begin:end]


def _swap(chance: random.Random, data: bytearray, *_: Sequence[bytes]) -> None:
    first, second = sorted((_span(chance, data), _span(chance, data)))
    if first[1] <= second[0]:
        left, right = data[first[0] : first[1]], data[second[0] : second[1]]
        data[second[0] : second[1]] = left
        data[first[0] : first[1]] = right


_MUTATIONS: tuple[Mutation, ...] = (
    _flip, _set_byte, _delete, _double, _noise, _cut, _number, _number, _token, _token, _token, _splice, _copy, _copy, _swap,
)  # fmt: skip
