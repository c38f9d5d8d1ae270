"""What a bad sample changes in the world is written to disk by the writers, and found there at level full by the real reader."""

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.rules import ALL_RULES
from ckptctl.workflows.validate import ValidateRequest, validate
from tests.builders import a_run_files, write_tree
from tests.rules import FAMILIES
from tests.rules.samples import BAD

assert FAMILIES, "the sample modules register when they are imported"
RULES = {rule.id: rule for rule in ALL_RULES}
NEEDS_A_TOPOLOGY = {"capabilities", "live", "run"}
WRITABLE = [
    pytest.param(sample, id=f"{sample.rule}-{sample.title}".replace(" ", "-"))
    for group in BAD.values()
    for sample in group
    if sample.base.endswith("snapshot")
    and sample.world
    and not sample.evidence
    and not NEEDS_A_TOPOLOGY & {*sample.facts}
]


@pytest.mark.long
@pytest.mark.parametrize("sample", WRITABLE)
def test_a_written_sample_is_found_at_level_full(sample, tmp_path):
    """Every digest in it is right, for the writers computed them afterwards: only the rule itself can tell."""
    world = sample.written()
    run = write_tree(tmp_path, a_run_files(world))

    report = validate(LocalStore(), ValidateRequest(paths=(str(run),), level="full"))

    (target,) = [target for target in report.targets if target.path.endswith(world.name)]
    assert sample.rule in {finding.rule for finding in (*target.findings, *target.notes)}
    if RULES[sample.rule].severity == "error" and not sample.is_warning:
        assert ("incompatible" if sample.is_incompatible else "invalid") == target.verdict
    else:
        errors = {finding.rule for finding in target.findings if finding.severity == "error"}
        assert sample.rule not in errors
        assert ("invalid" if errors else "valid") == target.verdict
