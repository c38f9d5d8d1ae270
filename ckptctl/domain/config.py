"""The run configuration as far as it concerns us: NeMo-RL's own sections and ours (design section 4, snapshot-layout
section 11).

NeMo-RL's sections keep whatever else they hold; ours refuses what it does not know. Shapes and defaults only: whether
the values fit a coordinated snapshot is `planning.config_checks`' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from ckptctl.domain.document import Count, Document, Id, LenientDocument, NonEmpty

DEFAULT_TOKEN_ENV = "NEMO_GYM_CHECKPOINT_CONTROL_TOKEN"  # noqa: S105 - the name of a variable, not its value
Seconds = Annotated[float, Field(gt=0)]


def _demand_system_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL: the system has no such name")
    return text


SystemText = Annotated[NonEmpty, AfterValidator(_demand_system_text)]
"""A path or the name of a variable, as the system takes it: what else may not be in it only the system knows."""


def _demand_url(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be a url without control characters")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a http or https url")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must be a url without credentials, query and fragment")
    return text


class Endpoint(Document):
    """Where a server listens."""

    url: Annotated[str, AfterValidator(_demand_url)]


Group = dict[Id, Endpoint]


class OwnSection(Document):
    """`ckptctl`: the only section that is ours."""

    controller: Endpoint
    participants: dict[Id, Endpoint | Group] = Field(default_factory=dict)
    """NeMo-RL's server name -> endpoint, or the name of an endpoint group -> such a mapping (more than one is refused)."""
    token_env: SystemText = DEFAULT_TOKEN_ENV
    token_file: SystemText | None = None
    control_timeout_s: Seconds = 60.0

    def groups(self) -> dict[str, Group]:
        """The endpoint groups by name; servers outside any group are the group ``."""
        flat = {name: item for name, item in self.participants.items() if isinstance(item, Endpoint)}
        named = {name: item for name, item in self.participants.items() if not isinstance(item, Endpoint)}
        return {**({"": flat} if flat else {}), **named}

    def urls(self) -> dict[str, str]:
        """Server name -> url, over all groups."""
        return {name: item.url for group in self.groups().values() for name, item in group.items()}


class CheckpointingSection(LenientDocument):
    """`checkpointing`."""

    enabled: bool = False
    checkpoint_dir: SystemText | None = None
    save_data_plane: bool = False


class TokenCaptureSection(LenientDocument):
    """`token_capture`."""

    enabled: bool = False
    staging_partition: NonEmpty = "rollout_staging"


class NemoGymFailures(LenientDocument):
    """`async_rl.rollout_failure.nemo_gym`."""

    max_row_attempts: int = 3


class RolloutFailures(LenientDocument):
    """`async_rl.rollout_failure`."""

    nemo_gym: NemoGymFailures = NemoGymFailures()


class AsyncRlSection(LenientDocument):
    """`async_rl`."""

    rollout_failure: RolloutFailures = RolloutFailures()


class GymSection(LenientDocument):
    """`rollout_checkpointing.gym`."""

    capability_discovery_enabled: bool = False
    participant_checkpointing_enabled: bool = False
    prepare_timeout_s: float = 300.0


class RolloutCheckpointingSection(LenientDocument):
    """`rollout_checkpointing`."""

    snapshot_attempt_interval_s: float | None = None
    keep_latest_k: int = 2
    restore_mode: str = "latest"
    max_consecutive_failures: int = 3
    extra_fingerprint_excluded_paths: list[str] = Field(default_factory=list)
    gym: GymSection = GymSection()


class RolloutRecoverySection(LenientDocument):
    """`rollout_recovery`."""

    default_granularity: str = "sibling"
    agent_granularity_overrides: dict[str, str] = Field(default_factory=dict)
    task_source_granularity_overrides: dict[str, str] = Field(default_factory=dict)


class DataPlaneSection(LenientDocument):
    """`data_plane`."""

    backend: str = "simple"
    num_storage_units: Count | None = None


class RunSections(LenientDocument):
    """The top level of the file."""

    checkpointing: CheckpointingSection = CheckpointingSection()
    token_capture: TokenCaptureSection = TokenCaptureSection()
    async_rl: AsyncRlSection = AsyncRlSection()
    rollout_checkpointing: RolloutCheckpointingSection = RolloutCheckpointingSection()
    rollout_recovery: RolloutRecoverySection = RolloutRecoverySection()
    data_plane: DataPlaneSection = DataPlaneSection()
    ckptctl: OwnSection | None = None


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A configuration file as read. `raw` is the whole of it, for fingerprints; it may hold secrets and is never printed."""

    path: str
    raw: Mapping[str, Any]
    sections: RunSections
    checkpoint_dir: str
    """Absolute; empty when the file names none."""

    @property
    def takes_participants(self) -> bool:
        """Whether snapshots hold Gym state."""
        return self.sections.rollout_checkpointing.gym.participant_checkpointing_enabled

    @property
    def prepare_timeout_s(self) -> float:
        """Bound of closing, draining and preparing together."""
        return self.sections.rollout_checkpointing.gym.prepare_timeout_s


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """A value that rules coordinated snapshots out, why, and what to write instead."""

    location: str
    problem: str
    hint: str


Purpose = Literal["snapshot", "restore"]
