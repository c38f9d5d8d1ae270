"""Errors about what was asked for: usage, configuration, a path, a snapshot that must be valid and is not."""

from __future__ import annotations

from ckptctl.errors.base import CkptctlError
from ckptctl.errors.exit_codes import ExitCode


class UsageError(CkptctlError):
    """The command line asks for something that does not fit together."""

    code = "usage"
    exit_code = ExitCode.USAGE


class ConfigError(UsageError):
    """The configuration file cannot be read, or a value in it rules the command out."""

    code = "config-invalid"

    def __init__(self, *, path: str, location: str, problem: str, hint: str | None) -> None:
        self.path, self.location = path, location
        super().__init__(
            f"configuration `{path}`: `{location}` {problem}" if location else f"configuration `{path}` {problem}",
            hint=hint,
        )


class NothingThereError(CkptctlError):
    """No such path, or no snapshot where one is needed."""

    code = "nothing-there"
    exit_code = ExitCode.NOTHING_THERE


class NotCheckedError(CkptctlError):
    """A snapshot that must be proved could not be checked completely."""

    code = "not-checked"
    exit_code = ExitCode.NOT_CHECKED


class IncompatibleSnapshotError(CkptctlError):
    """Nothing is damaged, but the snapshot belongs to another schema, topology, trainer anchor or configuration."""

    code = "snapshot-incompatible"
    exit_code = ExitCode.INCOMPATIBLE


class InvalidSnapshotError(CkptctlError):
    """A snapshot that must be valid is not."""

    code = "snapshot-invalid"
    exit_code = ExitCode.INVALID
