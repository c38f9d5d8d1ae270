"""The legacy, non-zip torch stream of one tensor's storage, as TransferQueue pickles it (data-plane section 4).

Five small pickles, then the element count and the raw data. The form is constant but for storage kind, address and count, so
it is matched as bytes and nothing is interpreted; the data is never touched. Which view of the storage a tensor is, the pickle
around the stream says.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from ckptctl.domain.dataplane import DTYPE_BYTES
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.source import ByteSource

STREAM_HEAD = bytes.fromhex(
    "80028a0a6cfc9c46f9206aa850192e80024de9032e80027d710028581000000070726f746f636f6c5f76657273696f6e71014de903580d0000006c6974746c655f"
    "656e6469616e710288580a000000747970655f73697a657371037d710428580500000073686f727471054b025803000000696e7471064b0458040000006c6f6e67"
    "71074b0475752e"
)
"""Magic number, protocol version 1001, and the sizes of a little-endian machine."""

STORAGE_DTYPES: dict[str, str] = {
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "ComplexFloatStorage": "complex64",
}
_KINDS = {dtype: kind for kind, dtype in STORAGE_DTYPES.items()}

_OPAQUE_KINDS = frozenset(
    {"ComplexDoubleStorage", "QInt8Storage", "QInt32Storage", "QUInt8Storage", "QUInt4x2Storage", "QUInt2x4Storage"}
)
"""Real storage kinds of torch whose elements this tool does not read."""

_HEADER_BYTES = 320
"""Head, and both pickles with addresses of up to 20 digits: about 240 bytes; the rest is margin."""

_STORAGE = re.compile(
    rb"\x80\x02\(X\x07\x00\x00\x00storageq\x00"
    rb"c(?P<module>torch(?:\.storage)?)\n(?P<kind>[A-Za-z0-9]{1,40})\nq\x01"
    rb"X(?P<size>.)\x00\x00\x00(?P<key>[0-9]{1,20})q\x02X\x03\x00\x00\x00cpuq\x03"
    rb"(?:K(?P<u8>.)|M(?P<u16>..)|J(?P<i32>....)|\x8a(?P<digits>.)(?P<long>.{1,8}?))Ntq\x04Q\."
    rb"\x80\x02\]q\x00X(?P=size)\x00\x00\x00(?P=key)q\x01a\.",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class StreamHeader:
    """What a stream says of its storage. `dtype` is empty for an untyped storage or a kind that is not read; then the count is in
    bytes for an untyped one. `data_offset` is absolute in the source.
    """

    dtype: str
    kind: str
    element_count: int
    data_offset: int

    @property
    def is_opaque(self) -> bool:
        """Whether the elements are of a kind that is not read."""
        return not self.dtype


def decode_stream_header(source: ByteSource, start: int, size_bytes: int, head: bytes = b"") -> StreamHeader:
    """Read the head of the stream of `size_bytes` that begins at `start`; `head` is what is already known of it.

    Raises:
        DefectError: it is not such a stream, or its data is not exactly as long as it says.
    """
    found = _STORAGE.match(head, len(STREAM_HEAD))
    if found is None or found.end() + 8 > len(head):
        head = source.read_at(start, min(size_bytes, _HEADER_BYTES))
        found = _STORAGE.match(head, len(STREAM_HEAD))
    if not head.startswith(STREAM_HEAD):
        raise _defect("a tensor is not stored as a legacy torch stream of a little-endian machine", start)
    if found is None or found["size"][0] != len(found["key"]):
        raise _defect("the storage record of a tensor stream is not of the known form", start + len(STREAM_HEAD))
    count = _element_count(found, start)
    data_offset = start + found.end() + 8
    kind = found["kind"].decode()
    dtype, element_bytes = _element_type(found["module"], kind, start)
    stated = head[found.end() : found.end() + 8]
    if stated != struct.pack("<q", count):
        raise _defect(
            "a tensor stream counts its elements twice and differently", start + found.end(), str(count), stated.hex()
        )
    data_bytes = start + size_bytes - data_offset
    if element_bytes and data_bytes != count * element_bytes:
        raise _defect(
            "a tensor stream does not hold the data it announces",
            start,
            f"{count * element_bytes} bytes",
            f"{data_bytes} bytes",
        )
    return StreamHeader(dtype, kind, count, data_offset)


def encode_stream(dtype: str, data: bytes, key: str = "0") -> bytes:
    """The stream of a storage that holds exactly `data`; `key` is any decimal, matched only within the stream.

    Raises:
        ValueError: a dtype without storage kind, or data that is no whole number of elements.
    """
    kind = _KINDS.get(dtype)
    if kind is None:
        raise ValueError(f"no legacy storage has dtype {dtype}")
    count, rest = divmod(len(data), DTYPE_BYTES[dtype])
    if rest:
        raise ValueError(f"{len(data)} bytes are no whole number of {dtype} elements")
    name = b"X" + struct.pack("<I", len(key)) + key.encode()
    return b"".join(
        (
            STREAM_HEAD,
            b"\x80\x02(X\x07\x00\x00\x00storageq\x00ctorch\n" + kind.encode() + b"\nq\x01",
            name + b"q\x02X\x03\x00\x00\x00cpuq\x03" + pickled_count(count) + b"Ntq\x04Q.",
            b"\x80\x02]q\x00" + name + b"q\x01a.",
            struct.pack("<q", count),
            data,
        )
    )


def _element_count(found: re.Match[bytes], start: int) -> int:
    if found["long"] is not None and found["digits"][0] != len(found["long"]):
        raise _defect("the element count of a tensor stream is not of the known form", start)
    raw = next(found[name] for name in ("u8", "u16", "i32", "long") if found[name] is not None)
    count = int.from_bytes(raw, "little", signed=found["i32"] is not None or found["long"] is not None)
    if count < 0:
        raise _defect("a tensor stream announces a negative number of elements", start, ">= 0", str(count))
    return count


def _element_type(module: bytes, kind: str, start: int) -> tuple[str, int]:
    """The dtype and element size, or "" and 0 (1 for untyped storages, which count bytes)."""
    if module == b"torch" and kind in STORAGE_DTYPES:
        dtype = STORAGE_DTYPES[kind]
        return dtype, DTYPE_BYTES[dtype]
    if module == b"torch" and kind in _OPAQUE_KINDS:
        return "", 0
    if module == b"torch.storage" and kind == "UntypedStorage":
        return "", 1
    name = f"{module.decode()} {kind}"
    raise _defect("pickle names a global ckptctl does not know", start + len(STREAM_HEAD), "torch <Kind>Storage", name)


def pickled_count(count: int) -> bytes:
    """As the pickler writes a whole number >= 0 in protocol 2."""
    if count < 1 << 8:
        return b"K" + struct.pack("<B", count)
    if count < 1 << 16:
        return b"M" + struct.pack("<H", count)
    if count < 1 << 31:
        return b"J" + struct.pack("<i", count)
    raw = count.to_bytes(count.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def _defect(message: str, offset: int, expected: str = "", actual: str = "") -> DefectError:
    return DefectError(Defect(message, f"offset {offset}", expected, actual))
