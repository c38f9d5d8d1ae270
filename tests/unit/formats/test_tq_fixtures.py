"""The readers against data planes that real programs wrote: every value, every staged row, every damaged unit."""

import hashlib
import json
from pathlib import Path

import pytest

from ckptctl.domain.dataplane import DTYPE_BYTES, STAGED_FIELDS, DataPlane
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.domain.staged import chain_hash, extras_to_hash, structural_defects
from ckptctl.formats.staged_row import call_digest, decode_staged_row, extras_digest, row_tags
from ckptctl.formats.tq_checkpoint import (
    decode_controller_state,
    decode_metadata,
    decode_storage_unit,
    decode_unit_info,
    read_tensor,
)
from ckptctl.formats.tq_writer import encode_controller_state, encode_storage_unit, encode_unit_info

PLANES = ["small", "small1", "v019/small", "numpy", "dangling"]
SNAPSHOTS = [
    "turn/step_1/rollout_snapshots/snapshot_000001",
    "turn/step_1/rollout_snapshots/snapshot_000002",
    "turn/bootstrap/rollout_snapshots/snapshot_000001",
    "norollouts/step_2/rollout_snapshots/snapshot_000001",
]


def load_plane(folder: Path) -> tuple[DataPlane, dict[str, BytesSource]]:
    storage = folder / "simple_storage"
    units, sources = [], {}
    for unit in decode_unit_info((storage / "storage_unit_info.json").read_bytes(), DEFAULT_LIMITS):
        name = f"su_{unit.position}_{unit.storage_unit_id}.pkl"
        sources[name] = BytesSource((storage / name).read_bytes())
        units.append(decode_storage_unit(sources[name], name, DEFAULT_LIMITS))
    controller = decode_controller_state(BytesSource((folder / "controller_state.pkl").read_bytes()), DEFAULT_LIMITS)
    assert decode_metadata((folder / "metadata.json").read_bytes(), DEFAULT_LIMITS).storage_saved
    return DataPlane(controller, tuple(units)), sources


def read_field(plane, sources, partition, key, field):
    found = plane.resolve(partition, key, field)
    assert found.verdict == "holds"
    return read_tensor(sources[plane.units[found.unit_position].file_name], found.value)


@pytest.mark.parametrize("name", PLANES)
def test_every_value_of_a_real_plane_is_read(fixtures, name):
    """Keys, tags, consumption, and per value dtype, shape and SHA-256 of the raw bytes, as the writing program saw them."""
    truth = json.loads((fixtures / "tq" / name / "expected.json").read_bytes())
    plane, sources = load_plane(fixtures / "tq" / name / "step_1" / "data_plane")
    dangling = {
        (part, key) for part, keys in ((truth.get("notes") or {}).get("dangling") or {}).items() for key in keys
    }
    checked = 0
    for part, expected in truth["partitions"].items():
        partition = plane.controller.partitions[part]
        assert expected["keys"] == {key: partition.tags.get(index, {}) for key, index in partition.keys.items()}
        for field, values in expected["fields"].items():
            for key, value in values.items():
                found = plane.resolve(part, key, field)
                checked += 1
                if (part, key) in dangling:
                    assert found.verdict == "dangling"
                elif value[0] in DTYPE_BYTES and len(value) == 3:
                    tensor = read_tensor(sources[plane.units[found.unit_position].file_name], found.value)
                    assert value == [tensor.dtype, list(tensor.shape), hashlib.sha256(tensor.data).hexdigest()]
                else:
                    assert found.verdict == "holds"
                    assert KINDS[value[0]] == found.value.kind
        for task, keys in (truth.get("consumed") or {}).get(part, {}).items():
            bits = partition.consumed[task]
            assert sorted(keys) == sorted(
                key for key, index in partition.keys.items() if index < len(bits) and bits[index]
            )

    assert checked > 20


KINDS = {
    "Tensor": "tensor",
    "ndarray": "numpy",
    "float64": "numpy",
    "float32": "numpy",
    "int64": "numpy",
    "str": "text",
    "bytes": "bytes",
    "dict": "other",
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_every_staged_row_of_a_real_snapshot_digests_to_its_own_name(fixtures, name):
    """Tags, key, structural rules, extras, call digest and chain of rows that NeMo-RL and Gym wrote."""
    plane, sources = load_plane(fixtures / name / "data_plane")
    partition = plane.controller.partitions["rollout_staging"]
    rows = {}
    for key in partition.keys:
        fields = {field: read_field(plane, sources, "rollout_staging", key, field) for field in STAGED_FIELDS}
        rows[key] = row = decode_staged_row(fields)
        assert key == row.key
        assert partition.tags[partition.keys[key]] == row_tags(row)
        assert () == structural_defects(row)
        assert (row.extras_digest, row.digest) == (extras_digest(extras_to_hash(row)), call_digest(row))
    linked = 0
    for row in rows.values():
        parent = rows.get(f"{row.rollout_id}/{row.parent_call_id}")
        if row.parent_call_id is None or parent is not None:
            assert row.chain_hash == chain_hash(parent and parent.chain_hash, row.token_ids)
            linked += 1

    assert 0 < linked <= len(rows)


@pytest.mark.parametrize("name", ["tq/small/step_1", "tq/dangling/step_1", SNAPSHOTS[1]])
def test_a_real_plane_survives_our_writer(fixtures, name):
    """Read, written and read again: the same controller, the same bytes of every tensor."""
    plane, sources = load_plane(fixtures / name / "data_plane")
    again = decode_controller_state(BytesSource(encode_controller_state(plane.controller)), DEFAULT_LIMITS)

    assert plane.controller == again
    for unit in plane.units:
        source = sources[unit.file_name]
        rows = {
            field: {index: read_tensor(source, value) for index, value in values.items()}
            for field, values in unit.rows.items()
        }
        copy = BytesSource(encode_storage_unit(unit.unit_id, None, rows, unit.active_keys))
        found = decode_storage_unit(copy, unit.file_name, DEFAULT_LIMITS)
        assert rows == {
            field: {index: read_tensor(copy, value) for index, value in values.items()}
            for field, values in found.rows.items()
        }
        assert (unit.unit_id, unit.active_keys) == (found.unit_id, found.active_keys)


def test_unit_lists_are_written_as_transferqueue_writes_them(fixtures):
    """Byte for byte, apart from the ids."""
    data = (fixtures / "tq/small/step_1/data_plane/simple_storage/storage_unit_info.json").read_bytes()

    assert data == encode_unit_info(decode_unit_info(data, DEFAULT_LIMITS))


def test_the_truncated_unit_of_the_damaged_cases_is_refused(fixtures):
    """A real unit that was cut off."""
    case = fixtures / "cases" / "storage-unit-truncated"
    folder = case / json.loads((case / "case.json").read_bytes())["snapshot"] / "data_plane"

    with pytest.raises(DefectError):
        load_plane(folder)
