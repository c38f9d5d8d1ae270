"""The opcode machine: what each opcode gives, what is refused, and that no limit can be passed."""

import pickle
from dataclasses import replace

import pytest

from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.domain.source import BytesSource
from ckptctl.formats import pickle_machine, pickle_state
from ckptctl.formats.pickle_machine import (
    ByteSpan,
    Call,
    Global,
    OddKey,
    PersistentId,
    UnknownGlobal,
    read_pickle,
)

MAKE = frozenset({("box", "Make")})


def read(data: bytes, limits: Limits = DEFAULT_LIMITS, **options):
    return read_pickle(BytesSource(data), **{"allowed": MAKE, "limits": limits, **options})


def defect_of(data: bytes, limits: Limits = DEFAULT_LIMITS, **options):
    with pytest.raises(DefectError) as caught:
        read(data, limits, **options)
    assert not caught.value.is_unsupported
    return caught.value.defects[0]


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize(
    "value",
    [
        None,
        [True, False, 0, 255, 256, 65535, 65536, -1, -(2**31), 2**31, -(2**70), 1.5, -0.0],
        ["", "é", "x" * 255, "x" * 256, "x" * 70_000],
        [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], {}, {"a": 1}, {1: "b", "c": [{}]}],
        {"many": list(range(3000)), "names": {f"k{i}": i for i in range(3000)}},
    ],
)
def test_plain_values_are_read_as_they_were_written(protocol, value):
    """What the standard pickler writes of plain values comes back equal, types included."""
    found = read(pickle.dumps(value, protocol))

    assert repr(value) == repr(found)


def test_sets_are_read():
    """EMPTY_SET and ADDITEMS, with every primitive."""
    assert {1, "a", 2.5, None} == read(pickle.dumps({1, "a", 2.5, None}, 4))


def test_bytes_become_places():
    """A byte string is an offset, a length and its first bytes; BYTEARRAY8 as well."""
    data = pickle.dumps([b"abc", b"y" * 1000, bytearray(b"z" * 300)], 5)
    small, large, array = read(data)

    assert ByteSpan(data.index(b"abc"), 3, b"abc") == small
    assert ByteSpan(data.index(b"y" * 1000), 1000, b"y" * 256) == large
    assert ByteSpan(data.index(b"z" * 300), 300, b"z" * 256) == array


def test_a_byte_string_is_skipped_not_read():
    """Four gigabytes of tensor data cost no more than their head."""

    class Sparse:
        size_bytes = 2 + 9 + (4 << 30) + 1
        read_bytes = 0

        def read_at(self, offset, count):
            self.read_bytes += count
            head = b"\x80\x05\x8e" + (4 << 30).to_bytes(8, "little")
            return b"".join(
                head[i : i + 1] or (b"." if i == self.size_bytes - 1 else b"d") for i in range(offset, offset + count)
            )

    source = Sparse()
    span = read_pickle(source, allowed=MAKE, limits=DEFAULT_LIMITS)

    assert (11, 4 << 30, b"d" * 256) == (span.offset, span.length, span.head)
    assert source.read_bytes < 1 << 20


def test_globals_calls_and_states_are_inert():
    """REDUCE, NEWOBJ and BUILD record what would have happened."""
    called = read(b"\x80\x02cbox\nMake\nK\x01\x85R.")
    made = read(b"\x80\x02cbox\nMake\n)\x81}X\x01\x00\x00\x00aK\x02sb.")

    assert (Global("box", "Make"), (1,), False, False) == (
        called.callee,
        called.arguments,
        called.is_new,
        called.has_state,
    )
    assert (True, True, {"a": 2}) == (made.is_new, made.has_state, made.state)
    assert called.is_plain_call_of("box", "Make")
    assert not called.is_plain_call_of("box", "Other")
    assert not made.is_plain_call_of("box", "Make")
    assert "box.Make" == str(called.callee)


def test_items_added_to_a_called_object_are_kept():
    """APPEND, APPENDS, SETITEM and SETITEMS on an object are its own."""
    data = b"\x80\x02cbox\nMake\n)RK\x01a(K\x02e" + b"K\x05K\x06s(K\x07K\x08u."
    found = read(data)

    assert [1, 2] == found.appended
    assert {5: 6, 7: 8} == found.entries


def test_stack_global_and_memo():
    """Protocol 5 names globals by two texts; the memo gives the same node again."""
    data = b"\x80\x05\x8c\x03box\x94\x8c\x04Make\x94\x93\x94h\x02j\x02\x00\x00\x00\x87."

    assert (Global("box", "Make"),) * 3 == read(data)


def test_long_binput_and_long_binget():
    """The four byte forms of the memo."""
    assert [7, 7] == read(b"\x80\x02](K\x07r\x00\x01\x00\x00j\x00\x01\x00\x00e.")


