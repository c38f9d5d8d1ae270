"""Reading a checkpoint directory that may be hostile."""

from __future__ import annotations

import os

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.limits import Limits
from ckptctl.errors import StorageError


def test_list_tree_tells_kinds_and_follows_nothing(tmp_path) -> None:
    """Links, FIFOs and directories are listed as what they are; what a link points to is not."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_bytes(b"abc")
    (tmp_path / "l").symlink_to(tmp_path / "d")
    os.mkfifo(tmp_path / "p")
    found = {entry.path: (entry.kind, entry.size_bytes) for entry in LocalStore().list_tree(str(tmp_path))}

    assert {"d": ("directory", 0), "d/f": ("file", 3), "l": ("symlink", 0), "p": ("fifo", 0)} == found
    assert ["d", "l", "p"] == [entry.path for entry in LocalStore().list_tree(str(tmp_path), max_depth=1)]


def test_list_tree_keeps_to_its_limits(tmp_path) -> None:
    """Too many names and too deep a nesting are storage errors, not endless work."""
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)

    with pytest.raises(StorageError, match="more than 2 names"):
        LocalStore(limits=Limits(tree_entries=2)).list_tree(str(tmp_path))
    with pytest.raises(StorageError, match="nested deeper than 2"):
        LocalStore(limits=Limits(tree_depth=2)).list_tree(str(tmp_path))


def test_list_tree_of_nothing_or_of_a_link(tmp_path) -> None:
    """A missing root is not found; a link as root is refused."""
    (tmp_path / "link").symlink_to(tmp_path)

    with pytest.raises(FileNotFoundError):
        LocalStore().list_tree(str(tmp_path / "missing"))
    with pytest.raises(StorageError, match="cannot list"):
        LocalStore().list_tree(str(tmp_path / "link"))


def test_only_regular_files_are_opened(tmp_path) -> None:
    """A FIFO does not hang the reader, a link is not followed, a directory is no file."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/hostname")

    for name, kind in (("fifo", "fifo"), ("link", "symlink"), ("", "directory")):
        path = str(tmp_path / name) if name else str(tmp_path)
        with pytest.raises(StorageError, match=f"it is a {kind}"):
            LocalStore().read_bytes(path, 10)


def test_no_link_on_the_way_below_a_root(tmp_path) -> None:
    """A folder of a snapshot that is a link is not entered; above the root a link is fine."""
    real = tmp_path / "real"
    (real / "snapshot").mkdir(parents=True)
    (real / "snapshot" / "file").write_bytes(b"x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"secret")
    (real / "snapshot" / "data_plane").symlink_to(tmp_path / "outside")
    (tmp_path / "alias").symlink_to(real)
    root = str(tmp_path / "alias" / "snapshot")
    store = LocalStore(root)

    assert b"x" == store.read_bytes(f"{root}/file", 10)
    with pytest.raises(StorageError, match="cannot open"):
        store.read_bytes(f"{root}/data_plane/file", 10)


def test_read_bytes_is_bounded(tmp_path) -> None:
    """A file above the limit is refused, one at the limit is read, a missing one is not found."""
    (tmp_path / "f").write_bytes(b"abc")

    assert b"abc" == LocalStore().read_bytes(str(tmp_path / "f"), 3)
    with pytest.raises(StorageError, match="3 bytes, more than 2"):
        LocalStore().read_bytes(str(tmp_path / "f"), 2)
    with pytest.raises(FileNotFoundError):
        LocalStore().read_bytes(str(tmp_path / "missing"), 2)


def test_open_source_reads_anywhere(tmp_path) -> None:
    """Positioned reads give what is there and stop at the end."""
    (tmp_path / "f").write_bytes(b"abcdef")
    with LocalStore().open_source(str(tmp_path / "f")) as source:
        assert (6, b"cd", b"ef", b"") == (
            source.size_bytes,
            source.read_at(2, 2),
            source.read_at(4, 9),
            source.read_at(6, 1),
        )


def test_kind_of(tmp_path) -> None:
    """A link is a link, nothing is None."""
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").write_bytes(b"")
    store = LocalStore()

    assert ("symlink", "directory", None, None) == (
        store.kind_of(str(tmp_path / "link")),
        store.kind_of(str(tmp_path)),
        store.kind_of(str(tmp_path / "missing")),
        store.kind_of(str(tmp_path / "file" / "below")),
    )


def test_visible_trees_are_not_deleted(tmp_path) -> None:
    """Deleting a published snapshot without renaming it first is a bug of the caller."""
    (tmp_path / "snapshot_000001").mkdir()

    with pytest.raises(AssertionError, match="is visible"):
        LocalStore().remove_tree(str(tmp_path / "snapshot_000001"))
    (tmp_path / "tmp_snapshot_000001").mkdir()
    LocalStore().remove_tree(str(tmp_path / "tmp_snapshot_000001"))

    assert ["snapshot_000001"] == os.listdir(tmp_path)


def test_all_paths_together_are_bounded(tmp_path):
    """Names of 255 bytes, 32 levels deep, are soon more than the memory."""
    for number in range(4):
        (tmp_path / f"{number}{'n' * 99}").touch()

    assert 4 == len(LocalStore(limits=Limits(tree_path_bytes=400)).list_tree(str(tmp_path)))
    with pytest.raises(StorageError, match="names of more than 399 characters together: exceeds the limit"):
        LocalStore(limits=Limits(tree_path_bytes=399)).list_tree(str(tmp_path))


def test_the_root_of_all_is_a_directory_too() -> None:
    """`/` as the directory under which no link is followed."""
    assert "proc" in {entry.path for entry in LocalStore("/").list_tree("/", max_depth=1)}


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", "\0"])
def test_what_no_path_can_be(name) -> None:
    """A damaged file may name it: an error of ours wherever it is given, not one of Python's."""
    store = LocalStore("/tmp")
    for ask in (store.kind_of, store.list_tree, lambda path: store.read_bytes(path, 1)):
        with pytest.raises(StorageError, match="a character that no path can have"):
            ask(f"/tmp/{name}")
        with pytest.raises(StorageError, match="a character that no path can have"):
            ask(f"{name}/x")
