"""What every store keeps to, the real one and the one in memory."""

from __future__ import annotations

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.errors import StorageError
from tests.fakes.memory_store import MemoryStore


@pytest.fixture(params=["local", "memory"])
def store_and_root(request, tmp_path):
    """A store, and the path of an empty directory in it."""
    if request.param == "local":
        return LocalStore(str(tmp_path)), str(tmp_path)
    store = MemoryStore()
    store.make_directory("/root")
    return store, "/root"


def test_what_is_written_is_read(store_and_root) -> None:
    """Whole, in part, and within the limit."""
    store, root = store_and_root
    store.make_directory(f"{root}/a/b")
    store.write_file(f"{root}/a/b/f", b"one")
    store.write_file(f"{root}/a/b/f", b"three")
    with store.open_source(f"{root}/a/b/f") as source:
        assert (5, b"re") == (source.size_bytes, source.read_at(2, 2))

    assert b"three" == store.read_bytes(f"{root}/a/b/f", 5)
    with pytest.raises(StorageError, match="more than 4"):
        store.read_bytes(f"{root}/a/b/f", 4)


def test_a_stream_is_written_whole_or_not_at_all(store_and_root) -> None:
    """Piece by piece, over what an earlier attempt left; an error in the middle leaves nothing."""
    store, root = store_and_root
    store.write_stream(f"{root}/tmp_f", iter([b"older and longer"]))
    store.write_stream(f"{root}/tmp_f", iter([b"a", b"", b"bc"]))
    assert b"abc" == store.read_bytes(f"{root}/tmp_f", 9)

    def broken():
        yield b"x"
        raise ValueError("the source failed")

    with pytest.raises(ValueError, match="the source failed"):
        store.write_stream(f"{root}/tmp_f", broken())
    assert store.kind_of(f"{root}/tmp_f") is None


def test_listing(store_and_root) -> None:
    """Relative, sorted, as deep as asked."""
    store, root = store_and_root
    store.make_directory(f"{root}/a/b")
    store.write_file(f"{root}/a/f", b"x")

    assert [("a", "directory"), ("a/b", "directory"), ("a/f", "file")] == [
        (entry.path, entry.kind) for entry in store.list_tree(root)
    ]
    assert ["a"] == [entry.path for entry in store.list_tree(root, max_depth=1)]
    with pytest.raises(StorageError, match="cannot list"):
        store.list_tree(f"{root}/a/f")


def test_what_is_not_there(store_and_root) -> None:
    """Missing is not an I/O error when reading."""
    store, root = store_and_root

    assert store.kind_of(f"{root}/missing") is None
    with pytest.raises(FileNotFoundError):
        store.read_bytes(f"{root}/missing", 1)
    with pytest.raises(FileNotFoundError):
        store.list_tree(f"{root}/missing")
    with pytest.raises(StorageError, match="cannot rename"):
        store.rename(f"{root}/missing", f"{root}/x")


def test_renaming_needs_a_free_name(store_and_root) -> None:
    """A directory is moved whole; a name that is taken is refused."""
    store, root = store_and_root
    store.make_directory(f"{root}/tmp_a")
    store.write_file(f"{root}/tmp_a/f", b"x")
    store.rename(f"{root}/tmp_a", f"{root}/a")
    store.make_directory(f"{root}/tmp_a")

    assert (b"x", "directory") == (store.read_bytes(f"{root}/a/f", 1), store.kind_of(f"{root}/a"))
    with pytest.raises(StorageError, match="exists"):
        store.rename(f"{root}/tmp_a", f"{root}/a")


def test_removing_is_idempotent_and_only_of_what_is_invisible(store_and_root) -> None:
    """A visible snapshot is renamed away first; forgetting that is a bug."""
    store, root = store_and_root
    store.make_directory(f"{root}/tmp_a/b")
    store.remove_tree(f"{root}/tmp_a")
    store.remove_tree(f"{root}/tmp_a")
    store.make_directory(f"{root}/snapshot_1")

    assert store.kind_of(f"{root}/tmp_a") is None
    with pytest.raises(AssertionError, match="is visible"):
        store.remove_tree(f"{root}/snapshot_1")
