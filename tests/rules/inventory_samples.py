"""Samples of the INV rules of level standard; those that need the bytes of staged rows are in `staged_samples`."""

from ckptctl.domain.dataplane import StorageUnit
from ckptctl.domain.evidence import Part, RunFacts
from ckptctl.domain.finding import Defect
from tests.builders import DROP
from tests.rules.samples import bad, gone, good
from tests.world import CALL_9, ROUTED, SEALED_1, a_replay, a_replay_group, a_route_plan

CONTROLLER, REPLAY = "data_plane/controller_state.pkl", "replay_buffer_metadata.pt"
INFO = "data_plane/simple_storage/storage_unit_info.json"
STATE = "controller_state value partitions"
STAGED, CANONICAL = f"{STATE} rollout_staging", f"{STATE} rollout_data"
WITH_ALONE = ("INV002", "INV012", "INV015")
for rule in ("INV001", "INV002", "INV003", "INV004", "INV005", "INV011", "INV012", "INV013", "INV014", "INV015"):
    good(rule, "two finished groups, two unfinished ones, two storage units")
    good(rule, "an anchor with a data plane of its own", base="anchor")
for rule in WITH_ALONE:
    good(rule, "a data plane alone", base="data plane")
good("INV015", "one storage unit", world={"storage_units": 1})


def unit_of(index):
    """The edit path of the storage unit that holds a row of the default world."""
    return f"units su_{index % 2}_TQ_STORAGE_UNIT_{'00000000' if index % 2 == 0 else '11111111'}.pkl value"


def unit_file(index):
    return f"data_plane/simple_storage/{unit_of(index).split()[1]}"


def without(*steps):
    """An edit that drops one key of nested mappings."""

    def change(mapping):
        if len(steps) == 1:
            return {key: value for key, value in mapping.items() if key != steps[0]}
        return {**mapping, steps[0]: without(*steps[1:])(mapping[steps[0]])}

    return change


def unproduced(field, index):
    """An edit of a partition: the production bit of one value is cleared, and the field's metadata knows."""

    def change(partition):
        from dataclasses import replace

        bits = bytearray(partition.production)
        bits[index * partition.production_columns + partition.columns[field]] = 0
        meta = partition.field_metas[field]
        meta = replace(meta, global_indexes=meta.global_indexes - {index})
        return replace(partition, production=bytes(bits), field_metas={**partition.field_metas, field: meta})

    return change


def retyped(**changes):
    return lambda value: value._replace(**changes)


# In the default world the samples have rows 2 to 5, the staged calls rows 7 to 15 in the order of `tests.world.STAGED`.
G5_G0, CALL_5_ROW, SEALED_ROW = 2, 7, 10

bad("INV001", "a finished sample is not in the data plane", "g5_g1", world={"samples g5_g1": DROP}, artifact=CONTROLLER)
bad(
    "INV001",
    "the data plane has a sample that nothing names",
    "g4_g0",
    evidence={
        f"{CANONICAL} keys": lambda keys: {**keys, "g4_g0": 6},
        f"{CANONICAL} reverse_keys": lambda keys: {**keys, 6: "g4_g0"},
    },
    artifact=REPLAY,
)
bad("INV001", "the canonical partition is not there", "g5_g0", evidence={CANONICAL: DROP}, artifact=CONTROLLER)

bad(
    "INV002",
    "a field of a finished sample was never produced",
    "total_reward",
    evidence={CANONICAL: unproduced("total_reward", G5_G0)},
    artifact=CONTROLLER,
)
bad(
    "INV002",
    "a field is marked produced, its row is gone",
    "g5_g0",
    evidence={f"{unit_of(G5_G0)} rows": without("input_ids", G5_G0)},
    artifact=unit_file(G5_G0),
)
bad(
    "INV002",
    "a data plane alone: a produced value is gone",
    "g7_g1/call-1",
    base="data plane",
    evidence={f"{unit_of(SEALED_ROW)} rows": without("token_ids_delta", SEALED_ROW)},
    artifact=unit_file(SEALED_ROW).removeprefix("data_plane/"),
)
good(
    "INV002",
    "an unlisted field was never produced",
    world={"replay": lambda replay: _with_fields(replay, ["input_ids"])},
    evidence={CANONICAL: unproduced("total_reward", G5_G0)},
)
good(
    "INV002",
    "a group that lists no fields",
    world={"replay": lambda replay: _with_fields(replay, None)},
    evidence={CANONICAL: unproduced("total_reward", G5_G0)},
)


def _with_fields(replay, fields):
    return _regrouped(
        replay, lambda group: group.model_copy(update={"meta": group.meta.model_copy(update={"fields": fields})})
    )


