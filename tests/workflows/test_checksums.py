"""The checksum file from publication to validation: written with the digests of what was judged, compared afterwards, missed when gone."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from blake3 import blake3

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.share import Share
from ckptctl.errors import InvalidSnapshotError, StorageError
from ckptctl.formats.checksums_file import decode_checksums
from ckptctl.workflows.validate import ValidateRequest, load_evidence, validate
from tests import schemas
from tests.builders import a_run_files, a_world, write_tree
from tests.published import a_published_run, publish_in

CHECKSUMS = "ckptctl-checksums.json"
SESSION = "resources/tools/g7_g0.a1.json"
FOLDER = "step_3/rollout_snapshots"


def judged(path: Path, level="full", store=None, **request):
    request = ValidateRequest(paths=(str(path),), level=level, **request)
    return validate(store or LocalStore(), request).targets[0]


def failed(target) -> dict[str, str]:
    """Rule -> file, of all errors."""
    return {finding.rule: finding.artifact for finding in target.findings if finding.severity == "error"}


def outcome(target, rule: str) -> tuple[str, str]:
    return next((item.outcome, item.reason) for item in target.outcomes if item.rule == rule)


def unit(snapshot: Path, position=0) -> Path:
    return next(snapshot.glob(f"data_plane/simple_storage/su_{position}_*.pkl"))


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def flip_a_token(snapshot: Path) -> Path:
    """Change a byte of a finished sample, which no digest inside the snapshot covers; the file that it lies in."""
    for name, part in load_evidence(LocalStore(), str(snapshot)).units.items():
        for value in part.value.rows.get("input_ids", {}).values():
            path = snapshot / "data_plane" / "simple_storage" / name
            flip(path, value.blob_offset + 8 * value.element_offset)
            return path
    raise AssertionError("the world has samples")


@pytest.fixture
def snapshot(tmp_path) -> Path:
    return a_published_run(tmp_path / "run")


def journal(snapshot: Path) -> list[dict]:
    [path] = (snapshot.parents[2] / ".ckptctl" / "journal").iterdir()
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- written ---


def test_what_is_written_at_publication(snapshot):
    """Every file but itself, with size and BLAKE3; the checkpoint id of the manifest; the schema holds; the journal keeps its digest."""
    data = (snapshot / CHECKSUMS).read_bytes()
    found = decode_checksums(data, DEFAULT_LIMITS)
    files = {str(path.relative_to(snapshot)): path for path in snapshot.rglob("*") if path.is_file()}

    assert files.keys() - {CHECKSUMS} == found.files.keys()
    for path, item in found.files.items():
        assert (item.bytes, item.blake3) == (files[path].stat().st_size, blake3(files[path].read_bytes()).hexdigest())
    assert a_world().checkpoint_id == found.checkpoint_id
    assert [] == schemas.problems(data.decode(), "checksums.v1.json")
    outcomes = {record["step"]: record for record in journal(snapshot) if record["event"] == "outcome"}
    digest = blake3(data).hexdigest()
    assert digest == outcomes["write-checksums"]["checksums_blake3"] == outcomes["publish"]["checksums_blake3"]
    assert found.checkpoint_id == outcomes["write-checksums"]["checkpoint_id"]
    assert len(found.files) == outcomes["write-checksums"]["files"]


def test_each_file_is_read_once_on_the_way(tmp_path):
    """Control-plane files are digested from the bytes that are judged; storage units are scanned and digested whole."""
    opened = []

    class Watched(LocalStore):
        def open_source(self, path):
            opened.append(path.rpartition("/tmp_snapshot_000002/")[2])
            return super().open_source(path)

        def digest_files(self, root, wanted, advance):
            wanted = tuple(wanted)
            opened.extend(f"digest {item.path}" for item in wanted)
            return super().digest_files(root, wanted, advance)

    root = tmp_path / "run"
    snapshot = a_published_run(root, store=Watched(str(root)))
    inside = [path for path in opened if not path.startswith("/")]
    units = sorted(path.relative_to(snapshot).as_posix() for path in snapshot.glob("data_plane/simple_storage/su_*"))

    assert len(inside) == len(set(inside))
    assert [f"digest {path}" for path in units] == [path for path in inside if path.startswith("digest ")]


def test_a_snapshot_without_gym_state_has_no_checkpoint_id(tmp_path):
    """Then the file says null, and it is valid all the same."""
    from tests.builders import a_bootstrap_world

    snapshot = a_published_run(tmp_path, a_bootstrap_world())

    assert decode_checksums((snapshot / CHECKSUMS).read_bytes(), DEFAULT_LIMITS).checkpoint_id is None
    assert "valid" == judged(snapshot).verdict


def staged(root: Path) -> Path:
    write_tree(root, a_run_files())
    (root / FOLDER / "snapshot_000002").rename(root / FOLDER / "tmp_snapshot_000002")
    return root / FOLDER / "tmp_snapshot_000002"


def publish(root: Path, **changes):
    return publish_in(root, f"{FOLDER}/tmp_snapshot_000002", f"{FOLDER}/snapshot_000002", **changes)


def test_what_an_interrupted_run_left_is_verified_and_written_anew(tmp_path):
    """A checksum file of the attempt before, and a torn write beside it: the first is compared, the second goes."""
    path = staged(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "other")
    earlier = (a_published_run(tmp_path / "third") / CHECKSUMS).read_bytes()
    (path / CHECKSUMS).write_bytes(earlier.replace(b"T0", b"T0"))
    (path / ".ckptctl-0123456789abcdef.tmp").write_bytes(b"torn")
    publish(tmp_path)
    snapshot = tmp_path / FOLDER / "snapshot_000002"

    assert "valid" == judged(snapshot).verdict
    assert not list(snapshot.glob(".ckptctl-*"))


def test_a_staged_checksum_file_that_does_not_agree_stops_publication(tmp_path):
    """Whoever wrote it, its files are not these."""
    path = staged(tmp_path)
    (path / CHECKSUMS).write_bytes((a_published_run(tmp_path / "other") / CHECKSUMS).read_bytes())
    session = path / SESSION
    flip(session)
    with pytest.raises(InvalidSnapshotError, match="SUM006|PAR026"):
        publish(tmp_path)

    assert not (tmp_path / FOLDER / "snapshot_000002").exists()


def test_what_no_checksum_file_can_hold_is_not_published(tmp_path):
    """A name with an escape in it, a pipe: a snapshot is published whole or not at all."""
    path = staged(tmp_path)
    (path / "odd\x1bname").write_bytes(b"x")
    with pytest.raises(
        InvalidSnapshotError, match=r"`odd\\x1bname` cannot be published: its name must not contain control"
    ):
        publish(tmp_path)
    (path / "odd\x1bname").unlink()
    os.mkfifo(path / "pipe")
    with pytest.raises(InvalidSnapshotError, match="`pipe` cannot be published: it is no regular file"):
        publish(tmp_path)


def test_a_directory_that_changes_after_it_was_validated(tmp_path):
    """It is looked at once more before it becomes final."""

    class Moving(LocalStore):
        def __init__(self, root, change):
            super().__init__(root)
            self.change, self.listings = change, 0

        def list_tree(self, root, *, max_depth=None):
            if max_depth is None and root.endswith("tmp_snapshot_000002"):
                self.listings += 1
                if self.listings == 2:
                    self.change(Path(root))
            return super().list_tree(root, max_depth=max_depth)

    for change, said in (
        (lambda path: (path / "new").write_bytes(b""), "`new` appeared after it was validated"),
        (lambda path: (path / SESSION).unlink(), f"`{SESSION}` is gone after it was validated"),
        (lambda path: (path / SESSION).write_bytes(b"1"), "bytes when it was validated and has 1 now"),
        (shutil.rmtree, "is gone after it was validated"),
    ):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        staged(tmp_path / "run")
        with pytest.raises(InvalidSnapshotError, match=said):
            publish(tmp_path / "run", store=Moving(str(tmp_path / "run"), change))


class OddDigests(LocalStore):
    """A store whose digests of storage units do not come out."""

    def __init__(self, **result):
        super().__init__()
        self.result = result

    def digest_files(self, root, wanted, advance):
        from ckptctl.domain.checksums import FileDigest

        for work in wanted:
            yield FileDigest(work.path, work.size_bytes, **self.result)


def test_a_file_that_cannot_be_digested_stops_publication(tmp_path):
    """A disk error is one of storage, a file that moves makes the snapshot invalid."""
    staged(tmp_path)
    with pytest.raises(StorageError, match="Input/output error"):
        publish(tmp_path, store=OddDigests(problem="Input/output error"))
    with pytest.raises(InvalidSnapshotError, match="SUM008"):
        publish(tmp_path, store=OddDigests(changed="it was written to while it was being read"))


# --- compared ---


@pytest.mark.parametrize("level", ["standard", "full"])
def test_a_published_snapshot_is_valid(snapshot, level):
    """At level full every byte of every file was compared; at standard the tensors were not, which is said."""
    target = judged(snapshot, level)
    coverage = target.coverage

    assert ("valid", ()) == (target.verdict, target.findings)
    assert coverage.files_total == coverage.files_checked == sum(path.is_file() for path in snapshot.rglob("*"))
    if level == "full":
        assert () == coverage.unchecked
        assert coverage.bytes_total == coverage.bytes_checked
    else:
        assert {"data_plane/simple_storage"} == {item.path.rpartition("/")[0] for item in coverage.unchecked}


def test_quick_does_not_read_it(snapshot):
    """Names, manifests, anchor: nothing else."""
    target = judged(snapshot, "quick")

    assert "valid" == target.verdict
    assert CHECKSUMS in {item.path for item in target.coverage.unchecked}
    assert ("skipped", "belongs to level standard") == outcome(target, "SUM001")


def test_a_tensor_byte_that_nothing_refers_to(snapshot):
    """Only the checksum file covers it, so only level full finds it."""
    path = flip_a_token(snapshot)

    assert {} == failed(judged(snapshot, "standard"))
    assert {"SUM006": path.relative_to(snapshot).as_posix()} == failed(judged(snapshot))


def test_the_manifest_and_the_configuration_are_covered(snapshot):
    """Nothing else covers these; at level standard they are read, and so compared."""
    data = (snapshot / "manifest.json").read_bytes()
    (snapshot / "manifest.json").write_bytes(data.replace(b'"mutation_version": 41', b'"mutation_version": 43'))
    assert {"SUM006": "manifest.json"} == failed(judged(snapshot, "standard"))

    (snapshot / "manifest.json").write_bytes(data)
    flip(snapshot / "config.yaml", 2)
    assert "config.yaml" in failed(judged(snapshot, "standard"))["SUM006"]


def test_a_schema_number_that_changed(snapshot):
    """It looks like a snapshot of another schema; the checksum file knows better: damaged, not incompatible."""
    manifest = snapshot / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"schema_version": 4', b'"schema_version": 5'))
    target = judged(snapshot, "standard")

    assert "manifest.json" == failed(target)["SUM006"]
    assert "invalid" == target.verdict


def test_a_whole_checkpoint_directory(snapshot):
    """The manifest that the anchor's loader has read is not read again, and is covered all the same."""
    report = validate(LocalStore(), ValidateRequest(paths=(str(snapshot.parents[2]),), level="full"))
    [target] = [target for target in report.targets if target.kind == "snapshot"]

    assert ("valid", ()) == (target.verdict, target.coverage.unchecked)


