"""What a Gym participant process is started with: one JSON file that the cluster writes, one model per role.

The control token is never in it: each process reads it from the environment variable `token_env`. A process serves exactly
`host:port` and is ready when `GET /ng-control/v1/capabilities` (a worker: `GET /sim/v1/worker/status`) answers.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from ckptctl.domain.document import Document, Id, NonEmpty

TOKEN_ENV = "NEMO_GYM_CHECKPOINT_CONTROL_TOKEN"  # noqa: S105 - the name of a variable, no token
Seconds = Annotated[float, Field(ge=0)]
Port = Annotated[int, Field(ge=0, le=65535)]


class ServerSettings(Document):
    """What every role has."""

    name: Id
    """The server's own name; the configuration uses the same."""
    host: NonEmpty = "127.0.0.1"
    port: Port
    token_env: NonEmpty = TOKEN_ENV
    run_dir: NonEmpty
    """Where audit logs go; shared by all incarnations of a cluster."""
    incarnation: Annotated[int, Field(ge=1)] = 1
    """How many times this cluster was started; audit lines carry it."""
    seed: int = 7
    restore_expected: bool = False
    """A fresh process of a cluster that is about to be restored: a resources server refuses its data plane until then."""


class PolicyModelSettings(ServerSettings):
    """The policy model's front end."""

    role: Literal["policy_model"] = "policy_model"
    workers: Annotated[dict[Id, NonEmpty], Field(min_length=1)]
    """Worker name -> url. The workers are processes of their own, started by the cluster."""
    controller_url: NonEmpty
    """Where staged rows are put and the weight version is asked for."""
    staging_partition: NonEmpty = "rollout_staging"
    capture_dir: NonEmpty
    """Lineage files live here. Must hold none when a restore is expected: give every incarnation a new one."""


class PolicyWorkerSettings(ServerSettings):
    """One policy worker: it turns a history into tokens."""

    role: Literal["policy_worker"] = "policy_worker"
    generation_delay_s: Seconds = 0.0
    """How long each call takes."""


class AgentSettings(ServerSettings):
    """An agent."""

    role: Literal["agent"] = "agent"
    peers: dict[Id, NonEmpty]
    """Model and resources servers by name -> url."""
    model_server: Id = "policy_model"
    """Which peer answers model calls of tasks that name none."""
    action_delay_s: Seconds = 0.0
    """How long the agent thinks before each action."""


class ResourcesSettings(ServerSettings):
    """A resources server."""

    role: Literal["resources"] = "resources"
    environment: NonEmpty
    """A name of `environments.SERVERS`."""
    action_delay_s: Seconds = 0.0
    """How long each call takes, under the session's lock."""


class QueueSettings(ServerSettings):
    """The owner of a live TransferQueue."""

    role: Literal["transferqueue"] = "transferqueue"
    storage_units: Annotated[int, Field(ge=1)] = 2


RoleSettings = PolicyModelSettings | PolicyWorkerSettings | AgentSettings | ResourcesSettings | QueueSettings
_ADAPTER: TypeAdapter[RoleSettings] = TypeAdapter(Annotated[RoleSettings, Field(discriminator="role")])


def decode_settings(data: bytes) -> RoleSettings:
    """Read a settings file. Raises pydantic's ValidationError."""
    return _ADAPTER.validate_json(data)
