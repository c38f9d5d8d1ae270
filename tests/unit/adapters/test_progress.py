"""Progress lines: one that moves on a terminal, one now and then elsewhere, and bytes that a store counts by itself."""

from __future__ import annotations

import io
import re

import pytest

from ckptctl.adapters.progress import StreamProgress
from ckptctl.adapters.reported_store import ByteCount, ReportedStore
from ckptctl.domain.checksums import FileWork

MIB = 1 << 20


class Ticks:
    """A clock that is moved by hand."""

    value_s = 0.0

    def now_s(self) -> float:
        return self.value_s

    def monotonic_s(self) -> float:
        return self.value_s

    async def sleep(self, seconds: float) -> None:
        self.value_s += seconds


class Heard:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple] = []

    def phase(self, name: str, detail: str = "") -> None:
        self.told.append((name, detail))

    def advance(self, done: int, total: int, unit: str) -> None:
        self.told.append((done, total, unit))


def a_progress(*, width: int | None = None, is_verbose: bool = False):
    stream, clock = io.StringIO(), Ticks()
    columns = None if width is None else lambda: width
    return stream, clock, StreamProgress(stream, clock, columns=columns, is_verbose=is_verbose)


def test_a_log_gets_a_line_now_and_then() -> None:
    """Without a terminal there are no control characters and few lines, and none about what is quickly done."""
    stream, clock, progress = a_progress()
    progress.phase("validate 1 of 2", "snapshot\x1b[31m")
    for done in range(1, 71):
        clock.value_s += 1
        progress.advance(done, 70, "files")
    progress.phase("validate 2 of 2", "other")

    assert [
        "validate 1 of 2: snapshot\\x1b[31m: 30 of 70 files (42 %)",
        "validate 1 of 2: snapshot\\x1b[31m: 60 of 70 files (85 %)",
    ] == stream.getvalue().splitlines()


def test_many_short_phases_are_told_now_and_then() -> None:
    """Whoever waits for a long list of small targets sees that it goes on."""
    stream, clock, progress = a_progress()
    for number in range(100):
        clock.value_s += 1
        progress.phase(f"validate {number} of 100")

    assert ["validate 29 of 100", "validate 59 of 100", "validate 89 of 100"] == stream.getvalue().splitlines()


def test_more_words_give_every_phase_a_line() -> None:
    """As a log of a transaction."""
    for width in (None, 80):
        stream, _, progress = a_progress(width=width, is_verbose=True)
        progress.phase("1 begin")
        progress.phase("2 close", "admission")

        assert ["1 begin", "2 close: admission"] == stream.getvalue().replace("\r\x1b[K", "").splitlines()


def test_a_terminal_gets_one_moving_line() -> None:
    """It is overwritten by the next one, and shows bytes, share, rate and what is left."""
    stream, clock, progress = a_progress(width=100)
    progress.phase("validate", "/run/snapshot_000001")
    clock.value_s += 0.1
    progress.advance(1, 2 << 30, "bytes")
    clock.value_s += 1.9
    progress.advance(1 << 30, 2 << 30, "bytes")

    assert [
        "",
        "validate: /run/snapshot_000001",
        "validate: /run/snapshot_000001: 1.0 GiB of 2.0 GiB (50 %), 512 MiB/s, 2 s left",
    ] == stream.getvalue().split("\r\x1b[K")


def test_the_moving_line_fits_the_terminal() -> None:
    """A path loses its beginning, never the numbers; wide characters count twice; a tiny terminal gets what there is room for."""
    for width in (10, 40, 80):
        for detail in ("/very/long" * 20 + "/snapshot_000001", "\u6f22" * 100):
            stream, clock, progress = a_progress(width=width)
            progress.phase("validate", detail)
            clock.value_s += 1
            progress.advance(1, 4, "files")
            lines = stream.getvalue().split("\r\x1b[K")[1:]

            for line in lines:
                assert "\n" not in line
                assert sum(1 if character.isascii() else 2 for character in line) < width
            assert lines[-1].endswith(": 1 of 4 files (25 %)" if width > 10 else "validate:")
    assert "...long/snapshot_000001: 1" in a_shortened_line()


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (80, "validate: 1.0 GiB of 2.0 GiB (50 %), 512 MiB/s, 2 s left"),
        (56, "validate: 1.0 GiB of 2.0 GiB (50 %), 512 MiB/s"),
        (40, "validate: 1.0 GiB of 2.0 GiB (50 %)"),
        (25, "validate: 1.0 GiB"),
    ],
)
def test_amounts_that_there_is_no_room_for_are_left_out(width, told) -> None:
    """The last first: a line that the terminal wraps would stay where it is, again and again."""
    stream, clock, progress = a_progress(width=width)
    progress.phase("validate")
    clock.value_s += 2
    progress.advance(1 << 30, 2 << 30, "bytes")

    assert told == stream.getvalue().split("\r\x1b[K")[-1]


