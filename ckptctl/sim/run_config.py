"""The run configuration of an embedded cluster: NeMo-RL's sections with this run's values, and ours with the urls.

What decides results (seed, prompts, turns, generations) stands where the fingerprint sees it; urls stand in our own section,
which is no part of the run: a restarted cluster has other ports and the same fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ckptctl.sim.cluster_options import CHECKPOINTS_FOLDER, TOKEN_FILE, ClusterOptions
from ckptctl.sim.environments import require_kind, servers_of
from ckptctl.sim.settings import TOKEN_ENV
from ckptctl.sim.tasks import task_source

POLICY_MODEL, AGENT = "policy_model", "simple_agent"
STAGING_PARTITION = "rollout_staging"
LEAST_CAPACITY = 64


def capacity(options: ClusterOptions) -> int:
    """How many groups the buffer takes: a whole epoch without training, and the next admissions."""
    return max(LEAST_CAPACITY, 2 * options.prompts)


def agent_names(options: ClusterOptions) -> tuple[str, ...]:
    """What the agents of a cluster are called."""
    return (AGENT, *(f"{AGENT}_{number}" for number in range(2, options.agents + 1)))


def run_config(run_dir: str, options: ClusterOptions, urls: Mapping[str, str]) -> dict[str, Any]:
    """The whole file. `urls` has the controller and every participant by name."""
    participants = {name: {"url": url} for name, url in urls.items() if name != "controller"}
    return {
        **_training(options),
        **_checkpointing(run_dir, options),
        "ckptctl": {
            "controller": {"url": urls["controller"]},
            "participants": participants,
            "token_env": TOKEN_ENV,
            "token_file": f"{run_dir}/{TOKEN_FILE}",
            "control_timeout_s": 30,
        },
    }


def _training(options: ClusterOptions) -> dict[str, Any]:
    environments = options.environments
    return {
        "grpo": {
            "seed": options.seed,
            "num_generations_per_prompt": options.generations,
            "num_prompts_per_step": options.groups_per_step,
        },
        "data": {
            "shuffle": True,
            "train": {"dataset_name": f"ckptctl/{'+'.join(environments)}-tasks", "prompts": options.prompts},
        },
        "policy": {
            "model_name": "ckptctl/simulated-policy",
            "tokenizer": {"name": "ckptctl/simulated-policy"},
            "generation": {"backend": "simulated", "temperature": 1.0},
        },
        "env": {
            "nemo_gym": {
                POLICY_MODEL: {"responses_api_models": {"num_workers": options.workers}},
                **{name: {"responses_api_agents": {"model_server": POLICY_MODEL}} for name in agent_names(options)},
                **{
                    name: {"resources_servers": {"domain": name, "turns": options.turns}}
                    for name in servers_of(environments)
                },
            }
        },
        "async_rl": {
            "max_buffered_rollouts": capacity(options),
            "sampler": {"name": "windowed", "max_staleness_versions": capacity(options)},
            "rollout_failure": {"nemo_gym": {"max_row_attempts": 1}},
        },
    }


def _checkpointing(run_dir: str, options: ClusterOptions) -> dict[str, Any]:
    return {
        "checkpointing": {
            "enabled": True,
            "checkpoint_dir": f"{run_dir}/{CHECKPOINTS_FOLDER}",
            "save_data_plane": True,
            "save_period": 1,
        },
        "data_plane": {"enabled": True, "backend": "simple", "num_storage_units": options.storage_units},
        "token_capture": {"enabled": True, "staging_partition": STAGING_PARTITION},
        "rollout_recovery": {
            "default_granularity": options.granularity,
            "agent_granularity_overrides": {},
            "task_source_granularity_overrides": {
                task_source(name): kind.granularity
                for name in options.environments
                if (kind := require_kind(name)).granularity is not None
            },
        },
        "rollout_checkpointing": {
            "snapshot_attempt_interval_s": 120,
            "restore_mode": "latest",
            "keep_latest_k": options.keep_latest_k,
            "gym": {
                "capability_discovery_enabled": True,
                "participant_checkpointing_enabled": True,
                "prepare_timeout_s": options.prepare_timeout_s,
            },
        },
    }
