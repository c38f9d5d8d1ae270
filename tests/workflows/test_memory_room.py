"""Reading stops in time: what is asked of the memory, when, and what becomes of a validation that has no more room."""

import gc
from dataclasses import replace

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.adapters.memory import resident_bytes
from ckptctl.domain.evidence import Evidence
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.memory_room import UNBOUNDED, MemoryRoom
from ckptctl.domain.source import BytesSource
from ckptctl.workflows.validate import ValidateRequest, exit_code, validate
from tests.builders import a_run_files, a_world, write_tree

MEBIBYTE = 1 << 20


class Gauge:
    """A process whose memory is what the test says."""

    def __init__(self) -> None:
        self.used, self.asked = 50 * MEBIBYTE, 0

    def __call__(self) -> int:
        self.asked += 1
        return self.used


def a_room(most=100 * MEBIBYTE):
    gauge = Gauge()
    return gauge, MemoryRoom(gauge, most)


def test_what_the_process_held_before_does_not_count():
    """What a file takes that is read in small steps counts twice, what was read before it once; a sixth is kept free."""
    gauge, room = a_room(120 * MEBIBYTE)
    gauge.used += 24 * MEBIBYTE
    source = room.watched(BytesSource(bytes(1 << 20)))
    gauge.used += 38 * MEBIBYTE
    source.read_at(0, 1 << 17)
    gauge.used += 1
    with pytest.raises(
        DefectError, match="would need more than the 120 MiB of memory that `--memory` leaves it"
    ) as caught:
        source.read_at(0, 1 << 17)
    room.demand()

    assert caught.value.is_unsupported


def test_a_large_step_may_use_all_of_it():
    """What is decoded at once is known beforehand."""
    gauge, room = a_room()
    gauge.used += 60 * MEBIBYTE
    room.demand(40 * MEBIBYTE)
    with pytest.raises(DefectError):
        room.demand(40 * MEBIBYTE + 1)


def test_a_wide_character_makes_a_document_dear():
    """Four bytes for each character of a text with one of them, twice."""
    data = b"a" * (15 * MEBIBYTE)
    _, room = a_room()

    assert data == room.watched(BytesSource(data)).read_at(0, len(data))
    with pytest.raises(DefectError):
        room.watched(BytesSource(data[:-4] + "\U0001f600".encode())).read_at(0, len(data))


def test_small_reads_look_now_and_then():
    """Not at every one: that would cost more than reading."""
    gauge, room = a_room()
    source = room.watched(BytesSource(bytes(4096)))
    asked = gauge.asked
    for offset in range(320):
        source.read_at(offset, 8)

    assert 4096 == source.size_bytes
    assert 5 <= gauge.asked - asked <= 11


def test_without_a_gauge_there_is_no_bound():
    """Then a source is what it was."""
    source = BytesSource(b"x")
    UNBOUNDED.demand(1 << 60)

    assert source is UNBOUNDED.watched(source)


@pytest.fixture
def run(tmp_path):
    """A small checkpoint directory."""
    return write_tree(tmp_path, a_run_files(a_world()))


def test_without_room_nothing_is_called_wrong(run):
    """The verdict is that it could not be checked, and every gap says why."""
    gauge = iter(range(0, 1 << 62, 1 << 50))
    request = ValidateRequest(paths=(str(run),), room=MemoryRoom(lambda: next(gauge), DEFAULT_LIMITS.memory_bytes))
    report = validate(LocalStore(), request)
    (snapshot, _) = report.targets

    assert 11 == exit_code(report)
    assert {"gap"} == {finding.kind for finding in snapshot.findings}
    assert all("was not read further" in finding.message for finding in snapshot.findings)


def test_the_usual_room_is_enough(run):
    """A sound run is valid with the real gauge."""
    request = ValidateRequest(paths=(str(run),), room=MemoryRoom(resident_bytes, DEFAULT_LIMITS.memory_bytes))

    assert "valid" == validate(LocalStore(), request).verdict
    assert resident_bytes() > MEBIBYTE


def evidence_in_memory() -> set[int]:
    return {id(item) for item in gc.get_objects() if type(item) is Evidence}


def test_evidence_of_a_target_is_dropped_before_the_next_is_loaded(tmp_path):
    """However many snapshots a checkpoint directory has, one is in memory."""
    names = [f"snapshot_{number:06d}" for number in range(2, 6)]
    run = write_tree(tmp_path, a_run_files(*(a_world(name=name) for name in names)))
    alive = []

    class CountingStore(LocalStore):
        def list_tree(self, root, *, max_depth=None):
            if max_depth is None and "snapshot_" in root:
                gc.collect()
                alive.append(len(evidence_in_memory() - others))
            return super().list_tree(root, max_depth=max_depth)

    # Other tests' own are kept alive, so that none of their numbers is given twice.
    held = [item for item in gc.get_objects() if type(item) is Evidence]
    others = {id(item) for item in held}
    validate(CountingStore(), ValidateRequest(paths=(str(run),)))

    assert [0] * len(names) == alive


def test_limits_are_not_beyond_the_room():
    """The longest document is legal in an empty room, even when it is wide."""
    gauge = Gauge()
    room = MemoryRoom(gauge, DEFAULT_LIMITS.memory_bytes)
    longest = max(DEFAULT_LIMITS.json_document_bytes, DEFAULT_LIMITS.record_bytes)
    room.demand(longest * 9)

    assert replace(DEFAULT_LIMITS, pickle_items=7) == replace(DEFAULT_LIMITS, pickle_items=7).for_sidecar()
    assert DEFAULT_LIMITS.sidecar_items == DEFAULT_LIMITS.for_sidecar().pickle_items
