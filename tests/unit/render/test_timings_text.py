"""`inspect --timings` for people: a table, and a line of time that fits 80 columns and needs no colour."""

import io
import re

import pytest

from ckptctl.domain.timings import StepInTime, TimingsInspection
from ckptctl.planning.timings import read_times, spread, spread_steps
from ckptctl.render.console import has_blocks
from ckptctl.render.timeline import ASCII, Scale
from ckptctl.render.timings_text import timings_text
from tests.unit.planning.test_timings import journal

WHOLE = """\
timings of /run: 2 published

published snapshots (2)
                             p50     p95     max
  admission closed        5.50 s  13.5 s  13.5 s
  of it between requests  2.50 s  4.50 s  4.50 s
  requests                     8       8       8
  bytes both ways          280 B   280 B   280 B
  between requests: neither asking servers nor save, validation and publication

  step                    p50     p95     max  own p95  req.  bytes
  2   close-admission  1.00 s  3.00 s  3.00 s   1.50 s     2   70 B
  6.1 save             1.00 s  3.00 s  3.00 s   1.50 s     2   70 B
  7   validate         1.00 s  3.00 s  3.00 s   3.00 s     2   70 B
  9.4 open-admission   1.00 s  3.00 s  3.00 s   1.50 s     2   70 B

admission closed, the last 2 that closed it
  000001-snapshot published  |###################################|   13.5 s
  000002-snapshot published  |##############                     |   5.50 s

newest: 000002-snapshot, published, admission closed for 5.50 s
  admission closed           |<--------------------------------->|   5.50 s
  2   close-admission        |===###                             |   1.00 s
  6.1 save                   |         ====###                   |   1.00 s
  7   validate               |                   ######          |   1.00 s
  9.4 open-admission         |                            ====###|   1.00 s
                              '0          '2 s         '4 s
  = servers are asked   # ckptctl works by itself   x failed   ? not ended
"""


def inspection(*journals, **changes) -> TimingsInspection:
    timed = [read_times(f"{number:06d}-snapshot", records) for number, records in enumerate(journals, 1)]
    facts = {
        "path": "/run", "outcomes": {"published": len(timed)}, "left_out": 0,
        "admission_closed_s": spread(item.times.admission_closed_s for item in timed),
        "own_s": spread(item.times.own_s for item in timed), "requests": spread(item.times.requests for item in timed),
        "bytes": spread(item.times.bytes for item in timed), "steps": spread_steps(timed), "last": timed[-1].times,
        "last_steps": timed[-1].steps, "transactions": tuple(item.times for item in timed), "warnings": (),
    }  # fmt: skip
    return TimingsInspection(**{**facts, **changes})


def test_the_whole_text() -> None:
    """Window, steps and the newest snapshot on a line of time."""
    assert WHOLE == timings_text(inspection(journal(length_s=3.0), journal()), blocks=False)


def test_it_fits_a_terminal() -> None:
    """No line is wider than 80 columns, whatever the lengths; nothing is said by colour alone."""
    long = journal(length_s=86_399.0, sent_bytes=1023 << 30, requests=9999)
    for record in long:
        if record.get("step") == "save":
            record["step"] = "drain-acknowledgements"
    shown = timings_text(inspection(long), to_terminal=True, width=80)

    assert 80 >= max(map(len, timings_text(inspection(long)).splitlines()))
    assert "drain-acknowledgements" in shown


def bare(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_wide_terminal() -> None:
    """Bars take the room that there is; colour says nothing that the characters do not; a locale that is not UTF-8 has none but ASCII."""
    found = inspection(journal(length_s=3.0), journal())
    wide, narrow = (bare(timings_text(found, to_terminal=True, width=width, blocks=False)) for width in (120, 80))
    drawn = bare(timings_text(found, to_terminal=True, width=120, blocks=True))

    assert [119, 79] == [max(len(line) for line in text.splitlines() if "|" in line) for text in (wide, narrow)]
    assert wide.isascii()
    assert "\u2591\u2591\u2588" in drawn
    assert "'1 s" in wide
    assert "'1 s" not in narrow


def test_a_narrow_terminal() -> None:
    """Shorter bars, then none: numbers alone, and in words what a bar would have shown."""
    first, *records = journal()
    failure = {"event": "failure", "step": "save", "at": 102.0, "code": "x", "message": "x"}
    found = inspection(journal(), [first, *records[:3], failure])
    short, none = (bare(timings_text(found, to_terminal=True, width=width, blocks=False)) for width in (64, 40))

    assert 63 == max(len(line) for line in short.splitlines())
    assert "|" in short
    assert "\n  x failed\n" in short
    assert "|" not in none
    assert 40 >= max(len(line) for line in none.splitlines())
    assert re.search(r"\n  2   close-admission: [0-9.]+ s\n  6\.1 save: [0-9.]+ ms, failed\n", none)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LANG": "C.UTF-8"}, True),
        ({"LANG": "de_DE.utf8"}, True),
        ({"LC_ALL": "C", "LANG": "C.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, False),
        ({"LC_CTYPE": "en_US.UTF-8"}, True),
        ({"LANG": "ja_JP.eucJP"}, False),
        ({}, False),
    ],
)
def test_the_locale_decides(monkeypatch, environment, expected) -> None:
    """Blocks only where stdout and the terminal's locale are both UTF-8; LC_CTYPE may be Python's own doing."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "utf-8"))
    assert expected is has_blocks()

    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "latin-1"))
    assert not has_blocks()


def test_a_scale_without_length() -> None:
    """A transaction of one moment is drawn all the same, without an axis."""
    scale = Scale(0.0, 10)

    assert "#         " == scale.bar(0.0, 0.0, 0.0, "done", ASCII)
    assert "<>        " == scale.span(0.0, 0.0, ASCII)
    assert "" == scale.axis().strip()
    assert "'0        '50 ms    " == Scale(0.1, 20).axis()


def test_what_is_not_known() -> None:
    """An unfinished attempt among older journals, one of them unreadable."""
    first, *records = journal()
    odd = StepInTime(
        number="9", name="\x1b[31m", state="unknown", began_s=0.0, seconds=None, waiting_s=None,
        requests=None, sent_bytes=None, received_bytes=None,
    )  # fmt: skip
    failure = {"event": "failure", "step": "save", "at": 102.0, "code": "x", "message": "x"}
    found = inspection([first, *records[:3], failure])
    nothing = {"admission_closed_s": None, "steps": (), "left_out": 3, "warnings": ("line 2 is no journal record",)}
    text = timings_text(found.model_copy(update={**nothing, "last_steps": (*found.last_steps, odd)}))

    assert "admission is not known to be open again" in text
    assert "xxxxx" in text
    assert "\x1b" not in text
    assert "3 older journals left out" in text
    assert "warning: line 2 is no journal record" in text
    assert "|?" in text
