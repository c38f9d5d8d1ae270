"""BLAKE3 of many files, each read once: small ones in a plain loop, large ones by a child process on all threads.

A thread-pool task per small file costs more than the file. For large files threads pay off only on memory maps, and a map
of a file that is cut short meanwhile is a SIGBUS, so only a child maps (`digest_child`); its death is an answer, not the end
of ckptctl. What may be opened is decided by whoever opens: here only descriptors are read. Wherever the child cannot help, the
loop does.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import blake3 as blake3_package
from blake3 import blake3

from ckptctl.domain.checksums import FileDigest, FileWork
from ckptctl.errors import StorageError

LARGE_BYTES = 4 << 20
"""From here on two threads are quicker than the loop, descriptors sent back and forth included."""
CHILD_PAYS_BYTES = 32 << 20
"""The loop has done less than that before a child has started."""
_BUFFER_BYTES = 1 << 20
_IN_FLIGHT = 8
_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's own is."""
_GIANT_BYTES = 1 << 40
"""A file above that of which less than a millionth is stored is a trap, not a snapshot: nobody waits for its zeros."""
_MOST_DEATHS = 3
DELETED = "it was deleted while it was being read"
Open = Callable[[str], int]
"""A path relative to the root -> an open descriptor. Raises FileNotFoundError, StorageError."""
Advance = Callable[[int], None]


@dataclass(slots=True)
class _Opened:
    """One file that is being read, as it was when it was opened."""

    work: FileWork
    path: str
    descriptor: int
    before: os.stat_result

    def result(self, digest: str) -> FileDigest:
        """The digest, if the file is still the one that was opened."""
        change = self.change()
        if change:
            return FileDigest(self.work.path, self.work.size_bytes, changed=change)
        return FileDigest(self.work.path, self.before.st_size, digest)

    def change(self) -> str:
        """How the file changed since it was listed, or nothing."""
        before, after = self.before, os.fstat(self.descriptor)
        if before.st_size != self.work.size_bytes or after.st_size != self.work.size_bytes:
            size = after.st_size if before.st_size == self.work.size_bytes else before.st_size
            return f"it had {self.work.size_bytes} bytes when it was listed and {size} when it was read"
        if after.st_mtime_ns != before.st_mtime_ns:  # a listing's time may come from an NFS client's cache
            return "it was written to while it was being read"
        try:
            now = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return DELETED
        is_same = (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino)
        return "" if is_same else "another file took its place while it was being read"

    def close(self) -> None:
        os.close(self.descriptor)


def digest_files(
    open_file: Open, root: str, wanted: Iterable[FileWork], advance: Advance, *, child: tuple[str, ...] | None = None
) -> Iterator[FileDigest]:
    """Digest every file; what is wrong with one of them is its result. `child`: the command that maps large files."""
    works = tuple(wanted)
    large = [work for work in works if work.size_bytes >= LARGE_BYTES]
    if sum(work.size_bytes for work in large) < CHILD_PAYS_BYTES:
        large = []
    mapped = frozenset(work.path for work in large)
    loop = _Loop(advance)
    with _Mapping(loop, child or child_command(), (_opened(open_file, root, work) for work in large)) as mapping:
        mapping.send_ahead()  # the child starts, and begins, while the loop is at work
        for work in works:
            if work.path not in mapped:
                opened = _opened(open_file, root, work)
                yield opened if isinstance(opened, FileDigest) else loop.finish(opened)
        yield from mapping.results()


def child_command() -> tuple[str, ...]:
    """How the child is started: no site packages, no environment, no package of ours."""
    folder = Path(blake3_package.__file__ or "").resolve().parent.parent
    return (sys.executable, "-I", "-S", str(Path(__file__).with_name("digest_child.py")), str(folder))


def _opened(open_file: Open, root: str, work: FileWork) -> _Opened | FileDigest:
    try:
        descriptor = open_file(work.path)
    except FileNotFoundError:
        return FileDigest(work.path, work.size_bytes, changed=DELETED)
    except StorageError as error:
        return FileDigest(work.path, work.size_bytes, problem=error.message)
    facts = os.fstat(descriptor)
    stored_bytes = facts.st_blocks * _BLOCK_BYTES
    if facts.st_size > _GIANT_BYTES and stored_bytes * _GIANT_BYTES < facts.st_size * _BUFFER_BYTES:
        os.close(descriptor)
        what = f"it says that it has {facts.st_size} bytes, of which {stored_bytes} are stored: reading the rest would not end"
        return FileDigest(work.path, work.size_bytes, problem=what)
    return _Opened(work, f"{root}/{work.path}", descriptor, facts)


