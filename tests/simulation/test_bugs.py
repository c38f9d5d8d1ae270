"""The simulation's eyes: each planted bug is found, and the seed that finds it finds nothing without it.

In a process of its own: the sandbox exchanges modules, and what other tests left in this process would be exchanged with them.
"""

from __future__ import annotations

import multiprocessing

import pytest

from tests.simulation import sandbox
from tests.simulation.bugs import BUGS, planted
from tests.simulation.stories import kind_of, play

MOST = 400
"""Seeds, of the kinds in which the bug can show, before it counts as not found."""


def found_by(bug: str) -> tuple[int, list[str]] | None:
    """The first seed that finds a bug, and what it says."""
    kinds = BUGS[bug][1]
    seeds = [seed for seed in range(10 * MOST) if kind_of(seed)[0] in kinds][:MOST]
    with sandbox.installed(), planted(bug):
        for seed in seeds:
            report = play(seed)
            if report.breaches:
                return seed, report.breaches
    return None


def examined(bug: str) -> tuple[tuple[int, list[str]] | None, list[str]]:
    """The seed that finds a bug with what it says, and what it says without the bug."""
    found = found_by(bug)
    if found is None:
        return None, []
    with sandbox.installed():
        return found, play(found[0]).breaches


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.timeout(900)
def test_a_planted_bug_is_found(bug) -> None:
    """Without the bug the same seed finds nothing."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found, without_it = pool.apply(examined, (bug,))

    assert found is not None, f"{bug} was not found by {MOST} seeds"
    assert [] == without_it
