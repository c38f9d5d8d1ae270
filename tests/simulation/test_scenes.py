"""A coordinator that sleeps past its lease: whoever takes its lock finishes what it left, and it does nothing more when it wakes up."""

from __future__ import annotations

import multiprocessing

import pytest

from ckptctl.planning.snapshot import PUBLISH, REMOVE_STAGED
from tests.simulation.faults import STEPS
from tests.simulation.scenes import sleep_at

EVERY = tuple(step for step in STEPS["snapshot"] if step != REMOVE_STAGED)


@pytest.mark.parametrize("steps", [(PUBLISH,), pytest.param(EVERY, marks=pytest.mark.long)])
def test_who_slept_past_his_lease_publishes_nothing(steps) -> None:
    """Before the rename the successor aborts, and the sleeper's staged directory is gone; after it both release the same snapshot."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(sleep_at, (steps,))

    assert list(steps) == [slept.step for slept in found]
    for slept in found:
        is_published = EVERY.index(slept.step) > EVERY.index(PUBLISH)
        assert [] == slept.breaches, slept
        assert any(status == 0 for status, _ in slept.successors), slept
        assert is_published == (slept.sleeper == 0), slept
        assert slept.sleeper in (0, 21, 22), slept
