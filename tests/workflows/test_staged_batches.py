"""Chains of sound rows are taken many at a time: with the facts, the findings and the account that a visit row by row gives."""

import random
from dataclasses import replace

import pytest

from ckptctl.adapters.cores import usable_cores
from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.workflows import load_staged, staged_batches, staged_columns, tensor_sources
from ckptctl.workflows.validate import ValidateRequest, load_evidence, validate
from tests.artifacts import a_data_plane
from tests.builders import a_run_files, a_world, write_tree
from tests.queue_pickles import a_queue_unit
from tests.world import STAGED, a_call, a_group, a_ledger, a_sealed_attempt, an_attempt

NAME = "step_3/rollout_snapshots/snapshot_000002"


def many_calls():
    """Trees of calls: chains of several lengths and one that branches, with and without extras."""
    rows = []
    for number in range(12):
        capture, chain = f"g{20 + number}_g1", []
        for call in range(1 + number % 4):
            ids = [number * 100 + call * 10 + at for at in range(1 + (number + call) % 5)]
            extras = {"route": number, "note": "é"} if number % 3 == 0 else None
            chain.append(a_call(capture, f"call-{call}", ids, *chain, extras=extras))
        if number == 7:
            chain.append(a_call(capture, "call-9", [7, 8], *chain[:1]))
        rows.append(chain)
    return rows


def a_busy_world(**changes):
    """Every call of `many_calls` is sealed, so that something needs it."""
    chains = many_calls()
    groups = [
        a_group(f"g{20 + n}", str(20 + n), [[an_attempt(0)], [a_sealed_attempt(f"g{20 + n}_g1", chain)]])
        for n, chain in enumerate(chains)
    ]
    staged = (*STAGED, *(row for chain in chains for row in chain))
    return a_world(ledger=a_ledger(groups=[*a_ledger().groups, *groups]), staged=staged, **changes)


def a_snapshot(folder, world=None):
    return write_tree(folder, a_run_files(world or a_busy_world())) / NAME


def evidence_at(snapshot, limits=DEFAULT_LIMITS):
    return load_evidence(LocalStore(), str(snapshot), "full")


def report_of(snapshot, **request):
    return validate(LocalStore(), ValidateRequest(paths=(str(snapshot),), level="full", **request))


@pytest.fixture
def row_by_row(monkeypatch):
    """Call it, and no tree is taken as a whole any more."""
    return lambda: monkeypatch.setattr(load_staged, "examine_trees", lambda trees, *_: [None] * len(trees))


def test_sound_chains_have_the_facts_of_a_visit(tmp_path, row_by_row, monkeypatch):
    """Facts, their order, and what was looked at are the same, and most rows were taken together."""
    taken = []
    examine = staged_batches.examine_sound
    monkeypatch.setattr(
        staged_batches, "examine_sound", lambda *facts, **more: taken.append(1) or examine(*facts, **more)
    )
    snapshot = a_snapshot(tmp_path)
    quick, report = evidence_at(snapshot), report_of(snapshot)
    row_by_row()
    slow = evidence_at(snapshot)

    assert list(slow.staged.items()) == list(quick.staged.items())
    assert report_of(snapshot) == report
    assert len(taken) == 2 * len(slow.staged)


def test_the_form_that_transferqueue_writes_is_taken_as_well(tmp_path, row_by_row):
    """Other addresses, frames and a full memo: the rows are the same."""
    world = a_busy_world()
    snapshot = a_snapshot(tmp_path, world)
    plane = a_data_plane(world)
    before = evidence_at(snapshot).staged
    for position, unit in enumerate(plane.units):
        path = next(snapshot.glob(f"data_plane/simple_storage/su_{position}_*.pkl"))
        path.write_bytes(a_queue_unit(unit.storage_unit_id, plane.rows[position], plane.active(position)))

    assert before == evidence_at(snapshot).staged


