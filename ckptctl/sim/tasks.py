"""What an agent is asked to do: the body of `/run` for one sibling's attempt, and which environment and agent a prompt gets.

Restarted, continued and first dispatches differ in the attempt index alone; everything else follows from prompt and
generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ckptctl.domain.ledger import Granularity, Group
from ckptctl.sim.controller_settings import ControllerSettings
from ckptctl.sim.environments import require_kind


def task_source(environment: str) -> str:
    """What the ledger, and a configuration's overrides, call the prompts of an environment."""
    return f"{environment}-tasks"


def environment_of(settings: ControllerSettings, row: int) -> str:
    """The environment of a dataset's row: they take turns."""
    return settings.environments[row % len(settings.environments)]


def agent_of(settings: ControllerSettings, row: int, agents: Sequence[str]) -> str:
    """The agent of a dataset's row: they take turns too, so that each plays every environment."""
    return agents[row // len(settings.environments) % len(agents)]


def granularity_of(settings: ControllerSettings, environment: str) -> Granularity:
    """What a restart keeps of an unfinished group of this environment."""
    return require_kind(environment).granularity or settings.granularity


def run_body(settings: ControllerSettings, group: Group, generation_index: int, attempt_index: int) -> dict[str, Any]:
    """The body of `/run`."""
    environment = environment_of(settings, int(group.prompt_id))
    parameters: dict[str, Any] = {require_kind(environment).asks: settings.turns}
    if require_kind(environment).awaits is not None:
        parameters["siblings"] = group.expected_generations
    return {
        "_ng_rollout_id": group.rollout_of(group.siblings[generation_index]),
        "_ng_attempt_index": attempt_index,
        "environment": environment,
        "prompt": f"{environment} task {group.prompt_id}",
        "parameters": parameters,
    }
