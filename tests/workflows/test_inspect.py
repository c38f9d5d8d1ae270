"""What `inspect` says of directories, anchors, snapshots and data planes; it changes nothing and never stumbles over what it finds."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import pytest

from ckptctl.errors import NothingThereError, StorageError, UsageError
from ckptctl.workflows.inspect import checkpoint_dir_of, run_inspection
from tests.conftest import shared_fixtures
from tests.runs import GONE, a_run, damage, offline_world
from tests.workflows.test_gc import RESTORE_FACTS, SNAPSHOT_FACTS, beside, everything, gc


def inspect(root, path: str = "", level=None):
    where = f"{root}/{path}" if path else str(root)
    return run_inspection(offline_world(root), where, level)


def test_an_overview(tmp_path) -> None:
    """Anchors newest first, their snapshots newest first, with what their manifests say that they hold."""
    root = a_run(tmp_path, step_3=2, bootstrap=1)
    result = inspect(root)
    step, bootstrap = result.anchors
    newest = step.snapshots[0]

    assert ("checkpoint_dir", "quick", "valid") == (result.kind, result.level, result.verdict)
    assert ("step_3", True, 3, 3) == (step.name, step.is_durable, step.train_step, step.trainer_version)
    assert ("bootstrap", True, 0, 0) == (
        bootstrap.name,
        bootstrap.is_durable,
        bootstrap.train_step,
        bootstrap.trainer_version,
    )
    assert ["snapshot_000002", "snapshot_000001"] == [item.name for item in step.snapshots]
    assert "rollout-step-3-snapshot-2-0f0e0d0c0b0a09080706050403020100" == newest.checkpoint_id
    assert {"groups": 2, "finished_groups": 2, "continuations": 2, "sessions": 1} == newest.counts.model_dump()
    assert 0 <= newest.age_s < 600
    assert sum(path.stat().st_size for path in (root / newest.path).rglob("*") if path.is_file()) == newest.size_bytes
    assert {"groups": 0, "finished_groups": 0, "continuations": None, "sessions": None} == (
        bootstrap.snapshots[0].counts.model_dump()
    )


def test_inspecting_changes_nothing(tmp_path) -> None:
    """No lock, no journal, no time stamp of ours."""
    root = a_run(tmp_path, step_3=1)
    before = everything(root)
    inspect(root)
    inspect(root, "step_3/rollout_snapshots/snapshot_000001")

    assert before == everything(root)


def test_levels(tmp_path) -> None:
    """A damaged payload is seen where it is looked for; the verdict of the directory is the worst."""
    root = a_run(tmp_path, step_3=2)
    damage(root, "step_3", 1)
    quick, standard = inspect(root), inspect(root, level="standard")

    assert "valid" == quick.verdict
    assert "invalid" == standard.verdict
    assert ["valid", "invalid"] == [item.verdict for item in standard.anchors[0].snapshots]
    assert "rollout_recovery.pt" in " ".join(standard.anchors[0].snapshots[1].problems)


def test_what_is_called_almost_like_a_snapshot(tmp_path) -> None:
    """It stands among the leftovers, as what it is not."""
    root = a_run(tmp_path, step_3=1)
    for name in ("snapshot_abc", "tmp_x"):
        (root / "step_3" / "rollout_snapshots" / name).mkdir()
    result = inspect(root)

    assert ["step_3/rollout_snapshots/snapshot_abc", "step_3/rollout_snapshots/tmp_x"] == [
        item.path for item in result.leftovers
    ]
    assert {True} == {item.what.startswith("by its name no snapshot") for item in result.leftovers}


def test_leftovers_trash_pins_and_transactions(tmp_path) -> None:
    """Everything that is no snapshot has its place too, with what it is."""
    root = a_run(tmp_path, step_3=4)
    beside(root, "tmp_snapshot_000009", age_s=600)
    beside(root, "trash_snapshot_000000", age_s=7_200)
    (root / "tmp_step_4").mkdir()
    (root / "old_step_3").mkdir()
    gc(root, pin="snapshot_000001", reason="audit")
    gc(root, keep=2)
    (root / ".ckptctl/trash/going.5.step_3.snapshot_000000").mkdir()
    (root / ".ckptctl/trash/stray").mkdir()
    beside(root, "trash_snapshot_000000", age_s=5)
    writer = offline_world(root).journal.begin(
        "snapshot", {**SNAPSHOT_FACTS, "final": "step_3/rollout_snapshots/snapshot_000004"}
    )
    writer.append({"event": "intent", "number": "6", "step": "save"}, sync=True)
    result = inspect(root)
    snapshots = {item.name: item for item in result.anchors[0].snapshots}
    [transaction] = result.unfinished

    assert ("snapshot", "ck-1", "save", "ckptctl publish") == (
        transaction.kind,
        transaction.checkpoint_id,
        transaction.last_step,
        transaction.finished_by,
    )
    assert "audit" == snapshots["snapshot_000001"].pinned
    assert "the unfinished snapshot `ck-1`" == snapshots["snapshot_000004"].used_by
    assert {
        "old_step_3": "the previous version of a trainer checkpoint, while it is exchanged",
        "step_3/rollout_snapshots/tmp_snapshot_000009": "a snapshot that is being written, or was never finished",
        "step_3/rollout_snapshots/trash_snapshot_000000": "a snapshot whose deletion was interrupted",
        "tmp_step_4": "a trainer checkpoint that is being written, or was never finished",
    } == {item.path: item.what for item in result.leftovers}
    [leftover] = [item for item in result.leftovers if "tmp_snapshot" in item.path]
    assert 590 < leftover.untouched_s < 700
    assert 5 == leftover.size_bytes
    assert ["foreign", "going", "whole"] == sorted(item.state for item in result.trash)


def test_an_interrupted_restore(tmp_path) -> None:
    """Its snapshot is in use, and another command finishes it."""
    root = a_run(tmp_path, step_3=1)
    offline_world(root).journal.begin("restore", RESTORE_FACTS)
    result = inspect(root)

    assert ("restore-1", None, "ckptctl restore") == (
        result.unfinished[0].checkpoint_id,
        result.unfinished[0].last_step,
        result.unfinished[0].finished_by,
    )
    assert "the unfinished restore `restore-1`" == result.anchors[0].snapshots[0].used_by


def test_a_control_folder_that_cannot_be_read(tmp_path) -> None:
    """Damaged journals and lock records are warnings: the snapshots are still shown."""
    root = a_run(tmp_path, step_3=1)
    offline_world(root).journal.begin("snapshot", {"schema_version": 1})
    unreadable = inspect(root)
    (root / ".ckptctl/journal/000001-snapshot.jsonl").write_bytes(b"\xff\x1b[2J\n")
    (root / ".ckptctl/pins").write_bytes(b"not a directory")
    damaged = inspect(root)

    assert ["its first record does not say" in text for text in unreadable.warnings] == [True]
    assert ["line 1 is no journal record" in text for text in damaged.warnings] == [False, True]
    assert 2 == len(damaged.warnings)
    assert not any("\x1b" in text for text in damaged.warnings)
    assert 1 == len(damaged.anchors[0].snapshots)


def test_who_holds_the_lock(tmp_path) -> None:
    """Somebody at work, somebody gone, nobody; found out without touching it."""
    root = a_run(tmp_path, step_3=1)
    assert inspect(root).lock is None
    lock = offline_world(root).lock
    lock.acquire()
    alive = inspect(root).lock
    lock.release()
    offline_world(root, **GONE).lock.acquire()
    gone = inspect(root).lock

    assert f"process {os.getpid()} on " in alive.owner
    assert (False, True) == (alive.is_dead, gone.is_dead)


def test_an_owner_that_is_silent(tmp_path) -> None:
    """Neither gone nor heard of: its lease is over by this host's clock. One of another host that renews is at work."""
    root = a_run(tmp_path, step_3=1)
    offline_world(root, host="node-9").lock.acquire()
    path = root / ".ckptctl/lock"
    fresh = inspect(root).lock
    os.utime(path, (path.stat().st_mtime - 600,) * 2)
    silent = inspect(root).lock

    assert (None, True) == (fresh.silent_s, fresh.is_at_work)
    assert 600 <= silent.silent_s < 660
    assert (False, False, 60.0) == (silent.is_dead, silent.is_at_work, silent.lease_s)
    assert "at work" not in silent.owner


