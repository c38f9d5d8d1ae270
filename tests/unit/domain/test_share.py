"""Who reads what when the byte work is divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptctl.domain.share import OTHER_SHARD, Share, parse_fraction, parse_subset

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@given(files=st.dictionaries(NAMES, st.integers(0, 1 << 40), max_size=30), count=st.integers(1, 7))
def test_each_file_belongs_to_exactly_one_part(files, count):
    """All parts together are all files, and no file is read twice."""
    parts = [Share("shard", index, count).of_files(files.items()) for index in range(1, count + 1)]

    assert sum(map(len, parts)) == len(files)
    assert frozenset().union(*parts) == frozenset(files)


@given(names=st.sets(NAMES, max_size=30), count=st.integers(1, 7))
def test_each_name_belongs_to_exactly_one_part(names, count):
    """What has no weight is divided without gaps too."""
    owners = [[name for index in range(1, count + 1) if Share("shard", index, count).has(name)] for name in names]

    assert all(len(found) == 1 for found in owners)


@given(sizes=st.lists(st.integers(1, 1000), min_size=4, max_size=40))
def test_no_part_has_much_more_than_its_share(sizes):
    """The heaviest part exceeds the mean by one file at most."""
    files = [(f"f{number}", size) for number, size in enumerate(sizes)]
    loads = [sum(dict(files)[name] for name in Share("shard", index, 4).of_files(files)) for index in range(1, 5)]

    assert max(loads) <= sum(sizes) / 4 + max(sizes) + len(sizes)


def test_the_order_of_the_listing_does_not_matter():
    """Two nodes list a directory in different orders and divide it alike."""
    files = [("a", 5), ("b", 5), ("c", 1), ("d", 9)]

    assert Share("shard", 1, 2).of_files(files) == Share("shard", 1, 2).of_files(reversed(files))


@pytest.mark.parametrize(("text", "index", "count"), [("1/1", 1, 1), ("2/4", 2, 4), ("10000/10000", 10_000, 10_000)])
def test_a_fraction(text, index, count):
    """I/N, from 1."""
    assert Share("shard", index, count) == parse_fraction(text, "shard")


@pytest.mark.parametrize("text", ["", "0/4", "5/4", "1", "1/0", "a/b", "1/10001", " 1/4", "1/4\n", "-1/4", "٢/4"])
def test_no_fraction(text):
    """Anything else is refused with the text."""
    with pytest.raises(ValueError, match="is not one of I/N"):
        parse_fraction(text, "shard")


def test_a_percentage_rotates_by_day():
    """Ten days at 10% have read everything."""
    found = {parse_subset("10%", day) for day in range(20_000, 20_010)}

    assert {Share("subset", index, 10) for index in range(1, 11)} == found


@pytest.mark.parametrize(("text", "count"), [("100%", 1), ("30%", 4), ("0.5%", 200), ("50 %", 2)])
def test_a_percentage_is_a_number_of_equal_parts(text, count):
    """What does not divide evenly is rounded to smaller parts."""
    assert count == parse_subset(text, 0).count


def test_a_subset_may_be_named():
    """3/10 is the third part, whatever day it is."""
    assert Share("subset", 3, 10) == parse_subset("3/10", 7)


@pytest.mark.parametrize("text", ["0%", "101%", "0.001%", "%", "ten%", "10"])
def test_no_subset(text):
    """Refused with the text."""
    with pytest.raises(ValueError, match="`"):
        parse_subset(text, 0)


@pytest.mark.parametrize("text", ["0%", "101%", "0.0001%", "0.009%", "1.2345%", "%", "ten%", "-1%"])
def test_a_percentage_that_does_not_do(text):
    """What one may be is said, not what a fraction may be."""
    with pytest.raises(ValueError, match=r"from 0\.01% \(one part in 10,000\) to 100%, with at most three decimals"):
        parse_subset(text, 0)


def test_the_smallest_percentage():
    """One part in ten thousand."""
    assert 10_000 == parse_subset("0.01%", 0).count


def test_the_reason_tells_a_shard_from_a_subset():
    """Another shard will read it; of a subset nobody does."""
    assert OTHER_SHARD == Share("shard", 1, 2).reason
    assert "1/2" in Share("subset", 1, 2).reason
