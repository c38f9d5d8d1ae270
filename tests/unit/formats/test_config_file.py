"""`config.yaml`: what plain YAML is, what is refused, and that a dump reads back."""

from dataclasses import replace

import pytest
import yaml

from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.formats.config_file import decode_yaml, encode_yaml


def refusal(data, limits=DEFAULT_LIMITS):
    with pytest.raises(DefectError) as caught:
        decode_yaml(data, limits)
    (defect,) = caught.value.defects
    assert defect.message.isprintable()
    return defect


@pytest.mark.parametrize(
    ("data", "message", "place"),
    [
        (b"a: 1\nb: 2\na: 3\n", "the key `a` occurs twice in the top level", "line 3 column 1"),
        (b"a: [0, {b: {c: 1, c: 2}}]", "the key `c` occurs twice in `a.1.b`", "line 1 column 19"),
        (
            b"a: !!python/object/apply:os.system [x]",
            'has a tag, "tag:yaml.org,2002:python/object/apply:os.system"',
            "line 1 column 4",
        ),
        (b"a: !x {}", 'has a tag, "!x"', "line 1 column 4"),
        (b"a: ! x", 'has a tag, "!"', "line 1 column 4"),
        (b"<<: {a: 1}", "has a merge key `<<`", "line 1 column 1"),
        (b"1: 2", "the top level has a key that is no text: 1", "line 1 column 1"),
        (b"a: {b: {true: 1}}", "`a.b` has a key that is no text: true", "line 1 column 9"),
        (b"? {a: {b: 1, b: 2}}\n: 1", "the key `b` occurs twice in `?.a`", "line 1 column 14"),
        (b"? [a]\n: 1", "the top level has a key that is no text: a list of 1", "line 1 column 5"),
        (b"a: *b", 'the alias "b" names no finished value', "line 1 column 4"),
        (b"a: &x {b: *x}", 'the alias "x" names no finished value', "line 1 column 11"),
        (b"a: 1\n---\nb: 2", "holds more than one document", "line 2 column 1"),
        (b"- 1", "top level must be a mapping", "line 1"),
        (b"", "top level must be a mapping", "line 1"),
        (b"a: 1\n\xff: 2", "is not UTF-8", "line 2"),
        (b"a: [", "is not YAML: ", "line 2 column 1"),
        (b'a: "\x00"', "is not YAML: unacceptable character", ""),
        (b"%YAML 1.9\n---\na: 1", "is not YAML: ", "line 1 column 1"),
        (b"a: " + b"1" * 401, "has a number of more than 400 characters", "line 1 column 4"),
        (b"a: 0b_", '"0b_" looks like a number and is none', "line 1 column 4"),
        (b"[" * 65 + b"]" * 65, "is nested deeper than 64 levels", "line 1 column 65"),
        (b"[" * 100_000, "is not YAML: exceeded maximum nesting depth", "line 1 column 1001"),
        (b"{a: " * 65, "is nested deeper than 64 levels", "line 1 column 257"),
    ],
)
def test_refuses_what_is_not_plain(data, message, place):
    """Each thing that a dump of JSON values cannot contain is named with its place."""
    found = refusal(data)

    assert found.message.startswith(message)
    assert place == found.location


def test_scalars_are_resolved_as_pyyaml_does_but_dates_stay_text():
    """A dump never has dates, so what looks like one is text; numbers, booleans and null are what PyYAML makes of them."""
    data = b"""
        {date: 2024-01-01, time: 2024-01-01T10:00:00Z, i: 1_000, h: 0x1F, o: 017, f: 1.5e+3, e: 1e3, yes: on, no: ~, q: '1',
         empty: , s: 190:20:30, value: =, inf: .inf, text: "a\\x1b"}
    """.replace(b"yes:", b"'yes':").replace(b"no:", b"'no':")
    found = decode_yaml(data, DEFAULT_LIMITS)

    assert {
        "date": "2024-01-01",
        "time": "2024-01-01T10:00:00Z",
        "i": 1000,
        "h": 31,
        "o": 15,
        "f": 1500.0,
        "e": "1e3",
        "yes": True,
        "no": None,
        "q": "1",
        "empty": None,
        "s": 685230,
        "value": "=",
        "inf": float("inf"),
        "text": "a\x1b",
    } == found


def test_aliases_are_followed_and_counted():
    """A value may be named and used again; many uses of uses are refused although the file is small."""
    lines = [b"a: &a [x,x,x,x,x,x,x,x,x]"]
    for number in range(10):
        lines.append(b"%c: &%c [%s]" % (98 + number, 98 + number, b",".join([b"*%c" % (97 + number)] * 9)))

    assert {"a": [1], "b": [1], "c": "t", "d": "t"} == decode_yaml(b"a: &x [1]\nb: *x\nc: &y t\nd: *y", DEFAULT_LIMITS)
    assert "has more than 200000 values" == refusal(b"\n".join(lines)).message


def test_depth_counts_through_aliases():
    """Nesting by aliases is nesting."""
    lines = [b"a0: &a0 [x]"]
    lines.extend(b"a%d: &a%d [*a%d]" % (number, number, number - 1) for number in range(1, 70))

    assert "is nested deeper than 64 levels" == refusal(b"\n".join(lines)).message


def test_size_and_number_of_values_are_bounded():
    """A large file is refused by its size, one with many values by their number."""
    limits = replace(DEFAULT_LIMITS, yaml_bytes=20, yaml_nodes=4)

    assert "exceeds the limit of 20 bytes" == refusal(b"a: 1\n" * 5, limits).message
    assert "has more than 4 values" == refusal(b"a: [1, 2, 3]", limits).message
    assert {"a": [1]} == decode_yaml(b"a: [1]", limits)


def test_dump_is_that_of_pyyaml():
    """Keys are sorted, blocks are used, a value that occurs twice is written twice."""
    shared = [1, 2]
    config = {"b": shared, "a": {"d": shared, "c": 1e-06}, "e": {}, "f": None, "date": "2024-01-01"}
    data = encode_yaml(config)

    assert b"a:\n  c: 1.0e-06\n  d:\n  - 1\n  - 2\nb:\n- 1\n- 2\ndate: '2024-01-01'\ne: {}\nf: null\n" == data
    assert config == decode_yaml(data, DEFAULT_LIMITS) == yaml.safe_load(data)
