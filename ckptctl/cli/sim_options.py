"""The options of `ckptctl sim up` (what a cluster is made of) and `sim fault`. Meanings and defaults are `sim.cluster_options`'
and `sim.fault_order`'s.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ckptctl.errors import UsageError

if TYPE_CHECKING:
    from ckptctl.sim.cluster_options import ClusterOptions


class GranularityName(StrEnum):
    """What a restart keeps of an unfinished group."""

    SIBLING = "sibling"
    PROMPT_GROUP = "prompt_group"


class DataPlaneName(StrEnum):
    """Where the controller keeps its rows."""

    EMBEDDED = "embedded"
    TRANSFERQUEUE = "transferqueue"


DEFAULT_ENVIRONMENTS = ("counter",)
EnvironmentsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help="An environment that rollouts play: counter, workplace or genrm; repeatable. Default: counter.",
        show_default=False,
    ),
]
AgentsOption = Annotated[int, typer.Option("--agents", min=1, help="Agents; each plays every environment.")]
PromptsOption = Annotated[int, typer.Option("--prompts", min=1, help="Rows of the dataset.")]
GenerationsOption = Annotated[int, typer.Option("--generations", min=1, help="Rollouts per prompt.")]
TurnsOption = Annotated[
    int,
    typer.Option(
        "--turns",
        min=1,
        help="What one rollout is asked to do: increments in counter, steps in workplace, model calls in genrm.",
    ),
]
WorkersOption = Annotated[int, typer.Option("--workers", min=1, help="Policy workers.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Fixes prompts, tokens, tool calls and rewards.")]
TurnDelayOption = Annotated[
    float, typer.Option("--turn-delay", min=0, help="Seconds an agent thinks before each action.")
]
GenerationDelayOption = Annotated[
    float, typer.Option("--generation-delay", min=0, help="Seconds each model call takes.")
]
GroupsPerStepOption = Annotated[int, typer.Option("--groups-per-step", min=1, help="Prompts of one training step.")]
InFlightOption = Annotated[int, typer.Option("--in-flight", min=1, help="Rollouts at the agents at one time.")]
TrainEveryOption = Annotated[
    int,
    typer.Option("--train-every", min=0, help="Train by itself when so many groups are finished; 0: only `sim step`."),
]
GranularityOption = Annotated[
    GranularityName, typer.Option("--granularity", help="What a restart keeps of an unfinished group.")
]
DataPlaneOption = Annotated[
    DataPlaneName,
    typer.Option(
        "--data-plane",
        help="Rows in the controller's process, or in a live TransferQueue on a Ray of its own (`ckptctl[transferqueue]`).",
    ),
]
AcknowledgeIntervalOption = Annotated[
    float,
    typer.Option("--acknowledge-interval", min=0, help="Seconds between two rounds of the controller's own flusher."),
]
PrepareTimeoutOption = Annotated[
    float,
    typer.Option("--prepare-timeout", min=0.1, help="`prepare_timeout_s` of the configuration that is written."),
]
RestoreExpectedOption = Annotated[
    bool, typer.Option("--restore-expected", help="Fresh processes that wait for `ckptctl restore`.")
]

FAULT_KINDS = (
    "refuse", "status", "lost", "slow", "stall", "late", "drop", "cut", "wrong_digest", "wrong_count", "rubbish", "clock",
    "orphan_session", "uncertain_session",
)  # fmt: skip
"""As `sim.fault_order.Kind` (a test compares them); said here, because help must not import the cluster."""
ServerOption = Annotated[
    str | None, typer.Option("--server", help="Which server, by name (see --list).", show_default=False)
]
OperationOption = Annotated[
    str | None,
    typer.Option(
        "--operation",
        help="Which requests: an operation, or a pattern with * (see --list). Default: any.",
        show_default=False,
    ),
]
FaultKindOption = Annotated[
    str | None, typer.Option("--kind", help=f"What goes wrong: {', '.join(FAULT_KINDS)}.", show_default=False)
]
CodeOption = Annotated[str | None, typer.Option("--code", help="With `refuse`: the code.", show_default=False)]
HttpStatusOption = Annotated[
    int | None,
    typer.Option(
        "--status", min=400, max=599, help="With `status`: the HTTP status. Default: 500.", show_default=False
    ),
]
TimesOption = Annotated[
    int | None,
    typer.Option("--times", min=0, help="How many requests it hits; 0: until cleared. Default: 1.", show_default=False),
]
DelayOption = Annotated[
    float | None,
    typer.Option(
        "--delay",
        help="Seconds, for the kinds that wait; for `clock`, negative too. Default: 0.",
        show_default=False,
    ),
]
RolloutOption = Annotated[
    str | None, typer.Option("--rollout", help="For planted sessions: which rollout.", show_default=False)
]
ClearOption = Annotated[bool, typer.Option("--clear", help="Forget every fault of this server.")]
ListOption = Annotated[bool, typer.Option("--list", help="List servers, their operations and kinds of faults.")]

_NAMES = {"environments": "--env", "max_in_flight": "--in-flight", "train_every_groups": "--train-every"}
"""Fields of a cluster's options whose names are not those of the command line."""


def options_of(**fields: Any) -> ClusterOptions:
    """What a cluster is made of. Raises UsageError for a value that it cannot have, such as `inf` seconds or an empty name."""
    from pydantic import ValidationError

    from ckptctl.domain.document import reason_of
    from ckptctl.domain.safe_text import shown
    from ckptctl.sim.cluster_options import ClusterOptions

    try:
        return ClusterOptions(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = str(first["loc"][0])
        option = _NAMES.get(field, f"--{field.removesuffix('_s').replace('_', '-')}")
        raise UsageError(
            f"`{option}` cannot be {shown(first['input'])}: {reason_of(first['msg'])}",
            hint="see `ckptctl sim up --help`",
        ) from None
