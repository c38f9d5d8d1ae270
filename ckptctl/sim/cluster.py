"""Starting and ending an embedded cluster: real processes on loopback, one record in the run directory.

    up       a new cluster, or a stopped one from its newest trainer anchor alone
    restart  the same cluster with new processes, on new ports, in the next incarnation; what still runs is killed first
    down     end every process of the record, and nothing else

A start that fails, is stopped or is killed half-way leaves no process behind that the record does not name. What the processes do
is their own modules' business.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ckptctl.adapters import durable
from ckptctl.controller.live_tq import require_extra
from ckptctl.domain.canonical import pretty2
from ckptctl.domain.safe_text import safe
from ckptctl.errors import CkptctlError, NothingThereError, RefusedError, UnreachableError, UsageError
from ckptctl.formats.config_file import encode_yaml
from ckptctl.sim.cluster_client import ClusterClient
from ckptctl.sim.cluster_options import (
    CAPTURE_FOLDER,
    CONFIG_FILE,
    LOGS_FOLDER,
    SETTINGS_FOLDER,
    TOKEN_FILE,
    ClusterOptions,
    ClusterRecord,
    read_record,
    write_record,
)
from ckptctl.sim.controller_settings import ControllerSettings
from ckptctl.sim.environments import KINDS, servers_of
from ckptctl.sim.life_line import LifeLine
from ckptctl.sim.one_start import only_start
from ckptctl.sim.processes import ProcessIdentity, is_alive, launch, stop
from ckptctl.sim.queue_host import scratch_folder
from ckptctl.sim.run_config import POLICY_MODEL, STAGING_PARTITION, agent_names, capacity, run_config
from ckptctl.sim.settings import (
    TOKEN_ENV,
    AgentSettings,
    PolicyModelSettings,
    PolicyWorkerSettings,
    QueueSettings,
    ResourcesSettings,
    ServerSettings,
)

HOST = "127.0.0.1"
CONTROLLER = "controller"
LIVE_QUEUE = "transfer_queue"
LIVE_QUEUE_START_S = 240
"""More patience with a cluster that starts a live queue: Ray and its actors load torch."""
SECRET_MODE = 0o600
MOST_AGENTS_AND_WORKERS = 256
"""Each is a process with a port of its own: thousands would take the machine with them, and it is a cluster in small."""
START_TRIES = 3
PORT_TAKEN = "address already in use"


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One process that is to be started."""

    name: str
    role: str
    settings: ServerSettings


async def up(
    run_dir: str, options: ClusterOptions, *, restore_expected: bool = False, timeout_s: float = 60
) -> ClusterRecord:
    """Start a cluster and wait until all of it answers.

    Raises:
        RefusedError: one runs in this directory already, or is being started there.
        UnreachableError: a process ended or did not answer; none is left running.
    """
    assert run_dir.startswith("/"), "the run directory is an absolute path"
    require_playable(options)
    _next_incarnation(run_dir)  # a refusal makes no directory
    with only_start(run_dir):
        return await _start(run_dir, options, _next_incarnation(run_dir), restore_expected, timeout_s)


async def restart(run_dir: str, *, restore_expected: bool, timeout_s: float = 60) -> ClusterRecord:
    """Kill what still runs of a cluster and start its next incarnation. Raises as `up`, and NothingThereError."""
    with only_start(run_dir):
        record = down(run_dir, kill=True)
        require_playable(record.options)
        return await _start(record.run_dir, record.options, record.incarnation + 1, restore_expected, timeout_s)


def down(run_dir: str, *, kill: bool) -> ClusterRecord:
    """End every process of a cluster.

    Raises:
        NothingThereError: there is no cluster.
        UnreachableError: a process does not end.
    """
    record = read_record(run_dir)
    left = _end(record, kill=kill)
    if left:
        names = ", ".join(process.name for process in record.processes if process.identity in left)
        raise UnreachableError(server=names, operation="the end", detail="it does not end, not even when killed")
    return record


async def _start(
    run_dir: str, options: ClusterOptions, incarnation: int, restore_expected: bool, timeout_s: float
) -> ClusterRecord:
    token = _prepare_directory(run_dir, incarnation)
    for attempt in range(START_TRIES):
        record = _spawn_all(run_dir, options, incarnation, restore_expected, token)
        try:
            async with ClusterClient(record) as client:
                await client.wait_ready(
                    timeout_s + (LIVE_QUEUE_START_S if options.data_plane == "transferqueue" else 0)
                )
        except BaseException as error:
            _end(record, kill=True)
            problem = _first_problem(error)
            if problem is None:
                raise
            # Somebody else took a port between its choice and its use: choose again.
            if PORT_TAKEN not in problem.message or attempt == START_TRIES - 1:
                raise problem from error
        else:
            return record
    raise AssertionError("the last try returns or raises")


