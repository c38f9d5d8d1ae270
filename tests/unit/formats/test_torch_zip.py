"""The torch container: one folder, its known entries, and a writer whose bytes depend on nothing but the contents."""

import io
import zipfile
from dataclasses import replace

import pytest

from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource, SliceSource
from ckptctl.formats.torch_zip import read_torch_zip, write_torch_zip

from .zips import Member, build_zip, torch_members

PICKLE = b"\x80\x02N."


def opened(data: bytes, **limits: int):
    return read_torch_zip(BytesSource(data), replace(DEFAULT_LIMITS, **limits))


def test_a_container():
    """Folder, pickle and entries by their names below the folder."""
    found = opened(build_zip(torch_members(**{"data/0": b"abc", ".format_version": b"1"})))

    assert "archive" == found.folder
    assert PICKLE == found.pickle_source.read_at(0, found.pickle_source.size_bytes)
    assert {"data.pkl", "byteorder", "data/0", ".format_version", "version"} == found.entries.keys()


def test_byteorder_may_be_absent():
    """Older torch does not write it; version and pickle it always writes."""
    members = [member for member in torch_members() if "byteorder" not in member.name]

    assert opened(build_zip(members)).folder == "archive"


def test_a_written_container_is_read_back():
    """Same input, same bytes; every entry's data on a 64 byte boundary; the standard library agrees."""
    data = write_torch_zip(PICKLE, {"0": b"abc", "1": b"\0" * 100, "2": b""})
    found = opened(data)

    assert data == write_torch_zip(PICKLE, {"0": b"abc", "1": b"\0" * 100, "2": b""})
    assert {0} == {entry.data_offset % 64 for entry in found.entries.values()}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert b"abc" == archive.read("archive/data/0")
        assert {(1980, 1, 1, 0, 0, 0)} == {info.date_time for info in archive.infolist()}
    assert write_torch_zip(PICKLE) == write_torch_zip(PICKLE, {})


@pytest.mark.parametrize(
    ("members", "message", "is_unsupported"),
    [
        ([], "one top folder", False),
        ([*torch_members(), Member("other/version", b"3\n")], "one top folder", False),
        ([*torch_members(), Member("archive", b"")], "one top folder", False),
        (torch_members()[:2], "no `version`", False),
        (torch_members()[1:], "no `data.pkl`", False),
        (torch_members(version=b"4\n"), "this version", True),
        (torch_members(byteorder=b"big"), "this byteorder", True),
        (torch_members(byteorder=b"little" * 100), "this byteorder", True),
        (torch_members(pickle=b"N" * 101), "101 bytes, above the limit of 100", False),
    ],
)
def test_refused(members, message, is_unsupported):
    """A file that is an archive is not yet a torch zip."""
    kept = {member.name: member for member in members}

    with pytest.raises(DefectError, match=message) as caught:
        opened(build_zip(list(kept.values())), zip_pickle_bytes=100)
    assert is_unsupported == caught.value.is_unsupported


def test_a_damaged_pickle():
    """The CRC of data.pkl is always looked at."""
    data = write_torch_zip(PICKLE)

    with pytest.raises(DefectError, match="CRC differs"):
        opened(data.replace(PICKLE, b"\x80\x02(."))


def test_a_slice_ends_where_it_ends():
    """A slice gives nothing beyond its size."""
    part = SliceSource(BytesSource(b"0123456789"), 2, 4)

    assert [b"2345", b"45", b"", b""] == [
        part.read_at(0, 99),
        part.read_at(2, 9),
        part.read_at(4, 1),
        part.read_at(9, 1),
    ]
