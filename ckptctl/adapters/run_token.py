"""Which run of a job a checkpoint directory belongs to: `.ckptctl/run`, mode 0600, written when a run begins.

When a node is lost, its run may go on writing while the scheduler has begun the job anew elsewhere. The lock does not tell
them apart: both take it by turns. So a run claims the directory once, at its beginning, and gets a token; whoever has an
older one in its environment is refused, and whoever works while another run claims the directory is no owner any more
(`locks.FileLock.is_owner`), so that it publishes nothing. The scheduler's restart count is no such token: a failed Prolog
raises it without a run, and on a lost node it may not have been raised yet. It is good for one thing: of two runs of one job,
the one with the lower count claims nothing from the other.

Who has no token (a person at a terminal) may work in a directory that a run has claimed.
"""

from __future__ import annotations

import json
import os
import secrets
import time

from ckptctl.adapters import durable
from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.ids import CONTROL_FOLDER
from ckptctl.domain.safe_text import safe
from ckptctl.errors import RunTakenOverError

RUN_FILE = "run"
TOKEN_VARIABLE = "CKPTCTL_RUN_TOKEN"  # noqa: S105 - a name; the token is no secret, it only tells runs apart
_MODE = 0o600
_MAX_BYTES = 4096
_HINT = "end this run: the other one goes on from the newest snapshot (`squeue` shows where)"


class RunClaim:
    """The claim on one checkpoint directory as one process sees it."""

    def __init__(self, checkpoint_dir: str) -> None:
        self._checkpoint_dir = checkpoint_dir
        self._path = f"{checkpoint_dir}/{CONTROL_FOLDER}/{RUN_FILE}"
        self._seen = b""

    def begin(self) -> None:
        """Remember whose the directory is. Raises RunTakenOverError when this process belongs to an earlier run."""
        self._seen = self._read()
        mine = os.environ.get(TOKEN_VARIABLE)
        if mine and self._seen and str(_decode(self._seen).get("token")) != mine:
            raise RunTakenOverError(f"`{self._checkpoint_dir}` belongs to another run now: {self._told()}", hint=_HINT)

    def is_unchanged(self) -> bool:
        """Whether no run has claimed the directory since `begin`."""
        return self._read() == self._seen

    def claim(self) -> str:
        """Make the directory ours and return its token. Raises RunTakenOverError when a later run of the same job has it."""
        self._seen = self._read()
        job_id, count = os.environ.get("SLURM_JOB_ID"), _count(os.environ.get("SLURM_RESTART_COUNT"))
        found = _decode(self._seen)
        if job_id and found.get("slurm_job_id") == job_id and _count(found.get("restart_count")) > count:
            raise RunTakenOverError(
                f"`{self._checkpoint_dir}` belongs to a later run of this job: {self._told()}", hint=_HINT
            )
        token = secrets.token_hex(16)
        record = {"token": token, "slurm_job_id": job_id, "restart_count": count, "claimed_at": round(time.time(), 3)}
        durable.make_directory(self._path.rpartition("/")[0])
        durable.write_file(self._path, json.dumps(record, sort_keys=True).encode(), mode=_MODE)
        return token

    def _told(self) -> str:
        found = _decode(self._seen)
        if not found:
            return "one whose claim is damaged"
        if not found.get("slurm_job_id"):
            return "one outside of Slurm"
        return safe(f"Slurm job {found['slurm_job_id']}, restart {_count(found.get('restart_count'))}")

    def _read(self) -> bytes:
        try:
            with LocalStore().open_source(self._path) as source:
                return bytes(source.read_at(0, _MAX_BYTES))
        except FileNotFoundError:
            return b""


def _decode(data: bytes) -> dict[str, object]:
    """The record; a damaged one is a run that nobody knows."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _count(text: object) -> int:
    return int(str(text)) if str(text).isascii() and str(text).isdigit() and len(str(text)) < 10 else 0
