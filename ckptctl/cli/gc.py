"""`ckptctl gc`: retention, leftovers, trash, pins."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ckptctl.cli.answer import emit, tell_transaction, unsaid
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
    from ckptctl.domain.retention import GcRequest, GcResult
    from ckptctl.workflows.gc_archive import Archive
    from ckptctl.workflows.world import World

PathArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH",
        help="The checkpoint directory; without it the one of the configuration.",
        show_default=False,
    ),
]
KeepOption = Annotated[
    int | None,
    typer.Option(
        "--keep",
        metavar="N",
        min=1,
        help="Keep the newest N snapshots of each anchor. Default: keep_latest_k of the configuration, or 2.",
        show_default=False,
    ),
]
MinValidOption = Annotated[
    int, typer.Option("--min-valid", metavar="N", min=1, help="Keep at least N valid ones of each anchor.")
]


class ProofLevelName(StrEnum):
    """How deep `gc` looks before a snapshot counts as valid."""

    STANDARD = "standard"
    FULL = "full"


LevelOption = Annotated[
    ProofLevelName,
    typer.Option("--level", help="What counts as valid: full reads every byte, as a restore does, and takes longer."),
]
GraceOption = Annotated[
    str,
    typer.Option(
        "--grace",
        metavar="DURATION",
        help="How long the trash is kept, and an abandoned tmp_ left alone (at least 1h: its writer may be alive).",
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be kept and deleted, and change nothing.")
]
ArchiveOption = Annotated[
    str | None,
    typer.Option(
        "--archive",
        metavar="DIR",
        help="Pack every snapshot into DIR (.tar.zst) before it goes; what cannot be packed stays.",
        show_default=False,
    ),
]
SessionsOption = Annotated[
    bool,
    typer.Option(
        "--sessions",
        help="Retire leaked resource sessions of the live servers, and nothing else; the answer is that of `snapshot`.",
    ),
]
UndeleteOption = Annotated[
    str | None,
    typer.Option("--undelete", metavar="NAME", help="Bring a snapshot back from the trash.", show_default=False),
]
PinOption = Annotated[
    str | None,
    typer.Option("--pin", metavar="SNAPSHOT", help="Never delete SNAPSHOT; needs --reason.", show_default=False),
]
UnpinOption = Annotated[
    str | None, typer.Option("--unpin", metavar="SNAPSHOT", help="Take a pin away.", show_default=False)
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why it is pinned.", show_default=False)
]


def _archive_at(folder: str, checkpoint_dir: str, world: World) -> Archive:
    """The archive that `--archive` names, wherever links lead. Raises UsageError for a place of another checkpoint."""
    import os.path

    from ckptctl.adapters.local_store import LocalStore
    from ckptctl.adapters.pack_store import PackedReader
    from ckptctl.cli.place import demand_outside
    from ckptctl.workflows.gc_archive import Archive
    from ckptctl.workflows.targets import absolute

    real, whole = (os.path.realpath(path) for path in (absolute(folder), checkpoint_dir))
    inside = os.path.relpath(real, whole) if f"{real}/".startswith(f"{whole}/") else ""
    if not inside:  # what lies in this one is judged with its reasons by `gc` itself
        demand_outside("--archive", folder, real)
    return Archive(real, LocalStore(real), lambda: PackedReader(LocalStore(real), world.limits, world.room), inside)


WISHES = {
    "sessions": frozenset[str](),
    "undelete": frozenset({"path"}),
    "pin": frozenset({"path", "reason"}),
    "unpin": frozenset({"path"}),
}
"""What is no collecting, and what each is told with; everything else that was typed would be passed over in silence."""
ALWAYS = frozenset({"break_lock", "config", "output_format", "output", "verbose", "quiet", "memory", "_metrics"})


def _demand_one_wish(ctx: typer.Context) -> None:
    """Raise UsageError for options that do not go together, defaults that were typed included."""
    from ckptctl.errors import UsageError

    typed = {}
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            typed[parameter.name or ""] = parameter
    for wish, takes in WISHES.items():
        others = [one for name, one in typed.items() if name != wish and name not in takes | ALWAYS]
        if wish in typed and others:
            told = ", ".join("PATH" if one.name == "path" else f"`{max(one.opts, key=len)}`" for one in others)
            raise UsageError(
                f"`--{wish}` stands alone, without {told}", hint="run `ckptctl gc` once more, without it, for the rest"
            )


def _retire_sessions(settings: Settings, *, break_lock: bool) -> None:
    """`gc --sessions`: everything but publishing, so the answer is a transaction's."""
    from ckptctl.cli.wiring import run_live
    from ckptctl.domain.transaction import SnapshotRequest
    from ckptctl.workflows.snapshot import take_snapshot

    request = SnapshotRequest(force=True, sessions_only=True, break_lock=break_lock)
    result = run_live(settings, lambda world, run: take_snapshot(world, run, request))
    settings.notes.transaction(result, None)
    tell_transaction(settings, result)


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command(
        "gc", short_help="Delete what retention does not keep; every item has its reasons.", epilog=epilog("gc")
    )(gc)


