"""The smallest training process that ckptctl can take snapshots of: `ckptctl.controller` around a loop that only counts.

Serve it beside your own loop, in the same process and event loop: what the methods answer must be the loop's own state. Whatever has an
encoder of `ckptctl.formats` here is written by `torch.save` and by TransferQueue in a real run. Nothing here is in flight when admission
is closed, because nothing was dispatched; a real controller waits in `close_admission` until dispatches have reached their agents.

    NEMO_GYM_CHECKPOINT_CONTROL_TOKEN=... python minimal_controller.py run.yaml
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from ckptctl.controller import ControllerFacts, RefusalError, create_app
from ckptctl.domain import controller as wire
from ckptctl.domain.binding import BINDING_SCHEMA_VERSION, TrainingInfo
from ckptctl.domain.canonical import replay_digest
from ckptctl.domain.dataplane import ControllerState, Partition
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.fingerprint import redact
from ckptctl.domain.ledger import LEDGER_SCHEMA_VERSION, Ledger
from ckptctl.domain.limits import DEFAULT_LIMITS
from ckptctl.domain.replay import ReplayMetadata
from ckptctl.formats.anchor_files import encode_training_info
from ckptctl.formats.config_file import decode_yaml, encode_yaml
from ckptctl.formats.dataloader_file import encode_dataloader
from ckptctl.formats.ledger_file import encode_ledger
from ckptctl.formats.replay_file import encode_replay
from ckptctl.formats.tq_writer import (
    encode_controller_state,
    encode_metadata,
    encode_storage_unit,
    encode_unit_info,
)

CANONICAL, STAGING, SAMPLER = "rollout_data", "rollout_staging", "fifo"
UNIT = "unit_0"


class TrainingLoop:
    """Stands for your trainer: at step 1, its checkpoint published, some prompts drawn, nothing dispatched."""

    def __init__(self, config: dict) -> None:
        self._config = config
        self.checkpoint_dir = Path(config["checkpointing"]["checkpoint_dir"])
        self.step = self.version = 1
        self.drawn = 0
        self.is_admitting = True
        self._publish_checkpoint()

    async def run(self) -> None:
        """Draw prompts while admission is open."""
        while True:
            self.drawn += self.is_admitting
            await asyncio.sleep(0.05)

    def dataloader(self) -> bytes:
        """Where the dataloader stands."""
        names = (
            "_index_sampler_state",
            "_IterableDataset_len_called",
            "_shared_seed",
            "fetcher_state",
            "dataset_state",
        )
        sampler = {"samples_yielded": self.drawn, "sampler_iter_state": {"yielded": self.drawn}}
        counts = {"_sampler_iter_yielded": self.drawn, "_num_yielded": self.drawn, "_iterator_finished": False}
        return encode_dataloader({**dict.fromkeys(names), "_sampler_iter_state": sampler, **counts})

    def config(self) -> bytes:
        """The run's configuration, without secrets."""
        return encode_yaml(redact(self._config))

    def _publish_checkpoint(self) -> None:
        """A trainer checkpoint is published by a rename, before any snapshot can belong to it."""
        final, staged = self.checkpoint_dir / "step_1", self.checkpoint_dir / "tmp_step_1"
        if final.exists():
            return
        (staged / "policy" / "weights").mkdir(parents=True)
        info = TrainingInfo(
            consumed_samples=0, current_step=1, current_epoch=0, total_steps=1, total_valid_tokens=0,
            trainer_version=1, sampler_name=SAMPLER, sampler_dispatch_index=-1,
        )  # fmt: skip
        (staged / "policy" / "weights" / "weights.json").write_bytes(b"{}")
        (staged / "train_dataloader.pt").write_bytes(self.dataloader())
        (staged / "config.yaml").write_bytes(self.config())
        (staged / "training_info.json").write_bytes(encode_training_info(info))
        staged.rename(final)


