"""Puts the product's modules into the simulated machine: while it is on, `os`, `time`, `secrets`, `uuid`, `threading`, `socket`
and `Path` mean the simulated ones in every module of `ckptctl`. Nothing of the product is changed but the names of these modules.
"""

from __future__ import annotations

import asyncio
import fnmatch
import os
import pathlib
import secrets
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from types import FunctionType, SimpleNamespace
from typing import Any

from ckptctl.adapters import durable, locks
from ckptctl.adapters.locks import FileLock
from ckptctl.errors import CkptctlError
from ckptctl.sim import artifacts
from tests.simulation.kernel import Kernel
from tests.simulation.remembered import FUNCTIONS, OTHERS
from tests.simulation.system import SimulatedOs, WholeFile

_RUNNING: list[Kernel] = []


def running() -> Kernel:
    """The kernel that the product runs on now."""
    return _RUNNING[-1]


@contextmanager
def on(kernel: Kernel) -> Iterator[None]:
    """Run on this kernel; only inside `installed`."""
    _RUNNING.append(kernel)
    try:
        yield
    finally:
        _RUNNING.pop()


OS = SimulatedOs(running)


class SimulatedFile:
    """`pathlib.Path`, as far as the embedded cluster uses it."""

    def __init__(self, *parts: object) -> None:
        self._path = OS.path.join(*map(str, parts))
        self.name = OS.path.basename(self._path)

    def __str__(self) -> str:
        return self._path

    def __fspath__(self) -> str:
        return self._path

    def __lt__(self, other: SimulatedFile) -> bool:
        return self._path < other._path

    def is_dir(self) -> bool:
        return OS.path.isdir(self._path)

    def exists(self) -> bool:
        return OS.path.lexists(self._path)

    def iterdir(self) -> Iterator[SimulatedFile]:
        return (SimulatedFile(self._path, name) for name in OS.listdir(self._path))

    def glob(self, pattern: str) -> Iterator[SimulatedFile]:
        if not self.is_dir():
            return iter(())
        return (found for found in self.iterdir() if fnmatch.fnmatchcase(found.name, pattern))

    def read_bytes(self) -> bytes:
        with WholeFile(OS, OS.open(self._path, os.O_RDONLY)) as file:
            return file.read()


def _open(what: str | int, *_: object, **__: object) -> Any:
    """`open` of a descriptor, or of a file in `/proc`."""
    return WholeFile(OS, what) if isinstance(what, int) else StringIO(running().proc_file(what))


def _gethostname() -> str:
    return OS.readlink("/proc/self/ns/pid")[5:-1]


class _Thread:
    """A thread that is a task: its target is a coroutine function here."""

    def __init__(self, *, target: Callable[[], Any], name: str, daemon: bool) -> None:
        self._target = target
        assert daemon, name

    def start(self) -> None:
        asyncio.get_running_loop().create_task(self._target())

    def join(self) -> None:
        """It ends by itself."""


class _Event:
    """`threading.Event` without waiting."""

    def __init__(self) -> None:
        self.is_on = False

    def set(self) -> None:
        self.is_on = True

    def clear(self) -> None:
        self.is_on = False


class SimulatedLock(FileLock):
    """The real lock; only what renews the lease sleeps on the loop instead of in a thread."""

    async def _renew(self) -> None:  # started by the thread's stand-in, which runs coroutines
        with suppress(CkptctlError, FileNotFoundError), self._store.open_source(self._path()) as source:
            while True:
                await asyncio.sleep(self._me.lease_s / 4)
                if self._stop.is_on:  # the event's stand-in
                    return
                durable.renew_time(source.descriptor, path=source.path)


STAND_INS: dict[Any, Any] = {
    os: OS,
    pathlib.Path: SimulatedFile,
    time: SimpleNamespace(
        time=lambda: running().now_s(),
        monotonic=lambda: running().loop.time(),
        gmtime=time.gmtime,
        strftime=time.strftime,
    ),
    secrets: SimpleNamespace(token_hex=lambda count: running().ids.randbytes(count).hex()),
    uuid: SimpleNamespace(
        uuid4=lambda: uuid.UUID(bytes=running().ids.randbytes(16)),
        uuid5=uuid.uuid5,
        NAMESPACE_URL=uuid.NAMESPACE_URL,
        UUID=uuid.UUID,
    ),
    threading: SimpleNamespace(Thread=_Thread, Event=_Event),
    socket: SimpleNamespace(gethostname=_gethostname),
}


REAL = {("ckptctl.adapters.digests", "Path")}
"""Names that mean the machine that the simulation itself runs on: where the product's own files lie."""


@contextmanager
def installed() -> Iterator[None]:
    """Every module of the product uses the simulated machine."""
    replaced: list[tuple[Any, str, Any]] = []
    for name, module in sorted(sys.modules.items()):
        if name != "ckptctl" and not name.startswith("ckptctl."):
            continue
        for attribute, value in list(vars(module).items()):
            known = FUNCTIONS if isinstance(value, FunctionType) else STAND_INS
            stand_in = known.get(value) if isinstance(value, FunctionType | type | type(os)) else None
            if stand_in is not None and (name, attribute) not in REAL:
                replaced.append((module, attribute, value))
                setattr(module, attribute, stand_in)
    for module in (locks, artifacts):
        module.open = _open  # hides the builtin
    for owner, attribute, value in OTHERS:
        replaced.append((owner, attribute, getattr(owner, attribute)))
        setattr(owner, attribute, value)
    try:
        yield
    finally:
        for module, attribute, value in replaced:
            setattr(module, attribute, value)
        for module in (locks, artifacts):
            del module.open
