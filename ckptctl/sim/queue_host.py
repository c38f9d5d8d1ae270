"""The process that owns the embedded cluster's live TransferQueue, where it has one: a Ray and a queue of its own, on this host.

    GET /sim/v1/queue      where the Ray is (with the control token): what the controller attaches to

It alone starts both and ends both; the controller only attaches. Bounded: a small object store, no dashboard, as many logical
CPUs as the queue has actors. Ray demands a token of everybody, and it is the cluster's control token. Its files lie in a folder
that is named after this process, so that whoever ends the process can remove them (`scratch_folder`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import MutableMapping
from importlib import import_module
from typing import Any

from ckptctl.domain.document import Count, Document, NonEmpty
from ckptctl.errors import UsageError
from ckptctl.sim.processes import ProcessIdentity, identity_of
from ckptctl.sim.routes import add_route
from ckptctl.sim.server import SimulatedServer
from ckptctl.sim.settings import QueueSettings

STATUS_ROUTE = "/sim/v1/queue"
OBJECT_STORE_BYTES = 80 << 20
"""Ray's least is 75 MiB; rows never go through it."""
MOST_ROWS = 1_000_000
RAY_TRIES = 3
SPARE_CPUS = 1
"""Logical CPUs beside those of the queue's controller and its storage units."""


class QueueReply(Document):
    """`GET /sim/v1/queue`."""

    ray_address: NonEmpty
    storage_units: Count


def scratch_folder(process: ProcessIdentity) -> str:
    """Where the Ray of this process keeps its sockets and logs: a short path, since sockets demand one."""
    return f"{tempfile.gettempdir()}/ckptctl-ray-{process.pid}-{process.start_ticks}"


def prepare(environment: MutableMapping[str, str], token: str) -> None:
    """Have the Ray that this process starts or joins demand the token, and tell nobody. Before the first import of Ray."""
    environment["RAY_AUTH_MODE"], environment["RAY_AUTH_TOKEN"] = "token", token
    environment["RAY_USAGE_STATS_ENABLED"] = "0"
    environment.setdefault("TQ_NUM_THREADS", "1")  # more than there are cores, and each put warns of it


def create_queue_app(settings: QueueSettings, token: str | None) -> SimulatedServer:
    """Start Ray and the queue, which takes seconds, and serve where they are."""
    if not token:
        raise UsageError(f"`{settings.token_env}` is not set", hint="start the cluster with `ckptctl sim up`")
    prepare(os.environ, token)
    ray = import_module("ray")
    address = _start_ray(ray, cpus=settings.storage_units + 1 + SPARE_CPUS)
    try:
        queue = _start_queue(settings)
    except BaseException:
        ray.shutdown()
        raise

    async def close() -> None:
        queue.close()
        ray.shutdown()

    server = SimulatedServer(settings, token, close=close)
    reply = QueueReply(ray_address=address, storage_units=settings.storage_units)

    async def status() -> QueueReply:
        return reply

    add_route(server.app, "GET", STATUS_ROUTE, status, token=token)
    return server


def _start_ray(ray: Any, cpus: int) -> str:
    """Start a Ray of this process and return its address. It gives itself half a minute, which is little on a busy machine."""
    me = identity_of(os.getpid())
    assert me is not None, "this process runs"
    for left in reversed(range(RAY_TRIES)):
        try:
            context = ray.init(
                address="local",
                num_cpus=cpus,
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=False,
                _temp_dir=scratch_folder(me),
            )
            return str(context.address_info["gcs_address"])
        except Exception:  # Ray has no better class for it
            ray.shutdown()
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _start_queue(settings: QueueSettings) -> Any:
    queue, configuration = import_module("transfer_queue"), import_module("omegaconf").OmegaConf
    storage = {"num_data_storage_units": settings.storage_units, "total_storage_size": MOST_ROWS}
    queue.init(configuration.create({"backend": {"storage_backend": "SimpleStorage", "SimpleStorage": storage}}))
    return queue
