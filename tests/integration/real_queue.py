"""A real TransferQueue seen as plain values: start, load, save, and every row as dtype, shape and bytes."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from ckptctl.domain.dataplane import DataPlane, StoredValue, TensorValue
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.tq_checkpoint import (
    decode_controller_state,
    decode_metadata,
    decode_storage_unit,
    decode_unit_info,
    read_tensor,
)


class RealQueues:
    """At most one TransferQueue at a time, kept as long as the same one is asked for."""

    def __init__(self) -> None:
        self._config: dict[str, Any] | None = None
        self._queue: RealQueue | None = None

    def use(self, units: int, **storage: Any) -> RealQueue:
        """The running TransferQueue of this configuration, or a new one in place of another."""
        config = {"num_data_storage_units": units, "total_storage_size": 1000, **storage}
        if self._queue is None or config != self._config:
            self.close()
            self._config, self._queue = config, RealQueue(config)
        return self._queue

    def close(self) -> None:
        """Stop the running one."""
        if self._queue is not None:
            self._queue.tq.close()
            self._queue = None


class RealQueue:
    """TransferQueue with SimpleStorage."""

    def __init__(self, config: dict[str, Any]) -> None:
        import transfer_queue
        from omegaconf import OmegaConf

        self.tq = transfer_queue
        backend = {"storage_backend": "SimpleStorage", "SimpleStorage": config}
        self.tq.init(OmegaConf.create({"backend": backend}))

    def tags(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Partition -> key -> tags, as the controller lists them."""
        return {name: dict(keys) for name, keys in self.tq.kv_list().items()}

    def rows(self, partition: str, keys: list[str], fields: list[str]) -> dict[str, dict[str, TensorValue]]:
        """Key -> field -> value, from one batched get."""
        batch = self.tq.kv_batch_get(keys, partition, list(fields))
        assert set(fields) == set(batch.keys())
        found: dict[str, dict[str, TensorValue]] = {key: {} for key in keys}
        for field in fields:
            values = batch[field].unbind()
            assert len(keys) == len(values)
            for key, value in zip(keys, values, strict=True):
                found[key][field] = plain(value)
        return found


def plain(tensor: Any) -> TensorValue:
    """A torch tensor as dtype, shape and contiguous bytes."""
    import torch

    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return TensorValue(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), data)


class ReadPlane:
    """A `data_plane/` folder as our own readers see it."""

    def __init__(self, folder: Path) -> None:
        self.metadata = decode_metadata((folder / "metadata.json").read_bytes(), DEFAULT_LIMITS)
        storage, units = folder / "simple_storage", []
        self._sources: dict[str, BytesSource] = {}
        self._storage = storage
        for unit in decode_unit_info((storage / "storage_unit_info.json").read_bytes(), DEFAULT_LIMITS):
            name = f"su_{unit.position}_{unit.storage_unit_id}.pkl"
            self._sources[name] = BytesSource((storage / name).read_bytes())
            units.append(decode_storage_unit(self._sources[name], name, DEFAULT_LIMITS))
        controller = BytesSource((folder / "controller_state.pkl").read_bytes())
        blobs = {
            (path.parent.name.removesuffix(".blobs"), path.name): path.stat().st_size
            for path in storage.glob("*.blobs/*")
        }
        self.plane = DataPlane(decode_controller_state(controller, DEFAULT_LIMITS), tuple(units), blobs)

    def tags(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Partition -> key -> tags."""
        found = self.plane.controller.partitions
        return {
            name: {key: dict(partition.tags.get(index, {})) for key, index in partition.keys.items()}
            for name, partition in found.items()
            if partition.keys
        }

    def produced(self, partition: str) -> dict[tuple[str, ...], list[str]]:
        """The keys of a partition by the fields that they have."""
        found = defaultdict(list)
        state = self.plane.controller.partitions[partition]
        for key, index in state.keys.items():
            found[tuple(field for field in state.columns if state.is_produced(field, index))].append(key)
        return dict(found)

    def stored(self, partition: str, key: str, field: str) -> StoredValue:
        """The value behind one reference that must hold."""
        return self._held(partition, key, field)[1]

    def value(self, partition: str, key: str, field: str) -> TensorValue:
        """The bytes behind one reference that must hold."""
        unit, stored = self._held(partition, key, field)
        if stored.blob_name is None:
            return read_tensor(self._sources[unit], stored)
        return read_tensor(BytesSource((self._storage / f"{unit}.blobs" / stored.blob_name).read_bytes()), stored)

    def _held(self, partition: str, key: str, field: str) -> tuple[str, StoredValue]:
        found = self.plane.resolve(partition, key, field)
        assert ("holds", partition, key, field) == (found.verdict, partition, key, field)
        assert found.value is not None
        unit = self.plane.units[found.unit_position or 0]
        assert unit is not None
        return unit.file_name, found.value


def check_same_rows(folder: Path, queue: RealQueue) -> int:
    """Load `folder` into the real TransferQueue and compare every key, tag and value with what we read. Returns how many values."""
    read = ReadPlane(folder)
    queue.tq.load_checkpoint(str(folder))
    assert read.tags() == {name: keys for name, keys in queue.tags().items() if keys}
    compared = 0
    for partition in read.tags():
        for fields, keys in read.produced(partition).items():
            if not fields:
                continue
            for key, row in queue.rows(partition, keys, list(fields)).items():
                assert {field: read.value(partition, key, field) for field in fields} == row
                compared += len(row)
    return compared


def put_everything(queue: RealQueue) -> dict[tuple[str, str], TensorValue]:
    """Puts of every kind that TransferQueue takes, into partition `everything`; gives the value of each (key, field)."""
    import torch
    from tensordict import TensorDict

    keys = [f"k{place}" for place in range(5)]
    dense = {
        "int64": torch.arange(20).reshape(5, 4),
        "int32": torch.arange(20, dtype=torch.int32).reshape(5, 2, 2),
        "int16": torch.arange(5, dtype=torch.int16).reshape(5, 1),
        "int8": torch.arange(5, dtype=torch.int8).reshape(5, 1),
        "uint8": torch.arange(5, dtype=torch.uint8).reshape(5, 1),
        "bool": torch.tensor([[True, False]] * 5),
        "float32": torch.rand(5, 3),
        "float64": torch.rand(5, 3, dtype=torch.float64),
        "float16": torch.rand(5, 3).half(),
        "bfloat16": torch.rand(5, 3).bfloat16(),
        "columns": torch.arange(30).reshape(6, 5).t(),
        "scalar": torch.arange(5),
    }
    ragged = [torch.arange(length) for length in (3, 1, 4, 1, 5)]
    fields = {**dense, "ragged": torch.nested.as_nested_tensor(ragged, layout=torch.jagged)}
    tags = [{"n": place} for place in range(5)]
    queue.tq.kv_batch_put(keys=keys, partition_id="everything", fields=TensorDict(fields, batch_size=5), tags=tags)
    expected = {(key, name): plain(values[place]) for name, values in dense.items() for place, key in enumerate(keys)}
    return expected | {(key, "ragged"): plain(ragged[place]) for place, key in enumerate(keys)}
