"""A live TransferQueue as the data plane of a rollout controller: attached to, never created, never closed.

    queue = LiveTransferQueue.attach()                     # the Ray of this process, or the running one that `address` names
    queue.put("rollout_staging", row.key, encode_staged_row(row), row_tags(row))
    queue.save(f"{request.checkpoint_dir}/data_plane", binding)        # inside the trainer's own barrier: a save takes no lock
    queue.load(f"{request.checkpoint_dir}/data_plane")                 # replaces what the queue holds, whatever that is

Every method blocks, none for longer than its patience, and all may be called from any thread; an event loop that must not
wait calls them through `asyncio.to_thread`. Rows are plain values (`TensorValue`), so nothing else here knows torch.

Decides: what is asked of the queue, that a load is proved harmless first (`plane_proof`: the queue itself unpickles), that a
save is complete. Leaves to others: the cut, the binding, which rows a snapshot needs; the package's calls (`tq_package`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, Protocol, Self, TypeVar

from ckptctl.adapters import durable
from ckptctl.controller.patient import PatientCaller
from ckptctl.controller.plane_proof import METADATA_FILE, prove_plane, read_plane_metadata
from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.errors import CkptctlError, InvalidSnapshotError, StorageError, UnreachableError, UsageError

R = TypeVar("R")

SERVER = "TransferQueue"
PACKAGE = "transfer_queue"
ATTACH_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 20.0
"""For rows: below the 30 s that a coordinator waits for a controller, which may be waiting here."""
FILES_TIMEOUT_S = 240.0
"""For a save or load: longer than the package's own patience with one storage unit (200 s), so that its answer is heard."""
SCHEMA_KEY = "__schema__"


class QueuePackage(Protocol):
    """What is asked of the package, in one thread, one call after the other. `tq_package.RayQueue` is the real one."""

    def connect(self, address: str | None, timeout_s: float) -> int:
        """Attach to the queue that runs there; returns how many storage units it has. Raises CkptctlError."""
        ...

    def list(self, partition_id: str) -> dict[str, dict[str, Any]]:
        """Key -> tags; empty for an unknown partition."""
        ...

    def partitions(self) -> Iterable[str]:
        """The names of all partitions."""
        ...

    def put(
        self, partition_id: str, key: str, fields: Mapping[str, TensorValue], tags: Mapping[str, Any] | None
    ) -> None:
        """Store one row."""
        ...

    def get(self, partition_id: str, keys: Sequence[str]) -> dict[str, dict[str, TensorValue]]:
        """Key -> the fields that all of `keys` have; keys that are not there are left out."""
        ...

    def clear(self, partition_id: str, keys: Sequence[str]) -> None:
        """Remove rows by key."""
        ...

    def save(self, folder: str, metadata: Mapping[str, Any]) -> None:
        """The package's own checkpoint."""
        ...

    def load(self, folder: str) -> None:
        """The package's own restore."""
        ...

    def disconnect(self) -> None:
        """Leave a Ray that `connect` joined, and nothing else."""
        ...


def require_extra() -> None:
    """Raise UsageError, with what to install, where the packages of the extra are missing."""
    absent = [name for name in ("ray", PACKAGE) if find_spec(name) is None]
    if absent:
        raise UsageError(
            f"a live TransferQueue needs {' and '.join(f'`{name}`' for name in absent)}, "
            f"which {'is' if len(absent) == 1 else 'are'} not installed",
            hint="pip install 'ckptctl[transferqueue]'",
        )


