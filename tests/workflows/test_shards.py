"""Validation in parts: all shards together say exactly what one run says; a part alone says that it is one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.share import OTHER_SHARD, Share
from ckptctl.errors import NotCheckedError, UsageError
from ckptctl.workflows.shards import merge_reports
from ckptctl.workflows.validate import ValidateRequest, validate
from tests.builders import a_run_files, a_world, write_tree
from tests.command_line import run
from tests.conftest import REPOSITORY, shared_fixtures

FIXTURES = Path(os.environ.get("CKPTCTL_FIXTURES") or REPOSITORY.parent / "shared" / "fixtures")
CASES = sorted(path.name for path in (FIXTURES / "cases").iterdir()) if (FIXTURES / "cases").is_dir() else ["(absent)"]
FOUR = 4


def whole(path):
    return validate(LocalStore(), ValidateRequest(paths=(str(path),), level="full"))


def shard(path, index, count=FOUR, **request):
    share = Share("shard", index, count)
    return validate(LocalStore(), ValidateRequest(paths=(str(path),), level="full", share=share, **request))


def written(folder, reports):
    """The reports as files, and their paths."""
    folder.mkdir(exist_ok=True)
    for place, report in enumerate(reports):
        (folder / f"{place}.json").write_text(report.model_dump_json())
    return tuple(str(folder / f"{place}.json") for place in range(len(reports)))


def merged(folder, path, count=FOUR):
    reports = [shard(path, index, count) for index in range(1, count + 1)]
    return merge_reports(LocalStore(), written(folder, reports))


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A run with staged rows in several call chains."""
    return write_tree(tmp_path_factory.mktemp("run"), a_run_files(a_world()))


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """All damaged cases with what a repository cannot hold added."""
    fixtures = shared_fixtures()
    folder = tmp_path_factory.mktemp("damaged") / "cases"
    subprocess.run(
        [sys.executable, str(fixtures / "prepare_case.py"), "--all", str(fixtures / "cases"), str(folder)], check=True
    )
    return folder


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_all_shards_are_the_whole(good, tmp_path, count):
    """Verdicts, findings, outcomes and coverage: nothing is lost and nothing stands twice."""
    assert whole(good) == merged(tmp_path, good, count)


def test_each_shard_reads_its_part_only(good):
    """What one leaves, it says; together they read what one run reads."""
    left = [
        sum(item.bytes for target in shard(good, index).targets for item in target.coverage.unchecked if is_left(item))
        for index in range(1, FOUR + 1)
    ]

    assert all(left)


def is_left(item):
    return item.reason == OTHER_SHARD


def test_a_damaged_row_is_found_by_the_shard_that_reads_it(good, tmp_path):
    """One of four finds it, and so does the merge."""
    damaged = tmp_path / "run"
    write_tree(damaged, a_run_files(a_world()))
    unit = max(damaged.glob("*/rollout_snapshots/*/data_plane/simple_storage/su_*.pkl"), key=lambda f: f.stat().st_size)
    report = whole(damaged)
    data = bytearray(unit.read_bytes())
    for place in range(len(data) - 64, 64, -16):
        changed = bytearray(data)
        changed[place] ^= 1
        unit.write_bytes(changed)
        report = whole(unit.parents[2])
        if {"INV007"} == {finding.rule for finding in report.targets[0].findings}:
            break
    snapshot = unit.parents[2]
    verdicts = [shard(snapshot, index).verdict for index in range(1, FOUR + 1)]

    assert "invalid" in verdicts
    assert "valid" in verdicts
    assert report == merged(tmp_path / "reports", snapshot)


def test_a_subset_says_what_it_left(good):
    """The verdict is about the part, and the report names the part."""
    share = Share("subset", 2, 3)
    report = validate(LocalStore(), ValidateRequest(paths=(str(good),), level="full", share=share))

    assert ("subset", 2, 3) == (report.share.kind, report.share.index, report.share.count)
    assert any(
        "not in the part of the data" in item.reason for target in report.targets for item in target.coverage.unchecked
    )