def test_files_gone_added_and_resized(snapshot):
    """Each by its own rule, each by its name."""
    (snapshot / "stray").write_bytes(b"1")
    (snapshot / SESSION).unlink()
    with unit(snapshot).open("ab") as end:
        end.write(b".")
    target = judged(snapshot)
    found = failed(target)

    assert ("stray", SESSION) == (found["SUM004"], found["SUM003"])
    assert unit(snapshot).relative_to(snapshot).as_posix() == found["SUM005"]
    assert "SUM006" not in found
    assert "stray" in {item.path for item in target.coverage.unchecked}


def test_a_link_in_place_of_a_file(snapshot, tmp_path):
    """It is not followed: that the file is a link is all that is said."""
    (tmp_path / "elsewhere").write_bytes((snapshot / SESSION).read_bytes())
    (snapshot / SESSION).unlink()
    (snapshot / SESSION).symlink_to(tmp_path / "elsewhere")

    assert SESSION == failed(judged(snapshot))["SUM003"]


def test_the_checksum_file_of_another_snapshot(snapshot, tmp_path):
    """Sound in itself, but not of this one, and not the one that the journal knows."""
    other = a_published_run(tmp_path / "other", a_world(checkpoint_id="rollout-other"))
    shutil.copy(other / CHECKSUMS, snapshot / CHECKSUMS)
    found = failed(judged(snapshot))

    assert {"SUM002", "SUM005", "SUM007"} <= found.keys()


