"""Where the checkpoint directory of a job is, as each kind of hook can know it. Everything here comes from the user: data.

1. Root hooks: `ckpt=PATH` in the job's comment, up to the next blank or semicolon. Read from the environment, never from
   `scontrol show job`, whose text a comment with a newline can forge.
2. Else the marker file `.ckptctl-job` in the job's working directory: a regular file of the job's user, whose first line is
   the path. For sites whose Slurm gives no comment, and for paths with blanks.
3. TaskProlog: the job's own environment, CKPTCTL_CONFIG or CKPTCTL_CHECKPOINT_DIR. Root hooks do not see it.

A relative path is one below the job's working directory. The marker is read by `reader`, as the job's user.
"""

from __future__ import annotations

import os

COMMENT_KEY = "ckpt="
MARKER_NAME = ".ckptctl-job"
LONGEST_PATH = 4096
_REGULAR, _KIND = 0o100000, 0o170000


class HostilePathError(Exception):
    """A path that no honest job names."""


def from_comment(comment: str) -> str:
    """The path that a job's comment names; empty when it names none."""
    for word in comment.replace(";", " ").split():
        if word.startswith(COMMENT_KEY):
            return word[len(COMMENT_KEY) :]
    return ""


def from_marker(work_dir: str, uid: int) -> str:
    """The path in the marker file of the job's user; empty when there is no such file.

    Raises:
        HostilePathError: something else has its name.
    """
    try:
        descriptor = os.open(
            os.path.join(work_dir, MARKER_NAME),  # noqa: PTH118 - pathlib costs a third of the start
            os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
        )
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise HostilePathError(f"the marker file cannot be opened: {error.strerror}") from error
    found = os.fstat(descriptor)
    if found.st_mode & _KIND != _REGULAR or found.st_uid != uid:
        raise HostilePathError("the marker file is not a regular file of the job's user")
    first, newline, _ = os.read(descriptor, LONGEST_PATH + 2).partition(b"\n")
    if not newline and len(first) > LONGEST_PATH:
        raise HostilePathError("the marker file has no path in its first line")
    return os.fsdecode(first)


def absolute(path: str, work_dir: str) -> str:
    """The path as an absolute one.

    Raises:
        HostilePathError: it is too long, has control characters or surrogates, or is relative to nothing.
    """
    whole = path if path.startswith("/") else f"{work_dir}/{path}"
    if len(os.fsencode(whole)) > LONGEST_PATH:
        raise HostilePathError("the path is too long")
    if not whole.isprintable():  # control characters, line ends of all kinds, bytes that are no text
        raise HostilePathError("the path has characters that cannot be printed")
    if not path.startswith("/") and not work_dir.startswith("/"):
        raise HostilePathError("the path is relative, and the job's working directory is not known")
    return whole
