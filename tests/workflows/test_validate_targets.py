"""What a PATH means, what is refused, and what the report and its exit status say."""

import json
import os

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.evidence import RunFacts
from ckptctl.errors import ExitCode, NothingThereError, UsageError
from ckptctl.workflows.inspect import run_inspection
from ckptctl.workflows.targets import find_targets
from ckptctl.workflows.validate import ValidateRequest, exit_code, load_evidence, run_facts, validate
from tests.builders import a_bootstrap_world, a_run_files, a_world, write_tree
from tests.runs import offline_world
from tests.world import a_config, a_topology


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A checkpoint directory with a bootstrap anchor and a step, one snapshot each."""
    return write_tree(tmp_path_factory.mktemp("run"), a_run_files(a_bootstrap_world(), a_world()))


def kinds_and_names(path):
    return [(target.kind, target.path.rpartition("/")[2]) for target in find_targets(LocalStore(), str(path))]


def report_on(*paths, **request):
    return validate(LocalStore(), ValidateRequest(paths=tuple(str(path) for path in paths), **request))


def test_a_checkpoint_directory_is_all_its_anchors(run):
    """Anchors in order, each after its snapshots."""
    assert [
        ("snapshot", "snapshot_000002"),
        ("anchor", "bootstrap"),
        ("snapshot", "snapshot_000002"),
        ("anchor", "step_3"),
    ] == kinds_and_names(run)


def test_parts_of_it(run):
    """An anchor, its folder of snapshots, one snapshot, a data plane."""
    step = run / "step_3"

    assert [("snapshot", "snapshot_000002"), ("anchor", "step_3")] == kinds_and_names(step)
    assert [("snapshot", "snapshot_000002")] == kinds_and_names(step / "rollout_snapshots")
    assert [("snapshot", "snapshot_000002")] == kinds_and_names(step / "rollout_snapshots" / "snapshot_000002")
    assert [("data_plane", "data_plane")] == kinds_and_names(
        step / "rollout_snapshots" / "snapshot_000002" / "data_plane"
    )


def test_snapshots_come_by_number(tmp_path):
    """Any digit count is read; unpublished ones are not judged."""
    for name in ("snapshot_10", "snapshot_000009", "tmp_snapshot_000011", "trash_snapshot_000001", "snapshot_x"):
        (tmp_path / "step_1" / "rollout_snapshots" / name).mkdir(parents=True)

    assert [("snapshot", "snapshot_000009"), ("snapshot", "snapshot_10"), ("anchor", "step_1")] == kinds_and_names(
        tmp_path
    )
    assert [("snapshot", "tmp_snapshot_000011")] == kinds_and_names(
        tmp_path / "step_1" / "rollout_snapshots" / "tmp_snapshot_000011"
    )


def test_a_renamed_copy_is_recognised_by_its_content(run, tmp_path):
    """It is a snapshot, though not one that would ever be selected."""
    os.rename(
        write_tree(tmp_path / "a", a_run_files()) / "step_3" / "rollout_snapshots" / "snapshot_000002",
        tmp_path / "copy",
    )
    report = report_on(tmp_path / "copy")

    assert ["MAN001", "MAN001"] == [finding.rule for finding in report.targets[0].findings]
    assert report.verdict == "invalid"


def test_nothing_there(tmp_path):
    """No such path, or a directory with nothing to judge: both say what would be expected."""
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(NothingThereError, match="no such path|nothing to validate") as caught:
            find_targets(LocalStore(), str(path))
        assert "snapshot_N" in caught.value.hint


def test_something_else(tmp_path):
    """A file, and links that lead to a file or nowhere."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "lost").symlink_to("nowhere")

    with pytest.raises(UsageError, match="no directory"):
        find_targets(LocalStore(), str(tmp_path / "file"))
    for name in ("link", "lost"):
        with pytest.raises(UsageError, match="symbolic link"):
            find_targets(LocalStore(), str(tmp_path / name))


def test_the_checkpoint_directory_itself_may_be_a_link(run, tmp_path):
    """Judged and described as without it, under the name that was given."""
    link = tmp_path / "scratch"
    link.symlink_to(run)

    assert kinds_and_names(run) == kinds_and_names(link)
    assert [target.verdict for target in report_on(run).targets] == [
        target.verdict for target in report_on(link).targets
    ]
    assert [("step_3", 1), ("bootstrap", 1)] == [
        (anchor.name, len(anchor.snapshots)) for anchor in run_inspection(offline_world(link), str(link)).anchors
    ]


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("step_3", "step_3"),
        ("step_3", "other"),
        ("step_3/rollout_snapshots", "rollout_snapshots"),
        ("step_3/rollout_snapshots/snapshot_000002", "other"),
        ("step_3/rollout_snapshots/snapshot_000002/data_plane", "data_plane"),
        ("step_3/rollout_snapshots/snapshot_000002/data_plane", "other"),
    ],
)
def test_no_part_of_it_may_be_a_link(run, tmp_path, part, name):
    """Whatever the link is called; a snapshot under its own name is a finding instead, as below."""
    (tmp_path / name).symlink_to(run / part)

    with pytest.raises(UsageError, match="symbolic link"):
        find_targets(LocalStore(), str(tmp_path / name))


