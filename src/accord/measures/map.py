"""Mean average precision of a search by features, as re-identification is judged."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from accord.errors import ConfigError, DataError
from accord.measures.column import Column
from accord.measures.measure import Measure, Record, entry, switch
from accord.measures.scene import Moment, Scene

MAX_SCORES = 2**21  # held at once; bounds the memory, not the result


@entry
class Map(Measure):
    """Mean average precision of the test pool searched for each of its samples, by the global model's features."""

    name = "map"
    setting = switch("map", "mean average precision of retrieval with the model's features")
    columns = (Column("map", "mAP %", ("map",)),)
    reads = frozenset({"features"})

    def check(self, scene: Scene) -> None:
        """Some class must have two samples, or nothing can be found."""
        if not scene.problem.one_class:
            raise ConfigError(f"evaluate.map searches for samples of a class, which {scene.problem.name} has not")
        if np.bincount(scene.data.test_pool.y.cpu().numpy()).max(initial=0) < 2:
            raise DataError("evaluate.map needs test data with two samples of a class: no class has more than one")

    def round(self, scene: Scene, moment: Moment) -> Record:
        """Of the test pool as it is."""
        if moment.predictions is None:
            return {}
        scores = moment.predictions.plain
        return {"map": mean_average_precision(scores.features, scores.labels)}


def mean_average_precision(features: Tensor, labels: Tensor, max_scores: int = MAX_SCORES) -> float:
    """Mean over samples of the mean, over their matches, of the precision at the match's rank.

    Every sample searches among the others, ranked by the inner product of features scaled to length one; equal scores
    keep their order. Samples whose label nobody else has are left out.
    """
    if features.dim() != 2 or 0 in features.shape or labels.shape != features.shape[:1]:
        raise DataError(
            f"features must be [samples, features] and labels [samples], got {tuple(features.shape)} and "
            f"{tuple(labels.shape)}"
        )
    # Half precision would tie scores that differ.
    wide = features if features.dtype == torch.float64 else features.float()
    if not bool(wide.isfinite().all()):
        raise DataError("features hold values that are not finite numbers")
    unit = normalize(wide, dim=1)
    total, count = 0.0, 0
    for rows in torch.split(torch.arange(len(unit)), max(1, max_scores // len(unit))):
        match = labels[rows, None] == labels
        itself = torch.zeros_like(match)
        itself[torch.arange(len(rows)), rows] = True
        # The sample itself goes to the end of the ranking, behind all others, and is no match.
        scores = (unit[rows] @ unit.T).masked_fill(itself, -torch.inf)
        ranked = (match & ~itself).gather(1, scores.argsort(dim=1, descending=True, stable=True))
        hits = ranked.cumsum(dim=1)
        precision = hits.double() / torch.arange(1, len(unit) + 1)
        matches = hits[:, -1]
        average = ((precision * ranked).sum(dim=1) / matches.clamp(min=1))[matches > 0]
        total += float(average.sum())
        count += len(average)
    if not count:
        raise DataError("no sample has a match (another one of its label), so nothing can be found")
    return total / count
