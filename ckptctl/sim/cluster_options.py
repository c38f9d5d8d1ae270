"""What an embedded cluster is made of: the options of `ckptctl sim up`, and the record of a running cluster in its directory.

DIR/cluster.json      this record: options, incarnation, every process with pid, start time, url and log
DIR/ckptctl.yaml      the run configuration, as ckptctl takes it with --config
DIR/control.token     the control token, mode 0600
DIR/settings/         one start file per process           DIR/logs/        what the processes print
DIR/capture/<n>/      lineage files of incarnation n       DIR/checkpoints/ anchors and snapshots
DIR/*.jsonl           results, dispatches, restores, audits; they outlive every incarnation
"""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from ckptctl.adapters import durable
from ckptctl.domain.canonical import pretty2_nl
from ckptctl.domain.document import Count, Document, Id, NonEmpty
from ckptctl.domain.ledger import Granularity
from ckptctl.domain.safe_text import safe
from ckptctl.errors import NothingThereError, UsageError
from ckptctl.sim.plane import PlaneKind
from ckptctl.sim.processes import ProcessIdentity
from ckptctl.sim.settings import Seconds

Positive = Annotated[int, Field(ge=1)]
RECORD_FILE, CONFIG_FILE, TOKEN_FILE = "cluster.json", "ckptctl.yaml", "control.token"
SETTINGS_FOLDER, LOGS_FOLDER, CAPTURE_FOLDER, CHECKPOINTS_FOLDER = "settings", "logs", "capture", "checkpoints"


class ClusterOptions(Document):
    """What is the same in every incarnation of a cluster."""

    environments: Annotated[tuple[NonEmpty, ...], Field(min_length=1)] = ("counter",)
    """Prompts go to them in turn; each has a resources server of its own."""
    agents: Positive = 1
    prompts: Positive = 8
    generations: Positive = 2
    turns: Positive = 6
    """What one rollout is asked to do: increments in `counter`, steps in `workplace`, model calls in `genrm`."""
    workers: Positive = 2
    seed: int = 7
    turn_delay_s: Seconds = 0.0
    """How long an agent thinks before each action."""
    generation_delay_s: Seconds = 0.0
    """How long each model call takes."""
    groups_per_step: Positive = 2
    max_in_flight: Positive = 8
    train_every_groups: Count = 0
    granularity: Granularity = "sibling"
    data_plane: PlaneKind = "embedded"
    """Where the rows are: in the controller's process, or in a live TransferQueue that the cluster starts and ends."""
    storage_units: Positive = 2
    acknowledge_interval_s: Seconds = 0.02
    finalize_delay_s: Seconds = 0.0
    publish_delay_s: Seconds = 0.0
    prepare_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    keep_latest_k: Positive = 2


class ProcessRecord(Document):
    """One process of a cluster."""

    name: Id
    role: Literal["controller", "policy_model", "policy_worker", "agent", "resources", "transferqueue"]
    pid: Count
    start_ticks: int
    url: NonEmpty
    log: NonEmpty

    @property
    def identity(self) -> ProcessIdentity:
        """By which it is signalled."""
        return ProcessIdentity(self.pid, self.start_ticks)


class ClusterRecord(Document):
    """`cluster.json`."""

    schema_version: Literal[1] = 1
    run_dir: NonEmpty
    incarnation: Positive
    restore_expected: bool
    started_at: float
    options: ClusterOptions
    processes: list[ProcessRecord]

    @property
    def config_path(self) -> str:
        """The configuration to give to ckptctl."""
        return f"{self.run_dir}/{CONFIG_FILE}"

    @property
    def checkpoint_dir(self) -> str:
        """Where anchors and snapshots are."""
        return f"{self.run_dir}/{CHECKPOINTS_FOLDER}"

    def url_of(self, name: str) -> str:
        """Where a process listens. Raises UsageError for an unknown name."""
        for process in self.processes:
            if process.name == name:
                return process.url
        names = ", ".join(sorted(process.name for process in self.processes)) or "none"
        raise UsageError(f"this cluster has no server `{name}`", hint=f"its servers: {names}")

    def token(self) -> str:
        """The control token. Raises StorageError."""
        path = f"{self.run_dir}/{TOKEN_FILE}"
        try:
            return Path(path).read_text(encoding="ascii").strip()
        except OSError as error:
            raise durable.storage_error("read", path, error) from error


def read_record(run_dir: str) -> ClusterRecord:
    """The record of a cluster. Raises NothingThereError, UsageError, StorageError."""
    path = f"{run_dir}/{RECORD_FILE}"
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError as error:
        hint = f"start one with `ckptctl sim up --dir {quote(safe(run_dir))}`"
        raise NothingThereError(f"`{run_dir}` holds no embedded cluster", hint=hint) from error
    except NotADirectoryError as error:
        hint = "give the directory that `ckptctl sim up --dir` was given, not a file in it"
        raise UsageError(f"`{run_dir}` is no directory, so no embedded cluster runs in it", hint=hint) from error
    except OSError as error:
        raise durable.storage_error("read", path, error) from error
    try:
        return ClusterRecord.model_validate_json(data)
    except ValidationError as error:
        what = "; ".join(f"`{'.'.join(map(str, item['loc']))}` {item['msg']}".lower() for item in error.errors()[:3])
        hint = "`ckptctl sim` cannot end what still runs of it: do that by hand, then remove the file"
        raise UsageError(f"`{path}` is no record of an embedded cluster: {safe(what)}", hint=hint) from error


def write_record(record: ClusterRecord) -> None:
    """Write the record. Raises StorageError."""
    durable.write_file(f"{record.run_dir}/{RECORD_FILE}", pretty2_nl(record.model_dump(mode="json")))
