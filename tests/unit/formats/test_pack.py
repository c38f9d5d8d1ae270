"""The tar in a pack: the bytes that are written, and every tar that two programs could unpack differently."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace

import pytest

from ckptctl.domain.evidence import TreeEntry
from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.source import BytesSource
from ckptctl.formats.pack import PackMember, pack_bytes, read_index
from ckptctl.formats.tar_blocks import MAX_OCTAL_SIZE, member_headers
from ckptctl.formats.zstd_frames import open_content
from tests.packs import member, seekable, tar_of

LIMITS = replace(DEFAULT_LIMITS, pack_members=20, pack_names_bytes=2000, tree_depth=4, name_bytes=120)


def index_of(tar: bytes, limits=LIMITS):
    return read_index(BytesSource(tar), limits)


def tree(index) -> list[TreeEntry]:
    return list(index.below("", None))


def content_of(data: bytes) -> bytes:
    content = open_content(BytesSource(data), DEFAULT_LIMITS)
    return content.read_at(0, content.size_bytes)


MEMBERS = [
    PackMember("step_3", 0o755),
    PackMember("step_3/a", 0o644, 5, [b"he", b"llo"]),
    PackMember("step_3/é" + "x" * 120, 0o600, 0, []),
]


def test_the_tar_is_the_one_that_python_writes() -> None:
    """Times, owners and owner names are empty, modes are kept; long and other names come in extended headers."""
    wanted = tar_of(
        member("step_3/", kind=tarfile.DIRTYPE, mode=0o755),
        member("step_3/a", b"hello", mode=0o644),
        member("step_3/é" + "x" * 120, mode=0o600),
    )

    assert wanted == content_of(b"".join(pack_bytes(MEMBERS)))
    assert [
        TreeEntry("step_3", "directory", 0, 0o755),
        TreeEntry("step_3/a", "file", 5, 0o644),
        TreeEntry("step_3/é" + "x" * 120, "file", 0, 0o600),
    ] == tree(index_of(wanted, DEFAULT_LIMITS))


def test_the_whole_file_is_pinned() -> None:
    """One small pack, byte by byte: what was packed once is found equal by later versions too, as long as libzstd agrees."""
    data = b"".join(pack_bytes([PackMember("a", 0o644, 3, [b"abc"])]))

    assert data == b"".join(pack_bytes([PackMember("a", 0o644, 3, [b"a", b"bc"])]))
    assert tar_of(member("a", b"abc", mode=0o644)) == content_of(data)
    assert data.startswith(b"\x28\xb5\x2f\xfd")
    assert data.endswith(b"\x01\x00\x00\x00\x80\xb1\xea\x92\x8f")


@pytest.mark.parametrize("pieces", [[b"abc"], [b"abc", b"de"], []])
def test_content_of_another_length_is_refused(pieces) -> None:
    """A file that changes while it is packed ends the packing."""
    with pytest.raises(DefectError, match="changed while it was packed"):
        list(pack_bytes([PackMember("a", 0o644, 4, pieces)]))


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    """It could not be written so that everybody reads it alike."""
    with pytest.raises(DefectError, match="is not UTF-8"):
        list(pack_bytes([PackMember("a\udcff", 0o644, 0, [])]))


def test_sizes_beyond_the_octal_field() -> None:
    """Eight GiB and more stand in an extended header, and are read from there."""
    size = MAX_OCTAL_SIZE + 1
    head = member_headers("big", size, mode=0o644)

    class Sparse:
        size_bytes = len(head) + size + 1024 + 10_240 - (len(head) + size + 1024) % 10_240

        def read_at(self, offset, count):
            piece = head[offset : offset + count]
            return piece + bytes(min(count, self.size_bytes - offset) - len(piece))

    assert [TreeEntry("big", "file", size, 0o644)] == list(read_index(Sparse(), DEFAULT_LIMITS).below("", None))
    assert head == member_headers("big", size, mode=0o644)
    with tarfile.open(fileobj=io.BytesIO(head + bytes(512))) as archive:
        assert size == archive.next().size


@pytest.mark.parametrize(
    "form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT], ids=["pax", "gnu", "ustar"]
)
def test_tars_of_other_programs(form) -> None:
    """Owners, times, `./` before names, folders that nobody named, long names: the same tree."""
    tar = tar_of(
        member("./", kind=tarfile.DIRTYPE),
        member("./a/b/c", b"x", uname="somebody", uid=1000, mtime=1_700_000_000),
        member("./a/" + "n" * 110 if form != tarfile.USTAR_FORMAT else "./a/n", b"yy"),
        form=form,
    )
    index = index_of(tar)

    assert ["a", "a/b", "a/b/c"] == [entry.path for entry in tree(index)][:3]
    assert ["directory", "directory", "file", "file"] == [entry.kind for entry in tree(index)]
    assert [("b", "directory"), ("b/c", "file")] == [(e.path, e.kind) for e in index.below("a", None)][:2]
    assert 2 == len(list(index.below("a", 1)))
    assert index.find("a/b") is not None
    assert index.find("a/x") is None


def sparse() -> tuple[tarfile.TarInfo, bytes]:
    return member("s", kind=tarfile.GNUTYPE_SPARSE)


@pytest.mark.parametrize(
    ("members", "word"),
    [
        ([member("l", kind=tarfile.SYMTYPE, linkname="/etc/passwd")], '"l" is a symbolic link'),
        ([member("a", b"x"), member("l", kind=tarfile.LNKTYPE, linkname="a")], '"l" is a hard link'),
        ([member("d", kind=tarfile.CHRTYPE)], '"d" is a device'),
        ([member("d", kind=tarfile.BLKTYPE)], '"d" is a device'),
        ([member("p", kind=tarfile.FIFOTYPE)], '"p" is a named pipe'),
        ([member("../x", b"x")], "leads out of the pack"),
        ([member("a/../../x", b"x")], "leads out of the pack"),
        ([member("/etc/x", b"x")], "is absolute"),
        ([member(".//x", b"x")], "is absolute"),
        ([member("a//b", b"x")], "more than one way"),
        ([member("a/./b", b"x")], "more than one way"),
        ([member("././b", b"x")], "more than one way"),
        ([member(".", b"x")], "more than one way"),
        ([member("a", b"x"), member("a", b"y")], '"a" is there twice'),
        ([member("a", b"x"), member("./a", b"y")], '"a" is there twice'),
        ([member("a", kind=tarfile.DIRTYPE), member("a", kind=tarfile.DIRTYPE)], '"a" is there twice'),
        ([member("a", b"x"), member("a/b", b"y")], 'lies in "a", which is a file'),
        ([member("a/b", b"y"), member("a", b"x")], "is a file, and other members lie in it"),
        ([member("a/b/c/d/e", b"x")], "nested deeper than 4"),
        ([member("n" * 121, b"x")], "exceeds the limit of 120 bytes"),
        ([member(f"m{number}") for number in range(21)], "has more than 20 members"),
        ([member(f"d{number}/x") for number in range(12)], "holds more than 20 names"),
        ([member(f"{number:03d}" + "n" * 110 + "/m" + "x" * 100) for number in range(10)], "all names together exceed"),
        ([member("a/", b"x")], "is a directory with content"),
        ([member("a", b"x", pax_headers={"GNU.sparse.major": "1"})], "could change what is read"),
        ([member("a", b"x", pax_headers={"SCHILY.xattr.user.x": "1"})], "could change what is read"),
        ([member("a", b"x", pax_headers={"size": "0x10"})], "an unusable size"),
        ([member("a", b"x", pax_headers={"size": "9" * 18})], "reaches beyond the end"),
        ([member("a", b"x", pax_headers={"path": "../b"})], "leads out of the pack"),
    ],
)
def test_what_is_no_plain_tree_is_refused(members, word) -> None:
    """Links, devices, names that lead elsewhere or twice to one place, sparse maps: refused, with the place."""
    with pytest.raises(DefectError) as caught:
        index_of(tar_of(*members))

    assert word in caught.value.defects[0].message
    assert caught.value.defects[0].location.startswith("byte ")


GOOD = tar_of(member("a", b"hello"), member("b", b"x"))


@pytest.mark.parametrize(
    ("tar", "word"),
    [
        (b"", "is cut off"),
        (GOOD[:700], "reaches beyond the end"),
        (GOOD[:1024], "is cut off"),
        (GOOD[:2048], "is cut off"),
        (GOOD + b"x" * 10_240, "bytes follow the end"),
        (GOOD + bytes(512), "is not padded"),
        (GOOD[:600] + b"x" + GOOD[601:], "the padding after a member is not zeros"),
        (b"x" * 10_240, "holds no header"),
        (GOOD[:156] + b"S" + GOOD[157:], "checksum"),
        (tar_of(sparse(), form=tarfile.GNU_FORMAT), "unsupported type"),
        (tar_of(member("a", pax_headers={"comment": "x"}), form=tarfile.PAX_FORMAT)[:1024] + bytes(10_240 - 1024), "has no member"),
        (GOOD[:1024] + GOOD[:1024].replace(b"a\0", b"c\0", 1) + bytes(8192), "checksum"),
    ],
)  # fmt: skip
def test_what_is_no_tar_is_refused(tar, word) -> None:
    """Cut, padded, continued, of another kind."""
    with pytest.raises(DefectError) as caught:
        index_of(tar)

    assert word in caught.value.defects[0].message


def test_global_headers_and_solaris_extensions_are_refused() -> None:
    """They change what later members mean, differently for different readers."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"path": "all"}) as archive:
        archive.addfile(*[tarfile.TarInfo("a")])
    with pytest.raises(DefectError, match="unsupported type .g"):
        index_of(buffer.getvalue())


