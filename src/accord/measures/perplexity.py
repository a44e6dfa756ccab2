"""How many words a model of texts wavers between."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from accord.data.federated import Index
from accord.measures.measure import MEASURES
from accord.measures.metric import Metric
from accord.measures.predictions import ClientScores, Scores
from accord.problems.tokens import NO_LABEL

LARGEST = 700.0  # nats; e to the power of more is no number


class Perplexity(Metric):
    """e to the power of the mean loss of a labelled position. The outputs of all positions are not kept for it."""

    reads = frozenset()

    def _of_all(self, scores: Scores) -> float:
        return self._of_rows(scores, np.arange(len(scores.loss)))

    def _of_one(self, clients: ClientScores, client: int) -> float:
        return self._of_rows(clients.scores, clients.rows_of(client))

    def _of_rows(self, scores: Scores, rows: Index) -> float:
        """A sample's loss is the mean over its positions, so it counts once for each of them."""
        positions = (scores.labels.numpy()[rows] != NO_LABEL).sum(1)
        return _power(float(np.average(scores.loss[rows], weights=positions)))


def perplexity(logits: Tensor, labels: Tensor) -> float:
    """The same from the outputs of all positions."""
    from torch.nn import functional

    flat = logits.double().flatten(0, -2)
    return _power(float(functional.cross_entropy(flat, labels.flatten(), ignore_index=NO_LABEL)))


def _power(loss: float) -> float:
    return math.exp(loss) if loss < LARGEST else math.nan


MEASURES.add("perplexity")(
    Perplexity(
        perplexity,
        better="lower",
        problems=("tokens",),
        always=("tokens",),
        doc="e to the power of the mean loss of a labelled position",
    )
)
