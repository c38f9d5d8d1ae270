"""What becomes of a group when all its siblings are sealed: canonical rows and a replay entry, later a train step.

Both are one mutation each, so a cut sees a group in the ledger or in the replay metadata and never in neither.
Which groups are ready, and whether admission allows to begin, the rollout loop knows.
"""

from __future__ import annotations

import asyncio

from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.ids import capture_key
from ckptctl.domain.ledger import Attempt, Group
from ckptctl.domain.replay import ReplayGroup, RowMeta
from ckptctl.errors import CkptctlError
from ckptctl.formats.dataloader_file import encode_dataloader
from ckptctl.formats.staged_row import decode_staged_row
from ckptctl.sim.replay_book import cleanup_keys
from ckptctl.sim.rollout_state import TASK_NAME, RolloutState
from ckptctl.sim.run_files import RunLog
from ckptctl.sim.sealing import META_FIELDS, canonical_fields
from ckptctl.sim.trainer import StepFacts


class NothingToTrainError(Exception):
    """A train step was asked for, and there is nothing to train on, or one is running."""


class Finisher:
    """Finalizes groups and trains on them."""

    def __init__(self, state: RolloutState, results: RunLog) -> None:
        self._state = state
        self._results = results

    async def finalize(self, group_id: str) -> None:
        """Hand one group from the ledger to the replay metadata."""
        state = self._state
        async with state.plane.mutation():
            state.ledger.finalizing(group_id)
        try:
            await asyncio.sleep(state.settings.finalize_delay_s)
            async with state.plane.mutation():
                self._hand_over(state.ledger.group(group_id))
        except BaseException:
            if state.ledger.has(group_id):
                state.ledger.not_finalized(group_id)
            raise

    async def train(self) -> int:
        """Train on the next groups and publish the step. Returns the new train step.

        Raises:
            NothingToTrainError: no finished group, or a step is running.
            StorageError: the anchor cannot be written; counters and groups are as before.
        """
        state = self._state
        batch = state.replay.next_batch(state.settings.groups_per_step)
        if state.trainer.is_busy or not batch:
            raise NothingToTrainError(
                "a train step is being published" if state.trainer.is_busy else "no group is finished"
            )
        state.trainer.is_busy = True
        try:
            facts = self._step_facts(batch)
            folder = await asyncio.to_thread(state.trainer.publish_step, facts)
            await asyncio.sleep(state.settings.publish_delay_s)
            async with state.plane.mutation():
                state.trainer.finish_step(folder, facts)
                self._consume(batch)
        finally:
            state.trainer.is_busy = False
        return state.trainer.train_step

    async def train_if_due(self) -> None:
        """Train where enough groups wait and the trainer steps by itself. A failing step is the next one's to repeat."""
        due = self._state.settings.train_every_groups
        while due and len(self._state.replay.groups()) >= due and not self._state.trainer.is_busy:
            try:
                await self.train()
            except (CkptctlError, NothingToTrainError):
                return

    def _hand_over(self, group: Group) -> None:
        """All rows are built before the first is stored: a damaged row leaves everything as it was."""
        state, canonical = self._state, self._state.settings.canonical_partition
        rows = [self._canonical_row(group, sibling.current) for sibling in group.siblings]
        samples = [group.rollout_of(sibling) for sibling in group.siblings]
        tags = [{"weight_version": version} for _, version in rows]
        for sample, (fields, _), sample_tags in zip(samples, rows, tags, strict=True):
            state.plane.put(canonical, sample, fields, sample_tags)
        meta = RowMeta(
            partition_id=canonical,
            task_name=TASK_NAME,
            sample_ids=samples,
            fields=list(META_FIELDS),
            sequence_lengths=[fields["input_ids"].shape[0] for fields, _ in rows],
            extra_info={},
            tags=list(tags),
        )
        weights = [group.start_weight_version, *(version for _, version in rows)]
        entry = ReplayGroup(
            meta=meta,
            start_weight=min(weights),
            end_weight=max(weights),
            target_step=group.target_step,
            group_id=group.group_id,
        )
        state.replay.add(entry)
        state.ledger.drop(group.group_id)
        state.plane.clear(state.settings.staging_partition, self._staged_keys(group))
        self._log_group(group)

    def _canonical_row(self, group: Group, attempt: Attempt) -> tuple[dict[str, TensorValue], int]:
        """The fields of one sample and the newest weight version in it."""
        plane, staging = self._state.plane, self._state.settings.staging_partition
        chain = [decode_staged_row(plane.get(staging, key)) for key in attempt.staging_keys]
        fields = canonical_fields(chain, reward=float(attempt.reward or 0.0), is_masked=bool(attempt.mask_sample))
        return fields, max((row.weight_version for row in chain), default=group.start_weight_version)

    def _staged_keys(self, group: Group) -> list[str]:
        """Every staged row of the group, whatever the attempt that left it."""
        captures = {
            capture_key(group.rollout_of(sibling), attempt.attempt_index)
            for sibling in group.siblings
            for attempt in sibling.attempts
        }
        keys = self._state.plane.keys(self._state.settings.staging_partition)
        return sorted(key for key in keys if key.rpartition("/")[0] in captures)

    def _log_group(self, group: Group) -> None:
        rewards = [sibling.current.reward for sibling in group.siblings]
        self._results.append(
            {
                "kind": "group",
                "incarnation": self._state.settings.incarnation,
                "group_id": group.group_id,
                "prompt_id": group.prompt_id,
                "target_step": group.target_step,
                "rewards": rewards,
            }
        )

    def _step_facts(self, batch: tuple[ReplayGroup, ...]) -> StepFacts:
        state = self._state
        return StepFacts(
            samples=sum(len(group.meta.sample_ids) for group in batch),
            tokens=sum(sum(group.meta.sequence_lengths or ()) for group in batch),
            epoch=state.prompts.epoch,
            sampler_dispatch_index=state.sampler_dispatch_index,
            dataloader=encode_dataloader(state.prompts.state()),
        )

    def _consume(self, batch: tuple[ReplayGroup, ...]) -> None:
        state = self._state
        state.replay.remove(group.group_id for group in batch)
        for group in batch:
            state.plane.clear(state.settings.canonical_partition, group.meta.sample_ids)
            state.plane.clear(state.settings.staging_partition, cleanup_keys(group))
