"""The controller's part of a snapshot: what is refused, what is copied inside the cut, what is written after it.

The order is controller-interface's "save", steps 1 to 5; each number stands at the line that does it. Files are
written by `adapters.durable`; whatever goes wrong, the files that this save wrote are removed again, and nobody
else's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ckptctl.adapters import durable
from ckptctl.controller.refusal import RefusalError
from ckptctl.domain.amounts import plural
from ckptctl.domain.binding import BINDING_SCHEMA_VERSION
from ckptctl.domain.controller import CutCounters, SaveBody, SavedFile, SaveReply
from ckptctl.domain.digest import sha256_hex
from ckptctl.domain.finding import DefectError
from ckptctl.domain.fingerprint import redact
from ckptctl.errors import CkptctlError, StorageError
from ckptctl.formats.config_file import encode_yaml
from ckptctl.formats.dataloader_file import encode_dataloader
from ckptctl.formats.ledger_file import encode_ledger
from ckptctl.formats.replay_file import encode_replay
from ckptctl.sim.plane import PlaneCopy
from ckptctl.sim.rollout_state import SAMPLER_NAME, RolloutState
from ckptctl.sim.snapshot_files import (
    CONFIG,
    DATA_PLANE,
    DATALOADER,
    LEDGER,
    REPLAY,
    SIDECARS,
    read_inside,
    referenced_staging_keys,
    refuse_difference,
    refuse_missing,
)
from ckptctl.sim.threads import in_thread

CONFIG_MODE = 0o600
PLANE_TMP = f"{DATA_PLANE}.tmp"


class Books:
    """What a snapshot holds of the controller beside its rows."""

    def __init__(self, state: RolloutState) -> None:
        trainer = state.trainer
        self.counters = CutCounters(
            base_train_step=trainer.train_step,
            trainer_version=trainer.trainer_version,
            current_epoch=state.prompts.epoch,
            sampler_dispatch_index=state.sampler_dispatch_index,
            mutation_version=state.plane.mutation_version,
            rolled_back_train_group_count=0,
        )
        self.bootstrap_fingerprint = trainer.bootstrap_fingerprint
        self.ledger = state.ledger.ledger(owned_by_replay=state.replay.group_ids(), stamps_target_steps=True)
        self.replay, self.dataloader = state.replay.metadata(), state.prompts.state()

    @cached_property
    def recovery(self) -> bytes:
        """The ledger's file, made when it is asked for: inside the cut only where the binding is needed there."""
        return encode_ledger(self.ledger)

    def binding(self) -> dict[str, Any]:
        """NeMo-RL's binding record (snapshot-layout section 10)."""
        return {
            "data_plane_checkpoint_schema_version": BINDING_SCHEMA_VERSION,
            "single_controller_train_steps": self.counters.base_train_step,
            "single_controller_trainer_version": self.counters.trainer_version,
            "single_controller_epoch": self.counters.current_epoch,
            "partition_id": self.replay.partition_id,
            "sampler_name": SAMPLER_NAME,
            "mode": "authoritative",
            "replay_metadata_schema_version": self.replay.schema_version,
            "replay_manifest_digest": self.replay.manifest_digest,
            "replay_group_count": len(self.replay.groups),
            "rollout_recovery_schema_version": self.ledger.schema_version,
            "rollout_recovery_payload_sha256": sha256_hex(self.recovery),
            "rollout_recovery_group_count": len(self.ledger.groups),
        }


@dataclass(frozen=True, slots=True)
class MemoryCut:
    """Everything that a snapshot holds of the controller, copied inside the cut."""

    books: Books
    rows: PlaneCopy
    canonical_rows: int
    staging_rows: int
    barrier_wait_s: float
    cut_hold_s: float


async def save(state: RolloutState, request: SaveBody, settle_acknowledgements: Callable[[], Any]) -> SaveReply:
    """Write the controller's part of a snapshot.

    Raises:
        RefusalError: with the code of the step that refuses, or `storage_error`.
    """
    if not request.checkpoint_dir.startswith("/") or not await asyncio.to_thread(Path(request.checkpoint_dir).is_dir):
        raise RefusalError("storage_error", f"`{request.checkpoint_dir}` is no directory of this host")
    await settle_acknowledgements()  # one that is on its way would make the outbox look longer than it is
    try:
        needed = await in_thread(referenced_staging_keys, request.checkpoint_dir, request.storage_reference_indexes)
    except DefectError as problem:
        raise RefusalError(
            "storage_error", f"storage reference index: {problem}: {problem.defects[0].location}"
        ) from problem
    memory = await _copy(state, request, needed)
    writer = _Writer(request.checkpoint_dir, memory.rows.written)
    try:
        await writer.write(_files(state, memory))
    except BaseException as error:
        await writer.undo()
        if isinstance(error, StorageError):
            raise RefusalError("storage_error", error.message) from error
        raise
    return SaveReply(
        counters=memory.books.counters,
        bootstrap_fingerprint=memory.books.bootstrap_fingerprint,
        files=sorted(writer.files, key=lambda file: file.relative_path),
        groups=len(memory.books.ledger.groups),
        canonical_rows=memory.canonical_rows,
        staging_rows=memory.staging_rows,
        barrier_wait_s=memory.barrier_wait_s,
        cut_hold_s=memory.cut_hold_s,
    )


