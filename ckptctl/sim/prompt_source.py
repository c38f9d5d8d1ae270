"""Where prompts come from: a dataset of N rows in an order that the seed fixes, a cursor, and the loader state that a save holds.

It decides which prompt is drawn next and which group and admission ids that gives, so that two runs with one seed
agree in all of them. The state has the form of torchdata's StatefulDataLoader without workers (snapshot-layout
section 9), generator bytes included.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ckptctl.domain.dataplane import TensorValue
from ckptctl.domain.finding import Defect, DefectError

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "ckptctl:embedded-cluster")
_TWISTER_WORDS = 624
GENERATOR_BYTES = 5056


@dataclass(frozen=True, slots=True)
class Prompt:
    """One drawn prompt: which row, in which pass over the dataset."""

    epoch: int
    row: int


def group_id(seed: int, prompt: Prompt) -> str:
    """The id of the prompt's group; the first pass depends on seed and row alone."""
    name = f"group:{seed}:{prompt.row}" if prompt.epoch == 0 else f"group:{seed}:{prompt.row}:{prompt.epoch}"
    return str(uuid.uuid5(_NAMESPACE, name))


def admission_id(seed: int, number: int) -> str:
    """The id of the n-th admission of a run."""
    return str(uuid.uuid5(_NAMESPACE, f"admission:{seed}:{number}"))


class PromptSource:
    """A shuffled dataset with a cursor; batches have `batch_size` rows, the last of an epoch may have fewer."""

    def __init__(self, *, seed: int, rows: int, batch_size: int) -> None:
        assert rows > 0
        assert batch_size > 0
        self.seed, self.rows, self.batch_size = seed, rows, batch_size
        self.epoch = 0
        self.yielded = 0
        """Rows drawn in this epoch."""

    @property
    def drawn(self) -> int:
        """Rows drawn in all epochs."""
        return self.epoch * self.rows + self.yielded

    def next_batch(self) -> tuple[Prompt, ...]:
        """Draw one batch and move the cursor. A new epoch begins when the old one has nothing left to give."""
        if self.yielded == self.rows:
            self.epoch, self.yielded = self.epoch + 1, 0
        order = self._order(self.epoch)
        rows = order[self.yielded : self.yielded + self.batch_size]
        self.yielded += len(rows)
        return tuple(Prompt(self.epoch, row) for row in rows)

    def drawn_prompts(self) -> tuple[Prompt, ...]:
        """Every prompt drawn so far, in order."""
        finished = [Prompt(epoch, row) for epoch in range(self.epoch) for row in self._order(epoch)]
        return (*finished, *(Prompt(self.epoch, row) for row in self._order(self.epoch)[: self.yielded]))

    def state(self) -> dict[str, Any]:
        """What `train_dataloader.pt` holds."""
        batches = -(-self.yielded // self.batch_size)
        return {
            "_index_sampler_state": None,
            "_sampler_iter_state": {
                "samples_yielded": self.yielded,
                "sampler_iter_state": {"yielded": self.yielded, "generator": _generator_state(self.seed + self.epoch)},
            },
            "_sampler_iter_yielded": batches,
            "_num_yielded": batches,
            "_IterableDataset_len_called": None,
            "_shared_seed": None,
            "fetcher_state": None,
            "dataset_state": None,
            "_iterator_finished": False,
        }

    def load(self, state: Mapping[str, Any], epoch: int) -> None:
        """Set the cursor from a saved state.

        Raises:
            DefectError: the state is not of a loader without workers, or its cursor is outside this dataset.
        """
        sampler = state.get("_sampler_iter_state")
        yielded = sampler.get("samples_yielded") if isinstance(sampler, Mapping) else None
        if isinstance(yielded, bool) or not isinstance(yielded, int) or not 0 <= yielded <= self.rows:
            raise DefectError(
                Defect(
                    "the loader's cursor does not fit the dataset",
                    "_sampler_iter_state",
                    f"0..{self.rows}",
                    repr(yielded)[:80],
                )
            )
        self.epoch, self.yielded = epoch, yielded

    def _order(self, epoch: int) -> list[int]:
        order = list(range(self.rows))
        random.Random(f"order:{self.seed}:{epoch}").shuffle(order)  # noqa: S311 - an order, not a secret
        return order


def _generator_state(seed: int) -> TensorValue:
    """State of torch's CPU generator right after seeding: seed, left, seeded, next, the twister's words, no cached normals."""
    words = [seed & 0xFFFFFFFF]
    for position in range(1, _TWISTER_WORDS):
        words.append((1812433253 * (words[-1] ^ (words[-1] >> 30)) + position) & 0xFFFFFFFF)
    data = struct.pack(f"<QiiQ{_TWISTER_WORDS}Q", seed & (2**64 - 1), 1, 1, 0, *words)
    return TensorValue("uint8", (GENERATOR_BYTES,), data.ljust(GENERATOR_BYTES, b"\x00"))
