"""Which snapshot a restore uses, which it passes over and why, and where it stops instead."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ckptctl.adapters.local_store import LocalStore
from ckptctl.domain.controller import ControllerStatus
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.participant import DiscoveredParticipant
from ckptctl.errors import (
    AnchorRefusedError,
    CkptctlError,
    ConfigError,
    IncompatibleSnapshotError,
    InvalidSnapshotError,
    NotCheckedError,
    NothingThereError,
    StorageError,
)
from ckptctl.formats.config_file import decode_yaml, encode_yaml
from ckptctl.workflows.load_config import load_config, require_sound
from ckptctl.workflows.restore_preview import preview_restore, select_only
from ckptctl.workflows.selection import Live, select_snapshot
from tests.builders import a_bootstrap_world, a_run_files, write_tree
from tests.conftest import shared_fixtures
from tests.fakes.small_world import a_world as a_world_of_ports
from tests.sample_list import before_the_first_step, other_schemas, third_step

SNAPSHOTS = "rollout_snapshots"


class EmptyJournal:
    """No transaction is unfinished."""

    def transactions(self):
        return ()


def world():
    """Files and nothing else: asking a server would fail."""
    return a_world_of_ports(store=LocalStore(), journal=EmptyJournal())


def a_run(folder: Path, *worlds, **changes):
    """A checkpoint directory with these worlds, and the configuration of its run."""
    write_tree(folder / "run", a_run_files(*worlds))
    return a_config(folder / "run", dict(worlds[0].config), **changes)


def a_config(
    checkpoint_dir: Path, run: dict, *, place: Path | None = None, takes_participants=None, **rollout_checkpointing
):
    """The configuration of a run with this checkpoint directory; the file lies beside it, or in `place`."""
    section = {**run.get("rollout_checkpointing", {}), "snapshot_attempt_interval_s": 120, **rollout_checkpointing}
    gym = {**section.get("gym", {}), "capability_discovery_enabled": True}
    if takes_participants is not None:
        gym["participant_checkpointing_enabled"] = takes_participants
    content = {
        **run,
        "checkpointing": {
            **run.get("checkpointing", {}),
            "enabled": True,
            "save_data_plane": True,
            "checkpoint_dir": str(checkpoint_dir),
        },
        "token_capture": {**run.get("token_capture", {}), "enabled": True},
        "async_rl": run.get("async_rl") or {"rollout_failure": {"nemo_gym": {"max_row_attempts": 1}}},
        "rollout_checkpointing": {**section, "gym": gym},
        "ckptctl": {"controller": {"url": "http://127.0.0.1:9"}},
    }
    path = (place or checkpoint_dir.parent) / f"{checkpoint_dir.name}.yaml"
    path.write_bytes(encode_yaml(content))
    config = load_config(LocalStore(), str(path), "/")
    require_sound(config, "restore")
    return config


def selected(config, **options) -> str:
    """The chosen snapshot, relative to the checkpoint directory."""
    found = select_snapshot(world(), config, **options).selection.snapshot
    return found.removeprefix(f"{config.checkpoint_dir}/")


def refused(kind: type[CkptctlError], config, match: str, **options) -> CkptctlError:
    """The error of a selection that finds nothing."""
    with pytest.raises(kind, match=match) as caught:
        select_snapshot(world(), config, **options)
    assert kind is type(caught.value)
    return caught.value


def snapshot_of(config, name: str, anchor: str = "step_3") -> Path:
    return Path(config.checkpoint_dir, anchor, SNAPSHOTS, name)


def change_manifest(config, name: str, anchor: str = "step_3", **fields) -> None:
    """Write other values into a manifest."""
    path = snapshot_of(config, name, anchor) / "manifest.json"
    manifest = json.loads(path.read_bytes())
    path.write_text(json.dumps({**manifest, **fields}, sort_keys=True, indent=2) + "\n")


def damage_payload(config, name: str, anchor: str = "step_3") -> None:
    """One part of the payload is gone."""
    (snapshot_of(config, name, anchor) / "rollout_recovery.pt").unlink()


def two(folder: Path, **changes):
    """A step with two valid snapshots."""
    newer = third_step()
    return a_run(folder, newer, replace(newer, name="snapshot_000001", checkpoint_id="older"), **changes)


def test_the_newest_by_number_is_chosen(tmp_path) -> None:
    """Digits count, not text: 10 is newer than 2 and than 000009; nothing is rejected on the way."""
    newest = third_step(name="snapshot_10")
    config = a_run(tmp_path, newest, replace(newest, name="snapshot_000009", checkpoint_id="nine"))
    found = select_snapshot(world(), config)

    assert ("snapshot_10", ()) == (found.selection.snapshot.rpartition("/")[2], found.selection.rejected)
    assert ("valid", "full") == (found.report.verdict, found.report.level)


@pytest.mark.parametrize(
    ("fields", "verdict", "reason"),
    [
        ({"base_train_step": 4}, "incompatible", "train step 4, the run is at 3"),
        ({"trainer_version": 4}, "incompatible", "trainer version 4, the run is at 3"),
        (
            {"bootstrap_fingerprint": "ab" * 32},
            "incompatible",
            "bootstrap fingerprint abababababab..., the run has none",
        ),
        ({"schema_version": 1}, "incompatible", "of snapshot schema 1"),
        ({"schema_version": 7}, "incompatible", "of snapshot schema 7"),
        ({"schema_version": True}, "invalid", "`schema_version`"),
        ({"current_epoch": -1}, "invalid", "`current_epoch` must be an integer of at least 0"),
    ],
    ids=["step", "version", "fingerprint", "schema-1", "schema-7", "no-schema", "counter"],
)
def test_another_manifest_makes_the_next_older_one_the_choice(tmp_path, fields, verdict, reason) -> None:
    """As upstream does, with the reason; `--no-fallback` is about payloads and changes nothing here."""
    config = two(tmp_path)
    change_manifest(config, "snapshot_000002", **fields)
    found = select_snapshot(world(), config, falls_back=False).selection
    [rejected] = found.rejected

    assert found.snapshot.endswith("snapshot_000001")
    assert ("step_3/rollout_snapshots/snapshot_000002", verdict) == (rejected.snapshot, rejected.verdict)
    assert reason in rejected.reason


@pytest.mark.parametrize("how", ["missing", "torn", "link", "no-object"])
def test_a_manifest_that_cannot_be_read_is_damage(tmp_path, how) -> None:
    """The next older one is the choice; without one it is exit 13."""
    config = two(tmp_path)
    folder = snapshot_of(config, "snapshot_000002")
    manifest = folder / "manifest.json"
    if how == "missing":
        manifest.unlink()
    elif how == "torn":
        manifest.write_bytes(manifest.read_bytes()[:-100])
    elif how == "no-object":
        manifest.write_text("[]\n")
    else:
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    found = select_snapshot(world(), config).selection
    shutil.rmtree(snapshot_of(config, "snapshot_000001"))
    error = refused(InvalidSnapshotError, config, "no snapshot of `step_3` can be restored: `snapshot_000002`: ")

    assert found.snapshot.endswith("snapshot_000001")
    assert ["invalid"] == [item.verdict for item in found.rejected]
    assert 13 == error.exit_code


def test_a_damaged_payload_is_passed_over(tmp_path) -> None:
    """Unlike upstream; the reason names the rule. `--no-fallback` stops there with exit 13."""
    config = two(tmp_path)
    damage_payload(config, "snapshot_000002")
    found = select_snapshot(world(), config).selection
    error = refused(
        InvalidSnapshotError, config, r"`rollout_recovery.pt` .*; older ones are not tried", falls_back=False
    )

    assert found.snapshot.endswith("snapshot_000001")
    assert [("invalid", True)] == [(item.verdict, item.reason.startswith("invalid: MAN")) for item in found.rejected]
    assert (13, True) == (error.exit_code, bool(error.hint))


def test_rejected_by_manifest_and_by_payload_are_told_newest_first(tmp_path) -> None:
    """One list, in the order in which the candidates were looked at."""
    newest = third_step(name="snapshot_000004")
    others = [replace(newest, name=f"snapshot_00000{number}", checkpoint_id=f"ck-{number}") for number in (3, 2, 1)]
    config = a_run(tmp_path, newest, *others)
    damage_payload(config, "snapshot_000004")
    change_manifest(config, "snapshot_000003", trainer_version=9)
    damage_payload(config, "snapshot_000002")
    found = select_snapshot(world(), config).selection

    assert ["4", "3", "2"] == [item.snapshot[-1] for item in found.rejected]
    assert "1" == found.snapshot[-1]


def test_all_rejected_tells_every_reason_and_ends_with_the_worst(tmp_path) -> None:
    """Incompatible alone is 12, with damage 13."""
    config = two(tmp_path)
    change_manifest(config, "snapshot_000002", trainer_version=9)
    change_manifest(config, "snapshot_000001", schema_version=6)
    error = refused(
        IncompatibleSnapshotError, config, "`snapshot_000002`: trainer version 9.*`snapshot_000001`: .*schema 6"
    )
    damage_payload(config, "snapshot_000001")
    change_manifest(config, "snapshot_000001", schema_version=4)
    worse = refused(
        InvalidSnapshotError, config, "`snapshot_000002`: trainer version 9.*`snapshot_000001`: invalid: MAN"
    )

    assert (12, 13) == (error.exit_code, worse.exit_code)
    assert "restore_mode: trainer_checkpoint" in worse.hint


def test_what_could_not_be_checked_is_no_choice(tmp_path) -> None:
    """A ledger of a shape that nobody decodes is exit 11, never a restore."""
    case = shared_fixtures() / "cases" / "ledger-older-shape"
    config = fixture_config(case, tmp_path, "step_1")
    error = refused(
        NotCheckedError,
        config,
        "`snapshot_000002`: incomplete: .* could not run: `rollout_recovery.pt`: ledger 3",
    )

    assert 11 == error.exit_code


def test_another_topology_stops(tmp_path) -> None:
    """A changed worker count is exit 12 and never hidden by an older snapshot, not even by one that fits."""
    newer = third_step()
    changed = tuple(with_workers(item, 7) for item in newer.topology)
    fitting = replace(newer, name="snapshot_000001", checkpoint_id="older", topology=changed)
    config = a_run(tmp_path, newer, fitting)
    error = refused(IncompatibleSnapshotError, config, "topology changed.*no older one is tried", live=live_of(changed))

    assert (12, "set the run up as it was when the snapshot was taken") == (error.exit_code, error.hint)
    assert "snapshot_000002" in selected(config, live=live_of(newer.topology))


def test_another_participant_set_stops(tmp_path) -> None:
    """A server that saved its state is gone."""
    config = two(tmp_path)
    fewer = tuple(item for item in third_step().topology if item.capabilities.name != "tools")

    assert 12 == refused(IncompatibleSnapshotError, config, "no older one is tried", live=live_of(fewer)).exit_code


def test_another_number_of_storage_units_stops(tmp_path) -> None:
    """The running data plane could not take the rows; a unit file that is missing is damage instead."""
    config = two(tmp_path)
    topology = third_step().topology
    error = refused(IncompatibleSnapshotError, config, "storage has 2 units", live=live_of(topology, storage_units=3))
    next(snapshot_of(config, "snapshot_000002").glob("data_plane/simple_storage/su_*.pkl")).unlink()

    assert 12 == error.exit_code
    assert "snapshot_000001" in selected(config, live=live_of(topology))


@pytest.mark.parametrize("has_gym", [True, False])
def test_the_gym_feature_is_never_fallen_back_over(tmp_path, has_gym) -> None:
    """The newest differs from the feature flag: stop, exit 12, although an older one agrees."""
    with_gym, without = third_step(), third_step(with_gym=False, agents={}, models={}, resources={})
    newest, oldest = (with_gym, without) if has_gym else (without, with_gym)
    worlds = (replace(newest, name="snapshot_000002"), replace(oldest, name="snapshot_000001"))
    config = a_run(tmp_path, *worlds, takes_participants=not has_gym)
    word = "it holds Gym state, but" if has_gym else "it holds no Gym state, but"
    error = refused(IncompatibleSnapshotError, config, f"`snapshot_000002`: {word}.*no older one is tried")

    assert 12 == error.exit_code


def test_a_stop_outweighs_the_damage_of_a_newer_one(tmp_path) -> None:
    """Both reasons are told; the exit status is that of the set-up, which the operator must mend first."""
    newer = third_step()
    changed = tuple(with_workers(item, 7) for item in newer.topology)
    config = a_run(tmp_path, newer, replace(newer, name="snapshot_000001", checkpoint_id="older", topology=changed))
    damage_payload(config, "snapshot_000002")
    told = "`snapshot_000002`: invalid: MAN.*`snapshot_000001`: incompatible: FPR.*no older one is tried"
    error = refused(IncompatibleSnapshotError, config, told, live=live_of(newer.topology))

    assert 12 == error.exit_code


def test_a_damaged_newest_of_another_topology_does_not_pass_as_damage(tmp_path) -> None:
    """Where both are seen in one snapshot, the difference of the set-up decides."""
    config = two(tmp_path)
    (snapshot_of(config, "snapshot_000002") / "train_dataloader.pt").write_bytes(b"")
    changed = tuple(with_workers(item, 7) for item in third_step().topology)

    assert 12 == refused(IncompatibleSnapshotError, config, "topology changed", live=live_of(changed)).exit_code


def test_no_snapshot_with_participants_on(tmp_path) -> None:
    """Exit 3: the trainer checkpoint alone holds no Gym state."""
    config = two(tmp_path)
    shutil.rmtree(Path(config.checkpoint_dir, "step_3", SNAPSHOTS))

    assert 3 == refused(NothingThereError, config, "has no snapshot, and the run needs one with Gym state").exit_code


def test_no_snapshot_with_participants_off(tmp_path) -> None:
    """A step alone is enough; a bootstrap anchor alone is a fresh start."""
    config = two(tmp_path, takes_participants=False)
    shutil.rmtree(Path(config.checkpoint_dir, "step_3", SNAPSHOTS))
    found = select_snapshot(world(), config)
    answer = select_only(world(), config, falls_back=True)
    Path(config.checkpoint_dir, "step_3").rename(tmp_path / "gone")
    write_tree(tmp_path / "run", a_run_files(a_bootstrap_world()))
    shutil.rmtree(tmp_path / "run" / "bootstrap" / SNAPSHOTS)
    error = refused(NothingThereError, config, "fresh start")

    assert (None, None, None) == (found.selection.snapshot, found.evidence, found.report)
    assert "anchor `step_3` has no snapshot: the run starts from the trainer checkpoint alone" == found.selection.reason
    assert ("trainer_checkpoint", f"{config.checkpoint_dir}/step_3") == (answer.outcome, answer.selected_path)
    assert 3 == error.exit_code


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every directory")
def test_a_folder_that_cannot_be_listed_is_not_empty(tmp_path) -> None:
    """Otherwise a run would silently begin anew from its trainer checkpoint."""
    config = two(tmp_path, takes_participants=False)
    folder = Path(config.checkpoint_dir, "step_3", SNAPSHOTS)
    folder.chmod(0o000)
    error = refused(StorageError, config, "cannot list")
    folder.chmod(0o755)

    assert 32 == error.exit_code


def test_snapshots_that_are_no_folder_are_not_an_empty_one(tmp_path) -> None:
    """A file in the place of the folder is refused, not taken for a fresh start."""
    config = two(tmp_path, takes_participants=False)
    folder = Path(config.checkpoint_dir, "step_3", SNAPSHOTS)
    shutil.rmtree(folder)
    folder.write_bytes(b"")

    assert 20 == refused(AnchorRefusedError, config, f"its `{SNAPSHOTS}` is a file").exit_code


def test_the_mode_trainer_checkpoint(tmp_path) -> None:
    """The newest step alone, whatever snapshots there are; with participants on the configuration is refused."""
    config = two(tmp_path, takes_participants=False, restore_mode="trainer_checkpoint")
    found = select_snapshot(world(), config).selection
    plan = preview_restore(world(), config, falls_back=True)
    Path(config.checkpoint_dir, "step_3").rename(tmp_path / "gone")
    write_tree(tmp_path / "run", a_run_files(a_bootstrap_world()))
    error = refused(AnchorRefusedError, config, "there is no trainer checkpoint: only the bootstrap anchor exists")

    assert ("step_3", None) == (found.anchor, found.snapshot)
    assert ("trainer_checkpoint", ()) == (plan.outcome, plan.plan)
    assert "`restore_mode` is `trainer_checkpoint`" in plan.reason
    assert 20 == error.exit_code
    with pytest.raises(ConfigError, match="restore_mode"):
        two(tmp_path / "other", takes_participants=True, restore_mode="trainer_checkpoint")


def test_a_step_goes_before_bootstrap_and_the_highest_step_first(tmp_path) -> None:
    """The anchor is chosen before any snapshot: what an older anchor has does not count."""
    newer = third_step()
    older = third_step(anchor="step_2", step=2, checkpoint_id="step-2")
    config = a_run(tmp_path, newer, older)
    write_tree(tmp_path / "run", a_run_files(a_bootstrap_world()))
    before = selected(config)
    shutil.rmtree(Path(config.checkpoint_dir, "step_3", SNAPSHOTS))
    error = refused(NothingThereError, config, "`step_3` has no snapshot")

    assert "step_3/rollout_snapshots/snapshot_000002" == before
    assert 3 == error.exit_code


def test_bootstrap_alone(tmp_path) -> None:
    """Before the first step the bootstrap anchor counts; another configuration of the run stops."""
    start = before_the_first_step()
    config = a_run(tmp_path, start, takes_participants=False)
    before = selected(config)
    raw = {**config.raw, "grpo": {"seed": 1}}
    error = refused(IncompatibleSnapshotError, replace(config, raw=raw), "another configuration.*no older one is tried")

    assert "bootstrap/rollout_snapshots/snapshot_000002" == before
    assert 12 == error.exit_code


def test_an_anchor_that_cannot_be_used(tmp_path) -> None:
    """Half-written anchors are refused with what to do; no anchor at all is a fresh start, exit 3."""
    config = two(tmp_path)
    info = Path(config.checkpoint_dir, "step_3", "training_info.json")
    info.write_text("{")
    torn = refused(AnchorRefusedError, config, "anchor `step_3` cannot be used")
    info.unlink()
    lacking = refused(AnchorRefusedError, config, "anchor `step_3` cannot be used")
    Path(config.checkpoint_dir, "step_3").rename(Path(config.checkpoint_dir, "bootstrap"))
    bootstrap = refused(AnchorRefusedError, config, "anchor `bootstrap` cannot be used")
    shutil.rmtree(Path(config.checkpoint_dir, "bootstrap"))
    nothing = refused(NothingThereError, config, "holds no anchor")
    shutil.rmtree(config.checkpoint_dir)
    gone = refused(NothingThereError, config, "holds no anchor")

    assert [20, 20, 20, 3, 3] == [error.exit_code for error in (torn, lacking, bootstrap, nothing, gone)]
    assert "move it away" in torn.hint


def test_select_tells_on_the_side_what_was_not_used(tmp_path) -> None:
    """The answer is one path; the reasons are notices."""
    config = two(tmp_path)
    damage_payload(config, "snapshot_000002")
    notices = []
    answer = select_only(replace(world(), notice=notices.append), config, falls_back=True)

    assert answer.selected_path.endswith("step_3/rollout_snapshots/snapshot_000001")
    assert ["not used: step_3/rollout_snapshots/snapshot_000002: invalid"] == [
        item.partition(": MAN")[0] for item in notices
    ]


def test_snapshots_of_other_schemas_alone(tmp_path) -> None:
    """Each is named with its schema: exit 12, and what to do."""
    files = {name.removeprefix("other-schemas/"): data for name, data in other_schemas().items() if "/" in name}
    write_tree(tmp_path / "run", files)
    config = a_config(tmp_path / "run", dict(before_the_first_step().config), takes_participants=False)
    error = refused(IncompatibleSnapshotError, config, "of snapshot schema .*of snapshot schema ")

    assert 12 == error.exit_code


# --- the shared snapshots, which no code of this project wrote ----------------------------------------------------------------


def fixture_config(source: Path, folder: Path, anchor: str, **changes):
    """The configuration that a fixture's snapshot was taken under, for that directory; the file lies in `folder`."""
    saved = next((source / anchor / SNAPSHOTS).glob("snapshot_*/config.yaml"))
    return a_config(source, dict(decode_yaml(saved.read_bytes(), DEFAULT_LIMITS)), place=folder, **changes)


