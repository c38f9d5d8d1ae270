"""A connection by which processes that nobody has recorded yet end with whoever started them, however that one ends.

The starter holds one end. Once the cluster's record is durable it writes one byte for each process, and each
takes one and lives on: from then on the record can end it. A starter that is killed, or gives up, never writes, and every process
finds that it has ended. It asks nothing of the kernel but that the descriptors of a dead process are closed.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from types import TracebackType
from typing import Self


class LifeLine:
    """The starter's side. Left without `release`, it ends the processes."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()

    @property
    def reader(self) -> int:
        """The descriptor to hand on."""
        return self._reader.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()
        self._writer.close()

    def release(self, count: int) -> None:
        """So many processes are recorded and no longer depend on this one."""
        self._writer.sendall(b"." * count)


def is_cut(reader: int) -> bool:
    """Whether the starter is gone, or has given up, before anything was recorded."""
    ready, _, _ = select.select([reader], [], [], 0)
    return bool(ready)


def end_unless_recorded(reader: int) -> None:
    """End this process and its group, at once and without cleaning up, when the line ends before it was released."""
    threading.Thread(target=_watch, args=(reader,), name="life-line", daemon=True).start()


def _watch(reader: int) -> None:
    is_released = os.read(reader, 1) != b""
    os.close(reader)
    if is_released:
        return
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