def test_a_missing_report_is_not_a_verdict(good, tmp_path):
    """Three of four shards prove nothing."""
    paths = written(tmp_path, [shard(good, index) for index in (1, 2, 4)])

    with pytest.raises(NotCheckedError, match="^shard 3 of 4 did not report"):
        merge_reports(LocalStore(), paths)


def test_reports_from_before_and_after_a_change_do_not_merge(good, tmp_path):
    """The files were listed by each shard; a listing that differs is another subject."""
    changing = tmp_path / "run"
    write_tree(changing, a_run_files(a_world()))
    first = shard(changing, 1, 2)
    (next(changing.glob("*/rollout_snapshots/*")) / "stray").write_text("new")
    paths = written(tmp_path / "reports", [first, shard(changing, 2, 2)])

    with pytest.raises(UsageError, match="the files changed in between"):
        merge_reports(LocalStore(), paths)


def test_other_rules_are_another_validation(good, tmp_path):
    """A shard that ignored a family cannot stand for one that did not."""
    paths = written(tmp_path, [shard(good, 1, 2), shard(good, 2, 2, ignore=("DUR",))])

    with pytest.raises(UsageError, match="of another validation"):
        merge_reports(LocalStore(), paths)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema_version": 1, "schema_version": 1}', "nonsense"])
def test_what_is_no_report_is_refused(tmp_path, text):
    """With the file's name."""
    (tmp_path / "r.json").write_text(text)

    with pytest.raises(UsageError, match=r"r\.json` is no report"):
        merge_reports(LocalStore(), (str(tmp_path / "r.json"),))


def test_the_command_line_from_shards_to_verdict(good, tmp_path):
    """As the tasks of `srun` run it: the same words for all, the number in the file's name."""
    for rank in range(2):
        words = (
            "validate",
            str(good),
            "--shard",
            "auto",
            "--format",
            "json",
            "--output",
            str(tmp_path / "r{shard}.json"),
        )
        ran = run(*words, environment={"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2"})
        assert 0 == ran.status, ran.stderr
    ran = run("validate", "--merge", str(tmp_path / "r1.json"), str(tmp_path / "r2.json"), "--format", "json")

    assert 0 == ran.status, ran.stderr
    assert json.loads(whole(good).model_dump_json()) == json.loads(ran.stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--shard", "auto"), "SLURM_PROCID"),
        (("--shard", "5/4"), "is not one of I/N"),
        (("--shard", "1/2", "--read-data-subset", "10%"), "exclude each other"),
        (("--shard", "1/2", "--level", "standard"), "level standard reads none of it"),
        (("--read-data-subset", "0%"), "is no percentage from 0.01% (one part in 10,000) to 100%"),
        (("--merge", "--level", "full"), "puts reports together"),
    ],
)
def test_what_does_not_fit_together_is_a_usage_error(good, words, said):
    """Before anything is read."""
    ran = run("validate", str(good), *words)

    assert 2 == ran.status
    assert said in ran.stderr


@pytest.mark.parametrize("name", CASES)
@pytest.mark.long
def test_four_shards_judge_every_damage_like_one_run(cases, tmp_path, name):
    """The same verdict, the same findings."""
    case = json.loads((cases / name / "case.json").read_text())
    path = cases / name / case["snapshot"]

    assert whole(path) == merged(tmp_path, path)


@pytest.mark.parametrize("name", ["turn", "norollouts", "legacy", "tq/small", "tq/numpy", "tq/dangling"])
def test_four_shards_judge_real_data_like_one_run(fixtures, tmp_path, name):
    """Good runs, other schemas, and data planes alone."""
    path = fixtures / name if not name.startswith("tq/") else fixtures / name / "step_1" / "data_plane"

    assert whole(path) == merged(tmp_path, path)
