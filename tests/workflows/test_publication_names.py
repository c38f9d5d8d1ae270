"""What the journal knows of names: exchanged, renamed and foreign snapshots, and journals that cannot be read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.retention import GcRequest
from ckptctl.errors import ExitCode, StorageError
from ckptctl.workflows.gc import run_gc
from ckptctl.workflows.selection import select_snapshot
from ckptctl.workflows.validate import ValidateRequest, exit_code, validate
from tests.builders import a_bootstrap_world, a_world
from tests.published import a_published_run
from tests.runs import offline_world
from tests.sample_list import third_step
from tests.workflows.test_selection import a_config
from tests.workflows.test_selection import world as files_only

CHECKSUMS = "ckptctl-checksums.json"
FOLDER = "step_3/rollout_snapshots"


@pytest.fixture
def run(tmp_path) -> Path:
    """A checkpoint directory with two snapshots of one anchor, published one after the other."""
    for number in (1, 2):
        a_published_run(
            tmp_path / "run",
            a_world(name=f"snapshot_{number:06d}", checkpoint_id=f"rollout-step-3-snapshot-{number}-a"),
        )
    return tmp_path / "run"


def exchange(run: Path, folder: str = FOLDER, one: str = "snapshot_000001", other: str = "snapshot_000002") -> None:
    place = run / folder
    (place / one).rename(place / "aside")
    (place / other).rename(place / one)
    (place / "aside").rename(place / other)


def judged(run: Path, level="full", store=None) -> dict:
    """Name -> report of every snapshot."""
    report = validate(store or LocalStore(), ValidateRequest(paths=(str(run),), level=level))
    return {Path(target.path).name: target for target in report.targets if target.kind == "snapshot"}


def errors(target) -> dict[str, str]:
    """Rule -> message."""
    return {finding.rule: finding.message for finding in target.findings if finding.severity == "error"}


def outcome(target, rule: str) -> tuple[str, str]:
    return next((item.outcome, item.reason) for item in target.outcomes if item.rule == rule)


def journals(run: Path) -> list[Path]:
    return sorted((run / ".ckptctl" / "journal").iterdir())


# --- names ---


def test_snapshots_where_they_were_published(run):
    """Both are valid, without a word."""
    assert {("valid", ())} == {(target.verdict, target.findings) for target in judged(run).values()}


@pytest.mark.parametrize("level", ["standard", "full"])
def test_two_exchanged_snapshots(run, level):
    """Each says which transaction published it, and as what."""
    exchange(run)
    found = judged(run, level)

    assert {"invalid"} == {target.verdict for target in found.values()}
    said = errors(found["snapshot_000002"])
    assert ["SUM009"] == list(said)
    assert f"transaction `000001-publish` published this checkpoint as `{FOLDER}/snapshot_000001`" in said["SUM009"]
    assert ("skipped", "because of SUM009") == outcome(found["snapshot_000002"], "SUM007")


def test_exchanged_snapshots_without_a_checkpoint_id(tmp_path):
    """Their checksum files tell them apart."""
    for number in (1, 2):
        a_published_run(tmp_path, a_bootstrap_world(name=f"snapshot_{number:06d}", sampler_dispatch_index=number))
    assert {"valid"} == {target.verdict for target in judged(tmp_path).values()}
    exchange(tmp_path, "bootstrap/rollout_snapshots")

    assert [["SUM009"]] * 2 == [list(errors(target)) for target in judged(tmp_path).values()]


def test_a_snapshot_under_a_number_that_was_never_used(run):
    """The older one became the newest."""
    (run / FOLDER / "snapshot_000001").rename(run / FOLDER / "snapshot_000009")

    assert ["SUM009"] == list(errors(judged(run)["snapshot_000009"]))


def test_exchanged_without_checksum_files(run):
    """The checkpoint id of the manifest is enough."""
    exchange(run)
    for path in run.glob(f"{FOLDER}/*/{CHECKSUMS}"):
        path.unlink()

    assert {"invalid"} == {target.verdict for target in judged(run).values()}


def test_a_number_that_is_used_again(run):
    """The newest was deleted and its number given anew; later the first one is brought back under its own name."""
    kept = run / "kept"
    (run / FOLDER / "snapshot_000002").rename(kept)
    a_published_run(run, a_world(name="snapshot_000002", checkpoint_id="rollout-step-3-snapshot-2-b"))
    assert {"valid"} == {target.verdict for target in judged(run).values()}
    shutil.rmtree(run / FOLDER / "snapshot_000002")
    kept.rename(run / FOLDER / "snapshot_000002")

    assert {("valid", ())} == {(target.verdict, target.findings) for target in judged(run).values()}


def test_a_copied_checkpoint_directory(run, tmp_path):
    """Names and journal go together."""
    shutil.copytree(run, tmp_path / "copy")

    assert {"valid"} == {target.verdict for target in judged(tmp_path / "copy").values()}


def test_an_altered_manifest_is_no_renamed_snapshot(run):
    """The checksum file is still the one that was published here: what changed is told by its digest."""
    path = run / FOLDER / "snapshot_000002" / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b"snapshot-2-a", b"snapshot-2-z"))
    said = errors(judged(run)["snapshot_000002"])

    assert {"SUM002", "SUM006"} <= said.keys()
    assert "SUM009" not in said


@pytest.mark.parametrize("names", [("snapshot_000001", "snapshot_000002"), ("snapshot_000001", "snapshot_000003")])
def test_gc_keeps_the_really_newest(run, names):
    """Nothing goes on the word of numbers that are wrong, a valid one between the two or not."""
    a_published_run(run, a_world(name="snapshot_000003", checkpoint_id="rollout-step-3-snapshot-3-a"))
    exchange(run, one=names[0], other=names[1])
    result = run_gc(offline_world(run), str(run), GcRequest(keep=1))

    assert ["snapshot_000001", "snapshot_000002", "snapshot_000003"] == sorted(
        path.name for path in (run / FOLDER).iterdir()
    )
    assert {"keep"} == {item.action for item in result.items if item.kind == "snapshot"}
    assert f"was published as `{FOLDER}/{names[1]}`" in str(result.items)


def test_gc_where_none_is_valid(run):
    """Both were exchanged, so both were validated: both stay."""
    exchange(run)
    result = run_gc(offline_world(run), str(run), GcRequest(keep=1))

    assert {"keep"} == {item.action for item in result.items if item.kind == "snapshot"}


def test_gc_where_nothing_was_renamed(run):
    """The older one goes."""
    run_gc(offline_world(run), str(run), GcRequest(keep=1))

    assert ["snapshot_000002"] == [path.name for path in (run / FOLDER).iterdir()]


def test_restore_passes_over_renamed_ones(tmp_path):
    """Both of the exchanged are invalid: the one between them is taken, and it is said why the highest number was not."""
    worlds = [third_step(name=f"snapshot_{number:06d}", checkpoint_id=f"ck-{number}") for number in (1, 2, 3)]
    for one in worlds:
        a_published_run(tmp_path / "run", one)
    exchange(tmp_path / "run", other="snapshot_000003")
    config = a_config(tmp_path / "run", dict(worlds[0].config))
    found = select_snapshot(files_only(), config)

    assert found.selection.snapshot.endswith("snapshot_000002")
    assert "SUM009" in str(found.selection.rejected)


# --- journals that cannot be read ---


def is_not_told(run: Path, why: str, store=None) -> None:
    """No snapshot is called valid, the report says why, nothing is called wrong."""
    for target in judged(run, "standard", store).values():
        assert ("incomplete", {}) == (target.verdict, errors(target))
        assert "could_not_run" == outcome(target, "SUM009")[0]
        assert why in outcome(target, "SUM009")[1]
        assert ["SUM009"] == [finding.rule for finding in target.findings if finding.kind == "gap"]


def test_a_control_folder_that_is_no_folder(run, tmp_path):
    """A link is not followed, a pipe and a file are not opened."""
    control = run / ".ckptctl"
    control.rename(tmp_path / "moved")
    control.symlink_to(tmp_path / "moved")
    is_not_told(run, "`.ckptctl` is a symbolic link")
    control.unlink()
    os.mkfifo(control)
    is_not_told(run, "`.ckptctl` is a named pipe")
    control.unlink()
    control.write_bytes(b"")
    is_not_told(run, "`.ckptctl` is a file")
    control.unlink()
    control.mkdir()
    (control / "journal").symlink_to(tmp_path / "moved" / "journal")
    is_not_told(run, "`.ckptctl/journal` is a symbolic link")


def test_journals_that_are_no_journals(run, tmp_path):
    """Emptied, garbage, a link or a pipe: which snapshot they speak of is unknown."""
    for path in journals(run):
        path.write_bytes(b"")
    is_not_told(run, "000002-publish.jsonl` does not tell which snapshot it speaks of (and 1 more)")
    for path in journals(run):
        path.write_bytes(b"\xff\x00\n" * 5)
    is_not_told(run, "does not tell which snapshot it speaks of")
    for path in journals(run):
        path.unlink()
        path.symlink_to(tmp_path / "elsewhere")
    is_not_told(run, "is a symbolic link")
    for path in journals(run):
        path.unlink()
        path.write_text('{"event":"outcome","step":"x","seconds":"soon"}\n')
    is_not_told(run, "does not tell which snapshot it speaks of")


@pytest.mark.parametrize("call", ["kind_of", "list_tree", "read_bytes"])
def test_journals_that_nobody_may_read(run, call):
    """No permission on the control folder, the folder of journals, the journals."""

    class Closed(LocalStore):
        pass

    def refuse(self, path, *args, **options):
        if "/.ckptctl/journal" in path:
            raise StorageError(operation="read", path=path, detail="Permission denied")
        return getattr(LocalStore, call)(self, path, *args, **options)

    setattr(Closed, call, refuse)

    is_not_told(run, "Permission denied", Closed())


def test_a_damaged_journal_concerns_its_own_snapshot_only(run):
    """Its first line tells which; the other stays valid."""
    newest = journals(run)[-1]
    lines = newest.read_bytes().splitlines(keepends=True)
    newest.write_bytes(b"".join(b"?\n" if b"checksums_blake3" in line else line for line in lines))
    found = judged(run)

    assert {"snapshot_000001": "valid", "snapshot_000002": "incomplete"} == {
        name: target.verdict for name, target in found.items()
    }
    assert "holds a line that is no journal record" in outcome(found["snapshot_000002"], "SUM009")[1]


def without_file(run: Path, change) -> dict:
    """Reports when the newest snapshot lost its checksum file and the lines of its journal went through `change`."""
    newest = journals(run)[-1]
    lines = [change(json.loads(line)) for line in newest.read_text().splitlines()]
    newest.write_text("".join(f"{json.dumps(line)}\n" for line in lines if line is not None))
    (run / FOLDER / "snapshot_000002" / CHECKSUMS).unlink()
    return judged(run, "standard")


def is_written(line) -> bool:
    return (line["event"], line.get("step")) == ("outcome", "write-checksums")


def misspelt(line) -> dict:
    return {key.replace("blake3", "blakf3"): value for key, value in line.items()}


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line,
        lambda line: None if is_written(line) else line,
        lambda line: misspelt(line) if is_written(line) else line,
        lambda line: line if is_written(line) else misspelt(line),
        lambda line: None if line.get("step") == "write-checksums" else line,
    ],
)
def test_a_lost_checksum_file_that_any_line_names(run, change):
    """The step that wrote it names it, and so does the publication."""
    found = without_file(run, change)

    assert ["invalid", "valid"] == [found[f"snapshot_00000{number}"].verdict for number in (2, 1)]
    assert "`ckptctl-checksums.json` is gone" in errors(found["snapshot_000002"])["SUM007"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (misspelt, "tells of a checksum file and does not name it"),
        (
            lambda line: None if line["event"] == "outcome" else line,
            "tells of a checksum file and does not name it",
        ),
        (
            lambda line: (
                None
                if is_written(line)
                else {**line, "checksums_blake3": "b" * 63}
                if line["event"] == "outcome"
                else line
            ),
            "holds a line that is no journal record",
        ),
        (
            lambda line: {**line, "checksums_blake3": "b" * 64} if is_written(line) else line,
            "names two checksum files",
        ),
    ],
)
def test_a_lost_checksum_file_that_no_line_names_for_sure(run, change, why):
    """It was written or about to be: that it is gone is not called valid."""
    found = without_file(run, change)

    assert ["incomplete", "valid"] == [found[f"snapshot_00000{number}"].verdict for number in (2, 1)]
    assert why in outcome(found["snapshot_000002"], "SUM009")[1]


def test_a_journal_that_was_cut_off(run):
    """Before it says with which checksum file: not told. A torn last line alone is passed over."""
    newest = journals(run)[-1]
    data = newest.read_bytes()
    newest.write_bytes(data[: data.index(b'"checksums_blake3"')])
    found = judged(run)
    assert "ends before it tells what was published" in outcome(found["snapshot_000002"], "SUM009")[1]
    assert ("incomplete", "valid") == (found["snapshot_000002"].verdict, found["snapshot_000001"].verdict)

    newest.write_bytes(data + b'{"event":"fin')
    assert {"valid"} == {target.verdict for target in judged(run).values()}


def test_a_damaged_line_that_matters_to_nobody(run):
    """The digest can still be read."""
    newest = journals(run)[-1]
    newest.write_bytes(newest.read_bytes() + b"\xff\n")

    assert {"valid"} == {target.verdict for target in judged(run).values()}


def test_a_control_folder_without_journals(run):
    """Nothing was published by ckptctl, or all was copied from elsewhere: judged by what the snapshots hold."""
    shutil.rmtree(run / ".ckptctl" / "journal")

    assert {"valid"} == {target.verdict for target in judged(run).values()}
    (run / ".ckptctl").rmdir()
    assert {"valid"} == {target.verdict for target in judged(run).values()}


def test_exit_code_of_an_unreadable_journal(run):
    """11: nobody could check it."""
    for path in journals(run):
        path.write_bytes(b"")

    assert ExitCode.NOT_CHECKED == exit_code(validate(LocalStore(), ValidateRequest(paths=(str(run),))))
