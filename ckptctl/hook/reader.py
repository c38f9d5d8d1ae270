"""The process that touches the user's files: it becomes the user, finds the checkpoint directory, and becomes ckptctl.

Its first line on stdout says what it found (`found comment PATH`, `nothing`, `refused REASON`); what follows is the
answer of the program that it became. It may hang at any of its steps; whoever asked it does not wait.
"""

from __future__ import annotations

import os
import sys

from ckptctl.hook import identity, place

CLEAN = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
    "NO_COLOR": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""All that the program of a root hook sees."""
CANNOT_START = 127


class Question:
    """What the reader is to find out."""

    __slots__ = ("comment_path", "gid", "level", "uid", "work_dir")

    def __init__(self, *, uid: int, gid: int | None, comment_path: str, work_dir: str, level: str) -> None:
        self.uid = uid
        self.gid = gid
        self.comment_path = comment_path
        self.work_dir = work_dir
        self.level = level


def inspect_job(question: Question) -> None:
    """Of a root hook: find the directory of the job, and become `ckptctl inspect` on it."""
    os.chdir("/")
    try:
        identity.become(question.uid, question.gid)
    except OSError as error:
        say(f"refused this hook could not become the job's user: {error.strerror or error}")
        return
    found_by = "comment" if question.comment_path else "marker"
    try:
        path = question.comment_path or place.from_marker(question.work_dir, question.uid)
        if not path:
            say("nothing")
            return
        path = place.absolute(path, question.work_dir)
    except place.HostilePathError as error:
        say(f"refused {error}")
        return
    say(f"found {found_by} {path}")
    execute(["inspect", "--level", question.level, "--format", "json", "--quiet", "--", path], CLEAN)


def execute(words: list[str], environment: dict[str, str]) -> None:
    """Become ckptctl. Isolated: neither the working directory nor PYTHON* variables choose what is imported."""
    try:
        os.execve(sys.executable, [sys.executable, "-I", "-m", "ckptctl", *words], environment)  # noqa: S606 - no shell is wanted
    except OSError:
        os._exit(CANNOT_START)


def say(line: str) -> None:
    """One line to whoever asked, at once: what follows may be another program."""
    with open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False) as answer:
        answer.write(f"{line}\n")
