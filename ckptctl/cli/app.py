"""The root command: global options and the table of commands.

Command modules import only typer and what their parameters need; workflows, HTTP and rendering are imported when a command
runs, so that help and completion stay quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from ckptctl import __version__
from ckptctl.cli import gc, help_pages, hook, inspect, publish, restore, sim, slurm, snapshot, validate
from ckptctl.cli.boundary import BoundaryGroup, wants_json
from ckptctl.cli.options import ConfigOption, OutputOption, QuietOption, RootFormatOption, VerboseOption, remember

HELP_WIDTH = 100
"""Widest help text; click's own limit of 80 makes tables of options hard to read."""

app = typer.Typer(
    cls=BoundaryGroup,
    name="ckptctl",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH},
    help="Coordinated, turn-level snapshots of asynchronous RL rollouts: taken, proved, published and restored.",
)


def _print_version(ctx: typer.Context, wanted: bool) -> None:
    """Say it at once; whether as JSON is read from the words, because the other options are not parsed yet."""
    if not wanted:
        return
    root_group = ctx.command
    if isinstance(root_group, BoundaryGroup) and wants_json(root_group.words):
        from ckptctl.render.machine import VersionAnswer, to_json_line

        typer.echo(to_json_line(VersionAnswer(version=__version__)), nl=False)
    else:
        typer.echo(f"ckptctl {__version__}")
    raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    config: ConfigOption = None,
    output_format: RootFormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Keep the global options for the command that follows."""
    remember(ctx, config, output_format, output, verbose, quiet)


snapshot.register(app)
validate.register(app)
publish.register(app)
restore.register(app)
gc.register(app)
inspect.register(app)
app.add_typer(sim.app, name="sim")
hook.register(app)
app.add_typer(slurm.app, name="slurm")
help_pages.register(app)
