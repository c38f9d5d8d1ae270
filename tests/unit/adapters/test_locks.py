"""The coordinator lock: who may take it over, and who finds out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from ckptctl.adapters import locks
from ckptctl.adapters.locks import FileLock, this_process
from ckptctl.errors import LockHeldError


@pytest.fixture
def lock_of(tmp_path):
    """Locks of one checkpoint directory, given back at the end."""
    made = []

    def make(**changes):
        made.append(FileLock(str(tmp_path), owner=replace(this_process(), **changes)))
        return made[-1]

    yield make
    for lock in made:
        lock.release()


def gone_pid() -> int:
    """The number of a process that has ended."""
    return int(subprocess.check_output([sys.executable, "-c", "import os; print(os.getpid())"]))


def leave_lock(tmp_path, **changes) -> None:
    """A lock whose owner did not give it back."""
    left = FileLock(str(tmp_path), owner=replace(this_process(), **changes))
    left.acquire()
    left._stop.set()
    left._renewal.join()


def make_silent(tmp_path) -> None:
    """The lease has ended."""
    os.utime(tmp_path / ".ckptctl" / "lock", (1, 1))


def test_a_second_owner_is_told_who_holds_it(tmp_path, lock_of) -> None:
    """While one process holds the lock another is refused and told where to look; afterwards it gets it."""
    first, second = lock_of(), lock_of(slurm_job_id="77")
    first.acquire()
    with pytest.raises(LockHeldError, match=rf"locked by another ckptctl: process {os.getpid()} on") as refusal:
        second.acquire()
    first.release()
    second.acquire()

    assert refusal.value.hint.startswith("wait for it to end")
    assert "UTC; its lease ends at" in refusal.value.message
    assert 0o600 == (tmp_path / ".ckptctl" / "lock").stat().st_mode & 0o777
    assert second.is_owner()
    assert not first.is_owner()


def test_a_dead_owner_of_this_host_is_succeeded(tmp_path, lock_of) -> None:
    """The process is gone, or its number belongs to another one by now: no flag is needed."""
    for changes in ({"pid": gone_pid()}, {"start_ticks": "1"}):
        leave_lock(tmp_path, **changes)
        lock = lock_of()
        lock.acquire()

        assert lock.is_owner()
        lock.release()
        assert [] == os.listdir(tmp_path / ".ckptctl")


def test_an_earlier_boot_is_dead_once_its_lease_ended(tmp_path, lock_of) -> None:
    """The same host name with another boot: dead when silent, otherwise perhaps a second host of that name."""
    leave_lock(tmp_path, boot_id="another")
    with pytest.raises(LockHeldError):
        lock_of().acquire()
    make_silent(tmp_path)
    lock = lock_of()
    lock.acquire()

    assert lock.is_owner()


def test_a_foreign_owner_needs_the_flag_and_an_ended_lease(tmp_path, lock_of) -> None:
    """Nobody can see whether a process on another host lives: neither flag nor silence is enough alone."""
    leave_lock(tmp_path, host="elsewhere", slurm_job_id="5")
    with pytest.raises(LockHeldError, match="on elsewhere, Slurm job 5"):
        lock_of().acquire(break_lock=True)
    make_silent(tmp_path)
    with pytest.raises(LockHeldError, match="locked by") as refusal:
        lock_of().acquire()
    lock = lock_of()
    lock.acquire(break_lock=True)

    assert "--break-lock" in refusal.value.hint
    assert lock.is_owner()


def test_a_broken_owner_finds_out(tmp_path, lock_of) -> None:
    """An owner that was asleep while another took over is no owner, and giving back takes nothing away."""
    sleeper = lock_of()
    sleeper.acquire()
    sleeper._stop.set()
    sleeper._renewal.join()
    make_silent(tmp_path)
    lock = lock_of()
    lock.acquire(break_lock=True)

    assert not sleeper.is_owner()
    sleeper.release()
    assert lock.is_owner()


def test_two_successors_of_one_dead_owner(tmp_path, lock_of, monkeypatch) -> None:
    """Both saw the same dead owner; the one whose claim comes second, even after the first has swept, steps back."""
    leave_lock(tmp_path, pid=gone_pid())
    first, second = lock_of(), lock_of()
    old = second._chain()
    first.acquire()
    chains = iter([old])
    real = second._chain
    monkeypatch.setattr(second, "_chain", lambda: next(chains, None) or real())
    with pytest.raises(LockHeldError):
        second.acquire()

    assert first.is_owner()
    assert ["lock"] == os.listdir(tmp_path / ".ckptctl")


def test_a_successor_that_died_half_way_is_succeeded(tmp_path, lock_of) -> None:
    """A claim whose maker died before it swept is the end of the chain, and dead."""
    dead = gone_pid()
    leave_lock(tmp_path, pid=dead)
    half = FileLock(str(tmp_path), owner=replace(this_process(), pid=dead))
    half._take(half._chain(), break_lock=False)
    lock = lock_of()
    lock.acquire()

    assert lock.is_owner()
    assert ["lock"] == os.listdir(tmp_path / ".ckptctl")


def record(**changes) -> bytes:
    """A lock file's content."""
    return json.dumps({**asdict(this_process()), **changes}).encode()