def test_a_linked_snapshot_is_a_finding_and_nothing_behind_it_is_read(run, tmp_path):
    """Upstream would take it; it can change under us."""
    folder = tmp_path / "step_3" / "rollout_snapshots"
    folder.mkdir(parents=True)
    (folder / "snapshot_000001").symlink_to(run / "step_3" / "rollout_snapshots" / "snapshot_000002")
    target = report_on(folder / "snapshot_000001").targets[0]

    assert target.verdict == "invalid"
    assert ["MAN001"] == [finding.rule for finding in target.findings if finding.severity == "error"]
    assert (target.coverage.files_total, target.coverage.bytes_checked) == (0, 0)


def test_a_path_given_twice_is_judged_once(run):
    """Overlapping paths do not repeat targets."""
    report = report_on(run, run / "step_3", run / "step_3" / "rollout_snapshots" / "snapshot_000002")

    assert len(report.targets) == 4
    assert report.verdict == "valid"


@pytest.mark.parametrize("level", ["quick", "standard", "full"])
def test_a_run_of_this_tool_is_valid_at_every_level(run, level):
    """What our writers write satisfies our rules, anchors included."""
    assert report_on(run, level=level).verdict == "valid"


@pytest.mark.parametrize(
    ("verdict_of", "strict", "code"),
    [
        ("valid", False, 0),
        ("valid", True, 0),
        ("warned", True, 10),
        ("warned", False, 0),
        ("incomplete", True, 11),
        ("missing", False, 13),
    ],
)
def test_exit_codes(run, tmp_path, verdict_of, strict, code):
    """One status per verdict; `--strict` only matters where there are warnings and nothing worse."""
    files = {
        name: data
        for name, data in a_run_files().items()
        if verdict_of != "missing" or not name.endswith("rollout_recovery.pt")
    }
    write_tree(tmp_path, files)
    if verdict_of == "warned":
        write_tree(tmp_path, {"step_3/rollout_snapshots/snapshot_000002/notes.txt": b"?"})
    if verdict_of == "incomplete":
        write_tree(tmp_path, {"step_3/rollout_snapshots/snapshot_000002/config.yaml": b"grpo: !tagged {}\n"})
    report = report_on(tmp_path)

    assert ExitCode(code) == exit_code(report, strict=strict)


def test_a_staged_snapshot_is_judged_under_its_final_name(tmp_path):
    """As it will be published it is valid; as it lies there nobody would select it."""
    world = a_world(name="tmp_snapshot_000002")
    path = write_tree(tmp_path, a_run_files(world)) / "step_3" / "rollout_snapshots" / "tmp_snapshot_000002"

    assert report_on(path, under_final_name=True).verdict == "valid"
    assert ["MAN001"] == [finding.rule for finding in report_on(path).targets[0].findings]


def test_an_anchor_says_that_its_newest_snapshot_is_damaged(tmp_path):
    """Snapshots are judged first, so the anchor can name the one to use instead."""
    older, newer = (
        a_world(name="snapshot_000001", checkpoint_id="ck-1"),
        a_world(name="snapshot_000002", checkpoint_id="ck-2"),
    )
    write_tree(tmp_path, a_run_files(older, newer))
    (tmp_path / "step_3" / "rollout_snapshots" / "snapshot_000002" / "train_dataloader.pt").write_bytes(b"no zip")
    report = report_on(tmp_path)
    anchor = report.targets[-1]

    assert ["valid", "invalid", "valid"] == [target.verdict for target in report.targets]
    assert ["ANC005"] == [finding.rule for finding in anchor.findings]
    assert "newest valid: `snapshot_000001`" in anchor.findings[0].message


def test_garbage_is_noted_with_the_anchor(tmp_path):
    """What is unfinished or half deleted, here and beside the anchors, each once."""
    write_tree(tmp_path, a_run_files(a_world(), a_world(anchor="step_4", step=4)))
    for name in (
        "step_3/rollout_snapshots/tmp_snapshot_000003",
        "step_3/rollout_snapshots/trash_snapshot_000001",
        "tmp_step_9",
        "old_step_3",
    ):
        (tmp_path / name).mkdir()
    notes = {
        target.path.rpartition("/")[2]: [note.artifact for note in target.notes if note.rule == "DUR002"]
        for target in report_on(tmp_path).targets
        if target.kind == "anchor"
    }

    assert notes == {
        "step_3": ["../old_step_3", "rollout_snapshots/tmp_snapshot_000003", "rollout_snapshots/trash_snapshot_000001"],
        "step_4": ["../tmp_step_9"],
    }


def test_unknown_rules_are_refused(run):
    """A typing error in `--select` must not look like a clean result."""
    with pytest.raises(UsageError, match="no such rule: `LED999`"):
        report_on(run, select=("LED999",))
    with pytest.raises(UsageError, match="no such rule"):
        report_on(run, ignore=("FOO",))


