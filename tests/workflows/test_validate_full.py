"""`validate --level full`: every tensor byte that something needs is read, once, and the rest is said to be covered by nothing."""

from array import array
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import ByteSource, SliceSource
from ckptctl.domain.staged import ROUTES_ENVELOPE
from ckptctl.errors import StorageError
from ckptctl.formats.pickle_tree import Call, Global
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.torch_stream import encode_stream
from ckptctl.formats.tq_checkpoint import SSD_FORMAT
from ckptctl.formats.tq_writer import tensor_node
from ckptctl.workflows.load_full import NO_DIGEST, NO_DIGEST_BLOB, OPAQUE
from ckptctl.workflows.validate import ValidateRequest, load_evidence, validate
from tests.artifacts import a_data_plane
from tests.builders import a_run_files, a_world, with_staged_facts, write_tree
from tests.edits import edited
from tests.rules.staged_samples import WITH_ROUTES, routed
from tests.world import CALL_5, CALL_8, CALL_9, LOST, SEALED_1, SEALED_2, a_call

NAME = "step_3/rollout_snapshots/snapshot_000002"
COLUMNS = ("token_ids_delta", "token_mask_delta", "generation_logprobs_delta")


def a_snapshot(folder, world=None):
    """A snapshot on disk."""
    return write_tree(folder, a_run_files(world or a_world())) / NAME


def judged(path, store=None, **request):
    return validate(store or LocalStore(), ValidateRequest(paths=(str(path),), level="full", **request)).targets[0]


def said(target):
    return [(finding.rule, finding.message) for finding in target.findings]


def failed(target):
    return {finding.rule for finding in target.findings if finding.severity == "error"}


def unit_path(snapshot, position):
    return next(snapshot.glob(f"data_plane/simple_storage/su_{position}_*.pkl"))


def unit_tree(world, position):
    """What one storage unit pickles, with tensors as nodes that a test may exchange."""
    plane = a_data_plane(world)
    fields = {
        name: {index: tensor_node(value) for index, value in values.items()}
        for name, values in plane.rows[position].items()
    }
    return {
        "storage_unit_id": plane.units[position].storage_unit_id,
        "storage_unit_size": 100,
        "field_data": fields,
        "active_keys": set(plane.active(position)),
    }


def index_of(world, key):
    return a_data_plane(world).controller.partitions["rollout_staging"].keys[key]


class CountingStore(LocalStore):
    """The real store, which counts what is read of each file, and hands out what a test puts between."""

    def __init__(self, put_between=lambda path, source: source):
        super().__init__()
        self.opened, self.read = Counter(), Counter()
        self._put_between = put_between

    @contextmanager
    def open_source(self, path):
        self.opened[path] += 1
        with super().open_source(path) as source:
            yield CountingSource(self._put_between(path, source), self, (path, self.opened[path]))


@dataclass
class CountingSource:
    source: ByteSource
    store: CountingStore
    opening: tuple[str, int]

    @property
    def size_bytes(self):
        return self.source.size_bytes

    def read_at(self, offset, count):
        data = self.source.read_at(offset, count)
        self.store.read[self.opening] += len(data)
        return data


# --- what is read ---


def test_facts_of_files_are_those_of_the_rows(tmp_path):
    """From bytes on disk and from the rows that were written: the same facts, chains over two attempts included."""
    loaded = load_evidence(LocalStore(), str(a_snapshot(tmp_path)), "full")
    built = with_staged_facts(loaded, a_world())

    assert built.staged == loaded.staged
    assert loaded.unreadable_values == {}


def test_tensors_are_read_once(tmp_path):
    """Units are opened twice: for their structure, and for the rows once it is known which are needed; that reads each byte once."""
    long = a_world(staged=tuple(a_chain("g7_g1", 2, 20_000)), **quiet())
    snapshot, store = a_snapshot(tmp_path, long), CountingStore()
    target = judged(snapshot, store)

    assert target.verdict == "valid"
    for position in (0, 1):
        path = str(unit_path(snapshot, position))
        stored = sum(len(value.data) for rows in a_data_plane(long).rows[position].values() for value in rows.values())
        again = 8  # the two small fields that name a parent, read before to know the order
        assert (2, True) == (store.opened[path], stored < store.read[path, 2] <= stored + again)


