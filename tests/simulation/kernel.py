"""Processes, and the system calls by which they reach the disk: each one a point where the weather may strike.

Who acts is known from the context in which code runs, so a task and all that it starts belong to one process. A process that died
does nothing any more: every call of it, and every message, ends in `DeadError`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.fakes.mortal import DeadError
from tests.simulation.disk import Disk, Node
from tests.simulation.stretches import SteppedTask, Stepper
from tests.simulation.virtual_loop import VirtualLoop

EPOCH_S = 1_790_000_000.0
"""Unix time when the virtual clock says 0."""
FIRST_DESCRIPTOR = 1000
COORDINATOR = "ckptctl"


@dataclass(slots=True, eq=False)
class Process:
    """One process on one host."""

    name: str
    host: str
    pid: int
    kernel: Kernel
    clock_offset_s: float = 0.0
    is_dead: bool = False
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)
    handlers: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    """What answers its routes."""
    stepper: Stepper | None = None
    """What can stop it between two system calls; None: its computations are never interrupted."""
    step: str = ""
    """Of a coordinator: where in its command it is."""
    party: str = ""
    """Its name, or that of all coordinators."""

    def __post_init__(self) -> None:
        self.party = COORDINATOR if self.name.startswith(COORDINATOR) else self.name

    def now_s(self) -> float:
        """What its clock says."""
        return EPOCH_S + self.kernel.loop.time() + self.clock_offset_s

    def demand_alive(self) -> None:
        """Raise DeadError when it is gone."""
        if self.is_dead:
            raise DeadError

    @contextmanager
    def acting(self) -> Iterator[None]:
        """What is done in here, this process does."""
        token = ACTING.set(self)
        try:
            yield
        finally:
            ACTING.reset(token)


ACTING: ContextVar[Process | None] = ContextVar("acting", default=None)


class Weather(Protocol):
    """What goes wrong, as far as the kernel must know it."""

    def before_call(self, process: Process, call: str, path: str, *, is_write: bool) -> None:
        """A system call is about to happen. May raise OSError or DeadError."""
        ...

    def short_write(self, process: Process, path: str, size: int) -> int:
        """How much of a write is taken."""
        ...


@dataclass(slots=True)
class Open:
    """An open file or directory."""

    node: Node
    path: str
    is_append: bool = False
    offset: int = 0


class Kernel:
    """All processes of all hosts, and the disk that they share."""

    def __init__(self, loop: VirtualLoop, disk: Disk, seed: int) -> None:
        self.loop = loop
        self.disk = disk
        self.weather: Weather | None = None
        self.ids = random.Random(f"ids:{seed}")
        self.processes: dict[int, Process] = {}
        self.open_files: dict[int, Open] = {}
        self.on_death: Callable[[Process], None] = lambda _: None
        self.server_offset_s = 0.0
        """How far the file server's clock was set forward."""
        self.boots = 0
        """How often all hosts were started."""
        self._next_pid = 100
        self._next_descriptor = FIRST_DESCRIPTOR

    def spawn(self, name: str, host: str) -> Process:
        """A new process."""
        self._next_pid += 1
        process = Process(name, host, self._next_pid, self)
        self.processes[process.pid] = process
        return process

    def kill(self, process: Process) -> None:
        """End a process where it stands."""
        if process.is_dead:
            return
        process.is_dead = True
        self.on_death(process)
        for task in list(process.tasks):
            task.cancel()
        if process.stepper is not None:
            process.stepper.wake()

    def make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, context: Any = None) -> asyncio.Task[Any]:
        """The loop's task factory: a task belongs to the process that starts it."""
        process = ACTING.get() if context is None else context.get(ACTING)
        if process is not None and process.stepper is not None:
            task: asyncio.Task[Any] = SteppedTask(coro, process.stepper, loop=loop, context=context)
        else:
            task = asyncio.Task(coro, loop=loop, context=context)
        if process is not None:
            process.tasks[task] = None
            task.add_done_callback(lambda done: process.tasks.pop(done, None))
        return task

    def now_s(self) -> float:
        """Time as whoever acts sees it."""
        process = ACTING.get()
        return EPOCH_S + self.loop.time() if process is None else process.now_s()

    def proc_file(self, path: str) -> str:
        """What `/proc` says to whoever acts. Raises FileNotFoundError."""
        process = ACTING.get()
        host = "nowhere" if process is None else process.host
        if path == "/proc/sys/kernel/random/boot_id":
            return f"boot-{self.boots}-of-{host}"
        _, _, number, leaf = path.split("/")
        found = self.processes.get(int(number))
        if leaf != "stat" or found is None or found.is_dead or found.host != host:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return f"{number} (ckptctl) S " + " ".join(["0"] * 18) + f" {number}00 0"

    # --- system calls --------------------------------------------------------------------------------------------------------

    def enter(self, call: str, path: str, *, is_write: bool = False) -> None:
        """One system call of whoever acts."""
        process = ACTING.get()
        if process is None:
            return
        process.demand_alive()
        if process.stepper is not None:
            process.stepper.pass_call()
            process.demand_alive()
        if self.weather is not None:
            self.weather.before_call(process, call, path, is_write=is_write)

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """As `os.open`."""
        path = self.at(path, dir_fd)
        wants_write = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        self.enter("create" if flags & os.O_CREAT else "open", path, is_write=wants_write)
        node = self.disk.find(path)
        if node is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = self.disk.create(path, self.server_now_s(), is_directory=False, mode=mode & ~0o022)
        elif flags & os.O_CREAT and flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if flags & os.O_DIRECTORY and not node.is_directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        self._next_descriptor += 1
        self.open_files[self._next_descriptor] = Open(node, path, bool(flags & os.O_APPEND))
        return self._next_descriptor

    def write(self, descriptor: int, data: Any) -> int:
        """As `os.write`."""
        file = self.open_files[descriptor]
        self.enter("write", file.path, is_write=True)
        process = ACTING.get()
        size = len(data)
        if process is not None and self.weather is not None:
            size = self.weather.short_write(process, file.path, size)
        offset = len(file.node.data) if file.is_append else file.offset
        self.disk.write(file.node, offset, bytes(data[:size]), self.server_now_s())
        file.offset = offset + size
        return size

    def at(self, path: str, dir_fd: int | None) -> str:
        """An absolute path; one relative to a descriptor means what lies in that directory now."""
        if dir_fd is None:
            return path
        return f"{self.open_files[dir_fd].path}/{path}"

    def server_now_s(self) -> float:
        """The time of the file server: nobody else's clock."""
        return EPOCH_S + self.loop.time() + self.server_offset_s
