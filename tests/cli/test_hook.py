"""Hooks as a scheduler starts them: always 0, in time, and the verdict in a file."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from ckptctl.hook import children, identity, reader
from tests.command_line import REPOSITORY
from tests.goldens import SAMPLES
from tests.schemas import problems, validator

NOBODY = 65534


class Node:
    """A node's own directory, and a hook run there with next to no environment."""

    def __init__(self, folder):
        self.folder = self.cwd = folder
        self.state = folder / "state"

    def run(self, hook, *options, **variables):
        environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(os.getuid()), "PYTHONPATH": str(REPOSITORY)}
        return subprocess.run(
            [sys.executable, "-m", "ckptctl", "hook", hook, "--state-dir", str(self.state), *options],
            cwd=self.cwd,
            env={**environment, **variables},
            capture_output=True,
            timeout=60,
            check=False,
        )

    def verdict(self, hook):
        """What it wrote, which is what the schema promises."""
        text = (self.state / f"job-7.{hook}.json").read_text("ascii")
        assert [] == problems(text, "hook.v1.json")
        return json.loads(text)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.fixture(autouse=True)
def the_program_under_test(monkeypatch):
    """What a reader becomes ignores PYTHONPATH, so the tests need ckptctl installed; as editable it is this one."""
    found = subprocess.run(
        [sys.executable, "-I", "-c", "import ckptctl; print(ckptctl.__file__)"],
        capture_output=True,
        text=True,
        check=False,
    )
    if not found.stdout.startswith(str(REPOSITORY)):
        pytest.skip("ckptctl of this checkout is not installed (editable)")


@pytest.mark.parametrize("hook", ["prolog", "epilog"])
def test_a_good_directory_is_called_valid(node, hook):
    """Nothing is said, the verdict names the newest snapshot, the metric counts it."""
    ran = node.run(hook, SLURM_JOB_COMMENT=f"ckpt={SAMPLES / 'turn'}")

    assert (0, b"", b"") == (ran.returncode, ran.stdout, ran.stderr)
    found = node.verdict(hook)
    assert ("valid", 0, "comment", str(SAMPLES / "turn"), 0) == tuple(
        found[key] for key in ("verdict", "exit_code", "found_by", "checkpoint_dir", "unfinished")
    )
    assert found["newest"].startswith("step_")
    assert f'hook="{hook}",verdict="valid"}} 1' in (node.state / "ckptctl_hook.prom").read_text()


def test_a_directory_that_is_a_link_is_judged(node):
    """As scratch file systems have it; the job's user reads what it leads to, whoever made it."""
    (node.folder / "scratch").symlink_to(SAMPLES / "turn")
    node.run("prolog", SLURM_JOB_COMMENT=f"ckpt={node.folder}/scratch")

    assert ("valid", 0) == tuple(node.verdict("prolog")[key] for key in ("verdict", "exit_code"))
    assert node.verdict("prolog")["newest"].startswith("step_")


def test_a_damaged_directory_is_told_and_harms_nothing(node):
    """At level standard the payload is judged."""
    folder = node.folder / "run"
    shutil.copytree(SAMPLES / "turn", folder)
    next(folder.rglob("rollout_recovery.pt")).write_bytes(b"torn")
    ran = node.run("prolog", "--level", "standard", SLURM_JOB_COMMENT=f"ckpt={folder}")

    assert 0 == ran.returncode
    assert ("invalid", 13) == (node.verdict("prolog")["verdict"], node.verdict("prolog")["exit_code"])
    assert "not valid: " in node.verdict("prolog")["reason"]


