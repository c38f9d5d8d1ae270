"""How the embedded controller comes to its live TransferQueue: the owner says where it is, and the controller attaches."""

from __future__ import annotations

import os
import time
from importlib import import_module

import httpx2

from ckptctl.controller.live_tq import LiveTransferQueue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.errors import TimedOutError
from ckptctl.formats.canonical_json import decode_document
from ckptctl.sim.live_data_plane import LiveDataPlane
from ckptctl.sim.queue_host import STATUS_ROUTE, QueueReply, prepare

START_PATIENCE_S = 240.0
"""For Ray and the queue together: some ten seconds on a machine that has nothing else to do, many more on a busy one."""
PAUSE_S = 0.2
ATTEMPT_S = 5.0


def attached_plane(queue_url: str, token: str) -> LiveDataPlane:
    """Attach to the queue whose owner answers at `queue_url`. Blocks until there is one. Raises CkptctlError."""
    prepare(os.environ, token)
    import_module("transfer_queue")  # takes seconds, as Ray's start does meanwhile
    return LiveDataPlane(LiveTransferQueue.attach(_wait_for_address(queue_url, token)))


def _wait_for_address(queue_url: str, token: str) -> str:
    deadline = time.monotonic() + START_PATIENCE_S
    headers = {"authorization": f"Bearer {token}"}
    with httpx2.Client(headers=headers, timeout=ATTEMPT_S, trust_env=False) as client:
        while True:
            try:
                reply = client.get(queue_url + STATUS_ROUTE)
                if reply.status_code == 200:
                    return decode_document(reply.content, QueueReply, DEFAULT_LIMITS).ray_address
                last = f"HTTP {reply.status_code}"
            except (httpx2.TransportError, DefectError) as problem:
                last = str(problem) or type(problem).__name__
            if time.monotonic() > deadline:
                raise TimedOutError(server="the live queue", operation="start", detail=last)
            time.sleep(PAUSE_S)
