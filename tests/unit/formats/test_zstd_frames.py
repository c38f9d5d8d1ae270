"""The seekable form: what is written, what is read at any place, and everything a file may claim without being it."""

from __future__ import annotations

import random
import struct

import pytest
import zstandard

from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.source import BytesSource
from ckptctl.formats.zstd_frames import (
    FRAME_BYTES,
    FramedSource,
    PiecesSource,
    compress_frames,
    open_content,
    read_table,
)
from tests.packs import plain, seekable, table

LIMITS = Limits(pack_frame_bytes=4 << 20, pack_memory_bytes=4 << 20, pack_window_bytes=4 << 20, pack_frames=1000)
CONTENT = random.Random(7).randbytes(300_000) + b"line of text\n" * 200_000


def opened(data: bytes):
    return open_content(BytesSource(data), LIMITS)


def refusal(data: bytes, limits: Limits = LIMITS) -> DefectError:
    def read():
        content = open_content(BytesSource(data), limits)
        content.read_at(0, content.size_bytes)

    with pytest.raises(DefectError) as caught:
        read()
    return caught.value


@pytest.mark.parametrize(
    "pieces",
    [[CONTENT], [CONTENT[:1], CONTENT[1:FRAME_BYTES], CONTENT[FRAME_BYTES:]], [bytes([b]) for b in CONTENT[:2000]]],
)
def test_what_is_written_does_not_depend_on_pieces(pieces) -> None:
    """The same bytes give the same file, however they come; any zstd reads it, and the frames are where the table says."""
    whole = b"".join(pieces)
    data = b"".join(compress_frames(pieces))
    content = opened(data)

    assert seekable(whole) == data
    assert isinstance(content, FramedSource)
    assert [FRAME_BYTES] * (len(whole) // FRAME_BYTES) == [
        after - before for before, after in zip(content.table.starts, content.table.starts[1:-1], strict=False)
    ]
    assert whole == zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()


@pytest.mark.parametrize(
    "data", [seekable(CONTENT), plain(CONTENT), plain(CONTENT[:99]) + plain(CONTENT[99:])], ids=["table", "one", "two"]
)
def test_any_stretch_can_be_read(data) -> None:
    """Within a frame, over several, up to the end and beyond it."""
    content = opened(data)

    assert len(CONTENT) == content.size_bytes
    for offset, count in (
        (0, 10),
        (FRAME_BYTES - 3, 7),
        (1, 2 * FRAME_BYTES),
        (len(CONTENT) - 4, 100),
        (len(CONTENT), 5),
    ):
        assert CONTENT[offset : offset + count] == content.read_at(offset, count)
    assert b"" == content.read_at(5, 0)


def test_only_the_frames_that_are_asked_for_are_decoded() -> None:
    """One byte costs one frame; what was decoded is remembered, and not more of it than the cache holds."""
    content = opened(seekable(bytes(40 * FRAME_BYTES)))
    content.read_at(5 * FRAME_BYTES, 1)

    assert [5] == [number for number, is_read in enumerate(content.verified) if is_read]
    for number in range(40):
        content.frame(number)
    assert 16 == len(content._kept)


def test_an_empty_content() -> None:
    """No frame at all is a table alone, and so is a file with one empty frame without one."""
    assert 0 == opened(seekable(b"")).size_bytes
    assert 0 == opened(plain(b"")).size_bytes


def test_skippable_frames_without_a_table_are_passed_over() -> None:
    """As any zstd reader does."""
    content = opened(struct.pack("<II", 0x184D2A53, 4) + b"note" + plain(b"abc") + struct.pack("<II", 0x184D2A50, 0))

    assert isinstance(content, PiecesSource)
    assert b"abc" == content.read_at(0, 10)