def test_one_anchor(tmp_path) -> None:
    """An anchor, or its folder of snapshots, is shown alone; pins and transactions of the run are known all the same."""
    root = a_run(tmp_path, step_3=1, bootstrap=1)
    gc(root, pin="step_3/snapshot_000001", reason="audit")
    for path in ("step_3", "step_3/rollout_snapshots"):
        result = run_inspection(offline_world(root), f"{root}/{path}")
        assert ("anchor", f"{root}/step_3", ["step_3"]) == (
            result.kind,
            result.path,
            [item.name for item in result.anchors],
        )
        assert "audit" == result.anchors[0].snapshots[0].pinned


def test_a_run_that_has_only_begun(tmp_path) -> None:
    """A control folder and nothing else is shown; nothing at all is not there."""
    with pytest.raises(NothingThereError):
        inspect(tmp_path)
    (tmp_path / ".ckptctl").mkdir()

    assert () == inspect(tmp_path).anchors


@pytest.mark.parametrize(
    ("path", "error"), [("nowhere", NothingThereError), ("file", UsageError), ("link", UsageError)]
)
def test_what_cannot_be_inspected(tmp_path, path, error) -> None:
    """Refused as `validate` refuses it."""
    root = a_run(tmp_path, step_3=1)
    (root / "file").write_bytes(b"")
    (root / "link").symlink_to(root / "step_3")
    with pytest.raises(error):
        inspect(root / path)


