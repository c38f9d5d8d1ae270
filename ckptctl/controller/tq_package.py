"""The packages behind a live TransferQueue: Ray, torch and TransferQueue itself, imported when one is attached to.

Only functions that attach, read, put, clear, save and load are called. Traps that are avoided here (data-plane section 10):
`tq.init()` would create a queue where none runs, `tq.close()` would end the one of everybody, a status that is asked for an
unknown task would make the task. `kv_list` attaches to what runs, and makes nothing.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ckptctl.domain.amounts import set_time
from ckptctl.domain.dataplane import TensorValue
from ckptctl.errors import UnreachableError, UsageError

ACTOR, NAMESPACE = "TransferQueueController", "transfer_queue"
BACKEND = "SimpleStorage"
PAUSE_S = 0.2
LISTENER_TIMEOUT_S = 5.0


class RayQueue:
    """Implements `live_tq.QueuePackage`. All calls are made in one thread."""

    def __init__(self) -> None:
        self._ray: Any = import_module("ray")
        self._has_joined = False
        self._queue: Any = None
        self._values: Any = None

    def connect(self, address: str | None, timeout_s: float) -> int:
        """Join the Ray there, unless this process is in one, and attach to its queue. Returns the number of storage units."""
        ray = self._ray
        if not ray.is_initialized():
            self._join(address)
        elif address not in (None, "auto", ray.get_runtime_context().gcs_address):
            raise UsageError(
                f"this process is in the Ray at `{ray.get_runtime_context().gcs_address}`, not in the one at `{address}`",
                hint="attach without an address",
            )
        try:
            actor = ray.get_actor(ACTOR, namespace=NAMESPACE)
        except ValueError as error:
            self.disconnect()
            raise UnreachableError(
                server="TransferQueue",
                operation="attach",
                detail="this Ray runs none",
                hint="start the training that owns the queue first; ckptctl attaches, it never creates one",
                cause=error,
            ) from error
        config = self._config(actor, timeout_s)
        backend = config["backend"]["storage_backend"]
        if backend != BACKEND:
            self.disconnect()
            raise UsageError(
                f"the TransferQueue stores its rows in `{backend}`, which saves none of them into a checkpoint",
                hint="`data_plane.backend: simple` is the one that can be restored",
            )
        self._queue, self._values = import_module("transfer_queue"), _Values()
        self._queue.kv_list("")  # the first call attaches
        return int(config["backend"][BACKEND]["num_data_storage_units"])

    def list(self, partition_id: str) -> dict[str, dict[str, Any]]:
        """Key -> tags."""
        return dict(self._queue.kv_list(partition_id).get(partition_id, {}))

    def partitions(self) -> Iterable[str]:
        """The names of all partitions, empty ones included."""
        return list(self._queue.get_client().get_partition_list())

    def put(
        self, partition_id: str, key: str, fields: Mapping[str, TensorValue], tags: Mapping[str, Any] | None
    ) -> None:
        """Store one row. Without fields and tags there is nothing to store."""
        tensors = {name: self._values.tensor(value) for name, value in fields.items()} or None
        self._queue.kv_put(key, partition_id, fields=tensors, tag=None if tags is None else dict(tags))

    def get(self, partition_id: str, keys: Sequence[str]) -> dict[str, dict[str, TensorValue]]:
        """Key -> produced fields."""
        present = self.list(partition_id)
        wanted = [key for key in keys if key in present]
        if not wanted:
            return {}
        batch = self._queue.kv_batch_get(wanted, partition_id)
        found: dict[str, dict[str, TensorValue]] = {key: {} for key in wanted}
        for name in batch.keys():  # noqa: SIM118 - a TensorDict, whose iterator gives rows
            for key, row in zip(wanted, batch[name].unbind(), strict=True):
                found[key][name] = self._values.plain(row)
        return found

    def clear(self, partition_id: str, keys: Sequence[str]) -> None:
        """Remove rows by key."""
        self._queue.kv_clear(list(keys), partition_id)

    def save(self, folder: str, metadata: Mapping[str, Any]) -> None:
        """The package's own checkpoint: it appears under its name when it is complete."""
        self._queue.save_checkpoint(folder, metadata=dict(metadata))

    def load(self, folder: str) -> None:
        """The package's own restore."""
        self._queue.load_checkpoint(folder)

    def disconnect(self) -> None:
        """Leave the Ray that was joined here; one that the process was in before is not ours."""
        if self._has_joined:
            self._has_joined = False
            self._ray.shutdown()

    def _join(self, address: str | None) -> None:
        if address is None:
            raise UnreachableError(
                server="Ray",
                operation="attach",
                detail="this process has joined none, and no address is given",
                hint="attach after the training has joined its Ray, or give an address (`auto`: the one of this host)",
            )
        try:
            _demand_listener(address)
            self._ray.init(address=address, log_to_driver=False, configure_logging=False)
        except (OSError, RuntimeError, ValueError) as error:
            raise UnreachableError(
                server="Ray",
                operation="attach",
                detail=f"none answers at `{address}`: {str(error).strip().partition(chr(10))[0]}",
                hint="`ray status` says whether one runs; it must be of the same version and have the same token",
                cause=error,
            ) from error
        self._has_joined = True

    def _config(self, actor: Any, timeout_s: float) -> Any:
        """The queue's configuration; there is none until whoever creates it has started its storage."""
        deadline = time.monotonic() + timeout_s
        while True:
            config = self._ray.get(actor.get_config.remote(), timeout=timeout_s)
            if config is not None:
                return config
            if time.monotonic() > deadline:
                self.disconnect()
                raise UnreachableError(
                    server="TransferQueue", operation="attach", detail=f"it is not complete after {set_time(timeout_s)}"
                )
            time.sleep(PAUSE_S)


def _demand_listener(address: str) -> None:
    """Connect once to an address that names a port: Ray itself keeps trying for a minute. Raises OSError."""
    host, separator, port = address.rpartition(":")
    if separator and port.isdigit() and "/" not in address:
        socket.create_connection((host, int(port)), timeout=LISTENER_TIMEOUT_S).close()


class _Values:
    """Rows between their plain form and torch's."""

    def __init__(self) -> None:
        self._torch: Any = import_module("torch")

    def tensor(self, value: TensorValue) -> Any:
        """A tensor with memory of its own."""
        dtype = getattr(self._torch, value.dtype)
        if not value.data:
            return self._torch.empty(value.shape, dtype=dtype)
        return self._torch.frombuffer(bytearray(value.data), dtype=dtype).reshape(value.shape)

    def plain(self, tensor: Any) -> TensorValue:
        """Its dtype, shape and contiguous bytes. Raises ValueError for a value that is no tensor."""
        if not isinstance(tensor, self._torch.Tensor):
            raise ValueError(f"a row holds a {type(tensor).__name__}, which is no tensor")  # noqa: TRY004 - of the data
        flat = tensor.detach().contiguous().reshape(-1).view(self._torch.uint8)
        return TensorValue(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), flat.numpy().tobytes())
