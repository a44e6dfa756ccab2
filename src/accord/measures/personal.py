"""How good the clients' own models are for the clients themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from accord.core.types import Replies, State
from accord.measures.column import leading
from accord.measures.measure import Measure, Record, entry
from accord.measures.predictions import read
from accord.measures.scene import Ask, Moment, Scene
from accord.measures.spread import spread_record
from accord.settings import Setting


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
        return {"personal": _spread(scene, moment.replies, "personal_correct")} if len(moment.replies) else {}

    def end(self, scene: Scene, state: State, ask: Ask) -> Record:
        """Of all clients, before and after one more round of their training."""
        replies = ask("train", scene.members, scene.algorithm.message(state))
        name = f"personal_{scene.problem.headline}"
        return {
            f"{name}_before": _spread(scene, replies, "personal_before"),
            name: _spread(scene, replies, "personal_correct"),
        }

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """All of it is measured at the end."""
        return {}


def _spread(scene: Scene, replies: Replies, total: str) -> Record:
    """The spread of mean scores (shares of right answers); clients without test samples are left out."""
    problem, sums = scene.problem, [result.metrics for result in replies.results if total in result.metrics]
    if not sums:
        return {}
    tested = np.array([int(metrics["personal_examples"]) for metrics in sums])
    means = np.array([float(metrics[total]) for metrics in sums]) / tested
    return spread_record(read(problem, means), tested, "higher" if problem.higher_is_better else "lower")
