"""Whether a model can be taken at its word: how often it is right, by how sure it is."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.measures.ece import BINS, bins_of
from accord.measures.measure import Measure, Record, entry, switch
from accord.measures.scene import Final, Scene


@entry
class Calibration(Measure):
    """The final global model on the test pool, in bins of its confidence: samples, right answers, confidence."""

    name = "calibration"
    setting = switch("calibration", "how often the final model is right, by how sure it is", default=True)
    reads = frozenset({"logits"})

    def on(self, scene: Scene) -> bool:
        """As it is set, where a sample has one class."""
        return super().on(scene) and scene.problem.one_class

    def end(self, scene: Scene, final: Final) -> Record:
        """Sums by bin, of equal width from 0 to 1; nothing without a global model."""
        if final.predictions is None:
            return {}
        scores = final.predictions.plain
        return {"calibration": reliability(scores.logits, scores.labels)}


def reliability(logits: Tensor, labels: Tensor) -> Record:
    """By bin: how many samples, how many of them right, and the sum of their confidences.

    >>> found = reliability(torch.tensor([[0.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1]))
    >>> [(b, n, right) for b, (n, right) in enumerate(zip(found["count"], found["correct"])) if n]
    [(7, 1, 1), (14, 1, 0)]
    """
    confidence, predicted, place = bins_of(logits)

    def sums(values: Tensor) -> Tensor:
        return torch.zeros(BINS, dtype=torch.float64).index_add_(0, place, values.double())

    return {
        "count": sums(torch.ones_like(confidence)).long().tolist(),
        "correct": sums(predicted == labels).long().tolist(),
        "confidence": [round(value, 6) for value in sums(confidence).tolist()],
    }
