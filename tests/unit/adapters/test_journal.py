"""The journal on disk."""

from __future__ import annotations

import os
import stat

import pytest

from ckptctl.adapters import durable
from ckptctl.adapters.clock import SystemClock
from ckptctl.adapters.journal import FileJournal
from ckptctl.errors import JournalDamagedError, StorageError


def test_what_was_appended_is_read_back(tmp_path) -> None:
    """Records come back in order with their time; transactions are numbered and the files are private."""
    journal = FileJournal(str(tmp_path), SystemClock())
    writer = journal.begin("snapshot", {"checkpoint_id": "ck-1"})
    writer.append({"event": "intent", "step": "close"}, sync=True)
    journal.begin("gc", {})
    journal.resume("000001-snapshot").append({"event": "finish", "outcome": "published"}, sync=False)
    records = [record.record for record in journal.read("000001-snapshot")]

    assert ("000001-snapshot", "000002-gc") == journal.transactions()
    assert ["begin", "intent", "finish"] == [record["event"] for record in records]
    assert ("ck-1", "snapshot") == (records[0]["checkpoint_id"], records[0]["kind"])
    assert all(isinstance(record["at"], float) for record in records)
    assert {0o600} == {path.stat().st_mode & 0o777 for path in (tmp_path / ".ckptctl" / "journal").iterdir()}


def test_a_torn_last_line_is_dropped(tmp_path) -> None:
    """What a crash tore never happened; the next line does not stick to it."""
    journal = FileJournal(str(tmp_path), SystemClock())
    journal.begin("snapshot", {})
    path = tmp_path / ".ckptctl" / "journal" / "000001-snapshot.jsonl"
    with open(path, "ab") as file:
        file.write(b'{"event":"int')

    assert ["begin"] == [record.record["event"] for record in journal.read("000001-snapshot")]
    journal.resume("000001-snapshot").append({"event": "finish", "outcome": "published"}, sync=True)
    assert ["begin", "finish"] == [record.record["event"] for record in journal.read("000001-snapshot")]


@pytest.mark.parametrize("facts", [{"number": 2**64}, {"final": ["x"]}])
def test_what_could_not_be_read_back_is_not_written(tmp_path, facts) -> None:
    """Before anything is there, and between two steps: the lines before it stay good."""
    journal = FileJournal(str(tmp_path), SystemClock())
    with pytest.raises(StorageError, match=r"000001-snapshot\.jsonl.*could not be read back"):
        journal.begin("snapshot", facts)
    assert () == journal.transactions()

    writer = journal.begin("snapshot", {})
    with pytest.raises(StorageError, match="could not be read back"):
        writer.append({"event": "outcome", "step": "save", "mutation_version": 2**64}, sync=False)
    assert ["begin"] == [record.record["event"] for record in journal.read("000001-snapshot")]


def test_a_file_that_is_gone_is_not_begun_again(tmp_path) -> None:
    """A journal without its first line would condemn the very snapshot that it tells of."""
    writer = FileJournal(str(tmp_path), SystemClock()).begin("snapshot", {})
    path = tmp_path / ".ckptctl" / "journal" / "000001-snapshot.jsonl"
    path.unlink()

    with pytest.raises(StorageError, match=r"000001-snapshot\.jsonl"):
        writer.append({"event": "intent", "step": "close"}, sync=True)
    assert not path.exists()


def test_going_on_makes_durable_what_is_there(tmp_path, monkeypatch) -> None:
    """Its writer may have died between the file and its name; a disk that cannot sync keeps nobody from being released."""
    journal = FileJournal(str(tmp_path), SystemClock())
    journal.begin("snapshot", {})
    folder, synced = str(tmp_path / ".ckptctl" / "journal"), []
    monkeypatch.setattr(durable, "sync_file", synced.append)
    monkeypatch.setattr(durable, "sync_directory", synced.append)
    journal.resume("000001-snapshot")

    assert [f"{folder}/000001-snapshot.jsonl", str(tmp_path / ".ckptctl"), folder] == synced

    def fail(path: str) -> None:
        raise StorageError(operation="sync", path=path, detail="Input/output error")

    monkeypatch.setattr(durable, "sync_file", fail)
    journal.resume("000001-snapshot").append({"event": "finish", "outcome": "published"}, sync=False)


