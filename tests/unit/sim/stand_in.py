"""A small agent behind an HTTP transport, and a controller around it, for tests of the controller alone."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import httpx2

from ckptctl.domain.canonical import compact_digest
from ckptctl.domain.ids import capture_key
from ckptctl.domain.staged import stage_call
from ckptctl.formats.staged_row import encode_staged_row, row_tags
from ckptctl.sim.agent_client import AgentClient
from ckptctl.sim.controller_settings import ControllerSettings
from ckptctl.sim.embedded_controller import EmbeddedController
from ckptctl.sim.rollout_state import SAMPLER_NAME, new_state
from ckptctl.sim.run_files import RunLog
from ckptctl.sim.trainer import Trainer

TOKEN = "a token"


def refusal(code):
    return httpx2.Response(409, json={"error": {"code": code, "detail": "because"}})


class StandInAgent:
    """Answers `/run` when its gate is open; stages one row per attempt."""

    def __init__(self):
        self.gate = asyncio.Event()
        self.gate.set()
        self.plane = None
        self.runs, self.results, self.acknowledged = [], {}, []
        self.is_closed = self.is_deaf = False
        self.fail_next = 0

    def transport(self):
        return httpx2.MockTransport(self.handle)

    async def handle(self, request):
        path = request.url.path
        if path == "/run":
            return await self.run(json.loads(request.content))
        if path.endswith("completion-receipt"):
            pair = (request.url.params["rollout_id"], int(request.url.params["attempt_index"]))
            return httpx2.Response(200, json=self.results[pair])
        if path.endswith("acknowledge-completed"):
            return self.acknowledge(json.loads(request.content)["executions"])
        known = [] if self.is_deaf else [{"rollout_id": r, "attempt_index": a} for r, a in self.runs]
        return httpx2.Response(200, json={"executions": known})

    def acknowledge(self, receipts):
        if self.is_deaf:
            return refusal("completed_execution_acknowledgement_error")
        self.acknowledged += [(receipt["rollout_id"], receipt["attempt_index"]) for receipt in receipts]
        return httpx2.Response(200, json={"acknowledged": receipts})

    async def run(self, body):
        pair = (body["_ng_rollout_id"], body["_ng_attempt_index"])
        if self.is_closed:
            return refusal("agent_admission_closed")
        self.runs.append(pair)
        if self.fail_next:
            self.fail_next -= 1
            return httpx2.Response(500)
        key = capture_key(*pair)
        row = stage_call(
            rollout_id=key,
            model_call_id="call-0",
            token_ids=[1, 2],
            token_mask=[0, 1],
            logprobs=[0, -1],
            weight_version=0,
        )
        async with self.plane.mutation():
            self.plane.put("rollout_staging", row.key, encode_staged_row(row), row_tags(row))
        await self.gate.wait()
        result = {"reward": 1.0, "transcript": [{"of": pair[0]}], "final_state": {"count": 1}}
        self.results[pair] = {
            "rollout_id": pair[0],
            "attempt_index": pair[1],
            "execution_generation": 1,
            "result_identity": "r",
            "result_digest": compact_digest(result),
            "manifest_capture_key": key,
            "terminal_model_call_id": "call-0",
        }
        return httpx2.Response(200, json=result)


CONFIG = {"grpo": {"seed": 7}, "rollout_checkpointing": {}, "token_capture": {"control_auth_token": "s3cret"}}


@asynccontextmanager
async def a_controller(tmp_path, agent, plane=None, **changes):
    """A started controller of one run directory; several of them may follow each other on it."""
    settings = ControllerSettings(
        **{
            "port": 0,
            "run_dir": str(tmp_path),
            "config_path": "unused",
            "agents": {"simple_agent": "http://agent"},
            "acknowledge_interval_s": 0.001,
            **changes,
        }
    )
    trainer = Trainer(checkpoint_dir=str(tmp_path / "checkpoints"), config=CONFIG, sampler_name=SAMPLER_NAME)
    trainer.start()
    state = new_state(settings, trainer, plane=plane)
    agent.plane = state.plane
    logs = [RunLog(str(tmp_path / name)) for name in ("results.jsonl", "dispatches.jsonl", "restores.jsonl")]
    async with httpx2.AsyncClient(transport=agent.transport()) as http:
        agents = {"simple_agent": AgentClient("simple_agent", "http://agent", http, TOKEN)}
        controller = EmbeddedController(state, agents, results=logs[0], dispatches=logs[1], restores=logs[2])
        await controller.start()
        try:
            yield controller
        finally:
            await controller.stop()
            for log in logs:
                log.close()


async def until(condition, patience_s=10):
    """Wait for something that other tasks bring about."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.002)
