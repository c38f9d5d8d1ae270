"""Configuration values that rule a coordinated snapshot out."""

from __future__ import annotations

import copy

import pytest

from ckptctl.domain.finding import DefectError
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.errors import ConfigError, UsageError
from ckptctl.formats.config_file import encode_yaml
from ckptctl.formats.run_config import decode_run_config
from ckptctl.planning.config_checks import config_problems
from ckptctl.workflows.load_config import load_config, require_own, require_sound

GOOD = {
    "checkpointing": {"enabled": True, "checkpoint_dir": "runs/demo", "save_data_plane": True, "save_period": 1},
    "token_capture": {"enabled": True, "staging_partition": "rollout_staging"},
    "async_rl": {"rollout_failure": {"nemo_gym": {"max_row_attempts": 1}}},
    "grpo": {"seed": 42},
    "rollout_checkpointing": {
        "snapshot_attempt_interval_s": 120,
        "restore_mode": "latest",
        "keep_latest_k": 2,
        "gym": {
            "capability_discovery_enabled": True,
            "participant_checkpointing_enabled": True,
            "prepare_timeout_s": 300,
        },
    },
    "ckptctl": {
        "controller": {"url": "http://127.0.0.1:8700"},
        "participants": {"policy_model": {"url": "http://127.0.0.1:8701"}, "counter": {"url": "http://127.0.0.1:8703"}},
        "control_timeout_s": 60,
    },
}


def changed(**values: object) -> dict:
    """The good configuration with dotted keys changed; `...` removes one."""
    raw = copy.deepcopy(GOOD)
    for path, value in values.items():
        *parents, last = path.split("__")
        place = raw
        for name in parents:
            place = place.setdefault(name, {})
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return raw


def decoded(raw: dict):
    return decode_run_config(encode_yaml(raw), "run.yaml", "/srv", DEFAULT_LIMITS)


