"""Peak memory of `validate` is below the ceiling, whatever the files hold: the worst input of each kind, in a process of its own."""

import json
import os

import pytest

from tests.bench.hostile import cost_of, first_words
from tests.hostile.worst import worst_inputs

CEILING_BYTES = 600 << 20
IN_BOUNDED = frozenset(
    {
        "json: a long text of wide characters",
        "json: small values",
        "index: wide lines",
        "yaml: keys",
        "ledger: mappings",
        "controller: sets",
        "unit: memo",
        "tar: one member",
        "tree: depth",
        "64 GiB: controller_state.pkl",
    }
)
"""What the bounded mode takes; all of them take ten minutes and a gigabyte of disk at a time."""
IS_BOUNDED = bool(os.environ.get("CKPTCTL_LONG_BOUNDED"))
CHOSEN = [worst for worst in worst_inputs() if not IS_BOUNDED or worst.name in IN_BOUNDED]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("worst", CHOSEN, ids=lambda worst: worst.name)
def test_the_worst_input_of_each_kind(worst, tmp_path):
    """A verdict, words about the file, and less than 600 MiB."""
    cost = cost_of(worst, tmp_path / "run")
    targets = json.loads(cost.report)["targets"]

    assert cost.peak_bytes < CEILING_BYTES, f"{cost.peak_bytes >> 20} MiB"
    assert cost.exit_code in ({0} if worst.verdict == "valid" else {11, 12, 13}), cost.said
    assert ["snapshot", "anchor"] == [target["kind"] for target in targets]
    assert "NOT NAMED" not in first_words(cost, worst)


def test_the_bounded_choice_exists():
    """A name that is gone would leave its kind out."""
    assert {worst.name for worst in worst_inputs()} >= IN_BOUNDED