def test_schemas_1_and_7_are_noted_in_the_legacy_run(tmp_path) -> None:
    """Exit 12 for each anchor; schema 3 is looked at where participants are off, and is not restored unchecked."""
    legacy = shared_fixtures() / "legacy"
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, anchor in ((first, "step_1"), (second, "step_2")):
        (folder / "copy").mkdir(parents=True)
        shutil.copytree(legacy / anchor, folder / "copy" / anchor)
    oldest = refused(
        IncompatibleSnapshotError, fixture_config(first / "copy", first, "step_1", takes_participants=False), "schema 1"
    )
    config = fixture_config(second / "copy", second, "step_2", takes_participants=False)
    with pytest.raises(CkptctlError, match=r"`snapshot_000002`: .*schema 7.*`snapshot_000001`: ") as newest:
        select_snapshot(world(), config)

    assert 12 == oldest.exit_code
    assert newest.value.exit_code in (11, 12)


def test_the_good_runs(tmp_path) -> None:
    """The newest snapshot of each, with its saved topology where there is one."""
    shared = shared_fixtures()
    for name in ("turn", "norollouts"):
        (tmp_path / name).mkdir()
    saved = json.loads((shared / "turn.capabilities.json").read_bytes())
    topology = tuple(DiscoveredParticipant.model_validate_json(json.dumps(item)) for item in saved)
    turn = fixture_config(shared / "turn", tmp_path / "turn", "step_1", takes_participants=True)
    plain = fixture_config(shared / "norollouts", tmp_path / "norollouts", "step_2", takes_participants=False)

    assert "step_1/rollout_snapshots/snapshot_000002" == selected(turn, live=live_of(topology))
    assert "step_2/rollout_snapshots/snapshot_000001" == selected(plain)


