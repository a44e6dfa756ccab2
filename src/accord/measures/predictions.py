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
from torch import Tensor

from accord.core.algorithm import Predictor
from accord.core.keys import Key
from accord.data.federated import FederatedData, Groups, Index, Pool, unchanged
from accord.problems import PROBLEMS, Problem

Vector = np.ndarray[Any, np.dtype[np.float64]]
Held = Literal["test", "validation", "train"]
KEPT = ("logits", "features")  # what is large, and kept only where a measure reads it
NO_TENSOR = torch.zeros(0)


@dataclass(frozen=True)
class Scores:
    """One pass, sample by sample. Tensors lie in the host's memory; those nobody asked for are empty."""

    score: Vector  # [N] the problem's: 1 where an answer is right, or how wrong it is
    loss: Vector  # [N]
    labels: Tensor  # [N], or as the problem has them
    logits: Tensor  # [N, C] outputs, whatever they mean
    features: Tensor  # [N, ...] the head's input

    def in_order(self, rows: Index) -> Scores:
        """The samples at `rows`, in that order."""
        tensors = (t[torch.from_numpy(rows)] if len(t) else t for t in (self.labels, self.logits, self.features))
        return Scores(self.score[rows], self.loss[rows], *tensors)


@dataclass(frozen=True)
class ClientScores:
    """The samples of all clients; one that several hold was judged once."""

    scores: Scores
    rows: Index  # [sum of sizes] where each client's samples are among the scores
    groups: Groups
    problem: Problem

    @property
    def sizes(self) -> Index:
        """[K] samples per client."""
        return self.groups.sizes

    @property
    def means(self) -> Vector:
        """[K] mean score (the share of right answers); NaN for a client without samples."""
        sums = np.diff(np.concatenate([[0.0], np.cumsum(self.scores.score[self.rows])])[self.groups.offsets])
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.sizes > 0, sums / self.sizes, np.nan)

    @property
    def headlines(self) -> Vector:
        """[K] the problem's leading number of every client; NaN for a client without samples."""
        return read(self.problem, self.means)

    def of(self, client: int) -> tuple[Tensor, Tensor]:
        """One client's logits and labels."""
        rows = torch.from_numpy(self.rows_of(client))
        return self.scores.logits[rows], self.scores.labels[rows]

    def rows_of(self, client: int) -> Index:
        """Where one client's samples are among the scores."""
        return self.rows[self.groups.offsets[client] : self.groups.offsets[client + 1]]


