"""A zstd file as random access to what it holds: frames by the seek table at its end, or all of it in memory where there is none.

The seekable form is zstd's own: independent frames, then a skippable frame with the sizes of all of them, so that `zstd -d` and
`tar --zstd` read the same file. Nothing that the file says of itself is believed: a frame is decoded only after its slot, its
declared size and the table agree, into a buffer of that size. Windows, counts and sizes are bounded before anything is allocated.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO

import zstandard

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.pack import FRAME_MAGIC, MAGICS
from ckptctl.domain.source import ByteSource

FRAME_BYTES = 1 << 20
"""Uncompressed bytes of every frame that is written but the last."""
LEVEL = 1
TABLE_MAGIC, SEEKABLE_MAGIC = 0x184D2A5E, 0x8F92EAB1
_FOOTER, _HEAD, _ENTRY = struct.Struct("<IBI"), struct.Struct("<II"), struct.Struct("<III")
_TABLE_START = TABLE_MAGIC.to_bytes(4, "little")
_HAS_CHECKSUMS, _OTHER_BITS = 0x80, 0x7F
_RESERVED_FLAGS = 0x18
_UNKNOWN_SIZE = 2**64 - 1
_CACHE_BYTES = 16 << 20
_INPUT_BYTES = 1 << 10
"""One call expands 4 bytes to at most a block of 128 KiB, so this bounds what one call returns at 32 MiB."""
_PIECE_BYTES = 1 << 20


def _wrong(message: str, place: int | None = None, expected: str = "", actual: str = "") -> DefectError:
    return DefectError(Defect(message, "" if place is None else f"compressed byte {place}", expected, actual))


def _refused(message: str, expected: str = "", actual: str = "") -> DefectError:
    return DefectError(Defect(message, "", expected, actual), is_unsupported=True)


# --- writing ---


def compress_frames(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The seekable file that holds `pieces`, frame by frame. The same content gives the same bytes (with one libzstd)."""
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True)
    entries: list[bytes] = []
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= FRAME_BYTES:
            yield _compressed(compressor, bytes(waiting[:FRAME_BYTES]), entries)
            del waiting[:FRAME_BYTES]
    if waiting:
        yield _compressed(compressor, bytes(waiting), entries)
    yield _HEAD.pack(TABLE_MAGIC, len(entries) * _ENTRY.size + _FOOTER.size)
    yield b"".join(entries)
    yield _FOOTER.pack(len(entries), _HAS_CHECKSUMS, SEEKABLE_MAGIC)


def _compressed(compressor: zstandard.ZstdCompressor, content: bytes, entries: list[bytes]) -> bytes:
    frame = compressor.compress(content)
    # The table wants the low half of the content's XXH64, which is what a frame ends with.
    entries.append(struct.pack("<II", len(frame), len(content)) + frame[-4:])
    return frame


# --- reading ---


@dataclass(frozen=True, slots=True)
class SeekTable:
    """Where each frame lies: `slots` in the file, `starts` in the content; both have one more than there are frames."""

    slots: array[int]
    starts: array[int]
    checksums: array[int] | None

    @property
    def frames(self) -> int:
        """How many."""
        return len(self.slots) - 1


def read_table(source: ByteSource, limits: Limits) -> SeekTable | None:
    """The seek table, or None where the file does not end in one.

    Raises:
        DefectError: it is there and does not fit the file; `is_unsupported` for what is beyond the limits only.
    """
    size = source.size_bytes
    if size < _HEAD.size + _FOOTER.size:
        return None
    count, flags, magic = _FOOTER.unpack(source.read_at(size - _FOOTER.size, _FOOTER.size))
    if magic != SEEKABLE_MAGIC:
        return None
    if flags & _OTHER_BITS:
        raise _wrong("the seek table sets bits that mean nothing", size - _FOOTER.size)
    if count > limits.pack_frames:
        raise _refused(f"has {count} frames, which exceeds the limit of {limits.pack_frames}")
    width = 12 if flags & _HAS_CHECKSUMS else 8
    start = size - _FOOTER.size - count * width - _HEAD.size
    if start < 0:
        raise _wrong(f"the seek table counts {count} frames, more than the file holds", size - _FOOTER.size)
    if _HEAD.unpack(source.read_at(start, _HEAD.size)) != (TABLE_MAGIC, count * width + _FOOTER.size):
        raise _wrong("the seek table does not begin where its count says", start)
    table = _laid_out(source.read_at(start + _HEAD.size, count * width), width, start, limits)
    if table.slots[-1] != start:
        what = f"the frames of the seek table end at byte {table.slots[-1]}, the file's at byte {start}"
        raise _wrong(what, start, str(start), str(table.slots[-1]))
    return table