def test_persistent_ids_only_where_they_belong():
    """BINPERSID is legal in sidecars, and nowhere else."""
    data = b"\x80\x02X\x01\x00\x00\x00kQ."
    found = read(data, allow_persistent=True)

    assert isinstance(found, PersistentId)
    assert "k" == found.value
    assert "offset 8" == defect_of(data).location


@pytest.mark.parametrize("data", [b"cposix\nsystem\n", b"X\x05\x00\x00\x00posixX\x06\x00\x00\x00system\x93"])
def test_an_unknown_global_is_named(data):
    """The defect says which name, and where."""
    defect = defect_of(b"\x80\x02" + data + b"X\x02\x00\x00\x00id\x85R.")

    said = "pickle names a global ckptctl does not know: loading it would import and may call `posix.system`"
    assert said == defect.message
    assert defect.location.startswith("offset ")


def test_opaque_globals_are_kept_with_their_offset():
    """For data that is left alone, unknown names and calls of calls are nodes like others."""
    data = b"\x80\x02cos\nsystem\n)R)R."
    found = read(data, opaque_globals=True)

    assert UnknownGlobal("os", "system") == found.callee.callee
    assert 2 == found.callee.callee.offset


def test_odd_keys_only_in_opaque_data():
    """A tuple as key, a float in a mapping, a tuple in a set: only where nobody looks."""
    mapping = pickle.dumps({(1, 2): "a", 2.5: "b", 3: "c"}, 2)
    items = pickle.dumps({(1, 2)}, 4)
    found = read(mapping, opaque_globals=True)

    assert [OddKey, OddKey, int] == [type(key) for key in found]
    assert [OddKey] == [type(item) for item in read(items, opaque_globals=True)]
    assert "a mapping key is neither text nor int: tuple" == defect_of(mapping).message
    assert "a set item is no primitive" == defect_of(items).message


@pytest.mark.parametrize(
    "opcode",
    [
        *(bytes((code,)) for code in b"0126789:;=?IiloPpgSUVdDFTL"),
        *(bytes((code,)) for code in (0x00, 0x82, 0x83, 0x84, 0x8B, 0x8D, 0x91, 0x92, 0x97, 0x98, 0xFF)),
    ],
)
def test_other_opcodes_are_refused(opcode):
    """INST, OBJ, EXT, POP, DUP, text forms and everything unknown."""
    defect = defect_of(b"\x80\x02N" + opcode + b"K\x00K\x00K\x00K\x00K\x00.")

    assert f"opcode 0x{opcode[0]:02x}" in defect.message
    assert "offset 3" == defect.location


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x06N.", "protocol 6"),
        (b"\x80\x02", "cut off"),
        (b"", "cut off"),
        (b"\x80\x02K", "cut off"),
        (b"\x80\x02X\x05\x00\x00\x00ab.", "cut off"),
        (b"\x80\x05\x8c\x09ab.", "cut off"),
        (b"\x80\x05B\x05\x00\x00\x00ab.", "cut off"),
        (b"\x80\x05\x8e\xff\xff\xff\xff\xff\xff\xff\xffab.", "cut off"),
        (b"\x80\x02\x8a\x09ab.", "cut off"),
        (b"\x80\x02cbox", "too long or cut off"),
        (b"\x80\x02c" + b"m" * 600 + b"\nn\n.", "too long"),
        (b"\x80\x05X\x58\x02\x00\x00" + b"m" * 600 + b"\x8c\x01n\x93.", "too long"),
        (b"\x80\x05NN\x93.", "not a text"),
        (b"\x80\x02N..", "before the end"),
        (b"\x80\x02NN.", "unfinished"),
        (b"\x80\x02(N.", "unfinished"),
        (b"\x80\x02.", "unfinished"),
        (b"\x80\x02t.", "not there"),
        (b"\x80\x02(\x85.", "not there"),
        (b"\x80\x02N\x86.", "not there"),
        (b"\x80\x02a.", "not there"),
        (b"\x80\x02h\x00.", "memo entry that does not exist"),
        (b"\x80\x02j\x00\x00\x00\x01.", "memo entry that does not exist"),
        (b"\x80\x02X\x02\x00\x00\x00\xc3\x28.", "not UTF-8"),
        (b"\x80\x02X\x03\x00\x00\x00\xed\xa0\x80.", "not UTF-8"),
        (b"\x80\x02NNa.", "no list: NoneType"),
        (b"\x80\x02N(Ne.", "no list"),
        (b"\x80\x02]K\x01K\x01s.", "no mapping: list"),
        (b"\x80\x02}(K\x01u.", "key without a value"),
        (b"\x80\x02}(K\x01NK\x01Nu.", "a key twice"),
        (b"\x80\x02}K\x01NsK\x01Ns.", "a key twice"),
        (b"\x80\x02}X\x01\x00\x00\x00aNsX\x01\x00\x00\x00aNs.", "a key twice"),
        (b"\x80\x02}(\x88Nu.", "neither text nor int: bool"),
        (b"\x80\x04](N\x90.", "no set"),
        (b"\x80\x02N)R.", "no global: NoneType"),
        (b"\x80\x02cbox\nMake\n]R.", "no tuple: list"),
        (b"\x80\x02cbox\nMake\n)R)R.", "no global: called object"),
        (b"\x80\x02NNb.", "has none"),
        (b"\x80\x02cbox\nMake\n)RNbNb.", "has none, or has it"),
    ],
)
def test_malformed_pickles_are_defects(data, message):
    """Every way to be wrong has its words."""
    with pytest.raises(DefectError, match=message):
        read(data)