def test_the_marker_of_the_working_directory_is_found(node):
    """For a Slurm that tells no comment."""
    (node.folder / ".ckptctl-job").write_text(f"{SAMPLES / 'turn'}\n")
    ran = node.run("epilog", SLURM_JOB_WORK_DIR=str(node.folder))

    assert 0 == ran.returncode
    assert ("valid", "marker") == (node.verdict("epilog")["verdict"], node.verdict("epilog")["found_by"])


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_JOB_COMMENT": "a night run"},
        {"SLURM_JOB_COMMENT": "", "SLURM_JOB_WORK_DIR": "/nonexistent"},
        {"SLURM_JOB_COMMENT": "ckpt=;x", "SLURM_JOB_WORK_DIR": "relative"},
    ],
)
def test_a_job_without_snapshots_leaves_no_trace(node, variables):
    """Most jobs of a cluster are none of ours."""
    ran = node.run("prolog", **variables)

    assert (0, b"", b"") == (ran.returncode, ran.stdout, ran.stderr)
    assert not node.state.exists()


@pytest.mark.parametrize(
    ("comment", "word"),
    [
        ("ckpt=/nonexistent/run", "nothing-there"),
        ("ckpt=/a\x1b]0;owned\x07b", "refused"),
        ("ckpt=--help", "refused"),
        ("ckpt=/dev/zero", "failed"),
        ("ckpt=/", "nothing-there"),
        ("ckpt=$(id)", "refused"),
        ("ckpt=../../etc", "refused"),
        ("ckpt=/nonexistent\nckpt=/a", "nothing-there"),
        ("ckpt=/" + "x/" * 3000, "refused"),
    ],
)
def test_hostile_comments_end_with_0(node, comment, word):
    """Names that are none, devices, escapes, options."""
    ran = node.run("prolog", SLURM_JOB_COMMENT=comment)

    assert (0, b"") == (ran.returncode, ran.stdout)
    assert word == node.verdict("prolog")["verdict"]


def test_what_hangs_is_given_up_in_time(node):
    """The reader stands still, as one that waits for a dead mount does: the hook ends, the verdict says so."""
    ran = node.run("epilog", "--deadline", "1ms", SLURM_JOB_COMMENT=f"ckpt={SAMPLES / 'turn'}")

    assert 0 == ran.returncode
    assert "hung" == node.verdict("epilog")["verdict"]
    assert f"{SAMPLES / 'turn'}" == node.verdict("epilog")["checkpoint_dir"]


def test_a_hook_that_cannot_write_ends_with_0(node):
    """Nor does a wrong option stop it. The log of slurmd is told; not so a TaskProlog, whose stderr is Slurm's protocol too."""
    words = ("--state-dir", "/dev/null", "--bogus")
    ran = node.run("prolog", *words, SLURM_JOB_COMMENT=f"ckpt={SAMPLES / 'turn'}")
    task = node.run("task-prolog", *words, CKPTCTL_CHECKPOINT_DIR=str(SAMPLES / "turn"))

    assert (0, b"", 0, b"") == (ran.returncode, ran.stdout, task.returncode, task.stderr)
    wrong, missing = ran.stderr.splitlines()
    assert b"ckptctl hook: unknown option '--bogus'" == wrong
    assert missing.startswith(b"ckptctl hook: neither the verdict nor the metrics were written: ")
    assert 1 == task.stdout.count(b"\n")


def test_what_is_missing_is_named(node):
    """Without a directory for the metrics the verdict is written all the same, and nobody says otherwise."""
    ran = node.run("prolog", "--textfile-dir", "/nonexist", SLURM_JOB_COMMENT=f"ckpt={SAMPLES / 'turn'}")

    assert "valid" == node.verdict("prolog")["verdict"]
    assert ran.stderr.startswith(b"ckptctl hook: the verdict was written, but the metrics were not: ")
    assert 1 == ran.stderr.count(b"\n")


@pytest.mark.parametrize("option", ["--state-dir", "--textfile-dir"])
def test_a_relative_directory_is_passed_over_and_told(node, option):
    """To the log of slurmd, whatever the job is, and in the verdict."""
    told = f"option {option} takes an absolute path, so it passes over 'hk'"
    ran = node.run("prolog", option, "hk", SLURM_JOB_COMMENT=f"ckpt={SAMPLES / 'turn'}")

    assert f"ckptctl hook: {told}\n".encode() == ran.stderr == node.run("prolog", option, "hk").stderr
    assert told == node.verdict("prolog")["reason"]


