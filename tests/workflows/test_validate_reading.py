"""How files become evidence: what is opened, what is not, what is said of the rest, and how much was looked at."""

import os
from contextlib import nullcontext
from dataclasses import replace

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.errors import StorageError
from ckptctl.formats.dataloader_file import encode_reserve
from ckptctl.workflows.load_data_plane import BLOBS
from ckptctl.workflows.load_evidence import RESERVE_REASON
from ckptctl.workflows.read_parts import OTHER_SCHEMA
from ckptctl.workflows.validate import ValidateRequest, load_evidence, validate
from tests.artifacts import agent_artifacts
from tests.builders import a_run_files, a_world, evidence_of, write_tree
from tests.world import AGENT

NAME = "step_3/rollout_snapshots/snapshot_000002"


@pytest.fixture
def snapshot(tmp_path):
    """A valid snapshot on disk, to be damaged."""
    return write_tree(tmp_path, a_run_files()) / NAME


class WatchedStore(LocalStore):
    """The real store, which remembers what was opened and fails where it is told to."""

    def __init__(self):
        super().__init__()
        self.opened, self.failing, self.gone = [], (), ()

    def open_source(self, path):
        self.opened.append(path)
        self._fail(path)
        return super().open_source(path)

    def read_bytes(self, path, max_bytes):
        self._fail(path)
        return super().read_bytes(path, max_bytes)

    def list_tree(self, root, *, max_depth=None):
        self._fail(root)
        return super().list_tree(root, max_depth=max_depth)

    def _fail(self, path):
        if path.endswith(self.failing or ("\0",)):
            raise StorageError(operation="read", path=path, detail="Input/output error")
        if path.endswith(self.gone or ("\0",)):
            raise FileNotFoundError(path)


def judged(path, store=None, **request):
    return validate(store or LocalStore(), ValidateRequest(paths=(str(path),), **request)).targets[0]


def said(target):
    return [(finding.rule, finding.artifact) for finding in target.findings]


def test_what_is_loaded_is_what_was_saved(snapshot):
    """From files to evidence and back: every part but the texts that no rule reads."""
    loaded, built = load_evidence(LocalStore(), str(snapshot)), evidence_of(a_world())

    for name in (
        "manifest",
        "cut",
        "config",
        "replay",
        "ledger",
        "models",
        "has_gym",
    ):
        assert getattr(built, name) == getattr(loaded, name), name
    for name in ("metadata", "unit_info", "controller_state"):
        assert getattr(built, name).value == getattr(loaded, name).value, name
    assert [entry.path for entry in built.tree] == [entry.path for entry in loaded.tree]
    assert [agent.record_index for agent in built.agents] == [agent.record_index for agent in loaded.agents]
    assert [agent.records.keys() for agent in built.agents] == [agent.records.keys() for agent in loaded.agents]
    assert {name: unit.value.active_keys for name, unit in built.units.items()} == {
        name: unit.value.active_keys for name, unit in loaded.units.items()
    }


def test_transcripts_are_not_kept(snapshot):
    """Memory must not grow with what rollouts said."""
    loaded = load_evidence(LocalStore(), str(snapshot))
    (record,) = [boundary for boundary in loaded.agents[0].boundaries() if boundary.rollout_id == "g7_g0"]
    (session,) = loaded.resources[0].sessions.values()

    assert (record.output_items, record.agent_state) == ([], {})
    assert (session.value.state, session.value.mutation_receipts[0].body_base64) == ({}, "")
    assert session.value.mutation_receipts[0].request_id == "g7_g0.a1.turn-0.action-0"


def test_each_file_is_opened_once_and_nothing_else(snapshot):
    """Standard level reads every file of the snapshot once; the anchor's weights are not touched."""
    store = WatchedStore()
    weights = snapshot.parent.parent / "policy" / "weights.bin"
    weights.parent.mkdir(exist_ok=True)
    weights.write_bytes(b"\0" * 64)
    target = judged(snapshot, store)
    inside = [path for path in store.opened if path.startswith(str(snapshot))]

    assert target.verdict == "valid"
    assert len(inside) == len(set(inside))
    assert str(weights) not in store.opened
    assert all(path.startswith(str(snapshot.parent.parent)) for path in store.opened)
    assert (
        target.coverage.files_checked
        == target.coverage.files_total
        == sum(path.is_file() for path in snapshot.rglob("*"))
    )


