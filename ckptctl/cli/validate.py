"""`ckptctl validate`: prove snapshots, anchors, checkpoint directories and data planes."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ckptctl.cli.exit_status import epilog
from ckptctl.cli.metrics import MetricsOption
from ckptctl.cli.options import (
    ConfigOption,
    OutputOption,
    QuietOption,
    ReportFormat,
    ReportFormatOption,
    Settings,
    VerboseOption,
    remember,
)
from ckptctl.cli.report_output import write_report, write_rules
from ckptctl.cli.sizes import MemoryOption
from ckptctl.cli.validate_parts import MergeOption, ShardOption, SubsetOption, demand_alone, output_of, share_of

if TYPE_CHECKING:
    from ckptctl.domain.evidence import RunFacts
    from ckptctl.domain.finding import Report
    from ckptctl.workflows.validate import ValidateRequest


class LevelName(StrEnum):
    """How deep to look."""

    QUICK = "quick"
    STANDARD = "standard"
    FULL = "full"


PathsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH",
        help="Snapshots, anchors (step_N, bootstrap), checkpoint directories, data planes, packs (.tar.zst).",
        show_default=False,
    ),
]
LevelOption = Annotated[
    LevelName | None, typer.Option("--level", help="How deep to look. [default: standard]", show_default=False)
]
SelectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="RULE",
        help="Only these rules or families (LED, LED004); repeatable.",
        show_default=False,
    ),
]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="RULE", help="Not these rules or families; repeatable.", show_default=False),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Exit 10 when there are warnings only.")]
CapabilitiesOption = Annotated[
    str | None,
    typer.Option(
        "--capabilities",
        metavar="FILE",
        help="Saved discovery, for the rules that need a topology.",
        show_default=False,
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        max=1024,
        help="Threads that hash staged rows at level full (default: all usable cores).",
        show_default=False,
    ),
]
ExplainOption = Annotated[
    str | None,
    typer.Option("--explain", metavar="RULE", help="Say what a rule is about and how to mend it.", show_default=False),
]
ListRulesOption = Annotated[bool, typer.Option("--list-rules", help="List every rule.")]


def register(app: typer.Typer) -> None:
    """Add the command to the root."""
    app.command(
        "validate",
        short_help="Prove snapshots, anchors, checkpoint directories, data planes.",
        epilog=epilog("validate"),
    )(validate)


def validate(
    ctx: typer.Context,
    paths: PathsArgument = None,
    level: LevelOption = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    strict: StrictOption = False,
    capabilities: CapabilitiesOption = None,
    explain: ExplainOption = None,
    list_rules: ListRulesOption = False,
    shard: ShardOption = None,
    read_data_subset: SubsetOption = None,
    merge: MergeOption = False,
    memory: MemoryOption = None,
    jobs: JobsOption = None,
    config: ConfigOption = None,
    output_format: ReportFormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
    _metrics: MetricsOption = None,
) -> None:
    """Prove snapshots: a whole checkpoint directory, an anchor, one snapshot, a packed one, or a data plane alone.

    Nothing found in them is executed or followed, and nothing is called valid that could not be checked.
    """
    share = share_of(shard, read_data_subset, level.value if level is not None else None)
    given = (config, output_format, output, verbose, quiet, memory)
    settings = remember(ctx, *given, formats=ReportFormat, name_of=partial(output_of, share))
    if explain is not None or list_rules:
        write_rules(settings, explain)
        return
    from ckptctl.adapters.cores import usable_cores
    from ckptctl.cli.offline import room_of
    from ckptctl.workflows.validate import ValidateRequest, exit_code

    if merge:
        demand_alone(level, select, ignore, capabilities, share)
        report = _merged(paths)
    else:
        named = _demand_paths(paths)
        request = ValidateRequest(
            paths=named,
            level="full" if share is not None else (level or LevelName.STANDARD).value,
            select=tuple(select or ()),
            ignore=tuple(ignore or ()),
            strict=strict,
            capabilities_path=capabilities,
            run=_run_of(settings, named),
            limits=settings.limits,
            room=room_of(settings),
            share=share,
            jobs=jobs or usable_cores(),
        )
        report = _judged(settings, request)
    settings.notes.report(report, paths or ())
    code = exit_code(report, strict=strict)
    write_report(settings, report, code, strict=strict)
    raise typer.Exit(int(code))


def _demand_paths(paths: list[str] | None) -> tuple[str, ...]:
    from ckptctl.errors import UsageError

    if not paths:
        raise UsageError(
            "validate needs at least one PATH", hint="`ckptctl validate <checkpoint_dir>` checks everything in it"
        )
    return tuple(paths)


def _merged(paths: list[str] | None) -> Report:
    from ckptctl.adapters.local_store import LocalStore
    from ckptctl.workflows.shards import merge_reports

    return merge_reports(LocalStore(), tuple(paths or ()))


def _judged(settings: Settings, request: ValidateRequest) -> Report:
    """Read with progress, packs as well, and judge."""
    from ckptctl.adapters.pack_store import PackedReader
    from ckptctl.cli.offline import reported_store
    from ckptctl.workflows.validate import validate as run_validation

    store, progress = reported_store(settings)
    with PackedReader(store, request.limits, request.room) as reader:
        return run_validation(reader, request, progress)


def _run_of(settings: Settings, paths: tuple[str, ...]) -> RunFacts:
    """What the run's configuration says; one that only the environment names is used for paths of its run alone."""
    from ckptctl.cli.offline import is_inside, load, notice_of
    from ckptctl.domain.evidence import RunFacts
    from ckptctl.workflows.validate import run_facts

    if settings.config is None:
        return RunFacts()
    config = load(settings)
    strangers = [path for path in paths if not is_inside(path, config.checkpoint_dir)]
    if strangers and not settings.is_config_named:
        notice_of(settings)(f"`{strangers[0]}` does not lie in `{config.checkpoint_dir}`: `{config.path}` is not used")
        return RunFacts()
    return run_facts(config.raw)
