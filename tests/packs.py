"""Packed snapshots for tests: packed as `gc --archive` does, foreign ones as other programs do, and hostile ones."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path

import zstandard

from ckptctl.adapters.local_store import LocalStore
from ckptctl.adapters.pack_store import PackedReader
from ckptctl.domain.retention import GcItem, snapshot_path
from ckptctl.formats.zstd_frames import SEEKABLE_MAGIC, TABLE_MAGIC, compress_frames
from ckptctl.workflows.gc_archive import Archive, Packer
from tests.fakes.small_world import a_world


def archive_at(folder: Path) -> Archive:
    """An archive on disk."""
    return Archive(str(folder), LocalStore(str(folder)), lambda: PackedReader(LocalStore(str(folder))))


def packed(run: Path, anchor: str, name: str, folder: Path) -> Path:
    """One snapshot of a run, packed."""
    packer = Packer(a_world(store=LocalStore(str(run))), str(run), archive_at(folder))
    item = GcItem(path=snapshot_path(anchor, name), kind="snapshot", action="trash", reasons=())
    packing = packer.plan(item)
    assert packing.path is not None, packing
    if not packing.is_there:
        packer.pack(item, packing)
    return Path(packing.path)


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, **facts) -> tuple[tarfile.TarInfo, bytes]:
    """One member of a foreign tar."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    for key, value in facts.items():
        setattr(info, key, value)
    return info, data


def tar_of(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar by Python's own writer."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def tree_tar(root: Path, *, form: int = tarfile.PAX_FORMAT) -> bytes:
    """A whole directory by Python's own writer, with its times and owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        archive.add(root, arcname=".")
    return buffer.getvalue()


def seekable(content: bytes) -> bytes:
    """Any content in the form in which packs are written."""
    return b"".join(compress_frames([content]))


def plain(content: bytes, **options) -> bytes:
    """Any content as `zstd` writes it: one frame, no seek table."""
    return zstandard.ZstdCompressor(**{"level": 3, **options}).compress(content)


def table(*entries: tuple[int, ...], count: int | None = None, flags: int = 0, magic: int = SEEKABLE_MAGIC) -> bytes:
    """A seek table that says whatever it should."""
    body = b"".join(struct.pack(f"<{len(entry)}I", *entry) for entry in entries)
    head = struct.pack("<II", TABLE_MAGIC, len(body) + 9)
    return head + body + struct.pack("<IBI", len(entries) if count is None else count, flags, magic)
