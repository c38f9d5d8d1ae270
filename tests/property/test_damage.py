"""Damage of any kind, to any file: validation ends with a verdict that somebody can explain, and names the file."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckptctl.adapters.local_store import LocalStore
from ckptctl.workflows.validate import ValidateRequest, validate
from tests.builders import a_run_files, a_world, write_tree

FILES = a_run_files(a_world())
SNAPSHOT = "step_3/rollout_snapshots/snapshot_000002/"
NAMES = sorted(FILES)
IN_SNAPSHOT = [name for name in NAMES if name.startswith(SNAPSHOT)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run, restored to its sound state after every damage."""
    return write_tree(tmp_path_factory.mktemp("damage"), FILES)


def judged_with(run: Path, name: str, data: bytes | None):
    """The report on the run with one file exchanged (None: deleted)."""
    path = run / name
    try:
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        return validate(LocalStore(), ValidateRequest(paths=(str(run),)))
    finally:
        path.write_bytes(FILES[name])


def damaged(data: bytes, kind: str, at: int, filler: bytes) -> bytes:
    place = at % (len(data) + 1)
    if kind == "cut":
        return data[:place]
    if kind == "flip" and place < len(data):
        return data[:place] + bytes((data[place] ^ (1 << at % 8),)) + data[place + 1 :]
    if kind == "repeat":
        return data[:place] + data[max(0, place - 40) :]
    return data[:place] + filler + data[place + len(filler) :]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(["cut", "flip", "repeat", "fill"]),
    st.integers(0, 1 << 20),
    st.binary(max_size=16),
)
def test_no_damage_breaks_the_validator(run, name, kind, at, filler):
    """Whatever stands in a file, there is a report with a verdict."""
    report = judged_with(run, name, damaged(FILES[name], kind, at, filler))

    assert report.verdict in {"valid", "incomplete", "incompatible", "invalid"}
    assert all(target.verdict == "valid" or target.findings for target in report.targets)


@pytest.mark.parametrize("name", IN_SNAPSHOT)
@pytest.mark.parametrize("how", ["half", "empty", "deleted"])
def test_a_file_that_is_cut_or_gone_is_named(run, name, how):
    """No file of a snapshot can lose its end, its content or itself without a finding that names it."""
    data = {"half": FILES[name][: len(FILES[name]) // 2], "empty": b"", "deleted": None}[how]
    if data == FILES[name]:
        pytest.skip("this file is empty anyway")
    snapshot = judged_with(run, name, data).targets[0]
    file_name = name.removeprefix(SNAPSHOT)

    assert snapshot.findings
    assert any(file_name in (finding.artifact, *finding.message.split("`")) for finding in snapshot.findings)
    assert (snapshot.verdict == "invalid") or file_name == "config.yaml"


@pytest.mark.parametrize(
    "name", ["agent-part-000000.tar", "lineage-part-000000.tar", "g7_g0.a1.json", "continuations.jsonl"]
)
def test_one_flipped_byte_in_a_participants_file_is_found(run, name):
    """Everything that Gym wrote is covered by digests: every position is found, here a few of each file."""
    path = next(item for item in IN_SNAPSHOT if item.endswith(name) and FILES[item])
    data = FILES[path]
    for place in range(0, len(data), max(1, len(data) // 5)):
        changed = data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :]

        assert judged_with(run, path, changed).targets[0].verdict == "invalid", place


def test_swapped_files_are_found(run):
    """Two sound files in each other's place are damage, too."""
    unit_a, unit_b = (item for item in IN_SNAPSHOT if "/su_" in item)
    for first, second in ((f"{SNAPSHOT}rollout_recovery.pt", f"{SNAPSHOT}train_dataloader.pt"), (unit_a, unit_b)):
        report = judged_with(run, first, FILES[second])

        assert report.targets[0].verdict == "invalid"