def _regrouped(replay, change, at=0):
    groups = [change(group) if index == at else group for index, group in enumerate(replay.groups)]
    return a_replay(groups, saved_capacity=replay.saved_capacity)


def regrouped(at=0, **changes):
    """An edit of the replay metadata: one group changed, the digest computed again."""
    return {"replay": lambda replay: _regrouped(replay, lambda group: group.model_copy(update=changes), at)}


def remeta(at=0, **changes):
    return {
        "replay": lambda replay: _regrouped(
            replay, lambda group: group.model_copy(update={"meta": group.meta.model_copy(update=changes)}), at
        )
    }


bad(
    "INV003",
    "a group is listed twice",
    "twice",
    world={"replay": lambda replay: a_replay([*replay.groups, replay.groups[0]])},
    artifact=REPLAY,
)
bad("INV003", "samples in another order", "sample 0", world=remeta(sample_ids=["g5_g1", "g5_g0"]), artifact=REPLAY)
bad(
    "INV003",
    "a group with one sample more than the others",
    "3 samples",
    world={
        **remeta(1, sample_ids=["g6_g0", "g6_g1", "g6_g2"], tags=None, sequence_lengths=None),
        "samples": lambda samples: {**samples, "g6_g2": samples["g6_g0"]},
    },
    artifact=REPLAY,
)
bad("INV003", "fewer tags than samples", "tags", world=remeta(tags=[{"weight_version": 3}]), artifact=REPLAY)
bad("INV003", "fewer lengths than samples", "lengths", world=remeta(sequence_lengths=[7]), artifact=REPLAY)
bad(
    "INV003",
    "a group that ends before it starts",
    "start_weight",
    world=regrouped(start_weight=3, end_weight=2),
    artifact=REPLAY,
)
bad(
    "INV003",
    "a group without samples",
    "no samples",
    world={
        "replay": lambda replay: a_replay(
            [
                *replay.groups,
                a_replay_group(
                    "g4",
                    [],
                    meta=replay.groups[0].meta.model_copy(
                        update={"sample_ids": [], "tags": [], "sequence_lengths": []}
                    ),
                ),
            ]
        )
    },
    artifact=REPLAY,
)
bad(
    "INV003",
    "more finished groups than the saved capacity",
    "saved_capacity",
    world={
        "replay": lambda replay: a_replay(replay.groups, saved_capacity=1),
        "ledger groups": [],
        "with_gym": False,
        **{
            f"{name} rollout_checkpointing gym participant_checkpointing_enabled": False
            for name in ("config", "anchor_config")
        },
    },
    artifact=REPLAY,
)

bad(
    "INV004",
    "a row of a sealed receipt was cleared",
    "receipt of `g7_g1` attempt 0",
    world={"staged": lambda rows: tuple(row for row in rows if row != SEALED_1)},
    artifact=CONTROLLER,
)
bad(
    "INV004",
    "a row of a continuation was cleared",
    "continuation `g7_g0-a1`",
    world={"staged": lambda rows: tuple(row for row in rows if row != CALL_9)},
    artifact=CONTROLLER,
)
bad(
    "INV004",
    "a row of a route plan was cleared",
    "route plan `g6_g0`",
    world={"staged": lambda rows: tuple(row for row in rows if row != ROUTED[0])},
    artifact=CONTROLLER,
)
bad(
    "INV004",
    "the staging partition is not there",
    "g7_g0/call-5",
    evidence={STAGED: DROP, "controller_state value partition_indexes rollout_staging": DROP},
    artifact=CONTROLLER,
)

bad(
    "INV005",
    "a field of a needed row was never produced",
    "weight_version",
    evidence={STAGED: unproduced("weight_version", CALL_5_ROW)},
    artifact=CONTROLLER,
)
bad(
    "INV005",
    "a field of a needed row is gone",
    "g7_g0/call-5",
    evidence={f"{unit_of(CALL_5_ROW)} rows": without("digest_bytes", CALL_5_ROW)},
    artifact=unit_file(CALL_5_ROW),
)
bad(
    "INV005",
    "a column of another dtype",
    "int32",
    evidence={f"{unit_of(CALL_5_ROW)} rows token_ids_delta {CALL_5_ROW}": retyped(dtype="int32")},
    artifact=unit_file(CALL_5_ROW),
)
bad(
    "INV005",
    "a scalar that is a column",
    "rank 1",
    evidence={f"{unit_of(CALL_5_ROW)} rows weight_version {CALL_5_ROW}": retyped(shape=(1,))},
    artifact=unit_file(CALL_5_ROW),
)
bad(
    "INV005",
    "token columns of different lengths",
    "equally long",
    evidence={f"{unit_of(CALL_5_ROW)} rows token_mask_delta {CALL_5_ROW}": retyped(shape=(3,))},
    artifact=unit_file(CALL_5_ROW),
)
bad(
    "INV005",
    "a digest of 31 bytes",
    "32 bytes",
    evidence={f"{unit_of(CALL_5_ROW)} rows digest_bytes {CALL_5_ROW}": retyped(shape=(31,))},
    artifact=unit_file(CALL_5_ROW),
)
bad(
    "INV005",
    "a text where a tensor must be",
    "text",
    evidence={f"{unit_of(CALL_5_ROW)} rows capture_mode {CALL_5_ROW}": retyped(kind="text", dtype="", shape=())},
    artifact=unit_file(CALL_5_ROW),
)
good("INV005", "a row that nothing needs may be incomplete", evidence={STAGED: unproduced("digest_bytes", 13)})


