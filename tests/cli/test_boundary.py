"""What happens to errors at the edge of the process: one text or one JSON object on stderr, the right status, no noise."""

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest

from tests.command_line import REPOSITORY, clean_environment, command, run, run_process
from tests.goldens import SAMPLES
from tests.runs import a_run

ERROR_FIELDS = {
    "schema_version",
    "code",
    "exit_code",
    "message",
    "hint",
    "retryable",
    "cause",
    "server",
    "server_code",
}


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        (("validate", "gone"), "nothing-there", 3),
        (("validate",), "usage", 2),
        (("validate", "--level", "deep", "turn"), "usage", 2),
        (("validate", "--sideways"), "usage", 2),
        (("frobnicate",), "usage", 2),
        (("restore", "--plan"), "usage", 2),
        (("restore", "--plan", "--config", "gone.yaml"), "config-invalid", 2),
        (("restore", "--plan", "--no-fallback", "--config", "two-generations.yaml"), "snapshot-invalid", 13),
        (("gc", "gone"), "nothing-there", 3),
        (("inspect", "gone"), "nothing-there", 3),
        (("sim", "status", "--dir", "gone"), "nothing-there", 3),
        (("sim", "up"), "usage", 2),
    ],
)
def test_a_failure_is_one_json_object_on_stderr(words, code, status):
    """With `--format json` stdout is empty and stderr one line of JSON, for usage errors of the parser too."""
    ran = run(*words, "--format", "json", folder=SAMPLES)
    found = json.loads(ran.stderr)

    assert ("", status, status, code) == (ran.stdout, ran.status, found["exit_code"], found["code"])
    assert ERROR_FIELDS == found.keys()
    assert 1 == ran.stderr.count("\n")


def test_a_failure_is_text_by_default():
    """Code in brackets, the message, a blank line, the hint."""
    ran = run("validate", "gone", folder=SAMPLES)
    first, blank, hint = ran.stderr.splitlines()

    assert (f"error[nothing-there]: no such path: `{SAMPLES}/gone`", "") == (first, blank)
    assert hint.startswith("hint: ")
    assert "" == ran.stdout


def test_status_in_a_process_is_that_of_the_runner():
    """The boundary gives the same status in a real process."""
    ran = run_process("validate", "gone", "--format", "json", folder=SAMPLES)

    assert (3, "", "nothing-there") == (ran.status, ran.stdout, json.loads(ran.stderr)["code"])


@pytest.mark.parametrize(
    "words", [("validate", "--list-rules"), ("validate", "turn"), ("--version",), ("--help",), ("validate", "--help")]
)
def test_a_broken_pipe_is_no_message(words):
    """The reader went away: 141, and nothing on stderr."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command(*words),
            cwd=SAMPLES,
            env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)

    assert (141, b"") == (done.returncode, done.stderr)


def test_a_full_disk_behind_stdout_is_a_storage_failure():
    """The answer could not be written: that must not look like success."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("validate", "turn", "--format", "json"),
            cwd=SAMPLES,
            env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )

    assert (32, "storage") == (done.returncode, json.loads(done.stderr)["code"])


def test_an_interrupt_is_130():
    """Ctrl-C in an offline command: 130, no traceback."""
    process = subprocess.Popen(
        [sys.executable, "-c", BLOCKED],
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert b"ready\n" == process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)

    assert (130, b"") == (process.returncode, stderr)


BLOCKED = """
import sys, time
import ckptctl.cli.answer as answer
import ckptctl.render.catalogue as catalogue
def blocked(**_):
    print("ready", flush=True)
    while True:
        time.sleep(60)
catalogue.list_rules = blocked
sys.argv = ["ckptctl", "validate", "--list-rules"]
from ckptctl.__main__ import main
main()
"""


def test_a_bug_is_a_traceback_and_1():
    """What is no error on purpose keeps its traceback, for the report."""
    program = BLOCKED.replace('    print("ready", flush=True)\n', "    raise RuntimeError('a bug')\n")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**clean_environment(), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.rstrip().endswith("RuntimeError: a bug")


def test_a_hint_names_the_directory_that_was_given(tmp_path):
    """What it says to run next can be typed as it stands, whether a configuration was named or is known."""
    text = (SAMPLES / "two-generations.yaml").read_text().replace("two-generations\n", f"{SAMPLES}/two-generations\n")
    (tmp_path / "run.yaml").write_text(text)
    words = ("gc", "--undelete", "gone")
    named = run(*words, "--config", "run.yaml", folder=tmp_path)
    known = run(*words, folder=tmp_path, environment={"CKPTCTL_CONFIG": str(tmp_path / "run.yaml")})

    hint = f"hint: `ckptctl inspect {SAMPLES}/two-generations` lists the snapshots, and what is in the trash\n"
    assert hint in named.stderr
    assert hint in known.stderr


@pytest.mark.parametrize("words", [("--unpin", "snapshot_000001"), ("--undelete", "nope")])
def test_a_hint_of_gc_can_be_typed(tmp_path, words):
    """Without a configuration the directory is all there is to name, and it may have a blank."""
    run_dir = a_run(tmp_path / "sp ace", step_3=1)
    told = run("gc", str(run_dir), *words).stderr
    hinted = shlex.split(told.partition("hint: `ckptctl ")[2].partition("`")[0])

    assert ["inspect", str(run_dir)] == hinted
    assert 0 == run(*hinted).status
