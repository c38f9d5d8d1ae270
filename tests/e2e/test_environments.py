"""Every environment in real processes, killed at random moments after a publication: the restored run equals an uninterrupted one.

Bounded (CKPTCTL_LONG_BOUNDED), one moment each; the whole long mode has twenty. The counts are printed. The moments are those of
`python -m tests.experiments.equivalence`.
"""

import os
import random

import pytest

from tests.e2e.lives import owning
from tests.experiments.equivalence import OPTIONS, Played, Total, play_moment, uninterrupted

pytestmark = [pytest.mark.e2e, pytest.mark.long]
MOMENTS = 1 if os.environ.get("CKPTCTL_LONG_BOUNDED") else 20
SEED = 20261130


@pytest.fixture(scope="module")
def wholes(tmp_path_factory):
    """Uninterrupted runs, made when they are asked for."""
    made: dict[str, Played] = {}

    def whole(name: str) -> Played:
        if name not in made:
            made[name] = uninterrupted(tmp_path_factory.mktemp(name) / "run", name)
        return made[name]

    with owning():
        yield whole


@pytest.mark.parametrize("moment", range(MOMENTS))
@pytest.mark.parametrize("name", OPTIONS)
def test_killed_at_a_random_moment_after_a_publication(wholes, tmp_path, name, moment) -> None:
    """Held somewhere a snapshot, after some more work the end of every process; nothing twice, nothing missing."""
    found = play_moment(wholes(name), tmp_path / "run", random.Random(f"{SEED} {name} {moment}"))
    total = Total([found])
    print(total.text())

    assert [] == found.comparison.differences
    assert (1, "valid", 0, 0) == (found.comparison.restores, found.verdict, found.twice, found.redone)
    assert total.is_equal
    assert all(item["replacement_attempt"] - item["source_attempt"] in (0, 1) for item in found.rollouts)


def test_a_judge_that_died_restarts_its_dependants_alone(wholes, tmp_path) -> None:
    """One sibling had registered its answer, three had not: one begins anew, three go on, and every group is judged."""
    whole = wholes("genrm")
    life = Played(tmp_path / "run", "genrm")
    try:
        life.hold("genrm", "register", 1)
        life.sim("run", "--until-groups", str(life.groups))
        life.wait(lambda: life.made("genrm", "register") == 1)
        path = life.ckptctl("snapshot")["snapshot"]
        life.sim("fault", "--server", "genrm", "--clear")
        life.wait(lambda: life.mutations() > 2)
        answer = life.die_and_come_back(path)
        found = life.compared_with(whole)
    finally:
        life.end()

    assert [] == found.differences
    assert ["depends on restart_only genrm"] == [
        item["reason"] for item in answer["rollouts"] if item["mode"] == "restart"
    ]
    assert {(0, 1)} == {(item["source_attempt"], item["replacement_attempt"]) for item in answer["rollouts"]}