def test_the_folder_itself_and_folders_named_late() -> None:
    """`./` is no member, a directory may come after what lies in it, and empty directories count."""
    tar = tar_of(
        member("./", kind=tarfile.DIRTYPE),
        member("a/b", b"x"),
        member("a", kind=tarfile.DIRTYPE, mode=0o700),
        member("a/c", b""),
        member("empty", kind=tarfile.DIRTYPE),
    )

    assert [("a", 0o700), ("a/b", 0o644), ("a/c", 0o644), ("empty", 0o644)] == [
        (entry.path, entry.mode) for entry in tree(index_of(tar))
    ]


@pytest.mark.parametrize(
    ("name", "word"), [(b"", "has 0 bytes"), (b"\0", "is empty"), (b"n" * 70_000, "has 70000 bytes")]
)
def test_long_names_of_gnu_tar_are_bounded(name, word) -> None:
    """A name in a member of its own: there must be one, and not more than a name."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, len(name)
    head = info.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(DefectError, match=word):
        index_of(head + name + bytes(-len(name) % 512) + tar_of(member("a", b"x"), form=tarfile.GNU_FORMAT))


def test_a_size_for_what_has_none() -> None:
    """An extended header may not give a directory content."""
    with pytest.raises(DefectError, match="is a link or device, but has a size"):
        index_of(tar_of(member("a", kind=tarfile.DIRTYPE, pax_headers={"size": "512"})))


def test_names_of_a_stretch() -> None:
    """Which members a damaged frame holds."""
    index = index_of(GOOD)

    assert ["a"] == index.within(512, 513, 5)
    assert ["a", "b"] == index.within(0, 4096, 5)
    assert ["a"] == index.within(0, 4096, 1)
    assert [] == index.within(4096, 9000, 5)


def test_a_pack_is_read_through_its_frames() -> None:
    """The index needs the headers only."""
    content = open_content(
        BytesSource(seekable(tar_of(member("a", bytes(5 << 20)), member("b", b"x")))), DEFAULT_LIMITS
    )
    index = read_index(content, DEFAULT_LIMITS)

    assert ["a", "b"] == index.names
    assert [0, 5] == [number for number, is_read in enumerate(content.verified) if is_read]