def quiet():
    """Fields of a world that needs nothing but the receipt of `g7_g1`."""
    from tests.world import a_group, a_ledger, a_replay, a_sealed_attempt, an_attempt

    rows = tuple(a_chain("g7_g1", 2, 20_000))
    siblings = [[an_attempt(0)], [a_sealed_attempt("g7_g1", rows)]]
    config = {"token_capture": {"enabled": True, "staging_partition": "rollout_staging"}}
    return {
        "ledger": a_ledger(groups=[a_group("g7", "17", siblings, resolved_agent_name="policy_agent")]),
        "replay": a_replay([]),
        "samples": {},
        "with_gym": False,
        "config": config,
        "anchor_config": config,
    }


def a_chain(capture, calls, length):
    chain = []
    for number in range(calls):
        chain.append(a_call(capture, f"call-{number}", [number * length + at for at in range(length)], *chain))
    return chain


def test_what_was_looked_at_is_what_a_digest_covers(tmp_path):
    """Needed rows count; samples and the row that nothing needs stay listed, with the reason."""
    snapshot = a_snapshot(tmp_path)
    target = judged(snapshot)
    plane = a_data_plane(a_world())
    lost = index_of(a_world(), LOST.key)

    uncovered = [
        sum(
            len(value.data)
            for name, values in plane.rows[position].items()
            for index, value in values.items()
            if index == lost or name in a_world().samples["g5_g0"]
        )
        for position in (0, 1)
    ]
    found = {item.path.rpartition("/")[2]: item for item in target.coverage.unchecked}
    units = [found[unit_path(snapshot, position).name] for position in (0, 1)]
    assert {NO_DIGEST} == {item.reason for item in found.values()}
    assert uncovered == [item.bytes for item in units]
    assert target.coverage.bytes_total == target.coverage.bytes_checked + sum(uncovered)


def test_a_row_that_nothing_needs_may_hold_anything(tmp_path):
    """It is deleted at restore; its bytes are not an error."""
    tree = unit_tree(a_world(), 1)
    tree["field_data"]["token_mask_delta"][index_of(a_world(), LOST.key)] = tensor_node(
        TensorValue("float32", (2,), b"\xff" * 8)
    )
    snapshot = a_snapshot(tmp_path)
    unit_path(snapshot, 1).write_bytes(write_pickle(tree, 5))

    assert (judged(snapshot).verdict, judged(snapshot / "data_plane").verdict) == ("valid", "invalid")


def test_below_level_full_nothing_is_said_of_rows(tmp_path):
    """The evidence has no facts then, and the rules of level full are skipped."""
    snapshot = a_snapshot(tmp_path)

    assert load_evidence(LocalStore(), str(snapshot)).staged is None


def test_routes_are_read_where_the_encoding_asks_for_them(tmp_path):
    """They are part of the extras' digest, and counted as covered."""
    world = edited(a_world(), routed())
    snapshot = a_snapshot(tmp_path, world)
    facts = load_evidence(LocalStore(), str(snapshot), "full").staged[WITH_ROUTES.key].value

    assert ("valid", "read", WITH_ROUTES.extras_digest) == (judged(snapshot).verdict, facts.routes, facts.extras_found)


@pytest.mark.parametrize(
    ("change", "rules", "word"),
    [
        (lambda rows, index: rows.pop(index), {"INV005", "INV012"}, "has no row"),
        (lambda rows, index: rows.update({index: tensor_node(TensorValue("int16", (3, 1, 2), bytes(12)))}), {"INV008"}, "extras of"),
        (lambda rows, index: rows.update({index: tensor_node(TensorValue("int16", (3, 2), bytes(12)))}), {"INV005", "INV007"}, "routed"),
    ],
    ids=["gone", "changed", "misshapen"],
)  # fmt: skip
def test_routes_that_are_lacking_or_changed(tmp_path, change, rules, word):
    """A row that says that it has routes is only as good as they are."""
    world = edited(a_world(), routed())
    index = index_of(world, WITH_ROUTES.key)
    tree = unit_tree(world, index % 2)
    change(tree["field_data"]["routed_experts"], index)
    snapshot = a_snapshot(tmp_path, world)
    unit_path(snapshot, index % 2).write_bytes(write_pickle(tree, 5))
    target = judged(snapshot)

    assert failed(target) <= rules
    assert failed(target)
    assert any(word in message for _, message in said(target))