GOOD = seekable(CONTENT)
FRAME = plain(b"x" * 1000, write_checksum=True)
UNKNOWN = zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 1000)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "does not begin like a zstd file"),
        (b"PK\x03\x04" + bytes(100), "does not begin like a zstd file"),
        (GOOD[:-1] + b"\x00", "the end of the seek table is damaged"),
        (FRAME + table((len(FRAME), 999)), "says that it holds 1000 bytes, the seek table says 999"),
        (UNKNOWN + table((len(UNKNOWN), 999)), "cannot be decompressed"),
        (UNKNOWN + table((len(UNKNOWN), 1001)), "holds 1000 bytes, not 1001"),
        (FRAME + table((len(FRAME) - 1, 1000)), "end at byte"),
        (FRAME + table((len(FRAME) + 1, 1000)), "a size that cannot be"),
        (FRAME + table((len(FRAME), 0)), "a size that cannot be"),
        (FRAME + table((0, 1000)), "a size that cannot be"),
        (FRAME + table((2**32 - 1, 1000)), "a size that cannot be"),
        (FRAME + table((len(FRAME), 1000), count=2), "does not begin where its count says"),
        (FRAME + table((len(FRAME), 1000), count=900), "more than the file holds"),
        (FRAME + table((len(FRAME), 1000), flags=0x40), "bits that mean nothing"),
        (FRAME + table((len(FRAME), 1000), flags=1), "bits that mean nothing"),
        (FRAME + table((len(FRAME), 1000, 12345), flags=0x80), "another checksum for frame 0"),
        (FRAME + b"more" + table((len(FRAME) + 4, 1000)), "cannot be decompressed"),
        (b"more" + FRAME + table((len(FRAME) + 4, 1000)), "does not begin like a zstd file"),
        (FRAME[:4] + bytes([FRAME[4] | 0x10]) + FRAME[5:] + table((len(FRAME), 1000)), "a header that means nothing"),
        (FRAME[:-9] + table((len(FRAME) - 9, 1000)), "cannot be decompressed"),
        (FRAME + table((8, 1000)), "end at byte 8"),
        (FRAME[:-9], "is cut off"),
        (FRAME + b"\x28\xb5", "is cut off"),
        (FRAME + b"garbage behind it", "cannot be decompressed"),
        (FRAME[:20] + b"\xff" + FRAME[21:], "cannot be decompressed"),
    ],
)
def test_what_is_wrong_is_said(data, word) -> None:
    """A table that does not fit, frames that lie, files that end too early or too late: damaged, with the place."""
    error = refusal(data)

    assert word in error.defects[0].message
    assert error.is_unsupported is False


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (plain(bytes(5 << 20)), "exceeds the 4194304 bytes held in memory"),
        (zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20)), "exceeds the 4194304 bytes"),
        (b"".join([plain(bytes(1 << 20))] * 5), "exceeds the 4194304 bytes"),
        (FRAME + table((len(FRAME), 5 << 20)), "frame 0 has 5242880 bytes, which exceeds the limit"),
        (FRAME + table((len(FRAME), 2**32 - 1)), "exceeds the limit"),
        (FRAME + table((len(FRAME), 1000), count=1001), "has 1001 frames, which exceeds the limit"),
    ],
)
def test_what_is_too_large_could_not_be_checked(data, word) -> None:
    """Bombs with and without a declared size are refused before they are held; nothing is called damaged because of its size."""
    error = refusal(data)

    assert word in error.defects[0].message
    assert error.is_unsupported is True


def test_a_window_that_is_too_large_is_refused() -> None:
    """What a frame asks its reader to keep is bounded before it is kept."""
    parameters = zstandard.ZstdCompressionParameters(window_log=27, compression_level=1)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = stream.compress(b"abc") + stream.flush()
    error = refusal(data)

    assert "asks for a window that exceeds the limit" in error.defects[0].message
    assert error.is_unsupported is True


def test_a_dictionary_is_refused() -> None:
    """Nobody has it."""
    samples = [b"sample %d of some text " % number * 20 for number in range(200)]
    dictionary = zstandard.train_dictionary(2000, samples)
    frame = zstandard.ZstdCompressor(dict_data=dictionary).compress(b"x" * 1000)

    assert "needs a dictionary" in refusal(frame + table((len(frame), 1000))).defects[0].message


def test_a_damaged_frame_leaves_the_others_readable() -> None:
    """Only what lies in it is lost, and which frame it is stays known."""
    damaged = bytearray(GOOD)
    damaged[50] ^= 1
    content = opened(bytes(damaged))
    with pytest.raises(DefectError, match="frame 0 cannot be decompressed"):
        content.read_at(0, 1)

    assert CONTENT[FRAME_BYTES : FRAME_BYTES + 50] == content.read_at(FRAME_BYTES, 50)
    assert [0] == list(content.defects)


def test_a_file_that_is_cut_while_it_is_read() -> None:
    """The table was right, the frame is not there any more."""

    class Cut(BytesSource):
        def read_at(self, offset, count):
            return self.data[offset : min(offset + count, 100)]

    content = open_content(BytesSource(GOOD), LIMITS)
    content.packed = Cut(GOOD)
    with pytest.raises(DefectError, match="frame 1 is cut off"):
        content.frame(1)


def test_a_table_with_checksums_for_frames_without() -> None:
    """What the frame does not carry cannot be compared; its content is read all the same."""
    frame = plain(b"x" * 1000, write_checksum=False)

    assert b"x" * 1000 == opened(frame + table((len(frame), 1000, 7), flags=0x80)).read_at(0, 2000)


def test_no_table_is_no_defect() -> None:
    """Small files, and files that end in something else."""
    assert read_table(BytesSource(b"short"), LIMITS) is None
    assert read_table(BytesSource(plain(CONTENT)), LIMITS) is None