@pytest.mark.parametrize("seed", range(3))
def test_a_changed_bit_is_found_as_a_visit_finds_it(tmp_path, seed, monkeypatch):
    """Whatever changes in a unit: the same facts and the same words."""
    choice = random.Random(seed)
    snapshot = a_snapshot(tmp_path)
    unit = next(snapshot.glob("data_plane/simple_storage/su_0_*.pkl"))
    data = unit.read_bytes()
    for _ in range(4):
        changed = bytearray(data)
        changed[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
        unit.write_bytes(bytes(changed))
        quick = report_of(snapshot)
        with monkeypatch.context() as patch:
            patch.setattr(load_staged, "examine_trees", lambda trees, *_: [None] * len(trees))

            assert report_of(snapshot) == quick


@pytest.mark.parametrize("jobs", [1, 2, 7])
def test_the_report_does_not_depend_on_the_number_of_threads(tmp_path, jobs, monkeypatch):
    """A few rows a batch, many batches: the same report in any order of finishing."""
    monkeypatch.setattr(staged_batches, "_BATCH_ROWS", 2)
    snapshot = a_snapshot(tmp_path)
    wanted = report_of(snapshot, jobs=1)

    assert "valid" == wanted.verdict
    assert wanted == report_of(snapshot, jobs=jobs)


def test_a_batch_that_is_too_large_is_read_in_parts(tmp_path, monkeypatch, row_by_row):
    """Halves of halves, and a tree that is too large by itself is visited row by row."""
    snapshot = a_snapshot(tmp_path)
    wanted = evidence_at(snapshot).staged
    for name, value in (("_BATCH_BYTES", 600), ("_MOST_TREE_ROWS", 2)):
        monkeypatch.setattr(staged_batches, name, value)

        assert list(wanted.items()) == list(evidence_at(snapshot).staged.items())


@pytest.mark.parametrize(("name", "value"), [("_NEAR_BYTES", 0), ("_PIECE_BYTES", 1), ("_SPARE_BYTES", -(1 << 40))])
def test_how_much_is_read_at_once_makes_no_difference(tmp_path, name, value, monkeypatch):
    """Together or one by one; where there is no room left, a visit says so."""
    snapshot = a_snapshot(tmp_path)
    wanted = evidence_at(snapshot).staged
    monkeypatch.setattr(tensor_sources, name, value)
    found = evidence_at(snapshot).staged

    assert found.keys() == wanted.keys()
    assert (found == wanted) is (name != "_SPARE_BYTES")


def test_long_chains_are_left_to_a_visit(tmp_path, monkeypatch, row_by_row):
    """Prefixes that are much longer than the ids are bounded there."""
    snapshot = a_snapshot(tmp_path)
    wanted = evidence_at(snapshot).staged
    monkeypatch.setattr(staged_batches, "PREFIX_RATIO", 1)

    assert list(wanted.items()) == list(evidence_at(snapshot).staged.items())


def test_a_limit_on_chains_holds_for_whole_trees(tmp_path, row_by_row):
    """A chain above the limit is not hashed, whichever way it was read."""
    snapshot = a_snapshot(tmp_path)
    limits = replace(DEFAULT_LIMITS, staged_chain_tokens=4)
    quick = report_of(snapshot, limits=limits)
    row_by_row()

    assert report_of(snapshot, limits=limits) == quick
    assert "incomplete" == quick.verdict


def test_a_field_that_was_not_produced_makes_a_row_unusual(tmp_path):
    """Only rows whose 24 fields were all produced are read together."""
    plane = a_data_plane(a_busy_world()).controller.partitions["rollout_staging"]
    width = plane.production_columns
    bits = bytearray(plane.production)
    index = min(plane.reverse_keys)
    every = staged_columns._all_produced(plane)
    bits[index * width + plane.columns["capture_mode"]] = 0
    changed = staged_columns._all_produced(replace(plane, production=bytes(bits)))

    assert every[:index] + b"\0" + every[index + 1 :] == changed
    assert bytes(len(every)) == staged_columns._all_produced(replace(plane, columns={}))


@pytest.mark.parametrize(
    ("text", "most"), [("max 100000\n", None), ("150000 100000\n", 2), ("1 100000\n", 1), ("x", None), ("1 0\n", None)]
)
def test_usable_cores_are_those_of_the_process(tmp_path, text, most):
    """No more than a quota allows, never none; what is no quota allows all."""
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    unbounded = usable_cores(tmp_path / "absent")

    assert (unbounded if most is None else min(most, unbounded)) == usable_cores(quota)
