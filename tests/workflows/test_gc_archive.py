"""`gc --archive`: what is packed before it goes, under which name, and what keeps an item from going."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from ckptctl.domain.journal import JournalLine
from ckptctl.domain.limits import Limits
from ckptctl.domain.retention import GcRequest
from ckptctl.errors import BusyError, UsageError
from ckptctl.workflows.gc import run_gc
from tests.packs import archive_at, packed
from tests.runs import a_run, damage, names, offline_world


@pytest.fixture
def archive(tmp_path):
    """An empty directory for packs."""
    folder = tmp_path / "archive"
    folder.mkdir()
    return folder


def gc(root, folder, **request):
    return run_gc(offline_world(root), str(root), GcRequest(**request), None, archive_at(folder))


def told(result):
    return [(item.path, item.action, item.outcome, item.reasons, item.pack) for item in result.items]


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def item(result, end: str):
    return next(found for found in result.items if found.path.endswith(end))


def test_every_snapshot_is_packed_before_it_goes(tmp_path, archive) -> None:
    """One pack each, named in the reasons and in the answer; a damaged snapshot is packed as it is."""
    root = a_run(tmp_path / "run", step_3=3, bootstrap=1)
    damage(root, "step_3", 1)
    result = gc(root, archive, keep=1)

    assert [
        "bootstrap.snapshot_000001.tar.zst",
        "step_3.snapshot_000001.tar.zst",
        "step_3.snapshot_000002.tar.zst",
    ] == files(archive)
    assert ["snapshot_000003"] == names(root)
    assert str(archive) == result.archive
    assert f"{archive}/step_3.snapshot_000001.tar.zst" == item(result, "step_3/rollout_snapshots/snapshot_000001").pack
    assert f"packed as `{archive}/step_3.snapshot_000001.tar.zst` first" in item(
        result, "snapshot_000001"
    ).reasons or any("bootstrap" in reason for reason in item(result, "snapshot_000001").reasons)
    assert item(result, "snapshot_000003").pack is None


def test_the_journal_tells_of_packs(tmp_path, archive) -> None:
    """Before and after each; every line is of the documented form."""
    root = a_run(tmp_path / "run", step_3=2)
    gc(root, archive, keep=1)
    journal = next((root / ".ckptctl/journal").iterdir()).read_text().splitlines()
    for line in journal:
        JournalLine.model_validate_json(line)
    lines = [json.loads(line) for line in journal]

    told = [(line["event"], line.get("targets")) for line in lines if line.get("step") == "pack"]
    assert [("intent", [f"{archive}/step_3.snapshot_000001.tar.zst"]), ("outcome", None)] == told


def test_a_dry_run_says_what_a_run_does(tmp_path, archive) -> None:
    """Reasons and packs are equal, and nothing is written by asking."""
    root = a_run(tmp_path / "run", step_3=3)
    packed(root, "step_3", "snapshot_000002", archive)
    (archive / "step_3.snapshot_000001.tar.zst").write_bytes(b"something else")
    before = files(archive)
    planned = gc(root, archive, keep=1, dry_run=True)
    assert before == files(archive)
    done = gc(root, archive, keep=1)

    assert [(one[0], one[3], one[4]) for one in told(planned)] == [(one[0], one[3], one[4]) for one in told(done)]
    assert item(done, "2").reasons[-1] == f"already packed as `{archive}/step_3.snapshot_000002.tar.zst`"
    assert item(done, "1").reasons[-1] == f"packed as `{archive}/step_3.snapshot_000001.2.tar.zst` first"
    assert b"something else" == (archive / "step_3.snapshot_000001.tar.zst").read_bytes()


@pytest.mark.parametrize("place", ["snapshot", "anchor", "mode", "more", "less"])
def test_a_pack_with_other_content_is_never_overwritten(tmp_path, archive, place) -> None:
    """Another byte, another mode, a file more or less, another anchor: the next number is taken."""
    root = a_run(tmp_path / "run", step_3=2)
    first = packed(root, "step_3", "snapshot_000001", archive)
    before = first.read_bytes()
    snapshot = root / "step_3/rollout_snapshots/snapshot_000001"
    match place:
        case "snapshot":
            path = snapshot / "config.yaml"
            path.write_bytes(path.read_bytes().replace(b"a", b"b"))
        case "anchor":
            (root / "step_3/training_info.json").write_text("{}")
        case "mode":
            (snapshot / "config.yaml").chmod(0o666)
        case "more":
            (snapshot / "more").write_bytes(b"")
        case "less":
            (snapshot / "config.yaml").unlink()
    gc(root, archive, keep=1)

    assert ["step_3.snapshot_000001.2.tar.zst", "step_3.snapshot_000001.tar.zst"] == files(archive)
    assert before == first.read_bytes()


def test_two_runs_share_an_archive(tmp_path, archive) -> None:
    """The same snapshot of a copied run is one pack; another run's of the same name gets a number."""
    one, copy = a_run(tmp_path / "one", step_3=2), a_run(tmp_path / "copy", step_3=2)
    other = a_run(tmp_path / "other", step_3=2)
    (other / "step_3/rollout_snapshots/snapshot_000001/config.yaml").write_text("seed: 1\n")
    for root in (one, copy, other):
        assert () == gc(root, archive, keep=1).remaining()

    assert ["step_3.snapshot_000001.2.tar.zst", "step_3.snapshot_000001.tar.zst"] == files(archive)


