"""`ckptctl-checksums.json`: what is written is what is read, and nothing else is read."""

import json
from dataclasses import replace

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

import ckptctl.formats.checksums_file as module
from ckptctl.domain.canonical import pretty2_nl
from ckptctl.domain.checksums import Checksums, FileChecksum
from ckptctl.domain.finding import DefectError
from ckptctl.domain.ids import path_problem
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.formats.checksums_file import decode_checksums, encode_checksums

DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
PATHS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=40).filter(
    lambda text: path_problem(text) is None
)
FILES = st.builds(FileChecksum, blake3=DIGESTS, bytes=st.integers(0, 2**62))
STAMPS = st.datetimes().map(lambda moment: f"{moment.year:04d}-{moment:%m-%dT%H:%M:%SZ}")
CHECKSUMS = st.builds(
    Checksums,
    schema_version=st.just(1),
    tool_version=st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
    checkpoint_id=st.none() | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}", fullmatch=True),
    created_at=STAMPS,
    files=st.dictionaries(PATHS, FILES, max_size=6),
)


@given(CHECKSUMS)
def test_what_is_written_is_read(checksums):
    """Any checksums come back whole, from the byte form that every other document of the format has."""
    data = encode_checksums(checksums)
    found = decode_checksums(data, DEFAULT_LIMITS)

    assert checksums == Checksums(**found.model_dump(exclude={"blake3"}))
    assert pretty2_nl(found.model_dump(mode="json")) == data
    lines = data.split(b"\n")
    assert blake3(b"\n".join([lines[0], *lines[2:]])).hexdigest() == found.blake3


@given(CHECKSUMS, st.data())
def test_nothing_else_is_read(checksums, data):
    """Any other byte anywhere, and any cut, is refused."""
    written = encode_checksums(checksums)
    place = data.draw(st.integers(0, len(written) - 1))
    other = data.draw(st.integers(1, 255))
    for changed in (written[:place] + bytes((written[place] ^ other,)) + written[place + 1 :], written[:place]):
        with pytest.raises(DefectError):
            decode_checksums(changed, DEFAULT_LIMITS)


A_FILE = encode_checksums(
    Checksums(
        schema_version=1,
        tool_version="0.1.0",
        checkpoint_id="ck-1",
        created_at="2026-11-30T06:57:12Z",
        files={"b": FileChecksum(blake3="ab" * 32, bytes=3), "a/ä": FileChecksum(blake3="cd" * 32, bytes=0)},
    )
)


def rewritten(**changes) -> bytes:
    """The file with other fields, in its byte form and with its right digest."""
    raw = {**json.loads(A_FILE), **changes}
    content = pretty2_nl({key: value for key, value in raw.items() if key != "blake3"})
    return pretty2_nl({**raw, "blake3": blake3(content).hexdigest()})


@pytest.mark.parametrize(
    ("data", "message", "location"),
    [
        (b"", "is not JSON", "line 1 column 1"),
        (b"[]\n", "top level must be an object", "line 1 column 1"),
        (A_FILE.replace(b"0.1.0", b"0.1.1"), "does not have the digest that it says of itself", "blake3"),
        (A_FILE.replace(b'"bytes": 3', b'"bytes": 4'), "does not have the digest that it says of itself", "blake3"),
        (A_FILE + b"\n", "is not written in its one byte form", f"line {A_FILE.count(10) + 1}"),
        (
            A_FILE.replace(b'  "tool', b'   "tool'),
            "is not written in its one byte form",
            f"line {A_FILE.count(10) - 1}",
        ),
        (A_FILE.replace(b"\\u00e4", "ä".encode()), "is not written in its one byte form", "line 6"),
        (A_FILE.replace(b'"created_at"', b'"checkpoint_id": null, "created_at"'), "occurs twice", "line 4 column 3"),
        (rewritten(schema_version=2), "`schema_version` must be 1", "schema_version"),
        (rewritten(extra=1), "`extra` is not a field of this format", "extra"),
        (rewritten(created_at="yesterday"), "`created_at` must be", "created_at"),
        (rewritten(checkpoint_id="no id"), "`checkpoint_id` must be 1 to 128 characters", "checkpoint_id"),
        (rewritten(files={"../out": {"blake3": "ab" * 32, "bytes": 3}}), "must not contain `..`", "files.../out"),
        (rewritten(files={"x": {"blake3": "AB" * 32, "bytes": 3}}), "64 lower-case hex digits", "files.x.blake3"),
        (rewritten(files={"x": {"blake3": "ab" * 32, "bytes": True}}), "must be an integer", "files.x.bytes"),
    ],
)
def test_what_is_wrong_is_said(data, message, location):
    """Each refusal names its place."""
    with pytest.raises(DefectError) as caught:
        decode_checksums(data, DEFAULT_LIMITS)

    assert message in str(caught.value)
    assert location == caught.value.defects[0].location


def test_a_file_of_a_great_many_files(monkeypatch):
    """The limits of other documents do not bound it, its own do."""
    files = {f"blobs/{number:032x}.bin": FileChecksum(blake3="ab" * 32, bytes=number) for number in range(200)}
    data = encode_checksums(decode_checksums(A_FILE, DEFAULT_LIMITS).model_copy(update={"files": files}))
    narrow = replace(DEFAULT_LIMITS, json_values=10, json_document_bytes=10)

    assert 200 == len(decode_checksums(data, narrow).files)
    monkeypatch.setattr(module, "_AT_ONCE", 7)
    assert data == encode_checksums(decode_checksums(data, narrow))
    for limits in (replace(narrow, checksum_values=500), replace(narrow, checksums_bytes=len(data) - 1)):
        with pytest.raises(DefectError, match="exceeds the limit|more than 500 values"):
            decode_checksums(data, limits)
