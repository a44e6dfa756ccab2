"""How good the clients' own models are for the clients themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from accord.core.types import Replies, State
from accord.measures.column import Column
from accord.measures.measure import Measure, Record, entry
from accord.measures.scene import Ask, Moment, Scene
from accord.measures.spread import spread_record
from accord.settings import Setting


@entry
class Personal(Measure):
    """Accuracy of the clients' own models on their own test data: in every round, and of all clients at the end.

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
        Column("personal_before", "personal before %", ("personal_accuracy_before", "mean")),
        Column("personal_accuracy", "personal %", ("personal_accuracy", "mean")),
        Column("personal_best", "best personal %", ("personal_accuracy", "best"), compared=False),
        Column("personal_worst", "worst personal %", ("personal_accuracy", "worst"), compared=False),
        Column("personal_std", "personal std %", ("personal_accuracy", "std"), better="lower", compared=False),
    )
    every_round = True
    at_clients = True

    def on(self, scene: Scene) -> bool:
        """As it is set; `auto` leaves it to the method."""
        value = scene.settings.get("personal", "auto")
        return scene.algorithm.personal if value == "auto" else bool(value)

    def round(self, scene: Scene, moment: Moment) -> Record:
        """Of the round's clients, after their training."""
        return {"personal": _shares(moment.replies, "personal_correct")} if len(moment.replies) else {}

    def end(self, scene: Scene, state: State, ask: Ask) -> Record:
        """Of all clients, before and after one more round of their training."""
        replies = ask("train", scene.members, scene.algorithm.message(state))
        return {
            "personal_accuracy_before": _shares(replies, "personal_before"),
            "personal_accuracy": _shares(replies, "personal_correct"),
        }

    def summary(self, scene: Scene, records: Sequence[Mapping[str, Any]]) -> Record:
        """All of it is measured at the end."""
        return {}


def _shares(replies: Replies, count: str) -> Record:
    """The spread of right answers over test samples; clients without test samples are left out."""
    sums = [result.metrics for result in replies.results if count in result.metrics]
    if not sums:
        return {}
    tested = np.array([int(metrics["personal_examples"]) for metrics in sums])
    return spread_record(np.array([float(metrics[count]) for metrics in sums]) / tested, tested)
