"""What the checksum file adds to the evidence of a snapshot: its content, and the digests that can be compared with it.

Files that were read whole were digested from the very bytes that are judged. The others are digested here, in full, where the
level asks for every byte or a checksum file is about to be written; which ones is `planning.checksum_pass`'s decision. A file
whose digest was compared is covered by it, whatever else of it nothing looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ckptctl.domain.checksums import ChecksumsFile, FileDigest, FileWork
from ckptctl.domain.evidence import Evidence, Part
from ckptctl.domain.ids import CHECKSUMS_FILE
from ckptctl.formats.checksums_file import decode_checksums
from ckptctl.planning.checksum_pass import files_to_compare, files_to_publish
from ckptctl.workflows.read_parts import PartReader


def with_checksums(evidence: Evidence, parts: PartReader, *, is_asked: bool, writes: bool) -> Evidence:
    """The evidence with checksums and digests. `writes`: every file is digested, for a checksum file that is to be written."""
    if not is_asked:
        return replace(evidence, checksums=parts.pass_over(CHECKSUMS_FILE), digests=_digests(parts))
    limits = parts.limits
    part = parts.read_document(CHECKSUMS_FILE, lambda data: decode_checksums(data, limits), limits.checksums_bytes)
    work = _work(evidence, parts, part.value, writes=writes)
    for found in parts.reader.digest_files(parts.root, _mine(parts, work), lambda _: None):
        parts.digests[found.path] = found
        if found.problem:
            parts.reasons[found.path] = found.problem
    digests = _digests(parts)
    if part.value is not None:
        _account(parts, part, digests)
    return replace(evidence, checksums=part, digests=digests)


def _work(evidence: Evidence, parts: PartReader, listed: ChecksumsFile | None, *, writes: bool) -> tuple[FileWork, ...]:
    done = frozenset(path for path, found in parts.digests.items() if found.blake3 is not None)
    if writes:
        return files_to_publish(evidence.tree, done)
    return files_to_compare(evidence.tree, listed, done) if listed is not None and evidence.level == "full" else ()


def _mine(parts: PartReader, work: tuple[FileWork, ...]) -> Iterator[FileWork]:
    """The files of this part of the byte work; the others are left to other parts."""
    share = parts.share
    mine = share.of_files((item.path, item.size_bytes) for item in work) if share is not None else None
    for item in work:
        if mine is None or item.path in mine:
            yield item
        else:
            parts.left[item.path] = item.size_bytes


def _digests(parts: PartReader) -> dict[str, FileDigest]:
    """What came out of every file that was read: a digest, a change, a problem."""
    found = {path: _as_listed(parts, digest) for path, digest in parts.digests.items()}
    return {path: item for path, item in found.items() if item.blake3 is not None or item.changed or item.problem}


def _as_listed(parts: PartReader, digest: FileDigest) -> FileDigest:
    # Where the directory could not be listed, its files may be readable all the same.
    listed = parts.entries.get(digest.path)
    if listed is None or digest.size_bytes == listed.size_bytes or digest.changed or digest.problem:
        return digest
    size = listed.size_bytes
    change = f"it had {size} bytes when it was listed and {digest.size_bytes} when it was read"
    return FileDigest(digest.path, size, changed=change)


def _account(parts: PartReader, part: Part[ChecksumsFile], digests: Mapping[str, FileDigest]) -> None:
    """What is compared with the checksum file is covered whole."""
    assert part.value is not None, "only a file that could be read covers others"
    for path, found in digests.items():
        if path in part.value.files and found.blake3 is not None:
            parts.cover(path)
