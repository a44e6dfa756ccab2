"""Which classes are taken for which."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from accord.errors import ConfigError
from accord.measures.measure import Measure, Record, entry
from accord.measures.scene import Final, Scene
from accord.settings import Setting

LARGEST = 50  # classes of a matrix that people read


@entry
class Confusion(Measure):
    """The final global model's confusion matrix on the test pool: a row per true class, a column per named one."""

    name = "confusion"
    setting = Setting(
        "confusion",
        Literal["auto"] | bool,
        "auto",
        doc="confusion matrix of the final model in the summary, of at most 50 classes; auto: where there are such",
    )
    reads = frozenset({"logits"})

    def on(self, scene: Scene) -> bool:
        """As it is set; `auto` leaves it to the data."""
        value = scene.settings.get("confusion", "auto")
        return _is_read(scene) if value == "auto" else bool(value)

    def check(self, scene: Scene) -> None:
        """Classes, and not too many."""
        if not _is_read(scene):
            classes = scene.data.num_classes
            found = f"{classes} classes" if scene.problem.one_class else scene.problem.name
            raise ConfigError(f"evaluate.confusion is for classification with at most {LARGEST} classes, not {found}")

    def end(self, scene: Scene, final: Final) -> Record:
        """Counts, and the classes' names where they have any; nothing without a global model."""
        if final.predictions is None:
            return {}
        scores = final.predictions.plain
        counts = confusion_matrix(scores.logits, scores.labels)
        return {"confusion": {"classes": list(scene.data.classes), "counts": counts.tolist()}}


def confusion_matrix(logits: Tensor, labels: Tensor) -> Tensor:
    """[C, C] samples of each true class (row) that are taken for each class (column)."""
    classes = logits.shape[1]
    return torch.bincount(labels * classes + logits.argmax(1), minlength=classes**2).view(classes, classes)


def _is_read(scene: Scene) -> bool:
    """Whether there is a matrix that people read."""
    return scene.problem.one_class and scene.data.num_classes <= LARGEST
