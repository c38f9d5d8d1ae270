"""Tar shards: the writer against Python's own, the reader against everything that two readers could understand differently."""

import gzip
import io
import tarfile
from dataclasses import replace

import pytest

from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats import tar_archive
from ckptctl.formats.tar_archive import build_archives, read_archive


def python_tar(members, archive_format=tarfile.PAX_FORMAT):
    """What Python's own writer makes of the same members; a member may also be a ready TarInfo."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=archive_format) as archive:
        for name, payload in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(payload)
            info.mode = 0o600
            archive.addfile(info, io.BytesIO(payload))
    return buffer.getvalue()


def a_link(kind, name="link"):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = "/etc/passwd"
    return info


def read(data, limits=DEFAULT_LIMITS):
    return list(read_archive(BytesSource(data), limits))


def refusal(data, limits=DEFAULT_LIMITS):
    with pytest.raises(DefectError) as caught:
        read(data, limits)
    (defect,) = caught.value.defects
    assert defect.message.isprintable()
    return defect


def sealed(block):
    """A header block with its checksum put right."""
    block = bytearray(block)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def changed(data, offset, piece, block=0):
    """An archive with some bytes of one header replaced, checksum right."""
    start = block * 512
    header = bytearray(data[start : start + 512])
    header[offset : offset + len(piece)] = piece
    return data[:start] + sealed(header) + data[start + 512 :]


ONE = python_tar([("a", b"hello")])


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "x" * 100,
        "x" * 101,
        "d/" + "x" * 120,
        "x" * 160 + "/" + "y" * 90,
        "é",
        "é" * 60,
        "a" * 989,
        "a" * 990,
        "日本" * 200,
    ],
)
@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 20_000])
def test_bytes_are_those_of_python(name, size):
    """Short and long names, ASCII and other, empty and full blocks: the shard is the one that Python writes."""
    payload = bytes(range(256)) * 100
    (built,) = build_archives("part", [(name, payload[:size]), ("next", b"")])

    assert python_tar([(name, payload[:size]), ("next", b"")]) == built.data
    assert [name, "next"] == [member.name for member, _ in read(built.data)] == list(built.members)
    assert [payload[:size], b""] == [content for _, content in read(built.data)]
    assert (sha256_hex(built.data), 2, len(built.data)) == (built.entry.sha256, built.entry.members, built.entry.bytes)


def test_shards_are_cut_at_512_members():
    """The 513th member opens a second shard, and names count from 0."""
    built = build_archives("agent-part", [(f"m{number:04d}", b"") for number in range(1025)])

    assert ["agent-part-000000.tar", "agent-part-000001.tar", "agent-part-000002.tar"] == [
        shard.name for shard in built
    ]
    assert [512, 512, 1] == [shard.entry.members for shard in built]
    assert [] == build_archives("agent-part", [])


def test_shards_are_cut_at_their_payload(monkeypatch):
    """A member that would pass the limit opens a new shard; one that is larger than the limit lies alone."""
    monkeypatch.setattr(tar_archive, "MAX_SHARD_PAYLOAD_BYTES", 100)
    members = [("a", b"x" * 60), ("b", b"x" * 40), ("c", b"x"), ("d", b"x" * 500), ("e", b"x")]
    built = build_archives("p", members)

    assert [("a", "b"), ("c",), ("d",), ("e",)] == [shard.members for shard in built]


def test_members_carry_size_and_digest():
    """A regular member is returned with the digest of its payload."""
    ((member, payload),) = read(ONE)

    assert ("a", True, 5, sha256_hex(b"hello")) == (member.name, member.is_regular, member.size_bytes, member.sha256)
    assert b"hello" == payload


@pytest.mark.parametrize(
    "kind", [tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_told_apart(kind):
    """A member that is no regular file is returned without payload, for the caller to refuse."""
    members = read(python_tar([("a", b"1"), (a_link(kind), b""), ("b", b"2")]))

    assert [True, False, True] == [member.is_regular for member, _ in members]
    assert [b"1", None, b"2"] == [payload for _, payload in members]
    assert members[1][0].sha256 is None


@pytest.mark.parametrize("name", ["../../a", "/etc/passwd", "a\x1b[2J", "a\nb", "./a"])
def test_odd_names_are_returned_as_they_are(name):
    """Whether a name is right is the caller's question; the reader changes none."""
    assert [name] == [member.name for member, _ in read(python_tar([(name, b"")]))]


def test_a_name_with_a_final_slash_is_a_directory():
    """Old readers take such a member for a directory, so it is no regular file here."""
    ((member, payload),) = read(changed(ONE, 0, b"a/"))

    assert (False, None) == (member.is_regular, payload)


