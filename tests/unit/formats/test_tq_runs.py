"""The shortcut over pickled tensors gives what the opcode machine gives, and nothing where it would give nothing."""

import random
from dataclasses import replace

import pytest

from ckptctl.domain.dataplane import StorageUnit, TensorValue
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats import pickle_state, tq_runs
from ckptctl.formats.tq_checkpoint import decode_storage_unit, read_unit
from ckptctl.formats.tq_writer import encode_storage_unit
from tests.queue_pickles import a_queue_unit, staged_columns

UNIT_ID = "TQ_STORAGE_UNIT_00000000"
BOTH = pytest.mark.parametrize("write", [a_queue_unit, lambda *facts: encode_storage_unit(facts[0], None, *facts[1:])])


def shapes() -> dict[str, dict[int, TensorValue]]:
    """One column each of scalars, rows, matrices, nothing and much; indexes of every width."""
    indexes = [*range(3), *range(250, 275), *range(65_530, 65_560, 2)]
    return {
        "scalar": {index: TensorValue("int64", (), bytes(8)) for index in indexes},
        "flag": {index: TensorValue("bool", (), b"\1") for index in indexes},
        "ragged": {index: TensorValue("uint8", (index % 7,), bytes(index % 7)) for index in indexes},
        "matrix": {index: TensorValue("float32", (2, index % 5), bytes(8 * (index % 5))) for index in indexes},
        "long": {
            index: TensorValue("int16", (9000 + index % 2,), bytes(18_000 + 2 * (index % 2))) for index in indexes[:12]
        },
        "huge": {1: TensorValue("int64", (20_000,), bytes(160_000)), 2: TensorValue("int64", (5, 1, 4), bytes(160))},
        "empty": {},
    }


def quick(data: bytes) -> StorageUnit | None:
    """What the shortcut makes of it; None if it does not get through."""
    try:
        return read_unit(BytesSource(data), "x", DEFAULT_LIMITS, tq_runs.TensorRuns())
    except DefectError:
        return None


def slow(data: bytes) -> StorageUnit | str:
    """What the opcode machine alone makes of it, or what it says."""
    try:
        return read_unit(BytesSource(data), "x", DEFAULT_LIMITS, None)
    except DefectError as error:
        return str(error.defects)


@BOTH
def test_every_form_is_read_as_the_machine_reads_it(write):
    """Scalars, rows, matrices, frames in between, large and empty ones."""
    rows = shapes()
    data = write(UNIT_ID, rows, range(70_000))

    assert slow(data) == quick(data)
    assert {field: len(values) for field, values in rows.items()} == {
        field: len(values) for field, values in quick(data).rows.items()
    }


@BOTH
@pytest.mark.parametrize("window", [300, 700, 5000, 70_000])
def test_any_window_will_do(write, window, monkeypatch):
    """Where a window ends makes no difference."""
    data = write(UNIT_ID, shapes(), range(300))
    wanted = slow(data)
    monkeypatch.setattr(pickle_state, "WINDOW_BYTES", window)
    monkeypatch.setattr(tq_runs, "WINDOW_BYTES", window)

    assert wanted == quick(data)


def test_most_tensors_take_no_step_of_the_machine(monkeypatch):
    """Else all this would be for nothing."""
    taken = []
    count = pickle_state.MachineState.count
    monkeypatch.setattr(
        pickle_state.MachineState, "count", lambda self, values, pos: (taken.append(values), count(self, values, pos))
    )
    rows = staged_columns(range(0, 1200, 2), 64)
    quick(a_queue_unit(UNIT_ID, rows, ()))

    assert sum(taken) > 0.98 * 2 * sum(map(len, rows.values()))


@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_a_changed_byte_is_read_as_the_machine_reads_it(write, seed):
    """Damage never becomes another value than the machine's."""
    choice = random.Random(seed)
    rows = {name: dict(list(values.items())[:30]) for name, values in shapes().items() if name not in {"long", "huge"}}
    data = write(UNIT_ID, rows, range(40))
    for _ in range(50):
        changed = bytearray(data)
        changed[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
        text = bytes(changed[: choice.choice((len(data), len(data), choice.randrange(len(data))))])
        wanted, found = slow(text), quick(text)

        assert found is None or found == wanted


def test_a_memo_numbered_by_hand_is_read_by_the_machine():
    """What the shortcut took has no place in the memo that a number could be given to."""
    data = a_queue_unit(UNIT_ID, shapes(), ())
    numbered = data.replace(b"\x8f\x94u.", b"\x8fr\x01\0\0\0u.")

    assert len(numbered) == len(data) + 4
    assert quick(numbered) is None
    assert decode_storage_unit(BytesSource(numbered), "x", DEFAULT_LIMITS) == slow(data)


def test_tensors_count_as_items():
    """The limit of items holds for what is taken together, too."""
    data = a_queue_unit(UNIT_ID, {"scalar": {index: TensorValue("int64", (), bytes(8)) for index in range(500)}}, ())
    few = replace(DEFAULT_LIMITS, pickle_items=900)
    with pytest.raises(DefectError) as caught:
        decode_storage_unit(BytesSource(data), "x", few)

    assert "the pickle exceeds the limit of 900 items" in str(caught.value.defects)
