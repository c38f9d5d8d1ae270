"""The pickle writer: the standard unpickler and our machine agree on what it wrote."""

import pickle

import pytest

from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.pickle_machine import Call, Global, PersistentId, read_pickle
from ckptctl.formats.pickle_writer import write_pickle

ORDERED = Global("collections", "OrderedDict")
ENCODE = Global("_codecs", "encode")
ALLOWED = frozenset({("collections", "OrderedDict"), ("_codecs", "encode")})

PLAIN = {
    "numbers": [0, 255, 256, 65535, 65536, -1, -(2**31), 2**31, 2**63, -(2**70), 1.5, None, True, False],
    "texts": ["", "é", "x" * 300, "again", "again"],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    5: {},
    "many": {f"key {i}": [i] * (i % 3) for i in range(2500)},
    "long": list(range(2500)),
}


@pytest.mark.parametrize("protocol", [2, 5])
def test_plain_values(protocol):
    """Both readers give the value back."""
    data = write_pickle(PLAIN, protocol)

    assert PLAIN == pickle.loads(data)
    assert PLAIN == read_pickle(BytesSource(data), allowed=frozenset(), limits=DEFAULT_LIMITS)
    assert data == write_pickle(PLAIN, protocol)


def test_first_bytes_of_protocol_5_are_a_frame():
    """As TransferQueue's files begin."""
    data = write_pickle({"controller_id": "x"}, 5)

    assert b"\x80\x05\x95" == data[:3]
    assert len(data) - 11 == int.from_bytes(data[3:11], "little")


def test_bytes_of_every_size():
    """Protocol 5 has opcodes for bytes, protocol 2 the call that the standard pickler writes."""
    value = [b"", b"\xff\x00a", b"y" * 255, b"y" * 256, b"z" * 70_000]

    assert value == pickle.loads(write_pickle(value, 5))
    assert value == pickle.loads(write_pickle(value, 2))


def test_sets_are_sorted():
    """The order of a set depends on the process; the file must not."""
    value = {"b", "a", 3, 1, None}

    assert value == pickle.loads(write_pickle(value, 5))
    assert value == pickle.loads(write_pickle(frozenset(value), 5))
    assert write_pickle(value, 5).index(b"\x01a") < write_pickle(value, 5).index(b"\x01b")
    with pytest.raises(ValueError, match="protocol 2"):
        write_pickle(value, 2)


@pytest.mark.parametrize("protocol", [2, 5])
def test_calls_and_globals(protocol):
    """Calls, states and added items survive; a global is written once and then recalled."""
    tree = [
        Call(ORDERED, (), entries={"a": 1}),
        Call(ORDERED, (), appended=[1], state={"x": 1}, has_state=True, is_new=True),
        Call(ENCODE, ("\xff", "latin1")),
        ORDERED,
        PersistentId(("k", 1)),
    ]
    data = write_pickle(tree, protocol)
    found = read_pickle(BytesSource(data), allowed=ALLOWED, limits=DEFAULT_LIMITS, allow_persistent=True)

    assert ({"a": 1}, [1], {"x": 1}, True) == (found[0].entries, found[1].appended, found[1].state, found[1].is_new)
    assert (("\xff", "latin1"), ORDERED, ("k", 1)) == (found[2].arguments, found[3], found[4].value)
    assert 1 == data.count(b"OrderedDict")


def test_real_objects_come_out():
    """The standard unpickler makes what the tree says."""
    tree = [Call(ORDERED, (), entries={"a": 1, "b": 2}), Call(ENCODE, ("\xff", "latin1"))]

    assert "[OrderedDict({'a': 1, 'b': 2}), b'\\xff']" == repr(pickle.loads(write_pickle(tree, 2))).replace(
        "[('a', 1), ('b', 2)]", "{'a': 1, 'b': 2}"
    )


@pytest.mark.parametrize("protocol", [2, 5])
def test_many_texts_use_the_long_memo_forms(protocol):
    """Beyond 256 entries the memo's index takes four bytes."""
    value = [f"text {i}" for i in range(400)] * 2

    assert value == pickle.loads(write_pickle(value, protocol))
    assert len(write_pickle(value, protocol)) < 2 * len(write_pickle(value[:400], protocol))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "type object"),
        ({(1, 2): 3}, "key of type tuple"),
        ({True: 3}, "key of type bool"),
        (1 << 3000, "too large"),
        ("\ud800", "surrogates"),
    ],
)
def test_what_has_no_form_is_refused(value, message):
    """Nothing is written that our machine would not read."""
    with pytest.raises(ValueError, match=message):
        write_pickle([value], 2)


def test_four_gigabytes_take_the_long_form(monkeypatch):
    """The length of a byte string decides its opcode."""

    class Long(bytes):
        def __len__(self):
            return 1 << 32

    from ckptctl.formats import pickle_writer

    monkeypatch.setitem(pickle_writer._WRITERS, Long, pickle_writer._bytes)

    assert b"\x8e\x00\x00\x00\x00\x01\x00\x00\x00abc." == write_pickle(Long(b"abc"), 5)[11:]