class MinimalController:
    """Implements `ckptctl.controller.RolloutController` for that loop, one method per route."""

    def __init__(self, loop: TrainingLoop) -> None:
        self._loop = loop

    async def facts(self) -> ControllerFacts:
        loop = self._loop
        return ControllerFacts(
            train_step=loop.step, trainer_version=loop.version, epoch=0, mutation_version=loop.drawn,
            sampler_dispatch_index=-1, sampler_name=SAMPLER, unfinished_rollouts=0, acknowledgements_pending=0,
            canonical_partition=CANONICAL, staging_partition=STAGING, data_plane="embedded", storage_units=1,
            takes_own_snapshots=False, trainer_busy=False, checkpoint_dir=str(loop.checkpoint_dir),
            anchor=f"step_{loop.step}", bootstrap_fingerprint=None,
        )  # fmt: skip

    async def close_admission(self, request):
        self._loop.is_admitting = False
        return wire.CloseReply(phase="closed", unfinished_rollouts=0, in_flight_dispatches=0)

    async def open_admission(self, request):
        if request.redispatch:
            raise RefusalError("unowned_redispatch", "nothing was in flight here")
        self._loop.is_admitting = True
        return 0

    async def acknowledgements(self, limit, after):
        return wire.AcknowledgementsReply(pending=[], total=0, next=None)

    async def confirm(self, request):
        unknown = [
            wire.Execution(**item.model_dump(include=set(wire.Execution.model_fields))) for item in request.acknowledged
        ]
        return wire.ConfirmReply(removed=0, unknown=unknown, remaining=0)

    async def settle(self, request):
        return wire.SettleReply(settled=[], unowned=request.receipts)

    async def ledger(self, limit, after):
        return wire.LedgerReply(groups=[], total=0, next=None)

    async def clear_staging(self, request):
        return wire.ClearReply(cleared=0, absent=len(set(request.keys)))

    async def restore(self, request):
        raise RefusalError("restore_failed", "this example keeps nothing that could be loaded", harmless=True)

    async def save(self, request):
        """Everything of one moment: copied while nothing may change it, written afterwards, removed again on failure."""
        root = Path(request.checkpoint_dir)
        if not root.is_dir():
            raise RefusalError("storage_error", "the directory is not there; it must be shared with ckptctl")
        began_s = time.monotonic()
        files = self._copy()
        held_s = time.monotonic() - began_s
        try:
            for name, data in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(data)
        except OSError as error:
            for name in files:
                (root / name).unlink(missing_ok=True)
            raise RefusalError("storage_error", str(error)) from error
        counters = wire.CutCounters(
            base_train_step=self._loop.step, trainer_version=self._loop.version, current_epoch=0, sampler_dispatch_index=-1,
            mutation_version=self._loop.drawn, rolled_back_train_group_count=0,
        )  # fmt: skip
        listed = [
            wire.SavedFile(relative_path=name, bytes=len(data), sha256=sha256_hex(data))
            for name, data in sorted(files.items())
        ]
        return wire.SaveReply(
            counters=counters, bootstrap_fingerprint=None, files=listed, groups=0, canonical_rows=0, staging_rows=0,
            barrier_wait_s=0.0, cut_hold_s=held_s,
        )  # fmt: skip

    def _copy(self):
        ledger = Ledger(
            schema_version=LEDGER_SCHEMA_VERSION, groups=[], pending_completed_execution_acknowledgements=[], batch_shortfall={},
            sampler_stamps_target_steps=True,
        )  # fmt: skip
        replay = ReplayMetadata(
            schema_version=1, storage="tq_checkpoint", partition_id=CANONICAL, saved_capacity=1024,
            manifest_digest=replay_digest([]), groups=[],
        )  # fmt: skip
        recovery = encode_ledger(ledger)
        binding = {
            "data_plane_checkpoint_schema_version": BINDING_SCHEMA_VERSION, "single_controller_train_steps": self._loop.step,
            "single_controller_trainer_version": self._loop.version, "single_controller_epoch": 0,
            "partition_id": CANONICAL, "sampler_name": SAMPLER, "mode": "authoritative",
            "replay_metadata_schema_version": replay.schema_version, "replay_manifest_digest": replay.manifest_digest,
            "replay_group_count": 0, "rollout_recovery_schema_version": ledger.schema_version,
            "rollout_recovery_payload_sha256": sha256_hex(recovery), "rollout_recovery_group_count": 0,
        }  # fmt: skip
        partitions = {name: _empty(name) for name in (CANONICAL, STAGING)}
        plane = ControllerState(
            controller_id="controller_0", partitions=partitions, reusable_indexes=(), next_index=0,
            partition_indexes={name: frozenset() for name in partitions},
        )  # fmt: skip
        units = ({"position": 0, "storage_unit_id": UNIT},)
        return {
            "data_plane/controller_state.pkl": encode_controller_state(plane),
            f"data_plane/simple_storage/su_0_{UNIT}.pkl": encode_storage_unit(UNIT, 1024, {}, frozenset()),
            "data_plane/simple_storage/storage_unit_info.json": encode_unit_info(units),
            "data_plane/metadata.json": encode_metadata(binding),
            "replay_buffer_metadata.pt": encode_replay(replay),
            "rollout_recovery.pt": recovery,
            "train_dataloader.pt": self._loop.dataloader(),
            "config.yaml": self._loop.config(),
        }


def _empty(name):
    return Partition(
        partition_id=name, keys={}, reverse_keys={}, columns={}, global_indexes=frozenset(), pre_allocated=frozenset(),
        field_metas={}, tags={}, production_rows=0, production_columns=0, production=b"",
    )  # fmt: skip


async def serve(config: dict, token: str) -> None:
    """The training loop and the interface, side by side in one event loop."""
    url = urlsplit(config.pop("ckptctl")["controller"]["url"])
    loop = TrainingLoop(config)
    app = create_app(MinimalController(loop), token)
    server = uvicorn.Server(uvicorn.Config(app, host=url.hostname, port=url.port, log_level="warning"))
    training = asyncio.create_task(loop.run())
    await server.serve()
    training.cancel()


if __name__ == "__main__":
    read = decode_yaml(Path(sys.argv[1]).read_bytes(), DEFAULT_LIMITS)
    asyncio.run(serve(read, os.environ["NEMO_GYM_CHECKPOINT_CONTROL_TOKEN"]))
