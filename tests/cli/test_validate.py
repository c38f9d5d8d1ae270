"""`ckptctl validate` as a user meets it; the rules themselves, and every wording, are tested elsewhere (goldens, tests/rules)."""

import json

import pytest

from tests.command_line import run
from tests.goldens import SAMPLES, copied_samples, tree_of

SNAPSHOT = "turn/step_3/rollout_snapshots/snapshot_000002"


@pytest.fixture(scope="module")
def samples():
    """A copy of the samples to be in."""
    with copied_samples() as place:
        yield place


def report(*words, folder=SAMPLES):
    ran = run("validate", *words, "--format", "json", folder=folder)
    return ran.status, json.loads(ran.stdout)


@pytest.mark.parametrize(
    ("targets", "status", "verdict"),
    [
        (("turn",), 0, "valid"),
        (("schema-3", "turn"), 0, "valid"),
        (("turn", "other-schemas"), 12, "incompatible"),
        (("other-schemas", "two-generations", "turn"), 13, "invalid"),
        (("damaged/stranger",), 0, "valid"),
        (("damaged/stranger", "--strict"), 10, "valid"),
        (("damaged/stranger", "other-schemas", "--strict"), 12, "incompatible"),
    ],
)
def test_the_worst_target_decides(targets, status, verdict):
    """Several targets give the largest status of any of them."""
    found, answer = report(*targets)

    assert (status, verdict) == (found, answer["verdict"])


def test_a_whole_directory_names_every_snapshot_and_anchor():
    """Paths are absolute, each target once, each with its own verdict."""
    _, answer = report("two-generations")
    targets = {target["path"].removeprefix(f"{SAMPLES}/two-generations/"): target for target in answer["targets"]}

    assert ["step_3/rollout_snapshots/snapshot_000001", "step_3/rollout_snapshots/snapshot_000002", "step_3"] == list(
        targets
    )
    assert ["valid", "invalid", "valid"] == [target["verdict"] for target in targets.values()]


def test_levels_look_at_more_and_more():
    """Quick reads the manifest alone, standard every file, and the report says how much that was."""
    checked = {
        level: report(SNAPSHOT, "--level", level)[1]["targets"][0]["coverage"] for level in ("quick", "standard")
    }

    assert (
        checked["quick"]["files_checked"] < checked["standard"]["files_checked"] == checked["standard"]["files_total"]
    )
    assert checked["quick"]["bytes_checked"] < checked["standard"]["bytes_checked"]


def test_select_and_ignore_by_rule_name_and_family():
    """A family, an id and a name mean rules; what is not chosen is skipped and says so."""
    for chosen, count in (("LED", 1), ("LED004", 1), ("status-contradicts-siblings", 1), ("MAN", 1)):
        _, answer = report(SNAPSHOT, "--select", chosen)
        outcomes = answer["targets"][0]["outcomes"]
        judged = {item["rule"][:3] for item in outcomes if item["outcome"] in ("passed", "failed")}
        assert count == len(judged), (chosen, judged)
    status, answer = report("damaged/stranger", "--ignore", "MAN009", "--strict")
    assert (0, []) == (status, answer["targets"][0]["findings"])


@pytest.mark.parametrize("word", ["led004", "LED004", "Status-Contradicts-Siblings", "led"])
def test_rules_in_any_case(word):
    """People type what is quickest to type; the answer is the same everywhere a rule can be named."""
    status, answer = report(SNAPSHOT, "--select", word)

    assert (0, {"LED004"}) == (
        status,
        {item["rule"] for item in answer["targets"][0]["outcomes"] if item["outcome"] == "passed"} & {"LED004"},
    )
    assert "LED004 status-contradicts-siblings" in run("validate", "--explain", word).stdout
    assert "skipped" == report(SNAPSHOT, "--ignore", word)[1]["targets"][0]["outcomes"][_place("LED004")]["outcome"]


def _place(rule):
    _, answer = report(SNAPSHOT)
    return [item["rule"] for item in answer["targets"][0]["outcomes"]].index(rule)


def test_the_same_path_twice_is_one_target():
    """A path that is given twice, or lies in another, is judged once."""
    _, answer = report(SNAPSHOT, SNAPSHOT, "turn")
    paths = [target["path"] for target in answer["targets"]]

    assert len(set(paths)) == len(paths)


def test_capabilities_feed_the_rules_that_need_a_topology(samples):
    """Saved discovery: the same topology passes, another one is incompatible, a file that is none is a usage error."""
    from tests.world import a_topology

    same = [item.model_dump(mode="json") for item in a_topology()]
    (samples / "same.json").write_text(json.dumps(same))
    (samples / "other.json").write_text(json.dumps(same[:-1]))
    (samples / "none.json").write_text('{"a": 1}')
    (samples / "bad.json").write_text(json.dumps([{**same[0], "server_name": "a b"}]))

    assert 0 == report(SNAPSHOT, "--capabilities", "same.json", folder=samples)[0]
    assert 12 == report(SNAPSHOT, "--capabilities", "other.json", folder=samples)[0]
    assert 2 == run("validate", SNAPSHOT, "--capabilities", "none.json", folder=samples).status
    assert 2 == run("validate", SNAPSHOT, "--capabilities", "gone.json", folder=samples).status
    bad = run("validate", SNAPSHOT, "--capabilities", "bad.json", folder=samples)
    assert (2, False) == (bad.status, "Value error" in bad.stderr)


def test_the_run_configuration_feeds_the_rules_that_need_it(samples):
    """With `--config` a changed run is incompatible; without one those rules are skipped and do not count."""
    text = (samples / "bootstrap-run.yaml").read_text()
    (samples / "changed.yaml").write_text(text.replace("seed: 42", "seed: 43"))

    assert 0 == report("bootstrap-run", "--config", "bootstrap-run.yaml", folder=samples)[0]
    assert 12 == report("bootstrap-run", "--config", "changed.yaml", folder=samples)[0]


def test_what_could_not_be_checked_is_never_valid(samples):
    """A file that cannot be opened: 11, and the report says which rule could not run."""
    ledger = samples / "schema-3" / "bootstrap" / "rollout_snapshots" / "snapshot_000001" / "manifest.json"
    before = ledger.read_bytes()
    ledger.unlink()
    ledger.symlink_to("/proc/self/mem")
    try:
        status, answer = report("schema-3", folder=samples)
    finally:
        ledger.unlink()
        ledger.write_bytes(before)

    assert "valid" != answer["verdict"]
    assert status in (11, 13)


def test_nothing_is_changed_and_nothing_is_executed(samples):
    """Neither the sound nor the damaged samples differ afterwards, and the calling pickle called nothing."""
    from pathlib import Path

    before = tree_of(samples)
    run("validate", ".", "--level", "standard", folder=samples / "damaged" / "calling-pickle")

    assert before == tree_of(samples)
    assert not Path("/tmp/ckptctl-was-fooled").exists()
