"""Scripts for Slurm: printed whole, sound for the shell that runs them, and calling what there is."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ckptctl.adapters.run_token import TOKEN_VARIABLE
from ckptctl.hook import options
from ckptctl.slurm import SCRIPTS
from tests.command_line import REPOSITORY, clean_environment, run, run_process
from tests.goldens import SAMPLES

HOOKS = ("prolog", "epilog", "task-prolog")


def shown(name):
    ran = run("slurm", "show", name, "-q")
    assert 0 == ran.status
    return ran.stdout


def test_the_list_names_every_script():
    """One line each, below a title."""
    lines = run("slurm", "list").stdout.splitlines()

    assert ["script", *SCRIPTS] == [line.split()[0] for line in lines]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_sound_for_its_shell(tmp_path, name):
    """Read without running it; no placeholder is left; lines fit an editor."""
    text = shown(name)
    if name != "slurm.conf":
        shell = "sh" if text.startswith("#!/bin/sh") else "bash"
        subprocess.run([shell, "-n"], input=text, text=True, check=True)

    assert "@python@" not in text
    assert [] == [line for line in text.splitlines() if len(line) > 130]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_script_calls_this_python_with_options_that_there_are(hook):
    """By its absolute path, isolated; the last word is 0."""
    text = shown(hook)
    words = re.search(r"-m ckptctl (hook .*)", text)[1].split()

    assert f"python='{sys.executable}'" in text
    assert options.is_hook(words)
    assert [] == options.parse(words[1:]).complaints
    assert "exit 0" == text.splitlines()[-1]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("python", ["/nonexistent/python", "/bin/false"])
def test_a_hook_script_ends_with_0_whatever_python_does(tmp_path, hook, python):
    """An interpreter that is gone or broken drains no node."""
    script = tmp_path / "hook"
    script.write_text(shown(hook).replace(sys.executable, python))
    done = subprocess.run(["/bin/sh", script], env={}, capture_output=True, check=False)

    assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr)


def test_an_unknown_script_is_a_usage_error():
    """The hint names them all."""
    ran = run("slurm", "show", "postlog")

    assert 2 == ran.status
    assert "prolog, epilog, task-prolog" in ran.stderr


def config_of(tmp_path):
    text = (SAMPLES / "turn.yaml").read_text()
    path = tmp_path / "run.yaml"
    path.write_text(text.replace("checkpoint_dir: turn", f"checkpoint_dir: {tmp_path / 'run'}"))
    return str(path)


def test_a_claim_gives_a_token_and_fences_off_the_one_before(tmp_path):
    """`gc` with the older token is refused; with the newer one, and without any, it works."""
    config = config_of(tmp_path)
    first = run("slurm", "claim", "--config", config).stdout.strip()
    second = json.loads(run("slurm", "claim", "--config", config, "--format", "json").stdout)
    (tmp_path / "run" / "bootstrap").mkdir()
    old, new = (
        run("gc", "--config", config, environment={TOKEN_VARIABLE: token}) for token in (first, second["token"])
    )

    assert str(tmp_path / "run") == second["checkpoint_dir"]
    assert 21 == old.status
    assert "belongs to another run now" in old.stderr
    assert 21 != new.status


def test_a_link_in_place_of_the_control_folder_is_refused(tmp_path):
    """As by every command that writes."""
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / ".ckptctl").symlink_to(tmp_path / "elsewhere")
    ran = run("slurm", "claim", "--config", config_of(tmp_path))

    assert 20 == ran.status
    assert [] == os.listdir(tmp_path / "elsewhere")


FAKE = """#!/bin/bash
# Stands in for ckptctl: notes its words, answers as the test wants.
echo "$@" >>"$LOG"
case "$1 $2" in
  "slurm claim") echo token; exit ${CLAIM:-0} ;;
  "restore --select") echo "$SELECTED"; exit ${SELECT:-0} ;;
  "snapshot --every") exec sleep 100 ;;
