"""The embedded data plane: indexes, bits, tags, the barrier, and the way to disk and back."""

import asyncio
import struct
from dataclasses import replace

import pytest

from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.sim.data_plane import EmbeddedDataPlane
from ckptctl.sim.plane_files import METADATA_FILE, UNIT_INFO_FILE, PlaneIdentity, decode_plane, encode_plane


def a_column(*values):
    return TensorValue("int64", (len(values),), struct.pack(f"<{len(values)}q", *values))


def a_scalar(value):
    return TensorValue("float32", (), struct.pack("<f", value))


async def a_plane(units=2):
    plane = EmbeddedDataPlane(units=units, unit_size=100)
    async with plane.mutation():
        plane.register("rollout_data", ("input_ids", "reward"))
        plane.register("rollout_staging", ("token_ids_delta",))
    return plane


async def filled_plane():
    plane = await a_plane()
    async with plane.mutation():
        plane.put(
            "rollout_data", "g_g0", {"input_ids": a_column(1, 2, 3), "reward": a_scalar(0.5)}, {"weight_version": 1}
        )
        plane.put("rollout_data", "g_g1", {"input_ids": a_column(4)}, {"weight_version": 2})
        plane.put("rollout_staging", "g_g2/call-0", {"token_ids_delta": a_column(7, 8)}, None)
    return plane


def saved(plane, metadata=None):
    identity = PlaneIdentity(plane.controller_id, plane.unit_ids, plane.unit_size)
    return dict(encode_plane(plane.image(), identity, metadata or {"mode": "authoritative"}))


def test_a_freed_index_is_used_again_first_freed_first():
    """A cleared row's index goes to the next new row, in the order in which rows were cleared."""

    async def scenario():
        plane = await a_plane()
        async with plane.mutation():
            first = [plane.put("rollout_data", key, {"input_ids": a_column(1)}, None) for key in "abc"]
            assert 2 == plane.clear("rollout_data", ["b", "a", "unknown"])
            again = [plane.put("rollout_staging", key, {"token_ids_delta": a_column(1)}, None) for key in "xyz"]
        return first, again

    first, again = asyncio.run(scenario())

    assert [0, 1, 2] == first
    assert [1, 0, 3] == again


def test_a_second_put_adds_fields_to_the_same_row():
    """A known key keeps its index; its fields are merged and its tags replaced."""

    async def scenario():
        plane = await a_plane()
        async with plane.mutation():
            index = plane.put("rollout_data", "k", {"input_ids": a_column(1)}, {"a": 1})
            same = plane.put("rollout_data", "k", {"reward": a_scalar(1.0)}, {"b": 2})
        return index, same, plane.get("rollout_data", "k"), plane.tags("rollout_data", "k")

    index, same, fields, tags = asyncio.run(scenario())

    assert index == same
    assert {"input_ids", "reward"} == set(fields)
    assert {"b": 2} == tags


def test_changes_outside_a_mutation_are_a_bug():
    """Nothing may change behind the barrier's back."""
    with pytest.raises(AssertionError, match="outside"):
        asyncio.run(a_plane()).put("rollout_data", "k", {}, None)


def test_a_cut_excludes_mutations_and_counts_them():
    """A mutation that begins during a cut waits for its end; failed mutations count too."""

    async def scenario():
        plane = await a_plane()
        before, order = plane.mutation_version, []

        async def change():
            async with plane.mutation():
                order.append("mutation")

        async with plane.cut():
            task = asyncio.create_task(change())
            for _ in range(3):
                await asyncio.sleep(0)
            order.append("cut")
        await task
        with pytest.raises(KeyError):
            async with plane.mutation():
                plane.put("nowhere", "k", {}, None)
        return order, plane.mutation_version - before

    order, counted = asyncio.run(scenario())

    assert ["cut", "mutation"] == order
    assert 2 == counted


def test_a_checkpoint_loads_to_the_same_plane():
    """What is encoded and decoded again is the same image, metadata included."""
    plane = asyncio.run(filled_plane())
    files = saved(plane)

    image, metadata = decode_plane(files.__getitem__, units=2)

    assert {"mode": "authoritative"} == metadata
    assert METADATA_FILE == list(files)[-1]
    original = plane.image()
    assert original.rows == {name: values for name, values in image.rows.items() if name in original.rows}
    assert original.next_index == image.next_index
    assert original.reusable_indexes == image.reusable_indexes
    for name, partition in original.partitions.items():
        assert (partition.keys, partition.columns, partition.produced, partition.tags) == (
            image.partitions[name].keys,
            image.partitions[name].columns,
            image.partitions[name].produced,
            image.partitions[name].tags,
        )


def test_loading_frees_what_no_key_names():
    """Rows and indexes that no key names are not taken over; the next rows use those indexes."""

    async def scenario():
        image = (await filled_plane()).image()
        stray = {**image.rows, "input_ids": {**image.rows["input_ids"], 5: a_column(9)}}
        plane = EmbeddedDataPlane(units=2, unit_size=100)
        async with plane.mutation():
            plane.load(replace(image, rows=stray, next_index=6))
            loaded = plane.image()
            index = plane.put("rollout_staging", "new/call-0", {"token_ids_delta": a_column(1)}, None)
        return loaded, index

    loaded, index = asyncio.run(scenario())

    assert (3, 4, 5) == loaded.reusable_indexes
    assert 5 not in loaded.rows["input_ids"]
    assert 3 == index


def test_another_number_of_units_is_refused():
    """TransferQueue pairs units by position; another number of them cannot be loaded."""
    files = saved(asyncio.run(filled_plane()))

    with pytest.raises(DefectError, match="storage units"):
        decode_plane(files.__getitem__, units=3)


def test_a_row_missing_from_its_unit_is_refused():
    """A checkpoint that says produced where the unit has no row is not loaded half."""
    plane = asyncio.run(filled_plane())
    files = saved(plane)
    name = next(name for name in files if name.startswith("simple_storage/su_") and name != UNIT_INFO_FILE)
    empty = dict(encode_plane(asyncio.run(a_plane()).image(), PlaneIdentity("c", plane.unit_ids, 100), {}))

    with pytest.raises(DefectError, match="no row"):
        decode_plane({**files, name: empty[name]}.__getitem__, units=2)


def test_a_real_data_plane_survives_a_load_and_a_save(fixtures):
    """A checkpoint that TransferQueue wrote gives the same keys, tags and tensors after our load and save."""
    folder = fixtures / "turn/step_1/rollout_snapshots/snapshot_000002/data_plane"
    image, metadata = decode_plane(lambda name: (folder / name).read_bytes(), units=2)

    async def again():
        plane = EmbeddedDataPlane(units=2, unit_size=500)
        async with plane.mutation():
            plane.load(image)
        return saved(plane, metadata)

    second, again_metadata = decode_plane(asyncio.run(again()).__getitem__, units=2)

    assert metadata == again_metadata
    for name, partition in image.partitions.items():
        assert (partition.keys, partition.tags, partition.produced) == (
            second.partitions[name].keys,
            second.partitions[name].tags,
            second.partitions[name].produced,
        )
        for field, indexes in partition.produced.items():
            assert {i: image.rows[field][i] for i in indexes} == {i: second.rows[field][i] for i in indexes}
