"""Sidecars of arbitrary contents survive a round trip, and of arbitrary damage nothing but a defect comes out."""

import math
import pickle
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptctl.domain.dataplane import DTYPE_BYTES, TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.ledger import Ledger
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.replay import ReplayMetadata
from ckptctl.domain.source import BytesSource
from ckptctl.formats.dataloader_file import decode_dataloader, encode_dataloader, encode_reserve, inspect_reserve
from ckptctl.formats.ledger_file import decode_ledger, encode_ledger
from ckptctl.formats.pickle_machine import read_pickle
from ckptctl.formats.pickle_writer import write_pickle
from ckptctl.formats.replay_file import decode_replay, encode_replay
from ckptctl.formats.torch_zip import read_torch_zip, write_torch_zip

EXAMPLES = settings(max_examples=40, deadline=None)
MANY = settings(max_examples=800, deadline=None)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
COUNTS = st.integers(0, 2**40)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | NUMBERS | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(TEXTS | st.integers(-9, 9), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXTS, PLAIN, max_size=3)


def records(**fields):
    return st.fixed_dictionaries(fields)


COMPLETIONS = st.tuples(
    records(
        rollout_id=IDS,
        attempt_index=COUNTS,
        execution_generation=st.integers(1, 9),
        result_identity=NAMES,
        result_digest=DIGESTS,
    ),
    st.just((None, None)) | st.tuples(IDS, NAMES),
).map(lambda pair: {**pair[0], "manifest_capture_key": pair[1][0], "terminal_model_call_id": pair[1][1]})
ATTEMPTS = records(
    attempt_index=COUNTS,
    status=st.sampled_from(["reserved", "dispatched", "sealed", "failed", "abandoned"]),
    receipt=st.none() | OBJECTS,
    completion_receipt=st.none() | COMPLETIONS,
    reward=st.none() | NUMBERS | st.integers(-3, 3),
    mask_sample=st.none() | st.booleans(),
    staging_keys=st.lists(TEXTS, max_size=3),
)
GROUPS = records(
    group_id=NAMES,
    admission_id=NAMES,
    prompt_id=NAMES,
    prompt_ref=records(sample_id=NAMES, task_name=st.none() | TEXTS),
    task_source=st.none() | TEXTS,
    resolved_agent_name=st.none() | TEXTS,
    recovery_granularity=st.sampled_from(["sibling", "prompt_group"]),
    expected_generations=st.integers(1, 9),
    target_step=st.none() | COUNTS,
    start_weight_version=COUNTS,
    status=st.sampled_from(["generating", "ready_to_finalize", "finalizing", "finalization_unknown"]),
    phase=st.sampled_from(["reserved", "admitted"]),
    siblings=st.lists(
        records(generation_index=COUNTS, attempts=st.lists(ATTEMPTS, min_size=1, max_size=2)), max_size=2
    ),
)
LEDGERS = records(
    schema_version=st.just(3),
    groups=st.lists(GROUPS, max_size=3),
    pending_completed_execution_acknowledgements=st.lists(records(receipt=COMPLETIONS, agent_name=NAMES), max_size=2),
    batch_shortfall=st.dictionaries(COUNTS, COUNTS, max_size=3),
    sampler_stamps_target_steps=st.booleans(),
).map(Ledger.model_validate)
METAS = records(
    partition_id=TEXTS,
    task_name=st.none() | TEXTS,
    sample_ids=st.lists(TEXTS, max_size=3),
    fields=st.none() | st.lists(TEXTS, max_size=3),
    sequence_lengths=st.none() | st.lists(COUNTS, max_size=3),
    extra_info=OBJECTS | st.fixed_dictionaries({"rollout_metrics": TEXTS}),
    tags=st.none() | st.lists(OBJECTS, max_size=3),
)
REPLAYS = records(
    schema_version=st.just(1),
    storage=st.just("tq_checkpoint"),
    partition_id=TEXTS,
    saved_capacity=COUNTS,
    manifest_digest=DIGESTS,
    groups=st.lists(
        records(
            meta=METAS,
            start_weight=COUNTS,
            end_weight=COUNTS,
            target_step=st.none() | COUNTS,
            group_id=NAMES,
        ),
        max_size=3,
    ),
).map(ReplayMetadata.model_validate)


@st.composite
def tensors(draw):
    dtype = draw(st.sampled_from(sorted(DTYPE_BYTES)))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    count = math.prod(shape) * DTYPE_BYTES[dtype]
    return TensorValue(dtype, shape, draw(st.binary(min_size=count, max_size=count)))


STATES = st.dictionaries(
    TEXTS,
    st.recursive(PLAIN | tensors(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6),
    max_size=4,
)  # fmt: skip
CODECS = {
    "ledger": (LEDGERS, encode_ledger, decode_ledger),
    "replay": (REPLAYS, encode_replay, decode_replay),
    "dataloader": (STATES, encode_dataloader, decode_dataloader),
}


def check_round_trip(codec, data):
    values, encode, decode = CODECS[codec]
    value = data.draw(values)
    encoded = encode(value)

    assert encoded == encode(value)
    assert value == decode(BytesSource(encoded), DEFAULT_LIMITS)


def check_damage(codec, data):
    """Flip bytes in the container, or in the pickle under a container that is whole; then cut perhaps."""
    values, encode, decode = CODECS[codec]
    good = encode(data.draw(values))
    archive = read_torch_zip(BytesSource(good), DEFAULT_LIMITS)
    inside = data.draw(st.booleans())
    damaged = bytearray(archive.pickle_source.read_at(0, len(good)) if inside else good)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    entries = archive.entries.items()
    kept = {name[5:]: good[e.data_offset :][: e.size_bytes] for name, e in entries if name.startswith("data/")}
    with suppress(DefectError):
        decode(BytesSource(write_torch_zip(bytes(damaged), kept) if inside else bytes(damaged)), DEFAULT_LIMITS)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@EXAMPLES
def test_round_trip(codec, data):
    """What was encoded decodes to itself, and encodes to the same bytes again."""
    check_round_trip(codec, data)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@EXAMPLES
def test_damage(codec, data):
    """Flipped bytes and cut files give a value or a defect, never another exception."""
    check_damage(codec, data)


@pytest.mark.long
@pytest.mark.parametrize("check", [check_round_trip, check_damage])
@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@MANY
def test_long(check, codec, data):
    """The same, many more times."""
    check(codec, data)


@given(PLAIN, st.sampled_from([2, 5]))
@EXAMPLES
def test_the_standard_unpickler_agrees(value, protocol):
    """Our writer for the standard reader, the standard writer for our reader."""
    read = partial(read_pickle, allowed=frozenset(), limits=DEFAULT_LIMITS)

    assert value == pickle.loads(write_pickle(value, protocol))
    assert value == read(BytesSource(pickle.dumps(value, protocol)))
    assert value == read(BytesSource(write_pickle(value, protocol)))


@given(st.lists(STATES, max_size=3))
@EXAMPLES
def test_reserves_are_whole(prompts):
    """An encoded reserve passes its own inspection."""
    data = encode_reserve(prompts)

    assert data == encode_reserve(prompts)
    assert inspect_reserve(BytesSource(data), DEFAULT_LIMITS) >= 3


@given(st.binary(max_size=300))
@EXAMPLES
def test_noise(noise):
    """Arbitrary bytes are no pickle, or one; nothing else can happen."""
    for data in (noise, b"\x80\x02" + noise + b"."):
        with suppress(DefectError):
            read_pickle(BytesSource(data), allowed=frozenset(), limits=DEFAULT_LIMITS, opaque_globals=True)
