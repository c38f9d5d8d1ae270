"""Writing durably: what a crash, a full disk or an odd file system leaves behind."""

from __future__ import annotations

import errno
import os

import pytest

from ckptctl.adapters import durable
from ckptctl.errors import StorageError


def test_write_file_replaces_whole_content(tmp_path) -> None:
    """A second write replaces the first and leaves no temporary file."""
    path = str(tmp_path / "a")
    durable.write_file(path, b"one", mode=0o600)
    durable.write_file(path, b"two", mode=0o600)

    assert b"two" == (tmp_path / "a").read_bytes()
    assert ["a"] == os.listdir(tmp_path)
    assert 0o600 == os.stat(path).st_mode & 0o777


def test_write_file_accepts_the_longest_name(tmp_path) -> None:
    """A file name of 255 bytes can be written although a temporary name is needed."""
    durable.write_file(str(tmp_path / ("n" * 255)), b"x")

    assert ["n" * 255] == os.listdir(tmp_path)


def test_write_file_without_space_leaves_the_old_content(tmp_path, monkeypatch) -> None:
    """A full disk is a StorageError that names the file; the old content stays and no temporary file does."""
    path = str(tmp_path / "a")
    durable.write_file(path, b"old")

    def full(descriptor: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable.os, "write", full)
    with pytest.raises(StorageError, match=r"cannot write `.*/a`: No space left on device"):
        durable.write_file(path, b"new")
    monkeypatch.undo()

    assert b"old" == (tmp_path / "a").read_bytes()
    assert ["a"] == os.listdir(tmp_path)


def test_short_writes_are_completed(tmp_path, monkeypatch) -> None:
    """A write that takes one byte at a time still writes everything."""
    real = os.write
    monkeypatch.setattr(durable.os, "write", lambda descriptor, data: real(descriptor, bytes(data[:1])))
    durable.write_file(str(tmp_path / "a"), b"abcdef")

    assert b"abcdef" == (tmp_path / "a").read_bytes()


def test_directory_sync_is_tolerated_where_it_does_not_exist(tmp_path, monkeypatch) -> None:
    """EINVAL from fsync of a directory is a property of the file system, EIO is a failure."""
    real = os.fsync

    def refuse(code: int):
        def fsync(descriptor: int) -> None:
            if os.path.isdir(f"/proc/self/fd/{descriptor}"):
                raise OSError(code, os.strerror(code))
            real(descriptor)

        return fsync

    monkeypatch.setattr(durable.os, "fsync", refuse(errno.EINVAL))
    durable.write_file(str(tmp_path / "a"), b"x")
    monkeypatch.setattr(durable.os, "fsync", refuse(errno.EIO))

    with pytest.raises(StorageError, match="cannot sync directory"):
        durable.sync_directory(str(tmp_path))


def test_create_file_leaves_an_existing_one_alone(tmp_path) -> None:
    """The second creator learns that it came second."""
    path = str(tmp_path / "lock")

    assert durable.create_file(path, b"first")
    assert not durable.create_file(path, b"second")
    assert b"first" == (tmp_path / "lock").read_bytes()
    assert ["lock"] == os.listdir(tmp_path)


def test_write_stream_replaces_an_earlier_attempt_and_leaves_no_half_of_one(tmp_path) -> None:
    """What a dead process left under the name is begun anew; whatever ends the pieces takes the file away."""
    path = str(tmp_path / "tmp_a")
    durable.write_stream(path, (b"half",))
    durable.write_stream(path, (b"o", b"ne"))
    assert b"one" == (tmp_path / "tmp_a").read_bytes()

    def broken():
        yield b"two"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        durable.write_stream(path, broken())
    assert [] == os.listdir(tmp_path)


def test_create_file_where_there_are_no_hard_links(tmp_path, monkeypatch) -> None:
    """Exclusive all the same, and nothing else is left."""

    def refuse(*_args, **_more):
        raise OSError(errno.EPERM, "no hard links")

    monkeypatch.setattr(os, "link", refuse)

    assert durable.create_file(str(tmp_path / "a"), b"one")
    assert not durable.create_file(str(tmp_path / "a"), b"two")
    assert (b"one", ["a"]) == ((tmp_path / "a").read_bytes(), os.listdir(tmp_path))


def test_rename_refuses_an_existing_target(tmp_path) -> None:
    """Publishing never replaces a directory, not even an empty one."""
    (tmp_path / "tmp_a").mkdir()
    (tmp_path / "a").mkdir()

    with pytest.raises(StorageError, match="exists"):
        durable.rename(str(tmp_path / "tmp_a"), str(tmp_path / "a"))


