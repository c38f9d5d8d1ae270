"""The controller's process: the controller interface, the simulator's own routes, and the tasks behind them, on one port.

    POST /sim/v1/data-plane/put    a staged row from the policy model            GET  /sim/v1/weights       the weight version
    POST /sim/v1/run/start         draw prompts until so many groups exist       GET  /sim/v1/run/status    how far the run is
    POST /sim/v1/trainer/step      train on the next finished groups

All of them want the control token. What they do, `embedded_controller` and its parts decide.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from starlette.types import Receive, Send

from ckptctl.adapters import durable
from ckptctl.controller.app import ControllerService, create_app
from ckptctl.controller.http import add_route
from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.binding import TrainingInfo
from ckptctl.domain.dataplane import DTYPE_BYTES, TensorValue
from ckptctl.domain.document import Count, Document, NonEmpty
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.errors import CkptctlError, UsageError
from ckptctl.formats.config_file import decode_yaml
from ckptctl.formats.dataloader_file import decode_dataloader
from ckptctl.sim.agent_client import AgentClient
from ckptctl.sim.controller_settings import ControllerSettings, Positive
from ckptctl.sim.embedded_controller import EmbeddedController
from ckptctl.sim.finishing import NothingToTrainError
from ckptctl.sim.processes import end_with_owner
from ckptctl.sim.rollout_state import SAMPLER_NAME, RolloutState, new_state
from ckptctl.sim.run_files import DISPATCHES, RESTORES, RESULTS, RunLog
from ckptctl.sim.server import SimulatedServer, new_client, run_server
from ckptctl.sim.trainer import Trainer

if TYPE_CHECKING:
    from ckptctl.sim.live_data_plane import LiveDataPlane


class WireTensor(Document):
    """One field's value on the wire."""

    dtype: str
    shape: list[Count]
    data_base64: str


class PutBody(Document):
    """`POST /sim/v1/data-plane/put`."""

    partition: NonEmpty
    key: NonEmpty
    fields: dict[NonEmpty, WireTensor]
    tags: dict[str, Any] | None = None


class PutReply(Document):
    """Where the row lies, and the weight version at that moment."""

    index: Count | None
    """Null where a live queue keeps that to itself."""
    weight_version: Count


class WeightsReply(Document):
    """`GET /sim/v1/weights`."""

    weight_version: Count


class StartBody(Document):
    """`POST /sim/v1/run/start`."""

    until_groups: Positive


class RunStatus(Document):
    """How far the run is, and what went wrong in the background."""

    goal_groups: Count
    drawn_groups: Count
    unfinished_groups: Count
    waiting_groups: Count
    """Finished, not trained on yet."""
    trained_groups: Count
    finished_groups: Count
    """Waiting and trained."""
    in_flight: Count
    outbox: Count
    train_step: Count
    weight_version: Count
    is_admission_open: bool
    restore_expected: bool
    """Nothing is dispatched before a restore, for which this process still waits."""
    problems: list[str]


class StepReply(Document):
    """`POST /sim/v1/trainer/step`."""

    train_step: Count
    trainer_version: Count
    anchor: NonEmpty