DAMAGED_RECORDS = {
    "torn": b"{",
    "empty": b"",
    "no object": b"7",
    "deep": b"[" * 9000,
    "huge": b"x" * 100_000,
    "a nonce that is a path": record(nonce="../../x"),
    "a nonce that is no text": record(nonce=7),
    "a lease that is no number": record(lease_s="long"),
    "a lease for ever": record(lease_s=float("inf")),
    "a process that is no number": record(pid="init"),
    "an unknown field": record(colour="red"),
}


@pytest.mark.parametrize("data", DAMAGED_RECORDS.values(), ids=DAMAGED_RECORDS.keys())
def test_a_damaged_record_counts_as_somebody_unknown(tmp_path, lock_of, data) -> None:
    """A record that cannot be read is not taken for nobody; when its lease has ended the flag takes the lock over."""
    (tmp_path / ".ckptctl").mkdir()
    (tmp_path / ".ckptctl" / "lock").write_bytes(data)
    with pytest.raises(
        LockHeldError, match="an owner who is unknown, because the lock file is damaged; its lease ends at"
    ):
        lock_of().acquire()
    make_silent(tmp_path)
    with pytest.raises(LockHeldError, match="its lease ended at 1970-01-01 00:01:01 UTC") as refusal:
        lock_of().acquire()
    assert "--break-lock" in refusal.value.hint
    lock_of().acquire(break_lock=True)


def test_a_record_of_before_it_told_its_beginning(tmp_path, lock_of) -> None:
    """It is read all the same."""
    facts = asdict(this_process())
    del facts["began_s"]
    (tmp_path / ".ckptctl").mkdir()
    (tmp_path / ".ckptctl" / "lock").write_text(json.dumps(facts))
    holder = lock_of().holder()

    assert (f"process {os.getpid()} on {facts['host']}", False) == (holder.told, holder.is_dead)


def test_file_systems_without_hard_links(tmp_path, lock_of, monkeypatch) -> None:
    """Where a hard link is refused an exclusive creation does."""

    def refuse(source: str, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(locks.durable.os, "link", refuse)
    first = lock_of()
    first.acquire()
    with pytest.raises(LockHeldError):
        lock_of().acquire()

    assert first.is_owner()


def test_the_lease_is_renewed_by_time_of_the_file(tmp_path, lock_of) -> None:
    """A held lock gets younger by itself, so that long computations do not look like death."""
    lock = lock_of(lease_s=0.02)
    lock.acquire()
    make_silent(tmp_path)
    while os.stat(tmp_path / ".ckptctl" / "lock").st_mtime < 2:
        lock._stop.wait(0.005)

    assert lock.is_owner()


def test_a_lease_of_the_future(tmp_path, lock_of) -> None:
    """The file system's clock was set back: nobody can wait for that end, so the flag takes the lock over, and it is told."""
    leave_lock(tmp_path, host="elsewhere")
    os.utime(tmp_path / ".ckptctl" / "lock", (4_102_444_800, 4_102_444_800))
    with pytest.raises(LockHeldError, match="renewed at 2100-01-01 00:00:00 UTC, which has not come yet") as refusal:
        lock_of().acquire()
    lock = lock_of()
    lock.acquire(break_lock=True)

    assert "repeat with `--break-lock`" in refusal.value.hint
    assert lock.is_owner()
