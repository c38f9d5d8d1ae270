"""Any value of any line of a real journal, replaced by any JSON value: every reader goes on, or says so by an error of ours."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ckptctl.domain.journal import JournalLine
from ckptctl.domain.transaction import SnapshotRequest
from ckptctl.errors import CkptctlError
from ckptctl.formats.journal_line import decode_line
from ckptctl.planning.recovery import DiskFacts, decide
from ckptctl.workflows.begin import last_published
from ckptctl.workflows.find_unfinished import find_unfinished
from ckptctl.workflows.inspect_directory import inspect_directory
from ckptctl.workflows.inspect_timings import inspect_timings
from ckptctl.workflows.live_sessions import unclaimed_sessions
from ckptctl.workflows.load_publications import Identity, PublicationBook
from ckptctl.workflows.observe import observe_directory
from ckptctl.workflows.ownership import names_given_up
from ckptctl.workflows.snapshot import take_snapshot
from ckptctl.workflows.unfinished import uses_of
from tests.command_line import run
from tests.fakes.simulated_gym import simulated
from tests.runs import offline_world

NAME = "000001-snapshot"


@cache
def lines() -> tuple[dict, ...]:
    """What a published snapshot wrote into its journal, and what failure and recovery would have."""

    async def scenario(folder: Path) -> bytes:
        async with simulated(folder) as gym, gym.world() as (world, _):
            await gym.run_in_flight()
            await take_snapshot(world, gym.config, SnapshotRequest())
            return (gym.checkpoint_dir / ".ckptctl" / "journal" / f"{NAME}.jsonl").read_bytes()

    with TemporaryDirectory() as folder:
        written = [json.loads(line) for line in asyncio.run(scenario(Path(folder))).splitlines()]
    failure = {"at": 1.0, "event": "failure", "step": "save", "code": "x", "message": "y", "seconds": 0.5}
    return (*written[:-1], failure, {"at": 2.0, "event": "recovery"}, written[-1])


NUMBERS = st.one_of(
    st.integers(-2, 2), st.sampled_from([10**30, 10**400, 1e300, -0.5, 253402300799, 253402300800]), st.floats(0, 9)
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from(["", "/etc/passwd", "\x1b[2J", "\udc80", "begin"])),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "rollout_id"]), inner, max_size=2)
    ),
    max_leaves=3,
)


@st.composite
def damaged(draw):
    """Lines of a journal, finished or not, of which one has another value, or another name, in one of its fields."""
    found = [dict(line) for line in lines()[: draw(st.sampled_from([None, -1, 12, 3]))]]
    line = found[draw(st.integers(0, len(found) - 1))]
    key = draw(st.sampled_from(sorted(line)))
    value = draw(VALUES)
    line[key if draw(st.booleans()) else f"{key}x"] = value
    return found


def problem_of(ask) -> CkptctlError | None:
    try:
        ask()
    except CkptctlError as error:
        return error
    return None


def look(root: Path) -> None:
    """All that recovery, gc, a snapshot and a validation ask of journals before they do anything."""
    world = offline_world(root)
    unfinished = find_unfinished(world)
    if unfinished is not None:
        uses_of(unfinished)
        for disk in (DiskFacts(True, None), DiskFacts(False, "a" * 64)):
            decide(unfinished, disk, may_publish=True)
    last_published(world)
    names_given_up(world, "bootstrap")
    unclaimed_sessions(world, (), {})


@given(damaged())
@settings(max_examples=60, deadline=None, phases=(Phase.explicit, Phase.generate))
def test_a_wrong_value_is_an_error_of_ours(records) -> None:
    """An overview tells it, and everything else goes on without the journal."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "bootstrap").mkdir()
        (root / ".ckptctl" / "journal").mkdir(parents=True)
        path = root / ".ckptctl" / "journal" / f"{NAME}.jsonl"
        path.write_text("".join(f"{json.dumps(item)}\n" for item in records))
        found = problem_of(lambda: look(root))
        book = PublicationBook(offline_world(root).store, str(root), offline_world(root).limits)
        book.find("bootstrap/rollout_snapshots/snapshot_000001", Identity(True, "ck-1", None))
        world = offline_world(root)
        told = inspect_directory(world, str(root), "quick")
        observe_directory(world, str(root), {}, level="quick")
        timings = problem_of(lambda: inspect_timings(world, str(root), str(root)))

        assert (found is None) == (told.warnings == ())
        assert found is None or found.code == "journal-damaged"
        assert timings is None or timings.code == "nothing-there"


@pytest.mark.parametrize("value", ["/etc/passwd", None, [1.0], {"a": 1}, -1, "1.0"])
@pytest.mark.parametrize("ended", [True, False])
def test_seconds_that_are_none(tmp_path, value, ended) -> None:
    """Of an ended transaction nothing is owed; of one that may be open the error names the line and the way on."""
    (tmp_path / "bootstrap").mkdir()
    (tmp_path / ".ckptctl" / "journal").mkdir(parents=True)
    records = [dict(line) for line in (lines() if ended else lines()[:-1])]
    place = next(place for place, line in enumerate(records) if line["event"] == "outcome")
    records[place]["seconds"] = value
    text = "".join(f"{json.dumps(item)}\n" for item in records)
    (tmp_path / ".ckptctl" / "journal" / f"{NAME}.jsonl").write_text(text)
    ran, told = run("gc", str(tmp_path), "--dry-run"), run("inspect", str(tmp_path))

    if ended or value is None:
        assert "damaged" not in ran.stderr + told.stdout
    else:
        assert 20 == ran.status  # as whenever something unfinished lies there
        assert f"line {place + 1} is no journal record" in " ".join(ran.stderr.split())
        assert f"publish --set-aside {NAME}" in " ".join(ran.stderr.split())
        assert f"line {place + 1} is no journal record" in " ".join((told.stdout + told.stderr).split())


def is_documented(line: bytes) -> bool:
    """Whether the schema's class takes the line, fields apart that it does not know, and what only a begin's class checks."""
    try:
        JournalLine.model_validate_json(line)
    except ValidationError as error:
        return all(item["type"] == "extra_forbidden" for item in error.errors(include_url=False, include_input=False))
    return True


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_the_decoder_and_the_schema_agree(data) -> None:
    """What the schema permits is read; what it does not is no record, but for what only the class of a beginning checks."""
    line = dict(data.draw(st.sampled_from(lines())))
    key = data.draw(st.sampled_from([*sorted(line), "seconds", "retired", "checksums_blake3", "unclaimed_sessions"]))
    line[key] = data.draw(VALUES)
    text = json.dumps(line).encode()
    if "\\udc80" in text.decode() or b"0" * 30 in text:
        return  # pydantic's own reader of JSON takes neither; nor need anybody
    is_read, is_right = decode_line(text) is not None, is_documented(text)

    assert is_read or not is_right, line
    assert is_right or not is_read or line["event"] == "begin", line
