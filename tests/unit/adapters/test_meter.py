"""What is counted of a process' requests."""

import pytest

from ckptctl.adapters.meter import Meter
from ckptctl.domain.traffic import Asked, TrafficCount

ASKED, OTHER = Asked("a", "http://a", "pause"), Asked("b", "http://b", "pause")


class HandClock:
    """Moves when told to."""

    now = 100.0

    def monotonic_s(self):
        return self.now


def fail(meter, clock):
    with meter.request(ASKED, 0):
        clock.now += 2
        raise OSError("broken")


def test_side_by_side_is_not_added_up():
    """Two requests that overlap are one stretch of waiting; one that failed counts as well; one under way counts so far."""
    clock = HandClock()
    meter = Meter(clock)
    first, second = meter.request(ASKED, 10), meter.request(OTHER, 20)
    first.__enter__()
    clock.now += 1
    second.__enter__()
    clock.now += 1
    under_way = meter.count()
    silent, all_asked = meter.under_way(2.0), meter.under_way()
    first.__exit__(None, None, None)
    clock.now += 1
    meter.received(5)
    second.__exit__(None, None, None)
    clock.now += 50
    with pytest.raises(OSError, match="broken"):
        fail(meter, clock)

    assert TrafficCount(2, 30, 0, 2.0) == under_way
    assert ((ASKED,), (ASKED, OTHER), ()) == (silent, all_asked, meter.under_way())
    assert TrafficCount(3, 30, 5, 5.0) == meter.count()
    assert TrafficCount(1, 0, 5, 3.0) == meter.count().since(under_way)
