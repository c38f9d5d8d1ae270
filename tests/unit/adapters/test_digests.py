"""Digests of many files: the loop, the child that maps, its death, and files that change or cannot be read."""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

import pytest
from blake3 import blake3

import ckptctl.adapters.digests as module
from ckptctl.adapters.digests import child_command, digest_files
from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.checksums import FileWork

DIES_OF_SIGBUS = "import os, signal, socket, sys; c = socket.socket(fileno=int(sys.argv[-1])); c.recv(64); os.kill(os.getpid(), signal.SIGBUS)"


@pytest.fixture
def mapped(monkeypatch):
    """Everything is large: the child digests it all."""
    monkeypatch.setattr(module, "LARGE_BYTES", 1)
    monkeypatch.setattr(module, "CHILD_PAYS_BYTES", 1)


def write(folder: Path, **contents: bytes) -> list[FileWork]:
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return [FileWork(name, len(data)) for name, data in contents.items()]


def digests(folder: Path, works, told=None, **options):
    def open_file(path: str) -> int:
        return os.open(folder / path, os.O_RDONLY)

    found = digest_files(open_file, str(folder), works, (told if told is not None else []).append, **options)
    return {item.path: item for item in found}


CONTENTS = {
    "empty": b"",
    "one": b"x",
    "buffer": b"b" * (1 << 20),
    "more": bytes(range(256)) * 9000,
}


def is_right(found) -> bool:
    return {name: blake3(data).hexdigest() for name, data in CONTENTS.items()} == {
        name: item.blake3 for name, item in found.items()
    }


def test_the_loop(tmp_path):
    """Small files are read one after the other; every byte is told once."""
    told = []
    found = digests(tmp_path, write(tmp_path, **CONTENTS), told)

    assert is_right(found)
    assert sum(map(len, CONTENTS.values())) == sum(told)


def test_the_child(tmp_path, mapped):
    """The same digests from a map; a file without a byte has nothing to map."""
    told = []
    found = digests(tmp_path, write(tmp_path, **CONTENTS), told)

    assert is_right(found)
    assert sum(map(len, CONTENTS.values())) == sum(told)


def test_a_file_of_several_windows(tmp_path, mapped):
    """What is mapped piece by piece is one content."""
    works = write(tmp_path, big=os.urandom(1 << 20) * 33)
    told = []
    found = digests(tmp_path, works, told)["big"]

    assert blake3((tmp_path / "big").read_bytes()).hexdigest() == found.blake3
    assert [32 << 20, 1 << 20] == told


@pytest.mark.parametrize("is_mapped", [False, True])
def test_another_size_than_listed(tmp_path, is_mapped, monkeypatch):
    """Longer or shorter than the listing said: it changed, whatever its digest is."""
    if is_mapped:
        monkeypatch.setattr(module, "LARGE_BYTES", 1)
        monkeypatch.setattr(module, "CHILD_PAYS_BYTES", 1)
    write(tmp_path, shrunk=b"12345", grown=b"12345", same=b"12345")
    found = digests(tmp_path, [FileWork("shrunk", 9), FileWork("grown", 3), FileWork("same", 5)])

    assert "it had 9 bytes when it was listed and 5 when it was read" == found["shrunk"].changed
    assert "it had 3 bytes when it was listed and 5 when it was read" == found["grown"].changed
    assert (None, None) == (found["shrunk"].blake3, found["grown"].blake3)
    assert blake3(b"12345").hexdigest() == found["same"].blake3


def test_a_file_that_is_written_to(tmp_path):
    """Its time moves while it is read."""
    works = write(tmp_path, a=b"a" * (3 << 20))

    def touch(_):
        os.utime(tmp_path / "a", ns=(1, 1))

    [found] = digest_files(lambda path: os.open(tmp_path / path, os.O_RDONLY), str(tmp_path), works, touch)
    assert "it was written to while it was being read" == found.changed


@pytest.mark.parametrize(
    ("act", "said"), [("exchange", "another file took its place"), ("delete", "it was deleted while")]
)
def test_a_name_that_means_something_else_afterwards(tmp_path, act, said):
    """What was digested is not what lies there now."""
    works = write(tmp_path, a=b"a" * 10)
    write(tmp_path, b=b"b" * 10)

    def advance(_):
        if act == "exchange":
            (tmp_path / "b").rename(tmp_path / "a")
        else:
            (tmp_path / "a").unlink()

    [found] = digest_files(lambda path: os.open(tmp_path / path, os.O_RDONLY), str(tmp_path), works, advance)
    assert said in found.changed
    assert found.blake3 is None


