"""The trainer's part: the bootstrap anchor, step anchors, the counters that snapshots are bound to, and the weight version.

It decides when an anchor is durable (tmp_step_N, then the rename) and refuses to start where the checkpoint
directory belongs to another configuration. Which groups a step trains on, and what training does to the data plane,
is the rollout loop's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ckptctl.adapters import durable
from ckptctl.domain.binding import BootstrapManifest, TrainingInfo
from ckptctl.domain.canonical import pretty2
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import DefectError
from ckptctl.domain.fingerprint import (
    bootstrap_fingerprint,
    bootstrap_identity,
    extra_excluded_paths,
    identity_differences,
    redact,
)
from ckptctl.domain.ids import BOOTSTRAP_FOLDER, step_number
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.errors import AnchorRefusedError
from ckptctl.formats.anchor_files import decode_bootstrap, decode_training_info, encode_bootstrap, encode_training_info
from ckptctl.formats.config_file import encode_yaml

SNAPSHOT_SCHEMA_VERSION = 4
CONFIG_MODE = 0o600
TMP_PREFIX = "tmp_step_"
"""An anchor that is being written."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What a train step leaves in its anchor besides the weights."""

    samples: int
    tokens: int
    epoch: int
    sampler_dispatch_index: int
    dataloader: bytes


class Trainer:
    """One trainer over one checkpoint directory. File work is synchronous: run it in a thread."""

    def __init__(self, *, checkpoint_dir: str, config: Mapping[str, Any], sampler_name: str) -> None:
        self.checkpoint_dir = checkpoint_dir
        self.config = dict(config)
        self.sampler_name = sampler_name
        self.train_step = 0
        self.trainer_version = 0
        self.anchor: str | None = None
        self.is_busy = False
        self._consumed_samples = 0
        self._valid_tokens = 0
        self._fingerprint: str | None = None

    @property
    def bootstrap_fingerprint(self) -> str | None:
        """The fingerprint that snapshots carry: only under the bootstrap anchor."""
        return self._fingerprint if self.anchor == BOOTSTRAP_FOLDER else None

    def start(self) -> TrainingInfo | None:
        """Take over the newest step anchor, or write (or compare) the bootstrap anchor. Returns the step's training info.

        Raises:
            AnchorRefusedError: the directory belongs to another configuration, or its newest anchor cannot be read.
            StorageError: the anchor cannot be written.
        """
        durable.make_directory(self.checkpoint_dir)
        steps = [
            number for path in Path(self.checkpoint_dir).iterdir() if (number := step_number(path.name)) is not None
        ]
        if steps:
            return self._take_over(max(steps))
        self._bootstrap()
        self.anchor = BOOTSTRAP_FOLDER
        return None

    def publish_step(self, facts: StepFacts) -> str:
        """Write the next step's anchor and make it durable. Returns its folder; the counters move with `finish_step`."""
        number = self.train_step + 1
        folder = f"{self.checkpoint_dir}/{TMP_PREFIX}{number}"
        durable.remove_tree(folder)
        for name, data in self._step_files(number, facts).items():
            path = f"{folder}/{name}"
            durable.make_directory(path.rpartition("/")[0])
            durable.write_file(path, data, mode=CONFIG_MODE if name == "config.yaml" else None)
        durable.sync_tree(folder)
        durable.rename(folder, f"{self.checkpoint_dir}/step_{number}")
        return f"step_{number}"

    def finish_step(self, folder: str, facts: StepFacts) -> None:
        """The published step is the anchor from now on."""
        self.train_step += 1
        self.trainer_version += 1
        self.anchor = folder
        self._consumed_samples += facts.samples
        self._valid_tokens += facts.tokens

    def _step_files(self, number: int, facts: StepFacts) -> dict[str, bytes]:
        info = TrainingInfo(
            consumed_samples=self._consumed_samples + facts.samples,
            current_step=number,
            current_epoch=facts.epoch,
            total_steps=number,
            total_valid_tokens=self._valid_tokens + facts.tokens,
            trainer_version=self.trainer_version + 1,
            sampler_name=self.sampler_name,
            sampler_dispatch_index=facts.sampler_dispatch_index,
        )
        weights = pretty2(
            {"stands_for": "policy weights", "train_step": number, "digest": sha256_hex(f"step {number}".encode())}
        )
        return {
            "policy/weights/weights.json": weights,
            "policy/tokenizer/tokenizer.json": pretty2({"stands_for": "tokenizer"}),
            "train_dataloader.pt": facts.dataloader,
            "config.yaml": encode_yaml(redact(self.config)),
            "training_info.json": encode_training_info(info),
        }

    def _take_over(self, number: int) -> TrainingInfo:
        folder = f"step_{number}"
        path = f"{self.checkpoint_dir}/{folder}/training_info.json"
        try:
            info = decode_training_info(_read(path), DEFAULT_LIMITS)
        except DefectError as problem:
            raise AnchorRefusedError(
                f"the anchor `{folder}` cannot be read: {problem}", hint="remove it, or mend it"
            ) from problem
        if info.current_step != number:
            raise AnchorRefusedError(
                f"the anchor `{folder}` says that it is step {info.current_step}", hint="remove it, or mend it"
            )
        self.train_step = number
        self.trainer_version = number if info.trainer_version is None else info.trainer_version
        self._consumed_samples, self._valid_tokens = info.consumed_samples, info.total_valid_tokens
        self.anchor = folder
        return info

    def _bootstrap(self) -> None:
        identity = bootstrap_identity(self.config, extra_excluded_paths(self.config))
        self._fingerprint = bootstrap_fingerprint(identity)
        mine = BootstrapManifest(
            schema_version=SNAPSHOT_SCHEMA_VERSION,
            base_train_step=0,
            trainer_version=0,
            bootstrap_fingerprint=self._fingerprint,
            bootstrap_identity=identity,
        )
        folder = f"{self.checkpoint_dir}/{BOOTSTRAP_FOLDER}"
        path = f"{folder}/manifest.json"
        if not Path(path).exists():
            durable.make_directory(folder)
            durable.write_file(path, encode_bootstrap(mine))
            return
        try:
            found = decode_bootstrap(_read(path), DEFAULT_LIMITS)
        except DefectError as problem:
            raise AnchorRefusedError(
                f"the bootstrap anchor cannot be read: {problem}", hint="use another directory"
            ) from problem
        if found != mine:
            stored = found.bootstrap_identity
            changes = () if stored is None else identity_differences(stored, identity)
            what = "; ".join(changes) or "another schema"
            raise AnchorRefusedError(
                f"the bootstrap anchor belongs to another configuration: {what}; nothing was modified",
                hint="use another checkpoint directory, or the configuration that wrote it",
            )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise AnchorRefusedError(f"`{path}` is missing", hint="remove the incomplete anchor") from error
    except OSError as error:
        raise durable.storage_error("read", path, error) from error
