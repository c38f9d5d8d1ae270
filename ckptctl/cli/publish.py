"""`ckptctl publish`: finish what an interrupted run left, publish a staged snapshot, or free participants."""

from __future__ import annotations

from typing import Annotated

import typer

from ckptctl.cli.answer import tell_transaction
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


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command(
        "publish",
        short_help="Finish what an interrupted run left, or publish a staged snapshot.",
        epilog=epilog("publish"),
    )(publish)


def publish(
    ctx: typer.Context,
    staged: Annotated[
        str | None,
        typer.Argument(metavar="STAGED", help="A staged tmp_snapshot_N to validate and publish.", show_default=False),
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(
            "--release",
            metavar="ID",
            help="Free participants that a dead coordinator left paused under ID.",
            show_default=False,
        ),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why (kept in the journal).", show_default=False)
    ] = None,
    set_aside: Annotated[
        str | None,
        typer.Option(
            "--set-aside",
            metavar="TRANSACTION",
            help="Put the journal of a transaction aside that is damaged and blocks every command; it is kept.",
            show_default=False,
        ),
    ] = None,
    break_lock: BreakLockOption = False,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
    memory: MemoryOption = None,
    _metrics: MetricsOption = None,
) -> None:
    """Finish what an interrupted run left, under its id: publish or abort a snapshot and release all, or go on with a restore.

    With STAGED: validate that directory at level full and publish it. With --release: free participants that some other,
    dead coordinator left paused. With --set-aside: go on without a journal that cannot be read, and say who is still held.
    """
    settings = remember(ctx, config, output_format, output, verbose, quiet, memory)
    from ckptctl.cli.wiring import run_live
    from ckptctl.domain.transaction import PublishRequest
    from ckptctl.workflows.publish import finish_publish
    from ckptctl.workflows.targets import absolute

    _demand_one_wish(staged, release, set_aside, reason)
    request = PublishRequest(
        staged=None if staged is None else absolute(staged),
        release_id=release,
        set_aside=set_aside,
        reason=reason,
        break_lock=break_lock,
    )
    result = run_live(settings, lambda world, run: finish_publish(world, run, request))
    settings.notes.transaction(result, None)
    tell_transaction(settings, result)


def _demand_one_wish(staged: str | None, release: str | None, set_aside: str | None, reason: str | None) -> None:
    """Raise UsageError for options that do not go together."""
    from ckptctl.errors import UsageError

    wishes = [one is not None for one in (release, set_aside)]
    if any(wishes) and (staged is not None or all(wishes) or not (reason or "").strip()):
        raise UsageError(
            "`--release ID` and `--set-aside TRANSACTION` each stand alone and need `--reason TEXT`",
            hint="the reason is kept in the journal for those who come later",
        )
    if reason is not None and not any(wishes):
        raise UsageError("`--reason` belongs to `--release` or `--set-aside`", hint=None)
