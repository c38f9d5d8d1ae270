"""Every exit status and its meaning; the README's table and each command's help are made from these."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit statuses; within a family a larger number is worse. Never reuse a number."""

    DONE = 0
    BUG = 1
    USAGE = 2
    NOTHING_THERE = 3
    WARNINGS = 10
    NOT_CHECKED = 11
    INCOMPATIBLE = 12
    INVALID = 13
    REFUSED = 20
    BUSY = 21
    ABORTED = 22
    RELEASE_PENDING = 23
    ADMISSION_CLOSED = 24
    UNREACHABLE = 30
    SERVER_REFUSED = 31
    STORAGE = 32
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


EXIT_MEANINGS: dict[ExitCode, str] = {
    ExitCode.DONE: "done; valid; nothing to do",
    ExitCode.BUG: "a bug in ckptctl (traceback)",
    ExitCode.USAGE: "usage or configuration",
    ExitCode.NOTHING_THERE: "nothing there: no snapshot, no such path",
    ExitCode.WARNINGS: "warnings only, and --strict",
    ExitCode.NOT_CHECKED: "could not be checked completely",
    ExitCode.INCOMPATIBLE: "incompatible: schema, topology, trainer anchor or fingerprint",
    ExitCode.INVALID: "invalid (a finding of severity error)",
    ExitCode.REFUSED: "refused before anything was changed",
    ExitCode.BUSY: "busy: another coordinator, or another checkpoint id, is active",
    ExitCode.ABORTED: "attempt aborted and released; the previous snapshot is authoritative; try again",
    ExitCode.RELEASE_PENDING: "published_release_pending: the snapshot is durable, retry the release: run `ckptctl publish`",
    ExitCode.ADMISSION_CLOSED: "aborted, but admission may still be closed: run `ckptctl publish`",
    ExitCode.UNREACHABLE: "a participant or the controller cannot be reached, or timed out",
    ExitCode.SERVER_REFUSED: "a participant or the controller refused",
    ExitCode.STORAGE: "storage failure",
    ExitCode.INTERRUPTED: "interrupted (SIGINT)",
    ExitCode.BROKEN_PIPE: "broken pipe",
    ExitCode.TERMINATED: "terminated (SIGTERM, SIGHUP)",
}
"""One line per status; the README's table and every command's help are generated from it."""
