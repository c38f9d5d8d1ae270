"""What MAN004 says was expected and found, for each way in which a schema can be none of ours."""

import pytest

from ckptctl.rules.run import run_rules
from tests.rules import FAMILIES
from tests.rules.samples import BAD

assert FAMILIES, "the sample modules register when they are imported"
OURS = "schema_version 3 or 4"
SAID = {
    "schema 1": (OURS, "1"),
    "schema 7": (OURS, "7"),
    "no number at all": (OURS, "true"),
    "null for a number": (OURS, "null"),
    "Gym state of generation B": ("no such entry", "there"),
    "schema 3 with Gym state": ("null or absent", "set"),
    "schema 4 with cut proofs": ("empty or absent", "a list of 1"),
    "the mark of schema 1": ("no marker file", "there"),
    "the mark of schema 1 beside it": ("no marker file", "there"),
}


@pytest.mark.parametrize("title", SAID)
def test_expected_and_actual_are_about_what_is_wrong(title):
    """A number is only said to be wrong where it is; each breach says both what it should be and what it is."""
    [sample] = [item for item in BAD["MAN004"] if item.title == title]
    [finding] = [item for item in run_rules(sample.build()).findings if item.rule == "MAN004"]

    assert SAID[title] == (finding.expected, finding.actual)