def test_another_users_hook_refuses_to_look():
    """A PrologSlurmctld runs as Slurm's own user: it may not read what a job names."""

    def work():
        if os.geteuid() == 0:
            identity.become(NOBODY, NOBODY)
        try:
            identity.job_user({"SLURM_JOB_UID": "1"})
        except identity.WrongUserError as error:
            with open(1, "w", closefd=False) as answer:
                answer.write(str(error))

    assert b"neither as root nor as the job's user" in children.ask(work, time.monotonic() + 20).data


@pytest.mark.parametrize("uid", ["", "0x10", "-1", "9" * 30, str(2**32 - 1), str(2**32), "١٢"])
def test_a_hook_that_is_not_told_whose_job_it_is_refuses_to_look(node, uid):
    """Root must not guess whose files these are, nor stay root because the system takes the largest number for "as it is"."""
    ran = node.run("prolog", SLURM_JOB_COMMENT=f"ckpt={SAMPLES / 'turn'}", SLURM_JOB_UID=uid)

    assert 0 == ran.returncode
    assert "refused" == node.verdict("prolog")["verdict"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(("uid", "gid"), [(2**32 - 1, NOBODY), (NOBODY, 2**32 - 1), (2**40, NOBODY), (12345, None)])
def test_who_would_stay_root_is_told_of_it(uid, gid):
    """The largest number means "as it is" to the system, and a user without a group would keep root's: nothing is read then."""

    def work():
        try:
            identity.become(uid, gid)
        except PermissionError as error:
            reader.say(str(error))

    assert b"the job's user has no" in children.ask(work, time.monotonic() + 20).data


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_root_gives_itself_up_for_good():
    """All ids are the user's, groups included, and there is no way back."""

    def work():
        identity.become(NOBODY, NOBODY)
        ids = (*os.getresuid(), *os.getresgid(), *os.getgroups())
        try:
            os.setresuid(0, 0, 0)
        except PermissionError:
            with open(1, "w", closefd=False) as answer:
                answer.write(repr(ids))

    answer = children.ask(work, time.monotonic() + 20)

    assert 0 == answer.status
    assert {NOBODY} == set(eval(answer.data))


def test_a_child_that_hears_no_signal_is_abandoned():
    """Killed if that helps, and in no case waited for."""

    def work():
        signal.pause()

    answer = children.ask(work, time.monotonic() + 0.05, own_session=True)

    assert (b"", None) == (answer.data, answer.status)


def test_a_long_answer_is_cut_and_its_writer_ends_as_it_would():
    """A directory with thousands of snapshots has an answer of megabytes; its exit status counts, not a broken pipe."""

    def work():
        for _ in range(3):
            os.write(1, b"x" * children.LONGEST_ANSWER_BYTES)
        os._exit(13)

    answer = children.ask(work, time.monotonic() + 60, own_session=True)

    assert (children.LONGEST_ANSWER_BYTES, 13) == (len(answer.data), answer.status)


@pytest.mark.parametrize("is_readable", [True, False], ids=["proc", "no proc"])
def test_a_child_has_none_of_its_parents_descriptors(monkeypatch, is_readable):
    """Whatever the limit of descriptors is: slurmd waits until the pipes of a hook are closed."""
    reading, writing = os.pipe()
    os.dup2(writing, 200)
    list_directory = os.listdir

    def listdir(path):
        if path == "/proc/self/fd" and not is_readable:
            raise FileNotFoundError(path)
        return list_directory(path)

    monkeypatch.setattr(os, "listdir", listdir)
    monkeypatch.setattr(os, "sysconf", lambda _: -1)
    answer = children.ask(lambda: reader.say(",".join(list_directory("/proc/self/fd"))), time.monotonic() + 20)
    for descriptor in (reading, writing, 200):
        os.close(descriptor)

    assert {0, 1, 2, 3} >= {int(number) for number in answer.data.decode().split(",")}


def test_the_schema_knows_every_field_and_no_other(node):
    """What the hook writes by hand is compared with its description in both directions."""
    node.run("prolog", SLURM_JOB_COMMENT="ckpt=/nonexistent")

    assert set(node.verdict("prolog")) == set(validator("hook.v1.json").schema["required"])


@pytest.mark.parametrize(
    "variables",
    [{"SLURM_RESTART_COUNT": "1\nexport LD_PRELOAD=/evil.so"}, {"SLURM_JOB_ID": "१२"}, {"SLURM_JOB_ID": ""}],
)
def test_a_task_prolog_hands_on_nothing_that_is_no_number(node, variables):
    """A line of Slurm's protocol is made of digits and a printable path."""
    node.cwd = SAMPLES
    ran = node.run("task-prolog", CKPTCTL_CONFIG=str(SAMPLES / "turn.yaml"), **variables)

    assert b"unset CKPTCTL_RESUME_OF" == ran.stdout.splitlines()[1]
    assert b"LD_PRELOAD" not in ran.stdout


def test_a_task_prolog_hands_on_the_snapshot(node):
    """`export NAME=value` without quotes, `print` for the job's output, nothing on stderr."""
    node.cwd = SAMPLES
    ran = node.run("task-prolog", CKPTCTL_CONFIG=str(SAMPLES / "turn.yaml"))
    exported, whose, printed = ran.stdout.decode().splitlines()

    assert (0, b"") == (ran.returncode, ran.stderr)
    assert exported.startswith("export CKPTCTL_RESUME_FROM=/")
    assert "export CKPTCTL_RESUME_OF=7.0" == whose
    path = exported.partition("=")[2]
    assert os.path.isdir(path)
    assert f"print ckptctl: resume from {path}" == printed.partition(" (")[0]
    assert path == node.verdict("task-prolog")["newest"]


def test_a_task_prolog_of_a_step_says_nothing(node):
    """Steps inherit what the batch script was given."""
    ran = node.run("task-prolog", CKPTCTL_CONFIG=str(SAMPLES / "turn.yaml"), SLURM_STEP_ID="0")

    assert (0, b"", b"") == (ran.returncode, ran.stdout, ran.stderr)


def test_a_task_prolog_tells_what_is_wrong(node):
    """One line of print, no export, nothing left of what another job handed down; a hostile name breaks out nowhere."""
    ran = node.run("task-prolog", CKPTCTL_CONFIG="no\nexport LD_PRELOAD=/evil.so\n")

    assert (0, b"") == (ran.returncode, ran.stderr)
    *unset, line = ran.stdout.splitlines()
    assert [b"unset CKPTCTL_RESUME_FROM", b"unset CKPTCTL_RESUME_OF"] == unset
    assert line.startswith(b"print ckptctl: snapshots of this job: failed")


def test_a_task_prolog_judges_a_directory_that_the_job_names(node):
    """Without a configuration nothing is selected, only told."""
    ran = node.run("task-prolog", CKPTCTL_CHECKPOINT_DIR=str(SAMPLES / "turn"))

    assert 0 == ran.returncode
    assert ran.stdout.startswith(f"print ckptctl: {SAMPLES / 'turn'} looks whole, newest snapshot: step_".encode())


def test_a_task_prolog_names_the_next_command(node):
    """As it has to be typed, with the directory."""
    shutil.copytree(SAMPLES / "turn", node.folder / "sp ace")
    next((node.folder / "sp ace").rglob("manifest.json")).write_bytes(b"{}")
    ran = node.run("task-prolog", CKPTCTL_CHECKPOINT_DIR=f"{node.folder}/sp ace")

    assert f"; `ckptctl validate '{node.folder}/sp ace'` tells more\n".encode() in ran.stdout