def test_a_checksum_file_that_is_a_link(snapshot, tmp_path):
    """Damaged, and nothing behind it is read."""
    (snapshot / CHECKSUMS).rename(tmp_path / "moved")
    (snapshot / CHECKSUMS).symlink_to(tmp_path / "moved")

    assert {"MAN009", "SUM001"} <= failed(judged(snapshot)).keys()


@pytest.mark.parametrize("flips_statement", [True, False])
def test_an_edited_checksum_file(snapshot, flips_statement):
    """Its own line or another one: both digests are named, neither as the right one."""
    path = snapshot / CHECKSUMS
    lines = path.read_bytes().splitlines(keepends=True)
    stated = lines[1].split(b'"')[3].decode()
    at = (
        1
        if flips_statement
        else next(number for number, line in enumerate(lines) if b'"blake3"' in line and number > 1)
    )
    lines[at] = lines[at].replace(*((b"0", b"1") if b"0" in lines[at] else (b"a", b"b")))
    path.write_bytes(b"".join(lines))
    found = {finding.rule: finding for finding in judged(snapshot).findings}["SUM001"]

    assert "equal digests" == found.expected
    is_stated_still, is_of_content = (
        found.actual.startswith(f"stated {stated}"),
        found.actual.endswith(f"of the content {stated}"),
    )
    assert (not flips_statement, flips_statement) == (is_stated_still, is_of_content)


