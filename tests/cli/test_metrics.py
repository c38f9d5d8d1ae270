"""`--metrics-textfile FILE`: written however a command ends, read by Prometheus' own parser."""

import subprocess
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ckptctl.formats.config_file import encode_yaml
from tests.cli.hostile import hostile_run
from tests.command_line import REPOSITORY, clean_environment, run
from tests.runs import a_run, damage

COMMANDS = ("snapshot", "validate", "publish", "restore", "gc", "inspect")


@pytest.fixture
def root(tmp_path):
    return a_run(tmp_path / "run", step_3=2)


def configured(root, port: int = 1):
    """A run configuration for a directory, whose servers nobody answers for."""
    path = root.parent / "run.yaml"
    gym = {"capability_discovery_enabled": True, "participant_checkpointing_enabled": True}
    sections = {
        "checkpointing": {"enabled": True, "checkpoint_dir": str(root), "save_data_plane": True, "save_period": 1},
        "token_capture": {"enabled": True},
        "async_rl": {"rollout_failure": {"nemo_gym": {"max_row_attempts": 1}}},
        "rollout_checkpointing": {"snapshot_attempt_interval_s": 120, "restore_mode": "latest", "gym": gym},
        "ckptctl": {
            "controller": {"url": f"http://127.0.0.1:{port}"},
            "participants": {"agent": {"url": f"http://127.0.0.1:{port}"}},
        },
    }
    path.write_bytes(encode_yaml(sections))
    return str(path)


def samples(path) -> dict[tuple[str, tuple], float]:
    """(metric, labels beside those that all have) -> value."""
    return {
        (
            sample.name,
            tuple(text for key, text in sample.labels.items() if key not in {"command", "checkpoint_dir"}),
        ): sample.value
        for family in text_string_to_metric_families(path.read_text(encoding="utf-8"))
        for sample in family.samples
    }


def value(path, name: str, *labels: str) -> float | None:
    return samples(path).get((f"ckptctl_{name}", labels))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_writes_how_it_ended(command, root, tmp_path):
    """What cannot be reached, is not there or is done: the file has the very status that the process has."""
    file = tmp_path / "out.prom"
    words = ("--config", configured(root)) if command in {"snapshot", "publish", "restore"} else (str(root),)
    done = run(command, *words, "--metrics-textfile", str(file), environment={"NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": "t"})

    assert float(done.status) == value(file, "last_run_exit_status")
    assert f'command="{command}",checkpoint_dir="{root}"' in file.read_text()
    assert 1.0 == value(file, "directory_readable")
    assert 2.0 == value(file, "snapshots", "valid")


def test_a_deeper_verdict_takes_the_place_of_a_quick_one(root, tmp_path):
    """Damage that level quick does not see: `validate` counts it, and the newest valid one is the older."""
    damage(root, "step_3", 2)
    file = tmp_path / "out.prom"
    done = run("validate", str(root), "--metrics-textfile", str(file))
    older = "step_3/rollout_snapshots/snapshot_000001"

    assert 13 == done.status
    assert (1.0, 1.0) == (value(file, "snapshots", "valid"), value(file, "snapshots", "invalid"))
    assert 1.0 == value(file, "last_run_verdict", "invalid")
    assert 1.0 == value(file, "newest_valid_snapshot_info", older, "step_3", "valid", "standard")


def test_an_error_is_told_with_its_code(root, tmp_path):
    """Nobody answers: refused before anything was changed, and the directory is told of all the same."""
    file = tmp_path / "out.prom"
    done = run(
        *("snapshot", "--config", configured(root), "--metrics-textfile", str(file)),
        environment={"NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": "t"},
    )

    assert 30 == done.status
    assert 1.0 == value(file, "last_run_info", "", "unreachable", "")


@pytest.mark.parametrize("form", [("--metrics-textfile", "{}"), ("--metrics-textfile={}",)])
def test_a_mistyped_command_line_is_a_failure_too(form, root, tmp_path):
    """Cron runs the same mistake for weeks: the metric must not keep its last good value."""
    file = tmp_path / "out.prom"
    file.write_text("old")
    done = run("gc", str(root), "--dryrun", *(word.format(file) for word in form))

    assert 2 == done.status
    assert 2.0 == value(file, "last_run_exit_status")
    assert 1.0 == value(file, "last_run_info", "", "usage", "")


