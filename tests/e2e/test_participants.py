"""The Gym participants as real processes on loopback: start, run, snapshot, kill -9, restore, continue; and what only sockets can show."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import asynccontextmanager

import httpx2
import pytest
import uvicorn

from ckptctl.sim.settings import AgentSettings, PolicyModelSettings, PolicyWorkerSettings, ResourcesSettings
from tests.unit.sim import inprocess
from tests.unit.sim.inprocess import FOREVER, TOKEN, DataPlaneStandIn

pytestmark = pytest.mark.e2e
HEADERS = {"authorization": f"Bearer {TOKEN}"}
READY_TRIES, READY_PAUSE_S = 600, 0.05


def free_ports(count):
    """Ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Processes:
    """A cluster of real processes, without a controller."""

    def __init__(self, directory, controller_url, *, incarnation=1, restore_expected=False, generation_delay_s=0.0):
        self.directory, self.running, self.urls = directory, {}, {}
        names = ["worker-0", "worker-1", "policy_model", "simple_agent", "counter"]
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        common = {
            "run_dir": str(directory / "run"), "seed": 11, "incarnation": incarnation, "restore_expected": restore_expected,
        }  # fmt: skip
        workers = [name for name in names if name.startswith("worker")]
        settings = [
            *(
                PolicyWorkerSettings(name=name, port=ports[name], generation_delay_s=generation_delay_s, **common)
                for name in workers
            ),
            PolicyModelSettings(
                name="policy_model", port=ports["policy_model"], workers={name: self.urls[name] for name in workers},
                controller_url=controller_url, capture_dir=str(directory / f"capture-{incarnation}"), **common,
            ),
            AgentSettings(
                name="simple_agent", port=ports["simple_agent"],
                peers={name: self.urls[name] for name in ("policy_model", "counter")}, **common,
            ),
            ResourcesSettings(name="counter", environment="counter", port=ports["counter"], **common),
        ]  # fmt: skip
        for item in settings:
            path = directory / f"{item.name}-{incarnation}.json"
            path.write_text(item.model_dump_json())
            command = [sys.executable, "-m", "ckptctl.sim.process", item.role, "--settings", str(path)]
            environment = {**os.environ, "NEMO_GYM_CHECKPOINT_CONTROL_TOKEN": TOKEN}
            self.running[item.name] = subprocess.Popen(command, env=environment)

    async def ready(self, http):
        """Wait until every server answers."""
        for name, url in self.urls.items():
            path = "/sim/v1/worker/status" if name.startswith("worker") else "/ng-control/v1/capabilities"
            for _ in range(READY_TRIES):
                assert self.running[name].poll() is None, f"{name} ended"
                try:
                    if (await http.get(url + path, headers=HEADERS)).status_code == 200:
                        break
                except httpx2.TransportError:
                    await asyncio.sleep(READY_PAUSE_S)
            else:
                pytest.fail(f"{name} did not start")

    def kill(self, *names, with_signal=signal.SIGKILL):
        """End processes and collect them."""
        for name in names or list(self.running):
            self.running[name].send_signal(with_signal)
        return [self.running.pop(name).wait(timeout=30) for name in names or list(self.running)]