def test_a_directory_that_cannot_be_listed(tmp_path) -> None:
    """That is a storage failure, not an empty directory."""
    world = offline_world(tmp_path)

    class Broken:
        def kind_of(self, path):
            return "directory"

        def list_tree(self, root, *, max_depth=None):
            raise StorageError(operation="list", path=root, detail="Input/output error")

    with pytest.raises(StorageError):
        run_inspection(replace(world, store=Broken()), str(tmp_path))


def test_a_snapshot_in_depth(tmp_path) -> None:
    """Counters, participants, groups, rollouts, finished groups, partitions, binding, parts."""
    root = a_run(tmp_path, step_3=2)
    result = inspect(root, "step_3/rollout_snapshots/snapshot_000002")
    rollouts = {item.rollout_id: item for item in result.rollouts}

    assert ("valid", "standard", 4, "step_3") == (result.verdict, result.level, result.schema_found, result.anchor)
    assert (3, 3, 0, 5) == (
        result.counters.base_train_step,
        result.counters.trainer_version,
        result.counters.current_epoch,
        result.counters.sampler_dispatch_index,
    )
    assert {
        "policy_agent": {"records": 2, "continuations": 2},
        "spare_agent": {"records": 0, "continuations": 0},
        "policy_model": {
            "rollouts": 2,
            "rows": 4,
            "excluded_tombstoned": 1,
            "excluded_inactive": 1,
            "storage_references": 4,
        },
        "tools": {"sessions": 1},
        "desk": {"sessions": 0},
    } == {item.server_name: item.counts for item in result.participants}
    assert 2 == sum(item.groups for item in result.groups)
    assert 4 == sum(item.rollouts for item in result.groups) == len(rollouts)
    assert (1, "turn_complete", 2, {"tools": 4}, 3) == (
        rollouts["g7_g0"].attempt_index,
        rollouts["g7_g0"].boundary_kind,
        rollouts["g7_g0"].turn_index,
        rollouts["g7_g0"].revisions,
        rollouts["g7_g0"].staged_rows,
    )
    assert ("sealed", None, 2) == (
        rollouts["g7_g1"].status,
        rollouts["g7_g1"].boundary_kind,
        rollouts["g7_g1"].staged_rows,
    )
    assert "pending_model" == rollouts["g8_g0"].boundary_kind
    assert (None, None) == (rollouts["g8_g1"].boundary_kind, rollouts["g8_g1"].staged_rows)
    assert {("g5", 2), ("g6", 2)} == {(item.group_id, item.rows) for item in result.replay}
    assert {"rollout_data": 4, "rollout_staging": 9} == {
        item.partition_id: item.keys for item in result.data_plane.partitions
    }
    assert (2, 3, 2, 2) == (
        result.data_plane.storage_units,
        result.data_plane.binding.train_step,
        result.data_plane.binding.replay_groups,
        result.data_plane.binding.recovery_groups,
    )
    assert result.coverage.bytes_total == sum(item.bytes for item in result.parts)
    assert () == result.unread


def test_boundaries_that_nobody_claims(tmp_path) -> None:
    """With a ledger that cannot be read the boundaries are still shown, and the ledger is named."""
    root = a_run(tmp_path, step_3=1)
    damage(root, "step_3", 1)
    result = inspect(root, "step_3/rollout_snapshots/snapshot_000001")

    assert "invalid" == result.verdict
    assert {("g7_g0", None, "turn_complete"), ("g8_g0", None, "pending_model")} == {
        (item.rollout_id, item.status, item.boundary_kind) for item in result.rollouts
    }
    assert ["rollout_recovery.pt is damaged" in text for text in result.unread] == [True]


def test_a_snapshot_judged_quickly_is_still_shown_whole(tmp_path) -> None:
    """The level is for the verdict, not for what is shown."""
    root = a_run(tmp_path, step_3=1)
    result = inspect(root, "step_3/rollout_snapshots/snapshot_000001", "quick")

    assert ("quick", 4) == (result.level, len(result.rollouts))