EXITS = {"invalid": 13, "incompatible": 12, "incomplete": 11, "valid": 0, "valid-with-warning": 0}
OFTEN = {
    *("anchor-trainer-version", "bootstrap-fingerprint-null", "bootstrap-trainer-version", "step-anchor-fingerprint"),
    *("manifest-bool", "manifest-missing", "json-duplicate-key", "escape-in-value", "topology-fingerprint-absent"),
    *("data-plane-schema-3", "ledger-older-shape", "recovery-pickle-code", "storage-key-omitted", "capacity-exceeded"),
    *("continuation-revisions-unknown", "data-plane-leftover-tmp"),
}
"""Judged in every run of the tests; the others in the long mode, because `validate` judges each of them anyway."""


@pytest.mark.parametrize("is_whole", [False, pytest.param(True, marks=pytest.mark.long)], ids=["often", "all"])
def test_no_damaged_case_is_ever_restored(tmp_path, is_whole) -> None:
    """Each planted defect of level standard ends with its verdict's exit status; controls and warnings are restored."""
    found, wrong = 0, []
    for case in sorted((shared_fixtures() / "cases").iterdir()):
        facts = json.loads((case / "case.json").read_bytes())
        if facts["level"] != "standard" or facts.get("needs_recipe") or not (is_whole or facts["case"] in OFTEN):
            continue
        folder = tmp_path / facts["case"]
        folder.mkdir()
        anchor = facts["snapshot"].partition("/")[0]
        config = fixture_config(case, folder, anchor, takes_participants=True)
        try:
            select_snapshot(world(), config)
            status, text = 0, ""
        except CkptctlError as error:
            status, text = int(error.exit_code), error.message
        accepted = {EXITS[name] for name in (facts["verdict"], *facts.get("also_accepted", ()))}
        found += 1
        if status not in accepted or (facts.get("must_not_print") or "\0") in text:
            wrong.append((facts["case"], status, text))

    assert [] == wrong
    assert (65 if is_whole else len(OFTEN)) <= found