async def _copy(state: RolloutState, request: SaveBody, needed_by_continuations: frozenset[str]) -> MemoryCut:
    plane, settings = state.plane, state.settings
    try:
        async with plane.cut() as cut:
            begun = time.monotonic()
            _refuse(state, needed_by_continuations)
            books = Books(state)
            counts = [len(plane.keys(name)) for name in (settings.canonical_partition, settings.staging_partition)]
            rows = await plane.checkpoint(request.checkpoint_dir, books.binding, request.deadline_ts)
            held_s = time.monotonic() - begun
    except CkptctlError as problem:
        raise RefusalError("storage_error", problem.message) from problem
    return MemoryCut(books, rows, counts[0], counts[1], cut.barrier_wait_s, held_s)


def _refuse(state: RolloutState, needed_by_continuations: frozenset[str]) -> None:
    trainer, plane, settings = state.trainer, state.plane, state.settings
    if trainer.is_busy or state.closed_at != (trainer.train_step, trainer.trainer_version):  # 1
        raise RefusalError(
            "trainer_state_changed", "the trainer publishes a step, or has done so since admission was closed"
        )
    owed = state.ledger.outbox()
    if owed:  # 2
        raise RefusalError("acknowledgements_pending", f"{len(owed)} completed results are not acknowledged")
    undecided = state.ledger.undecided_groups()
    if undecided:
        raise RefusalError(
            "finalization_in_progress",
            f"{plural(len(undecided), 'group')} being finalized: {', '.join(undecided[:10])}",
        )
    required = state.ledger.staging_keys() | state.replay.staging_keys() | needed_by_continuations
    refuse_missing(required, plane.keys(settings.staging_partition))  # 3
    refuse_difference(state.replay.sample_ids(), plane.keys(settings.canonical_partition))  # 4


def _files(state: RolloutState, memory: MemoryCut) -> Iterator[tuple[str, bytes]]:
    """Step 5: every file with its relative name; the data plane's under its temporary folder."""
    books = memory.books
    for name, data in memory.rows.files(books.binding()):
        yield f"{PLANE_TMP}/{name}", data
    yield REPLAY, encode_replay(books.replay)
    yield LEDGER, books.recovery
    yield DATALOADER, encode_dataloader(books.dataloader)
    yield CONFIG, encode_yaml(redact(state.trainer.config))


class _Writer:
    """Writes files in threads, one after the other, and can take all of them back."""

    def __init__(self, root: str, written: tuple[str, ...]) -> None:
        self._root = root
        self._written = written
        self.files: list[SavedFile] = []

    async def write(self, files: Iterator[tuple[str, bytes]]) -> None:
        """Leftovers of an earlier try go first; `data_plane` appears whole, by a rename, as TransferQueue's own does.

        What a live queue has written already is only read, for size and digest.
        """
        await in_thread(self._remove_own, keep_rows=bool(self._written))
        while (item := await in_thread(next, files, None)) is not None:
            relative, data = item
            await in_thread(self._write_one, relative, data)
            self._note(relative.replace(f"{PLANE_TMP}/", f"{DATA_PLANE}/", 1), data)
        for name in self._written:
            self._note(f"{DATA_PLANE}/{name}", await in_thread(read_inside, self._root, f"{DATA_PLANE}/{name}"))
        if not self._written:
            await in_thread(durable.rename, f"{self._root}/{PLANE_TMP}", f"{self._root}/{DATA_PLANE}")

    async def undo(self) -> None:
        """Remove what was written; a failure to do so is the smaller trouble and hides nothing."""
        try:
            await in_thread(self._remove_own)
        except StorageError:
            return

    def _note(self, relative: str, data: bytes) -> None:
        self.files.append(SavedFile(relative_path=relative, bytes=len(data), sha256=sha256_hex(data)))

    def _write_one(self, relative: str, data: bytes) -> None:
        path = f"{self._root}/{relative}"
        durable.make_directory(path.rpartition("/")[0])
        durable.write_file(path, data, mode=CONFIG_MODE if relative == CONFIG else None)

    def _remove_own(self, *, keep_rows: bool = False) -> None:
        for name in () if keep_rows else (DATA_PLANE, PLANE_TMP):
            durable.remove_tree(f"{self._root}/{name}")
        for name in SIDECARS:
            durable.remove_file(f"{self._root}/{name}")
