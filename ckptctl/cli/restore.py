"""`ckptctl restore`: bring a run back to its newest valid snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ckptctl.cli.answer import emit, unsaid
from ckptctl.cli.exit_status import epilog
from ckptctl.cli.metrics import MetricsOption
from ckptctl.cli.options import (
    BreakLockOption,
    ConfigOption,
    FormatOption,
    OutputOption,
    QuietOption,
    Settings,
    VerboseOption,
    remember,
)
from ckptctl.cli.sizes import MemoryOption

if TYPE_CHECKING:
    from ckptctl.domain.restore import RestoreResult


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command(
        "restore",
        short_help="Bring a run back to its newest valid snapshot, on fresh servers.",
        epilog=epilog("restore"),
    )(restore)


def restore(
    ctx: typer.Context,
    plan: Annotated[bool, typer.Option("--plan", help="Print what a restore would do, and change nothing.")] = False,
    select: Annotated[
        bool, typer.Option("--select", help="Print only the path of the snapshot (or anchor) that would be restored.")
    ] = False,
    no_fallback: Annotated[
        bool, typer.Option("--no-fallback", help="Do not try an older snapshot when a newer one is damaged.")
    ] = False,
    break_lock: BreakLockOption = False,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
    memory: MemoryOption = None,
    _metrics: MetricsOption = None,
) -> None:
    """Restore the newest valid snapshot into fresh servers, so that unfinished rollouts go on from their last durable turn.

    The controller and every participant are restored while admission is closed; attempt N of an unfinished rollout is
    replaced by N+1, which continues from its boundary or restarts from its task; then everybody is resumed. --plan and
    --select need no server.
    """
    settings = remember(ctx, config, output_format, output, verbose, quiet, memory)
    from ckptctl.errors import UsageError

    if plan and select:
        raise UsageError("`--plan` and `--select` exclude each other", hint=None)
    falls_back = not no_fallback
    if plan or select:
        result = _look(settings, is_plan=plan, falls_back=falls_back)
    else:
        result = _restore(settings, falls_back=falls_back, break_lock=break_lock)
    settings.notes.restored(result)
    emit(settings, _text(settings, result))


def _text(settings: Settings, result: RestoreResult) -> str:
    """The answer; a path alone, which scripts wait for, without what draws tables."""
    if settings.format == "json":
        from ckptctl.render.machine import to_json

        return to_json(result)
    if result.selected_path is not None:
        return f"{result.selected_path}\n"
    from ckptctl.render.restore_text import restore_text

    return restore_text(unsaid(settings, result), verbose=settings.verbose)


def _look(settings: Settings, *, is_plan: bool, falls_back: bool) -> RestoreResult:
    from ckptctl.cli.offline import run_offline
    from ckptctl.workflows.restore_preview import preview_restore, select_only

    work = preview_restore if is_plan else select_only
    return run_offline(settings, lambda world, run: work(world, run, falls_back=falls_back))


def _restore(settings: Settings, *, falls_back: bool, break_lock: bool) -> RestoreResult:
    from ckptctl.cli.wiring import run_live
    from ckptctl.domain.restore import RestoreRequest
    from ckptctl.workflows.restore import restore as run_restore

    request = RestoreRequest(falls_back=falls_back, break_lock=break_lock)
    return run_live(settings, lambda world, run: run_restore(world, run, request))