class LiveTransferQueue:
    """One attachment. A process has at most one: the package keeps its client in a global."""

    def __init__(self, package: QueuePackage, *, storage_units: int, calls: PatientCaller | None = None) -> None:
        self.storage_units = storage_units
        self._package = package
        self._calls = calls or PatientCaller(SERVER)

    @classmethod
    def attach(cls, address: str | None = None, *, timeout_s: float = ATTACH_TIMEOUT_S) -> Self:
        """Attach to the TransferQueue of a running Ray: this process' own, or the one at `address` (`auto`: of this host).

        Raises:
            UsageError: the extra is not installed, or the queue's backend saves no storage.
            UnreachableError: no Ray answers there, or it runs no TransferQueue; none is started.
            TimedOutError: it did not answer within `timeout_s`.
        """
        require_extra()
        from ckptctl.controller.tq_package import RayQueue  # noqa: PLC0415 - with it come ray and torch, which most never need

        return cls.attach_to(RayQueue(), address, timeout_s=timeout_s)

    @classmethod
    def attach_to(cls, package: QueuePackage, address: str | None, *, timeout_s: float) -> Self:
        """As `attach`, by a package that is given."""
        calls = PatientCaller(SERVER)
        units = calls.call("attach", partial(package.connect, address, timeout_s), timeout_s)
        return cls(package, storage_units=units, calls=calls)

    def detach(self, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Leave the Ray that `attach` joined. The queue and its rows stay as they are, for everybody else."""
        self._ask("detach", self._package.disconnect, timeout_s)

    # --- rows ------------------------------------------------------------------------------------------------------------

    def register(self, partition_id: str, fields: Iterable[str]) -> None:
        """Make a partition and its columns, unless it is there: a placeholder row is put and cleared, as NeMo-RL does."""
        if partition_id in self._ask("list", self._package.partitions):
            return
        key = f"{SCHEMA_KEY}:{partition_id}"
        empty = TensorValue("int64", (1,), bytes(8))
        self._ask("put", partial(self._package.put, partition_id, key, dict.fromkeys(fields, empty), None))
        self._ask("clear", partial(self._package.clear, partition_id, [key]))

    def keys(self, partition_id: str) -> frozenset[str]:
        """The keys of one partition; none for an unknown one. Raises UnreachableError, as every method here."""
        return frozenset(self._list(partition_id))

    def tags(self, partition_id: str, key: str) -> dict[str, Any]:
        """The tags of one row. Raises KeyError."""
        return dict(self._list(partition_id)[key])

    def put(
        self, partition_id: str, key: str, fields: Mapping[str, TensorValue], tags: Mapping[str, Any] | None = None
    ) -> None:
        """Store the fields of one row; a known key gains or replaces fields. Whether a put that failed arrived is unknown."""
        self._ask("put", partial(self._package.put, partition_id, key, fields, tags))

    def get(self, partition_id: str, key: str) -> dict[str, TensorValue]:
        """The produced fields of one row. Raises KeyError."""
        return self._ask("get", partial(self._package.get, partition_id, [key]))[key]

    def clear(self, partition_id: str, keys: Iterable[str]) -> int:
        """Remove rows by key; unknown keys are no error. Returns how many there were."""
        there = self._list(partition_id)
        present = [key for key in dict.fromkeys(keys) if key in there]
        if present:
            self._ask("clear", partial(self._package.clear, partition_id, present))
        return len(present)

    # --- checkpoints -----------------------------------------------------------------------------------------------------

    def save(self, folder: str, binding: Mapping[str, Any], *, timeout_s: float = FILES_TIMEOUT_S) -> None:
        """Write the queue's state and `binding`, its metadata, into the new `folder` (absolute, seen by every node of the queue).

        The caller excludes writers meanwhile. Nothing is synced: whoever publishes the directory does that.

        Raises:
            UsageError: there is such a folder.
            UnreachableError: the queue failed, or what it wrote holds no rows; `folder` is not left behind.
        """
        _demand_absolute(folder)
        if os.path.lexists(folder):
            raise UsageError(f"`{folder}` exists", hint="a checkpoint is written under a new name")
        try:
            self._ask("save", partial(self._package.save, folder, binding), timeout_s)
            self._demand_rows(folder)
        except BaseException:
            with suppress(StorageError):  # the queue may still be writing there; what failed first is what matters
                for path in (folder, f"{folder}.tmp"):
                    durable.remove_tree(path)
            raise

    def load(self, folder: str, *, timeout_s: float = FILES_TIMEOUT_S) -> None:
        """Replace everything in the queue by `folder`. The files are proved first: unpickling them builds plain data only.

        A failure half-way leaves a mixed queue; loading again, or restarting the queue, ends that.

        Raises:
            InvalidSnapshotError: the files are damaged, hold what cannot be proved, or belong to another number of units;
                nothing was loaded.
            UnreachableError: the queue failed.
        """
        _demand_absolute(folder)
        try:
            prove_plane(folder, units=self.storage_units)
        except DefectError as problem:
            place = problem.defects[0].location if problem.defects else ""
            raise InvalidSnapshotError(
                f"`{folder}` is not loaded into the queue: {problem}" + (f" ({place})" if place else ""),
                hint="`ckptctl validate --level full` says what is wrong with it; restore another snapshot",
            ) from problem
        self._ask("load", partial(self._package.load, folder), timeout_s)

    # --- inside ----------------------------------------------------------------------------------------------------------

    def _list(self, partition_id: str) -> dict[str, dict[str, Any]]:
        return self._ask("list", partial(self._package.list, partition_id))

    def _ask(self, operation: str, work: Callable[[], R], timeout_s: float = CALL_TIMEOUT_S) -> R:
        try:
            return self._calls.call(operation, work, timeout_s)
        except (CkptctlError, KeyError):
            raise
        except Exception as error:
            raise self._failed(operation, f"{type(error).__name__}: {error}") from error

    def _failed(self, operation: str, detail: str) -> UnreachableError:
        return UnreachableError(
            server=SERVER, operation=operation, detail=detail, hint="the log of the queue's Ray actors says more"
        )

    def _demand_rows(self, folder: str) -> None:
        try:
            is_whole = read_plane_metadata(folder).storage_saved
        except DefectError as problem:
            raise self._failed("save", f"what it wrote cannot be read: {problem}") from problem
        if not is_whole:
            raise self._failed("save", f"it saved no rows: `{METADATA_FILE}` says so")


def _demand_absolute(folder: str) -> None:
    if not folder.startswith("/"):
        raise UsageError(
            f"`{folder}` is no absolute path", hint="the queue's storage units have working directories of their own"
        )
