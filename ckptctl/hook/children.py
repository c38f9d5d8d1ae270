"""Child processes with a deadline. One that does not end in time is killed; one that cannot be killed is abandoned.

A process that waits for a dead mount sits in the kernel and hears no signal until the mount answers. So nothing here
waits for a child without a bound, and a child holds none of its parent's descriptors: slurmd waits until the pipes of
a hook are closed.
"""

from __future__ import annotations

import os
import select
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[], None]

KILL = 9
LONGEST_ANSWER_BYTES = 1 << 20
MOST_DESCRIPTORS = 1 << 16
DYING_S = 0.2
"""How long a killed child may take to go before it is abandoned."""
ORPHAN_S = 3
"""How long beyond its deadline a child may live that nobody watches any more."""
BROKEN = 70
"""Status of a child whose work raised."""


class Answer:
    """How a child ended: what it wrote (cut), and its exit status, negative for a signal; None when it did not end in time."""

    __slots__ = ("data", "status")

    def __init__(self, data: bytes, status: int | None) -> None:
        self.data = data
        self.status = status


def ask(work: Work, deadline_s: float, *, own_session: bool = False) -> Answer:
    """Run `work` in a child whose stdout is a pipe to us, until `deadline_s` on the monotonic clock.

    One with a session of its own may become another program: its stderr is heard too, and all that it starts is killed with it.

    Raises:
        OSError: no child could be made.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_child(work, writing, deadline_s, own_session=own_session)
    os.close(writing)
    data = _read(reading, deadline_s)
    os.close(reading)
    status = _wait(pid, deadline_s)
    if status is None:
        _kill(pid, own_session=own_session)
        _wait(pid, time.monotonic() + DYING_S)
    return Answer(data, status)


def _be_child(work: Work, writing: int, deadline_s: float, *, own_session: bool) -> None:
    """Never returns. Whatever goes wrong in it is its status: nothing of ours may print a traceback here."""
    status = BROKEN
    try:
        if own_session:
            os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(writing, 1)
        os.dup2(writing if own_session else null, 2)  # what a program complains of is part of its answer
        _close_others()
        # Should its parent be killed: nobody is left to end it, and the alarm outlives the start of another program.
        signal.alarm(max(1, int(deadline_s - time.monotonic()) + ORPHAN_S))
        work()
        status = 0
    finally:
        os._exit(status)


def _close_others() -> None:
    """Close what the parent had open. One by one as they are: the limit of descriptors may be a thousand million, or none."""
    try:
        found = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - pathlib costs a third of the start
    except OSError:
        limit = os.sysconf("SC_OPEN_MAX")
        os.closerange(3, limit if 0 < limit < MOST_DESCRIPTORS else MOST_DESCRIPTORS)
        return
    for descriptor in found:
        os.closerange(max(descriptor, 3), descriptor + 1)  # the one that listed them is closed already


def _read(descriptor: int, deadline_s: float) -> bytes:
    """Until the end or the deadline; what is beyond the limit is taken and dropped, so that its writer ends as it would."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    parts: list[bytes] = []
    size = 0
    while True:
        left_ms = (deadline_s - time.monotonic()) * 1000
        if left_ms <= 0 or not poll.poll(left_ms):
            break
        part = os.read(descriptor, 1 << 16)
        if not part:
            break
        parts.append(part[: LONGEST_ANSWER_BYTES - size])
        size += len(parts[-1])
    return b"".join(parts)


def _wait(pid: int, deadline_s: float) -> int | None:
    """Its exit status, negative for a signal; None when it is still there at the deadline."""
    pause_s = 0.001
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return None
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 2, 0.05)


def _kill(pid: int, *, own_session: bool) -> None:
    for kill in (os.killpg, os.kill) if own_session else (os.kill,):
        try:
            kill(pid, KILL)
        except OSError:  # gone meanwhile, or not yet the leader of its session
            continue
