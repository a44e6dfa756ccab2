"""How good the clients' own models are for the clients themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from torch import Tensor

from accord.measures.column import leading
from accord.measures.measure import Measure, Record, entry
from accord.measures.predictions import Vector, read
from accord.measures.scene import Final, Moment, Scene
from accord.measures.spread import spread_record
from accord.settings import Setting

Measured = Mapping[int, Mapping[str, Tensor]]  # by client


@entry
class Personal(Measure):
    """Accuracy, or the problem's own number, of the clients' own models on their own test data, in every round and of
    all clients at the end.

    At the end every client trains once more from the final state, and is judged before and after; nothing is kept.
    """

    name = "personal"
    setting = Setting(
        "personal",
        Literal["auto"] | bool,
        "auto",
        doc="accuracy of the clients' own models on their own test data; auto: for methods that are about them",
    )
    columns = (
        *leading("personal_before", "personal before", ("personal_{}_before", "mean")),
        *leading("personal_{}", "personal", ("personal_{}", "mean")),
        *leading("personal_best", "best personal", ("personal_{}", "best"), compared=False),
        *leading("personal_worst", "worst personal", ("personal_{}", "worst"), compared=False),
        *leading("personal_std", "personal std", ("personal_{}", "std"), spread=True, compared=False),
    )
    every_round = True
    at_clients = True

    def on(self, scene: Scene) -> bool:
        """As it is set; `auto` leaves it to the method."""
        value = scene.settings.get("personal", "auto")
        return scene.algorithm.personal if value == "auto" else bool(value)

    def round(self, scene: Scene, moment: Moment) -> Record:
        """Of the round's clients, after their training."""
        replies = moment.replies
        measured = {k: result.metrics for k, result in zip(replies.ids, replies.results, strict=True)}
        return {"personal": _spread(scene, measured, "personal_correct")} if measured else {}

    def end(self, scene: Scene, final: Final) -> Record:
        """Of all clients, before and after one more round of their training."""
        return {name: _spread(scene, final.trained, total) for name, total in _at_the_end(scene).items()}

    def sites(self, scene: Scene, final: Final) -> dict[str, Vector]:
        """Each client's own."""
        columns = {}
        for name, total in _at_the_end(scene).items():
            clients, values, _ = _values(scene, final.trained, total)
            columns[name] = np.full(len(scene.data), np.nan)
            columns[name][clients] = values
        return columns

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """All of it is measured at the end."""
        return {}


def _at_the_end(scene: Scene) -> dict[str, str]:
    """What is told of the end, and the sum it is made of."""
    name = f"personal_{scene.problem.headline}"
    return {f"{name}_before": "personal_before", name: "personal_correct"}


def _values(scene: Scene, measured: Measured, total: str) -> tuple[list[int], Vector, list[int]]:
    """The clients that have test samples, the leading number of each, and how many samples it is of."""
    sums = {client: metrics for client, metrics in measured.items() if total in metrics}
    tested = [int(metrics["personal_examples"]) for metrics in sums.values()]
    means = np.array([float(metrics[total]) for metrics in sums.values()]) / np.array(tested)
    return list(sums), read(scene.problem, means), tested


def _spread(scene: Scene, measured: Measured, total: str) -> Record:
    """Over the clients that have test samples."""
    clients, values, tested = _values(scene, measured, total)
    better = "higher" if scene.problem.higher_is_better else "lower"
    return spread_record(values, tested, better) if clients else {}
