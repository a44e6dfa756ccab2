"""Accuracy and loss on the test pool, and what is read off the curve of accuracy over rounds.

A history maps each evaluated round to its accuracy; rounds in between may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum, isnan
from typing import Any

import numpy as np

from accord.errors import ConfigError, DataError
from accord.measures.column import Column
from accord.measures.measure import Measure, Record, entry
from accord.measures.predictions import Predictions
from accord.measures.scene import Moment, Scene

# A mean over test sets can miss a target by rounding alone; this is less than one sample in a billion.
ROUNDING = 1e-9


@entry
class Accuracy(Measure):
    """Accuracy and loss of the global model on the test pool, the mean over its environments."""

    name = "accuracy"
    columns = (
        Column("accuracy", "accuracy %", ("accuracy",)),
        Column("best_accuracy", "best %", ("best_accuracy",)),
        Column("top5_accuracy", "top-5 rounds %", ("top5_accuracy",)),
    )

    def round(self, scene: Scene, moment: Moment) -> Record:
        """The same for every other reading of the model the method has."""
        if moment.predictions is None:
            return {}
        record = _means(scene, moment.predictions)
        others = scene.algorithm.readings(moment.new)
        if others:
            record["readings"] = {name: _means(scene, scene.predictions(other)) for name, other in others.items()}
        return record

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """Methods without a global model have no accuracy of their own."""
        history = {record["round"]: record["accuracy"] for record in records if "accuracy" in record}
        accuracies = list(history.values())
        return {
            "accuracy": accuracies[-1] if accuracies else None,
            "best_accuracy": max(accuracies) if accuracies else None,
            "top5_accuracy": top_mean(history, 5) if accuracies else None,
            "rounds_to": {str(target): number for target, number in rounds_to(history, scene.targets).items()},
        }


def _means(scene: Scene, predictions: Predictions) -> Record:
    """Over the environments, and each one's accuracy where there are several."""
    passes = predictions.environments
    record: Record = {
        "accuracy": float(np.mean([scores.right.mean() for scores in passes])),
        "test_loss": float(np.mean([scores.loss.mean() for scores in passes])),
    }
    if len(passes) > 1:
        names = [environment.name for environment in scene.data.environments]
        record["environments"] = {n: float(s.right.mean()) for n, s in zip(names, passes, strict=True)}
    return record


def top_mean(history: Mapping[int, float], count: int = 5) -> float:
    """Mean of the `count` best rounds, of all where there are fewer; NaN is left out.

    >>> top_mean({1: 0.25, 2: 0.75, 3: 0.5}, 2)
    0.625
    """
    if count < 1:
        raise ConfigError(f"the number of rounds to average must be at least 1, got {count}")
    best = sorted((value for value in history.values() if not isnan(value)), reverse=True)[:count]
    if not best:
        raise DataError("no round was evaluated, so there is no accuracy to average")
    return fsum(best) / len(best)


def rounds_to(history: Mapping[int, float], targets: Iterable[float]) -> dict[float, int | None]:
    """For each target the first evaluated round with that accuracy or more; None where it is never reached.

    >>> rounds_to({10: 0.3, 20: 0.5, 30: 0.4}, [0.4, 0.6])
    {0.4: 20, 0.6: None}
    """
    curve = sorted(history.items())
    return {target: next((number for number, value in curve if value >= target - ROUNDING), None) for target in targets}