def test_a_name_in_two_parts_is_joined():
    """A long name that another writer split into prefix and name is one name."""
    data = python_tar([("p" * 80 + "/" + "n" * 80, b"x")], tarfile.USTAR_FORMAT)

    assert ["p" * 80 + "/" + "n" * 80] == [member.name for member, _ in read(data)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (gzip.compress(ONE, mtime=0), "is compressed with gzip, not an uncompressed tar"),
        (b"PK\x03\x04" + b"x" * 10_236, "holds no header of an uncompressed tar"),
        (b"\x1f\x8b", "is compressed with gzip"),
        (b"\x1f", "is cut off"),
        (python_tar([("a", b"")], tarfile.GNU_FORMAT), "holds no header of an uncompressed tar"),
        (ONE[:-512], "is not padded to a multiple of 10240 bytes"),
        (ONE[:1024], "is cut off"),
        (ONE[:1536], "ends without its two blocks of zeros"),
        (ONE[:-1] + b"x", "bytes follow the end of the archive"),
        (ONE[:1536] + ONE[:512] + ONE[2048:], "bytes follow the end of the archive"),
        (ONE + bytes(512), "is not padded"),
        (ONE + b"junk" * 2560, "bytes follow the end of the archive"),
        (ONE[:517] + b"x" + ONE[518:], "the padding after a member is not zeros"),
        (b"b" + ONE[1:], "a header has a wrong checksum"),
        (ONE[:148] + b"zzzzzz\0 " + ONE[156:], "the checksum of a header is no octal number"),
        (changed(ONE, 124, b"0000000000x\0"), "the size of a header is no octal number"),
        (changed(ONE, 124, b"\x80\0\0\0\0\0\0\0\0\0\0\5"), "the size of a header is no octal number"),
        (changed(ONE, 124, b"-0000000005\0"), "the size of a header is no octal number"),
        (changed(ONE, 124, b"77777777777\0"), 'member "a" reaches beyond the end of the archive'),
        (changed(ONE, 100, b"0_00600\0"), "the mode of a header is no octal number"),
        (changed(ONE, 505, b"x"), "a header has bytes where zeros must be"),
        (changed(ONE, 0, b"a\0b"), "the name of a header goes on after its end"),
        (changed(ONE, 0, b"\xff"), "the name of a header is not UTF-8"),
        (changed(ONE, 156, b"L"), 'member "a" is of the unsupported type "L"'),
        (changed(ONE, 156, b"g"), 'member "a" is of the unsupported type "g"'),
        (changed(ONE, 156, b"7"), 'member "a" is of the unsupported type "7"'),
        (changed(ONE, 156, b"2"), 'member "a" is a link or device, but has a size'),
    ],
)
def test_refuses_what_is_no_plain_tar(data, message):
    """Each deviation from the one accepted form is a defect with the byte at which it lies."""
    found = refusal(data)

    assert message in found.message
    assert "is empty" == found.message or found.location.startswith("byte ")


def with_pax(record):
    """An archive whose first member has this extended header."""
    (built,) = build_archives("p", [("é", b"x")])
    content = record + bytes(-len(record) % 512)
    header = changed(built.data[:512], 124, b"%011o\0" % len(record))
    data = header + content + built.data[1024:]
    return data + bytes(-len(data) % 10_240)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"10 path=a\n11 path=bb\n", "an extended header has the key"),
        (b"9 size=1\n", 'an extended header has the key "size"'),
        (b"20 GNU.sparse.size=1\n", "an extended header is malformed"),
        (b"21 GNU.sparse.size=1\n", 'an extended header has the key "GNU.sparse.size"'),
        (b"99 path=a\n", "an extended header is malformed"),
        (b"11 path=a\n", "an extended header is malformed"),
        (b"9 uid=1 \n\n", "an extended header is malformed"),
        (b"path=a\n", "an extended header is malformed"),
        (b"10 path=\xff\n", "an extended header is not UTF-8"),
        (b"10 path=\0\n", "an extended header gives an unusable name"),
        (b"8 path=\n", "an extended header gives an unusable name"),
        (b"9 path=\n", "an extended header is malformed"),
    ],
)
def test_refuses_bad_extended_headers(record, message):
    """An extended header that is malformed, or could change anything but the name, is refused."""
    assert message in refusal(with_pax(record)).message


def test_harmless_extended_headers_are_taken():
    """Times and owners in an extended header change nothing; without a path the plain name counts."""
    assert ["?"] == [member.name for member, _ in read(with_pax(b"12 mtime=0.5\n"[:-1].replace(b"12", b"13") + b"\n"))]
    assert ["long"] == [member.name for member, _ in read(with_pax(b"13 path=long\n"))]


def test_extended_headers_have_an_end_and_a_member():
    """An extended header without a member, two in a row, or one of great length are refused."""
    (built,) = build_archives("p", [("é", b"")])
    alone = built.data[:1024] + bytes(9216)
    twice = built.data[:1024] + built.data[:1536] + bytes(10_240 - 2560)
    large = with_pax(b"%d path=%s\n" % (70_000, b"x" * 69_988))

    assert "an extended header has no member" in refusal(alone).message
    assert "two extended headers follow one another" in refusal(twice).message
    assert "an extended header exceeds the limit" in refusal(large).message


def test_limits():
    """The archive, one member and the number of members are bounded."""
    three = python_tar([(str(number), b"12345") for number in range(3)])

    assert "exceeds the limit of 100 bytes" in refusal(ONE, replace(DEFAULT_LIMITS, archive_bytes=100)).message
    assert "has more than 2 members" in refusal(three, replace(DEFAULT_LIMITS, archive_members=2)).message
    assert (
        'member "0" exceeds the limit of 4 bytes'
        in refusal(three, replace(DEFAULT_LIMITS, archive_member_bytes=4)).message
    )
