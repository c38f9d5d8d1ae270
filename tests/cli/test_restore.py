"""`ckptctl restore --plan` and `--select`: what would be restored, from files alone; the live restore is tested with servers."""

import json
import shutil

import pytest

from tests.command_line import run
from tests.goldens import copied_samples, tree_of


@pytest.fixture(scope="module")
def samples():
    """A copy of the samples to be in."""
    with copied_samples() as place:
        yield place


def planned(*words, folder):
    ran = run("restore", *words, "--format", "json", folder=folder)
    assert 0 == ran.status, ran.stderr
    return json.loads(ran.stdout)


def test_a_plan_names_every_rollout_with_its_reason(samples):
    """Attempt N becomes N+1, the mode is continue or restart, and sealed siblings are reused."""
    plan = planned("--plan", "--config", "turn.yaml", folder=samples)
    rollouts = {item["rollout_id"]: item for item in plan["rollouts"]}

    assert ("planned", None) == (plan["outcome"], plan["checkpoint_id"])
    assert {"g7_g0": "continue", "g8_g0": "continue", "g8_g1": "restart"} == {
        name: item["mode"] for name, item in rollouts.items()
    }
    assert [] == [item for item in rollouts.values() if item["replacement_attempt"] != item["source_attempt"] + 1]
    assert [] == [item for item in rollouts.values() if not item["reason"]]
    assert ["g7_g1"] == [item["rollout_id"] for item in plan["reused"]]


def test_a_plan_has_the_order_of_the_contract(samples):
    """Controller first, then policy, agents, resources; resumed in the other direction; admission last."""
    names = [step["name"] for step in planned("--plan", "--config", "turn.yaml", folder=samples)["plan"]]

    assert [
        "restore-controller", "restore-models", "restore-agents", "restore-resources",
        "resume-resources", "resume-models", "resume-agents", "open-admission",
    ] == [name for name in names if name.startswith(("restore-", "resume-", "open-"))]  # fmt: skip


def test_a_plan_changes_nothing(samples):
    """No lock, no journal, no other byte."""
    before = tree_of(samples)
    planned("--plan", "--config", "turn.yaml", folder=samples)
    run("restore", "--select", "--config", "two-generations.yaml", folder=samples)

    assert before == tree_of(samples)


def test_a_damaged_newest_is_passed_over_and_told(samples):
    """The next older one is planned, the damaged one is listed with its reason; `--no-fallback` refuses instead."""
    plan = planned("--plan", "--config", "two-generations.yaml", folder=samples)
    refused = run("restore", "--plan", "--no-fallback", "--config", "two-generations.yaml", folder=samples)

    assert plan["snapshot"].endswith("snapshot_000001")
    assert [("step_3/rollout_snapshots/snapshot_000002", True)] == [
        (item["snapshot"], "PAR026" in item["reason"]) for item in plan["rejected"]
    ]
    assert (13, True) == (refused.status, "PAR026" in refused.stderr)


def test_select_is_one_line_for_scripts(samples):
    """The path, and nothing else on stdout."""
    chosen = run("restore", "--select", "--config", "turn.yaml", folder=samples)

    assert f"{samples}/turn/step_3/rollout_snapshots/snapshot_000002\n" == chosen.stdout
    assert (0, "") == (chosen.status, chosen.stderr)


def test_select_names_the_anchor_where_no_snapshot_is_used(samples):
    """With `restore_mode: trainer_checkpoint`, and participants off, the run starts from the trainer checkpoint itself."""
    text = (samples / "turn.yaml").read_text()
    changed = text.replace("rollout_checkpointing:\n", "rollout_checkpointing:\n  restore_mode: trainer_checkpoint\n")
    changed = changed.replace("participant_checkpointing_enabled: true", "participant_checkpointing_enabled: false")
    (samples / "trainer.yaml").write_text(changed)
    chosen = run("restore", "--select", "--config", "trainer.yaml", folder=samples)

    assert (0, f"{samples}/turn/step_3\n") == (chosen.status, chosen.stdout), chosen.stderr
    assert "trainer checkpoint" in run("restore", "--plan", "--config", "trainer.yaml", folder=samples).stdout


def test_nothing_to_restore_is_3(samples):
    """A run that has not begun, and an anchor without a snapshot where Gym state is wanted."""
    empty = samples / "no-anchor"
    empty.mkdir(exist_ok=True)
    text = (samples / "turn.yaml").read_text()
    (samples / "empty.yaml").write_text(text.replace("checkpoint_dir: turn\n", "checkpoint_dir: no-anchor\n"))
    bare = samples / "bare"
    shutil.copytree(samples / "turn", bare)
    shutil.rmtree(bare / "step_3" / "rollout_snapshots")
    (samples / "bare.yaml").write_text(text.replace("checkpoint_dir: turn\n", "checkpoint_dir: bare\n"))

    assert [3, 3] == [
        run("restore", "--select", "--config", name, folder=samples).status for name in ("empty.yaml", "bare.yaml")
    ]


def test_another_run_is_incompatible(samples):
    """A configuration that was changed since the bootstrap is 12, and the difference is named."""
    text = (samples / "bootstrap-run.yaml").read_text()
    (samples / "changed.yaml").write_text(text.replace("seed: 42", "seed: 43"))
    refused = run("restore", "--select", "--config", "changed.yaml", folder=samples)

    assert (12, True) == (refused.status, "grpo.seed 42 -> 43" in refused.stderr), refused.stderr