def test_the_same_snapshot_gives_the_same_bytes(tmp_path) -> None:
    """Times, owners and the place of the directory make no difference."""
    packs = []
    for number in range(2):
        root = a_run(tmp_path / f"run{number}", step_3=1)
        for path in sorted(root.rglob("*"), reverse=bool(number)):
            os.utime(path, (number * 1000, number * 5000))
        folder = tmp_path / f"packs{number}"
        folder.mkdir()
        packs.append(packed(root, "step_3", "snapshot_000001", folder).read_bytes())

    assert packs[0] == packs[1]


def test_a_damaged_pack_is_not_believed(tmp_path, archive) -> None:
    """What cannot be read back is no copy: another one is made."""
    root = a_run(tmp_path / "run", step_3=2)
    first = packed(root, "step_3", "snapshot_000001", archive)
    data = bytearray(first.read_bytes())
    data[1000] ^= 1
    first.write_bytes(data)
    gc(root, archive, keep=1)

    assert ["step_3.snapshot_000001.2.tar.zst", "step_3.snapshot_000001.tar.zst"] == files(archive)


def test_what_lies_in_the_trash_is_packed_when_it_is_deleted(tmp_path, archive) -> None:
    """Trashed without an archive before: packed now. Its anchor may be gone; a pack made earlier is enough."""
    root = a_run(tmp_path / "run", step_3=3)
    run_gc(offline_world(root), str(root), GcRequest(keep=2))
    first = gc(root, archive, keep=2, grace_s=0)
    gc(root, archive, keep=1)
    os.rename(root / "step_3/training_info.json", root / "step_3/gone")
    second = gc(root, archive, keep=1, grace_s=0)

    assert ["step_3.snapshot_000001.tar.zst", "step_3.snapshot_000002.tar.zst"] == files(archive)
    assert "deleted" == item(first, "snapshot_000001").outcome
    assert "already packed" in item(second, "snapshot_000002").reasons[-1]
    assert "deleted" == item(second, "snapshot_000002").outcome


def test_leftovers_are_not_packed(tmp_path, archive) -> None:
    """What was never whole has nothing to be kept; that is a reason too."""
    root = a_run(tmp_path / "run", step_3=1)
    leftover = root / "step_3/rollout_snapshots/trash_snapshot_000009"
    leftover.mkdir()
    os.utime(leftover, (1, 1))
    result = gc(root, archive)

    assert ("deleted", None) == (item(result, "9").outcome, item(result, "9").pack)
    assert "not packed: it never was a whole snapshot" in item(result, "9").reasons
    assert [] == files(archive)


def test_a_snapshot_that_cannot_be_packed_stays(tmp_path, archive) -> None:
    """A link in it would not be carried: it is said in a dry run already, and other items go."""
    root = a_run(tmp_path / "run", step_3=3)
    (root / "step_3/rollout_snapshots/snapshot_000001/link").symlink_to("/etc/passwd")
    planned, done = gc(root, archive, keep=1, dry_run=True), gc(root, archive, keep=1)

    assert ["snapshot_000001", "snapshot_000003"] == names(root)
    for result in planned, done:
        found = item(result, "1")
        assert "failed" == found.outcome
        assert "`link` is a symlink, which a pack does not carry" in found.problem
    assert ["step_3.snapshot_000002.tar.zst"] == files(archive)


def test_more_names_than_are_read_back(tmp_path, archive) -> None:
    """A pack that nobody could validate is not made."""
    root = a_run(tmp_path / "run", step_3=2)
    world = replace(offline_world(root), limits=Limits(pack_members=10))
    result = run_gc(world, str(root), GcRequest(keep=1), None, archive_at(archive))

    assert "more than the 10 that are read back from a pack" in item(result, "1").problem
    assert ["snapshot_000001", "snapshot_000002"] == names(root)


