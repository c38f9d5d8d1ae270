"""The coordinator lock of one checkpoint directory: `.ckptctl/lock`, mode 0600. It works between hosts and without
`flock`.

A lock is a record made whole by a hard link, so there is never half an owner. An owner that lost it is *succeeded*:
whoever takes over creates `lock.after-<nonce of the old owner>`, which only one can; the owner is the end of that
chain. Then the successor makes itself the beginning of the chain and sweeps. Whoever looked at an old chain meanwhile
walks it once more after its own claim and steps back. A record that is none (torn, damaged) is an unknown owner's, who
may be alive.

An owner renews its lease by the time of its own file, from a thread, so that a long computation does not look like
death; both times compared come from the file system, so no host's clock matters. Decided here: an owner of this host
and boot whose process is gone, and one of an earlier boot whose lease ended, are dead and succeeded at once. Every
other owner keeps the lock unless `break_lock` is given and its lease has ended, or was renewed at a time that has not
come yet. Where the file system's clock jumps the flag may hit an owner that lives. A broken owner that wakes up finds
out by `is_owner`, which is asked before every publication.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Literal

from ckptctl.adapters import durable
from ckptctl.adapters.local_store import LocalStore
from ckptctl.adapters.run_token import RunClaim
from ckptctl.domain.amounts import duration
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.ids import CONTROL_FOLDER
from ckptctl.domain.safe_text import safe
from ckptctl.errors import CkptctlError, LockHeldError
from ckptctl.ports import LockHolder

LOCK_FILE = "lock"
LEASE_S = 60.0
_MODE = 0o600
_MAX_BYTES = 64 << 10
_TRIES = 5
_CHAIN_LENGTH = 100
_MOST_NONCE_CHARS = 64


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lock: enough to tell on the same host whether it lives, and to tell a person where to look."""

    nonce: str
    host: str
    pid: int
    start_ticks: str
    boot_id: str
    pid_namespace: str
    slurm_job_id: str | None
    lease_s: float
    began_s: float | None = None
    """When it began, by its own host's clock: for people only. Older records do not say."""

    def told(self) -> str:
        """One line for people."""
        if not self.host:
            return "an owner who is unknown, because the lock file is damaged"
        job = f", Slurm job {self.slurm_job_id}" if self.slurm_job_id else ""
        since = "" if self.began_s is None else f", begun {_utc(self.began_s)}"
        return safe(f"process {self.pid} on {self.host}{job}{since}")


def this_process(*, lease_s: float = LEASE_S) -> Owner:
    """The owner record of this process."""
    return Owner(
        nonce=secrets.token_hex(16),
        host=socket.gethostname(),
        pid=os.getpid(),
        start_ticks=start_ticks(os.getpid()) or "",
        boot_id=_read_text("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_pid_namespace(),
        slurm_job_id=os.environ.get("SLURM_JOB_ID"),
        lease_s=lease_s,
        began_s=round(time.time(), 3),
    )


def start_ticks(pid: int) -> str | None:
    """When a process of this host started, in ticks since boot; None when there is no such process."""
    text = _read_text(f"/proc/{pid}/stat")
    # The command stands in parentheses and may itself hold blanks and parentheses; the start time is field 22.
    fields = text.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] != "Z" else None


