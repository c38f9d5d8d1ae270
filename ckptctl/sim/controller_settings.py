"""What a controller process is started with: one JSON file that the cluster writes, like the participants' (`settings`).

The run configuration (`ckptctl.yaml`) holds what decides results and belongs to the fingerprint; this holds what
only concerns one process: places, other servers, timings, and the run's numbers again, so that nobody has to look
them up in foreign sections.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ckptctl.domain.document import Count, Id, NonEmpty
from ckptctl.domain.ledger import Granularity
from ckptctl.sim.plane import PlaneKind
from ckptctl.sim.settings import Seconds, ServerSettings

Positive = Annotated[int, Field(ge=1)]


class ControllerSettings(ServerSettings):
    """The start parameters of one controller process. `run_dir` is where the logs are appended."""

    role: Literal["controller"] = "controller"
    name: Id = "controller"
    config_path: NonEmpty
    """The run configuration; its `ckptctl` section is not part of the run."""
    agents: Annotated[dict[Id, NonEmpty], Field(min_length=1)]
    """Agent name -> url; rollouts go to them in turn by prompt."""
    environments: Annotated[tuple[NonEmpty, ...], Field(min_length=1)] = ("counter",)
    """Prompts go to them in turn."""
    prompts: Positive = 8
    generations: Positive = 2
    turns: Positive = 6
    groups_per_step: Positive = 2
    """Prompts drawn together: one admission, one target step, one training batch."""
    granularity: Granularity = "sibling"
    max_in_flight: Positive = 8
    """Rollouts that may be at the agents at one time."""
    capacity: Positive = 64
    """Finished and unfinished groups that may exist at one time."""
    data_plane: PlaneKind = "embedded"
    queue_url: NonEmpty | None = None
    """Where the owner of the live queue says which Ray runs it, with `data_plane: transferqueue`."""
    storage_units: Positive = 2
    unit_size: Positive = 1000
    """Of an embedded data plane; a live queue has its own."""
    canonical_partition: NonEmpty = "rollout_data"
    staging_partition: NonEmpty = "rollout_staging"
    acknowledge_interval_s: Seconds = 0.02
    """How long the background flusher rests between two rounds; long ones let a coordinator's drain win the race."""
    finalize_delay_s: Seconds = 0.0
    publish_delay_s: Seconds = 0.0
    train_every_groups: Count = 0
    """Train by itself whenever so many groups are finished; 0 = only when told."""