def _end(record: ClusterRecord, *, kill: bool) -> tuple[ProcessIdentity, ...]:
    """End the processes; a live queue's files go with it. Returns those that do not end."""
    left = stop([process.identity for process in record.processes], kill=kill)
    for process in record.processes:
        if process.role == "transferqueue" and process.identity not in left:
            durable.remove_tree(scratch_folder(process.identity))
    return left


def require_playable(options: ClusterOptions) -> None:
    """Refuse options that no run could come to an end with. Raises UsageError."""
    if options.data_plane == "transferqueue":
        require_extra()
    count = options.agents + options.workers
    if count > MOST_AGENTS_AND_WORKERS:
        raise UsageError(
            f"{count:,} agents and policy workers are each a process on this machine, and a cluster has "
            f"{MOST_AGENTS_AND_WORKERS} of them at most",
            hint="ask for fewer; `--in-flight` and `--prompts` make a run larger",
        )
    for name in options.environments:
        if name not in KINDS:
            raise UsageError(f"no environment `{name}`", hint=f"there are: {', '.join(sorted(KINDS))}")
        kind = KINDS[name]
        if kind.most_steps is not None and options.turns > kind.most_steps:
            raise UsageError(
                f"`{name}` cannot take {options.turns} turns: a session keeps the receipt of every call that changes it, 1,024 "
                f"at most, so a rollout may ask for {kind.most_steps:,}; one that goes on fails, at every attempt",
                hint="ask for fewer turns",
            )
        if kind.awaits is not None and options.max_in_flight < options.generations:
            raise UsageError(
                f"`{name}` scores a group when all {options.generations} siblings have registered, but only "
                f"{options.max_in_flight} rollouts may be in flight: no group would ever be finished",
                hint="allow at least as many rollouts in flight as a prompt has generations",
            )
    if len(set(options.environments)) < len(options.environments):
        raise UsageError("an environment is named twice", hint="name each once; prompts go to them in turn")


def _first_problem(error: BaseException) -> CkptctlError | None:
    """The first CkptctlError of a task group's failure."""
    if isinstance(error, BaseExceptionGroup):
        found = (_first_problem(inner) for inner in error.exceptions)
        return next((problem for problem in found if problem is not None), None)
    return error if isinstance(error, CkptctlError) else None


def _next_incarnation(run_dir: str) -> int:
    """The incarnation that a new start is. Raises RefusedError while a cluster runs."""
    try:
        before = read_record(run_dir)
    except NothingThereError:
        return 1
    if any(is_alive(process.identity) for process in before.processes):
        hint = f"end it with `ckptctl sim down --dir {quote(safe(run_dir))}`"
        raise RefusedError(f"a cluster runs in `{run_dir}` already", hint=hint)
    return before.incarnation + 1


def _prepare_directory(run_dir: str, incarnation: int) -> str:
    """Folders, the token (minted once), and a clean capture directory. Returns the token."""
    for folder in ("", SETTINGS_FOLDER, LOGS_FOLDER):
        durable.make_directory(f"{run_dir}/{folder}".rstrip("/"))
    capture = f"{run_dir}/{CAPTURE_FOLDER}"
    durable.remove_tree(capture)
    durable.make_directory(f"{capture}/{incarnation}")
    path = f"{run_dir}/{TOKEN_FILE}"
    durable.create_file(path, secrets.token_urlsafe(32).encode(), mode=SECRET_MODE)
    return Path(path).read_text(encoding="ascii")


def _spawn_all(
    run_dir: str, options: ClusterOptions, incarnation: int, restore_expected: bool, token: str
) -> ClusterRecord:
    planned = list(_planned(run_dir, options, incarnation, restore_expected))
    inner = ("policy_worker", "transferqueue")  # nobody whom ckptctl talks to
    urls = {process.name: _url(process.settings.port) for process in planned if process.role not in inner}
    config = encode_yaml(run_config(run_dir, options, urls))
    durable.write_file(f"{run_dir}/{CONFIG_FILE}", config, mode=SECRET_MODE)
    plan = [_entry(run_dir, incarnation, process) for process in planned]
    with LifeLine() as line:
        started = launch(plan, environment={TOKEN_ENV: token}, life_line=line.reader)
        processes = [
            {
                "name": process.name,
                "role": process.role,
                "pid": identity.pid,
                "start_ticks": identity.start_ticks,
                "url": _url(process.settings.port),
                "log": entry["log"],
            }
            for process, entry, identity in zip(planned, plan, started, strict=True)
        ]
        record = ClusterRecord.model_validate(
            {
                "run_dir": run_dir,
                "incarnation": incarnation,
                "restore_expected": restore_expected,
                "started_at": time.time(),
                "options": options,
                "processes": processes,
            }
        )
        write_record(record)
        line.release(len(started))
    return record


