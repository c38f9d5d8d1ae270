"""Every reader gives a clean answer to any bytes: a value, or a defect in words that can be shown."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptctl.domain.finding import Defect, DefectError
from tests.fuzz.engine import Tally, check, damaged_inputs, fuzz, what_is_unclear
from tests.fuzz.found import FOUND
from tests.fuzz.mutations import JSON_TOKENS, MOST_BYTES, PICKLE_TOKENS, TAR_TOKENS, YAML_TOKENS, ZIP_TOKENS
from tests.fuzz.readers import Reader, readers
from tests.fuzz.snapshots import fuzz_snapshots

IS_BOUNDED = bool(os.environ.get("CKPTCTL_LONG_BOUNDED"))
NAMES = sorted(readers())
TOKENS = sorted({*JSON_TOKENS, *PICKLE_TOKENS, *TAR_TOKENS, *YAML_TOKENS, *ZIP_TOKENS})
pieces = st.binary(max_size=24) | st.sampled_from(TOKENS)
edits = st.lists(st.tuples(st.integers(0, 1 << 15), st.integers(0, 64), pieces), max_size=6)


def shown(faults):
    return [f"{fault.reader}: {fault.what}\n{fault.data[:2000]!r}\n{fault.trace}" for fault in faults]


@pytest.mark.parametrize("name", NAMES)
def test_good_samples_are_read(name):
    """A fuzzer that begins with rubbish finds nothing."""
    reader = readers()[name]
    for sample in reader.samples:
        tally = Tally()

        assert check(reader, sample, tally) is None
        assert (1, 0) == (tally.values, tally.defects)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_samples(name):
    """A few of each reader; the long mode takes a million."""
    tally = fuzz(readers()[name], 60, 1)

    assert [] == shown(tally.faults)
    assert 60 == tally.inputs == tally.values + tally.defects


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(NAMES), st.integers(0, 40), edits)
def test_any_edits_of_a_sample(name, number, changes):
    """As above, but what is found shrinks to the edit that does it."""
    reader = readers()[name]
    data = bytearray(reader.samples[number % len(reader.samples)])
    for place, length, piece in changes:
        at = place % (len(data) + 1)
        data[at : at + length] = piece

    fault = check(reader, bytes(data))

    assert fault is None, shown([fault])


@pytest.mark.parametrize(("why", "name", "data"), FOUND, ids=[why for why, _, _ in FOUND])
def test_what_was_found_once(why, name, data):
    """It got a clean answer when it was mended, and still does."""
    fault = check(readers()[name], data)

    assert fault is None, shown([fault])


def test_whole_snapshots_with_a_damaged_file():
    """Validation of each ends with a report that can be explained."""
    assert [] == shown(fuzz_snapshots(6, 1).faults)


def test_the_same_seed_gives_the_same_inputs():
    """Otherwise nothing that is found could be found again."""
    reader = readers()["json"]

    assert list(damaged_inputs(reader, 20, 5)) == list(damaged_inputs(reader, 20, 5))
    assert list(damaged_inputs(reader, 20, 5)) != list(damaged_inputs(reader, 20, 6))


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (lambda data: data[MOST_BYTES], "IndexError at test_fuzz.py"),
        (lambda data: read_deep(data), "RecursionError at test_fuzz.py"),
        (lambda data: refuse(Defect("")), "a defect without a message"),
        (lambda data: refuse(Defect("x" * 30_000)), "characters long"),
    ],
)
def test_the_engine_finds_faults(read, what):
    """A fuzzer that sees nothing proves nothing."""
    tally = fuzz(Reader("broken", read, (b"x",)), 3, 0)

    assert 3 == sum(tally.kinds.values())
    assert what in tally.faults[0].what


def test_control_characters_are_unclear():
    """A defect makes its texts safe by itself; the engine looks all the same."""
    defect = Defect("x")
    object.__setattr__(defect, "actual", "\x1b")

    assert "control characters" in what_is_unclear(defect)
    assert r"\x1b" == Defect("\x1b").message


def refuse(defect):
    raise DefectError(defect)


def read_deep(data):
    return read_deep(data)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_million_inputs():
    """All readers together; 20,000 in the bounded mode."""
    runs = (20_000 if IS_BOUNDED else 1_000_000) // len(NAMES) + 1
    tallies = [fuzz(readers()[name], runs, 2) for name in NAMES]

    assert [] == shown(fault for tally in tallies for fault in tally.faults)
    assert sum(tally.inputs for tally in tallies) >= (20_000 if IS_BOUNDED else 1_000_000)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_whole_snapshots():
    """A damaged file in each of 10,000; 300 in the bounded mode."""
    assert [] == shown(fuzz_snapshots(300 if IS_BOUNDED else 10_000, 2).faults)
