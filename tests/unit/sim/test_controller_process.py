"""The controller as its process serves it: the simulator's own routes, the controller interface and faults on one port."""

import asyncio
import base64
import struct
import sys
import time
from contextlib import asynccontextmanager

import httpx2
import pytest
from typer.testing import CliRunner

from ckptctl.cli.app import app as command_line
from ckptctl.errors import UsageError
from ckptctl.formats.config_file import encode_yaml
from ckptctl.sim.cluster_options import ClusterOptions
from ckptctl.sim.controller_process import build_server
from ckptctl.sim.controller_settings import ControllerSettings
from ckptctl.sim.run_config import run_config
from tests.unit.sim.stand_in import TOKEN, StandInAgent, until

OPTIONS = ClusterOptions(prompts=2, generations=1, groups_per_step=1)
PREFIX = "/ckpt-control/v1"


def settings_in(folder):
    path = folder / "ckptctl.yaml"
    urls = {"controller": "http://c", "policy_model": "http://p", "simple_agent": "http://agent", "counter": "http://r"}
    path.write_bytes(encode_yaml(run_config(str(folder), OPTIONS, urls)))
    return ControllerSettings(
        port=0,
        run_dir=str(folder / "logs"),
        config_path=str(path),
        agents={"simple_agent": "http://agent"},
        prompts=2,
        generations=1,
        groups_per_step=1,
        acknowledge_interval_s=0.001,
    )


@asynccontextmanager
async def serving(folder, agent=None):
    agent = agent or StandInAgent()
    async with httpx2.AsyncClient(transport=agent.transport()) as to_agents:
        server = build_server(settings_in(folder), TOKEN, client=to_agents)
        agent.plane = server.controller.state.plane
        await server.controller.start()
        transport = httpx2.ASGITransport(app=server)
        try:
            async with httpx2.AsyncClient(
                transport=transport, base_url="http://controller", headers={"authorization": f"Bearer {TOKEN}"}
            ) as http:
                yield http, server
        finally:
            await server.controller.stop()
            await server._close()


def a_put(data=struct.pack("<2q", 1, 2), shape=(2,), partition="rollout_staging"):
    tensor = {"dtype": "int64", "shape": list(shape), "data_base64": base64.b64encode(data).decode()}
    return {
        "partition": partition,
        "key": "g_g0/call-0",
        "fields": {"token_ids_delta": tensor},
        "tags": {"weight_version": 0},
    }


def common(**more):
    return {"checkpoint_id": "ck-1", "deadline_ts": time.time() + 30, **more}


def test_a_row_is_put_and_a_bad_one_refused(tmp_path):
    """The policy model stages rows; bytes that are not what dtype and shape say are refused, and so is a request without token."""

    async def scenario():
        async with serving(tmp_path) as (http, server):
            good = await http.post("/sim/v1/data-plane/put", json=a_put())
            short = await http.post("/sim/v1/data-plane/put", json=a_put(shape=(3,)))
            nowhere = await http.post("/sim/v1/data-plane/put", json=a_put(partition="nowhere"))
            foreign = await http.post("/sim/v1/data-plane/put", json=a_put(), headers={"authorization": "Bearer x"})
            weights = await http.get("/sim/v1/weights")
            return (
                good,
                short,
                nowhere,
                foreign,
                weights,
                server.controller.state.plane.tags("rollout_staging", "g_g0/call-0"),
            )

    good, short, nowhere, foreign, weights, tags = asyncio.run(scenario())

    assert (200, 0) == (good.status_code, good.json()["weight_version"])
    assert [409, 409, 401] == [reply.status_code for reply in (short, nowhere, foreign)]
    assert ["bad_tensor", "unknown_partition"] == [reply.json()["error"]["code"] for reply in (short, nowhere)]
    assert {"weight_version": 0} == weights.json() == tags


