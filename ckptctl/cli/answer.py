"""Where the answer goes: stdout, or the file of `--output`. Everything that is not the answer goes to stderr.

What is said aside must never decide what becomes of a transaction: a stderr that is full, closed or read by nobody any more falls
silent. An answer that cannot be written is an error, but one that says that the work itself is done.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ckptctl.cli.options import Settings
from ckptctl.domain.safe_text import OVERWRITE, inert, safe
from ckptctl.errors import StorageError

if TYPE_CHECKING:
    from ckptctl.domain.restore import RestoreResult
    from ckptctl.domain.retention import GcResult
    from ckptctl.domain.transaction import TransactionResult

R = TypeVar("R", "TransactionResult", "RestoreResult", "GcResult")
DONE_HINT = (
    "what the command was asked for is done; only its answer could not be written: mend that, do not repeat the work"
)
NARROW = 80
"""Columns of a terminal that does not say how wide it is."""


def emit(settings: Settings, text: str) -> None:
    """Write the answer.

    Raises:
        StorageError: the file, or what lies behind stdout, cannot be written.
        BrokenPipeError: nobody reads any more; the boundary makes it an exit status.
    """
    Aside().clear()
    if settings.output:
        write_to(settings.output, text.encode("utf-8", "backslashreplace"))
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon_stdout()
        raise StorageError(
            operation="write",
            path="standard output",
            detail=lost_because(error),
            hint=DONE_HINT,
            cause=error,
        ) from error


def lost_because(error: OSError) -> str:
    """Why stdout could not be written, in words; a closed one is a stand-in by now, which cannot be written either."""
    return "it is closed" if error.errno == errno.EBADF else os.strerror(error.errno or 0)


def write_to(path: str, data: bytes) -> None:
    """A regular file is replaced as a whole and keeps its mode, a link is followed; a device or pipe is written through."""
    from ckptctl.adapters import durable

    try:
        real = os.path.realpath(path)
    except FileNotFoundError as error:
        detail = "the working directory is gone"
        raise StorageError(operation="write", path=path, detail=detail, hint=DONE_HINT, cause=error) from error
    try:
        mode = os.stat(real).st_mode  # noqa: PTH116 - str paths
    except OSError:
        mode = 0
    try:
        if mode and not stat.S_ISREG(mode):
            durable.write_through(real, data)
        else:
            durable.write_file(real, data, mode=stat.S_IMODE(mode) if mode else None)
    except StorageError as error:
        raise StorageError(
            operation=error.operation, path=error.path, detail=error.detail, hint=DONE_HINT, cause=error.cause
        ) from error


def abandon_stdout() -> None:
    """Nothing more can be written there, and Python must not complain when it flushes at exit."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - stands in for a dead stream until exit


def unsaid(settings: Settings, result: R) -> R:
    """A result as its text tells it: without the warnings that went to stderr when there was something to warn of."""
    left = tuple(text for text in result.warnings if text not in settings.said)
    return result.model_copy(update={"warnings": left})


def tell_transaction(settings: Settings, result: TransactionResult) -> None:
    """Write the answer of a command that ran one transaction. Raises as `emit`."""
    from ckptctl.render.machine import to_json
    from ckptctl.render.transaction_text import transaction_text

    as_json = settings.format == "json"
    emit(
        settings,
        to_json(result) if as_json else transaction_text(unsaid(settings, result), verbose=settings.verbose),
    )


class Aside:
    """What is not the answer, as a text stream on stderr that never raises: once it cannot be written, it is silent.

    A line that moves, which has no end of its own, makes way for whatever is said after it.
    """

    _has_moving_line: ClassVar[bool] = False

    def write(self, text: str) -> int:
        """Write `text`, or nothing."""
        if text.startswith(OVERWRITE) and text.endswith("\n"):
            text = OVERWRITE + self._broken(text[len(OVERWRITE) :])
        if Aside._has_moving_line and not text.startswith("\r"):
            text = OVERWRITE + text
        Aside._has_moving_line = text != OVERWRITE and not text.endswith("\n")
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - as stdout
        return len(text)

    def say(self, text: str, red: str = "") -> None:
        """Write whole lines for people; on a terminal they are broken between words, and `red` begins them in colour."""
        text = self._broken(text)
        if red and self.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
            text = f"\x1b[1;31m{red}\x1b[0m{text.removeprefix(red)}"
        self.write(text)

    def _broken(self, text: str) -> str:
        if not self.isatty():
            return text
        from ckptctl.render.lines import broken

        return broken(text, self.columns())

    def clear(self) -> None:
        """Take a moving line away, because something else is about to be shown on the same terminal."""
        if Aside._has_moving_line:
            self.write(OVERWRITE)

    def flush(self) -> None:
        """Everything was written."""

    def isatty(self) -> bool:
        """Whether a person may be looking."""
        return sys.stderr.isatty()

    def columns(self) -> int:
        """How wide the terminal is."""
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or NARROW
        except (OSError, ValueError):
            return NARROW


def note(settings: Settings, text: str) -> None:
    """Write something that is not the answer, on one line."""
    if not settings.quiet:
        Aside().say(inert(safe(text)) + "\n")
