"""Every byte counts, as tests: a small sample by default, a larger one in the bounded long mode, every byte in the whole long mode."""

import os
from pathlib import Path

import pytest

from ckptctl.domain.ids import CHECKSUMS_FILE
from tests.experiments.every_byte import (
    a_small_snapshot,
    files_of,
    flips,
    forgetting,
    judged,
    other_changes,
    places_of,
    remembering,
    run,
    sample,
    told,
)

BOUNDED = bool(os.environ.get("CKPTCTL_LONG_BOUNDED"))
"""Taken now: tests run without the variables of their caller."""
SEED = 20261130


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory) -> Path:
    with remembering():
        yield a_small_snapshot(tmp_path_factory.mktemp("run"))


def test_it_is_a_whole_snapshot_and_valid(snapshot):
    """Storage units, blobs, agents, model ledger, resources, checksum file: every byte of them is looked at."""
    coverage = judged(snapshot, "full").coverage
    names = files_of(snapshot)

    assert (coverage.bytes_total, ()) == (coverage.bytes_checked, coverage.unchecked)
    for part in (
        "agent/",
        "model-ledger/",
        "resources/",
        "simple_storage/su_0",
        "simple_storage/su_1",
        ".blobs/",
        CHECKSUMS_FILE,
    ):
        assert any(part in name for name in names), part


def test_what_is_remembered_changes_no_report(snapshot):
    """The same reports as without a memory, before and after changes."""
    changes = [*flips(snapshot, sample(places_of(snapshot), 0, SEED)[:12:3]), *list(other_changes(snapshot))[:30:10]]

    def reports():
        yield judged(snapshot, "full")
        for change in changes:
            change.make()
            yield judged(snapshot, "full")
            change.undo()

    remembered = list(reports())
    with forgetting():
        assert remembered == list(reports())


def test_a_sample_of_bytes(snapshot):
    """First and last bytes of files, and some between."""
    outcomes = run(snapshot, flips(snapshot, sample(places_of(snapshot), 120, SEED)[::4]), ("full",))

    assert [] == outcomes["full"].survivors


def test_a_sample_of_other_changes(snapshot):
    """Deleted, truncated, exchanged, added: some of each."""
    outcomes = run(snapshot, list(other_changes(snapshot))[::17], ("full",))

    assert [] == outcomes["full"].survivors


@pytest.mark.long
def test_every_byte(snapshot, capsys):
    """Every byte (bounded: a sample) is found at level full; what is left by level standard is told."""
    places = places_of(snapshot)
    chosen = sample(places, 600 if BOUNDED else len(places), SEED)
    outcomes = run(snapshot, flips(snapshot, chosen), ("full", "standard"))
    with capsys.disabled():
        print("\n" + told("changed bytes", outcomes))

    assert [] == outcomes["full"].survivors
    kept_for_full = set(outcomes["standard"].survived)
    assert all("/simple_storage/su_" in path for path in kept_for_full), kept_for_full


@pytest.mark.long
def test_every_other_change(snapshot, capsys):
    """Every file deleted, cut, extended; every two files of a kind exchanged; files too many: found at level full."""
    outcomes = run(snapshot, other_changes(snapshot), ("full", "standard"))
    with capsys.disabled():
        print("\n" + told("other changes", outcomes))

    assert [] == outcomes["full"].survivors