class OneFile:
    """A reader that has one file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_bytes(self, path: str, max_bytes: int) -> bytes:
        if path != "run.yaml":
            raise FileNotFoundError
        return self.data


def test_the_example_is_sound() -> None:
    """The configuration that the design shows is accepted; the relative directory is taken from where the command runs."""
    config = decoded(GOOD)

    assert () == config_problems(config, "snapshot")
    assert "/srv/runs/demo" == config.checkpoint_dir
    assert {
        "policy_model": "http://127.0.0.1:8701",
        "counter": "http://127.0.0.1:8703",
    } == config.sections.ckptctl.urls()
    assert {"seed": 42} == config.raw["grpo"]


@pytest.mark.parametrize(
    ("values", "location", "reason"),
    [
        ({"checkpointing__enabled": False}, "checkpointing.enabled", "belongs to a trainer checkpoint"),
        ({"checkpointing__checkpoint_dir": ...}, "checkpointing.checkpoint_dir", "no place for snapshots"),
        ({"checkpointing__checkpoint_dir": "${x}/y"}, "checkpointing.checkpoint_dir", "only NeMo-RL resolves"),
        (
            {"checkpointing__save_data_plane": False},
            "checkpointing.save_data_plane",
            "token rows of unfinished rollouts",
        ),
        ({"data_plane__backend": "mooncake"}, "data_plane.backend", "only the backend `simple`"),
        ({"token_capture__enabled": False}, "token_capture.enabled", "no history to train on"),
        (
            {"async_rl__rollout_failure__nemo_gym__max_row_attempts": ...},
            "async_rl.rollout_failure.nemo_gym.max_row_attempts",
            "is 3: a retry inside NeMo Gym would dispatch the same stable execution identity twice",
        ),
        (
            {"rollout_checkpointing__snapshot_attempt_interval_s": None},
            "rollout_checkpointing.snapshot_attempt_interval_s",
            "turns saving and restoring of snapshots off",
        ),
        (
            {"rollout_checkpointing__snapshot_attempt_interval_s": 0},
            "rollout_checkpointing.snapshot_attempt_interval_s",
            "above 0",
        ),
        (
            {"rollout_checkpointing__keep_latest_k": 0},
            "rollout_checkpointing.keep_latest_k",
            "at least one snapshot must survive",
        ),
        ({"rollout_checkpointing__restore_mode": "newest"}, "rollout_checkpointing.restore_mode", "no restore mode"),
        (
            {"rollout_checkpointing__restore_mode": "trainer_checkpoint"},
            "rollout_checkpointing.restore_mode",
            "never be restored",
        ),
        (
            {"rollout_checkpointing__extra_fingerprint_excluded_paths": ["a..b"]},
            "rollout_checkpointing.extra_fingerprint_excluded_paths",
            "holds `a..b`",
        ),
        (
            {"rollout_checkpointing__gym__capability_discovery_enabled": False},
            "rollout_checkpointing.gym.capability_discovery_enabled",
            "what is not discovered cannot be prepared",
        ),
        (
            {"rollout_checkpointing__gym__participant_checkpointing_enabled": False},
            "rollout_checkpointing.gym.participant_checkpointing_enabled",
            "turns of unfinished rollouts",
        ),
        (
            {"rollout_checkpointing__gym__prepare_timeout_s": 0},
            "rollout_checkpointing.gym.prepare_timeout_s",
            "in no time",
        ),
        (
            {"rollout_recovery__default_granularity": "token"},
            "rollout_recovery.default_granularity",
            "no recovery granularity",
        ),
        (
            {"rollout_recovery__agent_granularity_overrides": {"a": "x"}},
            "rollout_recovery.agent_granularity_overrides.a",
            "no recovery granularity",
        ),
        (
            {"rollout_recovery__task_source_granularity_overrides": {"t": "x"}},
            "rollout_recovery.task_source_granularity_overrides.t",
            "no recovery granularity",
        ),
        ({"rollout_checkpointing__interval_s": 5}, "rollout_checkpointing.interval_s", "an older NeMo-RL used"),
        ({"data_plane__checkpointing_enabled": True}, "data_plane.checkpointing_enabled", "an older NeMo-RL used"),
    ],
)
def test_each_check_names_key_and_reason(values, location, reason) -> None:
    """One wrong value gives one problem, at its key, with the reason."""
    config = decoded(changed(**values))
    [problem] = config_problems(config, "snapshot")

    assert location == problem.location
    assert reason in problem.problem
    with pytest.raises(ConfigError, match=r"configuration `run.yaml`: `") as refusal:
        require_sound(config, "snapshot")
    assert problem.hint == refusal.value.hint


def test_retries_are_fine_without_token_capture() -> None:
    """`max_row_attempts` matters only while checkpointing and token capture are both on."""
    raw = changed(token_capture__enabled=False, async_rl__rollout_failure__nemo_gym__max_row_attempts=3)

    assert ["token_capture.enabled"] == [problem.location for problem in config_problems(decoded(raw), "snapshot")]


def test_a_restore_may_use_the_trainer_checkpoint_alone() -> None:
    """Without participants the mode `trainer_checkpoint` is a legal way to restore."""
    raw = changed(
        rollout_checkpointing__restore_mode="trainer_checkpoint",
        rollout_checkpointing__gym__participant_checkpointing_enabled=False,
    )

    assert () == config_problems(decoded(raw), "restore")


def test_several_problems_are_told_together() -> None:
    """The first is the message, the others stand in the hint."""
    with pytest.raises(ConfigError, match="checkpointing.enabled") as refusal:
        require_sound(
            decoded(changed(checkpointing__enabled=False, rollout_checkpointing__keep_latest_k=0)), "snapshot"
        )

    assert "also: `rollout_checkpointing.keep_latest_k`" in refusal.value.hint


@pytest.mark.parametrize(
    ("values", "location"),
    [
        ({"ckptctl__tokken_env": "X"}, "ckptctl.tokken_env"),
        ({"ckptctl__controller": ...}, "ckptctl.controller"),
        ({"ckptctl__controller__url": "ftp://x"}, "ckptctl.controller.url"),
        ({"ckptctl__controller__url": "http://user:pw@x"}, "ckptctl.controller.url"),
        ({"ckptctl__control_timeout_s": 0}, "ckptctl.control_timeout_s"),
        ({"ckptctl__control_timeout_s": "60"}, "ckptctl.control_timeout_s"),
        ({"checkpointing__enabled": "yes"}, "checkpointing.enabled"),
        ({"rollout_checkpointing__keep_latest_k": 2.5}, "rollout_checkpointing.keep_latest_k"),
    ],
)
def test_wrong_shapes_are_defects(values, location) -> None:
    """Our section is strict, and values of the others that we use have a type."""
    with pytest.raises(DefectError) as refusal:
        decoded(changed(**values))

    assert location in {defect.location for defect in refusal.value.defects}


def test_endpoint_groups() -> None:
    """Servers may stand in named groups; which are too many is discovery's business."""
    one = {"url": "http://a"}
    raw = changed(ckptctl__participants={"m": one, "shard_1": {"n": one}})

    assert {"", "shard_1"} == set(decoded(raw).sections.ckptctl.groups())
    assert {"m": "http://a", "n": "http://a"} == decoded(raw).sections.ckptctl.urls()


def test_loading_says_what_is_wrong_with_the_file() -> None:
    """No name, no file, no YAML, no section of ours: each refused in plain words."""
    for path, data, text in (
        ("other.yaml", b"", "does not exist"),
        ("run.yaml", b"a: [", "is wrong: "),
        ("run.yaml", encode_yaml(changed(checkpointing__enabled=1, token_capture__enabled=2)), r"\(and 1 more\)"),
    ):
        with pytest.raises(ConfigError, match=text):
            load_config(OneFile(data), path, "/srv")
    with pytest.raises(UsageError, match="needs a run configuration"):
        load_config(OneFile(b""), None, "/srv")
    config = load_config(OneFile(encode_yaml(changed(ckptctl=...))), "run.yaml", "/srv")
    with pytest.raises(ConfigError, match="says where the controller and the participants listen"):
        require_own(config)