esac
exit 0
"""


def in_a_job(tmp_path, script, **variables):
    """Run bash with the functions and a stand-in for ckptctl on the path: what is called, how it ended, what it said."""
    (tmp_path / "functions").write_text(shown("job-functions"))
    fake = tmp_path / "ckptctl"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    log = tmp_path / "log"
    log.touch()
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "LOG": str(log),
        "CKPTCTL_CONFIG": "run.yaml",
        "CKPTCTL_PAUSE": "0",
    }
    done = subprocess.run(
        ["/bin/bash", "-c", f"source {tmp_path}/functions || exit; {script}"],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return log.read_text().splitlines(), done.returncode, done.stdout + done.stderr


def test_a_job_selects_by_itself(tmp_path):
    """What another job handed down is none of ours."""
    script = 'ckptctl_begin && echo "from=$CKPTCTL_RESUME_FROM token=$CKPTCTL_RUN_TOKEN"'
    snapshot = "/c/step_1/rollout_snapshots/snapshot_000001"
    job = {"SLURM_JOB_ID": "7", "SELECTED": snapshot, "CKPTCTL_RESUME_FROM": "/other", "CKPTCTL_RESUME_OF": "6.0"}

    assert (["slurm claim", "restore --select"], 0, f"from={snapshot} token=token\n") == in_a_job(
        tmp_path, script, **job
    )


def test_a_job_takes_what_its_task_prolog_selected(tmp_path):
    """For this very job and restart."""
    job = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2", "CKPTCTL_RESUME_FROM": "/mine", "CKPTCTL_RESUME_OF": "7.2"}

    assert (["slurm claim"], 0, "/mine\n") == in_a_job(tmp_path, 'ckptctl_begin && echo "$CKPTCTL_RESUME_FROM"', **job)


@pytest.mark.parametrize(
    ("variables", "status"), [({"CLAIM": "21"}, 21), ({"SELECT": "13"}, 13), ({"SELECT": "3", "SELECTED": ""}, 0)]
)
def test_a_job_ends_where_it_may_not_begin(tmp_path, variables, status):
    """A ghost of a lost node, or nothing but damage; where there is nothing at all it begins at the beginning."""
    assert status == in_a_job(tmp_path, 'ckptctl_begin || exit; [ -z "$CKPTCTL_RESUME_FROM" ]', **variables)[1]


@pytest.mark.parametrize(
    ("path", "called"),
    [("/c/step_1/rollout_snapshots/snapshot_000001", ["restore --break-lock"]), ("/c/step_1", []), ("", [])],
)
def test_only_a_snapshot_is_restored(tmp_path, path, called):
    """An anchor is the trainer's business. The lock that a lost run left may be broken, be it of this job or of another."""
    job = {"CKPTCTL_RESUME_FROM": path}

    assert (called, 0, "") == in_a_job(tmp_path, "ckptctl_restore", **job)


@pytest.mark.parametrize(("signal_name", "grace"), [("USR1", "70s"), ("TERM", "7s")])
def test_a_signal_takes_a_snapshot_and_ends_the_training(tmp_path, signal_name, grace):
    """The periodic one is stopped first, and takes no last one: the lock must be free, and the time is short. After TERM it is
    shorter: KILL follows. The training gets TERM afterwards."""
    script = f"""
        (trap 'exit 9' TERM; kill -{signal_name} $$; while :; do sleep 0.05; done) & training=$!
        ckptctl_periodic; ckptctl_watch "$training"; echo "$? $ckptctl_stopped_by"; wait "$training"; echo $?
    """
    called, status, said = in_a_job(tmp_path, script, CKPTCTL_GRACE="70s", CKPTCTL_TERM_GRACE="7s")

    assert f"snapshot --deadline {grace} --break-lock" == called[-1]
    assert {"snapshot --every config --last-within 0s --break-lock"} >= set(
        called[:-1]
    )  # ended before it said a word, maybe
    assert (0, f"0 {signal_name}\n9\n") == (status, said)


def test_a_training_that_slurm_ended_first_is_no_end_by_itself(tmp_path):
    """TERM goes to one process after another; the script may hear of the training's end before its own signal comes."""
    script = 'sleep() { kill -TERM $$; }; (exit 143) & ckptctl_watch $!; echo "$? $ckptctl_stopped_by"'
    called, _, said = in_a_job(tmp_path, script)

    assert (["snapshot --deadline 20s --break-lock"], "0 TERM\n") == (called, said)


def test_a_training_that_ends_by_itself_gives_its_status(tmp_path):
    """No snapshot; then what is pending is finished and garbage collected."""
    called, status, _ = in_a_job(tmp_path, '(exit 5) & ckptctl_watch $!; status=$?; ckptctl_end; exit "$status"')

    assert (["publish", "gc"], 5) == (called, status)


def test_the_readme_shows_the_job_that_is_printed():
    """Word by word."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")

    assert shown("job").strip() in readme


def test_scripts_travel_with_the_package():
    """They are printed by a process that was started elsewhere."""
    ran = run_process("slurm", "show", "job", folder=Path("/"), environment=clean_environment())

    assert ran.stdout == shown("job")
