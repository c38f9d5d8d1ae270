"""The builders' files, read from disk by the real loader: what they call valid is valid, and evidence of files says what evidence of values says."""

from dataclasses import replace

from ckptctl.adapters.local_store import LocalStore
from ckptctl.rules.run import run_rules
from ckptctl.workflows.validate import ValidateRequest, load_evidence, validate
from tests.builders import a_bootstrap_world, a_run_files, a_world, an_evidence, edited, write_tree
from tests.world import CALL_9


def test_a_whole_checkpoint_directory_is_valid(tmp_path):
    """A step with Gym state, a bootstrap anchor without."""
    write_tree(tmp_path, a_run_files(a_world(), a_bootstrap_world()))

    report = validate(LocalStore(), ValidateRequest(paths=(str(tmp_path),)))

    assert {"valid"} == {target.verdict for target in report.targets}
    assert {
        "step_3/rollout_snapshots/snapshot_000002",
        "bootstrap/rollout_snapshots/snapshot_000002",
        "step_3",
        "bootstrap",
    } == {target.path.removeprefix(f"{tmp_path}/") for target in report.targets}
    assert [] == [finding for target in report.targets for finding in target.findings]


def test_files_and_values_give_the_same_outcomes(tmp_path):
    """A loader that loses something, or a builder that invents something, would show here."""
    write_tree(tmp_path, a_run_files(a_world()))
    loaded = load_evidence(LocalStore(), str(tmp_path / "step_3" / "rollout_snapshots" / "snapshot_000002"))

    assert run_rules(an_evidence()).outcomes == run_rules(loaded).outcomes


def test_a_damaged_world_is_found_from_its_files(tmp_path):
    """A staged row that was cleared: the same finding from values and from files."""
    world = edited(a_world(), {"staged": lambda rows: tuple(row for row in rows if row != CALL_9)})
    write_tree(tmp_path, a_run_files(replace(world)))
    loaded = load_evidence(LocalStore(), str(tmp_path / "step_3" / "rollout_snapshots" / "snapshot_000002"))

    assert ["INV004"] == [finding.rule for finding in run_rules(loaded).findings]
    assert run_rules(an_evidence(world=world)).findings == run_rules(loaded).findings
