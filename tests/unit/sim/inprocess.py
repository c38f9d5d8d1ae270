"""A whole embedded cluster in one event loop: the real applications behind in-process transports, and a stand-in data plane."""

import asyncio
import base64
from contextlib import asynccontextmanager

import httpx2
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse

from ckptctl.domain.dataplane import TensorValue
from ckptctl.formats.staged_row import decode_staged_row
from ckptctl.sim.agent import create_agent_app
from ckptctl.sim.agent_store import AgentStore
from ckptctl.sim.policy_model import create_policy_app
from ckptctl.sim.policy_worker import create_worker_app
from ckptctl.sim.resources import create_resources_app
from ckptctl.sim.settings import AgentSettings, PolicyModelSettings, PolicyWorkerSettings, ResourcesSettings

TOKEN = "sim-token"
FOREVER = 4_000_000_000.0


class HoldingStore(AgentStore):
    """An agent's memory that asks an execution to park at a chosen boundary, as a prepare would that arrives just then."""

    __slots__ = ()
    holds = {}
    seen = []

    async def reach_boundary(self, execution, boundary):
        self.seen.append(boundary)
        numbers = self.holds.get(id(self), {})
        if numbers.get(boundary.rollout_id, numbers.get("*")) == boundary.boundary_index:
            execution.state = "park_requested"
        await super().reach_boundary(execution, boundary)


class DataPlaneStandIn:
    """Takes staged rows as the embedded controller does."""

    def __init__(self):
        self.rows, self.weight_version, self.app = {}, 3, FastAPI()
        self.app.router.add_route("/sim/v1/weights", self._weights, methods=["GET"])
        self.app.router.add_route("/sim/v1/data-plane/put", self._put, methods=["POST"])

    async def _weights(self, request: Request):
        return JSONResponse({"weight_version": self.weight_version})

    async def _put(self, request: Request):
        body = await request.json()
        assert body["key"] not in self.rows, "a row is put twice"
        fields = {
            name: TensorValue(value["dtype"], tuple(value["shape"]), base64.b64decode(value["data_base64"]))
            for name, value in body["fields"].items()
        }
        self.rows[body["key"]] = (decode_staged_row(fields), body["tags"])
        return JSONResponse({"index": len(self.rows), "weight_version": self.weight_version})