def test_selecting_a_family(run):
    """Only that family judges."""
    target = report_on(run / "step_3" / "rollout_snapshots" / "snapshot_000002", select=("LED",)).targets[0]

    assert {outcome.rule[:3] for outcome in target.outcomes if outcome.outcome == "passed"} == {"LED"}
    assert target.verdict == "valid"


def test_saved_capabilities(run, tmp_path):
    """The topology of the world passes; a file that is no discovery is a usage error that names the place."""
    servers = [server.model_dump(mode="json") for server in a_topology()]
    good, bad, empty = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "empty.json"
    good.write_text(json.dumps(servers))
    bad.write_text(json.dumps([{"server_name": 3}]))
    empty.write_text("[")
    snapshot = run / "step_3" / "rollout_snapshots" / "snapshot_000002"

    assert report_on(snapshot, capabilities_path=str(good)).verdict == "valid"
    for path, words in (
        (bad, "server_name"),
        (empty, "capabilities file"),
        (tmp_path / "absent.json", "does not exist"),
    ):
        with pytest.raises(UsageError, match=words):
            report_on(snapshot, capabilities_path=str(path))


def test_the_run_that_wants_to_restore(run):
    """Its configuration is compared: feature, storage units, bootstrap identity, dataset."""
    snapshot = run / "step_3" / "rollout_snapshots" / "snapshot_000002"
    ours = run_facts({**a_config(), "ckptctl": {"token_env": "X"}})
    off = run_facts({"rollout_checkpointing": {"gym": {"participant_checkpointing_enabled": False}}})

    assert report_on(snapshot, run=ours).verdict == "valid"
    assert report_on(run / "bootstrap", run=run_facts(a_bootstrap_world().config)).verdict == "valid"
    assert {"FPR005", "FPR007"} <= {finding.rule for finding in report_on(snapshot, run=off).targets[0].findings}
    assert ["ANC004"] == [
        finding.rule for finding in report_on(run / "bootstrap", run=off, select=("ANC",)).targets[0].findings
    ]
    assert run_facts({"rollout_checkpointing": {"extra_fingerprint_excluded_paths": ["*"]}}).bootstrap_manifest is None
    assert run_facts({}) != RunFacts()


def test_evidence_for_others(run):
    """Whoever asks more than a verdict gets the same evidence; the anchor's files are named as the snapshot sees them."""
    evidence = load_evidence(LocalStore(), str(run / "step_3" / "rollout_snapshots" / "snapshot_000002"))

    assert len(evidence.agents) == 2
    assert evidence.anchor is not None
    assert evidence.anchor.training_info.path == "../../training_info.json"
    assert "snapshot_000002" == evidence.anchor.other_snapshots[0].name


def test_an_empty_path_is_not_the_working_directory():
    """Most often it is a variable of a script that is not set."""
    with pytest.raises(UsageError, match="an empty path names nothing"):
        validate(LocalStore(), ValidateRequest(paths=("",)))


def test_a_choice_of_rules_that_leaves_none_gives_no_verdict(tmp_path):
    """A verdict of no rule at all would say nothing."""
    with pytest.raises(UsageError, match="leave no rule"):
        validate(LocalStore(), ValidateRequest(paths=(str(tmp_path),), select=("LED",), ignore=("LED",)))


@pytest.mark.parametrize(("word", "level", "deeper"), [("INV006", "standard", "full"), ("SUM", "quick", "standard")])
def test_a_chosen_rule_that_the_level_leaves_out_is_refused(word, level, deeper):
    """Not one rule would have run, and the answer would have been *valid*."""
    with pytest.raises(UsageError, match=f"nothing of `{word}`") as refused:
        validate(LocalStore(), ValidateRequest(paths=("nowhere",), select=("MAN", word), level=level))

    assert f"add `--level {deeper}`" == refused.value.hint


def test_what_is_called_almost_like_a_snapshot_is_named(tmp_path):
    """Nobody judges it, so the report says that it is there and is none; where nothing else is there, the error does."""
    folder = write_tree(tmp_path, a_run_files(a_world())) / "step_3" / "rollout_snapshots"
    for name in ("snapshot_abc", "Snapshot_000001", "snapshot_000002.bak", "tmp_x", "tmp_snapshot_000003"):
        (folder / name).mkdir()
    (folder / "snapshot_notes").write_bytes(b"a file is no directory")
    anchor = report_on(folder.parent).targets[-1]
    notes = {note.artifact: note.message for note in anchor.notes if note.rule == "DUR002"}

    assert "valid" == anchor.verdict
    assert {"snapshot_abc", "Snapshot_000001", "snapshot_000002.bak", "tmp_x"} == {
        path.rpartition("/")[2] for path, text in notes.items() if "by its name no snapshot" in text
    }
    (tmp_path / "other" / "rollout_snapshots" / "snapshot_abc").mkdir(parents=True)
    with pytest.raises(NothingThereError, match="`snapshot_abc` there: no name of a snapshot"):
        report_on(tmp_path / "other" / "rollout_snapshots")
