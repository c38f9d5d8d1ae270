"""The strict ZIP reader: what torch and the standard library write is read, everything that hides something is refused."""

import io
import struct
import zipfile
from dataclasses import replace

import pytest

from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.zip_directory import ZipEntry, check_crc, read_zip_directory

from .zips import Member, build_zip, torch_members


def listing(data: bytes, **limits: int) -> tuple[ZipEntry, ...]:
    return read_zip_directory(BytesSource(data), replace(DEFAULT_LIMITS, **limits))


@pytest.mark.parametrize("zip64", [False, True])
def test_entries_are_placed(zip64):
    """Names, offsets and sizes, with and without 64-bit records."""
    data = build_zip(torch_members(**{"data/0": b"tensor"}), zip64=zip64)
    entries = listing(data)

    assert ["archive/data.pkl", "archive/byteorder", "archive/version", "archive/data/0"] == [e.name for e in entries]
    assert b"tensor" == data[entries[3].data_offset :][: entries[3].size_bytes]
    for entry in entries:
        check_crc(BytesSource(data), entry)


def test_the_standard_library_is_read():
    """Its stored archives are plain ones."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a/b", b"x" * 10)
        archive.writestr("a/c", b"")

    assert [("a/b", 10), ("a/c", 0)] == [(entry.name, entry.size_bytes) for entry in listing(buffer.getvalue())]


def test_sizes_behind_the_data():
    """torch leaves sizes and CRC of the local header empty and puts them behind the data."""
    empty = {"flags": 0x808, "crc": 0, "stored": 0, "size": 0}
    member = Member(local=empty, listed={"flags": 0x808}, after=b"PK\x07\x08" + bytes(12))

    assert 4 == listing(build_zip([member]))[0].size_bytes


def test_full_end_records_defer_to_the_wide_one():
    """A field that is all ones is in the 64-bit record."""
    data = build_zip(torch_members(), zip64=True, end={"count": 0xFFFF, "size": 0xFFFFFFFF, "offset": 0xFFFFFFFF})

    assert 3 == len(listing(data))


def test_wide_sizes_of_an_entry():
    """An entry beyond four gigabytes has its sizes in the extra field; another extra field may be in front."""
    full = {"stored": 0xFFFFFFFF, "size": 0xFFFFFFFF}
    extra = struct.pack("<2H2x2H2Q", 7, 2, 1, 16, 4, 4)
    data = build_zip([Member(local={**full, "extra": extra}, listed={**full, "extra": extra})])

    assert 4 == listing(data)[0].size_bytes


def test_an_empty_archive():
    """No entries are none; whether that is enough is for others to say."""
    assert () == listing(build_zip([]))


def one(**fields: object) -> bytes:
    return build_zip([Member(**fields)])


FULL = {"stored": 0xFFFFFFFF, "size": 0xFFFFFFFF}
REFUSED = {
    "empty file": (b"", "is empty"),
    "short file": (b"PK", "too short"),
    "no archive": (b"x" * 100, "no torch zip"),
    "trailing bytes": (build_zip(torch_members()) + b"x", "no torch zip"),
    "cut off": (build_zip(torch_members())[:-1], "no torch zip"),
    "comment": (build_zip(torch_members(), end={"comment": b""}).replace(b"\0\0", b"\0\0")[:-2] + b"\1\0", "without comment"),
    "several disks": (build_zip(torch_members(), end={"disk": 1}), "single-file"),
    "counts differ": (build_zip(torch_members(), end={"here": 2}), "single-file"),
    "gap behind directory": (build_zip(torch_members(), gap=b"x"), "not where"),
    "offset wrong": (build_zip(torch_members(), end={"offset": 5}), "not where"),
    "count too small": (build_zip(torch_members(), end={"count": 2}), "longer than its entries"),
    "count too large": (build_zip(torch_members(), end={"count": 4}), "is cut off"),
    "directory absurd": (build_zip(torch_members(), end={"count": 1, "size": 3000, "offset": 0}), "not where|too large"),
    "too many entries": (build_zip([Member(f"a/{i}") for i in range(12)]), "12 entries, above the limit of 11"),
    "locator elsewhere": (build_zip(torch_members(), zip64=True, end64={"at": 3}), "in front of its locator"),
    "two disks": (build_zip(torch_members(), zip64=True, end64={"disks": 2}), "in front of its locator"),
    "end64 magic": (build_zip(torch_members(), zip64=True, end64={"magic": b"PK\6\5"}), "64-bit end record is malformed"),
    "end64 length": (build_zip(torch_members(), zip64=True, end64={"length": 45}), "64-bit end record is malformed"),
    "end records differ": (build_zip(torch_members(), zip64=True, end={"count": 9}), "two end records disagree"),
    "directory magic": (one(listed={"magic": b"PK\1\3"}), "directory is malformed"),
    "entry on a disk": (one(listed={"disk": 1}), "directory is malformed"),
    "compressed": (one(listed={"method": 8}), "compressed"),
    "compressed locally": (one(local={"method": 8}), "contradicts"),
    "encrypted": (one(listed={"flags": 1}), "encrypted"),
    "strongly encrypted": (one(listed={"flags": 0x40}), "encrypted"),
    "stored size": (one(listed={"stored": 3}), "another size"),
    "duplicate": (build_zip([Member(), Member()]), "two entries of one name"),
    "absolute": (one(name="/etc/passwd"), "out of the archive"),
    "dots": (one(name="a/../b"), "out of the archive"),
    "backslash": (one(name="a\\b"), "out of the archive"),
    "nul": (one(name="a\0b"), "out of the archive"),
    "folder entry": (one(name="a/"), "empty part"),
    "double slash": (one(name="a//b"), "empty part"),
    "dot": (one(name="a/./b"), "empty part"),
    "no name": (one(name=""), "empty part"),
    "long name": (one(name="a/" + "n" * 600), "longer than 512 bytes"),
    "not utf-8": (one(listed={"name": b"a/\xff"}, local={"name": b"a/\xff"}), "not UTF-8"),
    "header outside": (one(listed={"header": 10_000}), "outside the archive"),
    "header elsewhere": (one(listed={"header": 1}), "no header|contradicts"),
    "local magic": (one(local={"magic": b"PK\3\5"}), "no header"),
    "too large": (one(listed={"size": 500, "stored": 500}), "larger than the archive"),
    "flags differ": (one(local={"flags": 8}), "contradicts"),
    "local name": (one(local={"name": b"archive/data.pkk"}), "contradicts"),
    "local name length": (one(local={"name": b"archive/data.pk"}), "contradicts"),
    "local crc": (one(local={"crc": 1}), "contradicts"),
    "local size": (one(local={"size": 3, "stored": 3}), "contradicts"),
    "wide size missing": (one(listed=FULL), "lacks its 64-bit sizes"),
    "wide size short": (one(listed={**FULL, "extra": struct.pack("<2HQ", 1, 8, 4)}), "lacks its 64-bit sizes"),
    "wide size elsewhere": (one(listed={**FULL, "extra": struct.pack("<2HQ", 2, 8, 4)}), "lacks its 64-bit sizes"),
    "overlap": (build_zip([Member("a/x", build_zip([Member("a/y")])[:60]), Member("a/y", listed={"header": 33})]), "share bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    """Each kind of archive that is not as simple as torch's has its words."""
    data, message = REFUSED[case]

    with pytest.raises(DefectError, match=message):
        listing(data, zip_entries=11)


def test_a_directory_beyond_its_entries_is_not_read():
    """The directory's size is held against the number of entries before it is read into memory."""
    data = build_zip([Member(listed={"extra": b"x" * 60_000})])

    with pytest.raises(DefectError, match="too large for its number of entries"):
        listing(data)


def test_a_file_that_shrinks():
    """Less than was there at first is a defect."""

    class Shrinking(BytesSource):
        __slots__ = ()

        def read_at(self, offset, count):
            return BytesSource.read_at(self, offset, count)[:10]

    with pytest.raises(DefectError, match="cut off"):
        read_zip_directory(Shrinking(build_zip(torch_members())), DEFAULT_LIMITS)


def test_crc_over_several_pieces():
    """A large entry is read in pieces; one flipped bit is found."""
    data = build_zip([Member(data=b"q" * (3 << 20))])
    entry = listing(data)[0]
    damaged = bytearray(data)
    damaged[entry.data_offset + (2 << 20)] ^= 1

    check_crc(BytesSource(data), entry)
    with pytest.raises(DefectError, match="CRC differs") as caught:
        check_crc(BytesSource(bytes(damaged)), entry)
    assert "archive/data.pkl" == caught.value.defects[0].location