def test_a_damaged_line_is_not_passed_over(tmp_path) -> None:
    """A whole line that is none of ours may hide a release that is still owed."""
    journal = FileJournal(str(tmp_path), SystemClock())
    journal.begin("snapshot", {})
    with open(tmp_path / ".ckptctl" / "journal" / "000001-snapshot.jsonl", "ab") as file:
        file.write(b"garbage\n")

    with pytest.raises(JournalDamagedError, match="line 2 is no journal record") as refusal:
        journal.read("000001-snapshot")
    assert "--set-aside 000001-snapshot" in refusal.value.hint


@pytest.mark.parametrize("line", [b"garbage\n", b"\0\0\0\n", b"[" * 5000 + b"\n", b'{"event": 1}\n', b"\n"])
def test_damage_in_a_transaction_that_has_ended_hides_nothing(tmp_path, line) -> None:
    """Wherever it lies: `finish` says that nothing is owed any more."""
    journal = FileJournal(str(tmp_path), SystemClock())
    writer = journal.begin("snapshot", {})
    path = tmp_path / ".ckptctl" / "journal" / "000001-snapshot.jsonl"
    writer.append({"event": "finish", "outcome": "published"}, sync=False)
    first, last = path.read_bytes().splitlines(keepends=True)
    for lines, events in (
        ((first, line, last), ["begin", "finish"]),
        ((line, last), ["finish"]),
        ((first, last, line), None),
    ):
        path.write_bytes(b"".join(lines))

        assert (events or ["begin", "finish"]) == [item.record["event"] for item in journal.read("000001-snapshot")]


def test_a_file_that_was_set_aside_is_nobodys_any_more(tmp_path) -> None:
    """It is kept under a name that no transaction has, however often one of that name goes there."""
    journal = FileJournal(str(tmp_path), SystemClock())
    paths = []
    for _ in range(2):
        journal.begin("snapshot", {})
        paths.append(journal.set_aside("000001-snapshot"))

    assert () == journal.transactions()
    assert sorted(paths) == sorted(str(path) for path in (tmp_path / ".ckptctl" / "journal").iterdir())


def test_nothing_there_is_no_transaction(tmp_path) -> None:
    """A checkpoint directory that ckptctl never touched has no transactions, and looking creates nothing."""
    (tmp_path / "journal").mkdir()

    assert () == FileJournal(str(tmp_path), SystemClock()).transactions()
    assert ["journal"] == os.listdir(tmp_path)


def test_other_files_are_no_transactions(tmp_path) -> None:
    """Names of another form are left alone."""
    folder = tmp_path / ".ckptctl" / "journal"
    folder.mkdir(parents=True)
    for name in ("x.jsonl", "000001-snapshot.jsonl.tmp", "1-snapshot.jsonl"):
        (folder / name).write_bytes(b"")

    assert () == FileJournal(str(tmp_path), SystemClock()).transactions()


PLACED = {
    "symlink": lambda path: path.symlink_to("/etc/hostname"),
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
}


@pytest.mark.parametrize("kind", PLACED)
def test_what_is_no_file_may_have_been_a_transaction(tmp_path, kind) -> None:
    """Nobody can tell whether it has ended; its number is taken, and it can be set aside."""
    journal = FileJournal(str(tmp_path), SystemClock())
    journal.begin("snapshot", {})
    PLACED[kind](tmp_path / ".ckptctl" / "journal" / "000005-snapshot.jsonl")
    with pytest.raises(JournalDamagedError, match=f"it is a {kind}, not a regular file"):
        journal.read("000005-snapshot")
    journal.begin("aside", {})
    kept = journal.set_aside("000005-snapshot")

    assert ("000001-snapshot", "000006-aside") == journal.transactions()
    assert os.path.lexists(kept)