def test_routes_of_an_opaque_dtype_leave_the_extras_unchecked(tmp_path):
    """The rest of the row is proved; that the routes are not is said, and not called valid."""
    world = edited(a_world(), routed())
    index = index_of(world, WITH_ROUTES.key)
    tree = unit_tree(world, index % 2)
    stream = encode_stream("uint8", bytes(12)).replace(b"ctorch\nByteStorage", b"ctorch.storage\nUntypedStorage")
    storage = Call(Global("torch.storage", "_load_from_bytes"), (stream,))
    hooks = Call(Global("collections", "OrderedDict"), ())
    tree["field_data"]["routed_experts"][index] = Call(
        Global("torch._utils", "_rebuild_tensor_v3"),
        (storage, 0, (3, 1, 2), (2, 2, 1), False, hooks, Global("torch", "uint16")),
    )
    snapshot = a_snapshot(tmp_path, world)
    unit_path(snapshot, index % 2).write_bytes(write_pickle(tree, 5))
    target = judged(snapshot)

    assert target.verdict == "incomplete"
    assert {"INV005"} == {outcome.rule for outcome in target.outcomes if outcome.outcome == "could_not_run"}
    assert any(OPAQUE in item.reason for item in target.coverage.unchecked)


# --- views, blobs ---


def test_rows_of_a_batch_share_its_buffer(tmp_path):
    """A batch put stores each row as a view of the whole batch: rows are told apart, and the batch is not read for each."""
    world = a_world()
    tree = unit_tree(world, 1)
    rows = list(tree["field_data"]["token_ids_delta"])
    values = a_data_plane(world).rows[1]
    for name in COLUMNS:
        batch = b"".join(values[name][index].data for index in rows)
        dtype = values[name][rows[0]].dtype
        offset = 0
        for index in rows:
            whole = tensor_node(TensorValue(dtype, (len(batch) // (8 if dtype == "int64" else 4),), batch))
            size = values[name][index].shape
            tree["field_data"][name][index] = replace(
                whole, arguments=(whole.arguments[0], offset, size, (1,), *whole.arguments[4:])
            )
            offset += size[0]
    snapshot = a_snapshot(tmp_path)
    unit_path(snapshot, 1).write_bytes(write_pickle(tree, 5))
    store = CountingStore()
    target = judged(snapshot, store)

    assert (target.verdict, said(target)) == ("valid", [])
    assert any(item.bytes > 3 * 8 for item in target.coverage.unchecked if "su_1" in item.path)


BLOB = "{:032x}.bin"


def offloaded(snapshot, world, position, keys, codec="tensor"):
    """Move the token columns of some rows into blobs, as SSD offload does; the paths of the blobs by (field, key)."""
    tree = unit_tree(world, position)
    folder = unit_path(snapshot, position).with_name(f"{unit_path(snapshot, position).name}.blobs")
    folder.mkdir()
    places, entries = {}, {}
    for number, (name, key) in enumerate((name, key) for name in COLUMNS for key in keys):
        value = a_data_plane(world).rows[position][name][index_of(world, key)]
        del tree["field_data"][name][index_of(world, key)]
        places[name, key] = folder / BLOB.format(number)
        places[name, key].write_bytes(value.data)
        entries.setdefault(name, {})[index_of(world, key)] = {
            "filename": BLOB.format(number),
            "size_bytes": len(value.data),
            "codec": codec,
            "dtype": value.dtype,
            "shape": list(value.shape),
        }
    unit_path(snapshot, position).write_bytes(write_pickle({**tree, "format": SSD_FORMAT, "ssd_index": entries}, 5))
    return places


def rows_of(position):
    """The needed rows of the default world that lie in a unit."""
    needed = (CALL_5, CALL_8, CALL_9, SEALED_1, SEALED_2)
    return [row.key for row in needed if index_of(a_world(), row.key) % 2 == position]


def test_offloaded_rows_are_read_from_their_blobs(tmp_path):
    """Each blob once; all of it is covered by a digest."""
    snapshot = a_snapshot(tmp_path)
    places, store = offloaded(snapshot, a_world(), 1, rows_of(1)), CountingStore()
    target = judged(snapshot, store)

    assert (target.verdict, said(target)) == ("valid", [])
    assert {1} == {store.opened[str(path)] for path in places.values()}
    assert not any(".blobs/" in item.path for item in target.coverage.unchecked)


@pytest.mark.parametrize("field", COLUMNS)
def test_a_bit_of_a_blob_that_changed(tmp_path, field):
    """The digest of its row differs."""
    snapshot = a_snapshot(tmp_path)
    path = offloaded(snapshot, a_world(), 1, rows_of(1))[field, CALL_5.key]
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    target = judged(snapshot)

    assert {"INV007"} == failed(target)
    assert all(CALL_5.key in message for _, message in said(target))


def test_a_blob_that_is_short_or_gone_is_dangling(tmp_path):
    """Its size alone shows that; nothing else is said of the row."""
    snapshot = a_snapshot(tmp_path)
    places = offloaded(snapshot, a_world(), 1, rows_of(1))
    places[COLUMNS[0], CALL_5.key].write_bytes(b"")
    places[COLUMNS[1], CALL_9.key].unlink()

    assert {"INV005"} == failed(judged(snapshot))


def test_a_blob_that_cannot_be_read_is_not_called_damaged(tmp_path):
    """An I/O error leaves the row unchecked."""
    snapshot = a_snapshot(tmp_path)
    path = str(offloaded(snapshot, a_world(), 1, rows_of(1))[COLUMNS[0], CALL_5.key])

    def failing(opened, source):
        if opened == path:
            raise StorageError(operation="read", path=path, detail="Input/output error")
        return source

    target = judged(snapshot, CountingStore(failing))
    assert target.verdict == "incomplete"
    assert {"Input/output error" in finding.message for finding in target.findings} == {True}


def test_blobs_of_an_opaque_codec_are_never_opened(tmp_path):
    """A pickle in a blob stays shut; what it holds is not checked."""
    snapshot = a_snapshot(tmp_path)
    places, store = offloaded(snapshot, a_world(), 1, rows_of(1), codec="pickle"), CountingStore()
    target = judged(snapshot, store)

    assert target.verdict == "incomplete"
    assert {0} == {store.opened[str(path)] for path in places.values()}
    assert {OPAQUE} == {item.reason for item in target.coverage.unchecked if ".blobs/" in item.path}


def a_sample_in_a_blob(snapshot):
    world, name = a_world(), "input_ids"
    tree = unit_tree(world, 0)
    index = a_data_plane(world).controller.partitions["rollout_data"].keys["g5_g0"]
    value = a_data_plane(world).rows[0][name][index]
    del tree["field_data"][name][index]
    path = unit_path(snapshot, 0).with_name(f"{unit_path(snapshot, 0).name}.blobs") / BLOB.format(0)
    path.parent.mkdir()
    path.write_bytes(value.data)
    entry = {
        "filename": path.name,
        "size_bytes": len(value.data),
        "codec": "tensor",
        "dtype": value.dtype,
        "shape": list(value.shape),
    }
    unit_path(snapshot, 0).write_bytes(
        write_pickle({**tree, "format": SSD_FORMAT, "ssd_index": {name: {index: entry}}}, 5)
    )
    return path


@pytest.mark.parametrize("part", ["", "data_plane"])
def test_a_sample_in_a_blob_is_read_through(tmp_path, part):
    """It has no digest, so it stays listed; but it must be there to be read, alone too."""
    snapshot = a_snapshot(tmp_path)
    path, store = a_sample_in_a_blob(snapshot), CountingStore()
    target = judged(snapshot / part if part else snapshot, store)

    assert (target.verdict, store.read[str(path), 1]) == ("valid", path.stat().st_size)
    assert [NO_DIGEST_BLOB] == [item.reason for item in target.coverage.unchecked if ".blobs/" in item.path]


@pytest.mark.parametrize(("cut", "verdict"), [(True, "invalid"), (False, "incomplete")])
def test_a_sample_that_cannot_be_read(tmp_path, cut, verdict):
    """Shorter than it was is damage; an I/O error is not."""
    snapshot = a_snapshot(tmp_path)
    path = str(a_sample_in_a_blob(snapshot))

    def between(opened, source):
        if opened == path and cut:
            return replace_size(SliceSource(source, 0, source.size_bytes - 8), source.size_bytes)
        if opened == path:
            raise StorageError(operation="read", path=path, detail="Input/output error")
        return source

    target = judged(snapshot, CountingStore(between))
    assert target.verdict == verdict
    assert {"INV002"} == {finding.rule for finding in target.findings}


def replace_size(source, size_bytes):
    """A source that says that it has another size."""

    @dataclass
    class Claiming:
        size_bytes: int

        def read_at(self, offset, count):
            return source.read_at(offset, count)

    return Claiming(size_bytes)


# --- while it is read ---


@pytest.mark.parametrize("field", ["token_ids_delta", "digest_bytes"])
def test_a_unit_that_changes_between_its_two_readings(tmp_path, field):
    """Another size is told as what it is, and no row of it is believed."""
    snapshot = a_snapshot(tmp_path)
    path = str(unit_path(snapshot, 1))
    store = CountingStore()
    store._put_between = lambda opened, source: (
        replace_size(source, source.size_bytes + 1) if opened == path and store.opened[path] > 1 else source
    )
    target = judged(snapshot, store)

    assert target.verdict == "invalid"
    assert all("changed while it was read" in message for _, message in said(target))


def test_a_unit_that_is_deleted_between_its_two_readings(tmp_path):
    """Not damage: its rows could not be checked."""
    snapshot = a_snapshot(tmp_path)
    path = str(unit_path(snapshot, 1))

    def gone(opened, source):
        if opened == path and store.opened[path] > 1:
            raise FileNotFoundError(path)
        return source

    store = CountingStore(gone)
    assert judged(snapshot, store).verdict == "incomplete"


# --- limits ---


def test_a_call_of_absurdly_many_tokens_is_not_read(tmp_path):
    """It is said that it was not checked, whatever it holds."""
    limits = replace(DEFAULT_LIMITS, staged_row_tokens=3)
    target = judged(a_snapshot(tmp_path), limits=limits)

    assert target.verdict == "incomplete"
    assert any("exceeds the limit" in message for _, message in said(target))


def test_a_chain_of_absurdly_many_tokens_is_hashed_as_far_as_it_goes(tmp_path):
    """Digests and chain hashes are compared, the hash over the whole chain is said not to be."""
    limits = replace(DEFAULT_LIMITS, staged_chain_tokens=5)
    snapshot = a_snapshot(tmp_path)
    target = judged(snapshot, limits=limits)
    facts = {
        key: (part.value.cumulative_found is None, part.value.chain_found is None)
        for key, part in load_at(snapshot, limits).staged.items()
    }

    assert target.verdict == "incomplete"
    assert any("too long" in message for _, message in said(target))
    assert [(CALL_5.key, (False, False)), (CALL_8.key, (True, False)), (CALL_9.key, (True, False))] == [
        (row.key, facts[row.key]) for row in (CALL_5, CALL_8, CALL_9)
    ]


def load_at(path, limits):
    from ckptctl.workflows.load_anchor import AnchorLoader
    from ckptctl.workflows.load_evidence import Known, load_target
    from ckptctl.workflows.targets import find_targets

    store = LocalStore()
    (target,) = find_targets(store, str(path))
    return load_target(store, target, "full", Known(), AnchorLoader(store, limits), limits).evidence


def test_views_that_repeat_one_storage_are_not_read_without_end(tmp_path, monkeypatch):
    """Many views of one storage would add up to more than any disk holds."""
    import ckptctl.workflows.tensor_sources as module

    monkeypatch.setattr(module, "_SPARE_BYTES", 0)
    monkeypatch.setattr(module, "_REPEATED", 0)
    target = judged(a_snapshot(tmp_path))

    assert target.verdict == "incomplete"
    assert any("repeat their storages" in message for _, message in said(target))


def test_a_handful_of_units_is_open_at_a_time(tmp_path, monkeypatch):
    """A plane of thousands of units does not run out of descriptors."""
    import ckptctl.workflows.tensor_sources as module

    monkeypatch.setattr(module, "_MOST_OPEN", 1)
    assert judged(a_snapshot(tmp_path, a_world(storage_units=3))).verdict == "valid"


# --- chains ---


def test_an_ancestor_that_nothing_needs_is_read_for_its_child(tmp_path):
    """The chain is checked over it; that a restore will delete it is the finding."""
    world = edited(a_world(), {"models policy_model custody g7_g0-a1 1 staging_chain": (CALL_5.key, CALL_9.key)})
    snapshot = a_snapshot(tmp_path, world)
    staged = load_evidence(LocalStore(), str(snapshot), "full").staged

    assert (False, True) == (staged[CALL_8.key].value.is_needed, staged[CALL_9.key].value.is_needed)
    assert staged[CALL_9.key].value.cumulative_found == CALL_9.cumulative_hash
    assert {"INV010"} == failed(judged(snapshot))


def test_a_chain_that_bites_its_own_tail(tmp_path):
    """Calls that are each other's parents have no root: they are read all the same, and the break is told."""
    first = a_call("g7_g1", "call-1", (21, 22, 910))
    second = a_call("g7_g1", "call-2", (23, 911), first)
    from tests.rules.staged_samples import signed

    looped = signed(first, parent_call_id="call-2", capture_mode="token_in", prev_len=5, cum_len=8)
    world = edited(
        a_world(),
        {
            "staged": lambda rows: tuple(looped if row == SEALED_1 else row for row in rows),
            "ledger groups 0 siblings 1 attempts 0 receipt manifest 0": lambda row: {
                **row, "digest": looped.digest, "parent_call_id": "call-2", "mode": "token_in", "prev_len": 5, "cum_len": 8,
            },
        },
    )  # fmt: skip
    target = judged(a_snapshot(tmp_path, world))

    assert second.key == SEALED_2.key
    assert {"INV010"} == failed(target)
    assert any("begins at" in message for _, message in said(target))


def test_a_damaged_ancestor_is_one_finding(tmp_path):
    """What follows from it (chain and cumulative hashes of all calls behind it) is not told again."""
    changed = replace(CALL_5, token_ids=array("q", (11, 12, 13, 901)))
    world = edited(a_world(), {"staged": lambda rows: tuple(changed if row == CALL_5 else row for row in rows)})
    target = judged(a_snapshot(tmp_path, world))

    assert [("INV007", f"digest of `{CALL_5.key}` differs: the tokens are not the ones that were captured")] == said(
        target
    )


def test_an_undecodable_ancestor_is_one_finding(tmp_path):
    """Likewise when its bytes make no row at all."""
    world = a_world()
    index = index_of(world, CALL_5.key)
    tree = unit_tree(world, index % 2)
    tree["field_data"]["parent_call_id_present"][index] = tensor_node(TensorValue("bool", (), b"\x07"))
    snapshot = a_snapshot(tmp_path)
    unit_path(snapshot, index % 2).write_bytes(write_pickle(tree, 5))
    target = judged(snapshot)

    assert {"INV007"} == failed(target)
    assert 1 == len(said(target))
    assert "neither true nor false" in said(target)[0][1]


def test_a_data_plane_without_a_staging_partition(tmp_path):
    """Nothing to read, nothing to say."""
    target = judged(a_snapshot(tmp_path, a_world(**empty())) / "data_plane")

    assert ("valid", []) == (target.verdict, said(target))


def empty():
    facts = quiet()
    from tests.world import a_ledger

    return {**facts, "ledger": a_ledger(groups=[]), "staged": ()}


def test_the_run_may_name_the_staging_partition(tmp_path):
    """A data plane alone does not say which of its partitions is the staging one; the run's configuration does."""
    from ckptctl.domain.evidence import RunFacts

    world = edited(a_world(), {"staged": lambda rows: tuple(replace(row, weight_version=9) for row in rows)})
    path = a_snapshot(tmp_path, world) / "data_plane"

    assert "invalid" == judged(path).verdict
    assert "valid" == judged(path, run=RunFacts(staging_partition="elsewhere")).verdict


def test_a_rows_route_encoding_is_not_believed_blindly(tmp_path):
    """An encoding that the bytes of a row do not fit is told as a changed row."""
    changed = replace(CALL_9, routed_experts_encoding=ROUTES_ENVELOPE)
    world = edited(a_world(), {"staged": lambda rows: tuple(changed if row == CALL_9 else row for row in rows)})

    assert failed(judged(a_snapshot(tmp_path, world))) <= {"INV005", "INV007"}
    assert failed(judged(a_snapshot(tmp_path, world)))
