"""Every byte at an opcode's place: in the vocabulary of data-plane section 5, or refused with its number and place."""

import pickletools

import pytest

from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.pickle_machine import read_pickle

VOCABULARY = {
    *("PROTO", "FRAME", "STOP", "MARK", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
    *("EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET", "EMPTY_TUPLE", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "ADDITEMS"),
    *(
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
    ),
    *("SHORT_BINUNICODE", "BINUNICODE", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    *("GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD", "BINPERSID"),
}
CODES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}


def answer(data, **options):
    """The defect of a pickle, or None when it is read."""
    try:
        read_pickle(BytesSource(data), allowed=frozenset(), limits=DEFAULT_LIMITS, **options)
    except DefectError as error:
        return error.defects[0]
    return None


def test_the_vocabulary_is_made_of_opcodes():
    """A name with a slip would allow nothing."""
    assert set(CODES.values()) >= VOCABULARY


@pytest.mark.parametrize("code", range(256))
@pytest.mark.parametrize("before", [b"\x80\x02", b"\x80\x05}(K\x01N", b"\x80\x05N\x94"])
def test_each_byte_as_an_opcode(code, before):
    """With arguments of zeros behind it, and at the very end."""
    is_known = CODES.get(code) in VOCABULARY
    for rest in (bytes(64), b"", b"."):
        defect = answer(before + bytes((code,)) + rest, allow_persistent=True, opaque_globals=True)
        is_refused = defect is not None and f"opcode 0x{code:02x}, which no checkpoint needs" in defect.message

        assert is_refused != is_known
        assert not is_refused or f"offset {len(before)}" == defect.location


@pytest.mark.parametrize("length", [255, 256, 1 << 16, (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1])
@pytest.mark.parametrize("opcode", ["B", "X", "\x8e", "\x96", "\x8a", "\x95", "\x8c", "C"])
def test_declared_lengths_beyond_the_end(opcode, length):
    """Whatever a length says, nothing of that size is made."""
    width = {"B": 4, "X": 4, "\x8e": 8, "\x96": 8, "\x95": 8}.get(opcode, 1)
    declared = (length & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    defect = answer(b"\x80\x05" + opcode.encode("latin-1") + declared + b"N.")

    if opcode == "\x95":
        assert defect is None  # a frame's length is only a hint
    else:
        assert defect is not None
        assert "cut off" in defect.message or declared.strip(b"\0") == b""
