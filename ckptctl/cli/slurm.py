"""`ckptctl slurm`: ready scripts to print, and the claim of a run on its checkpoint directory."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ckptctl.cli.answer import emit, note
from ckptctl.cli.exit_status import epilog
from ckptctl.cli.options import ConfigOption, FormatOption, OutputOption, QuietOption, VerboseOption, remember

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="For Slurm: scripts to print, and the claim of a run.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("list", short_help="Name the scripts that there are.", epilog=epilog("slurm"))
def list_scripts(
    ctx: typer.Context,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Name the scripts that `ckptctl slurm show` prints, and what each is for."""
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    from ckptctl.render.machine import to_json
    from ckptctl.render.slurm_answers import ScriptList, scripts_text
    from ckptctl.slurm import SCRIPTS

    listed = ScriptList.of(SCRIPTS)
    emit(settings, to_json(listed) if settings.format == "json" else scripts_text(listed))


@app.command("show", short_help="Print one script.", epilog=epilog("slurm"))
def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `ckptctl slurm list` names it.")],
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Print a script, with the path of this very Python in it where it needs one. Read it before you install it."""
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    from ckptctl.errors import UsageError
    from ckptctl.render.machine import to_json
    from ckptctl.render.slurm_answers import ScriptAnswer
    from ckptctl.slurm import SCRIPTS, load_script

    if name not in SCRIPTS:
        raise UsageError(f"there is no script `{name}`", hint=f"scripts: {', '.join(SCRIPTS)}")
    text = load_script(name, python=sys.executable)
    if sys.executable in text and not _may_everybody_start(sys.executable):
        note(
            settings,
            f"`{sys.executable}` lies in a folder that not everybody may enter: hooks need one that the jobs' users can start",
        )
    emit(settings, to_json(ScriptAnswer(name=name, text=text)) if settings.format == "json" else text)


@app.command(
    "claim", short_help="Make the checkpoint directory this run's; print its token.", epilog=epilog("slurm claim")
)
def claim(
    ctx: typer.Context,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Claim the checkpoint directory of the configuration for this run, once at its beginning, and print the run's token.

    With the token in CKPTCTL_RUN_TOKEN every command of this run is refused (21), and publishes nothing, as soon as another
    run has claimed the directory: what is left of a run on a lost node cannot write over the run that took its place.
    """
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    from contextlib import suppress

    from ckptctl.adapters.local_store import LocalStore
    from ckptctl.adapters.run_token import RunClaim
    from ckptctl.cli.offline import load
    from ckptctl.render.machine import to_json
    from ckptctl.render.slurm_answers import ClaimAnswer
    from ckptctl.workflows.own_folders import demand_real_folders

    directory = load(settings).checkpoint_dir
    with suppress(FileNotFoundError):  # the first run begins before there is anything
        demand_real_folders(LocalStore(), directory)
    token = RunClaim(directory).claim()
    answer = ClaimAnswer(checkpoint_dir=directory, token=token)
    emit(settings, to_json(answer) if settings.format == "json" else f"{token}\n")


def _may_everybody_start(program: str) -> bool:
    """Whether a job's user gets to it: every folder above it, links followed, may be entered by others."""
    from pathlib import Path

    found = Path(program).resolve()
    return all(folder.stat().st_mode & 0o001 for folder in (found, *found.parents))