def test_quick_opens_the_manifest_and_the_anchor_only(snapshot):
    """Everything else is counted as not read, and its rules as belonging to another level."""
    store = WatchedStore()
    target = judged(snapshot, store, level="quick")

    assert target.verdict == "valid"
    assert [path for path in store.opened if path.startswith(str(snapshot))] == [str(snapshot / "manifest.json")]
    assert target.coverage.files_checked == 1
    assert {item.reason for item in target.coverage.unchecked} == {"level quick does not read it"}
    assert ("LED001", "skipped", "belongs to level standard") in {
        (outcome.rule, outcome.outcome, outcome.reason) for outcome in target.outcomes
    }


def test_links_and_pipes_are_never_opened(snapshot, tmp_path):
    """Both are findings; whoever needs what they stand for says so without waiting for a writer that never comes."""
    outside = tmp_path / "outside.pt"
    (snapshot / "rollout_recovery.pt").rename(outside)
    (snapshot / "rollout_recovery.pt").symlink_to(outside)
    (snapshot / "train_dataloader.pt").unlink()
    os.mkfifo(snapshot / "train_dataloader.pt")
    os.mkfifo(snapshot / "data_plane" / "simple_storage" / "pipe")
    store = WatchedStore()
    target = judged(snapshot, store)

    assert not [
        path
        for path in store.opened
        if path.endswith(("outside.pt", "train_dataloader.pt", "rollout_recovery.pt", "pipe"))
    ]
    assert {
        ("MAN002", "rollout_recovery.pt"),
        ("MAN002", "train_dataloader.pt"),
        ("MAN009", "rollout_recovery.pt"),
    } <= set(said(target))
    assert ("MAN009", "data_plane/simple_storage/pipe") in said(target)
    assert target.verdict == "invalid"


def test_a_linked_directory_is_not_entered(snapshot, tmp_path):
    """Behind a link there is nothing, so what should be there is missing."""
    (snapshot / "data_plane").rename(tmp_path / "elsewhere")
    (snapshot / "data_plane").symlink_to(tmp_path / "elsewhere")

    assert {("MAN002", "data_plane/metadata.json"), ("MAN009", "data_plane")} == set(said(judged(snapshot)))


def test_a_pipe_in_place_of_an_archive_is_an_error(snapshot):
    """A special file that is not required by name, but listed."""
    archive = next(snapshot.glob("agent/*/agent-part-000000.tar"))
    archive.unlink()
    os.mkfifo(archive)
    target = judged(snapshot)

    assert ("MAN010", str(archive.relative_to(snapshot))) in said(target)
    assert target.verdict == "invalid"


def test_a_file_over_its_limit_is_a_defect(snapshot):
    """It is not read at all; the finding says the limit."""
    limits = replace(DEFAULT_LIMITS, archive_bytes=1024, yaml_bytes=8)
    target = judged(snapshot, limits=limits)

    assert [finding.rule for finding in target.findings if "exceeds the limit" in finding.message][:2] == [
        "MAN010",
        "MAN010",
    ]
    assert {item.reason for item in target.coverage.unchecked} >= {
        "larger than the limit of 1024 bytes",
        "larger than the limit of 8 bytes",
    }


def test_an_input_output_error_makes_incomplete(snapshot):
    """Nothing is known to be wrong with a file that cannot be read."""
    store = WatchedStore()
    store.failing = ("rollout_recovery.pt",)
    target = judged(snapshot, store)

    assert target.verdict == "incomplete"
    assert {"rollout_recovery.pt"} <= {artifact for _, artifact in said(target)}
    assert any("Input/output error" in outcome.reason for outcome in target.outcomes)


def test_a_tree_that_cannot_be_listed_makes_incomplete(snapshot):
    """Then no file is called missing."""
    store = WatchedStore()
    store.failing = ("snapshot_000002",)
    target = judged(snapshot, store)

    assert target.verdict == "incomplete"
    assert "missing" not in " ".join(finding.message for finding in target.findings)


