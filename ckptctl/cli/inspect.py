"""`ckptctl inspect`: what lies in a checkpoint directory, one snapshot in depth, or the live servers."""

from __future__ import annotations

from typing import Annotated

import typer

from ckptctl.cli.answer import emit
from ckptctl.cli.exit_status import epilog
from ckptctl.cli.inspect_views import demand_one_question, show_diff, show_rollout, write_html
from ckptctl.cli.metrics import MetricsOption
from ckptctl.cli.nagios import CriticalAgeOption, NagiosOption, WarnAgeOption, age_limits, show_nagios
from ckptctl.cli.options import (
    ConfigOption,
    FormatOption,
    OutputOption,
    QuietOption,
    Settings,
    VerboseOption,
    remember,
)
from ckptctl.cli.sizes import MemoryOption
from ckptctl.cli.validate import LevelName

PathArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="A checkpoint directory, an anchor, a snapshot or a data plane; without it the configured directory.",
        show_default=False,
    ),
]
LevelOption = Annotated[
    LevelName | None,
    typer.Option(
        "--level",
        help="How deep to judge. Default: quick for a directory, standard for one snapshot.",
        show_default=False,
    ),
]
LiveOption = Annotated[
    bool, typer.Option("--live", help="Ask the configured servers: phases, and all that a snapshot would refuse.")
]
TimingsOption = Annotated[
    bool,
    typer.Option("--timings", help="How long past snapshots took: each step, and how long admission was closed."),
]
RolloutOption = Annotated[
    str | None,
    typer.Option(
        "--rollout",
        metavar="ID",
        help="All that is known of one rollout, in one snapshot or in each of PATH, and what a restore does with it.",
        show_default=False,
    ),
]
DiffOption = Annotated[
    str | None,
    typer.Option(
        "--diff",
        metavar="PATH",
        help="Compare an older snapshot with PATH: what progressed, what was lost, what nothing explains (13).",
        show_default=False,
    ),
]
HtmlOption = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Also write one self-contained page: findings, which part agrees with which, times, rollouts as pictures, sizes.",
        show_default=False,
    ),
]
BundleOption = Annotated[
    str | None,
    typer.Option(
        "--bundle",
        metavar="FILE",
        help="Also write a support bundle (.tar.zst) of a snapshot: metadata only, no token data, no secrets.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command(
        "inspect", short_help="Show what lies in a directory, one snapshot, or live servers.", epilog=epilog("inspect")
    )(inspect)


def inspect(
    ctx: typer.Context,
    path: PathArgument = None,
    level: LevelOption = None,
    live: LiveOption = False,
    timings: TimingsOption = False,
    rollout: RolloutOption = None,
    diff: DiffOption = None,
    html: HtmlOption = None,
    bundle: BundleOption = None,
    nagios: NagiosOption = False,
    warn_age: WarnAgeOption = None,
    critical_age: CriticalAgeOption = None,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
    memory: MemoryOption = None,
    _metrics: MetricsOption = None,
) -> None:
    """Show a checkpoint directory, an anchor, one snapshot in depth or a data plane; with --live the servers of the run.

    Nothing is executed, followed or changed. The exit status is that of the worst verdict shown; with --live it is the
    worst that a snapshot would end with; with --diff it is 13 also where nothing explains a change; with --timings nothing is
    judged.
    """
    settings = remember(ctx, config, output_format, output, verbose, quiet, memory)
    is_alone = not (live or timings or bundle or rollout or diff or html)
    limits = age_limits(is_wanted=nagios, warn=warn_age, critical=critical_age, is_alone=is_alone)
    if nagios:
        raise typer.Exit(show_nagios(settings, path, None if level is None else level.value, limits))
    asked = {
        "--timings": timings,
        "--live": live,
        "--rollout": rollout,
        "--diff": diff,
        "--html": html,
        "--bundle": bundle,
    }
    demand_one_question({name for name, value in asked.items() if value not in (None, False)}, path, level)
    if bundle is not None:
        _write_bundle(settings, path or "", bundle, level)
    code = (
        write_html(ctx, settings, path, html, rollout, None if level is None else level.value)
        if html is not None
        else _show_live(settings)
        if live
        else _show_timings(settings, path)
        if timings
        else show_rollout(settings, path, rollout, None if level is None else level.value)
        if rollout is not None
        else show_diff(settings, diff, path or "", None if level is None else level.value)
        if diff is not None
        else _show_path(settings, path, level)
    )
    raise typer.Exit(code)


def _show_path(settings: Settings, path: str | None, level: LevelName | None) -> int:
    from ckptctl.cli.offline import run_in
    from ckptctl.render.inspect_text import inspection_text
    from ckptctl.render.machine import to_json
    from ckptctl.workflows.inspect import checkpoint_dir_of, run_inspection
    from ckptctl.workflows.targets import absolute
    from ckptctl.workflows.validate import VERDICT_CODES

    wanted = None if path is None else absolute(path)
    result = run_in(
        settings,
        None if wanted is None else checkpoint_dir_of(wanted),
        lambda world, where, _run: run_inspection(world, wanted or where, None if level is None else level.value),
    )
    settings.notes.inspected(result)
    as_json = settings.format == "json"
    emit(settings, to_json(result) if as_json else inspection_text(result, verbose=settings.verbose))
    return int(VERDICT_CODES[result.verdict])


def _show_timings(settings: Settings, path: str | None) -> int:
    from ckptctl.cli.offline import run_in
    from ckptctl.render.machine import to_json
    from ckptctl.render.timings_text import timings_text
    from ckptctl.workflows.inspect import checkpoint_dir_of
    from ckptctl.workflows.inspect_timings import inspect_timings
    from ckptctl.workflows.targets import absolute

    wanted = None if path is None else absolute(path)
    result = run_in(
        settings,
        None if wanted is None else checkpoint_dir_of(wanted),
        lambda world, where, _run: inspect_timings(world, where, wanted or where),
    )
    emit(settings, to_json(result) if settings.format == "json" else timings_text(result))
    return 0


def _write_bundle(settings: Settings, path: str, bundle: str, level: LevelName | None) -> None:
    import os.path
    import platform
    from importlib.metadata import version

    from ckptctl.adapters.local_store import LocalStore
    from ckptctl.cli.answer import Aside
    from ckptctl.cli.offline import offline_world
    from ckptctl.cli.place import demand_outside
    from ckptctl.domain.amounts import size
    from ckptctl.domain.safe_text import safe
    from ckptctl.workflows.inspect import checkpoint_dir_of
    from ckptctl.workflows.inspect_bundle import BundleRequest, write_bundle
    from ckptctl.workflows.targets import absolute

    snapshot, file = absolute(path), absolute(bundle)
    folder = os.path.realpath(os.path.dirname(file))  # noqa: PTH120 - str paths
    demand_outside("--bundle", bundle, folder)
    packages = ("pydantic", "msgspec", "zstandard", "blake3")
    request = BundleRequest(
        snapshot=snapshot,
        folder=folder,
        name=os.path.basename(file),  # noqa: PTH119 - str paths
        about={
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            **{name: version(name) for name in packages},
        },
        level="standard" if level is None else level.value,
    )
    size_bytes = write_bundle(offline_world(settings, checkpoint_dir_of(snapshot)), LocalStore(folder), request)
    if not settings.quiet:
        Aside().say(f"bundle: {safe(file)} ({size(size_bytes)})\n")


def _show_live(settings: Settings) -> int:
    from ckptctl.cli.wiring import run_live
    from ckptctl.render.inspect_live_text import live_text
    from ckptctl.render.machine import to_json
    from ckptctl.workflows.inspect_live import inspect_live

    result = run_live(settings, inspect_live)
    emit(settings, to_json(result) if settings.format == "json" else live_text(result))
    return result.exit_code