class Cluster:
    """Everything by name; `http` reaches every server at `http://<name>`."""

    def __init__(
        self, directory, *, workers=2, incarnation=1, restore_expected=False, plane=None, delays=None,
        servers=("counter",), agents=("simple_agent",),
    ):  # fmt: skip
        self.delays = delays or {}
        self.servers, self.agent_names = servers, agents
        self.resources, self.agents = {}, {}
        self.directory = directory
        self.plane = plane or DataPlaneStandIn()
        self.network = Network()
        self.http = httpx2.AsyncClient(transport=self.network, timeout=None)
        self.reachable = {}
        self.workers = [f"worker-{index}" for index in range(workers)]
        for name in (*self.workers, "policy_model", *agents, *servers):
            self.restart(name, incarnation=incarnation, restore_expected=restore_expected)
        self.mount("controller", self.plane.app)

    @property
    def agent(self):
        """The only agent, or the first."""
        return self.agents[self.agent_names[0]]

    @property
    def counter(self):
        return self.resources["counter"]

    def restart(self, name, *, incarnation, restore_expected):
        """A new process under this name; of the one before it only the files are left."""
        common = {
            "port": 0, "run_dir": str(self.directory / "run"), "seed": 11, "incarnation": incarnation,
            "restore_expected": restore_expected,
        }  # fmt: skip
        if name in self.workers:
            delay = self.delays.get("generation", 0.0)
            self.mount(
                name, create_worker_app(PolicyWorkerSettings(name=name, generation_delay_s=delay, **common), TOKEN)
            )
        elif name == "policy_model":
            policy = PolicyModelSettings(
                name=name, workers={name: f"http://{name}" for name in self.workers}, controller_url="http://controller",
                capture_dir=str(self.directory / f"capture-{incarnation}"), **common,
            )  # fmt: skip
            self.policy = self.mount(name, create_policy_app(policy, TOKEN, client=self.http))
        elif name in self.agent_names:
            agent = AgentSettings(
                name=name, peers={peer: f"http://{peer}" for peer in ("policy_model", *self.servers)},
                action_delay_s=self.delays.get("action", 0.0), **common,
            )  # fmt: skip
            self.agents[name] = self.mount(name, create_agent_app(agent, TOKEN, client=self.http))
        else:
            if name in self.reachable:
                self.resources[name].service.audit.close()
            resources = ResourcesSettings(name=name, environment=name, **common)
            self.resources[name] = self.mount(name, create_resources_app(resources, TOKEN))

    async def end_executions(self):
        """What the agents' processes were at ends with them."""
        executions = [item for store in self.stores() for item in store.executions.values()]
        tasks = [item.task for item in executions if item.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def hold_at(self, number, rollout="*"):
        """Every rollout, or one, parks at its boundary of this number."""
        for store in self.stores():
            store.__class__ = HoldingStore
            HoldingStore.holds.setdefault(id(store), {})[rollout] = number

    def stores(self):
        """The memory of every agent."""
        return [agent.service.store for agent in self.agents.values()]

    def parked(self):
        """Everything that is parked, at whatever agent."""
        return [item for store in self.stores() for item in store.parked()]

    def end_logs(self):
        for server in self.resources.values():
            server.service.audit.close()

    def mount(self, name, app):
        self.reachable[name] = Switch(app)
        self.network.servers[name] = httpx2.ASGITransport(app=self.reachable[name])
        return app

    async def control(self, server, route, checkpoint_id="ck-1", *, deadline_ts=FOREVER, **fields):
        """A POST control call: (status, body)."""
        body = {"schema_version": 1, "checkpoint_id": checkpoint_id, "deadline_ts": deadline_ts, **fields}
        headers = {"authorization": f"Bearer {TOKEN}"}
        reply = await self.http.post(f"http://{server}/ng-control/v1/{route}", json=body, headers=headers)
        return reply.status_code, reply.json()

    async def ok(self, server, route, checkpoint_id="ck-1", **fields):
        """A POST control call that must succeed."""
        status, body = await self.control(server, route, checkpoint_id, **fields)
        assert status == 200, (server, route, status, body)
        return body

    async def code(self, server, route, checkpoint_id="ck-1", **fields):
        """The refusal code of a control call, or its status."""
        status, body = await self.control(server, route, checkpoint_id, **fields)
        return body["error"]["code"] if status == 409 else status

    async def get(self, server, route, **query):
        """A GET control call: (status, body)."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        reply = await self.http.get(f"http://{server}/ng-control/v1/{route}", params=query, headers=headers)
        return reply.status_code, reply.json()

    async def run(self, rollout="g_g0", attempt=0, increments=4):
        """Send a rollout: (status, body)."""
        body = {
            "_ng_rollout_id": rollout, "_ng_attempt_index": attempt, "environment": "counter", "prompt": f"count {rollout[:3]}",
            "parameters": {"increments": increments},
        }  # fmt: skip
        reply = await self.http.post("http://simple_agent/run", json=body)
        return reply.status_code, reply.json()

    async def fault(self, server, **fault):
        """Order a fault."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        reply = await self.http.post(f"http://{server}/sim/v1/fault", json=fault, headers=headers)
        assert reply.status_code == 200, reply.text

    async def acknowledge(self, rollout="g_g0", attempt=0):
        """Release a completed result."""
        _, receipt = await self.get(
            "simple_agent", "agent-checkpoint/completion-receipt", rollout_id=rollout, attempt_index=attempt
        )
        reply = await self.http.post(
            "http://simple_agent/ng-control/v1/agent-checkpoint/acknowledge-completed",
            json={"schema_version": 1, "executions": [receipt]}, headers={"authorization": f"Bearer {TOKEN}"},
        )  # fmt: skip
        assert reply.status_code == 200, reply.text
        return receipt


class Network(httpx2.AsyncBaseTransport):
    """Leads a request to the application whose name is the host."""

    def __init__(self):
        self.servers = {}

    async def handle_async_request(self, request):
        return await self.servers[request.url.host].handle_async_request(request)


class Switch:
    """An application that can be unplugged."""

    def __init__(self, app):
        self.app, self.is_up = app, True

    async def __call__(self, scope, receive, send):
        if not self.is_up:
            raise httpx2.ConnectError("unplugged")
        await self.app(scope, receive, send)


@asynccontextmanager
async def cluster(directory, **options):
    """A running cluster."""
    made = Cluster(directory, **options)
    try:
        yield made
    finally:
        made.end_logs()
        await made.http.aclose()


async def until(condition):
    """Give the loop turns until `condition` holds; the test's own timeout ends a hopeless wait."""
    while not condition():
        await asyncio.sleep(0)