def _laid_out(data: bytes, width: int, end: int, limits: Limits) -> SeekTable:
    slots, starts, checksums = array("Q", [0]), array("Q", [0]), array("I")
    slot = start = 0
    for frame, (packed, content, *checksum) in enumerate(struct.iter_unpack(f"<{width // 4}I", data)):
        if content > limits.pack_frame_bytes:
            raise _refused(f"frame {frame} has {content} bytes, which exceeds the limit of {limits.pack_frame_bytes}")
        if not content or not packed or packed > 2 * content + _INPUT_BYTES or slot + packed > end:
            what = f"the seek table gives frame {frame} a size that cannot be: {packed} bytes for {content}"
            raise _wrong(what, slot)
        slot, start = slot + packed, start + content
        slots.append(slot)
        starts.append(start)
        checksums.extend(checksum)
    return SeekTable(slots, starts, checksums if width == _ENTRY.size else None)


@dataclass(slots=True)
class FramedSource:
    """What a seekable file holds, as a ByteSource; frames are decoded on demand, some of the last ones are kept."""

    packed: ByteSource
    table: SeekTable
    verified: bytearray = field(init=False)
    """One byte per frame: whether it was decoded, and so proved, once."""
    defects: dict[int, Defect] = field(default_factory=dict)
    """Frame -> what is wrong with it, for those that were asked for."""
    _decoder: zstandard.ZstdDecompressor = field(default_factory=zstandard.ZstdDecompressor)
    _kept: OrderedDict[int, bytes] = field(default_factory=OrderedDict)
    _kept_bytes: int = 0

    def __post_init__(self) -> None:
        self.verified = bytearray(self.table.frames)

    @property
    def size_bytes(self) -> int:
        """Size of the content."""
        return self.table.starts[-1]

    def read_at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer only at the end. Raises DefectError for a frame that is not what it says."""
        end = min(offset + count, self.size_bytes)
        if offset >= end:
            return b""
        first = bisect_right(self.table.starts, offset) - 1
        found = self.frame(first)
        begin = offset - self.table.starts[first]
        if end <= self.table.starts[first + 1]:
            return found[begin : begin + end - offset]
        whole = BytesIO()
        whole.write(memoryview(found)[begin:])
        while self.table.starts[first + 1] < end:
            first += 1
            whole.write(memoryview(self.frame(first))[: end - self.table.starts[first]])
        return whole.getvalue()

    def frame(self, number: int) -> bytes:
        """The content of one frame. Raises DefectError."""
        found = self._kept.get(number)
        if found is not None:
            self._kept.move_to_end(number)
            return found
        try:
            found = self._decoded(number)
        except DefectError as error:
            self.defects[number] = error.defects[0]
            raise
        self.verified[number] = 1
        self._kept[number] = found
        self._kept_bytes += len(found)
        while self._kept_bytes > _CACHE_BYTES and len(self._kept) > 1:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])
        return found

    def _decoded(self, number: int) -> bytes:
        table = self.table
        slot, end = table.slots[number], table.slots[number + 1]
        wanted = table.starts[number + 1] - table.starts[number]
        data = self.packed.read_at(slot, end - slot)
        if len(data) != end - slot:
            raise _wrong(f"frame {number} is cut off", slot, f"{end - slot} bytes", f"{len(data)} bytes")
        try:
            facts = zstandard.get_frame_parameters(data)
            if data[:4] != FRAME_MAGIC or data[4] & _RESERVED_FLAGS:
                raise _wrong(f"frame {number} has a header that means nothing", slot)
            if facts.dict_id:
                raise _wrong(f"frame {number} needs a dictionary, which nobody has", slot)
            if facts.content_size not in {wanted, _UNKNOWN_SIZE}:
                what = f"frame {number} says that it holds {facts.content_size} bytes, the seek table says {wanted}"
                raise _wrong(what, slot, str(wanted), str(facts.content_size))
            found = self._decoder.decompress(data, max_output_size=wanted, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise _wrong(f"frame {number} cannot be decompressed: {error}", slot) from None
        if len(found) != wanted:
            raise _wrong(f"frame {number} holds {len(found)} bytes, not {wanted}", slot, str(wanted), str(len(found)))
        if table.checksums is not None and facts.has_checksum:
            checksum = int.from_bytes(data[-4:], "little")
            if checksum != table.checksums[number]:
                raise _wrong(f"the seek table has another checksum for frame {number} than the frame", slot)
        return found


@dataclass(frozen=True, slots=True)
class PiecesSource:
    """Content in memory, in pieces of 1 MiB: one large buffer would be twice as large while it grows."""

    pieces: list[bytes]
    size_bytes: int

    def read_at(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer only at the end."""
        end = min(offset + count, self.size_bytes)
        whole = BytesIO()
        while offset < end:
            begin = offset % _PIECE_BYTES
            piece = self.pieces[offset // _PIECE_BYTES][begin : begin + end - offset]
            whole.write(piece)
            offset += len(piece)
        return whole.getvalue()


def open_content(source: ByteSource, limits: Limits) -> FramedSource | PiecesSource:
    """What a zstd file holds. Raises DefectError, `is_unsupported` for what is beyond the limits only."""
    if source.read_at(0, 4) not in MAGICS:
        raise _wrong("does not begin like a zstd file", 0)
    table = read_table(source, limits)
    return read_whole(source, limits) if table is None else FramedSource(source, table)


def read_whole(source: ByteSource, limits: Limits) -> PiecesSource:
    """All that a file without a seek table holds.

    Raises:
        DefectError: it is no whole zstd file; `is_unsupported` when its content or a window exceeds the limits.
    """
    decoder = zstandard.ZstdDecompressor(max_window_size=limits.pack_window_bytes)
    pieces: list[bytes] = []
    waiting = bytearray()
    total = 0
    for found in _decompressed(decoder, source):
        total += len(found)
        if total > limits.pack_memory_bytes:
            raise _refused(
                f"has no seek table, and its content exceeds the {limits.pack_memory_bytes} bytes held in memory"
            )
        waiting += found
        while len(waiting) >= _PIECE_BYTES:
            pieces.append(bytes(waiting[:_PIECE_BYTES]))
            del waiting[:_PIECE_BYTES]
    if waiting:
        pieces.append(bytes(waiting))
    return PiecesSource(pieces, total)


def _decompressed(decoder: zstandard.ZstdDecompressor, source: ByteSource) -> Iterator[bytes]:
    """The content bit by bit, over all frames. Raises DefectError."""
    current: zstandard.ZstdDecompressionObj | None = None
    offset = 0
    data = b""
    while data or offset < source.size_bytes:
        if len(data) < len(_TABLE_START):  # so many bytes tell what a frame is
            more = source.read_at(offset, _INPUT_BYTES)
            offset += len(more)
            data += more
        if current is None:
            if data[: len(_TABLE_START)] == _TABLE_START:
                raise _wrong("the end of the seek table is damaged", offset - len(data))
            current = decoder.decompressobj()
        try:
            found = current.decompress(data)
        except zstandard.ZstdError as error:
            if "too much memory" in str(error):
                raise _refused(f"asks for a window that exceeds the limit: {error}") from None
            raise _wrong(f"cannot be decompressed: {error}", offset - len(data)) from None
        data = current.unused_data if current.eof else b""
        current = None if current.eof else current
        if found:
            yield found
    if current is not None:
        raise _wrong("the last frame is cut off", source.size_bytes)