def a_shortened_line() -> str:
    stream, clock, progress = a_progress(width=70)
    progress.phase("validate", "/very/long" * 20 + "/snapshot_000001")
    clock.value_s += 1
    progress.advance(1, 4, "files")
    return re.sub(r"\.\.\.[/a-z]*(?=long/snapshot)", "...", stream.getvalue())


def test_a_store_counts_what_is_read(tmp_path) -> None:
    """Of the files below the phase's path: each byte once, less what was passed over when its file was closed."""
    for name, size in (("one", 3 * MIB), ("two", 2 * MIB)):
        (tmp_path / name).write_bytes(b"\0" * size)
    heard = Heard()
    count = ByteCount(heard)
    store = ReportedStore(count=count)
    count.phase("validate", str(tmp_path))
    store.list_tree(str(tmp_path))
    with store.open_source(f"{tmp_path}/one") as source:
        for _ in range(2):
            source.read_at(0, MIB)
        source.read_at(MIB, MIB)
    store.read_bytes(f"{tmp_path}/two", 2 * MIB)

    assert [
        ("validate", str(tmp_path)),
        (MIB, 5 * MIB, "bytes"),
        (2 * MIB, 5 * MIB, "bytes"),
        (3 * MIB, 5 * MIB, "bytes"),
    ] == heard.told[:4]
    assert (5 * MIB, 5 * MIB, "bytes") == heard.told[-1]


def test_what_is_passed_over_is_not_expected_any_more(tmp_path) -> None:
    """The total shrinks to what was read, and grows again when the file is opened once more."""
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"\0" * 4 * MIB)
    heard = Heard()
    count = ByteCount(heard)
    store = ReportedStore(count=count)
    count.phase("validate", str(tmp_path))
    store.list_tree(str(tmp_path))
    with store.open_source(f"{tmp_path}/one") as source:
        source.read_at(0, MIB)
    with store.open_source(f"{tmp_path}/two") as source:
        source.read_at(0, MIB)
    with store.open_source(f"{tmp_path}/one") as source:
        source.read_at(MIB, 3 * MIB)

    assert [(MIB, 8 * MIB), (2 * MIB, 5 * MIB), (5 * MIB, 5 * MIB)] == [told[:2] for told in heard.told[1:]]


def test_checksums_are_counted(tmp_path) -> None:
    """Instead of a reading that did not come, or once more after it; whoever asked for them hears of it too."""
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"\0" * 2 * MIB)
    heard, asked = Heard(), []
    count = ByteCount(heard)
    store = ReportedStore(count=count)
    count.phase("validate", str(tmp_path))
    store.list_tree(str(tmp_path))
    store.read_bytes(f"{tmp_path}/one", 2 * MIB)
    works = [FileWork("one", 2 * MIB), FileWork("two", 2 * MIB)]
    digests = list(store.digest_files(str(tmp_path), works, asked.append))

    assert (2, 4 * MIB) == (len(digests), sum(asked))
    assert (2 * MIB, 4 * MIB, "bytes") == heard.told[1]
    assert (6 * MIB, 6 * MIB, "bytes") == heard.told[-1]


def test_other_files_are_counted_when_they_are_read(tmp_path) -> None:
    """A listing of something else promises nothing; a phase without a path has no total of its own."""
    (tmp_path / "one").write_bytes(b"\0" * 2 * MIB)
    heard = Heard()
    count = ByteCount(heard)
    store = ReportedStore(str(tmp_path), count=count)
    count.phase("trash", "snapshot_000001")
    store.list_tree(str(tmp_path))
    store.read_bytes(f"{tmp_path}/one", 2 * MIB)
    count.advance(1, 2, "files")

    assert [("trash", "snapshot_000001"), (2 * MIB, 2 * MIB, "bytes"), (1, 2, "files")] == heard.told