def test_help_writes_nothing(root, tmp_path):
    """Nothing was run."""
    run("gc", str(root), "--metrics-textfile", str(tmp_path / "out.prom"), "--help")

    assert not (tmp_path / "out.prom").exists()


def test_gc_tells_what_became_of_its_items(root, tmp_path):
    """Items and bytes by outcome."""
    file = tmp_path / "out.prom"
    run("gc", str(root), "--keep", "1", "--metrics-textfile", str(file))

    assert (1.0, 1.0) == (value(file, "gc_items", "moved"), value(file, "gc_items", "kept"))
    assert value(file, "gc_bytes", "moved") == value(file, "bytes", "trash") > 0


@pytest.mark.parametrize("place", ["run/step_3/rollout_snapshots/x.prom", "run/.ckptctl/x.prom", "run.yaml", "-", "."])
def test_a_place_where_it_may_not_lie_is_refused_before_anything_is_done(place, root, tmp_path):
    """A file more in a checkpoint would make it worthless, and an input is not replaced."""
    config = configured(root)
    (root / ".ckptctl").mkdir()
    before = sorted(tmp_path.rglob("*"))
    done = run("gc", "--keep", "1", "--config", config, "--metrics-textfile", place, folder=tmp_path)

    assert 2 == done.status
    assert before == sorted(tmp_path.rglob("*"))


def test_a_file_that_cannot_be_written_decides_nothing(root, tmp_path):
    """The work is done, and the status is its own; stderr says what is missing."""
    (tmp_path / "metrics").mkdir()
    done = run("validate", str(root), "--metrics-textfile", "/dev/full")

    assert 0 == done.status
    assert "warning: the metrics were not written: cannot write `/dev/full`" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_that_is_missing_decides_nothing(command, root, tmp_path):
    """No command is refused for it: each ends as it would without, and warns."""
    words = ("--config", configured(root)) if command in {"snapshot", "publish", "restore"} else (str(root),)
    token = {"NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": "t"}
    without = run(command, *words, environment=token).status
    done = run(command, *words, "--metrics-textfile", str(tmp_path / "nowhere" / "out.prom"), environment=token)

    assert without == done.status
    assert "warning: the metrics were not written: cannot write" in done.stderr
    assert not (tmp_path / "nowhere").exists()


def test_a_mistyped_command_line_warns_too(root, tmp_path):
    """Its status is that of the mistake."""
    done = run("gc", str(root), "--dryrun", "--metrics-textfile", str(tmp_path / "nowhere" / "out.prom"))

    assert 2 == done.status
    assert "warning: the metrics were not written" in done.stderr


def test_hostile_names_stay_in_their_labels(tmp_path):
    """Line feeds, quotes and escapes in names of files make no sample of their own."""
    directory = hostile_run(tmp_path)
    file = tmp_path / "out.prom"
    run("validate", str(directory), "--metrics-textfile", str(file))
    text = file.read_text(encoding="utf-8")

    assert 1.0 == value(file, "directory_readable")
    assert "\x1b" not in text


STRUCK = """
import os, sys
import ckptctl.workflows.{module} as module
from ckptctl.__main__ import main
def struck(*facts, **more):
    os.kill(os.getpid(), {number})
module.{name} = struck
sys.argv = {words!r}
main()
"""
"""A process that is sent a signal in the middle of its work."""


@pytest.mark.parametrize(("number", "status", "told"), [(15, 143, "stopped"), (2, 130, "interrupted")])
def test_a_command_that_is_stopped_says_so(number, status, told, root, tmp_path):
    """SIGTERM and SIGINT: the file has the status that the process ends with."""
    file = tmp_path / "out.prom"
    words = ["ckptctl", "gc", str(root), "--metrics-textfile", str(file)]
    program = STRUCK.format(module="gc", name="plan_gc", number=number, words=words)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (status, "", "") == (done.returncode, done.stdout, done.stderr)
    assert float(status) == value(file, "last_run_exit_status")
    assert 1.0 == value(file, "last_run_info", "", told, "")


def test_a_bug_is_told_as_one(root, tmp_path):
    """A traceback is exit 1, in the metrics too."""
    file = tmp_path / "out.prom"
    words = ["ckptctl", "gc", str(root), "--metrics-textfile", str(file)]
    program = STRUCK.format(module="gc", name="plan_gc", number=0, words=words)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert 1 == done.returncode
    assert "Traceback" in done.stderr
    assert 1.0 == value(file, "last_run_info", "", "bug", "")
