"""TransferQueue's index alone: time and memory for reading a controller state of many staged keys, and where the gauge ends it."""

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckptctl.adapters.local_store import LocalStore
from ckptctl.adapters.memory import resident_bytes
from ckptctl.domain.dataplane import STAGED_FIELDS, TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.memory_room import MemoryRoom
from ckptctl.formats.tq_checkpoint import decode_controller_state
from ckptctl.workflows.collection import seldom_collected
from tests.bench.measure import MEBIBYTE, peak_mib
from tests.bench.rows import index_files
from tests.queue_pickles import Made, pickled

_TOKENS = 1024


def a_controller(count: int) -> bytes:
    """`controller_state.pkl` of `count` staged rows in TransferQueue's own form: keys, tags, index sets, shapes of ragged fields."""
    choice = random.Random(1)
    keys = index_files(count)[2]
    indexes = range(count)
    metas = {}
    for name, (_, rank) in STAGED_FIELDS.items():
        is_ragged = rank > 0 and not name.endswith("_bytes")
        length = (
            (lambda: choice.randrange(1, _TOKENS)) if name.endswith("_delta") else (lambda: choice.randrange(5, 40))
        )
        metas[name] = Made(
            "FieldMeta",
            {
                "global_indexes": set(indexes),
                "dtype": None,
                "shape": [1],
                "is_nested": is_ragged,
                "is_non_tensor": False,
                "per_sample_shapes": {index: [length()] for index in indexes} if is_ragged else {},
            },
        )
    tags = {index: _tags(*key.split("/"), choice) for key, index in keys.items()}
    status = {
        "partition_id": "rollout_staging",
        "created_at": 1.0,
        "production_status": TensorValue("int8", (count, len(STAGED_FIELDS)), b"\1" * count * len(STAGED_FIELDS)),
        "consumption_status": {},
        "global_indexes": set(indexes),
        "pre_allocated_global_indexes": set(),
        "field_name_mapping": {name: column for column, name in enumerate(STAGED_FIELDS)},
        "field_metadata": metas,
        "field_custom_backend_meta": {},
        "custom_meta": tags,
        "keys_mapping": keys,
        "revert_keys_mapping": {index: key for key, index in keys.items()},
    }
    manager = {
        "partition_to_indexes": {"rollout_staging": set(indexes)},
        "reusable_indexes": [],
        "global_index_counter": count,
        "allocated_indexes": set(indexes),
    }
    partitions = {"rollout_staging": Made("DataPartitionStatus", status)}
    return pickled({"controller_id": "c", "partitions": partitions, "index_manager": manager, "sampler": {}})


def _tags(rollout: str, call: str, choice: random.Random) -> dict[str, Any]:
    lengths = {"prev_len": choice.randrange(_TOKENS), "delta_len": choice.randrange(_TOKENS)}
    return {
        "rollout_id": rollout,
        "model_call_id": call,
        "parent_call_id": None,
        **lengths,
        "cum_len": sum(lengths.values()),
        "weight_version": 3,
        "digest": f"{choice.getrandbits(256):064x}",
        "schema_version": 2,
    }


def bench_index(counts: tuple[int, ...]) -> None:
    """What each size takes, without a bound and within the usual one."""
    with tempfile.TemporaryDirectory(prefix="ckptctl-bench-") as folder:
        for count in counts:
            path = Path(folder) / "controller_state.pkl"
            path.write_bytes(a_controller(count))
            _tell(path, count)
    print(f"  goal: within {DEFAULT_LIMITS.memory_bytes // MEBIBYTE} MiB, or a clean end\n", flush=True)


def _tell(path: Path, count: int) -> None:
    store = LocalStore()

    def read(room: MemoryRoom) -> str:
        try:
            with seldom_collected(), store.open_source(str(path)) as source:
                state = decode_controller_state(room.watched(source), DEFAULT_LIMITS)
        except DefectError as error:
            return error.defects[0].message
        return f"{len(state.partitions['rollout_staging'].keys):,} keys"

    began = time.process_time()
    read(MemoryRoom(None, 0))
    cpu_s = time.process_time() - began
    peak = peak_mib(lambda: read(MemoryRoom(None, 0)))
    said: list[str] = []
    bounded: Callable[[], None] = lambda: said.append(  # noqa: E731 - one expression, run here and in a child
        read(MemoryRoom(resident_bytes, DEFAULT_LIMITS.memory_bytes))
    )
    bounded_peak = peak_mib(bounded)
    bounded()
    print(
        f"index of {count:,} staged keys, 24 fields ({path.stat().st_size / MEBIBYTE:.0f} MiB): cpu {cpu_s:.1f} s, peak {peak:,.0f} MiB;"
        f" within the usual bound: peak {bounded_peak:,.0f} MiB, {said[-1]}",
        flush=True,
    )