def test_a_run_is_started_and_watched_and_trained_on(tmp_path):
    """The operator's routes: start, status, one train step, and nothing more to train on."""

    async def scenario():
        async with serving(tmp_path) as (http, server):
            await http.post("/sim/v1/run/start", json={"until_groups": 2})
            await until(
                lambda: server.controller.state.finished_count() == 2 and not server.controller.state.ledger.groups()
            )
            status = (await http.get("/sim/v1/run/status")).json()
            steps = [await http.post("/sim/v1/trainer/step", json={}) for _ in range(3)]
            return status, steps

    status, steps = asyncio.run(scenario())

    assert (2, 2, 0, []) == (
        status["finished_groups"],
        status["waiting_groups"],
        status["trained_groups"],
        status["problems"],
    )
    assert [200, 200, 409] == [reply.status_code for reply in steps]
    assert "step_2" == steps[1].json()["anchor"]
    assert "nothing_to_train" == steps[2].json()["error"]["code"]


def test_the_controller_interface_is_served_beside_them(tmp_path):
    """Close, save, release over the wire; the status tells each phase; a fault hits the control routes too."""

    async def scenario():
        async with serving(tmp_path) as (http, _):
            folder = tmp_path / "snap"
            folder.mkdir()
            public = await http.get(f"{PREFIX}/status", headers={"authorization": "none"})
            await http.post(
                "/sim/v1/fault", json={"operation": "admission/close", "kind": "refuse", "code": "invalid_phase"}
            )
            refused = await http.post(f"{PREFIX}/admission/close", json=common())
            closed = await http.post(f"{PREFIX}/admission/close", json=common())
            request = common(checkpoint_dir=str(folder), storage_reference_indexes=[])
            saved = await http.post(f"{PREFIX}/save", json=request)
            again = await http.post(f"{PREFIX}/save", json=request)
            status = (await http.get(f"{PREFIX}/status")).json()
            opened = await http.post(f"{PREFIX}/admission/open", json=common(outcome="released"))
            return public.json(), refused, closed.json(), saved, again, status, opened.json()

    public, refused, closed, saved, again, status, opened = asyncio.run(scenario())

    assert {"interface", "schema_version", "instance_id"} == set(public)
    assert "invalid_phase" == refused.json()["error"]["code"]
    assert "closed" == closed["phase"]
    assert saved.json() == again.json()
    assert ("saved", "closed", "bootstrap") == (status["phase"], status["admission"], status["anchor"])
    assert {"phase": "idle", "admission": "open", "dispatched": 0} == opened


def test_a_stopped_trainer_is_taken_over(tmp_path):
    """A fresh process starts from the newest step: version, cursor and samples go on."""

    async def first():
        async with serving(tmp_path) as (http, server):
            await http.post("/sim/v1/run/start", json={"until_groups": 2})
            await until(
                lambda: server.controller.state.finished_count() == 2 and not server.controller.state.ledger.groups()
            )
            await http.post("/sim/v1/trainer/step", json={})

    async def second():
        async with serving(tmp_path) as (_, server):
            state = server.controller.state
            return await server.controller.facts(), state.prompts.drawn, state.finished_count()

    asyncio.run(first())
    facts, drawn, finished_count = asyncio.run(second())

    assert (1, 1, "step_1", 1) == (facts.train_step, facts.trainer_version, facts.anchor, facts.sampler_dispatch_index)
    assert (2, 1) == (drawn, finished_count)  # the other group was waiting and is lost: no snapshot was restored


def test_a_controller_without_a_token_is_not_served(tmp_path):
    """Anyone could stop it."""
    with pytest.raises(UsageError, match="is not set"):
        build_server(settings_in(tmp_path), "")


def test_without_the_extra_the_commands_say_what_to_install(monkeypatch, tmp_path):
    """The embedded cluster needs packages that ckptctl itself does not."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = CliRunner().invoke(command_line, ["sim", "up", "--dir", str(tmp_path / "run")])

    assert 2 == result.exit_code
    assert "needs uvicorn, which is not installed" in result.stderr
    assert "pip install 'ckptctl[sim]'" in result.stderr
