"""Sizes, lengths of time and counts in words."""

import pytest

from ckptctl.domain.amounts import duration, set_time, short_time


@pytest.mark.parametrize("words", [duration, set_time, short_time])
@pytest.mark.parametrize("seconds", [0.001, 0.04, 0.5, 0.98])
def test_less_than_a_second_is_told_in_milliseconds(words, seconds) -> None:
    """`0 s` would say that there was no time at all."""
    assert words(seconds).endswith(" ms")
    assert f"{seconds * 1000:g}" in words(seconds)


def test_a_time_that_was_set_is_told_as_it_was_set() -> None:
    """Neither rounded to the next unit nor with the digits of a computation."""
    told = ["0 s", "0.1 ms", "1 ms", "999 ms", "1 s", "2.5 s", "300 s", "86400 s"]

    assert told == [set_time(seconds) for seconds in (0, 0.0001, 0.001, 0.999, 0.9999, 2.5, 300, 86_400)]
