"""What a person sees on a real terminal: a pseudo-terminal of a given width, and a process of its own in it."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from contextlib import suppress

import pytest

from tests.command_line import REPOSITORY, clean_environment, command
from tests.goldens import SAMPLES

FAR = "a-directory-with-a-long-name/another-one/runs/mine"


def seen(*words: str, columns: int, environment: dict[str, str] | None = None) -> str:
    """Everything that a command writes to its terminal, both streams."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = clean_environment() | {"PYTHONPATH": str(REPOSITORY), "TERM": "xterm-256color", **(environment or {})}
    for name in ("COLUMNS", "TERMINAL_WIDTH"):
        env.pop(name)
    process = subprocess.Popen(command(*words), cwd=SAMPLES, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    data = b""
    with suppress(OSError):  # the end, on Linux
        while part := os.read(ours, 65536):
            data += part
    process.wait(timeout=60)
    os.close(ours)
    return data.decode().replace("\r\n", "\n")


def too_long(told: str, columns: int) -> list[str]:
    """Lines that could have been broken: not those of a name that takes the terminal's width, which depends on where the project lies."""
    lines = (line for line in told.split("\n") if len(line) > columns and " " in line.strip())
    return [line for line in lines if max(map(len, line.split())) < 0.7 * columns]


@pytest.mark.parametrize("columns", [40, 80])
def test_an_error_is_broken_between_words(columns):
    """Message and hint, with what follows indented."""
    told = seen("validate", FAR, columns=columns, environment={"NO_COLOR": "1"})

    # A name that is as wide as the terminal stands at its edge: how wide it is depends on where the project lies.
    assert re.match(r"error\[nothing-there\]: no such path:\n(?:  )?`", told)
    assert [] == too_long(told, columns)
    assert re.search(r"\nhint: give a snapshot [^\n]*\n  \S", told)


@pytest.mark.parametrize(
    ("environment", "head"),
    [
        ({}, "\x1b[1;31merror[usage]\x1b[0m: "),
        ({"NO_COLOR": "1"}, "error[usage]: "),
        ({"TERM": "dumb"}, "error[usage]: "),
    ],
)
def test_an_error_is_red_where_colour_is_wanted(environment, head):
    """Nothing else of it is coloured."""
    told = seen("validate", "--sideways", columns=80, environment=environment)

    assert f"{head}no such option: --sideways\n\nhint: see `ckptctl validate --help`\n" == told


def test_json_on_a_terminal_stays_one_line():
    """It is for programs, whoever looks on."""
    told = seen("validate", FAR, "--format", "json", columns=40)

    assert 1 == told.count("\n")
    assert "\x1b" not in told


@pytest.mark.parametrize(
    "words", [("validate", "--explain", "LED"), ("validate", "--list-rules"), ("slurm", "list"), ("inspect", "turn")]
)
@pytest.mark.parametrize("columns", [40, 80])
def test_an_answer_is_broken_between_words(words, columns):
    """Whatever command makes it: only a name or a path that is wider than the terminal is left to it."""
    told = re.sub(r"\x1b\[[0-9;]*m", "", seen(*words, columns=columns))

    assert [] == too_long(told, columns)
