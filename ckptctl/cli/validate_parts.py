"""`validate` in parts: which part of the byte work is asked for, and where its report goes.

`--shard` and `--read-data-subset` divide what only level full reads, so they mean that level.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from ckptctl.errors import UsageError

if TYPE_CHECKING:
    from ckptctl.domain.share import Share

SHARD_PLACE = "{shard}"
_DAY_S = 86_400
ShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Read part I of N at level full; `auto` under srun. The verdict is that of --merge.",
        show_default=False,
    ),
]
SubsetOption = Annotated[
    str | None,
    typer.Option(
        "--read-data-subset",
        metavar="P%|I/N",
        help="Read only a part of the data at level full; a percentage moves on each day.",
        show_default=False,
    ),
]
MergeOption = Annotated[
    bool, typer.Option("--merge", help="The PATHs are JSON reports of all shards: give the one verdict.")
]


def share_of(shard: str | None, subset: str | None, level: str | None) -> Share | None:
    """The part of the byte work that the options ask for.

    Raises:
        UsageError: both are given, one cannot be read, or the level reads nothing that could be divided.
    """
    from ckptctl.domain.share import parse_fraction, parse_subset

    if shard is None and subset is None:
        return None
    option = "--shard" if shard is not None else "--read-data-subset"
    if shard is not None and subset is not None:
        raise UsageError("`--shard` and `--read-data-subset` exclude each other", hint="divide the work, or read less")
    if level not in {None, "full"}:
        raise UsageError(
            f"`{option}` divides what level full reads; level {level} reads none of it",
            hint=f"leave `--level` out, or `{option}`",
        )
    try:
        if shard is not None:
            return parse_fraction(_shard_of_task(os.environ) if shard == "auto" else shard, "shard")
        return parse_subset(subset or "", int(time.time() // _DAY_S))
    except ValueError as error:
        hint = "--shard 2/4, or --shard auto under srun" if shard is not None else "--read-data-subset 10%, or 3/10"
        raise UsageError(f"`{option}`: {error}", hint=hint) from None


def output_of(share: Share | None, output: str) -> str:
    """The answer's file; `{shard}` in its name becomes the number of the shard, so that all tasks of srun may say the same."""
    if share is None or share.kind != "shard":
        return output
    return output.replace(SHARD_PLACE, str(share.index))


def demand_alone(*others: object) -> None:
    """Refuse what says how to judge beside `--merge`, which judges nothing anew. Raises UsageError."""
    if any(others):
        raise UsageError(
            "`--merge` puts reports together that were made before: level, rules, capabilities and parts are theirs",
            hint="give those options to the shards, and `--merge` the reports alone",
        )


def _shard_of_task(environment: Mapping[str, str]) -> str:
    """This task of a Slurm step as I/N. Raises ValueError."""
    rank, tasks = environment.get("SLURM_PROCID", ""), environment.get("SLURM_NTASKS", "")
    if not (rank.isascii() and rank.isdigit() and tasks.isascii() and tasks.isdigit()):
        raise ValueError("`auto` needs SLURM_PROCID and SLURM_NTASKS, which `srun` sets for each of its tasks")
    return f"{int(rank) + 1}/{int(tasks)}"
