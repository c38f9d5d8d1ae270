"""`ckptctl sim`: the embedded cluster. The only module that knows the package `sim`, and only when one of its commands runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckptctl.cli import sim_options as given
from ckptctl.cli.answer import emit, note
from ckptctl.cli.exit_status import epilog
from ckptctl.cli.options import ConfigOption, FormatOption, OutputOption, QuietOption, Settings, VerboseOption, remember
from ckptctl.cli.sim_options import DEFAULT_ENVIRONMENTS, DataPlaneName, GranularityName

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ckptctl.sim.answers import ClusterAnswer
    from ckptctl.sim.cluster_options import ClusterRecord

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The embedded cluster: a real one in small, on this machine.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

DirOption = Annotated[str, typer.Option("--dir", metavar="DIR", help="The run directory of the cluster.")]
PATIENCE_S = 600.0


def _require_extra() -> None:
    from importlib.util import find_spec

    from ckptctl.errors import UsageError

    absent = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if absent:
        raise UsageError(
            f"the embedded cluster needs {' and '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not installed",
            hint="pip install 'ckptctl[sim]'",
        )


def _answer(settings: Settings, document: Any) -> None:
    from ckptctl.domain.safe_text import safe
    from ckptctl.render.console import flow
    from ckptctl.render.machine import to_json

    emit(settings, to_json(document) if settings.format == "json" else flow(safe(document.text(), keep_newlines=True)))


def _run(work: Any) -> Any:
    from ckptctl.cli.sim_stopping import run_to_end

    return run_to_end(work)


async def _shown(starting: Awaitable[ClusterRecord]) -> ClusterAnswer:
    """What a start came to; one that is stopped before its answer is known leaves nothing running."""
    from ckptctl.sim import cluster

    record = await starting
    try:
        return await _cluster_answer(record)
    except BaseException:
        cluster.down(record.run_dir, kill=True)
        raise


@app.command("up", short_help="Start a cluster of real processes on this machine.", epilog=epilog("sim"))
def up(
    ctx: typer.Context,
    run_dir: DirOption,
    environments: given.EnvironmentsOption = None,
    agents: given.AgentsOption = 1,
    prompts: given.PromptsOption = 8,
    generations: given.GenerationsOption = 2,
    turns: given.TurnsOption = 6,
    workers: given.WorkersOption = 2,
    seed: given.SeedOption = 7,
    turn_delay: given.TurnDelayOption = 0.0,
    generation_delay: given.GenerationDelayOption = 0.0,
    groups_per_step: given.GroupsPerStepOption = 2,
    in_flight: given.InFlightOption = 8,
    train_every: given.TrainEveryOption = 0,
    granularity: given.GranularityOption = GranularityName.SIBLING,
    data_plane: given.DataPlaneOption = DataPlaneName.EMBEDDED,
    acknowledge_interval: given.AcknowledgeIntervalOption = 0.02,
    prepare_timeout: given.PrepareTimeoutOption = 60.0,
    restore_expected: given.RestoreExpectedOption = False,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Start a cluster: policy model with its workers, agents, resources servers and controller, each a process on loopback.

    Environments: counter (a repeated or lost increment costs the reward), workplace (tables, and one sentinel event exactly
    once), genrm (a judge without a memory that survives: its dependants restart). Prompts go to them in turn.

    DIR/ckptctl.yaml is the configuration for ckptctl's other commands. The processes outlive this command; end them
    with `sim down`. With CKPTCTL_SIM_OWNER=PID:START_TICKS in the environment they end with that process.
    """
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    _require_extra()
    from ckptctl.sim import cluster

    options = given.options_of(
        environments=tuple(environments or DEFAULT_ENVIRONMENTS),
        agents=agents,
        prompts=prompts,
        generations=generations,
        turns=turns,
        workers=workers,
        seed=seed,
        turn_delay_s=turn_delay,
        generation_delay_s=generation_delay,
        groups_per_step=groups_per_step,
        max_in_flight=in_flight,
        train_every_groups=train_every,
        granularity=granularity.value,
        data_plane=data_plane.value,
        acknowledge_interval_s=acknowledge_interval,
        prepare_timeout_s=prepare_timeout,
    )
    starting = cluster.up(_own_folder(run_dir), options, restore_expected=restore_expected)
    _answer(settings, _run(_shown(starting)))


