"""The claim of a run: who began later owns the directory, and who began earlier finds out."""

from __future__ import annotations

import json

import pytest

from ckptctl.adapters.locks import FileLock
from ckptctl.adapters.run_token import TOKEN_VARIABLE, RunClaim
from ckptctl.errors import RunTakenOverError


def test_an_earlier_run_is_refused(tmp_path, monkeypatch):
    """The node of run 1 was lost, run 2 has claimed the directory: what is left of run 1 does not even get the lock."""
    first, second = RunClaim(str(tmp_path)).claim(), RunClaim(str(tmp_path)).claim()
    monkeypatch.setenv(TOKEN_VARIABLE, first)
    with pytest.raises(RunTakenOverError, match="belongs to another run now") as taken_over:
        FileLock(str(tmp_path)).acquire()
    assert not taken_over.value.retryable
    monkeypatch.setenv(TOKEN_VARIABLE, second)
    lock = FileLock(str(tmp_path))
    lock.acquire()

    assert lock.is_owner()
    lock.release()


@pytest.mark.parametrize("has_token", [True, False])
def test_who_is_at_work_when_a_run_begins_is_no_owner_any_more(tmp_path, monkeypatch, has_token):
    """Asked before publication; the lock itself is given back, so that the new run need not wait for the lease."""
    if has_token:
        monkeypatch.setenv(TOKEN_VARIABLE, RunClaim(str(tmp_path)).claim())
    lock = FileLock(str(tmp_path))
    lock.acquire()
    assert lock.is_owner()
    RunClaim(str(tmp_path)).claim()

    assert not lock.is_owner()
    lock.release()
    assert not (tmp_path / ".ckptctl" / "lock").exists()


def test_a_lower_restart_count_claims_nothing_from_a_higher_one(tmp_path, monkeypatch):
    """Of two runs of one job the ghost may be the slower one; another job's count says nothing."""
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    RunClaim(str(tmp_path)).claim()
    monkeypatch.delenv("SLURM_RESTART_COUNT")
    with pytest.raises(RunTakenOverError, match="later run of this job: Slurm job 12, restart 1"):
        RunClaim(str(tmp_path)).claim()
    monkeypatch.setenv("SLURM_JOB_ID", "13")

    assert RunClaim(str(tmp_path)).claim()


def test_a_person_without_a_token_may_work(tmp_path):
    """At a terminal, in a directory that a run has claimed."""
    RunClaim(str(tmp_path)).claim()
    lock = FileLock(str(tmp_path))
    lock.acquire()

    assert lock.is_owner()
    lock.release()


@pytest.mark.parametrize("data", [b"", b"torn{", b"[]", b"[" * 100_000])
def test_a_damaged_claim_is_that_of_nobody_known(tmp_path, monkeypatch, data):
    """It refuses every token, and a new run replaces it."""
    token = RunClaim(str(tmp_path)).claim()
    (tmp_path / ".ckptctl" / "run").write_bytes(data)
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    if data:
        with pytest.raises(RunTakenOverError):
            RunClaim(str(tmp_path)).begin()
    fresh = RunClaim(str(tmp_path)).claim()

    assert fresh == json.loads((tmp_path / ".ckptctl" / "run").read_bytes())["token"]