class FileLock:
    """Implements `ports.Lock`."""

    def __init__(self, checkpoint_dir: str, *, owner: Owner | None = None) -> None:
        self._checkpoint_dir = checkpoint_dir
        self._folder = f"{checkpoint_dir}/{CONTROL_FOLDER}"
        self._store = LocalStore(checkpoint_dir)
        self._me = owner or this_process()
        self._run = RunClaim(checkpoint_dir)
        self._is_held = False
        self._renewal: threading.Thread | None = None
        self._stop = threading.Event()

    def acquire(self, *, break_lock: bool = False) -> None:
        """Take it. Raises LockHeldError; BusyError in a run that another run of the job has succeeded."""
        assert not self._is_held, "the lock is taken once"
        durable.make_directory(self._folder)
        self._run.begin()
        for _ in range(_TRIES):
            chain = self._chain()
            if self._take(chain, break_lock=break_lock) and self._end_nonce() == self._me.nonce:
                self._settle(chain)
                return
        raise LockHeldError(
            checkpoint_dir=self._checkpoint_dir,
            owner="several that began at once",
            lease="try again in a moment",
            may_be_dead=False,
        )

    def is_owner(self) -> bool:
        """Whether it is still ours, and no other run has claimed the directory."""
        return self._is_mine() and self._run.is_unchanged()

    def release(self) -> None:
        """Give it back. One that was lost meanwhile is left to its new owner."""
        self._stop.set()
        if self._renewal is not None:
            self._renewal.join()
            self._renewal = None
        with suppress(CkptctlError):  # left behind it is a dead process's lock, which the next owner takes over
            if self._is_mine():
                durable.remove_file(self._path())
        self._is_held = False

    def holder(self) -> LockHolder | None:
        """Who holds it, by looking only: nothing is written, so silence is not measured here."""
        chain = self._chain()
        if not chain:
            return None
        path, owner = chain[-1]
        renewed_s = self._renewed_s(path)
        return None if renewed_s is None else LockHolder(owner.told(), self._is_gone(owner), renewed_s, owner.lease_s)

    def demand_run(self) -> None:
        """Whether `acquire` would go on to the lock itself. Raises RunTakenOverError, StorageError."""
        self._run.begin()

    def _is_mine(self) -> bool:
        return self._is_held and self._end_nonce() == self._me.nonce

    def _take(self, chain: tuple[tuple[str, Owner], ...], *, break_lock: bool) -> bool:
        if not chain:
            return durable.create_file(self._path(), self._record(), mode=_MODE)
        path, owner = chain[-1]
        if owner.nonce == self._me.nonce:
            return True
        renewed_s = self._renewed_s(path)
        silence_s = 0.0 if renewed_s is None else durable.file_system_now_s(self._folder) - renewed_s
        state = self._judge(owner, silence_s)
        if state == "dead" or (state == "silent" and break_lock):
            claim = self._path(owner.nonce)
            is_mine = durable.create_file(claim, self._record(), mode=_MODE)
            if is_mine and self._end_nonce() != self._me.nonce:
                durable.remove_file(claim)  # the chain had moved on before we claimed its old end
                return False
            return is_mine
        raise LockHeldError(
            checkpoint_dir=self._checkpoint_dir,
            owner=owner.told(),
            lease=_lease(owner, renewed_s or time.time(), silence_s),
            may_be_dead=state == "silent",
        )

    def _settle(self, chain: tuple[tuple[str, Owner], ...]) -> None:
        """Make ourselves the beginning of the chain, sweep what was before, keep the lease alive."""
        if chain and chain[0][1].nonce != self._me.nonce:
            durable.write_file(self._path(), self._record(), mode=_MODE)
        for _, owner in chain:
            durable.remove_file(self._path(owner.nonce))
        self._is_held = True
        self._stop.clear()
        self._renewal = threading.Thread(target=self._renew, name="ckptctl-lease", daemon=True)
        self._renewal.start()

    def _judge(self, owner: Owner, silence_s: float) -> Literal["alive", "silent", "dead"]:
        is_silent = silence_s > owner.lease_s
        if self._is_gone(owner):
            return "dead"
        if self._is_neighbour(owner) and owner.boot_id != self._me.boot_id and is_silent:
            return "dead"  # an earlier boot of this host; the lease guards against two hosts of one name
        return "silent" if is_silent or _is_of_the_future(owner, silence_s) else "alive"

    def _is_gone(self, owner: Owner) -> bool:
        """Whether the process lived in this very boot of this host, and does not any more."""
        is_here = self._is_neighbour(owner) and owner.boot_id == self._me.boot_id
        return is_here and start_ticks(owner.pid) != owner.start_ticks

    def _is_neighbour(self, owner: Owner) -> bool:
        return owner.host == self._me.host and owner.pid_namespace == self._me.pid_namespace

    @staticmethod
    def _renewed_s(path: str) -> float | None:
        """When the lease was renewed, by the file system's clock; None when it was given back this instant."""
        try:
            return os.lstat(path).st_mtime
        except OSError as error:
            if error.errno in durable.GONE:
                return None
            raise durable.storage_error("look at", path, error) from error

    def _renew(self) -> None:
        """Renew through the descriptor of our own file: if another took over, only a file that nobody reads is touched."""
        with suppress(CkptctlError, FileNotFoundError), self._store.open_source(self._path()) as source:
            while not self._stop.wait(self._me.lease_s / 4):
                durable.renew_time(source.descriptor, path=source.path)

    def _chain(self) -> tuple[tuple[str, Owner], ...]:
        chain: list[tuple[str, Owner]] = []
        path = self._path()
        while len(chain) < _CHAIN_LENGTH and (owner := self._read(path)) is not None:
            chain.append((path, owner))
            path = self._path(owner.nonce)
        return tuple(chain)

    def _end_nonce(self) -> str | None:
        chain = self._chain()
        return chain[-1][1].nonce if chain else None

    def _read(self, path: str) -> Owner | None:
        try:
            with self._store.open_source(path) as source:
                data = source.read_at(0, _MAX_BYTES)
        except FileNotFoundError:
            return None
        return _decode(data) or replace(
            self._me, nonce=sha256_hex(data)[:32], host="", pid=0, slurm_job_id=None, lease_s=LEASE_S, began_s=None
        )

    def _record(self) -> bytes:
        return json.dumps(asdict(self._me), sort_keys=True).encode()

    def _path(self, after: str | None = None) -> str:
        return f"{self._folder}/{LOCK_FILE}" + (f".after-{after}" if after else "")


def _decode(data: bytes) -> Owner | None:
    """The owner that a record names; None when it is no record of ours, or torn on a file system without hard links."""
    try:
        found = Owner(**json.loads(data))
    except (ValueError, TypeError, RecursionError):
        return None
    texts = (found.nonce, found.host, found.start_ticks, found.boot_id, found.pid_namespace, found.slurm_job_id or "")
    numbers = (found.pid, found.lease_s, found.began_s or 0.0)
    is_sound = (
        all(isinstance(text, str) for text in texts)
        and all(type(number) in (int, float) for number in numbers)
        and found.nonce.isascii()
        and found.nonce.isalnum()
        and len(found.nonce) <= _MOST_NONCE_CHARS
        and bool(found.host)
        and 0 <= found.lease_s < float("inf")
    )
    return found if is_sound else None


def _is_of_the_future(owner: Owner, silence_s: float) -> bool:
    """Whether the clock went back since the last renewal. One that lives renews by the new time soon: this owner may be dead."""
    return silence_s < -owner.lease_s


def _lease(owner: Owner, renewed_s: float, silence_s: float) -> str:
    """How long the lock is the owner's, by the file system's clock."""
    if _is_of_the_future(owner, silence_s):
        return (
            f"its lease was renewed at {_utc(renewed_s)}, which has not come yet: the file system's clock was set back"
        )
    left_s = owner.lease_s - silence_s
    ends = _utc(renewed_s + owner.lease_s)
    if left_s < 0:
        return f"its lease ended at {ends}, {duration(-left_s)} ago"
    return f"its lease ends at {ends}, in {duration(left_s)}, unless it is renewed"


def _utc(moment_s: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment_s))
    except (ValueError, OverflowError, OSError):
        return "a time that no calendar has"


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