def replanned(**changes):
    """An edit: the route plan of `g6_g0` changed."""

    def change(group):
        tags = [{"weight_version": 3, "route_assembly_plan": a_route_plan(row)} for row in ROUTED]
        tags[0]["route_assembly_plan"] = {**tags[0]["route_assembly_plan"], **changes}
        return group.model_copy(update={"meta": group.meta.model_copy(update={"tags": tags})})

    return {"replay": lambda replay: _regrouped(replay, change, 1)}


bad("INV011", "a plan of another schema", "schema_version", world=replanned(schema_version=1), artifact=REPLAY)
bad("INV011", "lengths that do not add up", "add up", world=replanned(expected_token_length=99), artifact=REPLAY)
bad(
    "INV011",
    "a plan for another partition",
    "another staging partition",
    world=replanned(staging_partition="elsewhere"),
    artifact=REPLAY,
)
bad(
    "INV011", "a span that is not cleaned up", "g6_g0/call-1", world=replanned(cleanup_staging_keys=[]), artifact=REPLAY
)
bad(
    "INV011",
    "a key that is cleaned up twice",
    "twice",
    world=replanned(cleanup_staging_keys=[ROUTED[0].key] * 2),
    artifact=REPLAY,
)
bad("INV011", "an unknown field", "colour", world=replanned(colour="red"), artifact=REPLAY)
bad(
    "INV011",
    "a negative length",
    "carry_len",
    world=replanned(spans=[{**a_route_plan(ROUTED[0])["spans"][0], "carry_len": -1}]),
    artifact=REPLAY,
)
bad(
    "INV011",
    "a plan that is no object",
    "not an object",
    world={
        "replay": lambda replay: _regrouped(
            replay,
            lambda group: group.model_copy(
                update={"meta": group.meta.model_copy(update={"tags": [{"route_assembly_plan": 1}, {}]})}
            ),
            1,
        )
    },
    artifact=REPLAY,
)
good("INV011", "a plan without spans", world=replanned(spans=[], expected_token_length=0))

bad(
    "INV012",
    "two staging keys on one row",
    "g7_g0-a1/call-8",
    evidence={f"{STAGED} keys g7_g0-a1/call-8": CALL_5_ROW},
    artifact=CONTROLLER,
)
bad(
    "INV012",
    "the inverse key map names another key",
    "inverse key map",
    evidence={f"{STAGED} reverse_keys {CALL_5_ROW}": "other"},
    artifact=CONTROLLER,
)
bad(
    "INV012",
    "a needed row is not active",
    "global_indexes",
    evidence={f"{STAGED} global_indexes": lambda rows: rows - {CALL_5_ROW}},
    artifact=CONTROLLER,
)
bad(
    "INV012",
    "the index manager does not know a needed row",
    "index manager",
    evidence={"controller_state value partition_indexes rollout_staging": lambda rows: rows - {CALL_5_ROW}},
    artifact=CONTROLLER,
)
bad(
    "INV012",
    "a needed row is free for reuse",
    "reusable",
    evidence={"controller_state value reusable_indexes": (0, 1, CALL_5_ROW)},
    artifact=CONTROLLER,
)
bad(
    "INV012",
    "a row beyond the counter",
    "global_index_counter",
    evidence={"controller_state value next_index": 9},
    artifact=CONTROLLER,
)
bad(
    "INV012",
    "one row in two partitions",
    "two partitions",
    evidence={"controller_state value partition_indexes rollout_data": lambda rows: rows | {CALL_5_ROW}},
    artifact=CONTROLLER,
)
bad(
    "INV012",
    "field metadata lacks a produced row",
    "field metadata",
    evidence={f"{STAGED} field_metas digest_bytes global_indexes": lambda rows: rows - {CALL_5_ROW}},
    artifact=CONTROLLER,
)
bad(
    "INV012",
    "a stored row is not active in its unit",
    "not active",
    evidence={f"{unit_of(CALL_5_ROW)} active_keys": lambda rows: rows - {CALL_5_ROW}},
    artifact=unit_file(CALL_5_ROW),
)
bad(
    "INV012",
    "a data plane alone: two keys on one row",
    "mapped to one row",
    base="data plane",
    evidence={f"{STAGED} keys g7_g0-a1/call-8": CALL_5_ROW},
    artifact="controller_state.pkl",
)
good(
    "INV012",
    "a row that is only reserved belongs to one partition",
    evidence={f"{STAGED} pre_allocated": lambda rows: rows | {16}},
)
good(
    "INV012",
    "a key with tags only has no field",
    evidence={
        f"{STAGED} keys": lambda keys: {**keys, "g9_g9/call-0": 16},
        f"{STAGED} reverse_keys": lambda keys: {**keys, 16: "g9_g9/call-0"},
    },
)

