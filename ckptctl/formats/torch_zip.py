"""The container of `.pt` files: a ZIP of stored entries under one folder, as torch writes and loads it.

Decides: that the archive is one (`zip_directory`), has one top folder with `data.pkl` and `version` in it, is little-endian and
of the known version, and that `data.pkl` is undamaged and not too large (snapshot-layout section 12).
Leaves to others: the pickle (`pickle_machine`) and what it means.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

from ckptctl.domain.finding import Defect, DefectError
from ckptctl.domain.limits import Limits
from ckptctl.domain.source import ByteSource, SliceSource
from ckptctl.formats.zip_directory import ZipEntry, check_crc, read_zip_directory

ALIGNMENT_BYTES = 64
_FOLDER = "archive"
_VERSION = "3"
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
_SMALL_ENTRY_BYTES = 32
_LOCAL_HEADER_BYTES = 30


@dataclass(frozen=True, slots=True)
class TorchZip:
    """An opened container. `entries` are keyed by their names below `folder`; `pickle_source` is `data.pkl`."""

    folder: str
    pickle_source: ByteSource
    entries: Mapping[str, ZipEntry]


def read_torch_zip(source: ByteSource, limits: Limits) -> TorchZip:
    """Open the container and check it; tensor entries are placed, not read.

    Raises:
        DefectError: unsupported when the container is sound but of another version or byte order.
    """
    entries = read_zip_directory(source, limits)
    folders = {entry.name.partition("/")[0] for entry in entries}
    if len(folders) != 1 or any("/" not in entry.name for entry in entries):
        raise DefectError(Defect("the archive has not exactly one top folder", actual=", ".join(sorted(folders)[:5])))
    folder = folders.pop()
    below = {entry.name[len(folder) + 1 :]: entry for entry in entries}
    _demand_text(source, below, "version", _VERSION)
    if "byteorder" in below:
        _demand_text(source, below, "byteorder", "little")
    pickle = _demand(below, "data.pkl")
    if pickle.size_bytes > limits.zip_pickle_bytes:
        message = f"`data.pkl` has {pickle.size_bytes} bytes, above the limit of {limits.zip_pickle_bytes}"
        raise DefectError(Defect(message, pickle.name))
    check_crc(source, pickle)
    return TorchZip(folder, SliceSource(source, pickle.data_offset, pickle.size_bytes), below)


def _demand(below: Mapping[str, ZipEntry], name: str) -> ZipEntry:
    entry = below.get(name)
    if entry is None:
        raise DefectError(Defect(f"the archive is no torch zip: it has no `{name}`"))
    return entry


def _demand_text(source: ByteSource, below: Mapping[str, ZipEntry], name: str, wanted: str) -> None:
    entry = _demand(below, name)
    check_crc(source, entry)
    found = (
        source.read_at(entry.data_offset, min(entry.size_bytes, _SMALL_ENTRY_BYTES)).decode(errors="replace").strip()
    )
    if found != wanted:
        raise DefectError(
            Defect(f"ckptctl does not read torch zips of this {name}", entry.name, wanted, found), is_unsupported=True
        )


def write_torch_zip(pickle_bytes: bytes, tensors: Mapping[str, bytes] | None = None) -> bytes:
    """Build a container around a protocol 2 pickle; `tensors` are the storages by key. Same input, same bytes."""
    contents = [("data.pkl", pickle_bytes), ("byteorder", b"little")]
    contents += [(f"data/{key}", data) for key, data in (tensors or {}).items()]
    contents.append(("version", f"{_VERSION}\n".encode()))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in contents:
            entry = zipfile.ZipInfo(f"{_FOLDER}/{name}", _TIMESTAMP)
            entry.create_system, entry.external_attr = 0, 0o600 << 16  # set, or they would follow the machine
            entry.extra = _padding(buffer.tell() + _LOCAL_HEADER_BYTES + len(entry.filename.encode()))
            archive.writestr(entry, data)
    return buffer.getvalue()


def _padding(data_offset: int) -> bytes:
    """The extra field by which torch puts each entry's data on a 64 byte boundary."""
    count = -(data_offset + 4) % ALIGNMENT_BYTES
    return b"FB" + count.to_bytes(2, "little") + b"Z" * count