def test_a_snapshot_without_manifest(tmp_path) -> None:
    """What can be read is shown, and the age is that of the newest file."""
    root = a_run(tmp_path, step_3=1)
    path = "step_3/rollout_snapshots/snapshot_000001"
    (root / path / "manifest.json").unlink()
    result = inspect(root, path)

    assert ("invalid", None, None, ()) == (result.verdict, result.counters, result.checkpoint_id, result.participants)
    assert 4 == len(result.rollouts)
    assert result.age_s < 600
    assert (None, None) == (
        inspect(root).anchors[0].snapshots[0].checkpoint_id,
        inspect(root).anchors[0].snapshots[0].counts.sessions,
    )


def test_a_checkpoint_id_is_shown_though_the_rest_is_wrong(tmp_path) -> None:
    """It is what one looks for in the servers' logs; and it is harmless in any terminal."""
    root = a_run(tmp_path, step_3=1)
    manifest = root / "step_3/rollout_snapshots/snapshot_000001/manifest.json"
    raw = json.loads(manifest.read_text())
    raw["gym_checkpoint"]["checkpoint_id"] = "ck\x1b[2J[red]"
    manifest.write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n")

    assert "ck\\x1b[2J[red]" == inspect(root).anchors[0].snapshots[0].checkpoint_id


def test_a_data_plane_alone(tmp_path) -> None:
    """Partitions, units and binding; a stub in place of the binding is no binding."""
    root = a_run(tmp_path / "run", step_3=1)
    shutil.copytree(root / "step_3/rollout_snapshots/snapshot_000001/data_plane", tmp_path / "alone/data_plane")
    whole = inspect(tmp_path / "alone", "data_plane")
    metadata = tmp_path / "alone/data_plane/metadata.json"
    metadata.write_text(json.dumps({"storage_saved": True, "user_metadata": {"anything": [1]}}))
    stub = inspect(tmp_path / "alone", "data_plane", "quick")

    assert ("data_plane", "valid", 2, 3) == (
        whole.kind,
        whole.verdict,
        whole.data_plane.storage_units,
        whole.data_plane.binding.train_step,
    )
    assert stub.data_plane.binding is None
    assert 2 == len(stub.data_plane.partitions)


def test_an_entry_of_the_trash(tmp_path) -> None:
    """A snapshot that was moved away can be looked at where it is."""
    root = a_run(tmp_path, step_3=3)
    gc(root)
    entry = next((root / ".ckptctl/trash").iterdir())
    result = run_inspection(offline_world(root), str(entry))

    assert ("snapshot", None, 4) == (result.kind, result.anchor, len(result.rollouts))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/runs/demo/step_1/rollout_snapshots/snapshot_000001", "/runs/demo"),
        ("/runs/demo/bootstrap", "/runs/demo"),
        ("/runs/demo/.ckptctl/trash/5.step_1.snapshot_000001", "/runs/demo"),
        ("/runs/demo", "/runs/demo"),
        ("/step_1", "/"),
        ("/data_plane", "/data_plane"),
    ],
)
def test_where_a_path_lies(path, expected) -> None:
    """The lock and the journal that count are those of the checkpoint directory."""
    assert expected == checkpoint_dir_of(path)


def test_the_shared_runs() -> None:
    """Snapshots that nobody here wrote: what is shown of them is what their facts say."""
    fixtures = shared_fixtures()
    facts = json.loads((fixtures / "turn.facts.json").read_text())
    for path, known in facts["snapshots"].items():
        result = inspect(fixtures / "turn", path)
        keys = {item.partition_id: item.keys for item in result.data_plane.partitions}

        assert "valid" == result.verdict
        assert {(rollout, attempt) for rollout, attempt, *_ in known["continuations"]} == {
            (item.rollout_id, item.attempt_index) for item in result.rollouts if item.boundary_kind
        }
        assert set(known["ledger_groups"]) == {item.group_id for item in result.rollouts}
        assert len(known["ledger_groups"]) == sum(item.groups for item in result.groups)
        assert known["replay_groups"] == [item.group_id for item in result.replay]
        assert (len(known["canonical_keys"]), len(known["staging_keys"])) == (
            keys[facts["canonical_partition"]],
            keys[facts["staging_partition"]],
        )
        assert sum(map(len, known["sessions"].values())) == sum(
            item.counts.get("sessions", 0) for item in result.participants
        )


def test_shared_runs_of_other_schemas() -> None:
    """They are shown as far as they can be read, and called what they are."""
    fixtures = shared_fixtures()
    legacy = inspect(fixtures / "legacy")
    found = {item.path: (item.schema_found, item.verdict) for anchor in legacy.anchors for item in anchor.snapshots}

    assert "incompatible" == legacy.verdict
    assert (7, "incompatible") == found["step_2/rollout_snapshots/snapshot_000002"]
    assert (3, "valid") == found["step_2/rollout_snapshots/snapshot_000001"]
