"""Which samples a client sees in which step. The one place that knows about epochs, batches and the last of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

LastBatch = Literal["fill", "drop", "pad"]
Indices = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Plan:
    """Local work: `epochs` passes over the data, or exactly `steps` batches when that is above zero.

    The last batch of an epoch, when the data does not divide evenly:
    `fill` tops it up with samples from the start of the same epoch's order, `drop` leaves it out, `pad` keeps it
    short (executors that need equal shapes add rows of weight 0). A batch is never larger than the client's data.

    With `poisson` every sample is in every batch by a chance of its own, as privacy by sampling is reckoned for:
    batches are as many, `batch_size` samples in the mean, and may be empty.
    """

    epochs: int = 1
    steps: int = 0
    batch_size: int = 32  # 0: all of the client's data
    last_batch: LastBatch = "pad"
    poisson: bool = False

    def schedule(self, rng: np.random.Generator, examples: int) -> list[Indices]:
        """Positions in the client's data, one array per step."""
        if examples == 0 or (self.epochs == 0 and self.steps == 0):
            return []
        if self.poisson:
            size = self.batch_size or examples
            count = self.steps or self.epochs * -(-examples // size)
            return [np.flatnonzero(rng.random(examples) < size / examples) for _ in range(count)]
        batches: list[Indices] = []
        epoch = 0
        while epoch < self.epochs if self.steps == 0 else len(batches) < self.steps:
            new = self._epoch(rng.permutation(examples))
            if not new:  # `drop` with fewer samples than a batch: nothing to train on
                return []
            batches += new
            epoch += 1
        return batches[: self.steps] if self.steps else batches

    def count(self, examples: int) -> int:
        """How many steps a client with so many samples takes."""
        if examples == 0 or (self.epochs == 0 and self.steps == 0):
            return 0
        in_epoch = len(self._epoch(np.arange(examples)))
        return (self.steps if in_epoch else 0) if self.steps else self.epochs * in_epoch

    def lengths(self, examples: int) -> list[int]:
        """Samples in each batch of an epoch, as far as the steps go; empty: no step is taken."""
        found = [len(batch) for batch in self._epoch(np.arange(examples))] if examples else []
        return found[: self.steps] if self.steps else found

    def _epoch(self, order: Indices) -> list[Indices]:
        size = self.batch_size or len(order)
        batches = [order[start : start + size] for start in range(0, len(order), size)]
        if len(batches[-1]) < size:
            if self.last_batch == "drop":
                batches.pop()
            elif self.last_batch == "fill" and len(batches) > 1:
                batches[-1] = np.concatenate([batches[-1], order[: size - len(batches[-1])]])
        return batches