@app.command("run", epilog=epilog("sim"))
def run(
    ctx: typer.Context,
    run_dir: DirOption,
    until_groups: Annotated[
        int | None,
        typer.Option(
            "--until-groups", min=1, help="How many groups there shall be. Default: one per prompt.", show_default=False
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when they are finished.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait at most.")] = PATIENCE_S,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Send rollouts through the cluster, or go on with it."""
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    record = _record(run_dir)
    from ckptctl.sim.answers import RunAnswer
    from ckptctl.sim.cluster_client import ClusterClient

    goal = until_groups or record.options.prompts

    async def start() -> dict[str, Any]:
        async with ClusterClient(record) as client:
            status = await client.begin_run(goal)
            return await client.wait_finished(goal, timeout) if wait else status

    _answer(settings, RunAnswer.of(_run(start()), record.run_dir))


@app.command("status", epilog=epilog("sim"))
def status(
    ctx: typer.Context,
    run_dir: DirOption,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Show processes, phases and how far the run is."""
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    _answer(settings, _run(_cluster_answer(_record(run_dir))))


@app.command("step", short_help="Train on finished groups and publish the checkpoint step_N.", epilog=epilog("sim"))
def step(
    ctx: typer.Context,
    run_dir: DirOption,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Train on the next finished groups and publish the trainer checkpoint step_N."""
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    record = _record(run_dir)
    from ckptctl.sim.answers import RunAnswer
    from ckptctl.sim.cluster_client import ClusterClient

    async def train() -> dict[str, Any]:
        async with ClusterClient(record) as client:
            await client.train()
            return await client.run_status()

    _answer(settings, RunAnswer.of(_run(train()), record.run_dir))


@app.command("fault", short_help="Order a fault of one server.", epilog=epilog("sim"))
def fault(
    ctx: typer.Context,
    run_dir: DirOption,
    server: given.ServerOption = None,
    operation: given.OperationOption = None,
    kind: given.FaultKindOption = None,
    code: given.CodeOption = None,
    http_status: given.HttpStatusOption = None,
    times: given.TimesOption = None,
    delay: given.DelayOption = None,
    rollout: given.RolloutOption = None,
    clear: given.ClearOption = False,
    list_all: given.ListOption = False,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Order a fault of one server: what the next matching requests will meet.

    Operations are control routes without their prefix, such as save or admission/close, and `generate` for a model
    call. refuse and status answer with an error and do nothing; lost breaks the connection before the request is looked at,
    drop and cut after it was done; slow, stall and late wait; wrong_digest, wrong_count and rubbish falsify the answer.
    """
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    from ckptctl.cli import sim_faults

    sim_faults.demand_one(server, kind, clear=clear, list_all=list_all)
    order = sim_faults.order_of(
        kind,
        {
            "operation": operation,
            "code": code,
            "status": http_status,
            "times": times,
            "delay_s": delay,
            "rollout_id": rollout,
        },
    )
    _answer(settings, _run(sim_faults.give(_record(run_dir), server, order, list_all=list_all)))


@app.command("down", epilog=epilog("sim"))
def down(
    ctx: typer.Context,
    run_dir: DirOption,
    kill: Annotated[bool, typer.Option("--kill", help="SIGKILL at once, as a crash would.")] = False,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """End every process of the cluster, and nothing else."""
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    record = _record(run_dir)
    from ckptctl.sim import cluster

    cluster.down(record.run_dir, kill=kill)
    _answer(settings, _run(_cluster_answer(record)))


@app.command("restart", short_help="Kill what still runs and start fresh processes.", epilog=epilog("sim"))
def restart(
    ctx: typer.Context,
    run_dir: DirOption,
    restore_expected: Annotated[
        bool,
        typer.Option(
            "--restore-expected/--fresh",
            help="Wait for `ckptctl restore` (the default), or start from the newest trainer checkpoint.",
            show_default=False,
        ),
    ] = True,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Kill what still runs and start fresh processes, on new ports, in the next incarnation."""
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    _require_extra()
    from ckptctl.sim import cluster

    starting = cluster.restart(_record(run_dir).run_dir, restore_expected=restore_expected)
    _answer(settings, _run(_shown(starting)))


@app.command("compare", short_help="Compare a restored run with an uninterrupted one.", epilog=epilog("sim compare"))
def compare(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(metavar="DIR_A", help="The uninterrupted run.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="DIR_B", help="The restored run.", show_default=False)],
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Compare a restored run with an uninterrupted one: same results, each mutation once. Exit 13 when they differ."""
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    first_dir, record = _folder(first), _record(second)
    from ckptctl.errors import ExitCode
    from ckptctl.sim import equivalence

    found = equivalence.compare(first_dir, record.run_dir, ", ".join(record.options.environments))
    _answer(settings, found)
    raise typer.Exit(int(ExitCode.DONE if found.equal else ExitCode.INVALID))


@app.command(
    "demo", short_help="Snapshot, kill everything, restore, compare: the whole story.", epilog=epilog("sim demo")
)
def demo(
    ctx: typer.Context,
    run_dir: Annotated[
        str | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Keep both runs here. Default: a directory that is removed.",
            show_default=False,
        ),
    ] = None,
    environments: given.EnvironmentsOption = None,
    prompts: Annotated[int, typer.Option("--prompts", min=2, help="Rows of the dataset.")] = 8,
    turns: given.TurnsOption = 6,
    turn_delay: Annotated[
        float, typer.Option("--turn-delay", min=0, help="Seconds an agent thinks before each action.")
    ] = 0.05,
    seed: Annotated[int, typer.Option("--seed", help="Fixes prompts, tokens, tool calls and rewards.")] = 7,
    data_plane: given.DataPlaneOption = DataPlaneName.EMBEDDED,
    config: ConfigOption = None,
    output_format: FormatOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Run, snapshot, kill everything, restore, finish, and prove that the result is that of an uninterrupted run."""
    settings = remember(ctx, config, output_format, output, verbose, quiet)
    _require_extra()
    from tempfile import TemporaryDirectory

    from ckptctl.sim import demo as show

    options = given.options_of(
        environments=tuple(environments or DEFAULT_ENVIRONMENTS),
        prompts=prompts,
        turns=turns,
        turn_delay_s=turn_delay,
        seed=seed,
        max_in_flight=4,
        data_plane=data_plane.value,
    )
    with TemporaryDirectory(prefix="ckptctl-demo-") as scratch:
        where = scratch if run_dir is None else _own_folder(run_dir)
        answer = _run(show.demo(where, options, lambda text: note(settings, text)))
        _answer(settings, answer)
    raise typer.Exit(answer.exit_code)


def _folder(path: str) -> str:
    from ckptctl.workflows.targets import absolute

    return absolute(path)


def _own_folder(run_dir: str) -> str:
    from ckptctl.cli.place import demand_outside

    demand_outside("--dir", run_dir, folder := _folder(run_dir))
    return folder


def _record(run_dir: str) -> ClusterRecord:
    from ckptctl.sim.cluster_options import read_record

    return read_record(_folder(run_dir))


async def _cluster_answer(record: ClusterRecord) -> ClusterAnswer:
    from ckptctl.sim.cluster_client import observe

    return await observe(record)
