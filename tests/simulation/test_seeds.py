"""Seeds of the simulation: a few in every run, two thousand in CI, and the proof that one seed decides everything."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.simulation.soak import Sum, play_many

BOUNDED = bool(os.environ.get("CKPTCTL_LONG_BOUNDED"))  # taken now: tests run without the variables of their caller
SEEDS = 2000 if BOUNDED else 10_000
FEW = 5


def summed(parts) -> Sum:
    total = Sum()
    for part in parts:
        total.add(part)
    return total


def test_a_few_seeds() -> None:
    """Every invariant holds whatever happens."""
    total = summed(play_many(0, FEW, workers=1))

    assert [] == total.failed, total.text()
    assert FEW == total.seeds


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_seeds() -> None:
    """As above; every kind of fault struck, and most steps were struck by something."""
    total = summed(play_many(0, SEEDS))

    assert [] == total.failed, total.text()
    print(total.text())  # noqa: T201 - the figures of the run
    struck = set(total.tally.faults)
    assert {
        "lost-request", "silent-request", "lost-reply", "silent-reply", "duplicate", "late-request", "late-reply", "reset",
        "rubbish", "refuse", "status", "crash-before", "crash-after", "crash", "power", "signal", "jump", "torn-write",
        "ENOSPC", "EIO", "EROFS", "EACCES", "freeze", "two-coordinators", "successor",
    } == struck  # fmt: skip


def test_a_seed_decides_everything(tmp_path) -> None:
    """Another process, with another hash seed and another seed played before, sees every message and call at the same virtual time."""

    def played(hash_seed: str, *before: int) -> list[str]:
        code = (
            "import sys\nfrom tests.simulation import sandbox\nfrom tests.simulation.stories import play\n"
            f"with sandbox.installed():\n    for seed in {list(before)!r}: play(seed)\n"
            "    for seed in (1, 5): report = play(seed); print(seed, report.digest, report.outcomes)"
        )
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    first = played("1")

    assert 2 == len(first)
    assert first == played("2", 3)


def test_the_command_line_plays_one_seed() -> None:
    """`--seed N --trace` prints every decision point and ends with the digest of them all."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", "3", "--trace"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)

    lines = done.stdout.splitlines()
    assert lines[-1].startswith("  digest ")
    assert "  all invariants hold" in lines
    assert any("send controller admission/close" in line for line in lines)
    assert any(" fsync " in line for line in lines)
