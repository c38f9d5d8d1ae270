"""The `.pt` files that we write, read by the torch of the field with nothing but plain values allowed; and files of torch, read by us."""

import io

import pytest

from ckptctl.domain.controller import Acknowledgement
from ckptctl.domain.dataplane import DTYPE_BYTES, TensorValue
from ckptctl.domain.ledger import Ledger
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.participant import CompletionReceipt
from ckptctl.domain.replay import ReplayMetadata
from ckptctl.domain.source import BytesSource
from ckptctl.formats.dataloader_file import decode_dataloader, encode_dataloader, encode_reserve, inspect_reserve
from ckptctl.formats.ledger_file import decode_ledger, encode_ledger
from ckptctl.formats.replay_file import decode_replay, encode_replay
from tests.conftest import shared_fixtures
from tests.integration.real_queue import plain
from tests.unit.formats.planes import ints, number


def loaded(torch, data: bytes):
    return torch.load(io.BytesIO(data), weights_only=True)


def saved(torch, value) -> BytesSource:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return BytesSource(buffer.getvalue())


def a_ledger() -> Ledger:
    receipt = CompletionReceipt(
        rollout_id="g_g0", attempt_index=1, execution_generation=2, result_identity="r", result_digest="ab" * 32
    )
    blank = {"receipt": None, "completion_receipt": None, "reward": None, "mask_sample": None, "staging_keys": []}
    sealed = {
        "attempt_index": 1,
        "status": "sealed",
        "receipt": {
            "rollout_id": "g_g0-a1",
            "manifest": [{"staging_key": "é/call-0", "prev_len": 2**40, "x": [1.5, None, True]}],
        },
        "completion_receipt": receipt,
        "reward": -0.25,
        "mask_sample": False,
        "staging_keys": ["é/call-0"],
    }
    group = {
        "group_id": "g",
        "admission_id": "a",
        "prompt_id": "p",
        "prompt_ref": {"sample_id": "s", "task_name": None},
        "task_source": None,
        "resolved_agent_name": "simple_agent",
        "recovery_granularity": "sibling",
        "expected_generations": 2,
        "target_step": None,
        "start_weight_version": 3,
        "status": "generating",
        "phase": "admitted",
        "siblings": [
            {"generation_index": 0, "attempts": [{"attempt_index": 0, "status": "abandoned", **blank}, sealed]},
            {"generation_index": 1, "attempts": [{"attempt_index": 0, "status": "dispatched", **blank}]},
        ],
    }
    return Ledger(
        schema_version=3,
        groups=[group],
        pending_completed_execution_acknowledgements=[Acknowledgement(receipt=receipt, agent_name="simple_agent")],
        batch_shortfall={4: 1, 70000: 2},
        sampler_stamps_target_steps=False,
    )


def a_replay() -> ReplayMetadata:
    meta = {
        "partition_id": "rollout_data",
        "task_name": None,
        "sample_ids": ["g_g0", "g_g1"],
        "fields": ["input_ids"],
        "sequence_lengths": [3, 2],
        "extra_info": {"note": {"deep": [1, 2.5, "é"]}},
        "tags": [{"weight_version": 3}, {"weight_version": 4}],
    }
    group = {"meta": meta, "start_weight": 3, "end_weight": 4, "target_step": None, "group_id": "g"}
    return ReplayMetadata(
        schema_version=1,
        storage="tq_checkpoint",
        partition_id="rollout_data",
        saved_capacity=8,
        manifest_digest="ab" * 32,
        groups=[group],
    )


def with_plain_metas(value: dict) -> dict:
    return {**value, "groups": [{**group, "meta": vars(group["meta"])} for group in value["groups"]]}


def test_torch_reads_our_ledger(torch):
    """Every value of the ledger, ints as keys included; and what torch writes again is the same ledger to us."""
    ledger = a_ledger()
    value = loaded(torch, encode_ledger(ledger))

    assert ledger.model_dump() == value
    assert ledger == decode_ledger(saved(torch, value), DEFAULT_LIMITS)


def test_torch_reads_our_replay_metadata(torch, row_meta):
    """Each group's meta is an object of NeMo-RL's class; and what torch writes again is the same to us."""
    replay = a_replay()
    value = loaded(torch, encode_replay(replay))

    assert {row_meta} == {type(group["meta"]) for group in value["groups"]}
    assert replay.model_dump() == with_plain_metas(value)
    assert replay == decode_replay(saved(torch, value), DEFAULT_LIMITS)


def test_torch_refuses_our_replay_metadata_without_the_class(torch):
    """The class is named in the file; without it weights-only loading does not guess."""
    with pytest.raises(Exception, match="KVBatchMeta"):
        loaded(torch, encode_replay(a_replay()))


def a_dataloader_state() -> dict:
    tensors = {
        dtype: TensorValue(dtype, (2, 3), bytes(range(6)) * size)
        for dtype, size in DTYPE_BYTES.items()
        if dtype != "bool"
    }
    return {
        "_snapshot": {
            "_snapshot_step": 7,
            "_main_snapshot": {"_sampler_iter_state": {"samples_yielded": 2**33, "t": (1, (2.5, None))}},
        },
        "generator": TensorValue("uint8", (5056,), bytes(5056)),
        "tensors": tensors | {"bool": TensorValue("bool", (2,), b"\1\0"), "scalar": number(5), "empty": ints()},
        "many": list(range(2500)),
    }


def same(ours, theirs) -> bool:
    if isinstance(ours, TensorValue):
        return ours == plain(theirs)
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, list | tuple):
        return type(ours) is type(theirs) and len(ours) == len(theirs) and all(map(same, ours, theirs))
    return type(ours) is type(theirs) and ours == theirs


def test_torch_reads_our_dataloader_state(torch):
    """Nested values and tensors of every dtype; and what torch writes again is the same state to us."""
    state = a_dataloader_state()
    value = loaded(torch, encode_dataloader(state))

    assert same(state, value)
    assert same(decode_dataloader(saved(torch, value), DEFAULT_LIMITS), value)


def test_torch_reads_our_reserve(torch):
    """A list of prompts; we count its entries without decoding it."""
    prompts = [{"sample_id": "s", "tokens": ints(1, 2, 3)}, {"sample_id": "é", "n": 1.5}]
    data = encode_reserve(prompts)

    assert same(prompts, loaded(torch, data))
    assert inspect_reserve(BytesSource(data), DEFAULT_LIMITS) > 3


@pytest.mark.parametrize(
    "name",
    [
        "step_1/rollout_snapshots/snapshot_000001",
        "step_1/rollout_snapshots/snapshot_000002",
        "bootstrap/rollout_snapshots/snapshot_000001",
    ],
)
def test_real_sidecars_survive_our_writers(torch, row_meta, name):
    """Read by us, written by us: torch sees what it saw in the original."""
    folder = shared_fixtures() / "turn" / name
    ledger, replay, loader = (
        (folder / file).read_bytes()
        for file in ("rollout_recovery.pt", "replay_buffer_metadata.pt", "train_dataloader.pt")
    )

    assert loaded(torch, ledger) == loaded(torch, encode_ledger(decode_ledger(BytesSource(ledger), DEFAULT_LIMITS)))
    again = loaded(torch, encode_replay(decode_replay(BytesSource(replay), DEFAULT_LIMITS)))
    assert with_plain_metas(loaded(torch, replay)) == with_plain_metas(again)
    state = decode_dataloader(BytesSource(loader), DEFAULT_LIMITS)
    assert same(state, loaded(torch, loader))
    assert same(state, loaded(torch, encode_dataloader(state)))