class ControllerServer(SimulatedServer):
    """The controller's ASGI application with the fault layer of every simulated server in front."""

    def __init__(
        self,
        settings: ControllerSettings,
        token: str,
        controller: EmbeddedController,
        *,
        close: Callable[[], Awaitable[None]] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(settings, token, close=close, now=now)
        app = create_app(controller, token, restore_expected=settings.restore_expected, now=now)
        app.router.routes.extend(self.app.router.routes)  # the fault routes
        self.app = app
        self.service: ControllerService = app.state.service
        self.controller = controller
        for method, path, handler, body, reply in (
            ("POST", "data-plane/put", self._put, PutBody, PutReply),
            ("GET", "weights", self._weights, None, WeightsReply),
            ("POST", "run/start", self._start_run, StartBody, RunStatus),
            ("GET", "run/status", self.run_status, None, RunStatus),
            ("POST", "trainer/step", self._train, None, StepReply),
        ):
            add_route(app, method, f"/sim/v1/{path}", handler, token=token, body=body, reply=reply)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.controller.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.controller.stop()
                if self._close is not None:
                    await self._close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _put(self, body: PutBody) -> PutReply:
        state = self.controller.state
        fields = {name: _tensor(name, value) for name, value in body.fields.items()}
        if body.partition not in (state.settings.canonical_partition, state.settings.staging_partition):
            raise RefusalError("unknown_partition", f"there is no partition {body.partition}")
        async with state.plane.mutation():
            try:
                index = state.plane.put(body.partition, body.key, fields, body.tags)
            except CkptctlError as problem:
                raise RefusalError("storage_error", problem.message) from problem
        return PutReply(index=index, weight_version=state.trainer.trainer_version)

    async def _weights(self) -> WeightsReply:
        return WeightsReply(weight_version=self.controller.state.trainer.trainer_version)

    async def _start_run(self, body: StartBody) -> RunStatus:
        self.controller.loop.set_goal(body.until_groups)
        return await self.run_status()

    async def run_status(self) -> RunStatus:
        """How far the run is."""
        state, loop = self.controller.state, self.controller.loop
        waiting, finished = len(state.replay.groups()), state.finished_count()
        return RunStatus(
            goal_groups=loop.goal_groups,
            drawn_groups=state.prompts.drawn,
            unfinished_groups=len(state.ledger.groups()),
            waiting_groups=waiting,
            trained_groups=finished - waiting,
            finished_groups=finished,
            in_flight=loop.in_flight(),
            outbox=len(state.ledger.outbox()),
            train_step=state.trainer.train_step,
            weight_version=state.trainer.trainer_version,
            is_admission_open=self.service.is_admission_open,
            restore_expected=self.service.restore_expected,
            problems=self.controller.problems(),
        )

    async def _train(self) -> StepReply:
        trainer = self.controller.state.trainer
        try:
            await self.controller.finisher.train()
        except NothingToTrainError as problem:
            raise RefusalError("nothing_to_train", str(problem)) from problem
        except CkptctlError as problem:
            raise RefusalError("storage_error", problem.message) from problem
        return StepReply(
            train_step=trainer.train_step, trainer_version=trainer.trainer_version, anchor=trainer.anchor or ""
        )


def _tensor(name: str, value: WireTensor) -> TensorValue:
    """Raises RefusalError for bytes that are not what dtype and shape say."""
    try:
        data = base64.b64decode(value.data_base64, validate=True)
    except binascii.Error as error:
        raise RefusalError("bad_tensor", f"{name}: {error}") from error
    count = 1
    for size in value.shape:
        count *= size
    if value.dtype not in DTYPE_BYTES or len(data) != count * DTYPE_BYTES[value.dtype]:
        raise RefusalError("bad_tensor", f"{name}: {len(data)} bytes are no {value.dtype} of shape {value.shape}")
    return TensorValue(value.dtype, tuple(value.shape), data)


def build_server(
    settings: ControllerSettings,
    token: str,
    *,
    client: httpx2.AsyncClient | None = None,
    now: Callable[[], float] = time.time,
) -> ControllerServer:
    """The whole controller, not yet started; `client` reaches the agents.

    Raises:
        CkptctlError: there is no token, or the checkpoint directory belongs to another configuration.
    """
    if not token:
        raise UsageError(f"`{settings.token_env}` is not set", hint="start the cluster with `ckptctl sim up`")
    durable.make_directory(settings.run_dir)
    config = decode_yaml(Path(settings.config_path).read_bytes(), DEFAULT_LIMITS)
    config.pop("ckptctl", None)
    trainer = Trainer(
        checkpoint_dir=config["checkpointing"]["checkpoint_dir"], config=config, sampler_name=SAMPLER_NAME
    )
    info = trainer.start()
    live = _live_plane(settings, token)
    state = new_state(settings, trainer, plane=live, now=now)
    if info is not None:
        _take_over_cursor(state, info)
    http = client or new_client()
    agents = {name: AgentClient(name, url, http, token) for name, url in settings.agents.items()}
    logs = {name: RunLog(f"{settings.run_dir}/{name}") for name in (RESULTS, DISPATCHES, RESTORES)}
    controller = EmbeddedController(
        state, agents, results=logs[RESULTS], dispatches=logs[DISPATCHES], restores=logs[RESTORES]
    )

    async def close() -> None:
        for log in logs.values():
            log.close()
        if client is None:
            await http.aclose()
        if live is not None:
            await live.detach()

    return ControllerServer(settings, token, controller, close=close, now=now)


def _live_plane(settings: ControllerSettings, token: str) -> LiveDataPlane | None:
    """The plane on a live queue, which is waited for; None where the rows are in this process."""
    if settings.data_plane == "embedded":
        return None
    from ckptctl.sim.queue_client import attached_plane  # noqa: PLC0415 - a controller without a queue starts without it

    if settings.queue_url is None:
        raise UsageError("the live queue has no `queue_url`", hint="start the cluster with `ckptctl sim up`")
    return attached_plane(settings.queue_url, token)


def _take_over_cursor(state: RolloutState, info: TrainingInfo) -> None:
    """A start from a step anchor alone: the cursor goes on, what was in flight is gone. A restore replaces all of it."""
    data = Path(f"{state.trainer.checkpoint_dir}/{state.trainer.anchor}/train_dataloader.pt").read_bytes()
    state.prompts.load(decode_dataloader(BytesSource(data), DEFAULT_LIMITS), info.current_epoch)
    state.sampler_dispatch_index = -1 if info.sampler_dispatch_index is None else info.sampler_dispatch_index
    state.lost_groups = state.prompts.drawn - info.consumed_samples // state.settings.generations


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM: `python -m ckptctl.sim.controller_process --settings FILE`."""
    parser = argparse.ArgumentParser(prog="python -m ckptctl.sim.controller_process")
    parser.add_argument("--settings", required=True, metavar="FILE")
    path = parser.parse_args(arguments).settings
    end_with_owner()
    settings = ControllerSettings.model_validate_json(Path(path).read_bytes())
    try:
        run_server(build_server(settings, os.environ.get(settings.token_env, "")))
    except CkptctlError as error:
        sys.stderr.write(f"error[{error.code}]: {error.message}\nhint: {error.hint}\n")
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
