"""Which configuration values rule a coordinated snapshot or restore out (design section 5, snapshot-layout section 11).

Each problem says what is wrong at which key, and why; all of them are found in one pass. The shape of the file was
checked when it was decoded; what live servers say is `planning.discovery`'s business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ckptctl.domain.config import ConfigProblem, Purpose, RunConfig

GRANULARITIES = ("sibling", "prompt_group")
OLD_NAMES = (
    ("rollout_checkpointing", "interval_s", "rollout_checkpointing.snapshot_attempt_interval_s"),
    ("data_plane", "checkpointing_enabled", "checkpointing.save_data_plane"),
)
"""Keys by which an older run is recognised, and what they became."""


def config_problems(config: RunConfig, purpose: Purpose) -> tuple[ConfigProblem, ...]:
    """Every value of the configuration that rules `purpose` out."""
    return (
        *_old_names(config.raw),
        *_checkpointing(config),
        *_token_capture(config),
        *_rollout_checkpointing(config, purpose),
        *_gym(config, purpose),
        *_recovery(config),
    )


def _old_names(raw: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    for section, key, today in OLD_NAMES:
        found = raw.get(section)
        if isinstance(found, Mapping) and key in found:
            problem = "is the name that an older NeMo-RL used; its snapshots have another format"
            yield ConfigProblem(
                f"{section}.{key}", problem, f"write `{today}`, and begin with a checkpoint directory of its own"
            )


def _checkpointing(config: RunConfig) -> Iterator[ConfigProblem]:
    section = config.sections.checkpointing
    if not section.enabled:
        problem = "is not true: a snapshot belongs to a trainer checkpoint, and this run writes none"
        yield ConfigProblem("checkpointing.enabled", problem, "set it to true")
    if section.checkpoint_dir is None:
        yield ConfigProblem(
            "checkpointing.checkpoint_dir", "is missing: there is no place for snapshots", "name the directory"
        )
    elif "${" in section.checkpoint_dir:
        problem = "holds a reference to another key, which only NeMo-RL resolves"
        yield ConfigProblem("checkpointing.checkpoint_dir", problem, "give ckptctl the resolved configuration")
    if not section.save_data_plane:
        problem = "is not true: without the data plane the token rows of unfinished rollouts are lost"
        yield ConfigProblem("checkpointing.save_data_plane", problem, "set it to true")
    backend = config.sections.data_plane.backend
    if backend != "simple":
        problem = f"is `{backend}`: only the backend `simple` can be saved and loaded"
        yield ConfigProblem("data_plane.backend", problem, "set it to `simple`")


def _token_capture(config: RunConfig) -> Iterator[ConfigProblem]:
    if not config.sections.token_capture.enabled:
        problem = "is not true: without captured tokens a restored rollout has no history to train on"
        yield ConfigProblem("token_capture.enabled", problem, "set it to true")
        return
    attempts = config.sections.async_rl.rollout_failure.nemo_gym.max_row_attempts
    if config.sections.checkpointing.enabled and attempts != 1:
        problem = f"is {attempts}: a retry inside NeMo Gym would dispatch the same stable execution identity twice"
        yield ConfigProblem("async_rl.rollout_failure.nemo_gym.max_row_attempts", problem, "set it to 1")


def _rollout_checkpointing(config: RunConfig, purpose: Purpose) -> Iterator[ConfigProblem]:
    section = config.sections.rollout_checkpointing
    here = "rollout_checkpointing"
    interval_s = section.snapshot_attempt_interval_s
    if interval_s is None:
        problem = "is null or missing, which turns saving and restoring of snapshots off"
        yield ConfigProblem(
            f"{here}.snapshot_attempt_interval_s",
            problem,
            "set it to the seconds between two snapshots, for example 120",
        )
    elif interval_s <= 0:
        yield ConfigProblem(
            f"{here}.snapshot_attempt_interval_s", f"is {interval_s:g}: it must be above 0", "for example 120"
        )
    if section.keep_latest_k < 1:
        problem = f"is {section.keep_latest_k}: at least one snapshot must survive"
        yield ConfigProblem(f"{here}.keep_latest_k", problem, "set it to 1 or more")
    if section.restore_mode not in ("latest", "trainer_checkpoint"):
        problem = f"is `{section.restore_mode}`, which is no restore mode"
        yield ConfigProblem(f"{here}.restore_mode", problem, "set it to `latest`")
    elif section.restore_mode != "latest" and (config.takes_participants or purpose == "snapshot"):
        problem = f"is `{section.restore_mode}`: a snapshot that is taken would never be restored"
        hint = "set it to `latest`"
        if purpose == "restore":
            hint += (
                "; to start from the trainer checkpoint alone, without the turns in flight, also set "
                "`rollout_checkpointing.gym.participant_checkpointing_enabled: false` and start the servers without a restore"
            )
        yield ConfigProblem(f"{here}.restore_mode", problem, hint)
    for pattern in section.extra_fingerprint_excluded_paths:
        if not pattern or pattern != pattern.strip() or "" in pattern.split(".") or pattern in ("*", "**"):
            problem = f"holds `{pattern}`: a pattern is not empty, not padded, has no empty segment and does not match everything"
            yield ConfigProblem(f"{here}.extra_fingerprint_excluded_paths", problem, "name the key path to leave out")


def _gym(config: RunConfig, purpose: Purpose) -> Iterator[ConfigProblem]:
    section = config.sections.rollout_checkpointing.gym
    here = "rollout_checkpointing.gym"
    if section.prepare_timeout_s <= 0:
        problem = f"is {section.prepare_timeout_s:g}: nothing can be prepared in no time"
        yield ConfigProblem(f"{here}.prepare_timeout_s", problem, "for example 300")
    if not section.participant_checkpointing_enabled:
        if purpose == "snapshot":
            problem = "is not true: the turns of unfinished rollouts would not be in the snapshot"
            yield ConfigProblem(f"{here}.participant_checkpointing_enabled", problem, "set it to true")
        return
    if not section.capability_discovery_enabled:
        problem = "is not true, but participants are to be checkpointed: what is not discovered cannot be prepared"
        yield ConfigProblem(f"{here}.capability_discovery_enabled", problem, "set it to true")


def _recovery(config: RunConfig) -> Iterator[ConfigProblem]:
    section = config.sections.rollout_recovery
    named = [("default_granularity", section.default_granularity)]
    named += [
        (f"agent_granularity_overrides.{key}", value) for key, value in section.agent_granularity_overrides.items()
    ]
    named += [
        (f"task_source_granularity_overrides.{key}", value)
        for key, value in section.task_source_granularity_overrides.items()
    ]
    for key, value in named:
        if value not in GRANULARITIES:
            problem = f"is `{value}`, which is no recovery granularity"
            yield ConfigProblem(f"rollout_recovery.{key}", problem, "use `sibling` or `prompt_group`")
