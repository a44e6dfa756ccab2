"""What a model says of the samples it is judged on. Each pass is made when it is first asked for, and once.

N samples, C classes, K clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from accord.core.algorithm import Predictor
from accord.data.federated import FederatedData, Groups, Index, Pool, unchanged

Vector = np.ndarray[Any, np.dtype[np.float64]]
Held = Literal["test", "validation"]
KEPT = ("logits", "features")  # what is large, and kept only where a measure reads it
NO_TENSOR = torch.zeros(0)


@dataclass(frozen=True)
class Scores:
    """One pass, sample by sample. Tensors lie in the host's memory; those nobody asked for are empty."""

    right: Vector  # [N] 1 where the largest logit is at the label
    loss: Vector  # [N] cross-entropy
    labels: Tensor  # [N]
    logits: Tensor  # [N, C]
    features: Tensor  # [N, ...] the head's input


@dataclass(frozen=True)
class ClientScores:
    """The samples of all clients; one that several hold was judged once."""

    scores: Scores
    rows: Index  # [sum of sizes] where each client's samples are among the scores
    groups: Groups

    @property
    def sizes(self) -> Index:
        """[K] samples per client."""
        return self.groups.sizes

    @property
    def accuracies(self) -> Vector:
        """[K] share of right answers; NaN for a client without samples."""
        sums = np.diff(np.concatenate([[0.0], np.cumsum(self.scores.right[self.rows])])[self.groups.offsets])
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.sizes > 0, sums / self.sizes, np.nan)

    def of(self, client: int) -> tuple[Tensor, Tensor]:
        """One client's logits and labels."""
        rows = torch.from_numpy(self.rows[self.groups.offsets[client] : self.groups.offsets[client + 1]])
        return self.scores.logits[rows], self.scores.labels[rows]


class Predictions:
    """A model's answers on the test pool in its environments, and on each client's own samples."""

    def __init__(
        self, predictor: Predictor, data: FederatedData, size: int, device: torch.device, keep: frozenset[str]
    ) -> None:
        self.predictor, self.data, self.size, self.device, self.keep = predictor, data, size, device, keep
        self._clients: dict[Held, ClientScores] = {}

    @cached_property
    def environments(self) -> list[Scores]:
        """The test pool in each of its environments."""
        return [self.score(self._test_pool(e.change)) for e in self.data.environments]

    @cached_property
    def plain(self) -> Scores:
        """The test pool as it is."""
        changes = [environment.change for environment in self.data.environments]
        if unchanged in changes:
            return self.environments[changes.index(unchanged)]
        return self.score(self._test_pool(unchanged))

    def clients(self, split: Held) -> ClientScores | None:
        """The clients' own samples; None where no client has any."""
        groups = self.data.test if split == "test" else self.data.validation
        if not len(groups.order):
            return None
        if split not in self._clients:
            self._clients[split] = self._client_scores(groups, split)
        return self._clients[split]

    def _client_scores(self, groups: Groups, split: Held) -> ClientScores:
        if self.data.transform is not None:
            return ClientScores(self.score(self._one_by_one(groups, split)), np.arange(len(groups.order)), groups)
        # Without client transforms a sample's score does not depend on who holds it: score every sample once.
        positions, rows = np.unique(groups.order, return_inverse=True)
        in_test = split == "test" and self.data.test_from == "test"
        if in_test and len(positions) == len(self.data.test_pool):
            return ClientScores(self.plain, rows, groups)
        pool = self.data.test_pool if in_test else self.data.train_pool
        return ClientScores(self.score(batches(pool, positions, self.size)), rows, groups)

    def _one_by_one(self, groups: Groups, split: Held) -> Iterator[tuple[Tensor, Tensor]]:
        for client in np.flatnonzero(groups.sizes).tolist():
            x, y = self.data.client(client, split)
            yield from zip(torch.split(x, self.size), torch.split(y, self.size), strict=True)

    def _test_pool(self, change: Callable[[Tensor], Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        pool = self.data.test_pool
        return ((change(x.to(self.device)), y) for x, y in batches(pool, np.arange(len(pool)), self.size))

    def score(self, samples: Iterable[tuple[Tensor, Tensor]]) -> Scores:
        """One pass of the network, a batch at a time."""
        right, losses, labels = [], [], []
        kept: dict[str, list[Tensor]] = {name: [] for name in KEPT}
        with torch.no_grad():
            for x, y in samples:
                out, y = self.predictor(x.to(self.device)), y.to(self.device)
                right.append(correct(out.logits, y).double())
                losses.append(F.cross_entropy(out.logits, y, reduction="none").double())
                labels.append(y)
                for name in self.keep:
                    kept[name].append(getattr(out, name).cpu())
        return Scores(
            torch.cat(right).cpu().numpy(),
            torch.cat(losses).cpu().numpy(),
            torch.cat(labels).cpu(),
            *(torch.cat(kept[name]) if kept[name] else NO_TENSOR for name in KEPT),
        )


def batches(pool: Pool, index: Index, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples of a pool, `size` at a time."""
    return (pool.take(index[start : start + size]) for start in range(0, len(index), size))


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """[N] whether the largest logit is at the label; of equal ones the first wins, and nothing is right about NaN."""
    best, predicted = logits.max(dim=1)
    return (predicted == labels) & ~best.isnan()
