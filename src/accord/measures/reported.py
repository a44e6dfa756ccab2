"""A model judged where the data is: what every client reports of it are sums over its own test samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from accord.data.federated import FederatedData, Groups, Index
from accord.errors import ConfigError
from accord.measures.measure import Measure
from accord.measures.predictions import NO_TENSOR, ClientScores, Held, Predictions, Scores, Vector
from accord.problems import PROBLEMS

NOTHING = Scores(np.zeros(0), np.zeros(0), NO_TENSOR, NO_TENSOR, NO_TENSOR)
# Measures that are made of what clients report, or of what the server has itself; all others need the samples.
POSSIBLE = ("accuracy", "clients", "personal", "drift", "validation", "epsilon")


@dataclass(frozen=True)
class ReportedScores(ClientScores):
    """The same numbers per client, without the samples they are of."""

    totals: Vector  # [K] sums of the samples' scores
    counts: Index  # [K] samples

    @property
    def sizes(self) -> Index:
        return self.counts

    @property
    def means(self) -> Vector:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.counts > 0, self.totals / self.counts, np.nan)


class Reported(Predictions):
    """`scores` by client are the answers to the `evaluate` task: correct, loss and examples."""

    def __init__(self, data: FederatedData, scores: Mapping[int, Mapping[str, Tensor]]) -> None:
        self.problem = PROBLEMS[data.problem]
        sums = np.zeros((3, len(data)))
        for client, score in scores.items():
            sums[:, client] = [float(score[name]) for name in ("correct", "loss", "examples")]
        self.correct, self.loss, self.examples = sums

    @property
    def pool_means(self) -> list[tuple[float, float]]:
        """Over all clients' test samples, every sample counting the same."""
        total = self.examples.sum()
        return [(float(self.correct.sum() / total), float(self.loss.sum() / total))]

    def clients(self, split: Held) -> ClientScores | None:
        """Each client's own."""
        if split != "test":
            return None
        counts = self.examples.astype(np.int64)
        nobody = Groups.of([[]] * len(counts))
        return ReportedScores(NOTHING, np.zeros(0, np.int64), nobody, self.problem, self.correct, counts)


def check_possible(measure: Measure, asked: bool) -> bool:
    """Whether it is measured; ConfigError where it was asked for and needs the samples."""
    if measure.name in POSSIBLE:
        return True
    if asked:
        raise ConfigError(
            f"evaluate.{measure.name} needs all test samples in one place, and in a real federation they stay at their "
            f"sites: switch it off; measured are {', '.join(POSSIBLE)}"
        )
    return False
