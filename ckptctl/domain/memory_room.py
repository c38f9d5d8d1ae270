"""Stops the reading of a target before it takes too much memory, whatever the files hold.

Each format has limits of its own, but what a value costs differs a hundredfold, and many legal files add up. So the memory
itself is looked at, wherever bytes are handed to a decoder. Reading that stops here is no damage: it could not be checked.
"""

from __future__ import annotations

from collections.abc import Callable

from ckptctl.domain.amounts import size
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.source import ByteSource

_STEP_BYTES = 64 << 10
_STEP_CALLS = 32
"""Looking costs as much as a hundred opcodes: it is done after so many bytes, or calls for fewer."""
_DOCUMENT_BYTES = 1 << 20
"""Reads from this size on are of whole documents, members or columns, which are decoded at once."""
_KEPT_FREE = 6
"""Of the room so many parts; one of them is for judging what was read."""
_ASCII_FACTOR, DOCUMENT_FACTOR = 3, 9
"""What such a read may cost: its bytes, its text, its values; each four times as much where one character is a wide one."""


class NoRoomError(DefectError):
    """Nothing is wrong with a file: there was no memory left to read it."""


class MemoryRoom:
    """The room of one command: `most_bytes` beyond what the process held when it began. Without a gauge there is no bound.

    What a file that is read in small steps has taken so far counts twice: the tree that was read is still there while what it
    means is built.
    """

    def __init__(self, used_bytes: Callable[[], int] | None, most_bytes: int) -> None:
        self._used_bytes, self._most_bytes = used_bytes, most_bytes
        self._base_bytes = used_bytes() if used_bytes is not None else 0
        self.refusals = 0
        """How often something was not read for want of room."""

    def used_bytes(self) -> int:
        """What the process holds now; 0 where nothing is bounded."""
        return self._used_bytes() if self._used_bytes is not None else 0

    def demand(self, needed_bytes: int = 0, *, since_bytes: int | None = None) -> None:
        """Raise NoRoomError when there is no room for `needed_bytes`, or once more for what was taken after `since_bytes`."""
        wanted = self._wanted(needed_bytes, since_bytes)
        if wanted:
            self.refusals += 1
            most = size(self._most_bytes)
            message = (
                f"was not read further: validation would need more than the {most} of memory that `--memory` leaves it"
            )
            raise NoRoomError(Defect(message, "", f"at most {most}", size(wanted)), is_unsupported=True)

    def has(self, needed_bytes: int) -> bool:
        """Whether there is room for `needed_bytes`."""
        return not self._wanted(needed_bytes, None)

    def _wanted(self, needed_bytes: int, since_bytes: int | None) -> int:
        """What would be taken in all, if that is too much; otherwise 0."""
        if self._used_bytes is None:
            return 0
        used = self._used_bytes()
        grown = max(0, used - since_bytes) if since_bytes is not None else 0
        wanted = used - self._base_bytes + needed_bytes + grown
        most = self._most_bytes if needed_bytes else self._most_bytes - self._most_bytes // _KEPT_FREE
        return wanted if wanted > most else 0

    def watched(self, source: ByteSource) -> ByteSource:
        """The source, which raises as `demand` when there is no more room."""
        return source if self._used_bytes is None else _WatchedSource(source, self)


MORE_MEMORY = "give it more memory: `--memory 4G` (the default is 600M); or use a node that has more"
UNBOUNDED = MemoryRoom(None, 0)
"""For tests and libraries: every command has a gauge."""


class _WatchedSource:
    """A source that looks at the memory now and then."""

    def __init__(self, source: ByteSource, room: MemoryRoom) -> None:
        self._source, self._room = source, room
        self._bytes, self._calls = _STEP_BYTES, 0
        self._since_bytes = room.used_bytes()

    @property
    def size_bytes(self) -> int:
        """Total size."""
        return self._source.size_bytes

    def read_at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer only at the end. Raises DefectError when there is no more room."""
        if count >= _DOCUMENT_BYTES:
            self._room.demand(count * _ASCII_FACTOR)
            data = self._source.read_at(offset, count)
            if not data.isascii():
                self._room.demand(count * (DOCUMENT_FACTOR - 1))
            return data
        self._bytes += count
        self._calls += 1
        if self._bytes >= _STEP_BYTES or self._calls >= _STEP_CALLS:
            self._bytes = self._calls = 0
            self._room.demand(since_bytes=self._since_bytes)
        return self._source.read_at(offset, count)
