"""A whole cluster in one event loop: the embedded cluster's real applications behind a transport, and ckptctl's real client before it.

Nothing of the protocol is implemented here. What ckptctl sends goes through `Wire`, which keeps every request and can die.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx2
from fastapi import FastAPI

from ckptctl.adapters.channel import Channel
from ckptctl.adapters.clock import SystemClock
from ckptctl.adapters.control_http import HttpParticipants
from ckptctl.adapters.controller_http import HttpController
from ckptctl.adapters.journal import FileJournal
from ckptctl.adapters.local_store import LocalStore
from ckptctl.adapters.locks import FileLock, this_process
from ckptctl.adapters.progress import NoProgress
from ckptctl.domain.participant import Capabilities, MultiProcess
from ckptctl.formats.config_file import encode_yaml
from ckptctl.sim.agent_client import AgentClient
from ckptctl.sim.cluster_options import ClusterOptions
from ckptctl.sim.controller_process import ControllerServer
from ckptctl.sim.controller_settings import ControllerSettings
from ckptctl.sim.embedded_controller import EmbeddedController
from ckptctl.sim.environments import servers_of
from ckptctl.sim.fault_order import Fault
from ckptctl.sim.rollout_state import SAMPLER_NAME, new_state
from ckptctl.sim.run_config import agent_names, run_config
from ckptctl.sim.run_files import DISPATCHES, RESTORES, RESULTS, RunLog
from ckptctl.sim.trainer import Trainer
from ckptctl.workflows.load_config import load_config
from ckptctl.workflows.world import World
from tests.unit.sim.inprocess import TOKEN, Cluster, until


@dataclass
class Sent:
    """One request that ckptctl sent."""

    server: str
    method: str
    path: str
    body: dict = field(default_factory=dict)

    @property
    def route(self) -> str:
        return self.path.rpartition("/v1/")[2]


class Wire(httpx2.AsyncBaseTransport):
    """ckptctl's way into the cluster."""

    def __init__(self, network: httpx2.AsyncBaseTransport) -> None:
        self.network = network
        self.sent: list[Sent] = []
        self.before = None
        """Called with every request before it is sent; may be a coroutine function, may raise."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content) if request.content else {}
        sent = Sent(request.url.host, request.method, request.url.path, body)
        self.sent.append(sent)
        if self.before is not None:
            found = self.before(sent)
            if asyncio.iscoroutine(found):
                await found
        return await self.network.handle_async_request(request)

    def posts(self) -> list[tuple[str, str]]:
        """Server and route of every POST."""
        return [(item.server, item.route) for item in self.sent if item.method == "POST"]


class Simulated:
    """The cluster, its configuration, and worlds to run workflows in."""

    def __init__(
        self,
        directory: Path,
        *,
        options: ClusterOptions,
        delays: dict,
        incarnation: int = 1,
        restore_expected: bool = False,
        restart_only: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory
        self.options = options
        self.incarnation, self.restore_expected = incarnation, restore_expected
        self.notices: list[str] = []
        self.servers, self.agents = servers_of(options.environments), agent_names(options)
        self.participants = ("policy_model", *self.agents, *self.servers)
        self.cluster = Cluster(
            directory,
            delays=delays,
            incarnation=incarnation,
            restore_expected=restore_expected,
            servers=self.servers,
            agents=self.agents,
        )
        for name in restart_only:
            self.cluster.mount(name, forgetful_server(name))
        names = ("controller", *self.participants, *restart_only)
        config = run_config(str(directory), options, {name: f"https://{name}" for name in names})
        config["ckptctl"]["control_timeout_s"] = 2
        self.config_path = directory / "ckptctl.yaml"
        directory.mkdir(parents=True, exist_ok=True)
        self.config_path.write_bytes(encode_yaml(config))
        self.config = load_config(LocalStore(), str(self.config_path), "/")
        self.checkpoint_dir = Path(self.config.checkpoint_dir)
        self._raw = config
        self.server = self._controller(config)
        self.cluster.mount("controller", self.server)

    def _controller(self, config: dict) -> ControllerServer:
        run = {key: value for key, value in config.items() if key != "ckptctl"}
        trainer = Trainer(
            checkpoint_dir=config["checkpointing"]["checkpoint_dir"], config=run, sampler_name=SAMPLER_NAME
        )
        trainer.start()
        settings = ControllerSettings(
            port=0,
            run_dir=str(self.directory / "run"),
            seed=self.options.seed,
            config_path=str(self.config_path),
            agents={name: f"http://{name}" for name in self.agents},
            environments=self.options.environments,
            prompts=self.options.prompts,
            generations=self.options.generations,
            turns=self.options.turns,
            groups_per_step=self.options.groups_per_step,
            storage_units=self.options.storage_units,
            granularity=self.options.granularity,
            max_in_flight=self.options.max_in_flight,
            incarnation=self.incarnation,
            restore_expected=self.restore_expected,
            acknowledge_interval_s=self.options.acknowledge_interval_s,
        )
        agents = {name: AgentClient(name, f"http://{name}", self.cluster.http, TOKEN) for name in self.agents}
        logs = {name: RunLog(f"{settings.run_dir}/{name}") for name in (RESULTS, DISPATCHES, RESTORES)}
        controller = EmbeddedController(
            new_state(settings, trainer),
            agents,
            results=logs[RESULTS],
            dispatches=logs[DISPATCHES],
            restores=logs[RESTORES],
        )
        self.logs = logs
        return ControllerServer(settings, TOKEN, controller)

    @property
    def controller(self) -> EmbeddedController:
        return self.server.controller

    @asynccontextmanager
    async def world(self, **changes):
        """A world of its own, as a new process would have it."""
        wire = Wire(self.cluster.network)
        clock = SystemClock()
        own = self.config.sections.ckptctl
        async with Channel(token=TOKEN, clock=clock, notice=self.notices.append, transport=wire) as channel:
            made = World(
                store=LocalStore(self.config.checkpoint_dir),
                lock=FileLock(self.config.checkpoint_dir, owner=replace(this_process(), **changes)),
                journal=FileJournal(self.config.checkpoint_dir, clock),
                clock=clock,
                progress=NoProgress(),
                participants=HttpParticipants(channel, own.urls(), control_timeout_s=own.control_timeout_s),
                controller=HttpController(channel, own.controller.url, control_timeout_s=own.control_timeout_s),
                notice=self.notices.append,
                traffic=channel.traffic,
                under_way=channel.under_way,
                clocks_ahead=channel.clocks_ahead,
            )
            yield made, wire

    async def restart(self, name: str, *, restore_expected: bool | None = None) -> None:
        """Another process takes the place of one server; it knows nothing of what the old one did."""
        if restore_expected is not None:
            self.restore_expected = restore_expected
        self.incarnation += 1
        if name != "controller":
            if name in self.agents:
                await self.cluster.end_executions()
            self.cluster.restart(name, incarnation=self.incarnation, restore_expected=self.restore_expected)
            return
        await self.controller.stop()
        for log in self.logs.values():
            log.close()
        self.server = self._controller(self._raw)
        self.cluster.mount("controller", self.server)
        await self.controller.start()

    async def fault(self, server: str, **fault) -> None:
        """Order a fault of one server."""
        served = self.server if server == "controller" else self.cluster.reachable[server].app
        await served._order_fault(Fault.model_validate(fault))

    def clear_faults(self) -> None:
        for name in ("controller", *self.participants):
            (self.server if name == "controller" else self.cluster.reachable[name].app).faults.clear()

    async def run_in_flight(self, groups: int = 2, *, boundary: int = 2) -> None:
        """Start rollouts and return when each waits at a boundary of its own."""
        self.cluster.hold_at(boundary)
        self.controller.loop.set_goal(groups)
        wanted = groups * self.options.generations
        await until(lambda: len(self.cluster.parked()) == wanted)

    async def run_whole(self, groups: int, *, is_acknowledged: bool = True) -> None:
        """Run so many groups to their end."""
        self.controller.loop.set_goal(groups)
        state = self.controller.state
        await until(lambda: state.finished_count() == groups and not (is_acknowledged and state.ledger.outbox()))

    async def finish_run(self) -> None:
        """Let everything run to its end."""
        self.cluster.hold_at(-1)
        state = self.controller.state
        await until(lambda: not state.ledger.groups() and not state.ledger.outbox())

    def phases(self) -> dict[str, tuple[str, str | None]]:
        """Phase and active id of everybody."""
        participants = {"policy_model": self.cluster.policy, **self.cluster.agents, **self.cluster.resources}
        fences = {name: server.service.checkpoint.fence for name, server in participants.items()}
        fences["controller"] = self.server.service.fence
        return {name: (fence.phase, fence.active_checkpoint_id) for name, fence in fences.items()}

    def is_released(self) -> bool:
        """Whether everybody is idle and accepts work."""
        idle = all(phase == ("idle", None) for phase in self.phases().values())
        return (
            idle
            and self.controller.loop.is_open
            and all(server.service.checkpoint.is_open for server in self.cluster.resources.values())
            and self.cluster.policy.service.checkpoint.is_open
            and all(store.is_open for store in self.cluster.stores())
        )

    def snapshots(self) -> list[str]:
        """Names under every anchor's snapshot folder."""
        return sorted(path.name for path in self.checkpoint_dir.glob("*/rollout_snapshots/*"))