def test_a_file_that_disappears_is_missing(snapshot):
    """Somebody collects garbage while we look."""
    store = WatchedStore()
    store.gone = ("train_dataloader.pt",)
    target = judged(snapshot, store)

    assert target.verdict == "incomplete"
    assert any("deleted while" in outcome.reason for outcome in target.outcomes)


def test_an_anchor_that_cannot_be_listed_is_not_called_incomplete(snapshot):
    """`training_info.json` is unreadable then, not missing."""
    store = WatchedStore()
    store.failing = ("step_3",)
    target = judged(snapshot, store)

    assert target.verdict == "incomplete"
    assert {"ANC003"} <= {outcome.rule for outcome in target.outcomes if outcome.outcome == "could_not_run"}


def test_other_schemas_are_not_read(snapshot):
    """After the refusal nothing else is judged, and the coverage says why."""
    manifest = snapshot / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"schema_version": 4', b'"schema_version": 6'))
    store = WatchedStore()
    target = judged(snapshot, store)

    assert (target.verdict, target.schema_found) == ("incompatible", 6)
    assert [path for path in store.opened if path.startswith(str(snapshot))] == [str(snapshot / "manifest.json")]
    assert {item.reason for item in target.coverage.unchecked} == {OTHER_SCHEMA}


def test_the_reserve_is_inspected_but_not_decoded(snapshot):
    """Its bytes are counted as not checked, with the reason."""
    (snapshot / "replacement_reserve.pt").write_bytes(encode_reserve([{"prompt": "one"}]))
    target = judged(snapshot)

    assert target.verdict == "valid"
    assert ("replacement_reserve.pt", RESERVE_REASON) in {
        (item.path, item.reason) for item in target.coverage.unchecked
    }
    assert "`replacement_reserve.pt`" in next(note.message for note in target.notes if note.rule == "BND009")


def test_tensor_bytes_are_counted_as_unchecked(snapshot):
    """Standard level passes over them, and says how many they are."""
    target = judged(snapshot)
    units = [item for item in target.coverage.unchecked if "/su_" in item.path]

    assert len(units) == 2
    assert all(item.bytes > 0 for item in units)
    assert target.coverage.bytes_total - target.coverage.bytes_checked == sum(
        item.bytes for item in target.coverage.unchecked
    )


def test_a_file_that_does_not_belong_is_not_checked(snapshot):
    """A warning, and a line in the coverage."""
    (snapshot / "notes.txt").write_bytes(b"hello")
    target = judged(snapshot)

    assert said(target) == [("MAN009", "notes.txt")]
    assert ("notes.txt", 5, "not part of the format") in {
        (item.path, item.bytes, item.reason) for item in target.coverage.unchecked
    }


def test_an_index_is_found_under_the_name_that_was_reported(tmp_path):
    """Gym reports where its indexes lie; they need not have the usual names."""
    files = a_run_files()
    saved = agent_artifacts(a_world(), AGENT, a_world().agents[AGENT])
    old = f"{NAME}/{saved.folder}/continuations.jsonl"
    assert old in files
    changed = {
        name: data.replace(b"continuations.jsonl", b"continuations-a.jsonl")
        for name, data in files.items()
        if saved.folder in name
    }
    changed[old.replace("continuations", "continuations-a")] = changed.pop(old)
    del files[old]
    path = write_tree(tmp_path, {**files, **changed}) / NAME
    evidence = load_evidence(LocalStore(), str(path))

    assert evidence.agents[0].continuations.path.endswith("continuations-a.jsonl")
    assert evidence.agents[0].continuations.state == "decoded"


