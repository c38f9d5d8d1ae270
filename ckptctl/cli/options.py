"""Options that every command takes, before or after its name, and where they are kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import typer

from ckptctl.cli.metrics import NAME as METRICS
from ckptctl.cli.metrics import RunNotes
from ckptctl.cli.place import demand_known_places, demand_no_input, demand_other, demand_place
from ckptctl.cli.sizes import limits_of
from ckptctl.domain.limits import DEFAULT_LIMITS, Limits
from ckptctl.errors import UsageError


class OutputFormat(StrEnum):
    """How the answer is written."""

    TEXT = "text"
    JSON = "json"


class ReportFormat(StrEnum):
    """How a report is written: as any answer, or for CI."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"


STDOUT = "-"


@dataclass(slots=True)
class Settings:
    """What the global options say; a command's own value wins over the one before its name."""

    config: str | None = None
    is_config_named: bool = False
    """On the command line, not only in the environment."""
    format: str = "text"
    output: str | None = None
    verbose: int = 0
    quiet: bool = False
    limits: Limits = DEFAULT_LIMITS
    """Of what is read; the memory is what `--memory` says."""
    notes: RunNotes = field(default_factory=RunNotes)
    """For `--metrics-textfile`."""
    said: set[str] = field(default_factory=set)
    """Warnings that went to stderr: the text of an answer does not say them again."""


ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="FILE", help="Run configuration (YAML). Default: $CKPTCTL_CONFIG.", show_default=False
    ),
]
FormatOption = Annotated[
    OutputFormat | None, typer.Option("--format", help="How the answer is written: text or json.", show_default=False)
]
ReportFormatOption = Annotated[
    ReportFormat | None,
    typer.Option(
        "--format",
        help="How the report is written: for people, for programs, or for CI (JUnit XML, SARIF 2.1.0, annotations).",
        show_default=False,
    ),
]
RootFormatOption = Annotated[
    ReportFormat | None,
    typer.Option(
        "--format", help="How the answer is written: text or json; `validate` has them all.", show_default=False
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option("--output", metavar="FILE", help="Write the answer to FILE, not to stdout (-).", show_default=False),
]
VerboseOption = Annotated[
    int, typer.Option("-v", "--verbose", count=True, help="Say more (repeat for still more).", show_default=False)
]
QuietOption = Annotated[bool, typer.Option("-q", "--quiet", help="Only the answer, no progress.", show_default=False)]
BreakLockOption = Annotated[
    bool, typer.Option("--break-lock", help="Take the lock from an owner who is certainly gone.")
]


def remember(
    ctx: Any,
    config: str | None,
    output_format: OutputFormat | ReportFormat | None,
    output: str | None,
    verbose: int,
    quiet: bool,
    memory: str | None = None,
    *,
    formats: type[OutputFormat | ReportFormat] = OutputFormat,
    name_of: Callable[[str], str] = str,
) -> Settings:
    """Merge one level's options into the settings of the invocation and return them.

    `formats`: those that the command has; `name_of`: what the name of the answer's file means to it.

    Raises:
        UsageError: the format, which may have been asked for before the command's name, is none of them; a name is empty; the
            answer would replace an input, or lie in a checkpoint's own place; `memory` is no size, or too small.
        StorageError: the answer's file cannot be written.
        NothingThereError: a path is relative, and the working directory was removed.
    """
    root = ctx.find_root()
    if root.obj is None:
        root.obj = Settings(config=os.environ.get("CKPTCTL_CONFIG") or None, format=_format_of_environment())
        root.obj.notes = root.command.notes
    settings: Settings = root.obj
    for option, value in (("--config", config), ("--output", output)):
        if value == "":
            raise UsageError(f"`{option}` is empty", hint="is a variable of the script not set?")
    settings.config = config or settings.config
    settings.is_config_named = settings.is_config_named or config is not None
    settings.format = output_format.value if output_format else settings.format
    if ctx is not root:
        demand_format(settings.format, formats)
        demand_known_places(ctx, settings.config)
    if output == STDOUT:
        settings.output = None
    elif output:
        settings.output = output
    if settings.output and ctx is not root:
        settings.output = name_of(settings.output)
        demand_place(settings.output)
        demand_no_input(ctx, settings.output, settings.config)
    if settings.notes.path and ctx is not root:
        demand_no_input(ctx, settings.notes.path, settings.config, METRICS)
        if settings.output:
            demand_other(settings.notes.path, "--output", settings.output, METRICS)
    settings.verbose = max(settings.verbose, verbose)
    settings.quiet = settings.quiet or quiet
    if memory is not None:
        settings.limits = limits_of(memory)
    return settings


def demand_format(wanted: str, formats: type[OutputFormat | ReportFormat]) -> None:
    """Refuse a format that a command does not have. Raises UsageError."""
    if wanted not in set(formats):
        raise UsageError(f"this command has no format `{wanted}`", hint=f"formats: {', '.join(formats)}")


def _format_of_environment() -> str:
    wanted = os.environ.get("CKPTCTL_FORMAT") or OutputFormat.TEXT.value
    if wanted not in set(ReportFormat):
        raise UsageError(
            f"the environment variable `CKPTCTL_FORMAT` names no format: `{wanted}`",
            hint=f"formats: {', '.join(ReportFormat)}",
        )
    return wanted
