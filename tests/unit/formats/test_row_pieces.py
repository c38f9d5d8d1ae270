"""Indexes read piece by piece: the same rows and the same defects as in one go, whatever the pieces are."""

from dataclasses import replace

import pytest

from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.rows import StorageReferenceRow
from ckptctl.domain.source import BytesSource
from ckptctl.formats.canonical_json import decode_rows
from ckptctl.formats.participant_files import encode_rows
from ckptctl.formats.row_pieces import read_rows

ROWS = encode_rows(
    StorageReferenceRow(1, f"g{number}_g0", f"call-{number}", "capture_staging_row", f"g{number}_g0/call-{number}")
    for number in range(40)
)


def read(data, limits=DEFAULT_LIMITS):
    return read_rows(BytesSource(data), StorageReferenceRow, limits)


def defects_of(read_them):
    with pytest.raises(DefectError) as caught:
        read_them()
    return caught.value.defects


@pytest.fixture(params=[7, 100, 1000, 1 << 20])
def pieces(request, monkeypatch):
    """Pieces of less than a line, of about a line, of some, and all at once."""
    monkeypatch.setattr("ckptctl.formats.row_pieces.PIECE_BYTES", request.param)


@pytest.mark.parametrize("data", [ROWS, ROWS.rstrip(b"\n"), b"\n\n" + ROWS + b" \n", b"", b"\n"])
def test_pieces_give_the_same_rows(pieces, data):
    """With and without a last line end, with blank lines."""
    assert decode_rows(data, StorageReferenceRow, DEFAULT_LIMITS) == read(data)


@pytest.mark.parametrize("bad", [b"{}\n", b'{"schema_version": 1,\n', b"line 7\n", b"\xff\n"])
def test_pieces_give_the_same_defects(pieces, bad):
    """Line numbers count from the beginning of the file."""
    data = ROWS + bad + ROWS + bad * 2

    assert defects_of(lambda: decode_rows(data, StorageReferenceRow, DEFAULT_LIMITS)) == defects_of(lambda: read(data))


def test_defects_are_listed_up_to_a_limit(pieces):
    """A file of rubbish does not give a finding per line."""
    assert 2 == len(defects_of(lambda: read(b"{}\n" * 900, replace(DEFAULT_LIMITS, findings_shown=2))))


def test_an_endless_line_is_refused_before_it_is_held(pieces):
    """It is placed, and what follows it is not read."""
    limits = replace(DEFAULT_LIMITS, json_line_bytes=500)
    (defect,) = defects_of(lambda: read(ROWS[: ROWS.index(b"\n") + 1] + b"x" * 5000 + b"\n", limits))

    assert "line 2: exceeds the limit of 500 bytes" == defect.message
    assert "line 2" == defect.location


def test_a_file_beyond_its_limit_is_not_read(pieces):
    """The size alone says it."""
    (defect,) = defects_of(lambda: read(ROWS, replace(DEFAULT_LIMITS, index_bytes=100)))

    assert "exceeds the limit of 100 bytes" == defect.message


def test_a_file_that_gets_shorter_is_a_defect():
    """Fewer bytes come than were promised."""

    class Shrinking:
        size_bytes = 4096

        def read_at(self, offset, count):
            return b""

    (defect,) = defects_of(lambda: read_rows(Shrinking(), StorageReferenceRow, DEFAULT_LIMITS))

    assert "the file became shorter while it was read" == defect.message
