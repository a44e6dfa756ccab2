"""Where the final global model puts test samples, in two dimensions."""

from __future__ import annotations

import torch

from accord.errors import ConfigError
from accord.measures.measure import Measure, Record, entry
from accord.measures.scene import Final, Scene
from accord.measures.tsne import packed, tsne
from accord.settings import NOT_NEGATIVE, Setting

LARGEST = 256  # classes: a label is kept in a byte


@entry
class FeatureMap(Measure):
    """t-SNE of the final global model's features of so many test samples, spread evenly over the test pool."""

    name = "feature_map"
    setting = Setting("feature_map", int, 0, bounds=NOT_NEGATIVE, doc="test samples in a t-SNE of the final features")

    def check(self, scene: Scene) -> None:
        """Classes to colour the points by, and a global model."""
        check_classes(scene, self.name)
        if not scene.algorithm.has_global_model:
            raise ConfigError(
                "evaluate.feature_map shows the global model's features, and this method has no such model"
            )

    def end(self, scene: Scene, final: Final) -> Record:
        """Coordinates and labels, a byte each."""
        predictions = scene.judged(final.state, frozenset({"features"}))
        assert predictions is not None
        scores = predictions.plain
        rows = spread_rows(len(scores.labels), scene.settings["feature_map"])
        points = tsne(scores.features[rows].flatten(1).float().to(scene.device))
        return {"feature_map": {"points": packed(points), "labels": packed(scores.labels[rows])}}


def check_classes(scene: Scene, name: str) -> None:
    """There must be one label per sample, of few enough kinds."""
    if not scene.problem.one_class or scene.data.num_classes > LARGEST:
        raise ConfigError(f"evaluate.{name} is for classification with at most {LARGEST} classes")


def spread_rows(total: int, count: int) -> torch.Tensor:
    """Positions of `count` samples of `total`, spread evenly; all of them where there are no more."""
    return torch.linspace(0, total - 1, min(count, total)).round().long()