@asynccontextmanager
async def controller():
    """The stand-in data plane on a real port."""
    plane = DataPlaneStandIn()
    [port] = free_ports(1)
    server = uvicorn.Server(uvicorn.Config(plane.app, port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield plane, f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await asyncio.to_thread(thread.join)


@asynccontextmanager
async def cluster(directory, url, **options):
    """Running processes, killed at the end whatever happens."""
    made = Processes(directory, url, **options)
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
        made.http = http
        try:
            await made.ready(http)
            yield made
        finally:
            made.kill()


async def control(c, server, route, checkpoint_id, *, deadline_ts=FOREVER, **fields):
    body = {"checkpoint_id": checkpoint_id, "deadline_ts": deadline_ts, **fields}
    return await c.http.post(f"{c.urls[server]}/ng-control/v1/{route}", json=body, headers=HEADERS)


async def ok(c, *args, **fields):
    reply = await control(c, *args, **fields)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def run(c, attempt=0, rollout="g_g0", increments=12):
    body = {
        "_ng_rollout_id": rollout,
        "_ng_attempt_index": attempt,
        "prompt": "count",
        "parameters": {"increments": increments},
    }
    return await c.http.post(f"{c.urls['simple_agent']}/run", json=body)


async def model_status(c, checkpoint_id, **query):
    query = {"checkpoint_id": checkpoint_id, "deadline_ts": str(FOREVER), **query}
    url = f"{c.urls['policy_model']}/ng-control/v1/model-admission/status"
    return (await c.http.get(url, params=query, headers=HEADERS)).json()


async def agent_status(c, checkpoint_id="look"):
    url = f"{c.urls['simple_agent']}/ng-control/v1/agent-checkpoint/status"
    return (await c.http.get(url, params={"checkpoint_id": checkpoint_id}, headers=HEADERS)).json()


async def started(c, turn):
    """Wait until the rollout has reached a turn."""
    for _ in range(READY_TRIES):
        turns = [item["turn_index"] or 0 for item in (await agent_status(c))["executions"]]
        if turns and max(turns) >= turn:
            return
        await asyncio.sleep(0.01)
    pytest.fail("the rollout does not get on")


async def cut(c, folder):
    """Snapshot in the middle of a rollout, then kill -9 everything."""
    task = asyncio.ensure_future(run(c))
    await started(c, 2)
    await ok(c, "policy_model", "model-admission/pause", "ck-1")
    await ok(c, "simple_agent", "agent-checkpoint/prepare", "ck-1")
    await ok(c, "counter", "resources-checkpoint/prepare", "ck-1")
    paused = await model_status(c, "ck-1", wait_state="paused", timeout_s="30")
    agent = await ok(c, "simple_agent", "agent-checkpoint/commit", "ck-1", checkpoint_dir=folder)
    indexes = [agent["continuation_index"]]
    await ok(c, "policy_model", "model-checkpoint/commit", "ck-1", checkpoint_dir=folder, continuation_indexes=indexes)
    await ok(c, "counter", "resources-checkpoint/commit", "ck-1", checkpoint_dir=folder)
    c.kill()
    with pytest.raises(httpx2.TransportError):
        await task
    return {"paused": paused}


async def go_on(c, folder):
    """Restore and continue."""
    await ok(c, "policy_model", "model-checkpoint/restore", "restore-1", checkpoint_dir=folder)
    await ok(c, "simple_agent", "agent-checkpoint/restore", "restore-1", checkpoint_dir=folder)
    await ok(c, "counter", "resources-checkpoint/restore", "restore-1", checkpoint_dir=folder)
    await ok(c, "counter", "resources-checkpoint/resume", "restore-1")
    await ok(c, "policy_model", "model-admission/resume", "restore-1")
    await ok(c, "simple_agent", "agent-checkpoint/resume", "restore-1")
    return {"late": (await run(c)).status_code, "continued": (await run(c, attempt=1)).json()}


async def suffer(c):
    """Broken connections, a caller that hangs up, a killed worker, an orderly end."""
    for server, operation, kind in (
        ("counter", "increment", "drop"), ("counter", "verify", "cut"), ("policy_model", "generate", "drop"),
    ):  # fmt: skip
        order = {"operation": operation, "kind": kind}
        await c.http.post(f"{c.urls[server]}/sim/v1/fault", json=order, headers=HEADERS)
    faulty = (await run(c, rollout="faulty_g0", increments=4)).json()
    body = {"_ng_rollout_id": "gone_g0", "_ng_attempt_index": 0, "parameters": {"increments": 40}}
    with pytest.raises(httpx2.ReadTimeout):
        await c.http.post(f"{c.urls['simple_agent']}/run", json=body, timeout=0.3)
    while any(item["rollout_id"] == "gone_g0" for item in (await agent_status(c))["executions"]):
        await asyncio.sleep(0.01)
    gone = (await run(c, rollout="gone_g0")).json()["error"]["code"]
    c.kill("worker-1")
    await ok(c, "policy_model", "model-admission/pause", "ck-2")
    missing = (await model_status(c, "ck-2"))["missing_workers"]
    await ok(c, "policy_model", "model-admission/resume", "ck-2")
    alone = (await run(c, rollout="alone_g0", increments=3)).json()
    ended = c.kill("counter", with_signal=signal.SIGTERM)
    return {"faulty": faulty, "gone": gone, "missing": missing, "alone": alone, "ended": ended}


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """One story with two sets of processes; the tests below look at its parts."""

    async def main():
        directory = tmp_path_factory.mktemp("participants")
        folder = str(directory / "snapshot")
        async with controller() as (plane, url):
            async with cluster(directory, url, generation_delay_s=0.05) as c:
                first = await cut(c, folder)
            async with cluster(directory, url, incarnation=2, restore_expected=True, generation_delay_s=0.02) as c:
                second = await go_on(c, folder)
                return {"rows": set(plane.rows), **first, **second, **await suffer(c)}

    return asyncio.run(main())


def test_a_rollout_continued_by_new_processes_ends_as_if_never_interrupted(facts, tmp_path):
    """Cut by kill -9 after a commit; compared with a run in one process, which must give the same by construction."""

    async def main():
        async with inprocess.cluster(tmp_path) as c:
            body = {
                "_ng_rollout_id": "g_g0",
                "_ng_attempt_index": 0,
                "prompt": "count",
                "parameters": {"increments": 12},
            }
            return (await c.http.post("http://simple_agent/run", json=body)).json()

    whole, continued = asyncio.run(main()), facts["continued"]

    assert ("paused", 2) == (facts["paused"]["state"], facts["paused"]["workers"]["acknowledged"])
    assert 409 == facts["late"]
    assert (1.0, whole["transcript"], whole["final_state"]) == (
        continued["reward"], continued["transcript"], continued["final_state"],
    )  # fmt: skip
    assert {"g_g0", "g_g0-a1"} == {key.partition("/")[0] for key in facts["rows"] if key.startswith("g_g0")}


def test_broken_connections_are_repeated_and_counted_once(facts):
    """A dropped tool answer, a torn verdict, a dropped model answer."""
    assert (1.0, list(range(4))) == (facts["faulty"]["reward"], facts["faulty"]["final_state"]["tickets"])


def test_a_caller_that_hangs_up_ends_its_attempt(facts):
    """The pair is stale afterwards."""
    assert "stale_attempt" == facts["gone"]


def test_a_killed_worker_is_missing_and_the_other_does_its_work(facts):
    """Pause names it; rollouts go on."""
    assert (["worker-1"], 1.0) == (facts["missing"], facts["alone"]["reward"])


def test_a_terminated_server_ends_by_itself(facts):
    """SIGTERM is an orderly end."""
    assert facts["ended"][0] in (0, -signal.SIGTERM)


def test_settings_that_cannot_be_used_end_the_process_at_once(tmp_path):
    """Status 2 and a reason: no file, no JSON, another role."""
    from ckptctl.sim.process import main

    path = tmp_path / "s.json"
    assert 2 == main(["--settings", str(path)])
    path.write_text("{}")
    assert 2 == main(["--settings", str(path)])
    path.write_text(ResourcesSettings(name="c", environment="counter", port=0, run_dir=str(tmp_path)).model_dump_json())
    assert 2 == main(["agent", "--settings", str(path)])