bad("INV013", "a row past the last boundary", "g8_g1/call-0", artifact=CONTROLLER)

bad("INV014", "a replay group of newer weights", "replay group `g5`", world=regrouped(end_weight=4), artifact=REPLAY)
bad(
    "INV014",
    "a tag of newer weights",
    "tag of sample `g5_g0`",
    world=remeta(tags=[{"weight_version": 4}, {"weight_version": 3}]),
    artifact=REPLAY,
)
bad(
    "INV014",
    "a tag of weights before the first",
    "tag of sample `g5_g0` carries weight version -1, which no trainer has",
    world=remeta(tags=[{"weight_version": -1}, {"weight_version": 3}]),
    artifact=REPLAY,
)
bad(
    "INV014",
    "an unfinished group of newer weights",
    "group `g8`",
    world={"ledger groups 1 start_weight_version": 4},
    artifact="rollout_recovery.pt",
)
bad(
    "INV014",
    "a receipt row of newer weights",
    "receipt row `g7_g1/call-1`",
    world={"ledger groups 0 siblings 1 attempts 0 receipt manifest 0 weight_version": 4},
    artifact="rollout_recovery.pt",
)
bad(
    "INV014",
    "a staged row of newer weights",
    "staging row `g7_g1/call-1`",
    evidence={f"{STAGED} tags {SEALED_ROW} weight_version": 4},
    artifact=CONTROLLER,
)
bad(
    "INV014",
    "lineage of newer weights",
    "lineage row `call-9`",
    world={"models policy_model custody g7_g0-a1 1 weight_version": 4},
    artifact="model-ledger/policy_model/lineage-part-000000.tar",
)

bad(
    "INV015",
    "a storage unit calls itself otherwise",
    "TQ_STORAGE_UNIT_99999999",
    evidence={f"{unit_of(1)} unit_id": "TQ_STORAGE_UNIT_99999999"},
    artifact=unit_file(1),
)
bad(
    "INV015",
    "a storage unit that is not listed",
    "su_7",
    evidence={
        "units": lambda units: {
            **units,
            "su_7_X.pkl": Part(
                "data_plane/simple_storage/su_7_X.pkl", "decoded", StorageUnit("su_7_X.pkl", "X", frozenset(), {})
            ),
        }
    },
    artifact="data_plane/simple_storage/su_7_X.pkl",
)
bad(
    "INV015",
    "another number of units than the running TransferQueue",
    "num_storage_units: 2",
    facts={"run": RunFacts(storage_units=4)},
    is_incompatible=True,
    artifact=INFO,
)
bad(
    "INV015",
    "the controller's state is missing",
    "cannot be loaded",
    evidence=gone("controller_state", CONTROLLER),
    artifact=CONTROLLER,
)
bad(
    "INV015",
    "the list of units is damaged",
    "no list",
    evidence={"unit_info": lambda part: Part(part.path, "damaged", None, (Defect("is no list"),))},
    artifact=INFO,
)
bad(
    "INV015",
    "positions 0 and 2",
    "0, 1, 2",
    evidence={
        "unit_info value 1 position": 2,
        "units": lambda units: {name.replace("su_1", "su_2"): part for name, part in units.items()},
    },
    artifact=INFO,
)
bad(
    "INV015",
    "a data plane alone without a storage unit file",
    "su_1",
    base="data plane",
    evidence=gone(unit_of(1).removesuffix(" value"), unit_file(1).removeprefix("data_plane/")),
)
bad(
    "INV012",
    "a partition under another name",
    "calls itself",
    evidence={f"{STAGED} partition_id": "staging"},
    artifact=CONTROLLER,
)
bad(
    "INV015",
    "a storage unit file is missing",
    "su_1",
    evidence=gone(unit_of(1).removesuffix(" value"), unit_file(1)),
    artifact=unit_file(1),
)