class _Loop:
    """Reads one file after the other into one buffer."""

    def __init__(self, advance: Advance) -> None:
        self.advance = advance
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    def finish(self, opened: _Opened, *, told_bytes: int = 0) -> FileDigest:
        """Digest one file and close it. `told_bytes` were told of before somebody else failed to read it."""
        work, hasher, offset = opened.work, blake3(), 0
        try:
            while offset < work.size_bytes:
                count = os.preadv(opened.descriptor, [self._buffer[: work.size_bytes - offset]], offset)
                if not count:
                    break
                hasher.update(self._buffer[:count])
                offset += count
                self.advance(max(0, min(count, offset - told_bytes)))
            return opened.result(hasher.hexdigest())
        except OSError as error:
            return FileDigest(work.path, work.size_bytes, problem=error.strerror or type(error).__name__)
        finally:
            opened.close()


class _Mapping:
    """A child process with a few files in flight. It is started anew when it dies; who was to blame is read by the loop."""

    def __init__(self, loop: _Loop, command: tuple[str, ...], files: Iterator[_Opened | FileDigest]) -> None:
        self._loop = loop
        self._command = command
        self._files = files
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._in_flight: deque[_Opened] = deque()
        self._refused: list[FileDigest] = []
        self._told_bytes = 0
        self._deaths = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        while self._in_flight:
            self._in_flight.popleft().close()

    def send_ahead(self) -> None:
        """Open the next files and let them wait at the child; one that cannot be opened is a result already."""
        while len(self._in_flight) < _IN_FLIGHT:
            found = next(self._files, None)
            if found is None:
                return
            if isinstance(found, FileDigest):
                self._refused.append(found)
                continue
            self._in_flight.append(found)
            self._send(found)

    def results(self) -> Iterator[FileDigest]:
        """What became of the files, in order."""
        while self._in_flight:
            found = self._next()
            self.send_ahead()
            yield found
        yield from self._refused

    def _next(self) -> FileDigest:
        """The result of the file that has waited longest."""
        opened = self._in_flight[0]
        answer = self._answer()
        self._in_flight.popleft()
        told_bytes, self._told_bytes = self._told_bytes, 0
        if answer == b"changed":
            change = opened.change() or "it became shorter while it was being read"
            opened.close()
            return FileDigest(opened.work.path, opened.work.size_bytes, changed=change)
        if len(answer) == 2 * blake3.digest_size:
            try:
                return opened.result(answer.decode())
            finally:
                opened.close()
        # Read the slow way: that tells a file that shrank and grew again from a disk that does not give its bytes.
        found = self._loop.finish(opened, told_bytes=told_bytes)
        if answer == b"bus error" and found.blake3 is not None:
            change = "its bytes were taken away while it was being read"
            return FileDigest(found.path, found.size_bytes, changed=change)
        return found

    def _answer(self) -> bytes:
        """What the child says of the first file in flight; `unread` when there is no child, `bus error` when that killed it."""
        while self._channel is not None:
            try:
                message = self._channel.recv(256)
            except OSError:
                message = b""
            if not message:
                return self._bury()
            if not message.startswith(b"+"):
                return message
            self._told_bytes += int(message[1:])
            self._loop.advance(int(message[1:]))
        return b"unread"

    def _bury(self) -> bytes:
        """The child is dead: start another for the files behind the one that it died of."""
        assert self._process is not None, "there was a channel"
        status = self._process.wait()
        self._end()
        self._deaths += 1
        waiting = list(self._in_flight)[1:]
        for item in waiting:
            self._send(item)
        return b"bus error" if status == -signal.SIGBUS else b"unread"

    def _send(self, opened: _Opened) -> None:
        if self._channel is None:
            self._start()
        if self._channel is not None:
            try:
                socket.send_fds(self._channel, [b"%d" % opened.work.size_bytes], [opened.descriptor])
            except OSError:
                return  # it died: its next answer says so

    def _start(self) -> None:
        """Start a child, unless it dies again and again; without one the loop reads everything."""
        if self._deaths >= _MOST_DEATHS or not self._command[0]:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and program
                [*self._command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # whoever interrupts ckptctl gets the answer from ckptctl
            )
        except OSError:  # no memory or no process left: the loop needs neither
            self._deaths = _MOST_DEATHS
            ours.close()
            return
        finally:
            theirs.close()
        self._channel = ours

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
