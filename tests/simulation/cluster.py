"""The embedded cluster's real applications as processes of the simulation, and worlds for the coordinator's real workflows.

Everything that an incarnation of the cluster remembers dies with its processes; the disk and the run's logs stay.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from ckptctl.adapters.channel import Channel
from ckptctl.adapters.clock import SystemClock
from ckptctl.adapters.control_http import HttpParticipants
from ckptctl.adapters.controller_http import HttpController
from ckptctl.adapters.journal import FileJournal
from ckptctl.adapters.local_store import LocalStore
from ckptctl.adapters.locks import this_process
from ckptctl.adapters.progress import NoProgress
from ckptctl.domain.config import RunConfig
from ckptctl.formats.config_file import encode_yaml
from ckptctl.sim.agent import create_agent_app
from ckptctl.sim.cluster_options import ClusterOptions
from ckptctl.sim.controller_process import ControllerServer, build_server
from ckptctl.sim.controller_settings import ControllerSettings
from ckptctl.sim.policy_model import create_policy_app
from ckptctl.sim.policy_worker import create_worker_app
from ckptctl.sim.resources import create_resources_app
from ckptctl.sim.run_config import run_config
from ckptctl.sim.settings import AgentSettings, PolicyModelSettings, PolicyWorkerSettings, ResourcesSettings
from ckptctl.workflows.load_config import load_config
from ckptctl.workflows.world import World
from tests.simulation.kernel import ACTING, Kernel, Process
from tests.simulation.network import Line, Network, Served
from tests.simulation.sandbox import SimulatedLock
from tests.simulation.weather import Weather

T = TypeVar("T")
TOKEN = "simulated-token"
SITE = "/site"
RUN_DIR = f"{SITE}/run"
CONFIG = f"{SITE}/ckptctl.yaml"
CONTROL_TIMEOUT_S = 5.0
PREPARE_TIMEOUT_S = 30.0
PARTICIPANTS = ("policy_model", "simple_agent", "counter")
WORKER = "worker-0"


@dataclass(frozen=True, slots=True)
class Run:
    """What is the same in every incarnation of one run, and decides its results."""

    prompts: int = 2
    generations: int = 2
    turns: int = 3
    granularity: str = "sibling"
    keep_latest_k: int = 9

    def options(self) -> ClusterOptions:
        """As the command line would give them."""
        return ClusterOptions(
            prompts=self.prompts,
            generations=self.generations,
            turns=self.turns,
            granularity=self.granularity,  # one of the two by construction
            groups_per_step=1,
            workers=1,
            keep_latest_k=self.keep_latest_k,
            prepare_timeout_s=PREPARE_TIMEOUT_S,
            seed=11,
        )


@cache
def config_of(run: Run) -> tuple[bytes, str]:
    """The configuration file of a run, and its checkpoint directory."""
    config = run_config(SITE, run.options(), {name: f"https://{name}" for name in ("controller", *PARTICIPANTS)})
    config["ckptctl"]["control_timeout_s"] = CONTROL_TIMEOUT_S
    return encode_yaml(config), str(config["checkpointing"]["checkpoint_dir"])


class Machine:
    """Kernel, network and weather of one seed."""

    def __init__(self, kernel: Kernel, network: Network, weather: Weather, run: Run) -> None:
        self.kernel, self.network, self.weather, self.run = kernel, network, weather, run
        self.notices: list[str] = []
        self._config, self.checkpoint_dir = config_of(run)
        self._coordinators = 0

    def install_files(self) -> None:
        """The directories and the configuration that an operator has prepared."""
        disk, now_s = self.kernel.disk, self.kernel.server_now_s()
        for path in (SITE, self.checkpoint_dir, RUN_DIR):
            if disk.find(path) is None:
                disk.create(path, now_s, is_directory=True, mode=0o755)
        if disk.find(CONFIG) is None:
            node = disk.create(CONFIG, now_s, is_directory=False, mode=0o644)
            disk.write(node, 0, self._config, now_s)
            disk.sync(node)
        for path in ("/", SITE, self.checkpoint_dir):
            disk.sync(disk.require(path))

    def load_config(self) -> RunConfig:
        """The run's configuration, read as every command reads it."""
        return load_config(LocalStore(), CONFIG, "/")

    def new_coordinator(self, host: str = "login-1") -> Process:
        """A process that will run one command."""
        self._coordinators += 1
        return self.kernel.spawn(f"ckptctl-{self._coordinators}", host)

    @asynccontextmanager
    async def world(self, config: RunConfig) -> AsyncIterator[World]:
        """A world as the command line makes it, for whoever acts."""
        clock = SystemClock()
        own = config.sections.ckptctl
        assert own is not None
        assert own.controller is not None
        rng = self.kernel.ids
        async with Channel(token=TOKEN, clock=clock, notice=self.notices.append, transport=self.network) as channel:
            yield World(
                store=LocalStore(config.checkpoint_dir),
                lock=SimulatedLock(config.checkpoint_dir, owner=this_process()),
                journal=FileJournal(config.checkpoint_dir, clock),
                clock=clock,
                progress=NoProgress(),
                participants=HttpParticipants(channel, own.urls(), control_timeout_s=own.control_timeout_s),
                controller=HttpController(channel, own.controller.url, control_timeout_s=own.control_timeout_s),
                notice=self.notices.append,
                observer=self._observe,
                share=rng.random,
                nonce=lambda: rng.randbytes(16).hex(),
            )

    def _observe(self, step: str) -> None:
        process = ACTING.get()
        assert process is not None
        process.step = step

    def run_as(self, process: Process, work: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        """Start `work` in a process."""
        context = contextvars.copy_context()
        context.run(ACTING.set, process)

        async def main() -> T:
            return await work()

        return asyncio.get_running_loop().create_task(main(), context=context)


class Cluster:
    """One incarnation: the servers that are up."""

    def __init__(self, machine: Machine, *, incarnation: int, restore_expected: bool, pace: dict[str, float]) -> None:
        self.machine = machine
        self.incarnation, self.restore_expected = incarnation, restore_expected
        self._pace = pace
        self.http = Line(machine.network)
        self.starts = 0
        self.controller: ControllerServer
        self.goal = 0
        self.policy: Any = None
        self.agent: Any = None
        self.counter: Any = None

    async def start(self) -> None:
        """Start every server."""
        for name in (WORKER, *PARTICIPANTS):
            self.start_participant(name, restore_expected=self.restore_expected)
        await self.start_controller()

    def process(self, name: str) -> Process:
        """The process that serves a name now."""
        return self.machine.network.servers[name].process

    def is_up(self, name: str) -> bool:
        """Whether a server runs."""
        served = self.machine.network.servers.get(name)
        return served is not None and not served.process.is_dead

    def start_participant(self, name: str, *, restore_expected: bool = False) -> None:
        """A new process under this name; of the one before it nothing is left."""
        self.starts += 1
        common: dict[str, Any] = {
            "name": name, "port": 0, "run_dir": RUN_DIR, "seed": 11, "incarnation": self.incarnation,
            "restore_expected": restore_expected,
        }  # fmt: skip
        process = self.machine.kernel.spawn(name, f"{name}-host")
        now = {"now": process.now_s}
        with process.acting():
            if name == WORKER:
                delay_s = self._pace["generation_s"]
                app = create_worker_app(PolicyWorkerSettings(generation_delay_s=delay_s, **common), TOKEN, **now)
            elif name == "policy_model":
                settings = PolicyModelSettings(
                    workers={WORKER: f"http://{WORKER}"}, controller_url="http://controller",
                    capture_dir=f"{RUN_DIR}/capture-{self.incarnation}-{self.starts}", **common,
                )  # fmt: skip
                app = self.policy = create_policy_app(settings, TOKEN, client=self.http, **now)
            elif name == "simple_agent":
                peers = {"policy_model": "http://policy_model", "counter": "http://counter"}
                agent = AgentSettings(peers=peers, action_delay_s=self._pace["action_s"], **common)
                app = self.agent = create_agent_app(agent, TOKEN, client=self.http, **now)
            else:
                resources = ResourcesSettings(environment="counter", **common)
                app = self.counter = create_resources_app(resources, TOKEN, **now)
        self.machine.network.servers[name] = Served(process, app)

    async def start_controller(self) -> None:
        """The training process."""
        run = self.machine.run
        process = self.machine.kernel.spawn("controller", "controller-host")
        settings = ControllerSettings(
            port=0,
            run_dir=RUN_DIR,
            seed=11,
            config_path=CONFIG,
            agents={"simple_agent": "http://simple_agent"},
            prompts=run.prompts,
            generations=run.generations,
            turns=run.turns,
            groups_per_step=1,
            storage_units=1,
            granularity=run.granularity,  # one of the two by construction
            incarnation=self.incarnation,
            restore_expected=self.restore_expected,
            acknowledge_interval_s=self._pace["acknowledge_s"],
            finalize_delay_s=self._pace["finalize_s"],
        )

        async def begin() -> ControllerServer:
            server = build_server(settings, TOKEN, client=self.http, now=process.now_s)
            await server.controller.start()
            return server

        self.controller = await self.machine.run_as(process, begin)
        self.machine.network.servers["controller"] = Served(process, self.controller)

    def set_goal(self, groups: int) -> None:
        """Draw so many prompts."""
        self.goal = max(self.goal, groups)
        with self.process("controller").acting():
            self.controller.controller.loop.set_goal(self.goal)

    async def end(self) -> None:
        """Every process of this incarnation dies."""
        for served in list(self.machine.network.servers.values()):
            self.machine.kernel.kill(served.process)
        self.machine.network.servers.clear()
        await asyncio.sleep(0.01)
        await self.http.aclose()

    # --- what its processes hold ---------------------------------------------------------------------------------------------

    def fences(self) -> dict[str, Any]:
        """The fence of every server that is up."""
        found = {
            "policy_model": lambda: self.policy.service.checkpoint.fence,
            "simple_agent": lambda: self.agent.service.checkpoint.fence,
            "counter": lambda: self.counter.service.checkpoint.fence,
            "controller": lambda: self.controller.service.fence,
        }
        return {name: get() for name, get in found.items() if self.is_up(name)}

    def held(self) -> dict[str, str]:
        """Who does not simply work, or wait for its restore, and how it stands."""
        doors = {
            "policy_model": lambda: self.policy.service.checkpoint.is_open,
            "simple_agent": lambda: self.agent.service.store.is_open,
            "counter": lambda: self.counter.service.checkpoint.is_open,
            "controller": lambda: self.controller.controller.loop.is_open,
        }
        waiting = {
            "policy_model": lambda: False,
            "simple_agent": lambda: False,
            "counter": lambda: self.counter.service.checkpoint.is_restore_expected,
            "controller": lambda: self.controller.service.restore_expected,
        }
        held = {}
        for name, fence in self.fences().items():
            if fence.phase != "idle" or fence.active_checkpoint_id is not None:
                held[name] = f"{fence.phase} under {fence.active_checkpoint_id}"
            elif not doors[name]() and not waiting[name]():
                held[name] = "idle, but closed"
        return held
