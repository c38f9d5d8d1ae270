"""Files that shrink, grow, vanish or fail while they are read: each file of a snapshot, at each moment, without a thread or a sleep."""

from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.errors import StorageError
from ckptctl.workflows.validate import ValidateRequest, validate
from tests.builders import a_run_files, a_world, write_tree
from tests.hostile.cases import SNAPSHOT, sound_files

NAMES = sorted(sound_files())


@dataclass
class Source:
    """An open file to which something happens at the read of number `moment` (from 0)."""

    source: object
    happens: str
    moment: int
    path: str
    reads: int = 0

    @property
    def size_bytes(self):
        return self.source.size_bytes

    def read_at(self, offset, count):
        now = self.reads >= self.moment
        self.reads += 1
        if now and self.happens == "fails":
            raise StorageError(operation="read", path=self.path, detail="Input/output error")
        data = self.source.read_at(offset, count)
        if now and self.happens == "shrinks":
            return data[: max(0, self.size_bytes // 2 - offset)]
        if now and self.happens == "is emptied":
            return b""
        return bytes(len(data)) if now and self.happens == "is zeroed" else data


class ChangingStore(LocalStore):
    """The real store, in which one file changes under its reader's hands."""

    def __init__(self, path, happens, moment):
        super().__init__()
        self.path, self.happens, self.moment, self.opened = path, happens, moment, 0

    @contextmanager
    def open_source(self, path):
        with super().open_source(path) as source:
            if path != self.path:
                yield source
                return
            self.opened += 1
            if self.happens == "vanishes" and self.opened > self.moment:
                raise FileNotFoundError(path)
            yield Source(source, self.happens, self.moment, path)

    def read_bytes(self, path, max_bytes):
        with self.open_source(path) as source:
            return source.read_at(0, max_bytes + 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A sound checkpoint directory; nothing in it is really changed."""
    return write_tree(tmp_path_factory.mktemp("changing"), a_run_files(a_world()))


@pytest.fixture
def without_memory(monkeypatch):
    """As if every file were too large to be held."""
    monkeypatch.setattr("ckptctl.workflows.read_parts.IN_MEMORY_BYTES", 16)


def judged(run, name, happens, moment, level="full"):
    path = f"{run}/{SNAPSHOT}/{name}"
    store = ChangingStore(path, happens, moment)
    return store, validate(store, ValidateRequest(paths=(f"{run}/{SNAPSHOT}",), level=level)).targets[0]


def names_it(target, name):
    """Whether a finding, a gap or the coverage names the file."""
    texts = [finding.artifact + finding.message for finding in target.findings]
    texts += [outcome.reason for outcome in target.outcomes]
    return any(name in text or name.rpartition("/")[2] in text for text in texts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("happens", ["shrinks", "is emptied", "vanishes", "fails"])
def test_what_happens_to_a_file_is_told(run, name, happens):
    """At its first read: there is a verdict, it is not `valid`, and the file is named."""
    _, target = judged(run, name, happens, 0)

    if not sound_files()[name]:
        assert target.verdict in {"valid", "invalid", "incomplete"}
        return
    assert names_it(target, name), [finding.message for finding in target.findings]
    assert target.verdict in {"invalid", "incomplete"} or name == "config.yaml"
    assert happens != "fails" or target.verdict == "incomplete"


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith((".pt", ".pkl", ".tar"))])
@pytest.mark.parametrize("happens", ["shrinks", "is emptied", "is zeroed", "fails"])
@pytest.mark.parametrize("moment", [1, 4])
def test_in_the_middle_of_a_container(run, name, happens, moment, without_memory):
    """Later reads of files that are read by position: a verdict in any case, and never a crash."""
    store, target = judged(run, name, happens, moment)

    assert store.opened
    assert target.verdict in {"valid", "invalid", "incomplete"}
    assert target.verdict == "valid" or target.findings


def test_a_file_that_grows_is_what_it_was(run, tmp_path):
    """Bytes that are appended behind the reader's back are not read: the size is that of the opening."""
    path = tmp_path / "file"
    path.write_bytes(b"before")
    store = LocalStore()
    with store.open_source(str(path)) as source:
        with path.open("ab") as file:
            file.write(b" and after")

        assert 6 == source.size_bytes
        assert b"before" == source.read_at(0, source.size_bytes)


def test_a_name_that_becomes_a_link_between_looking_and_opening_is_not_followed(tmp_path, monkeypatch):
    """The descriptor decides, not the look at the name."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    inside = tmp_path / "inside"
    inside.write_bytes(b"plain")
    store = LocalStore()
    import os

    real = os.lstat

    def exchanged(path, *args, **kwargs):
        facts = real(path, *args, **kwargs)
        if path == "inside":
            inside.unlink()
            inside.symlink_to(outside)
        return facts

    monkeypatch.setattr("os.lstat", exchanged)
    with pytest.raises(StorageError, match="inside"), store.open_source(str(inside)):
        pass
