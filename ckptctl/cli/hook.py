"""`ckptctl hook`: the scheduler's entry, as help tells it.

A scheduler never comes here: `__main__` hands its command lines to the package `hook` before typer is imported. What other
options stand before the name (`ckptctl -q hook prolog`) arrives here and is handed on.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ckptctl.cli.exit_status import epilog


class HookName(StrEnum):
    """The hooks that there are."""

    PROLOG = "prolog"
    EPILOG = "epilog"
    TASK_PROLOG = "task-prolog"


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command("hook", short_help="Slurm's Prolog, Epilog and TaskProlog: always 0, in time.", epilog=epilog("hook"))(
        hook
    )


def hook(
    name: Annotated[HookName, typer.Argument(metavar="NAME", help="prolog, epilog or task-prolog.")],
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline",
            metavar="DURATION",
            help="How long it may look; a second later it has ended. Default: 10s, task-prolog 60s.",
            show_default=False,
        ),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option("--level", metavar="LEVEL", help="How deep to look. Default: quick.", show_default=False),
    ] = None,
    state_dir: Annotated[
        str | None,
        typer.Option(
            "--state-dir",
            metavar="DIR",
            help="Where verdicts go: absolute, on a local disk. Default: /tmp/ckptctl-hook-UID, as root /var/lib/ckptctl/hook.",
            show_default=False,
        ),
    ] = None,
    textfile_dir: Annotated[
        str | None,
        typer.Option(
            "--textfile-dir",
            metavar="DIR",
            help="Where ckptctl_hook.prom goes, for node_exporter: absolute, and there already. Default: the state directory.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Judge the snapshots of a Slurm job from a Prolog, Epilog or TaskProlog, without ever harming the node.

    The checkpoint directory is `ckpt=PATH` in the job's comment, or the first line of `.ckptctl-job` in its working
    directory; a TaskProlog takes CKPTCTL_CONFIG or CKPTCTL_CHECKPOINT_DIR of the job. Whatever is found there, damaged,
    hostile or hanging, the hook ends with 0 in time. `ckptctl slurm show` prints scripts that call it.
    """
    from ckptctl.hook import entry

    given = {
        "--deadline": deadline,
        "--level": level,
        "--state-dir": state_dir,
        "--textfile-dir": textfile_dir,
    }
    entry.run([name.value, *(f"{option}={value}" for option, value in given.items() if value is not None)])