def _entry(run_dir: str, incarnation: int, process: PlannedProcess) -> dict[str, str]:
    """One process as the launcher takes it; its settings are written."""
    settings_path = f"{run_dir}/{SETTINGS_FOLDER}/{process.name}.json"
    durable.write_file(settings_path, pretty2(process.settings.model_dump(mode="json")))
    log = f"{run_dir}/{LOGS_FOLDER}/{process.name}-{incarnation}.log"
    return {"role": process.role, "settings": settings_path, "log": log}


def _planned(
    run_dir: str, options: ClusterOptions, incarnation: int, restore_expected: bool
) -> Iterator[PlannedProcess]:
    workers = [f"worker-{index}" for index in range(options.workers)]
    servers, agents = servers_of(options.environments), agent_names(options)
    queues = [LIVE_QUEUE] if options.data_plane == "transferqueue" else []
    names = [*queues, *workers, POLICY_MODEL, *servers, *agents, CONTROLLER]
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    urls = {name: _url(port) for name, port in ports.items()}

    def common(name: str) -> dict[str, object]:
        return {
            "name": name,
            "host": HOST,
            "port": ports[name],
            "run_dir": run_dir,
            "incarnation": incarnation,
            "seed": options.seed,
            "restore_expected": restore_expected,
        }

    def planned(role: str, settings: ServerSettings) -> PlannedProcess:
        return PlannedProcess(settings.name, role, settings)

    for name in queues:
        units = {"storage_units": options.storage_units}
        yield planned("transferqueue", QueueSettings.model_validate({**common(name), **units}))
    for name in workers:
        delay = {"generation_delay_s": options.generation_delay_s}
        yield planned("policy_worker", PolicyWorkerSettings.model_validate({**common(name), **delay}))
    model = {
        **common(POLICY_MODEL),
        "workers": {name: urls[name] for name in workers},
        "controller_url": urls[CONTROLLER],
        "staging_partition": STAGING_PARTITION,
        "capture_dir": f"{run_dir}/{CAPTURE_FOLDER}/{incarnation}",
    }
    yield planned("policy_model", PolicyModelSettings.model_validate(model))
    for name in servers:
        yield planned("resources", ResourcesSettings.model_validate({**common(name), "environment": name}))
    peers = {name: urls[name] for name in (POLICY_MODEL, *servers)}
    facts = {"peers": peers, "model_server": POLICY_MODEL, "action_delay_s": options.turn_delay_s}
    for name in agents:
        yield planned("agent", AgentSettings.model_validate({**common(name), **facts}))
    places = {"agents": {name: urls[name] for name in agents}, "queue_url": urls.get(LIVE_QUEUE)}
    controller = {**common(CONTROLLER), **_controller_facts(run_dir, options), **places}
    yield planned("controller", ControllerSettings.model_validate(controller))


def _controller_facts(run_dir: str, options: ClusterOptions) -> dict[str, object]:
    return {
        "config_path": f"{run_dir}/{CONFIG_FILE}",
        "environments": options.environments,
        "prompts": options.prompts,
        "generations": options.generations,
        "turns": options.turns,
        "groups_per_step": options.groups_per_step,
        "granularity": options.granularity,
        "max_in_flight": options.max_in_flight,
        "capacity": capacity(options),
        "data_plane": options.data_plane,
        "storage_units": options.storage_units,
        "staging_partition": STAGING_PARTITION,
        "acknowledge_interval_s": options.acknowledge_interval_s,
        "finalize_delay_s": options.finalize_delay_s,
        "publish_delay_s": options.publish_delay_s,
        "train_every_groups": options.train_every_groups,
    }


def _free_ports(count: int) -> list[int]:
    """Different free ports; all are held until the last is chosen. Raises UsageError where there are not so many."""
    with ExitStack() as held:
        try:
            sockets = [held.enter_context(socket.socket()) for _ in range(count)]
            for one in sockets:
                one.bind((HOST, 0))
        except OSError as error:
            raise UsageError(
                f"there are no {count} free ports for this cluster: {error.strerror}",
                hint="ask for fewer agents and workers, or raise the limit of open files (`ulimit -n`)",
            ) from error
        return [int(one.getsockname()[1]) for one in sockets]


def _url(port: int) -> str:
    return f"http://{HOST}:{port}"
