"""Streams that are full, closed or read by nobody: they decide how the answer is told, never what becomes of the work."""

import io
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ckptctl.cli.answer import Aside
from ckptctl.domain.safe_text import OVERWRITE
from tests.command_line import run
from tests.conftest import REPOSITORY
from tests.goldens import SAMPLES

NOWHERE = "/ckptctl-is-nowhere"


def ckptctl(*words: str, redirect: str = "") -> subprocess.CompletedProcess:
    """Run a real process behind a shell's redirections."""
    line = 'exec "$@" ' + redirect
    command = ["sh", "-c", line, "sh", sys.executable, "-m", "ckptctl", *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-"])
def test_a_stderr_that_cannot_be_written_changes_no_exit_status(redirect):
    """The error keeps its status, although nobody hears of it."""
    assert 3 == ckptctl("validate", NOWHERE, redirect=redirect).returncode


@pytest.mark.parametrize("words", [("--list-rules",), ("tests/samples/turn",), ("tests/samples/turn", "-q")])
def test_an_answer_to_a_closed_stdout_is_lost(words):
    """The caller gets no answer: 32 as when the disk is full, and the reason on stderr if there is one."""
    done, deaf = (ckptctl("validate", *words, redirect=redirect) for redirect in (">&-", ">&- 2>&-"))

    assert (32, 32, "") == (done.returncode, deaf.returncode, deaf.stderr)
    assert done.stderr.startswith("error[storage]: cannot write `standard output`: it is closed\n")
    assert "do not repeat the work" in done.stderr


def test_a_closed_stdout_is_not_missed_when_the_answer_goes_to_a_file(tmp_path):
    """Nothing was to be written there."""
    done = ckptctl("validate", "--list-rules", "--output", str(tmp_path / "rules"), redirect=">&-")

    assert (0, "") == (done.returncode, done.stderr)
    assert "MAN001" in (tmp_path / "rules").read_text()


@pytest.mark.parametrize("redirect", [">/dev/full", ">&-"])
@pytest.mark.parametrize("words", [("--help",), ("--version",), ("gc", "--help"), ("--version", "--format", "json")])
def test_help_that_cannot_be_written_is_a_storage_failure(words, redirect):
    """Not a bug with a traceback."""
    done = ckptctl(*words, redirect=redirect)

    assert (32, True) == (done.returncode, done.stderr.startswith("error[storage]: cannot write `standard output`"))


@pytest.mark.parametrize("words", [("bogus",), ("validate", "--bogus"), ()])
def test_a_usage_error_that_cannot_be_told_keeps_its_status(words):
    """Typer writes these by itself."""
    assert 2 == ckptctl(*words, redirect="2>/dev/full").returncode


@pytest.mark.long
def test_no_file_gets_the_number_of_a_closed_stream(tmp_path):
    """With all three closed a command that writes files and the file system's time still ends as it must."""
    run_dir = tmp_path / "run"
    (run_dir / "bootstrap").mkdir(parents=True)
    (run_dir / ".ckptctl" / "trash").mkdir(parents=True)
    for redirect, status in (("<&- >&- 2>&-", 32), (">&- 2>&-", 32), ("<&-", 0)):
        assert status == ckptctl("gc", str(run_dir), redirect=redirect).returncode
    assert 0 == ckptctl("gc", str(run_dir), "--output", str(tmp_path / "a"), redirect="<&- >&- 2>&-").returncode


def test_an_answer_that_cannot_be_written_says_that_the_work_is_done():
    """A full disk behind stdout is a storage failure whose hint does not send anybody to do it again."""
    done = ckptctl("validate", "--list-rules", redirect=">/dev/full")

    assert 32 == done.returncode
    assert "do not repeat the work" in done.stderr


def test_what_is_said_aside_never_raises(monkeypatch):
    """A stream that breaks while something is said falls silent for good."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", 0) as raw:
        broken = io.TextIOWrapper(raw, write_through=True)
        monkeypatch.setattr(sys, "stderr", broken)
        Aside().write("first\n")
        Aside().write("second\n")
        replaced = sys.stderr
        broken.detach()

    assert replaced is not broken
    replaced.close()


def test_a_moving_line_makes_way(monkeypatch):
    """Whatever is said next, and the answer, begin where it stood."""
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    aside = Aside()
    aside.write(f"{OVERWRITE}half")
    aside.write(f"{OVERWRITE}half and more")
    aside.write("warning\n")
    aside.write("another\n")
    aside.write(f"{OVERWRITE}half")
    aside.clear()
    aside.clear()

    assert ["", "half", "half and more", "warning\nanother\n", "half", ""] == said.getvalue().split(OVERWRITE)


@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize("words", [(), ("-v",)])
def test_progress_that_cannot_be_written_harms_nothing(redirect, words):
    """The answer is whole, the status that of the verdict."""
    done = ckptctl("validate", "tests/samples/turn", *words, redirect=redirect)

    assert 0 == done.returncode
    assert "verdict: valid" in done.stdout


@pytest.mark.parametrize("format_", ["text", "json", "junit", "sarif", "github"])
def test_progress_never_mixes_into_the_answer(format_):
    """With a line for each phase on stderr, stdout is what it is without."""
    loud, quiet = (run("validate", "turn", "--format", format_, word, folder=SAMPLES) for word in ("-v", "-q"))

    assert "validate 1 of 2: " in loud.stderr
    assert "" == quiet.stderr
    if format_ in ("json", "sarif", "github"):
        assert loud.stdout == quiet.stdout
    assert "validate 1 of 2" not in loud.stdout


def test_output_follows_a_link_and_keeps_the_mode(tmp_path):
    """The file behind a link is replaced, the link stays, and a private file stays private."""
    target, link = tmp_path / "answer", tmp_path / "link"
    target.touch(mode=0o600)
    link.symlink_to(target)
    done = ckptctl("validate", "--list-rules", "--output", str(link))

    assert 0 == done.returncode, done.stderr
    assert link.is_symlink()
    assert 0o600 == stat.S_IMODE(target.stat().st_mode)
    assert "MAN001" in target.read_text()


def test_output_writes_through_what_is_no_regular_file(tmp_path):
    """A named pipe stays one and carries the answer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = ckptctl("validate", "--explain", "MAN001", "--output", str(pipe))
        told = os.read(reader, 1 << 16).decode()
    finally:
        os.close(reader)

    assert 0 == done.returncode, done.stderr
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert "MAN001" in told


def test_an_output_without_a_place_is_refused_before_the_work(tmp_path):
    """A missing folder is the file system's fault, a folder the user's; and nothing was looked at."""
    for output, status in ((tmp_path / "none" / "answer", 32), (tmp_path, 2)):
        done = ckptctl("validate", NOWHERE, "--output", str(output))

        assert status == done.returncode
        assert NOWHERE not in done.stderr
    assert not Path(tmp_path, "none").exists()