# --- parts of a topology ------------------------------------------------------------------------------------------------------


def with_workers(item: DiscoveredParticipant, count: int) -> DiscoveredParticipant:
    """The same server with another number of workers."""
    processes = item.capabilities.multi_process.model_copy(update={"num_workers": count, "mode": "coordinator"})
    return item.model_copy(update={"capabilities": item.capabilities.model_copy(update={"multi_process": processes})})


def live_of(topology, **changes) -> Live:
    """Running servers with this topology."""
    facts = {
        "instance_id": "one",
        "phase": "idle",
        "admission": "closed",
        "active_checkpoint_id": None,
        "train_step": 3,
        "trainer_version": 3,
        "epoch": 0,
        "mutation_version": 0,
        "sampler_dispatch_index": -1,
        "sampler_name": "windowed",
        "unfinished_rollouts": 0,
        "acknowledgements_pending": 0,
        "canonical_partition": "rollout_data",
        "staging_partition": "rollout_staging",
        "data_plane": "embedded",
        "storage_units": 2,
        "takes_own_snapshots": False,
        "restore_expected": True,
        "trainer_busy": False,
        "checkpoint_dir": "/run",
        "anchor": "step_3",
        "bootstrap_fingerprint": None,
    }
    return Live(ControllerStatus(**{**facts, **changes}), tuple(topology))
