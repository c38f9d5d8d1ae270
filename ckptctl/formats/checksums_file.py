"""`ckptctl-checksums.json`: bytes to checksums and back. There is one way to write given checksums; nothing else is read.

The form is pretty2-nl: keys sorted, indent 2, one final newline. The file's own digest is its second line, and is taken over the
file without that line. So a changed blank, another order or a repeated key is refused like a changed digit. What the checksums
say of other files is compared by `rules.checksums`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from json.encoder import encode_basestring_ascii

from blake3 import blake3

from ckptctl.domain.canonical import pretty2_nl
from ckptctl.domain.checksums import Checksums, ChecksumsFile, FileChecksum
from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.formats.canonical_json import decode_value, load_object

_FIRST_LINE = b"{\n"
_AT_ONCE = 1000
"""Files that are written, or compared, in one piece: there may be hundreds of thousands, and their text only once in memory."""


def encode_checksums(checksums: Checksums) -> bytes:
    """The file, with its own digest."""
    pieces = tuple(_content(checksums))
    hasher = blake3()
    for piece in pieces:
        hasher.update(piece)
    return b"".join((_FIRST_LINE, _own_line(hasher.hexdigest()), *pieces[1:]))


def decode_checksums(data: bytes, limits: Limits) -> ChecksumsFile:
    """The checksums of a file that is whole.

    Raises:
        DefectError: it is no such file, is not in its one byte form, or does not have its own digest.
    """
    wide = replace(limits, json_values=limits.checksum_values)
    found = decode_value(load_object(data, wide, max_bytes=limits.checksums_bytes), ChecksumsFile)
    hasher, offset = blake3(), 0
    is_written_so = True
    for piece in _content(found):
        hasher.update(piece)
        written = piece + _own_line(found.blake3) if offset == 0 else piece
        is_written_so = is_written_so and data[offset : offset + len(written)] == written
        offset += len(written)
    digest = hasher.hexdigest()
    if found.blake3 != digest:
        message = "does not have the digest that it says of itself: the content or the stated digest was changed"
        expected, actual = "equal digests", f"stated {found.blake3}, of the content {digest}"
        raise DefectError(Defect(message, "blake3", expected, actual))
    if not is_written_so or offset != len(data):
        line = _first_difference(encode_checksums(found), data)
        form = "keys sorted, indent 2, one final newline"
        raise DefectError(Defect("is not written in its one byte form", f"line {line}", form))
    return found


def _own_line(digest: str) -> bytes:
    return b'  "blake3": "%b",\n' % digest.encode()


def _content(checksums: Checksums) -> Iterator[bytes]:
    """pretty2-nl of everything but the own digest, the first line first."""
    head = checksums.model_dump(mode="json", include={"checkpoint_id", "created_at", "schema_version", "tool_version"})
    before, mark, after = pretty2_nl(head).partition(b'  "schema_version": ')
    yield _FIRST_LINE
    yield before[len(_FIRST_LINE) :]
    if not checksums.files:
        yield b'  "files": {},\n'
    for start, some in enumerate(_batches(checksums.files)):
        lines = ",\n".join(
            f'    {encode_basestring_ascii(path)}: {{\n      "blake3": "{found.blake3}",\n      "bytes": {found.bytes}\n    }}'
            for path, found in some
        )
        yield (",\n" if start else '  "files": {\n').encode() + lines.encode()
    if checksums.files:
        yield b"\n  },\n"
    yield mark + after


def _batches(files: Mapping[str, FileChecksum]) -> Iterator[list[tuple[str, FileChecksum]]]:
    """The files in the order of their paths, some at a time."""
    ordered = iter(sorted(files.items()))
    while some := list(islice(ordered, _AT_ONCE)):
        yield some


def _first_difference(one: bytes, other: bytes) -> int:
    """The number of the first line that differs."""
    pairs = zip(one.split(b"\n"), other.split(b"\n"), strict=False)
    return next((number for number, (left, right) in enumerate(pairs, 1) if left != right), one.count(b"\n") + 1)
