"""`ckptctl snapshot`: one coordinated snapshot of the live run."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ckptctl.cli.answer import tell_transaction
from ckptctl.cli.every import (
    EveryOption,
    JitterOption,
    LastWithinOption,
    MostFailuresOption,
    every_request,
    ignore_until_heard,
    keep_taking,
)
from ckptctl.cli.exit_status import epilog
from ckptctl.cli.metrics import MetricsOption
from ckptctl.cli.options import (
    BreakLockOption,
    ConfigOption,
    FormatOption,
    OutputOption,
    QuietOption,
    VerboseOption,
    remember,
)
from ckptctl.cli.sizes import MemoryOption
from ckptctl.cli.validate import LevelName


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("snapshot", epilog=epilog("snapshot"))(snapshot)


def snapshot(
    ctx: typer.Context,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            metavar="DURATION",
            help="Bound from outside, such as a preemption's grace period (90s): abort in time rather than be killed.",
            show_default=False,
        ),
    ] = None,
    every: EveryOption = None,
    jitter: JitterOption = None,
    max_failures: MostFailuresOption = None,
    last_within: LastWithinOption = None,
    force: Annotated[bool, typer.Option("--force", help="Take one even when nothing changed.")] = False,
    level: Annotated[
        LevelName, typer.Option("--level", help="How deep to validate before publishing.")
    ] = LevelName.STANDARD,
    break_lock: BreakLockOption = False,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
    memory: MemoryOption = None,
    _metrics: MetricsOption = None,
) -> None:
    """Take one coordinated, turn-level snapshot and publish it.

    Closes admission, drains acknowledgements and policy calls, lets every participant and the controller save, validates,
    publishes by one rename and releases. A failed attempt is aborted and never harms the previous snapshot; an attempt that
    an earlier process left unfinished is finished first.

    --every keeps taking them in the foreground: SIGUSR1 one now, SIGHUP reads the configuration again, SIGTERM or SIGINT one
    more and then the end (0 if that succeeds).
    """
    if every is not None:
        ignore_until_heard(ctx)
    settings = remember(ctx, config, output_format, output, verbose, quiet, memory)
    from ckptctl.cli.durations import parse_duration_s
    from ckptctl.cli.wiring import run_live
    from ckptctl.domain.transaction import SnapshotRequest
    from ckptctl.workflows.snapshot import take_snapshot

    repeated = every_request(every, jitter, max_failures, last_within)
    request = SnapshotRequest(force=force, level=level.value, break_lock=break_lock)
    if deadline is not None:
        request = request.within(parse_duration_s(deadline, "--deadline"), time.time())
    if repeated is not None:
        keep_taking(settings, request, repeated)
        return
    result = run_live(settings, lambda world, run: take_snapshot(world, run, request))
    settings.notes.transaction(result, request.level)
    tell_transaction(settings, result)
