"""Every hostile case: its verdict, words, file and place; nothing executed, nothing outside the checkpoint directory opened.

The fast suite takes a part of them, the long one all. They run in one child that watches itself (`tests.hostile.child`).
"""

import json
import os
import subprocess
import sys

import pytest

from tests.hostile.cases import cases

STEP = 12
"""The fast suite takes every so many."""


def judged(folder, step):
    """What the child says of every case."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.child", str(folder), str(step)],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert 0 == done.returncode, done.stderr[-4000:]
    return json.loads(done.stdout)


def faults_of(answers):
    """What is wrong with the answers, in words."""
    found = []
    for one in answers:
        if "skipped" in one:
            continue
        name = one["name"]
        if one["verdict"] != one["wanted"]:
            found.append(f"{name}: {one['verdict']} instead of {one['wanted']}: {one['findings']}")
        if not one["told"]:
            found.append(f"{name}: nobody says so: {one['findings']}")
        if not all(one["hints"]):
            found.append(f"{name}: nobody says what to do")
        found += [f"{name}: opened {path}" for path in one["outside"]]
        found += [f"{name}: {event}" for event in one["events"]]
        found += [f"{name}: the report has {character!r}" for character in one["unsafe"]]
    return found


def test_a_part_of_the_cases(tmp_path):
    """A dozen of each kind would take a minute."""
    answers = judged(tmp_path, STEP)

    assert len(cases()[::STEP]) == len(answers)
    assert [] == faults_of(answers)
    assert all(one["opened"] > 0 for one in answers if "skipped" not in one)


@pytest.mark.long
@pytest.mark.timeout(1300)
def test_all_cases(tmp_path):
    """Each of them, whatever the mode."""
    answers = judged(tmp_path, 1)
    skipped = [one["name"] for one in answers if "skipped" in one]

    assert len(cases()) == len(answers)
    assert [] == faults_of(answers)
    if skipped:
        pytest.skip(f"no right to make devices: {len(skipped)} cases left out, all others judged")


def test_names_are_unique():
    """A case that has another's name would hide it."""
    names = [case.name for case in cases()]

    assert len(names) == len(set(names))