def test_a_file_that_is_cut_while_it_is_mapped(tmp_path, mapped):
    """Whether the child dies of it or notices: the file changed while it was read, and the next one is digested all the same."""
    size = 8 * (32 << 20)
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", size)
    works = [FileWork("sparse", size), *write(tmp_path, after=b"after")]

    def cut(_):
        if (tmp_path / "sparse").stat().st_size == size:
            os.truncate(tmp_path / "sparse", 1 << 20)

    found = {
        item.path: item
        for item in digest_files(lambda path: os.open(tmp_path / path, os.O_RDONLY), str(tmp_path), works, cut)
    }
    assert f"it had {size} bytes when it was listed and {1 << 20} when it was read" == found["sparse"].changed
    assert blake3(b"after").hexdigest() == found["after"].blake3


def test_a_bus_error_is_a_change(tmp_path, mapped):
    """The child dies of SIGBUS although the file is whole again: its bytes were taken away and given back."""
    works = write(tmp_path, a=b"aaaa", b=b"bbbb")
    told = []
    found = digests(tmp_path, works, told, child=(sys.executable, "-c", DIES_OF_SIGBUS))

    assert {"its bytes were taken away while it was being read"} == {item.changed for item in found.values()}
    assert 8 == sum(told)


@pytest.mark.parametrize(
    "command",
    [
        (sys.executable, "-c", "raise SystemExit(1)"),
        (sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
        ("/nowhere/python",),
        ("",),
    ],
    ids=["fails", "is killed", "cannot start", "has no interpreter"],
)
def test_without_a_child_that_works(tmp_path, mapped, command):
    """Then the loop reads everything, and nothing is blamed on the files."""
    works = write(tmp_path, **CONTENTS)
    told = []
    found = digests(tmp_path, works, told, child=command)

    assert is_right(found)
    assert sum(map(len, CONTENTS.values())) == sum(told)


def test_the_child_imports_nothing_of_ours():
    """It runs by path, without site packages; what the command is made of exists."""
    interpreter, *options, program, folder = child_command()
    imports = [
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(Path(program).read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]

    assert (sys.executable, ["-I", "-S"]) == (interpreter, options)
    assert (Path(folder) / "blake3").is_dir()
    assert {"__future__", "_socket", "blake3", "mmap", "os", "sys"} == set(imports)


def test_nothing_stays_open(tmp_path, mapped):
    """A reader that is given up half-way closes what it opened, and ends its child."""
    works = write(tmp_path, **CONTENTS)
    before = len(os.listdir("/proc/self/fd"))
    results = LocalStore().digest_files(str(tmp_path), works, lambda _: None)
    next(results)
    results.close()

    assert before == len(os.listdir("/proc/self/fd"))


def test_only_regular_files_below_the_root_are_opened(tmp_path):
    """A link, a pipe, a folder in place of a file, a link on the way: each is a result that says so."""
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    write(tmp_path / "outside", secret=b"secret")
    (root / "link").symlink_to(tmp_path / "outside" / "secret")
    (root / "way").symlink_to(tmp_path / "outside")
    os.mkfifo(root / "pipe")
    write(root / "inner", good=b"good")
    works = [FileWork(path, 6) for path in ("link", "way/secret", "pipe", "inner", "gone")] + [
        FileWork("inner/good", 4)
    ]
    found = {item.path: item for item in LocalStore().digest_files(str(root), works, lambda _: None)}

    assert "symlink" in found["link"].problem
    assert "way/secret" in found["way/secret"].problem
    assert "fifo" in found["pipe"].problem
    assert "directory" in found["inner"].problem
    assert "deleted" in found["gone"].changed
    assert blake3(b"good").hexdigest() == found["inner/good"].blake3
    assert {"inner/good"} == {path for path, item in found.items() if item.blake3 is not None}


def test_a_giant_of_zeros_is_not_read(tmp_path):
    """It claims more than any disk holds: whoever listed it wants us to read for years."""
    size = 2 << 40
    (tmp_path / "giant").write_bytes(b"x")
    os.truncate(tmp_path / "giant", size)
    [found] = digests(tmp_path, [FileWork("giant", size)]).values()

    assert re.search(rf"it says that it has {size} bytes, of which [0-9]+ are stored", found.problem)


def test_a_file_whose_bytes_cannot_be_read(tmp_path):
    """A disk that fails is a problem, not a change."""
    works = write(tmp_path, a=b"abc")
    [found] = digest_files(lambda path: os.open(tmp_path / path, os.O_WRONLY), str(tmp_path), works, lambda _: None)

    assert ("Bad file descriptor", "", None) == (found.problem, found.changed, found.blake3)
