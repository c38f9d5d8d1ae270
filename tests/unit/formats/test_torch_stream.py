"""Legacy torch streams: what torch wrote, what is damaged, what is written."""

import pickle
import struct

import pytest

from ckptctl.domain.dataplane import DTYPE_BYTES
from ckptctl.domain.finding import DefectError
from ckptctl.domain.source import BytesSource
from ckptctl.formats.torch_stream import STREAM_HEAD, StreamHeader, decode_stream_header, encode_stream, pickled_count

WRITTEN_BY_TORCH = STREAM_HEAD + (
    b"\x80\x02(X\x07\x00\x00\x00storageq\x00ctorch\nLongStorage\nq\x01X\x0e\x00\x00\x0094026321336624q\x02X\x03\x00\x00\x00cpuq\x03K\x01Ntq\x04Q."
    b"\x80\x02]q\x00X\x0e\x00\x00\x0094026321336624q\x01a.\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00"
)
UNTYPED_BY_TORCH = STREAM_HEAD + (
    b"\x80\x02(X\x07\x00\x00\x00storageq\x00ctorch.storage\nUntypedStorage\nq\x01X\x0e\x00\x00\x0094026321323360q\x02X\x03\x00\x00\x00cpuq\x03K\x03Ntq\x04Q."
    b"\x80\x02]q\x00X\x0e\x00\x00\x0094026321323360q\x01a.\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)


def header_of(data: bytes, start: int = 0) -> StreamHeader:
    return decode_stream_header(BytesSource(bytes(start) + data), start, len(data))


def test_head_is_the_constant_of_137_bytes():
    """The pickles before the storage record never change."""
    assert 137 == len(STREAM_HEAD)
    assert 0x1950A86A20F9469CFC6C == int.from_bytes(STREAM_HEAD[4:14], "little")


def test_a_stream_of_torch_is_read_at_any_place():
    """Kind, count and place of the data, from the head alone."""
    assert StreamHeader("int64", "LongStorage", 1, 1000 + len(WRITTEN_BY_TORCH) - 8) == header_of(
        WRITTEN_BY_TORCH, 1000
    )


def test_an_untyped_storage_is_opaque():
    """Dtypes of newer torch lie in untyped bytes; the stream does not say which dtype."""
    header = header_of(UNTYPED_BY_TORCH)

    assert header.is_opaque
    assert ("", 3) == (header.dtype, header.element_count)


def test_a_known_kind_without_reader_is_opaque():
    """A complex128 tensor is no damage."""
    data = encode_stream("complex64", bytes(8)).replace(b"ComplexFloatStorage", b"ComplexDoubleStorage") + bytes(8)

    assert header_of(data).is_opaque


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
@pytest.mark.parametrize("count", [0, 1, 255, 256, 65536])
def test_what_is_written_is_read(dtype, count):
    """Every dtype, and every width in which the count is pickled."""
    data = bytes(count * DTYPE_BYTES[dtype])
    stream = encode_stream(dtype, data)
    header = header_of(stream)

    assert (dtype, count, len(stream) - len(data)) == (header.dtype, header.element_count, header.data_offset)


def test_the_stream_of_torch_is_written_again_byte_for_byte():
    """With the same key, the writer and torch agree."""
    assert WRITTEN_BY_TORCH == encode_stream("int64", struct.pack("<q", 5), key="94026321336624")


def test_counts_beyond_31_bits_are_pickled_as_long():
    """The count of a storage of 2 Gi elements and more, from the head (the data is not there, and is not asked for)."""

    class Sparse:
        size_bytes = len(WRITTEN_BY_TORCH) + 4 + (1 << 31)

        def read_at(self, offset, count):
            head = WRITTEN_BY_TORCH.replace(b"LongStorage", b"CharStorage").replace(
                b"K\x01N", b"\x8a\x05\x00\x00\x00\x80\x00N"
            )
            return (head[:-16] + struct.pack("<q", 1 << 31))[offset : offset + count]

    size = len(WRITTEN_BY_TORCH) + 5 - 16 + 8 + (1 << 31)

    assert 1 << 31 == decode_stream_header(Sparse(), 0, size).element_count


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "does not hold the data"),
        (lambda data: data + b"\0", "does not hold the data"),
        (lambda data: data[:100], "not stored as a legacy torch stream"),
        (lambda data: data[:150], "not of the known form"),
        (lambda data: data[:-12], "counts its elements twice"),
        (lambda data: b"PK" + data[2:], "not stored as a legacy torch stream"),
        (lambda data: data.replace(b"LongStorage", b"EvilStorage"), "names a global ckptctl does not know"),
        (lambda data: data.replace(b"ctorch\n", b"cposix\n"), "not of the known form"),
        (lambda data: data.replace(b"K\x01N", b"K\x02N"), "counts its elements twice"),
        (lambda data: data.replace(b"K\x01N", b"J\xff\xff\xff\xffN"), "negative"),
        (lambda data: data.replace(b"K\x01N", b"\x8a\x02\x01N"), "not of the known form"),
        (lambda data: data.replace(b"94026321336624q\x01", b"94026321336625q\x01"), "not of the known form"),
        (lambda data: data.replace(b"X\x0e", b"X\x0d"), "not of the known form"),
    ],
)
def test_damage_is_named(damage, message):
    """Any other form is a defect with an offset."""
    with pytest.raises(DefectError, match=message) as caught:
        header_of(damage(WRITTEN_BY_TORCH))

    assert caught.value.defects[0].location.startswith("offset ")


def test_what_has_no_stream_is_refused():
    """Dtypes without a legacy storage and half elements."""
    with pytest.raises(ValueError, match="uint16"):
        encode_stream("uint16", b"")
    with pytest.raises(ValueError, match="whole number"):
        encode_stream("int64", b"123")


def test_wide_counts_are_pickled_as_the_standard_pickler_does():
    """Every width, at its borders."""
    for count in (0, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**40):
        assert pickle.dumps(count, 2)[2:-1] == pickled_count(count)
