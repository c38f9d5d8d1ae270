"""Which row is a continuation's boundary call, and which staged rows it needs."""

import pytest

from ckptctl.domain.finding import DefectError
from ckptctl.domain.lineage import boundary_rows, staging_keys, storage_references
from ckptctl.domain.rows import ContinuationRow, LineageRow


def a_root(capture_key="r", call="c"):
    return ContinuationRow(1, "r", 0, capture_key, call, {})


def test_failures_and_events_are_no_boundary_rows():
    """Only a row of the very call that neither failed nor is an event counts."""
    good = LineageRow("c", staging_key="k")
    rows = [LineageRow("c", failure_reason="x"), LineageRow("c", event="generation_cut"), LineageRow("d"), good]

    assert (good,) == boundary_rows(a_root(), rows)


def test_both_readings_of_the_chain_give_the_same_keys():
    """The own key counts once, whether the writer put it at the end of the chain or not."""
    assert ("a", "b", "k") == staging_keys(LineageRow("c", staging_key="k", staging_chain=("a", "b")))
    assert ("a", "b", "k") == staging_keys(LineageRow("c", staging_key="k", staging_chain=("a", "b", "k")))
    assert ("k",) == staging_keys(LineageRow("c", staging_key="k"))
    assert () == staging_keys(LineageRow("c"))


def test_shared_keys_stand_under_the_first_capture_key():
    """A key that two continuations need is listed once, under the smaller capture key; keys are in byte order."""
    lineage = {
        "r-a1": (LineageRow("c", staging_key="r-a1/c", staging_chain=("r/b",)),),
        "q": (LineageRow("c", staging_key="q/c", staging_chain=("r/b",)),),
    }
    references = storage_references([a_root("r-a1"), a_root("q")], lineage)

    assert [("q", "q/c"), ("r-a1", "r-a1/c"), ("q", "r/b")] == [(row.capture_key, row.key) for row in references]
    assert {"token_capture_staging"} == {row.kind for row in references}


@pytest.mark.parametrize(
    ("rows", "message"),
    [((), "has 0 rows"), ((LineageRow("c"), LineageRow("c")), "has 2 rows"), (None, "has no lineage")],
)
def test_exactly_one_boundary_row(rows, message):
    """A root whose boundary call is missing or ambiguous has no references."""
    with pytest.raises(DefectError, match=message):
        storage_references([a_root()], {} if rows is None else {"r": rows})
