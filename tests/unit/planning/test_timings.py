"""What the records of a snapshot's journal say of its times, and what they cannot make anybody believe."""

import pytest

from ckptctl.domain.timings import Spread
from ckptctl.planning.timings import read_times, spread, spread_steps

STEPS = (("2", "close-admission"), ("6.1", "save"), ("7", "validate"), ("9.4", "open-admission"))


def journal(*, length_s=1.0, gap_s=0.5, **changes):
    """Four steps of equal length with gaps between them; servers are asked for half of each, but not while validating."""
    records = [
        {"event": "begin", "at": 100.0, "checkpoint_id": "ck-1", "final": "step_1/rollout_snapshots/snapshot_000001"}
    ]
    elapsed_s = 0.0
    for number, name in STEPS:
        records.append({"event": "intent", "number": number, "step": name, "at": 100.0 + elapsed_s})
        elapsed_s += length_s
        measured = {
            "seconds": length_s, "elapsed_s": elapsed_s, "requests": 2, "sent_bytes": 30, "received_bytes": 40,
            "waiting_s": 0.0 if name == "validate" else length_s / 2,
        }  # fmt: skip
        records.append(
            {"event": "outcome", "number": number, "step": name, "at": 100.0 + elapsed_s, **measured, **changes}
        )
        elapsed_s += gap_s
    return [*records, {"event": "finish", "outcome": "published", "at": 100.0 + elapsed_s}]


def without(records, *names):
    return [{key: value for key, value in record.items() if key not in names} for record in records]


def test_window_and_own_time() -> None:
    """The window ends with the last step; its own time are gaps and what the steps outside of save and validation did alone."""
    times = read_times("000001-snapshot", journal()).times

    assert 5.5 == times.admission_closed_s
    assert 3 * 0.5 + 2 * 0.5 == times.own_s
    assert (8, 280) == (times.requests, times.bytes)
    assert ("published", False, "ck-1") == (times.outcome, times.is_recovered, times.checkpoint_id)


def test_a_wall_clock_that_jumps_is_not_asked() -> None:
    """Within one process the monotonic clock decides."""
    records = journal()
    for place, record in enumerate(records):
        record["at"] += 3600.0 * place
    read = read_times("000001-snapshot", records)

    assert 5.5 == read.times.admission_closed_s
    assert [0.0, 1.5, 3.0, 4.5] == [step.began_s for step in read.steps]


def test_an_older_journal() -> None:
    """Without measurements the records' own times stand in; what nobody counted is not known."""
    names = ("elapsed_s", "requests", "sent_bytes", "received_bytes", "waiting_s")
    read = read_times("000001-snapshot", without(journal(), *names))

    assert 5.5 == read.times.admission_closed_s
    assert (None, None, None) == (read.times.own_s, read.times.requests, read.times.bytes)
    assert [0.0, 1.5, 3.0, 4.5] == [step.began_s for step in read.steps]


def test_finished_by_another_process() -> None:
    """Its monotonic clock is another one; the time between the two belongs to the window."""
    first, *records = journal()
    opened = {"event": "outcome", "step": "open-admission", "at": 900.0, "seconds": 1.0, "elapsed_s": 1.0}
    again = {"event": "intent", "number": "9.4", "step": "open-admission", "at": 899.0}
    times = read_times(
        "000001-snapshot", [first, *records[:-2], {"event": "recovery", "at": 890.0}, again, opened]
    ).times

    assert (800.0, None, True, "unfinished") == (
        times.admission_closed_s,
        times.own_s,
        times.is_recovered,
        times.outcome,
    )


def test_what_failed_and_what_nobody_ended() -> None:
    """Admission is not known to be open, and the lengths are as far as records tell."""
    first, *records = journal()
    failure = {"event": "failure", "step": "validate", "at": 104.0, "code": "x", "message": "x"}
    intent = {"event": "intent", "number": "9.4", "step": "open-admission", "at": 105.0}
    read = read_times("000001-snapshot", [first, *records[:5], failure, intent])

    assert read.times.admission_closed_s is None
    assert [("done", 1.0), ("done", 1.0), ("failed", 1.0), ("unknown", None)] == [
        (step.state, step.seconds) for step in read.steps
    ]


@pytest.mark.parametrize("value", [None, "soon", -1, True, float("nan"), float("inf"), 10**400, [], {}])
def test_values_that_are_none(value) -> None:
    """Whatever stands in a field, nothing is believed that cannot be."""
    names = ("seconds", "elapsed_s", "waiting_s", "requests", "sent_bytes", "received_bytes")
    read = read_times("000001-snapshot", journal(**dict.fromkeys(names, value)))

    assert (5.5, None, None, None) == (
        read.times.admission_closed_s,
        read.times.own_s,
        read.times.requests,
        read.times.bytes,
    )


def test_records_that_tell_nothing() -> None:
    """Without a step that closes admission there are no times; an outcome without an intent and odd numbers are passed over."""
    odd = [
        {"event": "outcome", "step": "save", "seconds": 3},
        {"event": "intent", "number": "x", "step": "y", "at": 1.0},
        {"event": "intent", "number": "2", "step": "", "at": 1.0},
        {},
    ]
    records = journal()

    assert read_times("000001-snapshot", odd) is None
    assert read_times("000001-snapshot", [*odd, *records]).steps == read_times("000001-snapshot", records).steps


def test_quantiles_are_values_that_were_there() -> None:
    """Nearest rank, unknown ones left out."""
    assert spread([None, 3, 1, 2]) == Spread(count=3, p50=2, p95=3, max=3)
    assert spread(range(1, 101)) == Spread(count=100, p50=50, p95=95, max=100)
    assert spread([None]) is None


def test_steps_over_several_transactions() -> None:
    """In the order of their numbers; a step that did not end well counts nowhere."""
    failed = [record for record in journal() if record.get("step") != "save"]
    timed = [read_times("000001-snapshot", records) for records in (journal(), journal(length_s=3.0), failed)]
    found = {step.name: (step.seconds.count, step.seconds.max) for step in spread_steps(timed)}

    assert {"close-admission": (3, 3.0), "save": (2, 3.0), "validate": (3, 3.0), "open-admission": (3, 3.0)} == found
    assert [name for _, name in STEPS] == list(found)
