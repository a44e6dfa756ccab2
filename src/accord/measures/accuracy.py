"""The leading number (accuracy, or the problem's own) and the loss on the test pool, and what is read off its curve.

A history maps each evaluated round to its number; rounds in between may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import fsum, isnan
from typing import Any

import numpy as np

from accord.errors import ConfigError, DataError
from accord.measures.column import Column, leading
from accord.measures.measure import Measure, Record, entry
from accord.measures.predictions import Predictions
from accord.measures.scene import Moment, Scene

# A mean over test sets can miss a target by rounding alone; this is less than one sample in a billion.
ROUNDING = 1e-9


@entry
class Accuracy(Measure):
    """Accuracy (or the problem's own number) and loss of the global model on the test pool, over its environments."""

    name = "accuracy"
    columns = (
        Column("accuracy", "accuracy %", ("accuracy",)),
        *(replace(column, title=column.title.strip()) for column in leading("{}", "", ("{}",))[1:]),
        *leading("best_{}", "best", ("best_{}",)),
        *leading("top5_{}", "top-5 rounds", ("top5_{}",)),
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
        """Methods without a global model have no such number of their own; shares alone have targets."""
        name, higher = scene.problem.headline, scene.problem.higher_is_better
        history = {record["round"]: record[name] for record in records if name in record}
        values = list(history.values())
        found: Record = {
            name: values[-1] if values else None,
            f"best_{name}": (max if higher else min)(values) if values else None,
            f"top5_{name}": top_mean(history, 5, higher=higher) if values else None,
        }
        if scene.problem.share:
            reached = rounds_to(history, scene.targets)
            found["rounds_to"] = {str(target): number for target, number in reached.items()}
            clock = {record["round"]: record["clock"] for record in records if "clock" in record}
            if clock:  # simulated seconds, where clients have a pace
                found["clock_to"] = {str(target): clock.get(number) for target, number in reached.items()}
        return found


def _means(scene: Scene, predictions: Predictions) -> Record:
    """Over the environments, and each one's number where there are several."""
    means, problem = predictions.pool_means, scene.problem
    values = [problem.reading(score) for score, _ in means]
    record: Record = {
        problem.headline: float(np.mean(values)),
        "test_loss": float(np.mean([loss for _, loss in means])),
    }
    if len(means) > 1:
        names = [environment.name for environment in scene.data.environments]
        record["environments"] = dict(zip(names, values, strict=True))
    return record


def top_mean(history: Mapping[int, float], count: int = 5, *, higher: bool = True) -> float:
    """Mean of the `count` best rounds, of all where there are fewer; NaN is left out.

    >>> top_mean({1: 0.25, 2: 0.75, 3: 0.5}, 2)
    0.625
    """
    if count < 1:
        raise ConfigError(f"the number of rounds to average must be at least 1, got {count}")
    best = sorted((value for value in history.values() if not isnan(value)), reverse=higher)[:count]
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
