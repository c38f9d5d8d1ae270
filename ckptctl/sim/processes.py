"""Processes of the embedded cluster: who they are, starting them apart, waiting for them, killing them and nobody else.

A process is named by its pid and its start time; a pid alone may have been given to somebody else meanwhile. Each
one leads a session of its own, so that a kill takes its children too. A cluster outlives the command that started
it, unless it was started with an owner: then every process watches the owner and ends with it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ckptctl.errors import UnreachableError

OWNER_ENV = "CKPTCTL_SIM_OWNER"
"""`<pid>:<start ticks>` of the process with which this one ends."""
LOG_TAIL_BYTES = 4000
TAIL_LINES = 8
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of this machine, for as long as it lives."""

    pid: int
    start_ticks: int

    def __str__(self) -> str:
        return f"{self.pid}:{self.start_ticks}"


def start_ticks(pid: int) -> int | None:
    """When the process was started, in clock ticks since boot; None for one that does not run (zombies do not)."""
    try:
        # The command name may hold blanks and brackets; what follows the last bracket is plain.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


def identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of a running process."""
    ticks = start_ticks(pid)
    return None if ticks is None else ProcessIdentity(pid, ticks)


def parse_identity(text: str) -> ProcessIdentity | None:
    """Read `<pid>:<start ticks>`."""
    pid, separator, ticks = text.partition(":")
    return ProcessIdentity(int(pid), int(ticks)) if separator and pid.isdigit() and ticks.isdigit() else None


def is_alive(process: ProcessIdentity) -> bool:
    """Whether just this process runs."""
    return start_ticks(process.pid) == process.start_ticks


def launch(
    plan: Sequence[Mapping[str, str]], *, environment: Mapping[str, str], life_line: int
) -> list[ProcessIdentity]:
    """Start processes by `ckptctl.sim.launch`; they end with the `life_line` unless it releases them.

    Raises:
        UnreachableError: not all could be started. None of them runs, or each ends with the line.
    """
    launcher = subprocess.run(
        [sys.executable, "-m", "ckptctl.sim.launch"],
        input=json.dumps({"life_line": life_line, "processes": list(plan)}).encode(),
        capture_output=True,
        env={**os.environ, **environment, "PYTHONPATH": python_path()},
        pass_fds=(life_line,),
        start_new_session=True,  # what a terminal sends is for the command, which ends what it began
        check=False,
    )
    if launcher.returncode != 0:
        detail = _one_line(launcher.stderr[-LOG_TAIL_BYTES:].decode("utf-8", "replace"))
        raise UnreachableError(server="the cluster", operation="start", detail=detail or f"exit {launcher.returncode}")
    return [ProcessIdentity(item["pid"], item["start_ticks"]) for item in json.loads(launcher.stdout)]


def python_path() -> str:
    """This very package first, installed or not, wherever the child's working directory is."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


def stop(processes: Iterable[ProcessIdentity], *, kill: bool, patience_s: float = 10.0) -> tuple[ProcessIdentity, ...]:
    """End these processes and their sessions: SIGKILL at once, or SIGTERM and SIGKILL after `patience_s`.

    Returns those that are still there (in an uninterruptible wait); a pid that belongs to somebody else by now is left alone.
    """
    given = list(processes)
    waiting = [process for process in given if is_alive(process)]
    for process in waiting:
        _signal(process, signal.SIGKILL if kill else signal.SIGTERM)
    left = _wait_gone(waiting, patience_s)
    if left and not kill:
        for process in left:
            _signal(process, signal.SIGKILL)
        left = _wait_gone(left, patience_s)
    _end_sessions({process.pid for process in given if process not in left}, patience_s)
    return tuple(left)


def log_tail(path: str) -> str:
    """The end of a process' log on one line, as an error text has it."""
    try:
        with Path(path).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - LOG_TAIL_BYTES))
            return _one_line(file.read().decode("utf-8", "replace")) or "(it printed nothing)"
    except OSError as error:
        return f"(no log: {error.strerror})"


def _one_line(text: str) -> str:
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-TAIL_LINES:])


def end_with_owner(environment: Mapping[str, str] = os.environ, *, takes_group: bool = False) -> None:
    """Watch the owner named in the environment and end with it, at once and without cleaning up; without one, do nothing.

    With `takes_group` the process group that this process leads ends too: children that would linger.
    """
    owner = parse_identity(environment.get(OWNER_ENV, ""))
    if owner is None:
        return
    try:
        descriptor = os.pidfd_open(owner.pid)
    except OSError:
        os._exit(1)
    if not is_alive(owner):  # tested after the descriptor is held: the pid cannot change hands in between
        os._exit(1)
    watch = threading.Thread(target=_exit_when_ready, args=(descriptor, takes_group), name="owner-watch", daemon=True)
    watch.start()


def _exit_when_ready(descriptor: int, takes_group: bool) -> None:
    select.select([descriptor], [], [])
    if takes_group and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _signal(process: ProcessIdentity, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:  # it does not lead a group of its own (yet): only it
            os.kill(process.pid, number)


def _end_sessions(leaders: set[int], patience_s: float) -> None:
    """Kill what processes that are gone left behind in their sessions: Ray gives its workers process groups of their own.

    While there is such an orphan, the number of its session is given to nobody else.
    """
    deadline = time.monotonic() + patience_s
    while (orphans := _members(leaders)) and time.monotonic() < deadline:
        for pid in orphans:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def _members(sessions: set[int]) -> list[int]:
    """Running processes of sessions whose leader is gone."""
    found = []
    for name in os.listdir("/proc") if sessions else ():  # noqa: PTH208 - names are all that is wanted
        if not name.isdigit():
            continue
        with suppress(OSError, ValueError):
            session = os.getsid(int(name))
            if session in sessions and start_ticks(session) is None and start_ticks(int(name)) is not None:
                found.append(int(name))
    return found


def _wait_gone(processes: Iterable[ProcessIdentity], patience_s: float) -> list[ProcessIdentity]:
    deadline = time.monotonic() + patience_s
    left = list(processes)
    while True:
        left = [process for process in left if is_alive(process)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(_PAUSE_S)