def test_a_unit_that_cannot_be_digested(snapshot):
    """Not read is not wrong, and never valid."""
    target = judged(snapshot, store=OddDigests(problem="Input/output error"))

    assert "incomplete" == target.verdict
    assert "Input/output error (and 1 more files)" in outcome(target, "SUM006")[1]
    assert {"Input/output error"} == {item.reason for item in target.coverage.unchecked}


def test_a_unit_that_changes_while_it_is_digested(snapshot):
    """The finding names it and says how."""
    target = judged(snapshot, store=OddDigests(changed="it was written to while it was being read"))

    assert ["SUM008"] == list(failed(target))
    assert "invalid" == target.verdict


def test_a_file_that_changes_between_listing_and_reading(tmp_path):
    """Noticed without any checksum file."""

    class Growing(LocalStore):
        def open_source(self, path):
            if path.endswith(SESSION):
                Path(path).write_bytes(Path(path).read_bytes() + b" ")
            return super().open_source(path)

    path = write_tree(tmp_path, a_run_files()) / FOLDER / "snapshot_000002"
    target = judged(path, "standard", Growing())

    assert SESSION == failed(target)["SUM008"]


# --- its absence ---


def test_a_snapshot_that_nemo_rl_wrote_itself(tmp_path):
    """Valid as far as its own digests go; the report says which bytes nothing covers."""
    path = write_tree(tmp_path, a_run_files()) / FOLDER / "snapshot_000002"
    target = judged(path)

    assert "valid" == target.verdict
    assert ("skipped", "the snapshot has no checksum file") == outcome(target, "SUM006")
    assert "skipped" == outcome(target, "SUM007")[0]
    assert target.coverage.unchecked


def test_a_checksum_file_that_is_gone(snapshot):
    """The journal knows it."""
    (snapshot / CHECKSUMS).unlink()
    target = judged(snapshot, "standard")

    assert {"SUM007": CHECKSUMS} == failed(target)
    assert "`000001-publish`" in target.findings[0].message


def test_without_a_journal_nobody_misses_it(snapshot):
    """A copied snapshot is judged by what it holds."""
    shutil.rmtree(snapshot.parents[2] / ".ckptctl")
    assert "valid" == judged(snapshot).verdict
    (snapshot / CHECKSUMS).unlink()
    target = judged(snapshot)

    assert "valid" == target.verdict
    assert "no journal" in outcome(target, "SUM007")[1]
    assert target.coverage.unchecked


def test_another_snapshot_under_the_same_name(snapshot):
    """NeMo-RL may write this number anew after somebody deleted ours: the journal speaks of another checkpoint."""
    shutil.rmtree(snapshot)
    other = a_run_files(a_world(checkpoint_id="rollout-other"))
    write_tree(snapshot.parents[2], other)
    target = judged(snapshot)

    assert "valid" == target.verdict
    assert [("SUM009", "warning")] == [(finding.rule, finding.severity) for finding in target.findings]
    assert "published another checkpoint under this name" in outcome(target, "SUM007")[1]


def test_the_last_publication_under_a_name_counts(snapshot):
    """The number was used before; journals that say nothing, that were undone or damaged are passed over."""
    folder = snapshot.parents[2] / ".ckptctl" / "journal"
    [newest] = folder.iterdir()
    lines = newest.read_bytes()
    newest.rename(folder / "000007-publish.jsonl")
    digest = blake3((snapshot / CHECKSUMS).read_bytes()).hexdigest().encode()
    (folder / "000003-publish.jsonl").write_bytes(lines.replace(digest, b"ab" * 32))
    undone = lines.replace(digest, b"cd" * 32).replace(b'"outcome":"published"', b'"outcome":"refused"')
    (folder / "000008-publish.jsonl").write_bytes(
        b"".join(line + b"\n" for line in undone.splitlines() if b'"step":"publish"' not in line)
    )
    (folder / "000009-gc.jsonl").write_bytes(b'{"event":"begin"}\n')
    (folder / "000010-snapshot.jsonl").write_bytes(b"checksums_blake3 \xff\n[]\n{}\ntorn")
    (folder / "000011-publish.jsonl").mkdir()
    (folder / "000012-publish.jsonl").symlink_to(newest)

    assert "valid" == judged(snapshot).verdict


# --- in parts ---


def test_shards_divide_the_digests(snapshot):
    """Each unit is digested by one of two shards, which says that another reads the rest; every shard finds what is in its part."""
    flip_a_token(snapshot)
    targets = [judged(snapshot, share=Share("shard", index, 2)) for index in (1, 2)]

    assert [{"SUM006"}, set()] == sorted((set(failed(target)) for target in targets), key=len, reverse=True)
    for target in targets:
        left = [item for item in target.coverage.unchecked if item.reason == "another shard reads it"]
        assert 1 <= len(left) <= 2
