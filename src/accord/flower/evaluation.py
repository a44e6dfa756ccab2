"""Judging the global model where the data is: the `evaluate` task on the nodes, and the same measures as ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from accord.core.types import State
from accord.engine.evaluation import scene_of
from accord.engine.federation import Federation
from accord.flower.facts import Outline
from accord.measures import Evaluator, Measure, Scene
from accord.measures.predictions import Predictions
from accord.measures.reported import Reported, check_possible

Scores = Mapping[int, Mapping[str, Tensor]]  # by client: correct, loss, examples


@dataclass(frozen=True)
class RemoteScene(Scene):
    """A scene whose samples are with the clients."""

    ask: Callable[[State], Scores] = field(default=lambda state: {}, kw_only=True)

    def admits(self, measure: Measure) -> bool:
        """What clients can report, or the server has itself."""
        setting = measure.setting
        value = None if setting is None else self.settings.get(setting.name)
        return check_possible(measure, asked=bool(value) and setting is not None and value != setting.default)

    def judged(self, state: State, keep: frozenset[str] = frozenset()) -> Predictions | None:
        """What the clients say of the global model; None where there is none, or nobody could judge it."""
        if "evaluate" not in self.algorithm.tasks:
            return None
        scores = self.ask(state)
        if not sum(float(score["examples"]) for score in scores.values()):
            return None
        return Reported(self.data, scores)


def label_columns(data: Outline) -> dict[str, list[Any]]:
    """What the sites told of their labels, as columns of the table of sites."""
    names = [name for name in ("class", "class_share", "label_mean") if any(name in told for told in data.told)]
    empty = {"class": ""}
    return {name: [told.get(name, empty.get(name)) for told in data.told] for name in dict.fromkeys(["class", *names])}


def remote_evaluator(federation: Federation, data: Outline, ask: Callable[[State], Scores]) -> Evaluator:
    """All that the configuration asks for, as far as it can be had; the rest is refused here."""
    scene = scene_of(federation)
    known = {name: getattr(scene, name) for name in Scene.__dataclass_fields__}
    return Evaluator(RemoteScene(**known | {"visit": None, "labels": label_columns(data)}, ask=ask))