def test_a_snapshot_that_is_a_link(tmp_path, archive) -> None:
    """The link goes as it does without an archive; what it points to stays, so nothing is packed."""
    root = a_run(tmp_path / "run", step_3=3)
    folder = root / "step_3/rollout_snapshots"
    os.rename(folder / "snapshot_000001", tmp_path / "elsewhere")
    (folder / "snapshot_000001").symlink_to(tmp_path / "elsewhere")
    result = gc(root, archive, keep=1)

    assert "moved" == item(result, "1").outcome
    assert "not packed: it is a link, and what it points to stays" in item(result, "1").reasons
    assert (tmp_path / "elsewhere/manifest.json").is_file()


def test_a_file_that_changes_while_it_is_packed(tmp_path, archive) -> None:
    """Then the pack is no copy of anything: nothing of it stays, and neither does the snapshot go."""
    root = a_run(tmp_path / "run", step_3=2)
    world = offline_world(root)
    victim = root / "step_3/rollout_snapshots/snapshot_000001/config.yaml"

    class Changing:
        def phase(self, name, detail=""):
            if name == "pack":
                self.is_packing = True

        is_packing = False

        def advance(self, done, total, unit):
            if self.is_packing and unit == "bytes" and done == total:
                victim.write_bytes(victim.read_bytes().replace(b"a", b"b"))

    result = run_gc(replace(world, progress=Changing()), str(root), GcRequest(keep=1), None, archive_at(archive))

    assert "what was read back is not what was packed" in item(result, "1").problem
    assert ["snapshot_000001", "snapshot_000002"] == names(root)
    assert [] == files(archive)


def test_leftovers_of_an_interrupted_packing_are_taken_away(tmp_path, archive) -> None:
    """Those of this checkpoint directory only: another one's may be alive."""
    root, other = a_run(tmp_path / "run", step_3=2), a_run(tmp_path / "other", step_3=2)
    from ckptctl.workflows.gc_archive import Packer

    prefixes = [Packer(offline_world(path), str(path), archive_at(archive))._prefix for path in (root, other)]
    for prefix in prefixes:
        (archive / f"{prefix}step_3.snapshot_000007").write_bytes(b"half")
    gc(root, archive, keep=1)

    assert ["step_3.snapshot_000001.tar.zst", f"{prefixes[1]}step_3.snapshot_000007"] == files(archive)


def test_a_lock_that_was_lost_while_packing(tmp_path, archive) -> None:
    """Packing takes long: who lost the lock meanwhile deletes nothing any more."""
    root = a_run(tmp_path / "run", step_3=2)
    world = offline_world(root)

    class Losing:
        is_lost = False

        def __getattr__(self, name):
            return getattr(world.lock, name)

        def is_owner(self):
            return not self.is_lost and world.lock.is_owner()

    lock = Losing()

    class Noting:
        def phase(self, name, detail=""):
            lock.is_lost |= name == "pack"

        def advance(self, done, total, unit):
            pass

    with pytest.raises(BusyError, match="was taken over"):
        run_gc(replace(world, lock=lock, progress=Noting()), str(root), GcRequest(keep=1), None, archive_at(archive))
    assert ["snapshot_000001", "snapshot_000002"] == names(root)


def test_where_an_archive_may_be(tmp_path) -> None:
    """Not where packs would be taken for a part of a checkpoint; in a directory of its own beside the anchors if need be."""
    root = a_run(tmp_path / "run", step_3=2)
    for inside in (".", "step_3", "step_3/packs", "bootstrap", ".ckptctl/packs", "tmp_step_4"):
        with pytest.raises(UsageError, match="a part of the checkpoint"):
            run_gc(offline_world(root), str(root), GcRequest(), None, replace(archive_at(root / inside), inside=inside))
    with pytest.raises(UsageError, match="there is no such directory"):
        gc(root, root / "packs")
    (root / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="that is no directory"):
        gc(root, root / "file")
    (root / "packs").mkdir()
    run_gc(offline_world(root), str(root), GcRequest(keep=1), None, replace(archive_at(root / "packs"), inside="packs"))

    assert ["step_3.snapshot_000001.tar.zst"] == files(root / "packs")
    with pytest.raises(UsageError, match="stand alone"):
        gc(root, root / "packs", unpin="snapshot_000002")