def test_a_file_never_replaces_one_that_appears_meanwhile(tmp_path, monkeypatch) -> None:
    """Somebody else takes the name between the look and the rename; where there are no hard links the look must do."""
    (tmp_path / "a").write_bytes(b"mine")
    (tmp_path / "b").write_bytes(b"theirs")
    monkeypatch.setattr(os.path, "lexists", lambda _path: False)

    with pytest.raises(StorageError, match="exists"):
        durable.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (b"mine", b"theirs") == ((tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes())

    def refuse(*_args, **_more):
        raise OSError(errno.EPERM, "no hard links")

    monkeypatch.setattr(os, "link", refuse)
    durable.rename(str(tmp_path / "a"), str(tmp_path / "c"))
    assert ["b", "c"] == sorted(os.listdir(tmp_path))


def test_rename_whose_answer_was_lost_counts(tmp_path, monkeypatch) -> None:
    """An NFS client that repeats a rename gets ENOENT although the rename was done: the target tells."""
    (tmp_path / "tmp_a").mkdir()
    real = os.rename

    def twice(source: str, target: str) -> None:
        real(source, target)
        real(source, target)

    monkeypatch.setattr(durable.os, "rename", twice)
    durable.rename(str(tmp_path / "tmp_a"), str(tmp_path / "a"))

    assert ["a"] == os.listdir(tmp_path)


def test_rename_of_nothing_fails(tmp_path) -> None:
    """A source that does not exist is a StorageError."""
    with pytest.raises(StorageError, match="cannot rename"):
        durable.rename(str(tmp_path / "tmp_a"), str(tmp_path / "a"))


def test_remove_tree_removes_links_without_following(tmp_path) -> None:
    """What a link points to survives; removing twice is fine."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "keep").write_bytes(b"x")
    tree = tmp_path / "tmp_tree"
    (tree / "deep" / "deeper").mkdir(parents=True)
    (tree / "deep" / "file").write_bytes(b"x")
    (tree / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(tree / "fifo")

    assert durable.remove_tree(str(tree))
    assert durable.remove_tree(str(tree))
    assert ["outside"] == os.listdir(tmp_path)
    assert ["keep"] == os.listdir(tmp_path / "outside")


def test_remove_tree_leaves_nfs_leftovers(tmp_path, monkeypatch) -> None:
    """A `.nfs` file that is held open elsewhere keeps its folder and is no error."""
    tree = tmp_path / "tmp_tree"
    tree.mkdir()
    (tree / ".nfs0001").write_bytes(b"x")
    (tree / "other").write_bytes(b"x")
    real = os.unlink

    def busy(name: str, *, dir_fd: int | None = None) -> None:
        if name.startswith(".nfs"):
            raise OSError(errno.EBUSY, "Device or resource busy")
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(durable.os, "unlink", busy)

    assert not durable.remove_tree(str(tree))
    assert [".nfs0001"] == os.listdir(tree)


def test_append_cuts_a_torn_line(tmp_path) -> None:
    """A line that a crash tore is gone when the file is opened for appending again."""
    path = tmp_path / "journal"
    path.write_bytes(b'{"a":1}\n{"b"')
    descriptor = durable.open_append(str(path))
    durable.append_line(descriptor, b'{"c":3}', path=str(path), sync=True)
    os.close(descriptor)

    assert b'{"a":1}\n{"c":3}\n' == path.read_bytes()


def test_append_takes_back_what_it_could_not_write(tmp_path, monkeypatch) -> None:
    """A full disk in the middle of a line leaves no half line behind."""
    path = str(tmp_path / "journal")
    descriptor = durable.open_append(path)
    durable.append_line(descriptor, b"one", path=path, sync=False)
    real, calls = os.write, []

    def half(target: int, data: memoryview) -> int:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(target, bytes(data[:2]))

    monkeypatch.setattr(durable.os, "write", half)
    with pytest.raises(StorageError, match="cannot append to"):
        durable.append_line(descriptor, b"two", path=path, sync=True)
    os.close(descriptor)

    assert b"one\n" == (tmp_path / "journal").read_bytes()
    assert 0o600 == os.stat(path).st_mode & 0o777


def test_append_refuses_a_link(tmp_path) -> None:
    """The journal is never a link to somewhere else."""
    (tmp_path / "journal").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(StorageError, match="cannot open"):
        durable.open_append(str(tmp_path / "journal"))


def test_make_directory_creates_parents(tmp_path) -> None:
    """Missing parents are made; a second call changes nothing; a file in the way is a StorageError."""
    durable.make_directory(str(tmp_path / "a" / "b"))
    durable.make_directory(str(tmp_path / "a" / "b"))
    (tmp_path / "file").write_bytes(b"")

    assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(StorageError, match="cannot create directory"):
        durable.make_directory(str(tmp_path / "file" / "x"))


def test_make_directory_syncs_the_name_of_one_that_is_there(tmp_path, monkeypatch) -> None:
    """Its maker may have died before the name was durable; a parent that we may not read is left as it is."""
    (tmp_path / "a").mkdir()
    synced = []
    monkeypatch.setattr(durable, "sync_directory", synced.append)
    durable.make_directory(str(tmp_path / "a"))

    assert [str(tmp_path)] == synced

    def refuse(path: str) -> None:
        raise StorageError(operation="sync directory", path=path, detail="no", cause=PermissionError())

    monkeypatch.setattr(durable, "sync_directory", refuse)
    durable.make_directory(str(tmp_path / "a"))


def test_sync_tree_goes_bottom_up_and_follows_no_link(tmp_path, monkeypatch) -> None:
    """Files before their directory, inner directories before outer ones, links not at all."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("/etc/hostname")
    order: list[str] = []
    monkeypatch.setattr(
        durable.os, "fsync", lambda descriptor: order.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    )
    durable.sync_tree(str(tmp_path))

    assert [f"{tmp_path}/inner/file", f"{tmp_path}/inner", f"{tmp_path}"] == order
