"""Processes of a cluster: who they are, that only they are killed, and that they end with their owner."""

import os
import subprocess
import sys
import time

import pytest

from ckptctl.sim.processes import (
    OWNER_ENV,
    ProcessIdentity,
    identity_of,
    is_alive,
    log_tail,
    parse_identity,
    start_ticks,
    stop,
)

SLEEPER = "import time; time.sleep(60)"
WATCHER = "from ckptctl.sim.processes import end_with_owner; end_with_owner(); print('up', flush=True); import time; time.sleep(60)"


@pytest.fixture
def start():
    """Starts Python with a program; whatever is left is killed."""
    started = []

    def begin(program, **environment):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_an_identity_is_pid_and_start_time(start):
    """The same pid with another start time is somebody else."""
    process = identity_of(start(SLEEPER).pid)

    assert is_alive(process)
    assert not is_alive(ProcessIdentity(process.pid, process.start_ticks + 1))
    assert process == parse_identity(str(process))
    assert None is parse_identity("12")


def test_only_the_process_itself_is_killed(start):
    """A pid that was given to somebody else meanwhile is left alone."""
    process = start(SLEEPER)
    identity = identity_of(process.pid)

    assert () == stop([ProcessIdentity(identity.pid, identity.start_ticks - 1)], kill=True)
    assert is_alive(identity)
    assert () == stop([identity], kill=True)
    assert not is_alive(identity)


def test_a_process_that_ignores_terminate_is_killed(start):
    """SIGTERM first, SIGKILL when the patience is over."""
    process = start("import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)")
    process.stdout.readline()

    assert () == stop([identity_of(process.pid)], kill=False, patience_s=0.1)
    assert -9 == process.wait()


@pytest.mark.parametrize("already_dead", [False, True])
def test_what_a_killed_process_leaves_in_its_session_is_killed_too(start, already_dead):
    """A child that leads a process group of its own does not outlive the cluster, whoever killed its parent."""
    child = f"import os, sys; os.setpgid(0, 0); print(os.getpid(), flush=True); {SLEEPER}"
    process = start(f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]).wait()")
    orphan = identity_of(int(process.stdout.readline()))

    leader = identity_of(process.pid)
    if already_dead:
        process.kill()
        process.wait()

    assert () == stop([leader], kill=True)
    assert not is_alive(orphan)


def test_a_process_ends_with_its_owner(start):
    """When the owner dies, even by SIGKILL, the process is gone."""
    owner = start(SLEEPER)
    watcher = start(WATCHER, **{OWNER_ENV: str(identity_of(owner.pid)), "PYTHONPATH": os.getcwd()})
    assert b"up\n" == watcher.stdout.readline()
    owner.kill()

    assert 1 == watcher.wait(timeout=10)


def test_children_end_with_the_owner_too(start):
    """Who has children takes them along: nobody is left to end them."""
    owner = start(SLEEPER)
    program = WATCHER.replace("end_with_owner()", "end_with_owner(takes_group=True)").replace(
        "print('up', flush=True)", f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]).pid, flush=True)"
    )  # fmt: skip
    watcher = start(program, **{OWNER_ENV: str(identity_of(owner.pid)), "PYTHONPATH": os.getcwd()})
    child = identity_of(int(watcher.stdout.readline()))
    owner.kill()

    assert -9 == watcher.wait(timeout=10)
    while is_alive(child):  # the signal was sent to all of the group at once
        time.sleep(0.01)


def test_a_process_whose_owner_is_gone_does_not_start(start):
    """An owner that died before, or whose pid belongs to another process now, is no owner."""
    stranger = start(SLEEPER)
    watcher = start(WATCHER, **{OWNER_ENV: f"{stranger.pid}:1", "PYTHONPATH": os.getcwd()})

    assert 1 == watcher.wait(timeout=10)


def test_a_zombie_does_not_run(start):
    """A process that has ended and was not reaped is not alive."""
    process = start("pass")
    deadline = time.monotonic() + 10
    while start_ticks(process.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.005)

    assert None is start_ticks(process.pid)


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("", "(it printed nothing)"),
        ("\n \n", "(it printed nothing)"),
        ("one\n\n  two\n", "one | two"),
        ("".join(f"{number}\n" for number in range(20)), "12 | 13 | 14 | 15 | 16 | 17 | 18 | 19"),
    ],
)
def test_the_end_of_a_log_is_one_line(log, told, tmp_path):
    """An error text has no line ends: they would be shown as escapes."""
    path = tmp_path / "log"
    path.write_text(log)

    assert told == log_tail(str(path))