class Predictions:
    """A model's answers on the test pool in its environments, and on each client's own samples.

    `together`: an answer depends on the samples shown with it, so they are shown in one fixed random order.
    """

    def __init__(
        self,
        predictor: Predictor,
        data: FederatedData,
        size: int,
        device: torch.device,
        keep: frozenset[str] = frozenset(),
        *,
        together: bool = False,
    ) -> None:
        self.predictor, self.data, self.size, self.device = predictor, data, size, device
        self.keep, self.together = keep, together
        self.problem = PROBLEMS[data.problem]
        self._clients: dict[Held, ClientScores] = {}

    @cached_property
    def environments(self) -> list[Scores]:
        """The test pool in each of its environments."""
        return [self._test_pool(environment.change) for environment in self.data.environments]

    @cached_property
    def plain(self) -> Scores:
        """The test pool as it is."""
        changes = [environment.change for environment in self.data.environments]
        if unchanged in changes:
            return self.environments[changes.index(unchanged)]
        return self._test_pool(unchanged)

    @property
    def pool_means(self) -> list[tuple[float, float]]:
        """Mean score and mean loss on the test pool in each of its environments."""
        return [(float(scores.score.mean()), float(scores.loss.mean())) for scores in self.environments]

    def clients(self, split: Held) -> ClientScores | None:
        """The clients' own samples; None where no client has any."""
        groups = {"test": self.data.test, "validation": self.data.validation, "train": self.data.train}[split]
        if not len(groups.order):
            return None
        if split not in self._clients:
            self._clients[split] = self._client_scores(groups, split)
        return self._clients[split]

    def _test_pool(self, change: Callable[[Tensor], Tensor]) -> Scores:
        pool = self.data.test_pool
        return self._in_order(len(pool), pool.take, change)

    def _client_scores(self, groups: Groups, split: Held) -> ClientScores:
        in_test = split == "test" and self.data.test_from == "test"
        pool = self.data.test_pool if in_test else self.data.train_pool
        if self.data.transform is not None:
            return self._of_clients(self._transformed(pool, groups, split), np.arange(len(groups.order)), groups)
        # Without client transforms a sample's score does not depend on who holds it: score every sample once.
        positions, rows = np.unique(groups.order, return_inverse=True)
        if in_test and len(positions) == len(pool):
            return self._of_clients(self.plain, rows, groups)
        return self._of_clients(self._in_order(len(positions), lambda some: pool.take(positions[some])), rows, groups)

    def _of_clients(self, scores: Scores, rows: Index, groups: Groups) -> ClientScores:
        return ClientScores(scores, rows, groups, self.problem)

    def _transformed(self, pool: Pool, groups: Groups, split: Held) -> Scores:
        """Samples as their clients see them: a client's after the other's, or all of them mixed."""
        change = self.data.transform
        assert change is not None
        if not self.together:
            return self.score(self._one_by_one(groups, split))
        owners = np.repeat(np.arange(len(groups)), groups.sizes).tolist()

        def take(rows: Index) -> tuple[Tensor, Tensor]:
            index = groups.order[rows]
            x, y = pool.take(index)
            seen = [change(owners[row], index[i : i + 1], x[i : i + 1]) for i, row in enumerate(rows.tolist())]
            return torch.cat(seen), y

        return self._in_order(len(groups.order), take)

    def _one_by_one(self, groups: Groups, split: Held) -> Iterator[tuple[Tensor, Tensor]]:
        for client in np.flatnonzero(groups.sizes).tolist():
            x, y = self.data.client(client, split)
            yield from zip(torch.split(x, self.size), torch.split(y, self.size), strict=True)

    def _in_order(
        self, count: int, take: Callable[[Index], tuple[Tensor, Tensor]], change: Callable[[Tensor], Tensor] = unchanged
    ) -> Scores:
        """Samples 0 to `count` - 1 of `take`, in their order or mixed; the scores are in their order again."""
        order = mixed(count) if self.together else np.arange(count)
        taken = (take(order[start : start + self.size]) for start in range(0, count, self.size))
        scores = self.score((change(x.to(self.device)), y) for x, y in taken)
        return scores.in_order(np.argsort(order)) if self.together else scores

    def score(self, samples: Iterable[tuple[Tensor, Tensor]]) -> Scores:
        """One pass of the network, a batch at a time."""
        found, losses, labels = [], [], []
        kept: dict[str, list[Tensor]] = {name: [] for name in KEPT}
        with torch.no_grad():
            for x, y in samples:
                out, y = self.predictor(x.to(self.device)), y.to(self.device)
                found.append(self.problem.score(out.logits, y))
                losses.append(self.problem.loss(out.logits, y).double())
                labels.append(y)
                for name in self.keep:
                    kept[name].append(getattr(out, name).cpu())
        return Scores(
            torch.cat(found).cpu().numpy(),
            torch.cat(losses).cpu().numpy(),
            torch.cat(labels).cpu(),
            *(torch.cat(kept[name]) if kept[name] else NO_TENSOR for name in KEPT),
        )


def mixed(count: int) -> Index:
    """One fixed random order, for methods that judge samples together: data sets often lie sorted by class."""
    return Key(0).at("evaluate.mixed").permutation(count)


def read(problem: Problem, means: Vector) -> Vector:
    """The problem's leading number from each of the mean scores."""
    return np.array([problem.reading(float(mean)) for mean in means])
