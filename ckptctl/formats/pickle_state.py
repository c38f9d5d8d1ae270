"""The state of one pickle reading: a window that moves over the source, the stack with its marks, and the memo.

Decides: that no read goes beyond the end, and how a defect is placed (offset in the source). Leaves to others: what each
opcode does (`pickle_opcodes`) and the loop over them (`pickle_machine`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.source import ByteSource
from ckptctl.formats.pickle_tree import Global

WINDOW_BYTES = 1 << 18
_FEW_BYTES = 1 << 12
"""What is read behind a long byte string: there may be another one close by."""
_LONG_BYTES = 1 << 14
PADDING = b"\0" * 16
"""Behind the last window, so that fixed-size arguments may be read blindly. Opcode 0 is illegal: nothing gets past it."""


NOT_KEPT = object()
"""In the memo: a value that was taken without being kept."""


class MachineState:
    """One reading. `base` is the source offset of `window[0]`, `valid` the window's length without padding."""

    __slots__ = (
        "allow_persistent",
        "allowed",
        "base",
        "entries",
        "has_short_lists",
        "keep",
        "limits",
        "memo",
        "opaque_globals",
        "outer",
        "refill_at",
        "shortcut",
        "source",
        "stack",
        "stop",
        "taken",
        "unstored",
        "valid",
        "window",
    )

    def __init__(
        self, source: ByteSource, start: int, stop: int, allowed: frozenset[tuple[str, str]], limits: Limits
    ) -> None:
        self.source, self.stop, self.allowed, self.limits = source, stop, allowed, limits
        self.allow_persistent = self.opaque_globals = False
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []  # the stacks below each open MARK
        self.entries: list[Any] = []
        """The memo, as far as its entries are numbered one after the other."""
        self.memo: dict[int, Any] = {}
        """The rest of it."""
        self.keep: Callable[[Any, list[Any]], list[Any]] | None = None
        self.has_short_lists = False
        """Whether lists of one number, many of them in a mapping, may become tuples that nothing recalls."""
        self.taken = 0
        """How many values were pushed together, without a step of the loop for each."""
        self.unstored = 0
        """How many values are in the memo for who counts them, but not to be recalled: a shortcut took them."""
        self.shortcut: Callable[[MachineState, int, Global], int] | None = None
        self.base, self.valid, self.refill_at = start, 0, -1
        self.window = b""

    def memoize(self, value: Any) -> None:
        """Put a value into the memo under the next number."""
        if self.memo or self.unstored:
            self.memo[len(self.entries) + len(self.memo) + self.unstored] = value
        else:
            self.entries.append(value)

    def memoize_as(self, number: int, value: Any) -> None:
        """Put a value into the memo under this number."""
        entries = self.entries
        if number < len(entries):
            entries[number] = value
        elif number == len(entries) and not self.memo:
            entries.append(value)
        else:
            self.memo[number] = value

    def recalled(self, number: int) -> Any:
        """A value of the memo. Raises KeyError when it has none of this number."""
        found = self.entries[number] if number < len(self.entries) else self.memo[number]
        if found is NOT_KEPT:
            raise KeyError
        return found

    @property
    def memoized(self) -> int:
        """How many values the memo has."""
        return len(self.entries) + len(self.memo)

    def fail(self, message: str, offset: int) -> NoReturn:
        """Raise the defect; an opcode that begins behind the end was read from padding, so there it is the end that is wrong."""
        if offset >= self.stop:
            self.fail_cut_off()
        raise DefectError(Defect(message, location=f"offset {offset}"))

    def fail_cut_off(self) -> NoReturn:
        """Raise the defect of a pickle that is too short."""
        raise DefectError(Defect("the pickle is cut off: it ends without STOP", location=f"offset {self.stop}"))

    def fail_at(self, message: str, pos: int) -> NoReturn:
        """As fail, for the opcode in front of window position `pos`."""
        self.fail(message, self.base + pos - 1)

    def count(self, values: int, pos: int) -> None:
        """Count values that take no step of the loop; they have the same limit."""
        self.taken += values
        if self.taken > self.limits.pickle_items:
            self.fail_too_many(pos)

    def fail_too_many(self, pos: int) -> NoReturn:
        """Raise the defect of a pickle with more items than the limit."""
        self.fail(f"the pickle exceeds the limit of {self.limits.pickle_items} items", self.base + pos)

    def refill(self, pos: int, count: int) -> int:
        """Move the window so that it begins at `pos` and has `count` bytes or all that is left; gives the new position."""
        self.base += pos
        count = min(count, self.stop - self.base)
        data = self.source.read_at(self.base, count) if count > 0 else b""
        if len(data) < count:
            raise DefectError(Defect("the file became shorter while it was read", location=f"offset {self.base}"))
        self.valid = len(data)
        if self.base + self.valid >= self.stop:
            self.window, self.refill_at = data + PADDING, self.valid + len(PADDING)
        else:
            self.window, self.refill_at = data, self.valid - len(PADDING)
        return 0

    def need(self, pos: int, count: int) -> int:
        """Make `count` bytes from `pos` available; gives the new position."""
        if pos + count <= self.valid:
            return pos
        if self.base + pos + count > self.stop:
            self.fail_cut_off()
        return self.refill(pos, max(count, WINDOW_BYTES))

    def skip(self, pos: int, count: int) -> int:
        """Step over `count` bytes that need not be looked at; the caller knows that they are there."""
        if pos + count <= self.valid:
            return pos + count
        return self.refill(pos + count, _FEW_BYTES if count >= _LONG_BYTES else WINDOW_BYTES)

    def peek(self, pos: int, count: int) -> int:
        """Make `count` bytes from `pos` available as far as there are so many; gives the new position."""
        if pos + count <= self.valid or self.base + self.valid >= self.stop:
            return pos
        return self.refill(pos, WINDOW_BYTES)

    def pop_mark(self) -> list[Any]:
        """The values above the topmost MARK."""
        values, self.stack = self.stack, self.outer.pop()
        return values