def test_an_anchor_with_its_own_data_plane_is_bound_to_its_training_info(tmp_path):
    """A step that saved its own sidecars is judged by the same rules; a later cut than it says is found."""
    files = a_run_files(a_world(with_gym=False))
    own = {
        name.replace("rollout_snapshots/snapshot_000002/", ""): data
        for name, data in files.items()
        if "data_plane/" in name or name.endswith(".pt")
    }
    write_tree(tmp_path, {**files, **own})
    good = judged(tmp_path / "step_3", select=("BND", "INV", "LED"))
    anchor = validate(LocalStore(), ValidateRequest(paths=(str(tmp_path / "step_3"),))).targets[-1]
    info = tmp_path / "step_3" / "training_info.json"
    info.write_bytes(info.read_bytes().replace(b'"current_epoch": 0', b'"current_epoch": 1'))
    late = validate(LocalStore(), ValidateRequest(paths=(str(tmp_path / "step_3"),))).targets[-1]

    assert good.kind == "snapshot"
    assert {"BND002", "INV001", "LED001"} <= {
        outcome.rule for outcome in anchor.outcomes if outcome.outcome == "passed"
    }
    assert ("BND002", "data_plane/metadata.json") in said(late)


@pytest.fixture
def small_memory(monkeypatch):
    """As if files of a few bytes were too large to be held."""
    monkeypatch.setattr("ckptctl.workflows.read_parts.IN_MEMORY_BYTES", 64)
    monkeypatch.setattr("ckptctl.workflows.read_parts._PIECE_BYTES", 50)


def test_large_files_are_hashed_in_pieces(snapshot, small_memory):
    """With nothing held in memory the evidence is the same, digests included."""
    target = judged(snapshot)

    assert target.verdict == "valid"
    assert target.coverage.files_checked == target.coverage.files_total


def test_a_file_that_shrinks_while_it_is_read_ends(snapshot, small_memory):
    """Somebody truncates the ledger under us: fewer bytes come than were promised."""

    class Shrinking:
        size_bytes = 4096

        def read_at(self, offset, count):
            return b"PK"[offset : offset + count]

    class ShrinkingStore(WatchedStore):
        def open_source(self, path):
            return nullcontext(Shrinking()) if path.endswith("rollout_recovery.pt") else super().open_source(path)

    target = judged(snapshot, ShrinkingStore())

    assert target.verdict == "invalid"
    assert ("MAN010", "rollout_recovery.pt") in said(target)


def test_a_unit_that_cannot_be_opened_makes_incomplete(snapshot):
    """Storage units are read by position, with the same care."""
    store = WatchedStore()
    store.failing = ("_00000000.pkl",)
    target = judged(snapshot, store)

    assert target.verdict == "incomplete"


def test_blobs_of_offloaded_rows_are_counted_as_unread(snapshot):
    """Only their sizes are compared at this level."""
    unit = next(snapshot.glob("data_plane/simple_storage/su_0_*.pkl"))
    blobs = unit.with_name(f"{unit.name}.blobs")
    blobs.mkdir()
    (blobs / f"{'0' * 32}.bin").write_bytes(b"12345678")
    target = judged(snapshot)

    assert BLOBS in {item.reason for item in target.coverage.unchecked}


def test_a_snapshot_that_disappears_is_incomplete(snapshot):
    """Retention took it between the listing and the reading."""
    store = WatchedStore()
    store.gone = ("snapshot_000002",)

    assert judged(snapshot, store).verdict == "incomplete"


def test_an_anchor_that_disappears_is_incomplete(snapshot):
    """The same for its anchor."""
    store = WatchedStore()
    store.gone = ("step_3",)

    assert judged(snapshot, store).verdict == "incomplete"


def test_progress_is_told(snapshot):
    """One phase a target."""

    class Told:
        def __init__(self):
            self.phases = []

        def phase(self, name, detail=""):
            self.phases.append(detail)

        def advance(self, done, total, unit):
            assert (done, unit) == (len(self.phases) - 1, "targets")
            assert total == 2

    told = Told()
    validate(LocalStore(), ValidateRequest(paths=(str(snapshot.parent.parent),)), told)

    assert told.phases == [str(snapshot), str(snapshot.parent.parent)]


def test_an_unusable_list_of_participants_leaves_their_files_unread(snapshot):
    """Nothing says whose they are; the coverage tells why they were passed over."""
    manifest = snapshot / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"records": 2', b'"records": -2'))
    target = judged(snapshot)

    assert {"MAN005"} == {finding.rule for finding in target.findings}
    assert "the list of participants cannot be used" in {item.reason for item in target.coverage.unchecked}