@pytest.mark.parametrize(
    ("data", "limits", "message"),
    [
        (pickle.dumps(list(range(20)), 2), {"pickle_items": 20}, "exceeds the limit of 20 items"),
        (pickle.dumps([str(i) for i in range(9)], 4), {"pickle_memo": 5}, "the memo exceeds"),
        (
            b"\x80\x02](" + b"".join(b"Nr%c\x00\x00\x00" % i for i in range(9)) + b"e.",
            {"pickle_memo": 5},
            "the memo exceeds",
        ),
        (pickle.dumps("x" * 300, 2), {"pickle_text_bytes": 299}, "a text of 300 bytes exceeds"),
        (b"\x80\x02" + b"(" * 65 + b".", {}, "nested deeper than the limit of 64"),
        (b"\x80\x02N" + b"\x85" * 65 + b".", {}, "nested deeper than the limit of 64"),
        (b"\x80\x02" + b"]" * 65 + b"a" * 64 + b".", {}, "nested deeper than the limit of 64"),
    ],
)
def test_limits_hold(data, limits, message):
    """Items, memo, texts and depth, by marks and without them."""
    with pytest.raises(DefectError, match=message):
        read(data, replace(DEFAULT_LIMITS, **limits))


def test_just_within_the_depth_limit():
    """Sixty-four levels are legal."""
    assert read(b"\x80\x02N" + b"\x85" * 64 + b".")


def test_a_list_that_doubles_is_refused():
    """Sixty shared references to references would be 2 to the 60 values for whoever walks them."""
    value, pair = [], ()
    for _ in range(60):
        value, pair = [value, value], (pair, pair)

    assert "grows out of bounds" in defect_of(pickle.dumps(value, 2)).message
    assert "grows out of bounds" in defect_of(pickle.dumps({"a": pair}, 5)).message


@pytest.mark.parametrize(
    "data", [b"\x80\x02]q\x00h\x00a.", b"\x80\x02}q\x00K\x01h\x00s.", b"\x80\x02]q\x00h\x00\x85a."]
)
def test_a_value_that_contains_itself_is_refused(data):
    """A cycle is depth without end."""
    with pytest.raises(DefectError, match="without end"):
        read(data)


def test_ordinary_sharing_is_legal():
    """One mapping that a thousand others refer to is what picklers write."""
    shared = {"a": 1, "b": [2]}

    assert [shared] * 1000 == read(pickle.dumps([shared] * 1000, 2))


def test_a_part_of_a_source():
    """Start and stop delimit the pickle; offsets stay those of the source."""
    data = b"junk" + b"\x80\x02K\x05." + b"junk"

    assert 5 == read(data, start=4, stop=9)
    assert "offset 6" == defect_of(data[:6] + b"\xff" + data[7:], start=4, stop=9).location
    assert "cut off" in defect_of(data, start=4, stop=8).message


def test_a_source_that_shrinks_is_a_defect():
    """The size is taken once; fewer bytes later are reported."""

    class Shrinking:
        size_bytes = 100

        def read_at(self, offset, count):
            return b"\x80\x02"

    with pytest.raises(DefectError, match="became shorter"):
        read_pickle(Shrinking(), allowed=MAKE, limits=DEFAULT_LIMITS)


@pytest.mark.parametrize("window", [17, 32, 64, 100])
def test_window_borders_do_not_show(monkeypatch, window):
    """Whatever the window, the value is the same: texts, globals, byte strings and numbers across its border."""
    monkeypatch.setattr(pickle_state, "WINDOW_BYTES", window)
    monkeypatch.setattr(pickle_machine, "WINDOW_BYTES", window)
    value = {f"key {i} " + "é" * i: [i, -i, 2**40 + i, i / 3, "t" * (7 * i), (i, None)] for i in range(60)}
    data = pickle.dumps([b"q" * i for i in range(0, 600, 7)], 5)
    pairs = b"\x80\x02](" + b"cbox\nMake\nK\x01\x85R" * 40 + b"e."

    assert value == read(pickle.dumps(value, 5))
    assert value == read(pickle.dumps(value, 2))
    assert [data[span.offset : span.offset + span.length] for span in read(data)] == [
        b"q" * i for i in range(0, 600, 7)
    ]
    assert [True] * 40 == [isinstance(node, Call) for node in read(pairs)]
