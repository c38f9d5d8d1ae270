"""Which files of a snapshot are digested whole beside those that are read anyway: the byte work of level full.

One list of files with their sizes, decided here and nowhere else, so that a part of it can be left out or left to others. What is
then not covered is for whoever leaves it out to say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ckptctl.domain.checksums import Checksums, FileWork
from ckptctl.domain.evidence import TreeEntry
from ckptctl.domain.ids import CHECKSUMS_FILE, path_problem


def files_to_publish(tree: Iterable[TreeEntry], done: Collection[str]) -> tuple[FileWork, ...]:
    """The files that a checksum file about to be written lacks; `done` are those that were digested when they were read."""
    return tuple(_work(entry) for entry in tree if _is_listed(entry) and entry.path not in done)


def files_to_compare(tree: Iterable[TreeEntry], listed: Checksums, done: Collection[str]) -> tuple[FileWork, ...]:
    """The listed files that can still be what the checksum file says; one of another size needs no reading."""
    return tuple(
        _work(entry)
        for entry in tree
        if _is_listed(entry)
        and entry.path not in done
        and entry.path in listed.files
        and listed.files[entry.path].bytes == entry.size_bytes
    )


def unlistable(tree: Iterable[TreeEntry]) -> tuple[str, str] | None:
    """The first name that no checksum file can hold, and why; what it does not hold cannot be published."""
    for entry in tree:
        if entry.kind == "directory":
            continue
        if entry.kind != "file":
            return entry.path, "it is no regular file"
        problem = path_problem(entry.path)
        if problem is not None:
            return entry.path, f"its name {problem}"
    return None


def _is_listed(entry: TreeEntry) -> bool:
    return entry.kind == "file" and entry.path != CHECKSUMS_FILE


def _work(entry: TreeEntry) -> FileWork:
    return FileWork(entry.path, entry.size_bytes)
