"""Sizes with a unit, and the memory that a validation may use."""

import pytest

from ckptctl.cli.sizes import limits_of, parse_size
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1K", 1024),
        ("600M", 600 << 20),
        ("1.5G", 3 << 29),
        ("4GiB", 4 << 30),
        ("1000000K", 1_024_000_000),
        (" 2T ", 2 << 40),
    ],
)
def test_sizes_have_a_unit(text, size):
    """Binary units, as `ls -h` shows them."""
    assert size == parse_size(text, "--memory")


@pytest.mark.parametrize("text", ["", "600", "4g", "-1G", "1e9G", "4 G", "G"])
def test_anything_else_is_a_usage_error(text):
    """A number alone may mean anything."""
    with pytest.raises(UsageError, match="takes a size with a unit"):
        parse_size(text, "--memory")


@pytest.mark.parametrize("text", ["99999999999999999999T", "9" * 400 + "G", "1048577T"])
def test_a_size_may_be_too_large(text):
    """It has a unit, so nothing is said of units."""
    with pytest.raises(UsageError, match="is too large") as caught:
        parse_size(text, "--memory")
    assert "the most is 1048576T" == caught.value.hint
    assert 1 << 60 == parse_size("1048576T", "--memory")


def test_the_program_itself_is_taken_off():
    """What is asked for is the whole process."""
    assert DEFAULT_LIMITS == limits_of(None) == limits_of("600M")
    assert (4 << 30) - (60 << 20) == limits_of("4G").memory_bytes
    with pytest.raises(UsageError, match="`--memory 100M` is too little"):
        limits_of("100M")