def gc(
    ctx: typer.Context,
    path: PathArgument = None,
    keep: KeepOption = None,
    min_valid: MinValidOption = 1,
    level: LevelOption = ProofLevelName.STANDARD,
    grace: GraceOption = "1d",
    dry_run: DryRunOption = False,
    archive: ArchiveOption = None,
    sessions: SessionsOption = False,
    undelete: UndeleteOption = None,
    pin: PinOption = None,
    unpin: UnpinOption = None,
    reason: ReasonOption = None,
    break_lock: BreakLockOption = False,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
    memory: MemoryOption = None,
    _metrics: MetricsOption = None,
) -> None:
    """Delete old snapshots and leftovers of interrupted work: first into .ckptctl/trash, after a grace period for good.

    The newest valid snapshot of an anchor always stays (of bootstrap until a durable step has a valid one), in the trash
    too while there is none beside it, and so does whatever is pinned or used by an unfinished transaction. Every item is
    listed with every reason.

    With --sessions it asks the live servers instead: prepare, retire what no attempt is using, resume.

    --sessions, --undelete, --pin and --unpin collect nothing: each stands alone, and options that say what is collected
    are refused beside it.
    """
    settings = remember(ctx, config, output_format, output, verbose, quiet, memory)
    _demand_one_wish(ctx)
    if sessions:
        _retire_sessions(settings, break_lock=break_lock)
        return
    from ckptctl.cli.durations import parse_duration_s
    from ckptctl.domain.retention import GcRequest

    request = GcRequest(
        keep=keep,
        min_valid=min_valid,
        grace_s=parse_duration_s(grace, "--grace"),
        level=level.value,
        dry_run=dry_run,
        undelete=undelete,
        pin=pin,
        unpin=unpin,
        reason=reason,
        break_lock=break_lock,
    )
    _tell(settings, _run(settings, path, request, archive))


def _run(settings: Settings, path: str | None, request: GcRequest, archive: str | None) -> GcResult:
    """One request, under the lock where it changes something."""
    from ckptctl.cli.offline import run_in
    from ckptctl.cli.stopping import terminating_in_order
    from ckptctl.workflows.gc import run_gc

    with terminating_in_order():
        return run_in(
            settings,
            path,
            lambda world, where, run: run_gc(
                world, where, request, run, None if archive is None else _archive_at(archive, where, world)
            ),
        )


def _tell(settings: Settings, result: GcResult) -> None:
    """The answer; raises StorageError when something could not be moved or deleted."""
    from ckptctl.render.gc_text import gc_text
    from ckptctl.render.machine import to_json
    from ckptctl.workflows.gc import remaining_error

    settings.notes.collect(result)
    emit(settings, to_json(result) if settings.format == "json" else gc_text(unsaid(settings, result)))
    if result.remaining():
        raise remaining_error(result)
