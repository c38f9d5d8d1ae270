"""Golden answers: exit status, stdout and stderr together, of command lines on the frozen samples.

A difference is either a mistake or news for users: then `python -m tests.regenerate` writes it, and the diff is read.
"""

import pytest

from tests.goldens import ANSWERS, SAMPLES, answer_of, cases, copied_samples, name_of, tree_of


@pytest.fixture(scope="module")
def place():
    """A copy of the samples; no command line of a golden case may change it."""
    with copied_samples() as folder:
        yield folder
        assert tree_of(SAMPLES) == tree_of(folder)


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_answer_is_as_committed(case, place):
    """The same words give the same answer."""
    committed = {name: (case / name).read_text(encoding="utf-8") for name in ANSWERS}

    assert committed == answer_of(case, place)


def test_there_are_cases_for_every_command():
    """Commands that answer without a server have several cases each."""
    counts = {}
    for case in cases():
        counts[case.parent.name] = counts.get(case.parent.name, 0) + 1

    assert {"gc", "inspect", "publish", "restore", "root", "snapshot", "validate"} == counts.keys()
    assert min(counts.values()) >= 3
