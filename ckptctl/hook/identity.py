"""Be the job's user before the user's files are touched: root reading a path that a user chose is a hole."""

from __future__ import annotations

import os
import pwd

NO_ID = 2**32 - 1
"""The system takes it for "as it is": who asks to become this user stays root."""


class WrongUserError(Exception):
    """This process cannot be the job's user."""


def job_user(environment: dict[str, str]) -> tuple[int, int | None]:
    """Uid and gid (None: that of the password file) that a scheduler's hook is told.

    Raises:
        WrongUserError: it is not told, or we are somebody else and not root (a PrologSlurmctld).
    """
    uid, gid = environment.get("SLURM_JOB_UID", ""), environment.get("SLURM_JOB_GID", "")
    if not _is_number(uid):
        raise WrongUserError("SLURM_JOB_UID does not say whose job it is")
    if os.geteuid() not in (0, int(uid)):
        raise WrongUserError(
            "this hook runs neither as root nor as the job's user, so it may not look at the job's files"
        )
    return int(uid), int(gid) if _is_number(gid) else None


def become(uid: int, gid: int | None) -> None:
    """Give up root for good. Does nothing in a process that is that user already.

    Raises:
        OSError: not possible; nothing may be touched then.
    """
    if os.geteuid() != 0 or uid == 0:
        return
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        entry = None
    gid = entry.pw_gid if gid is None and entry is not None else gid
    if gid is None:
        raise PermissionError("the job's user has no group")
    if max(uid, gid) >= NO_ID:
        raise PermissionError("the job's user has no number")
    groups = [gid] if entry is None else os.getgrouplist(entry.pw_name, gid)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if {*os.getresuid(), *os.getresgid()} != {uid, gid}:
        raise PermissionError("still somebody else")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 11 and int(text) < NO_ID