def forgetful_server(name: str) -> FastAPI:
    """A resources server that cannot export its state: nobody asks it for more than its capabilities."""
    app = FastAPI()
    capabilities = Capabilities(
        component="resources_servers",
        name=name,
        schema_version=1,
        admission_states=["accepting"],
        checkpoint_mode="restart_only",
        concurrency_contract="stateless",
        multi_process=MultiProcess(mode="single_worker", num_workers=1),
    )
    answer = capabilities.model_dump(mode="json")
    app.get("/ng-control/v1/capabilities")(lambda: answer)
    return app


@asynccontextmanager
async def simulated(
    directory: Path,
    *,
    delays: dict | None = None,
    incarnation: int = 1,
    restore_expected: bool = False,
    restart_only: tuple[str, ...] = (),
    **options,
):
    """A running cluster. Leaving it is the death of all its processes: a later incarnation finds the files and nothing else."""
    made = Simulated(
        directory,
        options=ClusterOptions.model_validate(options),
        delays=delays or {},
        incarnation=incarnation,
        restore_expected=restore_expected,
        restart_only=restart_only,
    )
    await made.controller.start()
    try:
        yield made
    finally:
        await made.controller.stop()
        await made.cluster.end_executions()
        made.cluster.end_logs()
        for log in made.logs.values():
            close = getattr(log, "close", None)
            if close is not None:
                close()
        await made.cluster.http.aclose()
